//! What campaigns and searches do alike in a store, and what of it a search hears first.

use super::Result;
use super::dataset::failed;
use super::ledger::Ledger;
use super::progress::Progress;
use crate::campaign::{Campaign, Outcomes, PlannedTask, Source, collect, collect::Outside};
use bench::Bench;
use datasets::{Choose, Record, Store};
use std::cell::RefCell;
use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Where records go, and who may end a pass.
pub struct At<'a> {
    /// The store.
    pub ledger: RefCell<Ledger<'a>>,
    /// Set by a signal.
    pub signal: &'a AtomicUsize,
    /// How often to tell how far the work is.
    pub line_seconds: u64,
}

impl At<'_> {
    /// Makes what a source proposes.
    pub fn pass(&self, source: &mut dyn Source, campaign: &Campaign<'_>, bench: &mut dyn Bench) -> Result<Outcomes> {
        let mut progress = Progress::new(source.left(), self.line_seconds);
        let mut outside = Outside {
            sink: &mut |record: &Record| self.ledger.borrow_mut().keep(record),
            listener: &mut |event| progress.hear(&event),
            should_stop: &|| self.signal.load(Ordering::Relaxed) != 0,
            claim: &mut |keys| self.ledger.borrow_mut().claim(keys),
        };
        let outcomes = collect(source, campaign, bench, &mut outside);
        progress.finish();
        outcomes.map_err(failed)
    }
}

/// What a store knows of some tasks, in the order of time and without its long columns.
pub fn records(store: &Store, tasks: &[PlannedTask]) -> Result<Vec<Record>> {
    let hashes: HashSet<String> = tasks.iter().map(|planned| planned.task.hash()).collect();
    let mut records = Vec::new();
    for record in store.records(Choose::Middle).map_err(failed)? {
        let record = record.map_err(failed)?;
        if hashes.contains(&record.task_hash) {
            records.push(Record { samples_ns: Vec::new(), features: None, task: None, places: None, ..record });
        }
    }
    records.sort_by_key(|record| (record.started_at_us, record.key));
    Ok(records)
}
