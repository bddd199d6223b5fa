//! State of a store for a campaign: known experiments, claims of other processes, and the journal of new records.

use crate::campaign::collect::{ClaimResult, ClaimResults, Visit};
use crate::failure::format_chain;
use crate::observer::Observer;
use crate::repeat::Repeat;
use crate::stores::note_damage;
use datasets::store::TakenClaim;
use datasets::{Claims, Journal, Key, Keys, Origin, Outcome, Record, Result, SealOptions, Store};
use measure::host::command::own_command;
use std::collections::{BTreeSet, HashSet};
use std::path::PathBuf;

/// View of a store for a process that adds records.
pub struct Ledger<'a> {
    store: &'a Store,
    repeat: &'a Repeat,
    keys: Keys,
    /// Experiments whose measurements include the requested counters; None if none were requested.
    counted: Option<HashSet<Key>>,
    claims: Option<Claims>,
    /// Claim files of other processes that hold requested visits (repetitions); the next request checks their progress.
    holders: BTreeSet<PathBuf>,
    journal: Option<Journal>,
    observer: &'a dyn Observer,
}

impl<'a> Ledger<'a> {
    /// Reads the state of a store, after sealing the journals that killed processes left.
    pub fn open(store: &'a Store, repeat: &'a Repeat, observer: &'a dyn Observer) -> Result<Ledger<'a>> {
        note_damage(&store.seal_journals(SealOptions::default())?.damage, observer);
        let keys = store.read_keys()?;
        note_damage(keys.damage(), observer);
        Ok(Ledger {
            store,
            repeat,
            keys,
            counted: counted_keys(store, repeat)?,
            claims: None,
            holders: BTreeSet::new(),
            journal: None,
            observer,
        })
    }

    /// Returns whether an experiment need not be measured.
    pub fn is_known(&self, key: Key) -> bool {
        self.repeat.is_known(&self.keys, key) && !self.lacks_counters(key)
    }

    /// Returns whether an experiment has a time but lacks the requested counters.
    pub fn lacks_counters(&self, key: Key) -> bool {
        let is_counted = self.counted.as_ref().is_none_or(|counted| counted.contains(&key));
        !is_counted && self.keys.known_outcome(key) == Some(Outcome::Ok)
    }

    /// Returns the number of attempts left for an experiment that needs `times` measurements; 1 with `--again`, and if
    /// only the requested counters are missing.
    pub fn tries_left(&self, key: Key, times: i64) -> i64 {
        match self.keys.known_outcome(key) {
            _ if self.repeat.again => 1,
            Some(Outcome::Ok) => (times - self.visits_made(key)).max(self.lacks_counters(key).into()),
            Some(_) if self.is_known(key) => 0,
            _ => times,
        }
    }

    /// Returns the number of visits (repetitions) of an experiment with a time. Failed ones count once no retry is left.
    fn visits_made(&self, key: Key) -> i64 {
        let (attempts, failed) = (self.keys.recorded_attempts(key), self.keys.failed_attempts(key));
        if failed > self.repeat.retry_faults { attempts } else { attempts - failed }
    }

    /// Returns the number of visits (repetitions in fresh processes) left for an experiment that needs `visits`.
    pub fn visits_left(&self, key: Key, visits: u32) -> u32 {
        match self.lacks_counters(key) {
            _ if self.repeat.again => visits,
            // One more visit is enough to read the counters.
            true => 1,
            false => u32::try_from(self.tries_left(key, visits.into())).unwrap_or(visits),
        }
    }

    /// Returns the claim files of other processes that hold visits (repetitions) of the last claim request.
    pub fn holders(&self) -> &BTreeSet<PathBuf> {
        &self.holders
    }

    /// Claims visits (repetitions) whose experiments are not known yet.
    pub fn claim(&mut self, wanted: &[Visit]) -> Result<ClaimResults> {
        self.claim_where(wanted, |ledger, visit| match ledger.keys.known_outcome(visit.key) {
            Some(Outcome::Ok) if !ledger.repeat.again && !ledger.lacks_counters(visit.key) => {
                ledger.visits_made(visit.key) > i64::from(visit.number)
            }
            _ => ledger.is_known(visit.key),
        })
    }

    /// Claims visits (repetitions) without checking whether their experiments already have an outcome.
    pub fn claim_again(&mut self, wanted: &[Visit]) -> Result<ClaimResults> {
        self.claim_where(wanted, |_, _| false)
    }

    /// Claims visits (repetitions) of experiments that were measured fewer than `times` times.
    pub fn claim_until(&mut self, wanted: &[Visit], times: i64) -> Result<ClaimResults> {
        self.claim_where(wanted, |ledger, visit| ledger.tries_left(visit.key, times) == 0)
    }

    fn claim_where(&mut self, wanted: &[Visit], is_made: impl Fn(&Self, &Visit) -> bool) -> Result<ClaimResults> {
        let claims = match &mut self.claims {
            Some(claims) => claims,
            None => self.claims.insert(self.store.create_claims()?),
        };
        let keys: Vec<Key> = wanted.iter().map(|visit| visit.key).collect();
        let TakenClaim { held, holders, has_news } = claims.claim_free(&keys)?;
        // The keys are read after the claim, so visits that other processes finish later were claimed
        // earlier. A holder may also have ended since the last claim, which is not reported as
        // news.
        if has_news || !self.holders.is_empty() {
            self.keys = self.store.read_keys()?;
            self.counted = counted_keys(self.store, self.repeat)?;
        }
        self.holders = holders;
        let result = |visit: &Visit| match held.contains(&visit.key) {
            _ if is_made(self, visit) => ClaimResult::Made,
            true => ClaimResult::Held,
            false => ClaimResult::Ours(self.keys.attempts(visit.key) + 1),
        };
        Ok(wanted.iter().map(result).collect())
    }

    /// Appends a record to the journal.
    pub fn append_record(&mut self, record: &Record) -> Result<()> {
        let journal = match &mut self.journal {
            Some(journal) => journal,
            None => self.journal.insert(self.store.start_journal(journal_origin(&record.host))?),
        };
        journal.append(record)?;
        self.keys.insert(record.key, record.outcome);
        if let Some(counted) = &mut self.counted {
            counted.insert(record.key);
        }
        Ok(())
    }

    /// Seals the journal into a part of the store, and merges small parts of the store.
    pub fn seal(self) -> Result<()> {
        let Some(journal) = self.journal else { return Ok(()) };
        journal.seal()?;
        // The records are safe. Unmerged parts only cost time.
        if let Err(error) = self.store.merge_small_parts() {
            self.observer.note(format!("cannot merge small parts of the store: {}", format_chain(&error)));
        }
        Ok(())
    }
}

fn counted_keys(store: &Store, repeat: &Repeat) -> Result<Option<HashSet<Key>>> {
    let wanted = repeat.counters.as_ref();
    wanted.map(|wanted| store.counted_experiments(&wanted.names, &wanted.config_hash)).transpose()
}

fn journal_origin(host: &str) -> Origin {
    Origin {
        host: host.to_owned(),
        program: format!("opcollect {}", env!("CARGO_PKG_VERSION")),
        command: own_command(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observer::SilentObserver;

    #[test]
    fn a_lost_visit_is_made_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::create(folder.path()).expect("a store");
        let repeat =
            |retry_faults| Repeat { again: false, agreed: HashSet::new(), retry_faults, only: None, counters: None };
        let left = |outcomes: &[Outcome], retry_faults| {
            let (key, repeat) = (Key([1; 16]), repeat(retry_faults));
            let mut ledger = Ledger::open(&store, &repeat, &SilentObserver).expect("a ledger");
            outcomes.iter().for_each(|outcome| ledger.keys.insert(key, *outcome));
            ledger.visits_left(key, 3)
        };
        use Outcome::{Crashed, Ok, TimedOut};
        assert_eq!(left(&[Ok], 2), 2);
        assert_eq!((left(&[Ok, Crashed], 2), left(&[Ok, Crashed], 0)), (2, 1));
        assert_eq!(left(&[Ok, TimedOut, Ok, Ok], 2), 0);
        assert_eq!(left(&[Ok, TimedOut, TimedOut, TimedOut], 2), 0, "retries end");
        assert_eq!((left(&[Crashed; 2], 2), left(&[Crashed; 3], 2)), (3, 0));
    }
}
