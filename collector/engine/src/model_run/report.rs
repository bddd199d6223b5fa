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
use report::{format_duration, format_range, format_size};
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

/// The report of a run of a whole model.
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
    median_ns: f64,
    min_ns: f64,
    mean_ns: f64,
    p95_ns: f64,
    n: u32,
    median_interval_ns: Option<(f64, f64)>,
    interval_covers: Option<Covers>,
    #[serde(skip_serializing_if = "Option::is_none")]
    visits_ns: Option<Json>,
    first_run_ns: u64,
    cpu_time_ns: f64,
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
        record::describe_measurement(&mut row, m)?;
        Ok(ModelReport {
            model: ran.model.clone(),
            batch: ran.batch,
            target: ran.target.to_owned(),
            source: ran.board.map_or(Source::Measured, Board::time_source).name(),
            code_for: ran.code_for.clone(),
            threads: ran.threads,
            seed: ran.seed,
            calls: program.calls.len(),
            tasks: program.codes,
            median_ns: m.median_ns,
            min_ns: m.min_ns,
            mean_ns: m.mean_ns,
            p95_ns: m.p95_ns,
            n: m.n,
            median_interval_ns: row.median_low_ns.zip(row.median_high_ns),
            interval_covers: row.interval_covers,
            visits_ns: row.visits_ns,
            first_run_ns: m.first_run_ns,
            cpu_time_ns: m.cpu_time_ns,
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
            warnings: m.warnings.iter().map(ToString::to_string).collect(),
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

fn describe_report(report: &ModelReport) -> String {
    let mut lines = vec![format!(
        "{}: {} calls of {} tasks, {}, seed {}",
        report.model,
        report.calls,
        report.tasks,
        report::format_count(report.threads, "thread"),
        report.seed
    )];
    let covered = match report.interval_covers {
        Some(Covers::Visits) => "over visits",
        _ => "within one visit",
    };
    let interval = report.median_interval_ns.map(|(low, high)| format!(", {} {covered}", format_range(low, high)));
    lines.push(format!(
        "  time        {} median{}; least {}, p95 {}, {} samples",
        format_duration(report.median_ns),
        interval.unwrap_or_default(),
        format_duration(report.min_ns),
        format_duration(report.p95_ns),
        report.n
    ));
    if let (Some(parallel), Some(stages), Some(width)) = (report.parallel, report.stages, report.width) {
        let promised = report.promised.map(|promise| {
            format!(
                "; promised {} ({})",
                format_duration(promise.time_ns),
                format_range(promise.low_ns, promise.high_ns)
            )
        });
        let (name, promised) = (parallel.name(), promised.unwrap_or_default());
        lines.push(format!("  plan        {name}: {stages} stages, up to {width} concurrent groups{promised}"));
    }
    lines.push(format!("  first run   {}", format_duration(report.first_run_ns as f64)));
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
