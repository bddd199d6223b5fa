//! Plans a whole model: sequential or concurrent execution, cores of each operator, time, and reason of the choice.

use super::times::{Time, TimeSource, Times, task_demand};
use crate::error::{Error, Result};
use crate::queries::MAX_BOUND_SHARE;
use models::stages::{self, Promise, Stage};
use models::{Fuse, Graph, Parallel, Plan, StagePlan};
use planners::interference::{Demand, Machine};
use planners::stages::{Costs, SearchLimits, Stages};
use report::{format_bound, format_count, format_duration};
use serde::Serialize;
use std::collections::BTreeMap;

/// Default cost of a barrier: starting concurrent groups and waiting for all of them.
pub const BARRIER_NS: f64 = 1_000.0;

#[derive(Clone, Debug, Serialize)]
pub struct NetworkPlan {
    #[serde(skip)]
    pub stages: StagePlan,
    #[serde(skip)]
    pub calls: Vec<String>,
    pub model: String,
    pub parallel: Parallel,
    pub cores: usize,
    pub promise: Promise,
    /// Time of the critical path, a lower bound of any plan.
    pub critical_ns: f64,
    pub states: usize,
    pub is_exact: bool,
    pub measured_share: f64,
    /// Calls for which only a lower bound of the time is known, because the training data lacks their operators.
    pub lower_bounds: Vec<usize>,
    /// Share of these calls in the time.
    pub bound_share: f64,
    /// Predicted time of the best plan with concurrent stages, whether or not it was chosen.
    pub best_ns: f64,
    pub slower_on_all: usize,
    /// Part of the time of each stage with concurrent groups: starting and joining them.
    pub barrier_ns: f64,
    pub stages_side_by_side: usize,
    pub stages_count: usize,
    pub why: String,
    pub alternatives: Vec<Alternative>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Alternative {
    pub operator: String,
    pub calls: Vec<usize>,
    /// Times without other load on one core, two cores, and so on.
    pub alone_ns: Vec<f64>,
    /// 90 % intervals of these times.
    pub intervals_ns: Vec<(f64, f64)>,
    pub cores: Vec<usize>,
    /// Bytes that a run moves or keeps in the last-level cache.
    pub bytes: f64,
}

impl Alternative {
    fn is_slower_on_all(&self) -> bool {
        self.alone_ns.split_last().is_some_and(|(all, fewer)| fewer.iter().any(|fewer| fewer < all))
    }
}

impl NetworkPlan {
    /// Returns whether the time of the plan is only a lower bound, as for the total of a prediction.
    pub fn is_lower_bound(&self) -> bool {
        self.bound_share > MAX_BOUND_SHARE
    }

    /// Returns a table row for each group: stage, time, cores, number of calls, names.
    pub fn stage_rows(&self) -> Vec<[String; 5]> {
        let mut rows = Vec::new();
        for (number, stage) in self.stages.stages.iter().enumerate() {
            for (place, group) in stage.groups.iter().enumerate() {
                let (number, time) = match place {
                    0 => (number.to_string(), stage.time_ns.map_or_else(String::new, |ns| self.describe_ns(ns))),
                    _ => (String::new(), String::new()),
                };
                let cores = group.cores.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
                rows.push([number, time, cores, group.calls.len().to_string(), self.name_calls(&group.calls)]);
            }
        }
        rows
    }

    /// Formats a time that the plan predicts, marked if it is only a lower bound.
    pub fn describe_ns(&self, time_ns: f64) -> String {
        format_bound(time_ns, self.is_lower_bound())
    }

