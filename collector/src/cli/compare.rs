//! `model compare`: ways to run one model, timed in turns so that what else the machine does falls on all of them.

use super::arguments::{Given, ModelCompare, Sweep, VariantArgument};
use super::failure::Failure;
use super::whole::{Asked, Whole};
use super::{DONE, DONE_WITH_LOSSES, Result, machine, paper, print, print_json};
use crate::network::{self, Comparison, Ratio};
use job::{Engine, NetworkJob};
use measure::counters::{Backend, CounterRequest};
use measure::statistics::summarise;
use measure::{Method, Plan};
use report::{Table, duration, figures, or_unknown, words};
use serde::Serialize;

/// How long a variant is sampled in a round: long enough for caches and clocks to settle, short beside what disturbs.
const ROUND_NS: u64 = 100_000_000;

impl VariantArgument {
    fn name(self) -> &'static str {
        match self {
            VariantArgument::Default => "default",
            VariantArgument::Best => "best",
            VariantArgument::Onnxruntime => "onnxruntime",
        }
    }

    fn engine(self) -> Engine {
        match self {
            VariantArgument::Default | VariantArgument::Best => Engine::Program,
            VariantArgument::Onnxruntime => Engine::OnnxRuntime,
        }
    }
}

/// What a comparison says, for scripts.
#[derive(Serialize)]
struct Report<'a> {
    model: String,
    batch: Option<i64>,
    target: &'a str,
    threads: usize,
    seed: u64,
    rounds: u32,
    variants: Vec<Timed>,
}

/// What was seen of one way to run the model.
#[derive(Serialize)]
struct Timed {
    variant: &'static str,
    median_ns: f64,
    min_ns: f64,
    p95_ns: f64,
    n: u32,
    /// Its time over the first variant's.
    ratio: Option<Ratio>,
    round_medians_ns: Vec<f64>,
    /// Of our code: how many tasks there are, and for how many the store has a schedule.
    tasks: Option<usize>,
    tasks_found: Option<usize>,
    peak_memory_bytes: u64,
    check: Option<Comparison>,
}

/// A way to run the model that is ready.
struct Variant {
    argument: VariantArgument,
    job: NetworkJob,
    tasks: Option<usize>,
    tasks_found: Option<usize>,
    check: Option<Comparison>,
    peak_memory_bytes: u64,
    samples_ns: Vec<f64>,
    round_medians_ns: Vec<f64>,
}

pub fn run(arguments: &ModelCompare) -> Result<u8> {
    let wanted = variants(arguments)?;
    let engines: Vec<Engine> = wanted.iter().map(|variant| variant.engine()).collect();
    let mut whole = Whole::of(Asked {
        models: &arguments.models,
        sweep: Sweep { threads: arguments.threads.into_iter().collect(), seed: arguments.seed, ..Sweep::default() },
        threads: arguments.threads,
        inputs: &Given::default(),
        is_checked: !arguments.no_check,
        engines: &engines,
    })?;
    let mut variants = Vec::with_capacity(wanted.len());
    for argument in wanted {
        variants.push(made(argument, arguments, &mut whole)?);
    }
    let _exclusive = machine::exclusive(arguments.wait)?;
    for variant in &mut variants {
        load(variant, &mut whole)?;
    }
    for round in 0..arguments.rounds as usize {
        for place in 0..variants.len() {
            let turn = (round + place) % variants.len();
            sample(&mut variants[turn], &mut whole)?;
        }
    }
    let report = report(&whole, arguments.rounds, &variants);
    if arguments.json {
        print_json(&report)?
    } else {
        print(&describe(&report))?
    }
    let is_wrong = |timed: &Timed| timed.check.is_some_and(|check| !check.is_right);
    Ok(if report.variants.iter().any(is_wrong) { DONE_WITH_LOSSES } else { DONE })
}

