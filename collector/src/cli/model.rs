//! `model`: a whole model, run as programs run it.

use super::arguments::{ModelCommand, ModelRun, Sweep};
use super::failure::{Failure, chain};
use super::progress::{LINE_SECONDS, Progress};
use super::{DONE, DONE_WITH_LOSSES, Result, machine, print, print_json, settings, tell};
use crate::campaign::config::{Config, ModelRequest};
use crate::campaign::{Event, graphs};
use crate::network::{self, Comparison, Made};
use bench::Bench;
use executor::Program;
use executor::program::Numbers;
use job::target::{Kind, Target};
use job::{Measured, NetworkJob, RunReply};
use measure::{Method, Plan};
use models::Graph;
use reference::Tensor;
use report::{between, duration};
use serde::Serialize;
use std::fs;
use std::path::Path;
use std::time::Duration;

pub fn run(command: &ModelCommand) -> Result<u8> {
    match command {
        ModelCommand::Run(arguments) => run_model(arguments),
    }
}

/// A whole model takes longer than an operator, so sampling it may, too.
const SAMPLING_TIME_NS: u64 = 2_000_000_000;

/// What a run says, for scripts.
#[derive(Serialize)]
struct Report<'a> {
    model: String,
    batch: Option<i64>,
    target: &'a str,
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
    first_run_ns: u64,
    cpu_time_ns: f64,
    activation_bytes: u64,
    least_activation_bytes: u64,
    constant_bytes: u64,
    peak_memory_bytes: u64,
    check: Option<Comparison>,
    warnings: Vec<String>,
}

fn run_model(arguments: &ModelRun) -> Result<u8> {
    let sweep = Sweep {
        threads: arguments.threads.into_iter().collect(),
        seed: arguments.seed,
        precision: arguments.precision,
        ..Sweep::default()
    };
    let config = settings::config(&arguments.models, &sweep)?;
    let request = only(&config)?;
    let threads = arguments.threads.unwrap_or(settings::allowed_cpus()?.len());
    let mut workers = machine::workers(&config.limits)?;
    let target = machine::target(&config.target, &mut workers)?;
    if target.kind != Kind::Llvm {
        return Err(Failure::usage("whole models run on CPUs in this version").with_hint("give `--target llvm`"));
    }
    let loaded = graphs::load_with_notes(request).map_err(|error| Failure::usage(chain(&error)))?;
    tell(&loaded.notes);
    let (graph, plan) = cut(&loaded.graph, &config)?;
    let inputs = inputs(&graph, arguments, config.seed)?;
    let folder = tempfile::Builder::new().prefix("opcollect-model-").tempdir().map_err(Failure::environment)?;
    let program = folder.path().join("program");
    fs::create_dir(&program).map_err(Failure::environment)?;
    let constants = reference::constants(&graph).map_err(|error| Failure::usage(chain(&error)))?;
    let made = make(&mut Numbers::of(&graph, &constants), &plan, &target, &mut workers, &program)?;
    let expected = if arguments.no_check {
        None
    } else {
        let expected = reference::evaluate_graph_with(&graph, &constants, &inputs);
        Some(expected.map_err(|error| Failure::usage(format!("cannot compute the reference: {}", chain(&error))))?)
    };
    let method = Method::Sample(Plan { time_budget_ns: SAMPLING_TIME_NS, ..config.measure.clone() });
    let job = NetworkJob {
        program,
        inputs: folder.path().join("inputs.bin"),
        outputs: folder.path().join("outputs.bin"),
        cpus: settings::allowed_cpus()?.into_iter().take(threads).collect(),
        method,
        counters: config.counters.clone(),
    };
    let bytes: Vec<u8> = inputs.iter().flat_map(|tensor| tensor.bytes().iter().copied()).collect();
    fs::write(&job.inputs, bytes).map_err(Failure::environment)?;
    let _exclusive = machine::exclusive(arguments.wait)?;
    let measured = measured(&job, &config, &mut workers)?;
    let found = outputs(&made.program, &job.outputs)?;
    if let Some(out) = &arguments.output {
        write_outputs(&made.program, &found, out)?;
    }
    let check = expected.map(|wanted| network::compare(&graph, &found, &wanted));
    let report = report(request, &config, &target, threads, &made.program, &measured, check);
    if arguments.json {
        print_json(&report)?
    } else {
        print(&describe(&report))?
    }
    Ok(if check.is_some_and(|check| !check.is_right) { DONE_WITH_LOSSES } else { DONE })
}

