//! Computes a quantised model on a simulated FPGA accelerator (the core), compares its outputs with those of the
//! model's file, and lists the unit (core or CPU) of each layer. Times of the core are simulated, those of the CPU are
//! measured on a board if one is given; the two are never added.

use crate::Result;
use crate::boards::{self, BoardOptions};
use crate::campaign::graphs::LoadedModels;
use crate::campaign::{CampaignEvent, Config};
use crate::failure::{Failure, format_chain};
use crate::input_files::{self, InputFiles};
use crate::network::mapped::{ComputeUnit, MappedCall, MappedCore, MappedRun, compute_graph};
use crate::network::{self, Comparison};
use crate::observer::Observer;
use crate::prepared::{cut_simplified, input_names, only_model, refuse_sweeps};
use crate::{machine, runs};
use bench::{Access, Bench, Boards, Build, Fleet};
use datasets::Source;
use job::{BuildJob, RunJob};
use models::{Plan, TaskUse};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use targets::{ARM, FPGA, Fabric, parse_fabric};

/// Options of running a model on the FPGA accelerator (the core) and a CPU.
pub struct UnitsOptions<'a> {
    /// Configuration of the FPGA accelerator.
    pub config: &'a Config,
    /// Cache of the models that were read for this configuration.
    pub loaded: &'a LoadedModels,
    /// Files with inputs of the model.
    pub inputs: &'a InputFiles,
    /// Whether outputs are compared with those of the reference.
    pub is_checked: bool,
    /// Board on which the layers computed by the CPU are measured, if any.
    pub board: Option<CpuBoard<'a>>,
}

/// Board on which the layers computed by the CPU are measured.
pub struct CpuBoard<'a> {
    /// Access to the board.
    pub access: &'a Access,
    /// Options of the board.
    pub options: BoardOptions<'a>,
    /// Configuration of the board's CPU.
    pub config: Config,
    /// Number of threads; None for all CPUs.
    pub threads: Option<usize>,
}

/// Result of running a model on the core and a CPU. The order of the fields is that of the JSON document.
#[derive(Clone, Debug, Serialize)]
pub struct UnitsReport {
    /// Whether layers computed by the FPGA accelerator equal the reference in every byte.
    pub bit_exact: bool,
    /// Whether the timing model of the FPGA accelerator was calibrated.
    pub calibrated: bool,
    /// Calls of the model, in execution order.
    pub calls: Vec<UnitCall>,
    /// Largest output of the reference; None without a check.
    pub largest_output: Option<f64>,
    /// Name of the model.
    pub model: String,
    /// Largest difference from the reference; None without a check.
    pub off_by: Option<f64>,
    /// Sums for the FPGA accelerator and for the CPU.
    pub units: [UnitSum; 2],
    /// Whether all requested times exist.
    #[serde(skip)]
    pub is_complete: bool,
}

/// A call of the model, and the unit (accelerator or CPU) that computes it.
#[derive(Clone, Debug, Serialize)]
pub struct UnitCall {
    /// Name of the call in the model.
    pub scope: String,
    /// Source of the time: simulated or measured.
    pub source: Option<&'static str>,
    /// Median time of the call, in nanoseconds.
    pub time_ns: Option<f64>,
    /// Name of the unit that computes the call.
    pub unit: &'static str,
    /// Description of the task.
    pub what: String,
    /// Reason why the CPU computes the call, and the reason why the call has no time if its measurement failed.
    pub why: Option<String>,
}

/// Sums over all calls that a unit (accelerator or CPU) computes.
#[derive(Clone, Debug, Serialize)]
pub struct UnitSum {
    /// Number of calls that the unit computes.
    pub calls: usize,
    /// Name of the machine that the unit belongs to.
    pub on: String,
    /// Source of the unit's times; None without a board.
    pub source: Option<&'static str>,
    /// Total time of the unit's calls, in nanoseconds; None unless all calls have a time.
    pub sum_ns: Option<f64>,
    /// Name of the unit.
    pub unit: &'static str,
    /// Number of calls with a time.
    #[serde(skip)]
    pub timed_calls: usize,
    /// Total time of those calls that have a time, in nanoseconds.
    #[serde(skip)]
    pub timed_ns: f64,
}