    /// Names the first three of the given calls.
    fn name_calls(&self, calls: &[usize]) -> String {
        let named: Vec<&str> = calls.iter().take(3).map(|&call| self.calls[call].as_str()).collect();
        format!("{}{}", named.join("; "), if calls.len() > 3 { "; …" } else { "" })
    }
}

/// Minimum predicted gain of concurrent groups, as a share; on shared hosts, errors of plans are nearly as large.
const LEAST_GAIN: f64 = 0.10;

pub fn plan(graph: &Graph, times: &Times<'_>, machine: &Machine, barrier_ns: f64) -> Result<NetworkPlan> {
    let refused = |error: models::Error| Error::Query(error.to_string());
    let graph = passes::simplify_graph(graph).map_err(refused)?;
    let cut = models::plan_calls(&graph, Fuse::Epilogue).map_err(refused)?;
    let of_tasks = times.task_times(&cut.tasks, machine.cores)?;
    let crowding = times.host.map_or_else(|| vec![1.0; machine.cores], |host| host.crowding_factors(machine.cores));
    let of_call = |call: &models::Call| {
        let task = &cut.tasks[call.task].task;
        let profile = times.host.and_then(|host| host.task_profile(task));
        Demand { profile, ..task_demand(task, &of_tasks[call.task], machine, &crowding) }
    };
    let demands = cut.calls.iter().map(of_call).collect();
    let asked = planners::stages::Graph { demands, before: stages::call_dependencies(&graph, &cut) };
    let costs = Costs { machine: machine.clone(), barrier_ns };
    let found = planners::stages::plan_stages(&asked, &costs, &SearchLimits::default())
        .map_err(|error| Error::Query(error.to_string()))?;
    let known = TaskTimes { of_tasks: &of_tasks, host: times.host.map(|host| host.class.clone()) };
    Ok(assemble_plan(&graph, &cut, &known, &costs, &found))
}

struct TaskTimes<'a> {
    of_tasks: &'a [Vec<Time>],
    host: Option<String>,
}

impl TaskTimes<'_> {
    /// Returns the half-width of the sum of all calls, relative to the sum. Errors are assumed to be equal for calls
    /// with the same key and independent otherwise.
    fn relative_half_width<K: Ord>(
        &self,
        cut: &Plan,
        cores: usize,
        key: impl Fn(usize) -> K,
        half_width: fn(&Time) -> f64,
    ) -> f64 {
        let (mut halves, mut sum_ns): (BTreeMap<K, f64>, f64) = (BTreeMap::new(), 0.0);
        for call in &cut.calls {
            let time = &self.of_tasks[call.task][cores - 1];
            // A lower bound has no upper end.
            if time.source != TimeSource::Bound {
                *halves.entry(key(call.task)).or_default() += half_width(time);
            }
            sum_ns += time.time_ns;
        }
        halves.values().map(|half| half.powi(2)).sum::<f64>().sqrt() / sum_ns
    }

    /// Returns the share of the times from this source.
    fn share_of(&self, source: TimeSource, cut: &Plan, cores: usize) -> f64 {
        let times = || cut.calls.iter().map(|call| &self.of_tasks[call.task][cores - 1]);
        let total_ns = times().fold(0.0, |sum, time| sum + time.time_ns);
        times().filter(|time| time.source == source).fold(0.0, |sum, time| sum + time.time_ns) / total_ns
    }
}

