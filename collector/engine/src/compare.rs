//! Compares several ways to run one model. Their runs are interleaved, so that disturbances of the
//! machine affect all of them. Ratios have an interval over visits, which are fresh processes.

use crate::Result;
use crate::network::{self, Best, Comparison};
use crate::prepared::{PreparedModel, build_failure};
use crate::staging;
use datasets::OverVisits;
use job::{Engine, NetworkJob};
use measure::counters::{Backend, CounterRequest};
use measure::statistics::{median, summarise_samples};
use measure::{Method, Placement, Plan, Ratio};
use models::{Choice, Parallel, StagePlan, Task, choice};
use report::{Paper, Table, format_count, format_duration, format_percent, number_column, or_unknown, text_column};
use serde::Serialize;

/// Sampling time per variant and round: caches and clocks settle in it, and a disturbance affects few rounds.
const ROUND_NS: u64 = 100_000_000;

/// Largest number of visits (fresh processes) per variant and pass; the rounds are divided evenly among them.
pub(crate) const VISITS: u32 = 5;
/// Largest number of passes if the ratios of different visits (fresh processes) disagree.
const MAX_PASSES: u32 = 3;
/// Half-width of a ratio's confidence interval, on a logarithmic scale, above which another pass is run.
const DISAGREEMENT: f64 = 0.1;

choice! {
    /// A way to run a model.
    pub enum VariantName {
        /// Compiled code with default schedules
        Default = "default",
        /// Compiled code with the fastest correct schedules of `--store`
        Best = "best",
        /// ONNX Runtime, on the model exported as an ONNX file
        Onnxruntime = "onnxruntime",
        /// ONNX Runtime, on the original ONNX file
        OnnxruntimeOriginal = "onnxruntime-original",
        /// OpenVINO in f32, on the exported file; see `scripts/setup --openvino`
        Openvino = "openvino",
        /// PyTorch in eager mode; see `docs/guide/torch.md`
        Torch = "torch",
        /// Compiled code, concurrent according to `--plan`
        Plan = "plan",
        /// Compiled code, one operator at a time, on the threads of `plan`
        Sequential = "sequential",
        /// Compiled code, ready operators concurrent on separate cores
        Stream = "stream",
        /// Compiled code, ready operators concurrent, each on all cores
        Full = "full",
    }
}

impl VariantName {
    /// Returns the engine that runs this variant.
    pub fn engine(self) -> Engine {
        match self {
            VariantName::Default
            | VariantName::Best
            | VariantName::Plan
            | VariantName::Sequential
            | VariantName::Stream
            | VariantName::Full => Engine::Program,
            VariantName::Onnxruntime | VariantName::OnnxruntimeOriginal => Engine::OnnxRuntime,
            VariantName::Openvino => Engine::OpenVino,
            VariantName::Torch => Engine::Torch,
        }
    }
}

/// Result of a comparison, serialised for scripts.
#[derive(Serialize)]
pub struct Report {
    model: String,
    batch: Option<i64>,
    target: String,
    threads: usize,
    seed: u64,
    rounds: u32,
    visits: usize,
    has_agreement: bool,
    variants: Vec<TimedVariant>,
}

#[derive(Serialize)]
struct TimedVariant {
    variant: &'static str,
    median_ns: f64,
    min_ns: f64,
    p95_ns: f64,
    n: u32,
    /// Median over visits of the time relative to the first variant, with an interval for a repeated comparison.
    ratio: Option<Ratio>,
    /// Smallest relative difference that can be distinguished from the scatter between visits.
    detectable: Option<f64>,
    visit_ratios: Vec<f64>,
    round_medians_ns: Vec<f64>,
    /// Number of tasks of a compiled variant. `tasks_found` is the number of tasks with a schedule in the store.
    tasks: Option<usize>,
    tasks_found: Option<usize>,
    peak_memory_bytes: u64,
    check: Option<Comparison>,
}

impl Report {
    /// Returns whether a variant computed a wrong result.
    pub fn is_wrong(&self) -> bool {
        self.variants.iter().any(|timed| timed.check.is_some_and(|check| !check.is_right))
    }
}

