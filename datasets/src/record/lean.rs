//! Records without what is long.

use super::table::Record;

impl Record {
    /// The same without its long columns, for whoever holds many and asks for times.
    pub fn lean(self) -> Record {
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
