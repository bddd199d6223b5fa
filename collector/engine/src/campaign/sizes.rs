//! Plans models at several sizes, whose tasks are compiled once if possible.
//!
//! A model is loaded at each of its sizes and cut into calls of tasks. Calls at the same position are instances of one
//! task. If one symbolic task (`models::symbolic`) can represent all instances, it is compiled once for all of them.
//! Otherwise, each instance is compiled separately, and the reason is recorded.

use super::config::{Config, ModelRequest};
use super::graphs::{LoadedModels, cut_graph};
use super::planned::{PlannedTask, PlanningError, Symbolic};
use job::symbols;
use models::symbolic::{Family, unify_tasks};
use models::{Graph, Plan, Task, TaskUse};
use std::collections::HashMap;

struct SizeMember<'a> {
    request: &'a ModelRequest,
    /// Index of the model among all models of the campaign.
    index: usize,
    cuts: Vec<(Graph, Plan)>,
}

/// Adds the tasks of all models. Tasks that are compiled together are adjacent.
pub(super) fn plan_tasks(
    config: &Config,
    models: &LoadedModels,
    add: &mut dyn FnMut(TaskUse, usize, Option<Symbolic>, Option<String>),
) -> Result<(), PlanningError> {
    for group in group_by_size(&config.models) {
        let mut members = Vec::with_capacity(group.len());
        for index in group {
            let request = &config.models[index];
            let failed = |source| PlanningError::Model { name: request.name.clone(), source };
            members.push(SizeMember {
                request,
                index,
                cuts: cut_graph(&models.load(request)?.graph, config).map_err(failed)?,
            });
        }
        for cut in 0..members[0].cuts.len() {
            plan_cut(&members, cut, add);
        }
    }
    Ok(())
}

fn group_by_size(models: &[ModelRequest]) -> Vec<Vec<usize>> {
    let identity = |model: &ModelRequest| {
        (model.source.clone(), model.name.clone(), model.tokens.map(|tokens| tokens.phase), model.skip_unsupported)
    };
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (index, model) in models.iter().enumerate() {
        match groups.iter_mut().find(|group| identity(&models[group[0]]) == identity(model)) {
            Some(group) => group.push(index),
            None => groups.push(vec![index]),
        }
    }
    groups
}

fn plan_cut(
    members: &[SizeMember<'_>],
    cut: usize,
    add: &mut dyn FnMut(TaskUse, usize, Option<Symbolic>, Option<String>),
) {
    let plans: Vec<&(Graph, Plan)> = members.iter().map(|member| &member.cuts[cut]).collect();
    let calls = plans[0].1.calls.len();
    if plans.iter().any(|(_, plan)| plan.calls.len() != calls) {
        let reason = "the model has other operators at other sizes".to_owned();
        for (member, (_, plan)) in members.iter().zip(&plans) {
            plan.tasks.iter().for_each(|found| add(found.clone(), member.index, None, Some(reason.clone())));
        }
        return;
    }
    // Groups calls with the same tasks at every size, in the order of the first call.
    let mut order: Vec<(Vec<usize>, Vec<usize>)> = Vec::new();
    let mut place_of: HashMap<Vec<usize>, usize> = HashMap::new();
    for call in 0..calls {
        let tasks: Vec<usize> = plans.iter().map(|(_, plan)| plan.calls[call].task).collect();
        let place = *place_of.entry(tasks.clone()).or_insert(order.len());
        if place == order.len() {
            order.push((tasks, Vec::new()));
        }
        order[place].1.push(call);
    }
    let names = symbol_values(members);
    for (tasks, calls) in order {
        let used: Vec<&TaskUse> = plans.iter().zip(&tasks).map(|((_, plan), &task)| &plan.tasks[task]).collect();
        let together = unify_uses(&used, &names);
        for (place, member) in members.iter().enumerate() {
            let (graph, plan) = plans[place];
            let scope = |&call: &usize| graph.nodes[plan.calls[call].nodes[0]].origin.scope.clone();
            let found = TaskUse { places: calls.iter().map(scope).collect(), ..used[place].clone() };
            match &together {
                Ok(Some(family)) => add(found, member.index, Some(Symbolic::from_family(family, place)), None),
                Ok(None) => add(found, member.index, None, None),
                Err(reason) => add(found, member.index, None, Some(reason.clone())),
            }
        }
    }
}

/// Returns the symbols of a group of models, `batch` and `sequence`, with their values for each member.
fn symbol_values(members: &[SizeMember<'_>]) -> Vec<(&'static str, Vec<i64>)> {
    let batch = members.iter().map(|member| member.request.batch.unwrap_or(0)).collect();
    let sequence = members.iter().map(|member| member.request.tokens.map_or(0, |tokens| tokens.sequence)).collect();
    vec![("batch", batch), ("sequence", sequence)]
}

/// Returns the symbolic task that covers one task at several sizes; None if the tasks are equal or a library computes
/// them. The error is the reason why no symbolic task exists.
fn unify_uses(used: &[&TaskUse], names: &[(&str, Vec<i64>)]) -> Result<Option<Family>, String> {
    if used.iter().any(|used| used.partner.is_some()) {
        return Ok(None);
    }
    let tasks: Vec<&Task> = used.iter().map(|used| &used.task).collect();
    let family = unify_tasks(&tasks, names)?;
    if family.sizes[0].is_empty() {
        return Ok(None);
    }
    match symbols::find_refusal(&family.task) {
        Some(reason) => Err(reason),
        None => Ok(Some(family)),
    }
}

impl PlannedTask {
    /// Returns whether both tasks are instances of the same symbolic task, so that one build serves both.
    pub fn is_compiled_with(&self, other: &PlannedTask) -> bool {
        match (&self.symbolic, &other.symbolic) {
            (Some(own), Some(theirs)) => own.task == theirs.task,
            _ => false,
        }
    }

    /// Returns the task that is compiled, as JSON: the symbolic task if there is one.
    pub fn compiled_json(&self) -> &str {
        self.symbolic.as_ref().map_or(&self.json, |symbolic| &symbolic.json)
    }

    /// Returns the task from whose schedule space the compiled code is chosen: the symbolic task if there is one.
    pub fn scheduled_task(&self) -> &Task {
        self.symbolic.as_ref().map_or(&self.task, |symbolic| &symbolic.task)
    }
}
