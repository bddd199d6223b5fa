//! `model run --unit fpga`: a quantised model on a simulated core, its answer beside that of its file, and who computes what.
//!
//! Times of the core are simulated, those of the CPU are what a board tells, where one is named: they are never added up.

use super::boards::{self, Wanted};
use super::pace::Pace;
use super::progress::terminal;
use super::{DONE, DONE_WITH_LOSSES, Result, paper, print, print_json, settings, tell};
use crate::options::{ModelRun, Sampling, Sweep, Tuning};
use bench::{Access, Bench, Boards, Build, Fleet};
use datasets::Source;
use engine::campaign::Event;
use engine::campaign::config::PYNQ;
use engine::campaign::settings::Resolved;
use engine::failure::{Failure, chain};
use engine::network::mapped::{Core, Mapped, Unit, compute};
use engine::network::{self, Comparison};
use engine::prepared::{cut, names, only, refuse_sweeps};
use engine::runs::method;
use engine::{given, machine};
use job::target::{Fabric, fabric};
use job::{BuildJob, RunJob, RunReply};
use models::{Plan, TaskUse};
use report::{Table, duration, figures, words};
use serde_json::{Value as Json, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Computes it and says so.
pub fn run(arguments: &ModelRun) -> Result<u8> {
    refuse(arguments)?;
    let wanted = Wanted { boards: &arguments.boards, models: &arguments.models };
    let access = boards::access(wanted)?;
    let sweep = Sweep::of_run(None, arguments.seed, &arguments.running.sampling);
    let Resolved { config, loaded } = settings::config(&arguments.models, &sweep)?;
    refuse_sweeps(&config, "`model` runs one model at one size")?;
    let target = fabric(&config.target).map_err(Failure::usage)?;
    let fabric = Fabric::read(&config.target).map_err(Failure::usage)?;
    let usage = |error: &dyn std::error::Error| Failure::usage(chain(error));
    let request = only(&config)?;
    let model = loaded.load(request).map_err(|error| usage(&error))?;
    tell(&model.notes);
    let (graph, plan) = cut(&model.graph, &config)?;
    let mut inputs = reference::graph_inputs(&graph, config.seed).map_err(|error| usage(&error))?;
    given::take(&arguments.running.given.files(), &names(&graph), &mut inputs)?;
    let constants = reference::constants(&graph).map_err(|error| usage(&error))?;
    let expected = (!arguments.no_check).then(|| reference::evaluate_graph_with(&graph, &constants, &inputs));
    let expected = expected.transpose().map_err(|error| usage(&error))?;
    let mut progress = terminal(Pace::default()).begin(plan.calls.len(), None);
    let on = Core { fabric: &fabric, target: &target, seed: config.seed };
    let mapped = compute((&graph, &plan), &constants, &inputs, &on, &mut || progress.hear(&Event::Built));
    progress.finish();
    let mapped = mapped.map_err(|error| Failure::environment(chain(&error)))?;
    if !mapped.calls.iter().any(|call| matches!(call.unit, Unit::Core(_))) {
        return Err(nothing_for_the_core(&request.label(), &mapped, &plan));
    }
    let answer = expected.map(|wanted| network::compare(network::tolerance(&graph), &mapped.outputs, &wanted));
    let cpu: BTreeSet<usize> =
        mapped.calls.iter().filter(|call| matches!(call.unit, Unit::Cpu(_))).map(|call| call.task).collect();
    let beside = match &access {
        Some(access) => Some(on_board(access, arguments, &plan.tasks, &cpu)?),
        None => None,
    };
    let found = Found { model: request.label(), fabric: &fabric, plan: &plan, mapped: &mapped, answer, beside };
    if arguments.json {
        print_json(&found.json())?
    } else {
        print(&found.text())?
    }
    Ok(if found.is_whole() { DONE } else { DONE_WITH_LOSSES })
}

fn refuse(arguments: &ModelRun) -> Result<()> {
    let given = [
        ("--plan", arguments.plan.is_some()),
        ("--parallel", arguments.parallel.is_some()),
        ("--store", arguments.store.is_some()),
        ("--output", arguments.running.output.is_some()),
    ];
    match given.into_iter().find(|(_, is_given)| *is_given) {
        Some((flag, _)) => {
            Err(Failure::usage(format!("`{flag}` has no meaning where a core is simulated beside a CPU")).with_hint(
                format!("leave out `{flag}`; records of its layers are made by `opcollect --target pynq --unit fpga`"),
            ))
        }
        None => Ok(()),
    }
}

fn nothing_for_the_core(label: &str, mapped: &Mapped, plan: &Plan) -> Failure {
    let sums = mapped.calls.iter().filter_map(|call| match &call.unit {
        Unit::Cpu(why) => Some((plan.tasks[call.task].task.describe(), why)),
        Unit::Core(_) => None,
    });
    let why = sums.into_iter().next().map_or(String::new(), |(task, why)| format!("; the first: {task}: {why}"));
    Failure::usage(format!("no layer of `{label}` is one that the core computes{why}")).with_hint(
        "give a model whose file quantises it to bytes with a sign, as ONNX Runtime and TensorFlow Lite write them",
    )
}

/// What the CPU of a board takes for tasks, each alone.
struct Beside {
    source: Source,
    board: String,
    /// By task: the median, or why there is none.
    times: BTreeMap<usize, std::result::Result<f64, String>>,
}

/// Measures tasks on a board.
fn on_board(access: &Access, arguments: &ModelRun, tasks: &[TaskUse], wanted: &BTreeSet<usize>) -> Result<Beside> {
    let mut models = arguments.models.clone();
    (models.settings.target, models.settings.unit) = (Some(PYNQ.to_owned()), None);
    let sweep = Sweep::of_run(arguments.threads, arguments.seed, &Sampling::default());
    let Resolved { config, .. } = settings::config_of_search(&models, &sweep, &Tuning::default(), true)?;
    let mut workers = machine::workers(&config.limits)?;
    let asked = Wanted { boards: &arguments.boards, models: &models };
    let (target, standing) = engine::boards::look(access, asked.of_board(), &config, &mut workers)?;
    let board = standing.board.as_ref().expect("a board was looked at");
    tell(&board.notes());
    let fleet = Fleet { devices: 1, ..board.fleet.clone() };
    let mut bench = Boards::new(workers, &fleet).map_err(Failure::environment)?;
    let cpus: Vec<usize> = standing.cpus.iter().copied().take(arguments.threads.unwrap_or(usize::MAX)).collect();
    let text = |task: usize| serde_json::to_string(&tasks[task].task).map_err(Failure::environment);
    let texts = wanted.iter().map(|task| text(*task)).collect::<Result<Vec<String>>>()?;
    let jobs = wanted
        .iter()
        .zip(&texts)
        .map(|(task, text)| BuildJob::new(text, &target, &network::default_schedule(&tasks[*task].task, &target)));
    let jobs: Vec<BuildJob> = jobs.collect();
    let mut progress = terminal(Pace::default()).begin(2 * jobs.len(), None);
    let builds = bench.build(&jobs, &mut || progress.hear(&Event::Built));
    let mut times = BTreeMap::new();
    for ((task, text), build) in wanted.iter().zip(texts).zip(builds) {
        let time = match build {
            Build::Built(artifact) => {
                let job = RunJob { seed: config.seed, ..RunJob::new(text, cpus.clone(), method(&config)) };
                let flops = tasks[*task].task.work().map_or(0, |work| work.flops);
                let deadline = job.deadline(flops, Duration::from_secs_f64(config.limits.run_seconds));
                match bench.run(&job.of(&artifact), deadline) {
                    Ok(RunReply::Measured(measured)) => Ok(measured.measurement.median_ns),
                    Ok(RunReply::Failed(why) | RunReply::Unsupported(why)) => Err(why),
                    Ok(other) => Err(format!("{other:?}")),
                    Err(fault) => Err(fault.to_string()),
                }
            }
            Build::Failed(why) | Build::Rejected(why) => Err(why),
            Build::Fault(fault) => Err(fault.to_string()),
        };
        progress.hear(&Event::Built);
        times.insert(*task, time);
    }
    progress.finish();
    Ok(Beside { source: board.source(), board: board.described().to_owned(), times })
}

/// All that is said.
struct Found<'a> {
    model: String,
    fabric: &'a Fabric,
    plan: &'a Plan,
    mapped: &'a Mapped,
    answer: Option<Comparison>,
    beside: Option<Beside>,
}