/// The ways that are asked for, each once.
fn variants(arguments: &ModelCompare) -> Result<Vec<VariantArgument>> {
    let wanted = match arguments.variant.as_slice() {
        [] => vec![VariantArgument::Default, VariantArgument::Onnxruntime],
        given => given.to_vec(),
    };
    if let Some(place) = (1..wanted.len()).find(|place| wanted[..*place].contains(&wanted[*place])) {
        return Err(Failure::usage(format!("`--variant {}` is given twice", wanted[place].name())));
    }
    match (wanted.contains(&VariantArgument::Best), &arguments.store) {
        (true, None) => Err(Failure::usage("`--variant best` needs a store with measured schedules")
            .with_hint("give `--store DIR`; a store is made by `opcollect --modelname … --store DIR`")),
        (false, Some(_)) => {
            Err(Failure::usage("`--store` is for `--variant best`").with_hint("add `--variant best`, or leave it out"))
        }
        _ => Ok(wanted),
    }
}

/// Builds a variant, or writes its file.
fn made(argument: VariantArgument, arguments: &ModelCompare, whole: &mut Whole) -> Result<Variant> {
    let (name, target) = (argument.name(), whole.target.clone());
    let folder = whole.new_folder(name)?;
    let (mut tasks, mut tasks_found) = (None, None);
    match (argument, &arguments.store) {
        (VariantArgument::Best, Some(store)) => {
            let best = whole.best(store)?;
            tasks_found = Some(whole.found(&best));
            tasks = Some(whole.make(&folder, &|task| best.choose(task, &target))?.program.codes);
        }
        (VariantArgument::Onnxruntime, _) => whole.write_onnx(&folder)?,
        (VariantArgument::Default | VariantArgument::Best, _) => {
            tasks = Some(whole.make(&folder, &|task| network::default_schedule(task, &target))?.program.codes);
        }
    }
    let plan = Plan {
        samples_min: 2,
        samples_slow_min: 2,
        sampling_time_min_ns: ROUND_NS,
        time_budget_ns: ROUND_NS,
        ..whole.runs.config.measure.clone()
    };
    let counters = CounterRequest { backend: Backend::None, ..CounterRequest::default() };
    let job = whole.runs.job(argument.engine(), folder, name, Method::Sample(plan), counters);
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

/// A first round, in which the variant is loaded and its outputs are looked at. It does not count.
fn load(variant: &mut Variant, whole: &mut Whole) -> Result<()> {
    variant.peak_memory_bytes = whole.runs.run(&variant.job)?.peak_memory_bytes;
    variant.check = whole.check(&whole.outputs(&variant.job)?);
    Ok(())
}

fn sample(variant: &mut Variant, whole: &mut Whole) -> Result<()> {
    let measured = whole.runs.run(&variant.job)?;
    variant.round_medians_ns.push(measured.measurement.median_ns);
    variant.samples_ns.extend(measured.measurement.samples_ns);
    Ok(())
}

fn report<'a>(whole: &'a Whole, rounds: u32, variants: &[Variant]) -> Report<'a> {
    let first = &variants[0].round_medians_ns;
    let timed = variants.iter().map(|variant| {
        let mut sorted = variant.samples_ns.clone();
        sorted.sort_by(f64::total_cmp);
        let summary = summarise(&sorted).expect("every round has samples");
        Timed {
            variant: variant.argument.name(),
            median_ns: summary.median,
            min_ns: summary.min,
            p95_ns: summary.p95,
            n: summary.n,
            ratio: network::ratio(&variant.round_medians_ns, first),
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
        target: &whole.target.text,
        threads: whole.runs.cpus.len(),
        seed: whole.runs.config.seed,
        rounds,
        variants: timed.collect(),
    }
}

fn describe(report: &Report<'_>) -> String {
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
    let mut text = format!("{model}: {threads} thread{plural}, {rounds} rounds, seed {seed}\n{}", table.on(&paper()));
    for timed in &report.variants {
        if let (Some(tasks), Some(found)) = (timed.tasks, timed.tasks_found) {
            text.push_str(&format!(
                "\nthe store has schedules for {found} of {tasks} tasks; the others have the default"
            ));
        }
    }
    text
}
