//! What makes two attempts the same experiment.

use super::cell::Cell;
use super::json::Json;
use super::key::Key;
use super::table::{ColumnId, Record};
use serde_json::{Map, Value};

/// The columns whose values name an experiment; all are known before the run.
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
    // The sizes of this run follow from its task.
    ColumnId::symbolic_task,
    ColumnId::network_hash,
];

impl Record {
    /// The key of the experiment that the columns of `EXPERIMENT` describe.
    ///
    /// Fill those columns, take the key, and ask the store whether it has it: no need to measure before knowing.
    pub fn experiment_key(&self) -> Key {
        self.key_of(EXPERIMENT.iter().copied())
    }

    /// Returns the key of the experiment without its schedule, which all schedules of a task share if they were measured alike.
    pub fn ground_key(&self) -> Key {
        self.key_of(EXPERIMENT.iter().copied().filter(|id| *id != ColumnId::schedule_hash))
    }

    fn key_of(&self, columns: impl Iterator<Item = ColumnId>) -> Key {
        let named = columns.filter_map(|id| Some((id.name().to_owned(), value(self.cell(id))?)));
        Key::of_bytes(Json::from(Value::Object(named.collect::<Map<_, _>>())).text().as_bytes())
    }
}

/// An absent value is left out, so that a column added later does not change the keys of old experiments.
fn value(cell: Cell<'_>) -> Option<Value> {
    match cell {
        Cell::Null => None,
        Cell::Bool(value) => Some(value.into()),
        Cell::Integer(value) => Some(value.into()),
        Cell::Float(value) => Some(value.into()),
        Cell::Text(text) => Some(text.into()),
        Cell::List(values) => Some(values.into()),
        Cell::Key(key) => Some(key.hex().into()),
    }
}
