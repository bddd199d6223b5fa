//! Schedule spaces that a user has restricted to some settings.

use crate::Result;
use crate::campaign::PlannedTask;
use crate::failure::Failure;
use job::space::{Filter, Space, task_space};
use std::collections::BTreeSet;
use targets::Machine;

/// Restricts each task's space by the filter. Rejects an axis or a setting that no task has, and a space without
/// schedules.
pub fn filter_spaces(tasks: &[PlannedTask], machine: &Machine, filter: &Filter) -> Result<Vec<Space>> {
    let spaces: Vec<Space> = tasks.iter().map(|planned| task_space(planned.scheduled_task(), machine)).collect();
    if let Some(axis) = filter.0.keys().find(|axis| !spaces.iter().any(|space| space.has_axis(axis))) {
        let names: BTreeSet<&str> = spaces.iter().flat_map(|space| space.axes.iter().map(|axis| axis.name)).collect();
        let names: Vec<&str> = names.into_iter().collect();
        return Err(Failure::usage(format!("`only` names the axis `{axis}`, which no task of these models has"))
            .with_hint(format!("axes are {}", names.join(", "))));
    }
    for (name, wanted) in &filter.0 {
        let axes = || spaces.iter().flat_map(|space| space.axes.iter().filter(|axis| axis.name == name));
        let Some(absent) = wanted.iter().find(|setting| !axes().any(|axis| axis.settings.contains(setting))) else {
            continue;
        };
        let mut settings: Vec<String> = Vec::new();
        for setting in axes().flat_map(|axis| &axis.settings).map(ToString::to_string) {
            if !settings.contains(&setting) {
                settings.push(setting);
            }
        }
        let message = format!("`only` names the setting `{absent}` of `{name}`, which no task of these models has");
        return Err(Failure::usage(message).with_hint(format!("settings of `{name}` are {}", settings.join(", "))));
    }
    let left = tasks.iter().zip(spaces).map(|(planned, space)| {
        space.filter_axes(filter).map_err(|error| {
            Failure::usage(format!("`only` leaves no schedule of `{}`: {error}", planned.task.describe()))
                .with_hint("see `opcollect space` for axes, settings and rules")
        })
    });
    left.collect()
}