/// Computes a model on the FPGA accelerator and a CPU, and measures the CPU's layers on a board if one is given.
pub fn run_on_units(options: &UnitsOptions<'_>, observer: &dyn Observer) -> Result<UnitsReport> {
    let UnitsOptions { config, loaded, .. } = options;
    refuse_sweeps(config, "`model` runs one model at one size")?;
    let target = parse_fabric(&config.target).map_err(Failure::usage)?;
    let fabric = Fabric::parse_text(&config.target).map_err(Failure::usage)?;
    let usage = |error: &dyn std::error::Error| Failure::usage(format_chain(error));
    let request = only_model(config)?;
    let model = loaded.load(request).map_err(|error| usage(&error))?;
    observer.receive_notes(&model.notes);
    let (graph, plan) = cut_simplified(&model.graph, config)?;
    let mut inputs = reference::graph_inputs(&graph, config.seed).map_err(|error| usage(&error))?;
    input_files::replace_inputs(options.inputs, &input_names(&graph), &reference::input_draws(&graph), &mut inputs)?;
    let constants = reference::graph_constants(&graph).map_err(|error| usage(&error))?;
    let expected = options.is_checked.then(|| reference::evaluate_graph_with(&graph, &constants, &inputs));
    let expected = expected.transpose().map_err(|error| usage(&error))?;
    let mut progress = observer.begin_progress(plan.calls.len(), None);
    let on = MappedCore { fabric: &fabric, target: &target, seed: config.seed };
    let mapped =
        compute_graph((&graph, &plan), &constants, &inputs, &on, &mut || progress.observe_event(&CampaignEvent::Built));
    progress.finish();
    let mapped = mapped.map_err(|error| Failure::environment(format_chain(&error)))?;
    if !mapped.calls.iter().any(|call| matches!(call.unit, ComputeUnit::Core(_))) {
        return Err(no_core_layers(&request.label(), &mapped, &plan));
    }
    let comparison =
        expected.map(|wanted| network::compare_outputs(network::error_tolerance(&graph), &mapped.outputs, &wanted));
    let is_of_cpu = |call: &&MappedCall| matches!(call.unit, ComputeUnit::Cpu(_));
    let of_cpu: BTreeSet<usize> = mapped.calls.iter().filter(is_of_cpu).map(|call| call.task).collect();
    let cpu = options
        .board
        .as_ref()
        .map(|board| CpuTimes::measure_tasks(board, &plan.tasks, &of_cpu, observer))
        .transpose()?;
    Ok(UnitsReport::new(request.label(), &fabric, (&plan, &mapped), comparison, cpu.as_ref()))
}

fn no_core_layers(label: &str, mapped: &MappedRun, plan: &Plan) -> Failure {
    let mut reasons = mapped.calls.iter().filter_map(|call| match &call.unit {
        ComputeUnit::Cpu(why) => Some((plan.tasks[call.task].task.describe(), why)),
        ComputeUnit::Core(_) => None,
    });
    let why = reasons.next().map_or(String::new(), |(task, why)| format!("; the first: {task}: {why}"));
    Failure::usage(format!("the accelerator supports no layer of `{label}`{why}"))
        .with_hint("give a model that is quantised to signed 8 bits, as ONNX Runtime and TensorFlow Lite write them")
}

struct CpuTimes {
    source: Source,
    board: String,
    /// Median time of each task, or the reason why there is none, by task index.
    times: BTreeMap<usize, std::result::Result<f64, String>>,
}

