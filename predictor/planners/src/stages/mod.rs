//! A graph of operators in stages: what of it runs side by side, on how many cores, and when.
//!
//! A stage is a set of operators that can run when all before it have; what of it hangs together is one group, or goes with
//! others into one, and groups run side by side on cores of their own. Dynamic programming over down-sets of the graph (what
//! may already have run) finds the stages that take least together (`search`), with the cost of a stage from the model of
//! interference (`cost`). An operator that comes before or after every other one never runs beside any: there the graph is cut,
//! and parts are planned alone. Parts that are too wide are searched along a beam, and the answer says so.

mod cost;
mod search;
mod set;

pub use cost::Costs;
pub(crate) use cost::all_splits;

use crate::interference::Demand;
use crate::{Error, Result, topological};
use search::Part;
use serde::{Deserialize, Serialize};
use set::Set;

/// Operators that wait for each other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Graph {
    /// What each asks of the machine.
    pub demands: Vec<Demand>,
    /// Whom each waits for.
    pub before: Vec<Vec<usize>>,
}

/// How far one searches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Groups of a stage at most.
    pub groups: usize,
    /// Operators of a group at most.
    pub operators: usize,
    /// Sets that are kept of each size; more are a beam.
    pub beam: usize,
    /// Stages of each part whose time is computed; where there are more, the search becomes narrow.
    pub tries: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { groups: 8, operators: 12, beam: 400, tries: 12_000 }
    }
}

/// Operators that run one after the other on cores of their own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// How many cores.
    pub cores: usize,
    /// Its operators, in order.
    pub operators: Vec<usize>,
}

/// Groups that run side by side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stage {
    /// The groups.
    pub groups: Vec<Group>,
    /// What it takes.
    pub time_ns: f64,
}

/// A graph in stages.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stages {
    /// The stages, in order.
    pub stages: Vec<Stage>,
    /// What they take together.
    pub time_ns: f64,
    /// What one operator after the other takes on all cores.
    pub sequential_ns: f64,
    /// What the longest chain takes at least.
    pub critical_ns: f64,
    /// Sets of operators that were looked at.
    pub states: usize,
    /// Whether nothing was left out that the limits on groups allow.
    pub is_exact: bool,
}

/// The stages of a graph that take least.
pub fn stages(graph: &Graph, costs: &Costs, limits: &Limits) -> Result<Stages> {
    let order = checked(graph, costs)?;
    let mut found = Stages {
        stages: Vec::new(),
        time_ns: 0.0,
        sequential_ns: graph.demands.iter().map(|demand| demand.alone(costs.machine.cores)).sum(),
        critical_ns: critical(graph, costs, &order),
        states: 0,
        is_exact: true,
    };
    for (operators, is_whole) in parts(graph, &order) {
        let part = Part::of(graph, operators, costs, limits).search();
        found.is_exact &= is_whole && part.is_exact;
        found.states += part.states;
        found.stages.extend(part.stages);
    }
    found.stages = joined(found.stages);
    found.time_ns = found.stages.iter().map(|stage| stage.time_ns).sum();
    Ok(found)
}

fn checked(graph: &Graph, costs: &Costs) -> Result<Vec<usize>> {
    if graph.demands.is_empty() {
        return Err(Error::Nothing("operator"));
    }
    if costs.machine.cores == 0 {
        return Err(Error::Nothing("core"));
    }
    if graph.before.len() != graph.demands.len() {
        let (operator, wanted) = (graph.before.len(), graph.demands.len());
        return Err(Error::Ragged { operator, found: graph.before.len(), wanted, of: "operators that wait" });
    }
    graph.demands.iter().enumerate().try_for_each(|(operator, demand)| demand.check(operator))?;
    topological(&graph.before)
}

fn critical(graph: &Graph, costs: &Costs, order: &[usize]) -> f64 {
    let mut ends = vec![0.0f64; order.len()];
    for &operator in order {
        let begins = graph.before[operator].iter().map(|&one| ends[one]).fold(0.0, f64::max);
        ends[operator] = begins + graph.demands[operator].best(costs.machine.cores).1;
    }
    ends.into_iter().fold(0.0, f64::max)
}

/// The parts between operators that come before or after every other one, in order; a part that is larger than a set can be
/// is cut somewhere, and is not whole.
fn parts(graph: &Graph, order: &[usize]) -> Vec<(Vec<usize>, bool)> {
    let mut parts: Vec<(Vec<usize>, bool)> = Vec::new();
    let mut open: Vec<usize> = Vec::new();
    let mut close = |open: &mut Vec<usize>| {
        let is_whole = open.len() <= Set::MOST;
        parts.extend(open.chunks(Set::MOST).map(|part| (part.to_vec(), is_whole)));
        open.clear();
    };
    let is_cut = articulations(graph, order);
    for &operator in order {
        if is_cut[operator] {
            close(&mut open);
            open.push(operator);
            close(&mut open);
        } else {
            open.push(operator);
        }
    }
    close(&mut open);
    parts
}

/// Which operators come before or after every other one. In a topological order, that is where no edge passes by: every
/// operator before reaches it, and it reaches every one after.
fn articulations(graph: &Graph, order: &[usize]) -> Vec<bool> {
    let count = order.len();
    let words = count.div_ceil(64);
    let reach = |order: &mut dyn Iterator<Item = usize>, next: &dyn Fn(usize) -> Vec<usize>| {
        let mut sets = vec![vec![0u64; words]; count];
        for operator in order {
            let mut own = vec![0u64; words];
            for one in next(operator) {
                own[one / 64] |= 1 << (one % 64);
                own.iter_mut().zip(&sets[one]).for_each(|(own, others)| *own |= others);
            }
            sets[operator] = own;
        }
        sets.iter().map(|set| set.iter().map(|word| word.count_ones() as usize).sum()).collect::<Vec<usize>>()
    };
    let mut after = vec![Vec::new(); count];
    for (operator, before) in graph.before.iter().enumerate() {
        before.iter().for_each(|&one| after[one].push(operator));
    }
    let before = reach(&mut order.iter().copied(), &|operator| graph.before[operator].clone());
    let after = reach(&mut order.iter().rev().copied(), &|operator| after[operator].clone());
    before.iter().zip(&after).map(|(before, after)| before + after + 1 == count).collect()
}

/// Stages of one group that follow each other on as many cores are one stage.
fn joined(stages: Vec<Stage>) -> Vec<Stage> {
    let mut joined: Vec<Stage> = Vec::with_capacity(stages.len());
    for stage in stages {
        match (joined.last_mut().map(|last| (last.groups.as_mut_slice(), &mut last.time_ns)), stage.groups.as_slice()) {
            (Some(([before], time_ns)), [group]) if before.cores == group.cores => {
                before.operators.extend(&group.operators);
                *time_ns += stage.time_ns;
            }
            _ => joined.push(stage),
        }
    }
    joined
}

#[cfg(test)]
mod tests;
