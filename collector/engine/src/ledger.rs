//! The store as a campaign sees it: what is known, what others are at, and where its own records go.

use crate::campaign::collect::{Turn, Turns, Visit};
use crate::failure::chain;
use crate::observer::Observer;
use crate::repeat::Repeat;
use crate::stores::note_damage;
use datasets::store::Taken;
use datasets::{Claims, Journal, Key, Keys, Origin, Outcome, Record, Result, SealOptions, Store};
use measure::host::command::own_command;
use std::collections::{BTreeSet, HashSet};
use std::path::PathBuf;

/// One process's view of a store it adds to.
pub struct Ledger<'a> {
    store: &'a Store,
    repeat: &'a Repeat,
    keys: Keys,
    /// Experiments that were measured with the requested counters, if any were requested.
    counted: Option<HashSet<Key>>,
    claims: Option<Claims>,
    /// Claim files of other processes that hold what was last asked for; the next claim looks for what they have made.
    holders: BTreeSet<PathBuf>,
    journal: Option<Journal>,
    observer: &'a dyn Observer,
}

impl<'a> Ledger<'a> {
    /// Reads what a store has, after putting away what killed processes left.
    pub fn open(store: &'a Store, repeat: &'a Repeat, observer: &'a dyn Observer) -> Result<Ledger<'a>> {
        note_damage(&store.seal(SealOptions::default())?.damage, observer);
        let keys = store.keys()?;
        note_damage(keys.damage(), observer);
        Ok(Ledger {
            store,
            repeat,
            keys,
            counted: counted(store, repeat)?,
            claims: None,
            holders: BTreeSet::new(),
            journal: None,
            observer,
        })
    }

    /// Whether an experiment need not be made.
    pub fn is_known(&self, key: Key) -> bool {
        self.repeat.is_known(&self.keys, key) && !self.lacks_counters(key)
    }

    /// Whether an experiment has a time but was never measured with the requested counters.
    pub fn lacks_counters(&self, key: Key) -> bool {
        let is_counted = self.counted.as_ref().is_none_or(|counted| counted.contains(&key));
        !is_counted && self.keys.outcome(key) == Some(Outcome::Ok)
    }

    /// How many tries of an experiment are left, where what gives times is to have so many; with `--again` one.
    pub fn left(&self, key: Key, times: i64) -> i64 {
        match self.keys.outcome(key) {
            _ if self.repeat.again => 1,
            Some(Outcome::Ok) => (times - self.keys.attempts(key)).max(0),
            Some(_) if self.is_known(key) => 0,
            _ => times,
        }
    }

    /// How many visits of an experiment are left, where what gives times is to have so many.
    pub fn visits_left(&self, key: Key, visits: u32) -> u32 {
        match self.lacks_counters(key) {
            _ if self.repeat.again => visits,
            // One visit more has them.
            true => 1,
            false => u32::try_from(self.left(key, visits.into())).unwrap_or(visits),
        }
    }

    /// Returns the claim files of other processes that hold what was last asked for.
    pub fn holders(&self) -> &BTreeSet<PathBuf> {
        &self.holders
    }

    /// Claims visits.
    pub fn claim(&mut self, wanted: &[Visit]) -> Result<Turns> {
        self.claim_where(wanted, |ledger, visit| match ledger.keys.outcome(visit.key) {
            Some(Outcome::Ok) if !ledger.repeat.again && !ledger.lacks_counters(visit.key) => {
                ledger.keys.attempts(visit.key) > i64::from(visit.number)
            }
            _ => ledger.is_known(visit.key),
        })
    }

    /// Claims visits, known ones too.
    pub fn claim_again(&mut self, wanted: &[Visit]) -> Result<Turns> {
        self.claim_where(wanted, |_, _| false)
    }

    /// Claims visits of experiments that gave fewer times than this.
    pub fn claim_until(&mut self, wanted: &[Visit], times: i64) -> Result<Turns> {
        self.claim_where(wanted, |ledger, visit| ledger.left(visit.key, times) == 0)
    }

    fn claim_where(&mut self, wanted: &[Visit], is_made: impl Fn(&Self, &Visit) -> bool) -> Result<Turns> {
        let claims = match &mut self.claims {
            Some(claims) => claims,
            None => self.claims.insert(self.store.claims()?),
        };
        let keys: Vec<Key> = wanted.iter().map(|visit| visit.key).collect();
        let Taken { held, holders, has_news } = claims.take(&keys)?;
        // After claiming: what other processes finish from now on, they had claimed before. A holder may also have ended since the
        // last claim, which does not count as news.
        if has_news || !self.holders.is_empty() {
            self.keys = self.store.keys()?;
            self.counted = counted(self.store, self.repeat)?;
        }
        self.holders = holders;
        let turn = |visit: &Visit| match held.contains(&visit.key) {
            _ if is_made(self, visit) => Turn::Made,
            true => Turn::Held,
            false => Turn::Ours(self.keys.attempts(visit.key) + 1),
        };
        Ok(wanted.iter().map(turn).collect())
    }

    /// Keeps a record.
    pub fn keep(&mut self, record: &Record) -> Result<()> {
        let journal = match &mut self.journal {
            Some(journal) => journal,
            None => self.journal.insert(self.store.journal(origin(&record.host))?),
        };
        journal.append(record)?;
        self.keys.insert(record.key, record.outcome);
        if let Some(counted) = &mut self.counted {
            counted.insert(record.key);
        }
        Ok(())
    }

    /// Seals the records into a part, and merges small parts.
    pub fn seal(self) -> Result<()> {
        let Some(journal) = self.journal else { return Ok(()) };
        journal.seal()?;
        // The records are safe; parts that stay many only cost time.
        if let Err(error) = self.store.tidy() {
            self.observer.note(format!("small parts are not merged: {}", chain(&error)));
        }
        Ok(())
    }
}

/// Returns the experiments that were measured with the requested counters, or None if none were requested.
fn counted(store: &Store, repeat: &Repeat) -> Result<Option<HashSet<Key>>> {
    let wanted = repeat.counters.as_ref();
    wanted.map(|wanted| store.counted(&wanted.names, &wanted.config_hash)).transpose()
}

/// Who writes a journal.
fn origin(host: &str) -> Origin {
    Origin {
        host: host.to_owned(),
        program: format!("opcollect {}", env!("CARGO_PKG_VERSION")),
        command: own_command(),
    }
}