/// Options of a comparison.
pub struct ComparisonRequest<'a> {
    /// The variants, in the order of the report.
    pub variants: &'a [VariantName],
    /// Schedules of the variant `best`.
    pub best: Option<&'a Best>,
    /// Stages of concurrent calls, for the variant `plan`.
    pub plan: Option<&'a StagePlan>,
}

/// A variant that is ready to run.
pub struct Variant {
    argument: VariantName,
    job: NetworkJob,
    tasks: Option<usize>,
    tasks_found: Option<usize>,
    check: Option<Comparison>,
    peak_memory_bytes: u64,
    samples_ns: Vec<f64>,
    round_medians_ns: Vec<f64>,
    /// Visit (process) in which each round ran.
    visits: Vec<u32>,
}

/// Prepares all requested variants for timing.
pub fn prepare_variants(wanted: &ComparisonRequest<'_>, prepared: &mut PreparedModel) -> Result<Vec<Variant>> {
    prepared.require_operators()?;
    let made = |&variant| prepared.runs.check_signal().and_then(|()| prepare_variant(variant, wanted, prepared));
    wanted.variants.iter().map(made).collect()
}

/// Times the variants in interleaved rounds. Repeats the pass while visits disagree, up to `MAX_PASSES` passes.
pub fn time_variants(mut variants: Vec<Variant>, rounds: u32, prepared: &mut PreparedModel) -> Result<Report> {
    for variant in &mut variants {
        load_variant(variant, prepared)?;
    }
    let visits = VISITS.min(rounds);
    for pass in 0..MAX_PASSES {
        for round in 0..rounds {
            let visit = pass * visits + round * visits / rounds;
            for place in 0..variants.len() {
                let turn = (round as usize + place) % variants.len();
                sample_variant(&mut variants[turn], (pass * rounds + round, visit), prepared)?;
            }
        }
        let found = build_report(prepared, &variants);
        if found.has_agreement || pass + 1 == MAX_PASSES {
            return Ok(found);
        }
        prepared.runs.observer.announce_step("comparing again, because fresh processes disagree");
    }
    unreachable!("the last pass returns")
}

fn prepare_variant(
    argument: VariantName,
    wanted: &ComparisonRequest<'_>,
    prepared: &mut PreparedModel,
) -> Result<Variant> {
    prepared.stages = match argument {
        VariantName::Plan => wanted.plan.cloned(),
        VariantName::Sequential => Some(staging::plan_by_rule(Parallel::Sequential, prepared)),
        VariantName::Stream => Some(staging::plan_by_rule(Parallel::Stream, prepared)),
        VariantName::Full => Some(staging::plan_by_rule(Parallel::Full, prepared)),
        _ => None,
    };
    let (name, target) = (format!("{}-{}", argument.name(), prepared.runs.cpus.len()), prepared.target.clone());
    let folder = prepared.new_folder(&name)?;
    let (mut tasks, mut tasks_found) = (None, None);
    match (argument, wanted.best) {
        (VariantName::Best, Some(best)) => {
            tasks_found = Some(best.found_count());
            tasks = Some(
                prepared.build_into(&folder, &|task| best.choose_schedule(task)).map_err(build_failure)?.program.codes,
            );
        }
        (VariantName::Onnxruntime | VariantName::Openvino, _) => prepared.write_onnx(&folder)?,
        (VariantName::OnnxruntimeOriginal, _) => prepared.write_original(&folder)?,
        (VariantName::Torch, _) => prepared.write_tasks(&folder)?,
        // Parallel plans are based on the times of the default schedules.
        _ => {
            let choose = |task: &Task| network::default_schedule(task, &target);
            tasks = Some(prepared.build_into(&folder, &choose).map_err(build_failure)?.program.codes);
        }
    }
    let plan = Plan {
        visits: 1,
        samples_min: 2,
        samples_slow_min: 2,
        sampling_time_min_ns: ROUND_NS,
        time_budget_ns: ROUND_NS,
        ..prepared.runs.config.measure.clone()
    };
    let counters = CounterRequest { backend: Backend::None, ..CounterRequest::default() };
    let job = prepared.runs.create_job(argument.engine(), folder, &name, Method::Sample(plan), counters);
    Ok(Variant {
        argument,
        job,
        tasks,
        tasks_found,
        check: None,
        peak_memory_bytes: 0,
        samples_ns: Vec::new(),
        round_medians_ns: Vec::new(),
        visits: Vec::new(),
    })
}