fn assemble_plan(graph: &Graph, cut: &Plan, known: &TaskTimes<'_>, costs: &Costs, found: &Stages) -> NetworkPlan {
    let cores = costs.machine.cores;
    let gain = 1.0 - found.time_ns / found.sequential_ns;
    let above: fn(&Time) -> f64 = |time| time.high_ns - time.time_ns;
    // The gain must exceed the error of plans and the uncertainty of the tasks' times.
    let bound_share = known.share_of(TimeSource::Bound, cut, cores);
    let least_gain = match bound_share > MAX_BOUND_SHARE {
        true => f64::INFINITY,
        false => LEAST_GAIN.max(known.relative_half_width(cut, cores, |task| task, above)),
    };
    let is_known = gain >= least_gain;
    let is_sequential = |stage: &planners::stages::Stage| matches!(&stage.groups[..], [one] if one.cores == cores);
    let is_staged = is_known && !found.stages.iter().all(is_sequential);
    let parallel = if is_staged { Parallel::Stream } else { Parallel::Sequential };
    let time_ns = if is_staged { found.time_ns } else { found.sequential_ns };
    // As in the total of a prediction, errors are assumed to be equal within an operator kind.
    let of_kinds = |half_width: fn(&Time) -> f64| {
        known.relative_half_width(cut, cores, |task| cut.tasks[task].task.anchor_kind(), half_width)
    };
    let promise = Promise {
        time_ns,
        low_ns: time_ns * (1.0 - of_kinds(|time| time.time_ns - time.low_ns).clamp(0.0, 1.0)),
        high_ns: if bound_share > MAX_BOUND_SHARE { f64::NAN } else { time_ns * (1.0 + of_kinds(above)) },
        sequential_ns: found.sequential_ns,
    };
    let by_rule = StagePlan::by_rule(graph, cut, cores, Parallel::Sequential);
    let in_sequence = || by_rule.stages.iter().map(|stage| Stage { time_ns: Some(time_ns), ..stage.clone() });
    let stages: Vec<Stage> =
        if is_staged { found.stages.iter().map(assign_cores).collect() } else { in_sequence().collect() };
    let alternatives = call_alternatives(cut, known.of_tasks, &stages);
    let slower_on_all = alternatives.iter().filter(|one| one.is_slower_on_all()).count();
    NetworkPlan {
        model: graph.name.clone(),
        parallel,
        cores,
        promise,
        critical_ns: found.critical_ns,
        states: found.states,
        is_exact: found.is_exact,
        measured_share: known.share_of(TimeSource::Measured, cut, cores),
        lower_bounds: (0..cut.calls.len())
            .filter(|&call| known.of_tasks[cut.calls[call].task][cores - 1].source == TimeSource::Bound)
            .collect(),
        bound_share,
        best_ns: found.time_ns,
        slower_on_all,
        barrier_ns: costs.barrier_ns,
        stages_side_by_side: stages.iter().filter(|stage| stage.groups.len() > 1).count(),
        stages_count: stages.len(),
        why: explain_choice(found, (gain, least_gain), is_staged, (slower_on_all, alternatives.len(), cores)),
        alternatives,
        calls: cut.calls.iter().map(|call| cut.tasks[call.task].task.describe()).collect(),
        stages: StagePlan { stages, host_class: known.host.clone(), parallel, promise: Some(promise), ..by_rule },
    }
}

/// Returns the number of cores of each call.
pub(crate) fn cores_of_calls(stages: &[Stage], calls: usize) -> Vec<usize> {
    let mut cores_of = vec![0; calls];
    for group in stages.iter().flat_map(|stage| &stage.groups) {
        group.calls.iter().for_each(|&call| cores_of[call] = group.cores.len());
    }
    cores_of
}

fn call_alternatives(cut: &Plan, of_tasks: &[Vec<Time>], stages: &[Stage]) -> Vec<Alternative> {
    let cores_of = cores_of_calls(stages, cut.calls.len());
    let alternative = |(task, times): (usize, &Vec<Time>)| {
        let calls: Vec<usize> = (0..cut.calls.len()).filter(|&call| cut.calls[call].task == task).collect();
        let mut cores: Vec<usize> = calls.iter().map(|&call| cores_of[call]).collect();
        cores.sort_unstable();
        cores.dedup();
        let one = &cut.tasks[task].task;
        Alternative {
            operator: one.describe(),
            calls,
            alone_ns: times.iter().map(|time| time.time_ns).collect(),
            intervals_ns: times.iter().map(|time| (time.low_ns, time.high_ns)).collect(),
            cores,
            bytes: one.work().map_or(0.0, |work| work.total_bytes() as f64),
        }
    };
    of_tasks.iter().enumerate().map(alternative).collect()
}

