//! One answer for a whole model: one operator after the other or side by side, on how many cores, how long, and why.

use super::times::{Time, Times, demand};
use crate::error::{Error, Result};
use models::stages::{self, Promise, Stage};
use models::{Fuse, Graph, Parallel, Plan, StagePlan};
use planners::interference::{Demand, Machine};
use planners::stages::{Costs, SearchLimits, Stages};
use serde::Serialize;

/// What starting groups side by side and waiting for them costs.
pub const BARRIER_NS: f64 = 1_000.0;

/// A planned model.
#[derive(Clone, Debug, Serialize)]
pub struct Planned {
    /// What an executor runs.
    #[serde(skip)]
    pub stages: StagePlan,
    /// What each call is.
    #[serde(skip)]
    pub calls: Vec<String>,
    /// Name of the model.
    pub model: String,
    /// What was chosen.
    pub parallel: Parallel,
    /// On how many cores.
    pub cores: usize,
    /// The promise.
    pub promise: Promise,
    /// The longest chain: no plan takes less.
    pub critical_ns: f64,
    /// Sets of operators that were looked at, and whether that were all that the limits allow.
    pub states: usize,
    /// Whether nothing was left out.
    pub is_exact: bool,
    /// Share of the time that was measured, not predicted.
    pub measured_share: f64,
    /// Stages with groups side by side.
    pub stages_side_by_side: usize,
    /// Stages in all.
    pub stages_count: usize,
    /// Why, in one sentence.
    pub why: String,
    /// What each operator takes on other numbers of cores.
    pub alternatives: Vec<Alternative>,
}

/// What calls of one operator take on each number of cores.
#[derive(Clone, Debug, Serialize)]
pub struct Alternative {
    /// The operator.
    pub operator: String,
    /// Its calls.
    pub calls: Vec<usize>,
    /// Alone on one core, two, and so on.
    pub alone_ns: Vec<f64>,
    /// How many cores each of its calls has in the plan, the same number once.
    pub cores: Vec<usize>,
    /// What one run moves or keeps in the last cache.
    pub bytes: f64,
}

/// A plan has to promise this much before operators run side by side. Stages of GoogLeNet on two cores of a virtual machine took 8 %
/// longer, beside the sequential time, than was promised by times of operators alone; less than that is no promise.
const LEAST_GAIN: f64 = 0.10;

/// The plan of a model on this machine.
pub fn plan(graph: &Graph, times: &Times<'_>, machine: &Machine, barrier_ns: f64) -> Result<Planned> {
    let refused = |error: models::Error| Error::Query(error.to_string());
    let graph = passes::simplify(graph).map_err(refused)?;
    let cut = models::plan(&graph, Fuse::Epilogue).map_err(refused)?;
    let of_tasks = times.of(&cut.tasks, machine.cores)?;
    let crowding = times.host.map_or_else(|| vec![1.0; machine.cores], |host| host.crowding(machine.cores));
    let of_call = |call: &models::Call| {
        let task = &cut.tasks[call.task].task;
        let profile = times.host.and_then(|host| host.profile(task));
        Demand { profile, ..demand(task, &of_tasks[call.task], machine, &crowding) }
    };
    let demands = cut.calls.iter().map(of_call).collect();
    let asked = planners::stages::Graph { demands, before: stages::waits(&graph, &cut) };
    let found =
        planners::stages::stages(&asked, &Costs { machine: machine.clone(), barrier_ns }, &SearchLimits::default())
            .map_err(|error| Error::Query(error.to_string()))?;
    Ok(chosen(&graph, &cut, &of_tasks, times, machine.cores, &found))
}