/// The one model of a configuration.
fn only(config: &Config) -> Result<&ModelRequest> {
    match config.models.as_slice() {
        [one] => Ok(one),
        several => Err(Failure::usage(format!("`model run` runs one model at one size, {} were named", several.len()))
            .with_hint("give one `--modelname`, and at most one `--batchsize`, `--sequence` and `--phase`")),
    }
}

fn cut(graph: &Graph, config: &Config) -> Result<(Graph, models::Plan)> {
    let cuts = graphs::cuts(graph, config).map_err(|error| Failure::usage(chain(&error)))?;
    let (graph, plan) = cuts.into_iter().next().expect("a graph is cut in at least one way");
    match plan.tasks.iter().find_map(|one| one.partner.as_ref()) {
        Some(partner) => {
            Err(Failure::usage(format!("`{partner}` computes tasks of this model, and has no code to run"))
                .with_hint("leave out `--backend` and partners in `--target`"))
        }
        None => Ok((graph, plan)),
    }
}

/// What the model is given: files, or numbers of a seed.
fn inputs(graph: &Graph, arguments: &ModelRun, seed: u64) -> Result<Vec<Tensor>> {
    let mut inputs = network::drawn_inputs(graph, seed).map_err(|error| Failure::usage(chain(&error)))?;
    for text in &arguments.input {
        let (name, path) = text.split_once('=').ok_or_else(|| {
            Failure::usage(format!("`--input {text}` is not a name and a file")).with_hint("write it as `x=image.npy`")
        })?;
        let names: Vec<&str> = graph.inputs.iter().map(|id| graph.values[id.0 as usize].name.as_str()).collect();
        let place = names
            .iter()
            .position(|known| *known == name)
            .ok_or_else(|| Failure::usage(format!("the model has no input `{name}`; it has {}", names.join(", "))))?;
        inputs[place] = network::npy::read(Path::new(path), inputs[place].ty()).map_err(Failure::usage)?;
    }
    Ok(inputs)
}

fn make(
    numbers: &mut Numbers<'_>,
    plan: &models::Plan,
    target: &Target,
    bench: &mut dyn Bench,
    folder: &Path,
) -> Result<Made> {
    let mut progress = Progress::new(plan.tasks.len(), LINE_SECONDS);
    let choose = |task: &models::Task| network::default_schedule(task, target);
    let made = network::make(numbers, plan, target, &choose, bench, &mut || progress.hear(&Event::Built), folder);
    progress.finish();
    made.map_err(|error| Failure::usage(chain(&error)))
}

fn measured(job: &NetworkJob, config: &Config, bench: &mut dyn Bench) -> Result<Measured> {
    let deadline = job.deadline(Duration::from_secs_f64(config.limits.run_seconds));
    match bench.run_network(job, deadline) {
        Ok(RunReply::Measured(measured)) => Ok(*measured),
        Ok(RunReply::Failed(why)) => Err(Failure::environment(format!("the model did not run: {why}"))),
        Ok(other) => Err(Failure::environment(format!("the model did not run: {other:?}"))),
        Err(fault) => Err(Failure::environment(format!("the model did not run: {fault}"))),
    }
}

fn outputs(program: &Program, path: &Path) -> Result<Vec<Tensor>> {
    let bytes = fs::read(path).map_err(Failure::environment)?;
    let types = program.outputs.iter().map(|port| &port.ty);
    network::tensors(types, &bytes).map_err(|error| Failure::environment(chain(&error)))
}

