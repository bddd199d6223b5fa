//! Plans made by rules, without a planner.

use super::{Group, Parallel, Stage, StagePlan, waits};
use crate::{Graph, Plan};

impl StagePlan {
    /// All calls in stages by a rule: one after the other, or by levels what is ready at once. A stream shares a level among as
    /// many groups as there are cores, those with most work first.
    pub fn by_rule(graph: &Graph, plan: &Plan, cores: usize, parallel: Parallel) -> StagePlan {
        let all: Vec<usize> = (0..cores).collect();
        let stages = match parallel {
            Parallel::Sequential => {
                vec![stage(vec![Group { cores: all, calls: (0..plan.calls.len()).collect() }])]
            }
            Parallel::Full => {
                let alone = |call: usize| Group { cores: all.clone(), calls: vec![call] };
                levels(graph, plan).into_iter().map(|level| stage(level.into_iter().map(alone).collect())).collect()
            }
            Parallel::Stream => {
                levels(graph, plan).into_iter().map(|level| stage(streams(plan, level, cores))).collect()
            }
        };
        StagePlan { stages, ..StagePlan::of(graph, plan, cores, parallel) }
    }
}

fn stage(groups: Vec<Group>) -> Stage {
    Stage { groups, time_ns: None }
}

/// Calls by the longest chain of others that they wait for.
fn levels(graph: &Graph, plan: &Plan) -> Vec<Vec<usize>> {
    let mut level_of: Vec<usize> = Vec::with_capacity(plan.calls.len());
    let mut levels: Vec<Vec<usize>> = Vec::new();
    for (call, waits) in waits(graph, plan).iter().enumerate() {
        let level = waits.iter().map(|&wait| level_of[wait] + 1).max().unwrap_or(0);
        level_of.push(level);
        levels.resize_with(levels.len().max(level + 1), Vec::new);
        levels[level].push(call);
    }
    levels
}

/// A level in groups, each on its part of the cores.
fn streams(plan: &Plan, level: Vec<usize>, cores: usize) -> Vec<Group> {
    let count = level.len().min(cores).max(1);
    let work = |call: usize| {
        let work = plan.tasks[plan.calls[call].task].task.work();
        work.map_or(1, |work| work.flops.saturating_add(work.bytes())).max(1)
    };
    let mut order: Vec<(u64, usize)> = level.into_iter().map(|call| (work(call), call)).collect();
    order.sort_by_key(|(work, call)| (std::cmp::Reverse(*work), *call));
    let mut groups: Vec<(u64, Vec<usize>)> = vec![(0, Vec::new()); count];
    for (work, call) in order {
        let least = groups.iter_mut().min_by_key(|(sum, _)| *sum).expect("there is a group");
        least.0 = least.0.saturating_add(work);
        least.1.push(call);
    }
    let begin = |group: usize| group * cores / count;
    let groups = groups.into_iter().enumerate();
    groups
        .map(|(number, (_, mut calls))| {
            calls.sort_unstable();
            Group { cores: (begin(number)..begin(number + 1)).collect(), calls }
        })
        .collect()
}
