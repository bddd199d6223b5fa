//! What is measured once more.

use crate::Result;
use crate::campaign::Config;
use crate::failure::Failure;
use crate::stores::{failed, open};
use datasets::{Choose, Key, Keys, Outcome, RowError, Store};
use measure::counters::{Backend, CounterRequest};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

/// Retries of an experiment that crashed or timed out, unless another number is given.
pub const DEFAULT_RETRY_FAULTS: i64 = 2;
/// Medians so far apart agree, as a share of the smaller one.
const AGREEMENT: f64 = 0.02;

/// What is measured although it is known, or left out although it is not.
#[derive(Debug)]
pub struct Repeat {
    /// Whether what the store has is measured again.
    pub again: bool,
    /// Experiments that other stores agree about.
    pub agreed: HashSet<Key>,
    /// How often what crashed or timed out is tried again.
    pub retry_faults: i64,
    /// Where given, nothing else is made.
    pub only: Option<HashSet<Key>>,
    /// Counters that a known measurement must have, or have refused.
    pub counters: Option<WantedCounters>,
}

/// Options of measuring again.
#[derive(Clone, Copy, Debug)]
pub struct RepeatOptions<'a> {
    /// Whether known experiments are measured again.
    pub again: bool,
    /// How often what crashed or timed out is tried again.
    pub retry_faults: i64,
    /// A file with the keys of the only experiments to be made.
    pub keys: Option<&'a Path>,
    /// Stores whose agreement about an experiment makes another measurement of it unnecessary.
    pub unless_agree: &'a [PathBuf],
}

/// Counters that were asked for by name.
#[derive(Debug)]
pub struct WantedCounters {
    /// Their names.
    pub names: Vec<String>,
    /// The hash of the configuration that requests them.
    pub config_hash: String,
}

impl WantedCounters {
    /// Returns the counters that a configuration names, if it names any.
    pub fn of(config: &Config) -> Option<WantedCounters> {
        let CounterRequest { backend, events, .. } = &config.counters;
        let is_asked = *backend != Backend::None && *events != CounterRequest::default().events;
        is_asked.then(|| WantedCounters { names: events.clone(), config_hash: config.hash() })
    }
}

impl Repeat {
    /// Reads the files and stores that are named.
    pub fn new(asked: &RepeatOptions<'_>) -> Result<Repeat> {
        let only = asked.keys.map(keys_of).transpose()?;
        let agreed = agreed(asked.unless_agree)?;
        Ok(Repeat { again: asked.again, agreed, retry_faults: asked.retry_faults, only, counters: None })
    }

    /// Whether an experiment is to be made at all.
    pub fn is_wanted(&self, key: Key) -> bool {
        !self.agreed.contains(&key) && self.only.as_ref().is_none_or(|only| only.contains(&key))
    }

    /// What this night has measured is not measured again by it, unless it is asked for by its key.
    pub fn leave_to_night(&mut self, store: &Store, night: Option<&str>) -> Result<()> {
        let Some(night) = night.filter(|_| self.again && self.only.is_none()) else { return Ok(()) };
        for record in store.records(Choose::All).map_err(failed)? {
            let record = record.map_err(failed)?;
            if record.run_id == night {
                self.agreed.insert(record.key);
            }
        }
        Ok(())
    }

    /// Whether a store that has these experiments need not have this one again. Passing faults end in the outcomes of a
    /// crash or a deadline; what they say is believed after some tries.
    pub fn is_known(&self, keys: &Keys, key: Key) -> bool {
        match keys.outcome(key) {
            _ if self.again => false,
            None => false,
            // Whoever wants its time is no search, or another one.
            Some(Outcome::PassedOver) => false,
            Some(Outcome::Crashed | Outcome::TimedOut) => keys.attempts(key) > self.retry_faults,
            Some(_) => true,
        }
    }
}

/// The keys in a file, one on a line.
fn keys_of(path: &Path) -> Result<HashSet<Key>> {
    const MOST_BYTES: u64 = 1 << 30;
    let wrong = |why: String| Failure::usage(format!("cannot use `--keys {}`: {why}", path.display()));
    let size = std::fs::metadata(path).map_err(|error| wrong(error.to_string()))?.len();
    if size > MOST_BYTES {
        return Err(wrong("it is larger than 1 GiB".to_owned()));
    }
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.map(|line| line.parse().map_err(|error: RowError| wrong(error.problem))).collect()
}

/// Experiments that every one of some stores has a time of, and whose times agree.
fn agreed(stores: &[PathBuf]) -> Result<HashSet<Key>> {
    let mut known: HashMap<Key, Vec<f64>> = HashMap::new();
    for path in stores {
        for record in open(path)?.records(Choose::Middle).map_err(failed)? {
            let record = record.map_err(failed)?;
            if let (Outcome::Ok, Some(median_ns)) = (record.outcome, record.median_ns) {
                known.entry(record.key).or_default().push(median_ns);
            }
        }
    }
    let agree = |medians: &[f64]| {
        let least = medians.iter().copied().fold(f64::INFINITY, f64::min);
        medians.len() == stores.len() && medians.iter().all(|median| *median <= (1.0 + AGREEMENT) * least)
    };
    Ok(known.into_iter().filter(|(_, medians)| agree(medians)).map(|(key, _)| key).collect())
}
