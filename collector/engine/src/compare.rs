//! Compares several ways to run one model. Their runs are interleaved, so that disturbances of the
//! machine affect all of them.

use crate::Result;
use crate::network::{self, Best, Comparison};
use crate::prepared::{PreparedModel, not_built};
use crate::staging;
use job::{Engine, NetworkJob};
use measure::counters::{Backend, CounterRequest};
use measure::statistics::summarise;
use measure::{Method, Placement, Plan, Ratio};
use models::{Choice, Parallel, StagePlan, Task, choice};
use report::{Paper, Table, duration, figures, or_unknown, words};
use serde::Serialize;

/// Sampling time of a variant per round: long enough for caches and clocks to settle, short
/// compared with typical disturbances.
const ROUND_NS: u64 = 100_000_000;

choice! {
    /// A way to run a model.
    pub enum Way {
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
        /// Compiled code, concurrent by `--plan`
        Plan = "plan",
        /// Compiled code, sequential, in the threads that run plans
        Sequential = "sequential",
        /// Compiled code, ready operators concurrent on separate cores
        Stream = "stream",
        /// Compiled code, ready operators concurrent, each on all cores
        Full = "full",
    }
}

impl Way {
    /// Returns the engine that runs it.
    pub fn engine(self) -> Engine {
        match self {
            Way::Default | Way::Best | Way::Plan | Way::Sequential | Way::Stream | Way::Full => Engine::Program,
            Way::Onnxruntime | Way::OnnxruntimeOriginal => Engine::OnnxRuntime,
            Way::Openvino => Engine::OpenVino,
            Way::Torch => Engine::Torch,
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
    variants: Vec<TimedVariant>,
}

/// Times of one variant.
#[derive(Serialize)]
struct TimedVariant {
    variant: &'static str,
    median_ns: f64,
    min_ns: f64,
    p95_ns: f64,
    n: u32,
    /// Time over that of the first variant.
    ratio: Option<Ratio>,
    round_medians_ns: Vec<f64>,
    /// For compiled variants: the number of tasks, and the number for which the store has a
    /// schedule.
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
    pub variants: &'a [Way],
    /// Schedules of the variant `best`.
    pub best: Option<&'a Best>,
    /// Stages of the variant `plan`.
    pub plan: Option<&'a StagePlan>,
}

/// A variant that is ready to run.
pub struct Variant {
    argument: Way,
    job: NetworkJob,
    tasks: Option<usize>,
    tasks_found: Option<usize>,
    check: Option<Comparison>,
    peak_memory_bytes: u64,
    samples_ns: Vec<f64>,
    round_medians_ns: Vec<f64>,
}

/// Prepares all variants.
pub fn make(wanted: &ComparisonRequest<'_>, whole: &mut PreparedModel) -> Result<Vec<Variant>> {
    let made = |&variant| whole.runs.go_on().and_then(|()| made(variant, wanted, whole));
    wanted.variants.iter().map(made).collect()
}

/// Times the variants in interleaved rounds.
pub fn time(mut variants: Vec<Variant>, rounds: u32, whole: &mut PreparedModel) -> Result<Report> {
    for variant in &mut variants {
        load(variant, whole)?;
    }
    for round in 0..rounds {
        for place in 0..variants.len() {
            let turn = (round as usize + place) % variants.len();
            sample(&mut variants[turn], (round, rounds), whole)?;
        }
    }
    Ok(report(whole, rounds, &variants))
}

/// Builds a variant, or writes the file of its model.
fn made(argument: Way, wanted: &ComparisonRequest<'_>, whole: &mut PreparedModel) -> Result<Variant> {
    whole.stages = match argument {
        Way::Plan => wanted.plan.cloned(),
        Way::Sequential => Some(staging::by_rule(Parallel::Sequential, whole)),
        Way::Stream => Some(staging::by_rule(Parallel::Stream, whole)),
        Way::Full => Some(staging::by_rule(Parallel::Full, whole)),
        _ => None,
    };
    let (name, target) = (format!("{}-{}", argument.name(), whole.runs.cpus.len()), whole.target.clone());
    let folder = whole.new_folder(&name)?;
    let (mut tasks, mut tasks_found) = (None, None);
    match (argument, wanted.best) {
        (Way::Best, Some(best)) => {
            tasks_found = Some(best.found());
            tasks = Some(whole.make(&folder, &|task| best.choose(task)).map_err(not_built)?.program.codes);
        }
        (Way::Onnxruntime | Way::Openvino, _) => whole.write_onnx(&folder)?,
        (Way::OnnxruntimeOriginal, _) => whole.write_original(&folder)?,
        (Way::Torch, _) => whole.write_tasks(&folder)?,
        // Parallel plans are based on the times of the default schedules.
        _ => {
            let choose = |task: &Task| network::default_schedule(task, &target);
            tasks = Some(whole.make(&folder, &choose).map_err(not_built)?.program.codes);
        }
    }
    let plan = Plan {
        visits: 1,
        samples_min: 2,
        samples_slow_min: 2,
        sampling_time_min_ns: ROUND_NS,
        time_budget_ns: ROUND_NS,
        ..whole.runs.config.measure.clone()
    };
    let counters = CounterRequest { backend: Backend::None, ..CounterRequest::default() };
    let job = whole.runs.job(argument.engine(), folder, &name, Method::Sample(plan), counters);
    Ok(Variant {
        argument,
        job,
        tasks,
        tasks_found,
        check: None,
        peak_memory_bytes: 0,
        samples_ns: Vec::new(),
        round_medians_ns: Vec::new(),
    })
}

/// Loads a variant and checks its outputs in a first run that is not counted.
fn load(variant: &mut Variant, whole: &mut PreparedModel) -> Result<()> {
    variant.peak_memory_bytes = whole.runs.run(&variant.job)?.peak_memory_bytes;
    variant.check = whole.check(&whole.outputs(&variant.job)?);
    Ok(())
}

/// Times a variant in a round. The stack address changes with every round. Each third of the rounds
/// uses a fresh process, in which tensors are placed anew.
fn sample(variant: &mut Variant, (round, rounds): (u32, u32), whole: &mut PreparedModel) -> Result<()> {
    let (method, seed) = (&variant.job.method, whole.runs.config.seed);
    let third = round * 3 / rounds;
    let stack_bytes = method.placement(seed, round, 0).stack_bytes;
    variant.job.placement = Placement { stack_bytes, ..method.placement(seed, third, third) };
    let measured = whole.runs.run(&variant.job)?;
    variant.round_medians_ns.push(measured.measurement.median_ns);
    variant.samples_ns.extend(measured.measurement.samples_ns);
    Ok(())
}

fn report(whole: &PreparedModel, rounds: u32, variants: &[Variant]) -> Report {
    let first = &variants[0].round_medians_ns;
    let timed = variants.iter().map(|variant| {
        let mut sorted = variant.samples_ns.clone();
        sorted.sort_by(f64::total_cmp);
        let summary = summarise(&sorted).expect("every round has samples");
        TimedVariant {
            variant: variant.argument.name(),
            median_ns: summary.median,
            min_ns: summary.min,
            p95_ns: summary.p95,
            n: summary.n,
            ratio: measure::ratio(&variant.round_medians_ns, first),
            round_medians_ns: variant.round_medians_ns.clone(),
            tasks: variant.tasks,
            tasks_found: variant.tasks_found,
            peak_memory_bytes: variant.peak_memory_bytes,
            check: variant.check,
        }
    });
    Report {
        model: whole.request.label(),
        batch: whole.request.batch,
        target: whole.target.text.clone(),
        threads: whole.runs.cpus.len(),
        seed: whole.runs.config.seed,
        rounds,
        variants: timed.collect(),
    }
}

/// Formats a report as text.
pub fn describe(report: &Report, paper: &Paper) -> String {
    let Report { model, threads, rounds, seed, .. } = report;
    let plural = if *threads == 1 { "" } else { "s" };
    let mut table = Table::new([
        words("variant"),
        figures("median"),
        figures("least"),
        figures("p95"),
        figures("samples").drops(1),
        figures("× first"),
        figures("95 % interval"),
        words("outputs"),
    ]);
    for timed in &report.variants {
        table.row([
            timed.variant.to_owned(),
            duration(timed.median_ns),
            duration(timed.min_ns),
            duration(timed.p95_ns),
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
    let mut text = format!("{model}: {threads} thread{plural}, {rounds} rounds, seed {seed}\n{}", table.on(paper));
    for timed in &report.variants {
        if let (Some(tasks), Some(found)) = (timed.tasks, timed.tasks_found) {
            text.push_str(&format!(
                "\nthe store has schedules for {found} of {tasks} tasks; the others run with the default"
            ));
        }
    }
    text
}
