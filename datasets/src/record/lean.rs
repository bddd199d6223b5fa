//! Records without their long columns.

use super::table::Record;

impl Record {
    /// Removes the long columns, for callers that keep many records in memory and need only times.
    pub fn without_long_columns(self) -> Record {
        Record {
            samples_ns: Vec::new(),
            features: None,
            counters: None,
            counter_origins: None,
            task: None,
            places: None,
            ..self
        }
    }
}