/// Loads a variant, and checks the outputs of a first run, which is not timed.
fn load_variant(variant: &mut Variant, prepared: &mut PreparedModel) -> Result<()> {
    let is_ours = variant.job.engine == Engine::Program;
    let measured = prepared.runs.run_job(&variant.job).map_err(|failure| match failure.hint() {
        None if !is_ours => failure.with_hint(format!("leave out `--variant {}`", variant.argument.name())),
        _ => failure,
    })?;
    variant.peak_memory_bytes = measured.peak_memory_bytes;
    variant.check = prepared.check_outputs(&prepared.last_outputs(&variant.job)?);
    Ok(())
}

/// Times a variant in one round. Each round has its own stack address, and each visit its own process.
fn sample_variant(variant: &mut Variant, (round, visit): (u32, u32), prepared: &mut PreparedModel) -> Result<()> {
    let (method, seed) = (&variant.job.method, prepared.runs.config.seed);
    let stack_bytes = method.placement(seed, round, 0).stack_bytes;
    variant.job.placement = Placement { stack_bytes, ..method.placement(seed, visit, visit) };
    let measured = prepared.runs.run_job(&variant.job)?;
    variant.visits.push(visit);
    variant.round_medians_ns.push(measured.measurement.median_ns);
    variant.samples_ns.extend(measured.measurement.samples_ns);
    Ok(())
}

fn visit_ratios(variant: &Variant, first: &Variant) -> Vec<f64> {
    let visits = variant.visits.last().map_or(0, |last| last + 1);
    let of = |visit: u32| {
        let of_visit = |one: &Variant| -> Vec<f64> {
            let rounds = one.visits.iter().zip(&one.round_medians_ns);
            rounds.filter(|(own, _)| **own == visit).map(|(_, time_ns)| *time_ns).collect()
        };
        measure::paired_ratio(&of_visit(variant), &of_visit(first)).map(|ratio| ratio.median)
    };
    (0..visits).filter_map(of).collect()
}

/// Returns the median of the visits' ratios, with an interval for a repeated comparison with as many visits.
pub(crate) fn over_visits(ratios: &[f64]) -> Option<Ratio> {
    let median = median(ratios)?;
    Some(Ratio { median, interval: OverVisits::of_medians(median, ratios).interval_ns })
}

/// Returns the half-width of a ratio's interval, on a logarithmic scale.
fn half_width(ratio: Ratio) -> Option<f64> {
    ratio.interval.map(|(low, high)| (high / low).ln() / 2.0)
}

fn build_report(prepared: &PreparedModel, variants: &[Variant]) -> Report {
    let timed = variants.iter().map(|variant| {
        let mut sorted = variant.samples_ns.clone();
        sorted.sort_by(f64::total_cmp);
        let summary = summarise_samples(&sorted).expect("each round has samples");
        let visit_ratios = visit_ratios(variant, &variants[0]);
        let ratio = over_visits(&visit_ratios);
        TimedVariant {
            variant: variant.argument.name(),
            median_ns: summary.median,
            min_ns: summary.min,
            p95_ns: summary.p95,
            n: summary.n,
            ratio,
            detectable: ratio.and_then(half_width).map(f64::exp_m1),
            visit_ratios,
            round_medians_ns: variant.round_medians_ns.clone(),
            tasks: variant.tasks,
            tasks_found: variant.tasks_found,
            peak_memory_bytes: variant.peak_memory_bytes,
            check: variant.check,
        }
    });
    let timed: Vec<TimedVariant> = timed.collect();
    let has_agreement = |timed: &TimedVariant| timed.ratio.and_then(half_width).is_none_or(|half| half <= DISAGREEMENT);
    Report {
        model: prepared.request.label(),
        batch: prepared.request.batch,
        target: prepared.target.text.clone(),
        threads: prepared.runs.cpus.len(),
        seed: prepared.runs.config.seed,
        rounds: u32::try_from(variants[0].visits.len()).unwrap_or(u32::MAX),
        visits: timed[0].visit_ratios.len(),
        has_agreement: timed.iter().all(has_agreement),
        variants: timed,
    }
}

