//! Writes the records of a whole model and of its operators to a store.

use crate::Result;
use crate::campaign::collect::Visit;
use crate::failure::Failure;
use crate::input_files::InputFiles;
use crate::ledger::Ledger;
use crate::network::record::warn;
use crate::observer::Observer;
use crate::prepared::PreparedModel;
use crate::repeat::Repeat;
use crate::stores::{failed, open_store};
use datasets::{Key, Record, RowError, ScheduleSource, Store};
use job::NetworkJob;
use job::space::Schedule;
use measure::Method;
use serde::Serialize;
use std::collections::HashSet;
use std::path::Path;
use std::rc::Rc;

/// Records of a run that is about to begin, with their store.
pub struct Keeping {
    store: Store,
    observer: Rc<dyn Observer>,
    records: Vec<Record>,
    warnings: Vec<String>,
}

/// Location of a record.
#[derive(Clone, Debug, Serialize)]
pub struct RecordLocation {
    /// The folder of the store.
    pub store: String,
    /// Key of the record.
    pub key: String,
}

impl Keeping {
    /// Opens or creates the store, and fills the columns that are known before the run.
    pub fn begin(
        path: &Path,
        whole: &mut PreparedModel,
        schedules: (&[Schedule], ScheduleSource),
        method: &Method,
        given: &InputFiles,
    ) -> Result<Keeping> {
        Keeping::of(path, whole, given, |whole, base| Ok(vec![whole.record(schedules, method, base)?]))
    }

    /// Like `begin`, for the operators of the model in the network.
    pub fn begin_operators(
        path: &Path,
        whole: &mut PreparedModel,
        schedules: (&[Schedule], ScheduleSource),
        job: &NetworkJob,
        given: &InputFiles,
    ) -> Result<Keeping> {
        let plan = job.profile.as_ref().expect("operators are looked at by a plan");
        Keeping::of(path, whole, given, |whole, base| whole.operator_records(schedules, &job.method, plan, base))
    }

    fn of(
        path: &Path,
        whole: &mut PreparedModel,
        given: &InputFiles,
        records: impl FnOnce(&PreparedModel, &Record) -> Result<Vec<Record>>,
    ) -> Result<Keeping> {
        let mut base = whole.base()?;
        if let Some(run_id) = &whole.runs.run_id {
            base.run_id.clone_from(run_id);
        }
        let records = records(whole, &base)?;
        let store = open_store(Some(path))?;
        store.keep_config(&whole.runs.config.kept_text()).map_err(failed)?;
        let warnings = match given.is_nothing() {
            true => Vec::new(),
            false => vec!["inputs came from files, not from the seed".to_owned()],
        };
        Ok(Keeping { store, observer: Rc::clone(&whole.runs.observer), records, warnings })
    }

    /// Stores the record after `fill` has added the result of the run. It counts as one more
    /// attempt of its experiment.
    pub fn keep(self, fill: impl FnOnce(&mut Record) -> std::result::Result<(), RowError>) -> Result<RecordLocation> {
        let mut fill = Some(fill);
        let keys = self.keep_all(|_, record| match fill.take() {
            Some(fill) => fill(record).map_err(Into::into),
            None => Ok(()),
        })?;
        Ok(RecordLocation { store: keys.0, key: keys.1.first().cloned().unwrap_or_default() })
    }

    /// Stores all records after `fill` has added the result of each. Returns the path of the store
    /// and the keys.
    pub fn keep_all(
        self,
        fill: impl FnMut(usize, &mut Record) -> std::result::Result<(), Box<dyn std::error::Error>>,
    ) -> Result<(String, Vec<String>)> {
        let all = 0..self.records.len();
        self.keep_some(all, fill)
    }

    /// Like `keep_all`, for the records at some indices, in rising order.
    pub fn keep_some(
        mut self,
        places: impl Iterator<Item = usize>,
        mut fill: impl FnMut(usize, &mut Record) -> std::result::Result<(), Box<dyn std::error::Error>>,
    ) -> Result<(String, Vec<String>)> {
        let places: Vec<usize> = places.collect();
        self.records = places.iter().map(|place| std::mem::take(&mut self.records[*place])).collect();
        for (place, record) in places.into_iter().zip(&mut self.records) {
            fill(place, record).map_err(Failure::environment)?;
            warn(record, &self.warnings).map_err(Failure::environment)?;
        }
        let repeat = Repeat { again: true, agreed: HashSet::new(), retry_faults: 0, only: None, counters: None };
        let mut ledger = Ledger::open(&self.store, &repeat, self.observer.as_ref()).map_err(failed)?;
        let keys: Vec<Key> = self.records.iter().map(|record| record.key).collect();
        let visits: Vec<Visit> = keys.iter().map(|key| Visit { key: *key, number: 0 }).collect();
        let turns = ledger.claim(&visits).map_err(failed)?;
        for (record, turn) in self.records.iter_mut().zip(turns) {
            record.attempt = turn.number().unwrap_or(record.attempt);
            ledger.keep(record).map_err(failed)?;
        }
        ledger.seal().map_err(failed)?;
        Ok((self.store.root().display().to_string(), keys.iter().map(Key::hex).collect()))
    }
}