/// One file for each output, in a folder.
fn write_outputs(program: &Program, outputs: &[Tensor], folder: &Path) -> Result<()> {
    let failed = |error| Failure::usage(format!("cannot write to `{}`: {error}", folder.display()));
    fs::create_dir_all(folder).map_err(failed)?;
    for (place, (port, tensor)) in program.outputs.iter().zip(outputs).enumerate() {
        // A name of a file's own choosing is no path.
        let plain: String = port.name.chars().map(|one| if one.is_ascii_alphanumeric() { one } else { '_' }).collect();
        let bytes = network::npy::bytes(tensor);
        let path = folder.join(format!("{place}-{}.npy", plain.chars().take(60).collect::<String>()));
        datasets::output::write(&path, &bytes).map_err(|error| Failure::usage(chain(&error)))?;
    }
    Ok(())
}

fn report<'a>(
    request: &ModelRequest,
    config: &Config,
    target: &'a Target,
    threads: usize,
    program: &Program,
    measured: &Measured,
    check: Option<Comparison>,
) -> Report<'a> {
    let m = &measured.measurement;
    let size = |one: &executor::program::Constant| {
        let extents = one.packing.extents(&one.ty.extents().unwrap_or_default());
        extents.iter().product::<i64>().unsigned_abs() * one.ty.dtype.bytes()
    };
    Report {
        model: request.label(),
        batch: request.batch,
        target: &target.text,
        threads,
        seed: config.seed,
        calls: program.calls.len(),
        tasks: program.codes,
        median_ns: m.median_ns,
        min_ns: m.min_ns,
        mean_ns: m.mean_ns,
        p95_ns: m.p95_ns,
        n: m.n,
        median_interval_ns: m.median_interval_ns,
        first_run_ns: m.first_run_ns,
        cpu_time_ns: m.cpu_time_ns,
        activation_bytes: program.activation_bytes,
        least_activation_bytes: program.least_activation_bytes,
        constant_bytes: program.constants.iter().map(size).sum(),
        peak_memory_bytes: measured.peak_memory_bytes,
        check,
        warnings: m.warnings.iter().map(ToString::to_string).collect(),
    }
}

fn describe(report: &Report<'_>) -> String {
    let size = |bytes: u64| match bytes {
        0..=0xf_ffff => format!("{:.1} KiB", bytes as f64 / f64::from(1 << 10)),
        _ => format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20)),
    };
    let mut lines = vec![format!(
        "{}: {} calls of {} tasks, {} thread{}, seed {}",
        report.model,
        report.calls,
        report.tasks,
        report.threads,
        if report.threads == 1 { "" } else { "s" },
        report.seed
    )];
    let interval = report.median_interval_ns.map(|(low, high)| format!(", {}", between(low, high)));
    lines.push(format!(
        "  time        {} median{}; least {}, p95 {}, {} samples",
        duration(report.median_ns),
        interval.unwrap_or_default(),
        duration(report.min_ns),
        duration(report.p95_ns),
        report.n
    ));
    lines.push(format!("  first run   {}", duration(report.first_run_ns as f64)));
    lines.push(format!(
        "  memory      {} of activations (at least {}), {} of constants, {} the whole process",
        size(report.activation_bytes),
        size(report.least_activation_bytes),
        size(report.constant_bytes),
        size(report.peak_memory_bytes)
    ));
    lines.push(match &report.check {
        None => "  check       none".to_owned(),
        Some(check) => format!(
            "  check       {}: off by {:.1e} where outputs are up to {:.1e}; {:.0e} of that is allowed",
            if check.is_right { "right" } else { "WRONG" },
            check.max_abs_error,
            check.largest_output,
            check.tolerance
        ),
    });
    lines.extend(report.warnings.iter().map(|warning| format!("  note        {warning}")));
    lines.join("\n")
}
