//! The report of a run of a whole model, as values and as text.

use crate::boards::Board;
use crate::campaign::record;
use crate::network::{self, Comparison};
use crate::record_keeping::RecordLocation;
use datasets::{Covers, Json, Record, RowError, Source};
use executor::Program;
use job::Measured;
use models::stages::Promise;
use models::{Choice, Parallel, StagePlan};
use report::{format_count, format_duration, format_range, format_size};
use serde::Serialize;

/// The facts about a finished run from which its report is created.
pub struct RanProgram<'a> {
    /// Name of the model, with its sequence length and phase if it has them.
    pub model: String,
    /// Batch size of the model, if it has one.
    pub batch: Option<i64>,
    /// The target as text.
    pub target: &'a str,
    /// Processor that the code requires, if the program came from a folder.
    pub code_for: Option<String>,
    /// Number of threads.
    pub threads: usize,
    /// Seed of the random input values.
    pub seed: u64,
    /// The program that ran.
    pub program: &'a Program,
    /// Measured times and their method.
    pub measured: &'a Measured,
    /// Comparison with the reference, if outputs are compared.
    pub check: Option<Comparison>,
    /// Location of the record, if one is stored.
    pub kept: Option<RecordLocation>,
    /// Parallel plan of the calls, if there is one.
    pub stages: Option<&'a StagePlan>,
    /// Board on which the program ran, if it did not run on this machine.
    pub board: Option<&'a Board>,
}

/// The report of a run of a whole model. A model without operators has no times: samples would be those of an empty loop.
#[derive(Clone, Debug, Serialize)]
pub struct ModelReport {
    model: String,
    batch: Option<i64>,
    target: String,
    source: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    code_for: Option<String>,
    threads: usize,
    seed: u64,
    calls: usize,
    tasks: usize,
    median_ns: Option<f64>,
    min_ns: Option<f64>,
    mean_ns: Option<f64>,
    p95_ns: Option<f64>,
    n: u32,
    median_interval_ns: Option<(f64, f64)>,
    interval_covers: Option<Covers>,
    #[serde(skip_serializing_if = "Option::is_none")]
    visits_ns: Option<Json>,
    first_run_ns: Option<u64>,
    cpu_time_ns: Option<f64>,
    activation_bytes: u64,
    least_activation_bytes: u64,
    constant_bytes: u64,
    peak_memory_bytes: u64,
    check: Option<Comparison>,
    record: Option<RecordLocation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parallel: Option<Parallel>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stages: Option<usize>,
    /// Largest number of call groups that run concurrently in a stage of the parallel plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    width: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    promised: Option<Promise>,
    /// Median start and end of each group of calls in each stage of the parallel plan.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    lanes: Vec<ReportLane>,
    warnings: Vec<String>,
    /// Heading that describes the board; part of the text report only.
    #[serde(skip)]
    heading: String,
}

#[derive(Clone, Debug, Serialize)]
struct ReportLane {
    stage: usize,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    cores: Vec<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream: Option<usize>,
    begin_ns: f64,
    end_ns: f64,
    /// Names of the group's calls in the model.
    scopes: Vec<String>,
}

impl ModelReport {
    /// Creates the report of a run.
    pub fn new(ran: &RanProgram<'_>) -> Result<ModelReport, RowError> {
        let RanProgram { program, measured, .. } = ran;
        let m = &measured.measurement;
        // The interval and the number of visits are computed as for a record.
        let mut row = Record::default();
        let has_times = !program.calls.is_empty();
        if has_times {
            record::describe_measurement(&mut row, m)?;
        }
        Ok(ModelReport {
            model: ran.model.clone(),
            batch: ran.batch,
            target: ran.target.to_owned(),
            source: ran.board.map_or(Source::Measured, Board::time_source).name(),
            code_for: ran.code_for.clone(),
            threads: ran.threads,
            seed: ran.seed,
            calls: program.calls.len(),
            tasks: program.called_codes(),
            median_ns: has_times.then_some(m.median_ns),
            min_ns: has_times.then_some(m.min_ns),
            mean_ns: has_times.then_some(m.mean_ns),
            p95_ns: has_times.then_some(m.p95_ns),
            n: if has_times { m.n } else { 0 },
            median_interval_ns: row.median_low_ns.zip(row.median_high_ns),
            interval_covers: row.interval_covers,
            visits_ns: row.visits_ns,
            first_run_ns: has_times.then_some(m.first_run_ns),
            cpu_time_ns: has_times.then_some(m.cpu_time_ns),
            activation_bytes: program.activation_bytes,
            least_activation_bytes: program.least_activation_bytes,
            constant_bytes: network::constant_bytes(program),
            peak_memory_bytes: measured.peak_memory_bytes,
            check: ran.check,
            record: ran.kept.clone(),
            parallel: ran.stages.map(|stages| stages.parallel),
            stages: ran.stages.map(|stages| stages.stages.len()),
            width: ran.stages.map(StagePlan::max_groups),
            promised: ran.stages.and_then(|stages| stages.promise),
            lanes: report_lanes(ran),
            warnings: m.warnings.iter().filter(|_| has_times).map(ToString::to_string).collect(),
            heading: ran.board.map(Board::table_heading).unwrap_or_default(),
        })
    }

    /// Returns whether the outputs were compared and differ from the reference.
    pub fn is_wrong(&self) -> bool {
        self.check.is_some_and(|check| !check.is_right)
    }