/// Explains the choice, given the gain and the smallest gain that is accepted, and the numbers of operators slower
/// on all cores than on fewer, of operators, and of cores.
fn explain_choice(
    found: &Stages,
    (gain, least_gain): (f64, f64),
    is_staged: bool,
    (slower, operators, cores): (usize, usize, usize),
) -> String {
    let beside = found.stages.iter().filter(|stage| stage.groups.len() > 1).count();
    let less = format!("{:.1} % less time", 100.0 * gain);
    let cause = if least_gain > LEAST_GAIN { "because these times are uncertain" } else { "about the error of plans" };
    let least = match least_gain.is_finite() {
        true => format!("at least {:.1} % is required, {cause}", 100.0 * least_gain),
        false => "no gain is certain, because too many of these times are lower bounds".to_owned(),
    };
    let above = format!("{less} than one operator after the other; {least}");
    let on_all = format!("{slower} of {operators} operators take longer on {cores} cores than on fewer");
    match (is_staged, beside) {
        (true, 0) => format!("{on_all}; with the best core count for each operator, {above}"),
        (true, _) => {
            let stages = format_count(beside, "stage");
            format!("groups run concurrently in {stages}, because their operators scale badly to all cores; {above}")
        }
        (false, 0) if slower > 0 && gain <= 0.0 => format!(
            "no groups gain from concurrent execution; {on_all}, but a plan with fewer cores for these operators would \
             not be faster"
        ),
        (false, 0) if slower > 0 => format!(
            "no groups gain from concurrent execution; {on_all}, but the plan with the best core count for each \
             operator would take {} ({less}; {least})",
            format_duration(found.time_ns)
        ),
        (false, 0) if found.critical_ns >= found.sequential_ns * 0.999 => {
            "every operator depends on the previous one, so no operators can run concurrently".to_owned()
        }
        (false, 0) if cores == 1 => "one core runs one operator at a time".to_owned(),
        (false, 0) => {
            format!(
                "each operator takes less time on {cores} cores than on fewer, so concurrent execution would take \
                 longer"
            )
        }
        (false, _) => {
            format!("concurrent execution is predicted to take {} ({less}; {least})", format_duration(found.time_ns))
        }
    }
}

fn assign_cores(stage: &planners::stages::Stage) -> Stage {
    let mut next = 0;
    let groups = stage.groups.iter().map(|group| {
        let cores = (next..next + group.cores).collect();
        next += group.cores;
        stages::Group { cores, calls: group.operators.clone() }
    });
    Stage { groups: groups.collect(), time_ns: Some(stage.time_ns) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use planners::stages::Group;

    fn found(time_ns: f64, cores: usize) -> Stages {
        let stage = planners::stages::Stage { groups: vec![Group { cores, operators: vec![0] }], time_ns };
        Stages { stages: vec![stage], time_ns, sequential_ns: 646.0, critical_ns: 500.0, states: 1, is_exact: true }
    }

    #[test]
    fn the_reason_does_not_praise_operators_that_all_cores_slow_down() {
        let told = explain_choice(&found(594.0, 1), (1.0 - 594.0 / 646.0, 0.1), false, (9, 17, 2));
        assert!(
            told.contains("9 of 17 operators take longer on 2 cores")
                && told.contains("594 ns (8.0 % less time; at least 10.0 % is required, about the error of plans)"),
            "{told}"
        );
        let told = explain_choice(&found(646.0, 2), (0.0, 0.1), false, (0, 17, 2));
        assert!(told.starts_with("each operator takes less time on 2 cores"), "{told}");
        let told = explain_choice(&found(323.0, 1), (0.5, 0.125), true, (9, 17, 2));
        assert!(told.contains("with the best core count for each operator, 50.0 % less time than"), "{told}");
        let required = "one operator after the other; at least 12.5 % is required, because these times are uncertain";
        assert!(told.ends_with(required), "{told}");
    }
}
