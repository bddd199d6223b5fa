//! Plans a graph in stages: which operators run concurrently, on how many cores, and in which order.
//!
//! A stage is a set of operators that can run once all earlier stages have ended; its connected components are
//! distributed over concurrent groups. Dynamic programming over down-sets of the graph finds the best stages. The graph
//! is cut at operators that are ordered with respect to all others; parts that are too wide use beam search.

mod cost;
mod search;
mod set;

pub use cost::Costs;
pub(crate) use cost::all_splits;

use crate::interference::Demand;
use crate::{Error, Result, topological_order};
use search::Part;
use serde::{Deserialize, Serialize};
use set::Set;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Graph {
    pub demands: Vec<Demand>,
    pub before: Vec<Vec<usize>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SearchLimits {
    pub groups: usize,
    pub operators: usize,
    /// Beam width: number of down-sets kept for each number of operators.
    pub beam: usize,
    /// Maximum number of stage evaluations per part; the beam is narrowed to comply.
    pub tries: usize,
}

impl Default for SearchLimits {
    fn default() -> SearchLimits {
        SearchLimits { groups: 8, operators: 12, beam: 400, tries: 12_000 }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Group {
    pub cores: usize,
    pub operators: Vec<usize>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stage {
    pub groups: Vec<Group>,
    pub time_ns: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stages {
    pub stages: Vec<Stage>,
    pub time_ns: f64,
    pub sequential_ns: f64,
    pub critical_ns: f64,
    pub states: usize,
    /// Whether the search was exhaustive within the limits on groups and operators.
    pub is_exact: bool,
}

pub fn plan_stages(graph: &Graph, costs: &Costs, limits: &SearchLimits) -> Result<Stages> {
    let order = check_graph(graph, costs)?;
    let mut found = Stages {
        stages: Vec::new(),
        time_ns: 0.0,
        sequential_ns: graph.demands.iter().map(|demand| demand.time_alone(costs.machine.cores)).sum(),
        critical_ns: critical_length(graph, costs, &order),
        states: 0,
        is_exact: true,
    };
    for (operators, is_whole) in cut_parts(graph, &order) {
        let part = Part::from_operators(graph, operators, costs, limits).search_sets();
        found.is_exact &= is_whole && part.is_exact;
        found.states += part.states;
        found.stages.extend(part.stages);
    }
    found.stages = join_stages(found.stages);
    found.time_ns = found.stages.iter().map(|stage| stage.time_ns).sum();
    Ok(found)
}

fn check_graph(graph: &Graph, costs: &Costs) -> Result<Vec<usize>> {
    if graph.demands.is_empty() {
        return Err(Error::Nothing("operator"));
    }
    if costs.machine.cores == 0 {
        return Err(Error::Nothing("core"));
    }
    if graph.before.len() != graph.demands.len() {
        let (operator, wanted) = (graph.before.len(), graph.demands.len());
        return Err(Error::Ragged { operator, found: graph.before.len(), wanted, kind: "dependency lists" });
    }
    graph.demands.iter().enumerate().try_for_each(|(operator, demand)| demand.check_demand(operator))?;
    topological_order(&graph.before)
}

fn critical_length(graph: &Graph, costs: &Costs, order: &[usize]) -> f64 {
    let mut ends = vec![0.0f64; order.len()];
    for &operator in order {
        let begins = graph.before[operator].iter().map(|&one| ends[one]).fold(0.0, f64::max);
        ends[operator] = begins + graph.demands[operator].best_cores(costs.machine.cores).1;
    }
    ends.into_iter().fold(0.0, f64::max)
}

/// Cuts the graph at articulations. Parts of more than `Set::MOST` operators are cut anywhere and marked as not whole.
fn cut_parts(graph: &Graph, order: &[usize]) -> Vec<(Vec<usize>, bool)> {
    let mut parts: Vec<(Vec<usize>, bool)> = Vec::new();
    let mut open: Vec<usize> = Vec::new();
    let mut close = |open: &mut Vec<usize>| {
        let is_whole = open.len() <= Set::MOST;
        parts.extend(open.chunks(Set::MOST).map(|part| (part.to_vec(), is_whole)));
        open.clear();
    };
    let is_cut = find_articulations(graph, order);
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

/// Returns for each operator whether it is an articulation: every other operator always runs before or always after it.
fn find_articulations(graph: &Graph, order: &[usize]) -> Vec<bool> {
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

/// Joins consecutive stages that have a single group and equal core counts.
fn join_stages(stages: Vec<Stage>) -> Vec<Stage> {
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
