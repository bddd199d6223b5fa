//! Where the record of a whole model goes.

use super::Result;
use super::arguments::Given;
use super::collect::{bases, open_store};
use super::dataset::failed;
use super::failure::Failure;
use super::ledger::Ledger;
use super::machine;
use super::repeat::Repeat;
use super::whole::Whole;
use crate::network::record::warn;
use bench::Versions;
use datasets::{Record, RowError, ScheduleSource, Store};
use job::space::Schedule;
use measure::Method;
use measure::host::Facts;
use serde::Serialize;
use std::collections::HashSet;
use std::path::Path;

/// The record of a run that is about to begin, and its store.
pub struct Keeping {
    store: Store,
    record: Record,
    warnings: Vec<String>,
}

/// Where a record is.
#[derive(Clone, Debug, Serialize)]
pub struct Kept {
    pub store: String,
    pub key: String,
}

impl Keeping {
    /// Opens the store, which is made if needed, and writes down what is known before.
    pub fn begin(
        path: &Path,
        whole: &mut Whole,
        schedules: (&[Schedule], ScheduleSource),
        method: &Method,
        given: &Given,
    ) -> Result<Keeping> {
        let versions = machine::prepare(&whole.target, Versions::new(), &mut whole.runs.workers)?;
        let base = bases(&whole.runs.config, &whole.target, &Facts::read(), &versions)?.compiled;
        let record = whole.record(schedules, method, &base)?;
        let store = open_store(Some(path))?;
        store.keep_config(&whole.runs.config.text()).map_err(failed)?;
        let warnings = match given.is_nothing() {
            true => Vec::new(),
            false => vec!["inputs came from files, not from the seed".to_owned()],
        };
        Ok(Keeping { store, record, warnings })
    }

    /// Keeps the record with what became of the run: one more attempt, however many there are.
    pub fn keep(mut self, fill: impl FnOnce(&mut Record) -> std::result::Result<(), RowError>) -> Result<Kept> {
        fill(&mut self.record).and_then(|()| warn(&mut self.record, &self.warnings)).map_err(Failure::environment)?;
        let repeat = Repeat { again: true, agreed: HashSet::new(), retry_faults: 0 };
        let mut ledger = Ledger::open(&self.store, &repeat).map_err(failed)?;
        let number = ledger.claim(&[self.record.key]).map_err(failed)?[0];
        self.record.attempt = number.unwrap_or(self.record.attempt);
        ledger.keep(&self.record).map_err(failed)?;
        ledger.seal().map_err(failed)?;
        Ok(Kept { store: self.store.root().display().to_string(), key: self.record.key.hex() })
    }
}
