//! Runs the attempts of a source, writes their records to a store, and reads the records from which searches learn.

use crate::Result;
use crate::campaign::{
    Campaign, Lessons, Outcomes, PlannedTask, Source, Tuning, collect::CampaignCallbacks, collect_attempts,
};
use crate::failure::Failure;
use crate::ledger::Ledger;
use crate::observer::{Observer, StoreStatus};
use crate::stores::store_failure;
use bench::Bench;
use datasets::{Choose, Record, Store};
use std::cell::RefCell;
use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use targets::Target;

/// Context of a pass over attempts: store, host, observer and stop signal.
pub struct PassContext<'a> {
    /// Number of the signal that ends the pass; 0 if none was received.
    pub signal: &'a AtomicUsize,
    /// Receives notes and progress.
    pub observer: &'a dyn Observer,
    /// Store for the records and for the status file.
    pub store: &'a Store,
    /// Name of the host in records.
    pub host: &'a str,
}

/// Selects which proposed attempts are executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptSelection {
    /// Only attempts whose experiments the store lacks are executed.
    Unknown,
    /// All attempts are executed, even if the store has their experiments.
    Again,
}

impl PassContext<'_> {
    /// Executes the attempts that a source proposes, and seals their records in the store.
    pub fn run_pass(
        &self,
        selection: AttemptSelection,
        ledger: Ledger<'_>,
        source: &mut dyn Source,
        campaign: &Campaign<'_>,
        bench: &mut dyn Bench,
    ) -> Result<Outcomes> {
        let ledger = RefCell::new(ledger);
        let mut progress =
            self.observer.begin_progress(source.attempts_left(), StoreStatus::create(self.store, self.host));
        let mut callbacks = CampaignCallbacks {
            sink: &mut |record: &Record| ledger.borrow_mut().append_record(record),
            listener: &mut |event| progress.observe_event(&event),
            should_stop: &|| self.signal.load(Ordering::Relaxed) != 0,
            claim: &mut |wanted| match selection {
                AttemptSelection::Unknown => ledger.borrow_mut().claim(wanted),
                AttemptSelection::Again => ledger.borrow_mut().claim_again(wanted),
            },
        };
        let outcomes = collect_attempts(source, campaign, bench, &mut callbacks);
        progress.finish();
        let ledger = ledger.into_inner();
        let holders: Vec<String> = ledger.holders().iter().map(|path| format!("`{}`", path.display())).collect();
        if !holders.is_empty() && outcomes.as_ref().is_ok_and(|outcomes| outcomes.left > 0) {
            self.observer.note(format!(
                "the remaining work is claimed by other processes, which may have ended: {}; run the same command \
                 again later",
                holders.join(", ")
            ));
        }
        ledger.seal().map_err(store_failure)?;
        outcomes.map_err(store_failure)
    }
}

/// Returns the records of a store from which searches can learn in addition to their own trials.
pub fn read_lessons(store: &Store, tuning: &Tuning, target: &Target) -> Result<Lessons> {
    let mut lessons = Lessons::new(tuning.searches(), target).map_err(Failure::environment)?;
    for record in store.select_records(Choose::Middle).map_err(store_failure)? {
        lessons.add_record(&record.map_err(store_failure)?);
    }
    Ok(lessons)
}

/// Returns the records of the given tasks, in chronological order and without long columns.
pub fn read_records(store: &Store, tasks: &[PlannedTask], choose: Choose) -> Result<Vec<Record>> {
    read_shortened(store, tasks, choose, Record::without_long_columns)
}

/// Returns the same records as `read_records`, but with the features of their code.
pub fn read_records_with_features(store: &Store, tasks: &[PlannedTask], choose: Choose) -> Result<Vec<Record>> {
    read_shortened(store, tasks, choose, |mut record| {
        let features = record.features.take();
        Record { features, ..record.without_long_columns() }
    })
}

fn read_shortened(
    store: &Store,
    tasks: &[PlannedTask],
    choose: Choose,
    shorten: impl Fn(Record) -> Record,
) -> Result<Vec<Record>> {
    let hashes: HashSet<String> = tasks.iter().map(|planned| planned.task.hash()).collect();
    let mut records = Vec::new();
    for record in store.select_records(choose).map_err(store_failure)? {
        let record = record.map_err(store_failure)?;
        if hashes.contains(&record.task_hash) {
            records.push(shorten(record));
        }
    }
    records.sort_by_key(|record| (record.started_at_us, record.key));
    Ok(records)
}