/// One call as it is said.
struct Line {
    unit: &'static str,
    scope: String,
    what: String,
    source: Option<Source>,
    time_ns: Option<f64>,
    why: Option<String>,
}

impl Found<'_> {
    fn lines(&self) -> Vec<Line> {
        let line = |call: &network::mapped::OnUnit| {
            let (scope, what) = (call.scope.clone(), self.plan.tasks[call.task].task.describe());
            match &call.unit {
                Unit::Core(timed) => {
                    let time_ns = timed.cycles as f64 * 1e3 / f64::from(self.fabric.clock_mhz);
                    Line {
                        unit: "fpga",
                        scope,
                        what,
                        source: Some(Source::Simulated),
                        time_ns: Some(time_ns),
                        why: None,
                    }
                }
                Unit::Cpu(why) => {
                    let time = self.beside.as_ref().map(|beside| (beside.source, &beside.times[&call.task]));
                    let (source, time_ns, lost) = match time {
                        Some((source, Ok(time))) => (Some(source), Some(*time), None),
                        Some((_, Err(lost))) => (None, None, Some(format!("{why}; not timed: {lost}"))),
                        None => (None, None, None),
                    };
                    Line { unit: "arm", scope, what, source, time_ns, why: lost.or_else(|| Some(why.clone())) }
                }
            }
        };
        self.mapped.calls.iter().map(line).collect()
    }

    /// Whether everything that was asked for is there.
    fn is_whole(&self) -> bool {
        self.beside.as_ref().is_none_or(|beside| beside.times.values().all(std::result::Result::is_ok))
    }

    /// Calls of a unit, how many of them have a time, and the sum of those.
    fn sum(lines: &[Line], unit: &str) -> (usize, usize, f64) {
        let own = || lines.iter().filter(|line| line.unit == unit);
        let times = own().filter_map(|line| line.time_ns);
        (own().count(), times.clone().count(), times.sum())
    }

    fn json(&self) -> Json {
        let lines = self.lines();
        let unit = |name: &str, source: Option<Source>, on: &str| {
            let (calls, timed, sum_ns) = Found::sum(&lines, name);
            let sum_ns = (timed == calls && calls > 0).then_some(sum_ns);
            json!({ "unit": name, "on": on, "source": source.map(Source::name), "calls": calls, "sum_ns": sum_ns })
        };
        let board = self.beside.as_ref();
        let calls = lines.iter().map(|line| {
            json!({ "unit": line.unit, "scope": line.scope, "what": line.what, "source": line.source.map(Source::name),
                    "time_ns": line.time_ns, "why": line.why })
        });
        json!({
            "model": self.model, "calibrated": self.fabric.calibrated, "bit_exact": true,
            "off_by": self.answer.map(|answer| answer.max_abs_error),
            "largest_output": self.answer.map(|answer| answer.largest_output),
            "units": [
                unit("fpga", Some(Source::Simulated), &self.fabric.describe()),
                unit("arm", board.map(|board| board.source), board.map_or("no board", |board| &board.board)),
            ],
            "calls": calls.collect::<Vec<_>>(),
        })
    }

    fn text(&self) -> String {
        let lines = self.lines();
        let mut table =
            Table::new([words("unit"), words("layer"), figures("time"), words("source"), words("the CPU's, since")]);
        for line in &lines {
            table.row([
                line.unit.to_owned(),
                line.what.clone(),
                line.time_ns.map_or("–".to_owned(), duration),
                line.source.map_or("–".to_owned(), |source| source.name().to_owned()),
                line.why.clone().unwrap_or_default(),
            ]);
        }
        let (on_core, _, core_ns) = Found::sum(&lines, "fpga");
        let (on_cpu, timed, cpu_ns) = Found::sum(&lines, "arm");
        let cpu = match &self.beside {
            Some(Beside { source, board, .. }) if timed > 0 => {
                let left = if timed < on_cpu { format!(", {} without a time", on_cpu - timed) } else { String::new() };
                format!("{} {source} on {board}, each alone{left}", duration(cpu_ns))
            }
            Some(_) => "no time".to_owned(),
            None => "not timed; name a board by `--host` or `--tracker`".to_owned(),
        };
        let answer = match &self.answer {
            None => "not compared".to_owned(),
            Some(answer) => format!(
                "off by {:.1e} where outputs of the model as its file has it are up to {:.1e}: what shifts in place of scales cost",
                answer.max_abs_error, answer.largest_output,
            ),
        };
        format!(
            "{} on {}\n{}\n  fpga    {on_core} calls, {} simulated\n  arm     {on_cpu} calls, {cpu}\n  \
             sum     none: times of different sources are not added up\n  \
             answer  {answer}\n  layers  all {on_core} of the core are equal to the reference in every byte",
            self.model,
            self.fabric.describe(),
            table.on(&paper()),
            duration(core_ns),
        )
    }
}