    /// Describes the run in lines of text.
    pub fn text(&self) -> String {
        format!("{}{}", self.heading, describe_report(self))
    }
}

fn report_lanes(ran: &RanProgram<'_>) -> Vec<ReportLane> {
    let stages = ran.program.stages.iter().zip(&ran.measured.stages_ns).enumerate();
    let is_on_gpu = targets::find_kind(ran.target).is_some_and(|kind| kind.runs_on_gpu());
    let mut lanes = Vec::new();
    for (stage, (groups, seen)) in stages {
        lanes.extend(groups.groups.iter().zip(seen).map(|(group, (begin_ns, end_ns))| ReportLane {
            stage,
            cores: if is_on_gpu { Vec::new() } else { group.cores.clone() },
            stream: group.cores.first().copied().filter(|_| is_on_gpu),
            begin_ns: *begin_ns,
            end_ns: *end_ns,
            scopes: group.calls.iter().map(|&call| ran.program.calls[call].scope.clone()).collect(),
        }));
    }
    lanes
}

fn describe_times(report: &ModelReport) -> String {
    let (Some(median_ns), Some(min_ns), Some(p95_ns)) = (report.median_ns, report.min_ns, report.p95_ns) else {
        return "none, because the model has no operators: each output is an input or a constant".to_owned();
    };
    let covered = match report.interval_covers {
        Some(Covers::Visits) => "over visits",
        _ => "within one visit",
    };
    let interval = report.median_interval_ns.map(|(low, high)| format!(", {} {covered}", format_range(low, high)));
    format!(
        "{} median{}; least {}, p95 {}, {} samples",
        format_duration(median_ns),
        interval.unwrap_or_default(),
        format_duration(min_ns),
        format_duration(p95_ns),
        report.n
    )
}

fn describe_report(report: &ModelReport) -> String {
    let mut lines = vec![format!(
        "{}: {} of {}, {}, seed {}",
        report.model,
        format_count(report.calls, "call"),
        format_count(report.tasks, "task"),
        format_count(report.threads, "thread"),
        report.seed
    )];
    lines.push(format!("  time        {}", describe_times(report)));
    if let (Some(parallel), Some(stages), Some(width)) = (report.parallel, report.stages, report.width) {
        let promised = report.promised.map(|promise| {
            format!(
                "; promised {} ({})",
                format_duration(promise.time_ns),
                format_range(promise.low_ns, promise.high_ns)
            )
        });
        let (name, promised) = (parallel.name(), promised.unwrap_or_default());
        lines.push(format!(
            "  plan        {name}: {}, up to {}{promised}",
            format_count(stages, "stage"),
            format_count(width, "concurrent group")
        ));
    }
    lines.extend(report.first_run_ns.map(|first_ns| format!("  first run   {}", format_duration(first_ns as f64))));
    lines.push(format!(
        "  memory      {} of activations (at least {}), {} of constants, {} the whole process",
        format_size(report.activation_bytes),
        format_size(report.least_activation_bytes),
        format_size(report.constant_bytes),
        // The memory of a process on a board is unknown.
        if report.peak_memory_bytes > 0 { format_size(report.peak_memory_bytes) } else { "?".to_owned() }
    ));
    lines.extend(report.code_for.iter().map(|code| format!("  code        for {code}")));
    lines.push(match &report.check {
        None => "  check       none".to_owned(),
        Some(check) => format!(
            "  check       {}: differs by {:.1e} where outputs are up to {:.1e}; a relative difference of {:.0e} is \
             allowed",
            if check.is_right { "right" } else { "WRONG" },
            check.max_abs_error,
            check.largest_output,
            check.tolerance
        ),
    });
    lines.extend(report.record.iter().map(|kept| format!("  record      {} in `{}`", kept.key, kept.store)));
    lines.extend(report.warnings.iter().map(|warning| format!("  note        {warning}")));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use measure::counters::NoCounters;
    use measure::{HostClock, Plan, sample_runs};

    #[test]
    fn a_model_without_operators_has_no_time() {
        let plan = Plan { samples_min: 1, time_budget_ns: 0, warm_up_time_ns: 0, ..Plan::default() };
        let mut run = |_| Ok::<(), std::convert::Infallible>(());
        let Ok(measurement) = sample_runs(&mut run, &plan, &mut HostClock::new(), &mut NoCounters);
        let program = Program {
            name: "identity".to_owned(),
            calls: Vec::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            constants: Vec::new(),
            codes: 0,
            activation_bytes: 0,
            least_activation_bytes: 0,
            stages: Vec::new(),
        };
        let ran = RanProgram {
            model: "identity".to_owned(),
            batch: None,
            target: "llvm",
            code_for: None,
            threads: 1,
            seed: 0,
            program: &program,
            measured: &Measured::from_measurement(measurement, None, 0),
            check: None,
            kept: None,
            stages: None,
            board: None,
        };
        let report = ModelReport::new(&ran).unwrap();
        let text = report.text();
        assert!(text.contains("  time        none, because the model has no operators"), "{text}");
        assert!(!text.contains("first run") && !text.contains("note"), "{text}");
        let document = serde_json::to_value(&report).unwrap();
        for time in ["median_ns", "min_ns", "mean_ns", "p95_ns", "median_interval_ns", "first_run_ns", "cpu_time_ns"] {
            assert!(document[time].is_null(), "{time}: {document}");
        }
    }
}
