//! Writes the records of a whole model and of its operators to a store.

use crate::Result;
use crate::campaign::collect::Visit;
use crate::failure::Failure;
use crate::input_files::InputFiles;
use crate::ledger::Ledger;
use crate::network::record::add_warnings;
use crate::observer::Observer;
use crate::prepared::PreparedModel;
use crate::repeat::Repeat;
use crate::stores::{open_store, store_failure};
use datasets::{Key, Record, RowError, ScheduleSource, Store};
use job::NetworkJob;
use job::space::Schedule;
use measure::Method;
use serde::Serialize;
use std::collections::HashSet;
use std::path::Path;
use std::rc::Rc;

/// Records of a planned run, with the store to which they will be written.
pub struct RecordKeeper {
    store: Store,
    observer: Rc<dyn Observer>,
    records: Vec<Record>,
    warnings: Vec<String>,
}

/// Store and key of a record.
#[derive(Clone, Debug, Serialize)]
pub struct RecordLocation {
    /// The folder of the store.
    pub store: String,
    /// Key of the record.
    pub key: String,
}

impl RecordKeeper {
    /// Opens or creates the store, and fills the columns of the model's record that are known before the run.
    pub fn begin(
        path: &Path,
        prepared: &mut PreparedModel,
        schedules: (&[Schedule], ScheduleSource),
        method: &Method,
        given: &InputFiles,
    ) -> Result<RecordKeeper> {
        RecordKeeper::with_records(path, prepared, given, |prepared, base| {
            Ok(vec![prepared.run_record(schedules, method, base)?])
        })
    }

    /// Opens or creates the store, and fills the columns of one record per task that are known before the run.
    pub fn begin_operators(
        path: &Path,
        prepared: &mut PreparedModel,
        schedules: (&[Schedule], ScheduleSource),
        job: &NetworkJob,
        given: &InputFiles,
    ) -> Result<RecordKeeper> {
        let plan = job.profile.as_ref().expect("a job that records operators has a profiling plan");
        RecordKeeper::with_records(path, prepared, given, |prepared, base| {
            prepared.operator_records(schedules, &job.method, plan, base)
        })
    }

    fn with_records(
        path: &Path,
        prepared: &mut PreparedModel,
        given: &InputFiles,
        records: impl FnOnce(&PreparedModel, &Record) -> Result<Vec<Record>>,
    ) -> Result<RecordKeeper> {
        let mut base = prepared.base_record()?;
        if let Some(run_id) = &prepared.runs.run_id {
            base.run_id.clone_from(run_id);
        }
        let records = records(prepared, &base)?;
        let store = open_store(Some(path))?;
        store.keep_config(&prepared.runs.config.json_without_budget()).map_err(store_failure)?;
        let warnings = match given.is_empty() {
            true => Vec::new(),
            false => vec!["inputs came from files, not from the seed".to_owned()],
        };
        Ok(RecordKeeper { store, observer: Rc::clone(&prepared.runs.observer), records, warnings })
    }

    /// Completes the record with `fill`, and stores it as one more attempt of its experiment.
    pub fn store_record(
        self,
        fill: impl FnOnce(&mut Record) -> std::result::Result<(), RowError>,
    ) -> Result<RecordLocation> {
        let mut fill = Some(fill);
        let keys = self.store_all(|_, record| match fill.take() {
            Some(fill) => fill(record).map_err(Into::into),
            None => Ok(()),
        })?;
        Ok(RecordLocation { store: keys.0, key: keys.1.first().cloned().unwrap_or_default() })
    }

    /// Completes all records with `fill`, and stores them. Returns the store's path and the keys.
    pub fn store_all(
        self,
        fill: impl FnMut(usize, &mut Record) -> std::result::Result<(), Box<dyn std::error::Error>>,
    ) -> Result<(String, Vec<String>)> {
        let all = 0..self.records.len();
        self.store_some(all, fill)
    }

    /// Completes and stores only the records at the given indices, in ascending order.
    pub fn store_some(
        mut self,
        places: impl Iterator<Item = usize>,
        mut fill: impl FnMut(usize, &mut Record) -> std::result::Result<(), Box<dyn std::error::Error>>,
    ) -> Result<(String, Vec<String>)> {
        let places: Vec<usize> = places.collect();
        self.records = places.iter().map(|place| std::mem::take(&mut self.records[*place])).collect();
        for (place, record) in places.into_iter().zip(&mut self.records) {
            fill(place, record).map_err(Failure::environment)?;
            add_warnings(record, &self.warnings).map_err(Failure::environment)?;
        }
        let repeat = Repeat { again: true, agreed: HashSet::new(), retry_faults: 0, only: None, counters: None };
        let mut ledger = Ledger::open(&self.store, &repeat, self.observer.as_ref()).map_err(store_failure)?;
        let keys: Vec<Key> = self.records.iter().map(|record| record.key).collect();
        let visits: Vec<Visit> = keys.iter().map(|key| Visit { key: *key, number: 0 }).collect();
        let claims = ledger.claim(&visits).map_err(store_failure)?;
        for (record, claim) in self.records.iter_mut().zip(claims) {
            record.attempt = claim.try_number().unwrap_or(record.attempt);
            ledger.append_record(record).map_err(store_failure)?;
        }
        ledger.seal().map_err(store_failure)?;
        Ok((self.store.root().display().to_string(), keys.iter().map(Key::to_hex).collect()))
    }
}
