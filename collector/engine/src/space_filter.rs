//! Schedule spaces of which a user asked for some settings only.

use crate::Result;
use crate::campaign::PlannedTask;
use crate::failure::Failure;
use job::space::{Filter, Space, space};
use std::collections::BTreeSet;
use targets::Machine;

/// Returns the filtered space of each task; refuses an axis that no task has, and a filter that leaves a task without a schedule.
pub fn filtered(tasks: &[PlannedTask], machine: &Machine, filter: &Filter) -> Result<Vec<Space>> {
    let spaces: Vec<Space> = tasks.iter().map(|planned| space(planned.scheduled(), machine)).collect();
    if let Some(axis) = filter.0.keys().find(|axis| !spaces.iter().any(|space| space.has(axis))) {
        let names: BTreeSet<&str> = spaces.iter().flat_map(|space| space.axes.iter().map(|axis| axis.name)).collect();
        let names: Vec<&str> = names.into_iter().collect();
        return Err(Failure::usage(format!("`only` names the axis `{axis}`, which no task of these models has"))
            .with_hint(format!("axes are {}", names.join(", "))));
    }
    let left = tasks.iter().zip(spaces).map(|(planned, space)| {
        space.only(filter).map_err(|error| {
            Failure::usage(format!("`only` leaves no schedule of `{}`: {error}", planned.task.describe()))
                .with_hint("see `opcollect space` for axes, settings and rules")
        })
    });
    left.collect()
}