/// Formats the report of a comparison as text.
pub fn describe_report(report: &Report, paper: &Paper) -> String {
    let Report { model, threads, rounds, seed, .. } = report;
    let mut table = Table::new([
        text_column("variant"),
        number_column("median"),
        number_column("least"),
        number_column("p95"),
        number_column("samples").drop_order(1),
        number_column("× first"),
        number_column("95 % interval"),
        text_column("outputs"),
    ]);
    for timed in &report.variants {
        table.add_row([
            timed.variant.to_owned(),
            format_duration(timed.median_ns),
            format_duration(timed.min_ns),
            format_duration(timed.p95_ns),
            timed.n.to_string(),
            or_unknown(timed.ratio, |ratio| format!("{:.3}", ratio.median)),
            or_unknown(timed.ratio.and_then(|ratio| ratio.interval), |(low, high)| format!("{low:.3} … {high:.3}")),
            match timed.check {
                None => "not checked".to_owned(),
                Some(check) if check.is_right => "right".to_owned(),
                Some(check) => format!("WRONG by {:.1e} of {:.1e}", check.max_abs_error, check.largest_output),
            },
        ]);
    }
    let visits = report.visits;
    let mut text = format!(
        "{model}: {}, {} in {}, seed {seed}\n{}",
        format_count(*threads, "thread"),
        format_count(*rounds, "round"),
        format_count(visits, "visit"),
        table.format_for(paper)
    );
    text.push('\n');
    text.push_str(&describe_noise(report));
    for timed in &report.variants {
        if let (Some(tasks), Some(found)) = (timed.tasks, timed.tasks_found) {
            text.push_str(&format!(
                "\nthe store has schedules for {found} of {}; the others run with the default",
                format_count(tasks, "task")
            ));
        }
    }
    text
}

fn describe_noise(report: &Report) -> String {
    let least = report
        .variants
        .iter()
        .filter_map(|timed| timed.detectable)
        .fold(None, |most: Option<f64>, one| Some(most.map_or(one, |most| most.max(one))));
    match least {
        None => "the noise between processes is unknown: give `--rounds 6` or more".to_owned(),
        Some(_) if report.variants.len() == 1 => "nothing to compare with; give a second `--variant`".to_owned(),
        Some(least) if report.has_agreement => {
            format!("differences below {} are within the noise between processes", format_percent(least))
        }
        Some(least) => {
            let of = |timed: &TimedVariant| {
                let ratios = timed.visit_ratios.iter().copied();
                let (low, high) = (ratios.clone().fold(f64::INFINITY, f64::min), ratios.fold(0.0, f64::max));
                format!("{} {low:.3} … {high:.3}", timed.variant)
            };
            let ranges: Vec<String> = report.variants.iter().skip(1).map(of).collect();
            format!(
                "the visits do not agree ({}): the machine is busy, and differences below {} cannot be distinguished \
                 from noise; close other programs and compare again",
                ranges.join(", "),
                format_percent(least)
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_of_ratios_follow_the_scatter_of_visits() {
        let half = |ratios: &[f64]| over_visits(ratios).and_then(half_width);
        assert_eq!((over_visits(&[]).map(|ratio| ratio.median), half(&[0.5])), (None, None));
        assert!(half(&[0.50, 0.51, 0.50, 0.49, 0.50]).is_some_and(|half| half <= DISAGREEMENT));
        // Three comparisons of one pair on a busy machine.
        let busy = over_visits(&[0.170, 0.456, 0.217]).expect("a ratio");
        assert!(busy.interval.is_some_and(|(low, high)| low < 0.170 && high > 0.456), "{busy:?}");
        assert!(half_width(busy).is_some_and(|half| half > DISAGREEMENT));
    }
}
