//! Plans made by rules, without a planner.

use super::{Group, Parallel, Stage, StagePlan, call_dependencies};
use crate::{Graph, Plan};

impl StagePlan {
    /// Builds stages by a rule: one sequential stage, or one stage per dependency level, whose calls are independent
    /// of each other. `Stream` distributes a level over at most as many groups as there are cores, the calls with
    /// most work first; `Full` makes each call a group on all cores.
    pub fn by_rule(graph: &Graph, plan: &Plan, cores: usize, parallel: Parallel) -> StagePlan {
        let all: Vec<usize> = (0..cores).collect();
        let stages = match parallel {
            Parallel::Sequential => {
                vec![make_stage(vec![Group { cores: all, calls: (0..plan.calls.len()).collect() }])]
            }
            Parallel::Full => {
                let alone = |call: usize| Group { cores: all.clone(), calls: vec![call] };
                dependency_levels(graph, plan)
                    .into_iter()
                    .map(|level| make_stage(level.into_iter().map(alone).collect()))
                    .collect()
            }
            Parallel::Stream => dependency_levels(graph, plan)
                .into_iter()
                .map(|level| make_stage(split_level(plan, level, cores)))
                .collect(),
        };
        StagePlan { stages, ..StagePlan::without_stages(graph, plan, cores, parallel) }
    }
}

fn make_stage(groups: Vec<Group>) -> Stage {
    Stage { groups, time_ns: None }
}

/// Groups calls into levels by the length of their longest chain of dependencies.
fn dependency_levels(graph: &Graph, plan: &Plan) -> Vec<Vec<usize>> {
    let mut level_of: Vec<usize> = Vec::with_capacity(plan.calls.len());
    let mut levels: Vec<Vec<usize>> = Vec::new();
    for (call, waits) in call_dependencies(graph, plan).iter().enumerate() {
        let level = waits.iter().map(|&wait| level_of[wait] + 1).max().unwrap_or(0);
        level_of.push(level);
        levels.resize_with(levels.len().max(level + 1), Vec::new);
        levels[level].push(call);
    }
    levels
}

fn split_level(plan: &Plan, level: Vec<usize>, cores: usize) -> Vec<Group> {
    let count = level.len().min(cores).max(1);
    let work = |call: usize| {
        let work = plan.tasks[plan.calls[call].task].task.work();
        work.map_or(1, |work| work.flops.saturating_add(work.total_bytes())).max(1)
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
