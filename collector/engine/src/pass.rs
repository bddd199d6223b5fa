//! What campaigns and searches do alike in a store, and what of it a search hears first.

use crate::Result;
use crate::campaign::record::now_us;
use crate::campaign::{Campaign, Lessons, Outcomes, PlannedTask, Source, Tuning, collect, collect::Outside};
use crate::failure::Failure;
use crate::ledger::Ledger;
use crate::observer::{Observer, StoreStatus};
use crate::stores::failed;
use bench::Bench;
use datasets::store::Status;
use datasets::{Choose, Record, Store};
use measure::host::command::own_command;
use std::cell::RefCell;
use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use targets::Target;

/// Where records go, and who may end a pass.
pub struct At<'a> {
    /// Set by a signal.
    pub signal: &'a AtomicUsize,
    /// Hears how far the work is.
    pub observer: &'a dyn Observer,
    /// The store, which is told, too.
    pub store: &'a Store,
    /// The host, by its name in records.
    pub host: &'a str,
}

/// What of a proposal is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Makes {
    /// What the store lacks.
    Unknown,
    /// What the store has, once more.
    Again,
}

impl At<'_> {
    /// Makes what a source proposes, and seals its records.
    pub fn pass(
        &self,
        makes: Makes,
        ledger: Ledger<'_>,
        source: &mut dyn Source,
        campaign: &Campaign<'_>,
        bench: &mut dyn Bench,
    ) -> Result<Outcomes> {
        let ledger = RefCell::new(ledger);
        let mut progress = self.observer.begin(source.left(), self.to_store());
        let mut outside = Outside {
            sink: &mut |record: &Record| ledger.borrow_mut().keep(record),
            listener: &mut |event| progress.hear(&event),
            should_stop: &|| self.signal.load(Ordering::Relaxed) != 0,
            claim: &mut |wanted| match makes {
                Makes::Unknown => ledger.borrow_mut().claim(wanted),
                Makes::Again => ledger.borrow_mut().claim_again(wanted),
            },
        };
        let outcomes = collect(source, campaign, bench, &mut outside);
        progress.finish();
        let ledger = ledger.into_inner();
        let holders: Vec<String> = ledger.holders().iter().map(|path| format!("`{}`", path.display())).collect();
        if !holders.is_empty() && outcomes.as_ref().is_ok_and(|outcomes| outcomes.left > 0) {
            self.observer.note(format!(
                "what is left is claimed by other processes, which may have ended: {}; run the same command again later",
                holders.join(", ")
            ));
        }
        ledger.seal().map_err(failed)?;
        outcomes.map_err(failed)
    }

    /// A store that cannot be told is no reason not to begin.
    fn to_store(&self) -> Option<StoreStatus> {
        let status = Status {
            host: self.host.to_owned(),
            pid: std::process::id(),
            command: own_command(),
            began_us: now_us(),
            ..Status::default()
        };
        Some(StoreStatus { telling: self.store.telling().ok()?, status })
    }
}

/// What a store may teach searches beside their own records.
pub fn lessons(store: &Store, tuning: &Tuning, target: &Target) -> Result<Lessons> {
    let mut lessons = Lessons::new(tuning.searches(), target).map_err(Failure::environment)?;
    for record in store.records(Choose::Middle).map_err(failed)? {
        lessons.take(&record.map_err(failed)?);
    }
    Ok(lessons)
}

/// What a store knows of some tasks, in the order of time and without its long columns.
pub fn records(store: &Store, tasks: &[PlannedTask], choose: Choose) -> Result<Vec<Record>> {
    read(store, tasks, choose, Record::lean)
}

/// The same with what the code of each says of itself.
pub fn records_with_figures(store: &Store, tasks: &[PlannedTask], choose: Choose) -> Result<Vec<Record>> {
    read(store, tasks, choose, |mut record| {
        let features = record.features.take();
        Record { features, ..record.lean() }
    })
}

fn read(
    store: &Store,
    tasks: &[PlannedTask],
    choose: Choose,
    shorten: impl Fn(Record) -> Record,
) -> Result<Vec<Record>> {
    let hashes: HashSet<String> = tasks.iter().map(|planned| planned.task.hash()).collect();
    let mut records = Vec::new();
    for record in store.records(choose).map_err(failed)? {
        let record = record.map_err(failed)?;
        if hashes.contains(&record.task_hash) {
            records.push(shorten(record));
        }
    }
    records.sort_by_key(|record| (record.started_at_us, record.key));
    Ok(records)
}
