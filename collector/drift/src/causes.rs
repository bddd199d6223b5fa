//! Possible causes of a difference: versions, settings and hosts of nightly runs, and the generated code of tasks.

use super::cell::cell_text;
use super::history::{LineFacts, Night, Side};
use datasets::{ColumnId, Record};
use serde::Serialize;
use std::collections::BTreeSet;

/// Columns that usually have one value in a nightly run.
const OF_NIGHT: [ColumnId; 13] = [
    ColumnId::host,
    ColumnId::host_class,
    ColumnId::cpu_model,
    ColumnId::logical_cpus,
    ColumnId::memory_bytes,
    ColumnId::clock_policy,
    ColumnId::os,
    ColumnId::kernel,
    ColumnId::tvm_version,
    ColumnId::llvm_version,
    ColumnId::driver_version,
    ColumnId::program_version,
    ColumnId::plan,
];

/// Columns that describe the code of a line (a task with one schedule).
const OF_LINE: [ColumnId; 6] = [
    ColumnId::code_revision,
    ColumnId::code_bytes,
    ColumnId::schedule_hash,
    ColumnId::symbolic_task,
    ColumnId::target_text,
    ColumnId::cpus,
];

const VALUES_MAX: usize = 16;

/// A column whose values differ between the two sides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cause {
    pub name: &'static str,
    pub before: BTreeSet<String>,
    pub after: BTreeSet<String>,
}

pub(super) fn note_night_facts(record: &Record, facts: &mut LineFacts) {
    note_columns(record, &OF_NIGHT, facts);
}

pub(super) fn note_line_facts(record: &Record, facts: &mut LineFacts) {
    note_columns(record, &OF_LINE, facts);
}

fn note_columns(record: &Record, columns: &[ColumnId], facts: &mut LineFacts) {
    for &id in columns {
        let Some(value) = cell_text(record.cell(id)) else { continue };
        let values = facts.entry(id.name()).or_default();
        if values.len() < VALUES_MAX {
            values.insert(value);
        }
    }
}

pub(super) fn night_causes(nights: &[Night]) -> Vec<Cause> {
    let of = |side: Side| {
        let mut all = LineFacts::new();
        for night in nights.iter().filter(|night| night.side == side) {
            for (name, values) in &night.facts {
                all.entry(name).or_default().extend(values.iter().cloned());
            }
        }
        all
    };
    let (before, after) = (of(Side::Before), of(Side::After));
    // If one side has no nights, every column would differ.
    if before.is_empty() || after.is_empty() { Vec::new() } else { differing_columns(&before, &after) }
}

pub(super) fn differing_columns(before: &LineFacts, after: &LineFacts) -> Vec<Cause> {
    let names: BTreeSet<&'static str> = before.keys().chain(after.keys()).copied().collect();
    let of = |facts: &LineFacts, name: &str| facts.get(name).cloned().unwrap_or_default();
    let causes = names.into_iter().map(|name| Cause { name, before: of(before, name), after: of(after, name) });
    causes.filter(|cause| cause.before != cause.after).collect()
}