fn chosen(
    graph: &Graph,
    cut: &Plan,
    of_tasks: &[Vec<Time>],
    times: &Times<'_>,
    cores: usize,
    found: &Stages,
) -> Planned {
    let gain = 1.0 - found.time_ns / found.sequential_ns;
    let known = |threads: usize| cut.calls.iter().map(move |call| &of_tasks[call.task][threads - 1]);
    // Errors of different tasks are apart, those of calls of one task are the same one.
    let off = |of: fn(&Time) -> f64| {
        let halves = of_tasks.iter().enumerate().map(|(task, times)| {
            let calls = cut.calls.iter().filter(|call| call.task == task).count() as f64;
            (calls * of(&times[cores - 1])).powi(2)
        });
        halves.sum::<f64>().sqrt() / found.sequential_ns
    };
    let (below, above): (f64, f64) = (off(|time| time.time_ns - time.low_ns), off(|time| time.high_ns - time.time_ns));
    // Nor does it promise more than the times are known to.
    let is_known = gain >= LEAST_GAIN.max(above);
    let is_parallel = is_known && found.stages.iter().any(|stage| stage.groups.len() > 1);
    let parallel = if is_parallel { Parallel::Stream } else { Parallel::Sequential };
    let time_ns = if is_parallel { found.time_ns } else { found.sequential_ns };
    let promise = Promise {
        time_ns,
        low_ns: time_ns * (1.0 - below.min(1.0)),
        high_ns: time_ns * (1.0 + above),
        sequential_ns: found.sequential_ns,
    };
    let measured: f64 = known(cores).filter(|time| time.is_measured).map(|time| time.time_ns).sum();
    let by_rule = StagePlan::by_rule(graph, cut, cores, Parallel::Sequential);
    let stages = if is_parallel { found.stages.iter().map(placed).collect() } else { by_rule.stages.clone() };
    let beside = found.stages.iter().filter(|stage| stage.groups.len() > 1).count();
    let alternatives = alternatives(cut, of_tasks, &stages);
    let host_class = times.host.map(|host| host.class.clone());
    Planned {
        model: graph.name.clone(),
        parallel,
        cores,
        promise,
        critical_ns: found.critical_ns,
        states: found.states,
        is_exact: found.is_exact,
        measured_share: measured / found.sequential_ns,
        stages_side_by_side: if is_parallel { beside } else { 0 },
        stages_count: stages.len(),
        why: why(found, gain, is_parallel, beside),
        alternatives,
        calls: cut.calls.iter().map(|call| cut.tasks[call.task].task.describe()).collect(),
        stages: StagePlan { stages, host_class, parallel, promise: Some(promise), ..by_rule },
    }
}

fn alternatives(cut: &Plan, of_tasks: &[Vec<Time>], stages: &[Stage]) -> Vec<Alternative> {
    let mut cores_of = vec![0; cut.calls.len()];
    for group in stages.iter().flat_map(|stage| &stage.groups) {
        group.calls.iter().for_each(|&call| cores_of[call] = group.cores.len());
    }
    let of = |(task, times): (usize, &Vec<Time>)| {
        let calls: Vec<usize> = (0..cut.calls.len()).filter(|&call| cut.calls[call].task == task).collect();
        let mut cores: Vec<usize> = calls.iter().map(|&call| cores_of[call]).collect();
        cores.sort_unstable();
        cores.dedup();
        let one = &cut.tasks[task].task;
        Alternative {
            operator: one.describe(),
            calls,
            alone_ns: times.iter().map(|time| time.time_ns).collect(),
            cores,
            bytes: one.work().map_or(0.0, |work| work.bytes() as f64),
        }
    };
    of_tasks.iter().enumerate().map(of).collect()
}

fn why(found: &Stages, gain: f64, is_parallel: bool, beside: usize) -> String {
    match (is_parallel, beside) {
        (true, _) => format!(
            "{beside} stages run groups concurrently, because their operators scale badly to all cores: {:.1} % less time",
            100.0 * gain
        ),
        (false, 0) if found.critical_ns >= found.sequential_ns * 0.999 => {
            "every operator depends on the one before, so none can run concurrently".to_owned()
        }
        (false, 0) => {
            "each operator scales so well to all cores that concurrent execution would take longer".to_owned()
        }
        (false, _) => {
            format!(
                "concurrent execution would take {:.1} % less by these times, which is within the error of plans",
                100.0 * gain
            )
        }
    }
}

/// A stage on cores: groups have them in order, from the first on.
fn placed(stage: &planners::stages::Stage) -> Stage {
    let mut next = 0;
    let groups = stage.groups.iter().map(|group| {
        let cores = (next..next + group.cores).collect();
        next += group.cores;
        stages::Group { cores, calls: group.operators.clone() }
    });
    Stage { groups: groups.collect(), time_ns: Some(stage.time_ns) }
}
