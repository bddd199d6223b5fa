//! The columns that identify an experiment, and its key.

use super::cell::Cell;
use super::column::Kind;
use super::json::Json;
use super::key::Key;
use super::table::{ColumnId, Record};
use serde_json::{Map, Value};

/// Columns that identify an experiment; all are known before the run.
pub const EXPERIMENT: &[ColumnId] = &[
    ColumnId::task_hash,
    ColumnId::schedule_hash,
    ColumnId::code_revision,
    ColumnId::target,
    ColumnId::target_text,
    ColumnId::board,
    ColumnId::device,
    ColumnId::threads,
    ColumnId::cpus,
    ColumnId::thread_mode,
    ColumnId::spin_count,
    ColumnId::parallel_type,
    ColumnId::co_run,
    ColumnId::cache_share,
    ColumnId::host_class,
    ColumnId::clock_policy,
    ColumnId::tvm_version,
    ColumnId::llvm_version,
    ColumnId::driver_version,
    ColumnId::source,
    ColumnId::cache_state,
    ColumnId::seed,
    ColumnId::plan,
    // The task determines the sizes of this run.
    ColumnId::symbolic_task,
    ColumnId::network_hash,
];

impl Record {
    /// Returns the key of the experiment, which a caller can look up in a store before measuring.
    pub fn experiment_key(&self) -> Key {
        self.key_of(EXPERIMENT.iter().copied())
    }

    /// Returns the key without the schedule, equal for all schedules of a task measured under equal conditions.
    pub fn ground_key(&self) -> Key {
        self.key_of(EXPERIMENT.iter().copied().filter(|id| *id != ColumnId::schedule_hash))
    }

    fn key_of(&self, columns: impl Iterator<Item = ColumnId>) -> Key {
        let value = |id: ColumnId| match id.column_metadata().kind {
            Kind::Json => canonical_value(self.cell(id)),
            _ => cell_value(self.cell(id)),
        };
        let named = columns.filter_map(|id| Some((id.name().to_owned(), value(id)?)));
        Key::of_bytes(Json::from(Value::Object(named.collect::<Map<_, _>>())).as_text().as_bytes())
    }
}

/// Reformats a JSON cell, so that the key does not depend on a writer's spacing and number format.
fn canonical_value(cell: Cell<'_>) -> Option<Value> {
    let Cell::Text(text) = cell else { return cell_value(cell) };
    let parsed = serde_json::from_str::<Value>(text).ok();
    Some(parsed.map_or_else(|| text.to_owned(), |parsed| Json::from(parsed).as_text().to_owned()).into())
}

/// Converts a cell; absent values give None, so that a new column does not change the keys of old experiments.
fn cell_value(cell: Cell<'_>) -> Option<Value> {
    match cell {
        Cell::Null => None,
        Cell::Bool(value) => Some(value.into()),
        Cell::Integer(value) => Some(value.into()),
        Cell::Float(value) => Some(value.into()),
        Cell::Text(text) => Some(text.into()),
        Cell::List(values) => Some(values.into()),
        Cell::Key(key) => Some(key.to_hex().into()),
    }
}

#[cfg(test)]
mod tests {
    use crate::record::json::Json;
    use crate::record::table::Record;

    /// Python's `json` writes spaces, keeps the order of names and formats small numbers differently than this crate.
    #[test]
    fn a_key_does_not_depend_on_who_wrote_the_json() {
        let of = |plan: &str, cpus: &str| {
            let json = |text: &str| Some(Json::parse(text).unwrap());
            Record { plan: json(plan), cpus: json(cpus), ..Record::default() }.experiment_key()
        };
        let own = of(r#"{"precision":1e-5,"visits":3}"#, "[0,1]");
        assert_eq!(of(r#"{"visits": 3, "precision": 1e-05}"#, "[0, 1]"), own);
        assert_eq!(of(r#"{"precision": 0.00001, "visits": 3}"#, "[0, 1]"), own);
        assert_ne!(of(r#"{"precision":1e-5,"visits":2}"#, "[0,1]"), own);
        assert_ne!(of(r#"{"precision":1e-5,"visits":3}"#, "[1,0]"), own);
    }
}