impl CpuTimes {
    fn measure_tasks(
        board: &CpuBoard<'_>,
        tasks: &[TaskUse],
        wanted: &BTreeSet<usize>,
        observer: &dyn Observer,
    ) -> Result<CpuTimes> {
        let CpuBoard { access, options, config, threads } = board;
        let mut workers = machine::create_workers(&config.limits)?;
        let (target, machine) = boards::connect_board(access, *options, config, &mut workers)?;
        let board = machine.board.as_ref().expect("a connected board");
        observer.receive_notes(&board.timing_notes());
        let fleet = Fleet { devices: 1, ..board.fleet.clone() };
        let mut bench = Boards::new(workers, &fleet).map_err(Failure::environment)?;
        let cpus = machine::select_cpus(*threads, &machine.cpus, board.display_name())?;
        let text = |task: usize| serde_json::to_string(&tasks[task].task).map_err(Failure::environment);
        let texts = wanted.iter().map(|task| text(*task)).collect::<Result<Vec<String>>>()?;
        let jobs = wanted.iter().zip(&texts).map(|(task, text)| {
            BuildJob::for_schedule(text, &target, &network::default_schedule(&tasks[*task].task, &target))
        });
        let jobs: Vec<BuildJob> = jobs.collect();
        let mut progress = observer.begin_progress(2 * jobs.len(), None);
        let builds = bench.build_jobs(&jobs, &mut || progress.observe_event(&CampaignEvent::Built));
        let mut times = BTreeMap::new();
        for ((task, text), build) in wanted.iter().zip(texts).zip(builds) {
            let time = match build {
                Build::Built(artifact) => {
                    let job = RunJob {
                        seed: config.seed,
                        ..RunJob::library_run(text, cpus.clone(), runs::model_method(config))
                    };
                    let flops = tasks[*task].task.work().map_or(0, |work| work.flops);
                    let deadline = job.time_limit(flops, Duration::from_secs_f64(config.limits.run_seconds));
                    runs::reply_measurement(bench.run_job(&job.with_artifact(&artifact), deadline))
                        .map(|measured| measured.measurement.median_ns)
                }
                Build::Failed(why) | Build::Rejected(why) => Err(why),
                Build::Fault(fault) => Err(fault.to_string()),
            };
            progress.observe_event(&CampaignEvent::Built);
            times.insert(*task, time);
        }
        progress.finish();
        Ok(CpuTimes { source: board.time_source(), board: board.display_name().to_owned(), times })
    }
}

impl UnitsReport {
    fn new(
        model: String,
        fabric: &Fabric,
        (plan, mapped): (&Plan, &MappedRun),
        comparison: Option<Comparison>,
        cpu: Option<&CpuTimes>,
    ) -> UnitsReport {
        let what = |call: &MappedCall| plan.tasks[call.task].task.describe();
        let calls = mapped.calls.iter().map(|call| UnitCall::new(call, what(call), fabric, cpu)).collect::<Vec<_>>();
        let source = cpu.map(|cpu| cpu.source);
        let board = cpu.map_or("no board", |cpu| &cpu.board);
        UnitsReport {
            bit_exact: true,
            calibrated: fabric.calibrated,
            largest_output: comparison.map(|comparison| comparison.largest_output),
            model,
            off_by: comparison.map(|comparison| comparison.max_abs_error),
            units: [
                UnitSum::new(FPGA, Some(Source::Simulated), fabric.describe(), &calls),
                UnitSum::new(ARM, source, board.to_owned(), &calls),
            ],
            calls,
            is_complete: cpu.is_none_or(|cpu| cpu.times.values().all(std::result::Result::is_ok)),
        }
    }
}

impl UnitCall {
    fn new(call: &MappedCall, what: String, fabric: &Fabric, cpu: Option<&CpuTimes>) -> UnitCall {
        let (unit, source, time_ns, why) = match &call.unit {
            ComputeUnit::Core(timed) => {
                let time_ns = fabric.time_ns(timed.cycles);
                (FPGA, Some(Source::Simulated), Some(time_ns), None)
            }
            ComputeUnit::Cpu(why) => match cpu.map(|cpu| (cpu.source, &cpu.times[&call.task])) {
                Some((source, Ok(time))) => (ARM, Some(source), Some(*time), Some(why.clone())),
                Some((_, Err(lost))) => (ARM, None, None, Some(format!("{why}; not timed: {lost}"))),
                None => (ARM, None, None, Some(why.clone())),
            },
        };
        UnitCall { scope: call.scope.clone(), source: source.map(Source::name), time_ns, unit, what, why }
    }
}

impl UnitSum {
    fn new(unit: &'static str, source: Option<Source>, on: String, calls: &[UnitCall]) -> UnitSum {
        let own = || calls.iter().filter(|call| call.unit == unit);
        let times = || own().filter_map(|call| call.time_ns);
        let (calls, timed_calls, timed_ns) = (own().count(), times().count(), times().sum());
        let sum_ns = (timed_calls == calls && calls > 0).then_some(timed_ns);
        UnitSum { calls, on, source: source.map(Source::name), sum_ns, unit, timed_calls, timed_ns }
    }
}
