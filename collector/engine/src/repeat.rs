//! Decides which experiments of a store are measured again.

use crate::Result;
use crate::campaign::Config;
use crate::failure::Failure;
use crate::stores::{open_existing, store_failure};
use datasets::{Choose, Key, Keys, Outcome, RowError, Store};
use measure::counters::{Backend, CounterRequest};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

/// Default number of retries of an experiment that crashed or timed out.
pub const DEFAULT_RETRY_FAULTS: i64 = 2;
/// Relative difference up to which the medians of an experiment in different stores agree.
const AGREEMENT: f64 = 0.02;

/// Selection of measured experiments to repeat and of new experiments to skip.
#[derive(Debug)]
pub struct Repeat {
    /// Whether known experiments are measured again.
    pub again: bool,
    /// Experiments to skip, because other stores agree about their times or this nightly run has measured them.
    pub agreed: HashSet<Key>,
    /// Number of retries of an experiment that crashed or timed out.
    pub retry_faults: i64,
    /// Keys of the only experiments to measure; None measures all.
    pub only: Option<HashSet<Key>>,
    /// Counters that a known measurement must have requested, whether they could be read or not.
    pub counters: Option<WantedCounters>,
}

/// Options that determine which experiments are measured.
#[derive(Clone, Copy, Debug)]
pub struct RepeatOptions<'a> {
    /// Whether known experiments are measured again.
    pub again: bool,
    /// Number of retries of an experiment that crashed or timed out.
    pub retry_faults: i64,
    /// File with the keys of the only experiments to measure.
    pub keys: Option<&'a Path>,
    /// Stores; an experiment is skipped if all of them have a time for it and the times agree.
    pub unless_agree: &'a [PathBuf],
}

/// Counters that were requested by name.
#[derive(Debug)]
pub struct WantedCounters {
    /// Names of the counters.
    pub names: Vec<String>,
    /// Hash of the configuration that requests the counters.
    pub config_hash: String,
}

impl WantedCounters {
    /// Returns the counters that a configuration requests by name; None if it requests the default ones or none.
    pub fn from_config(config: &Config) -> Option<WantedCounters> {
        let CounterRequest { backend, events, .. } = &config.counters;
        let is_asked = *backend != Backend::None && *events != CounterRequest::default().events;
        is_asked.then(|| WantedCounters { names: events.clone(), config_hash: config.hash() })
    }
}

impl Repeat {
    /// Creates the selection, and reads the files and stores that the options name.
    pub fn new(options: &RepeatOptions<'_>) -> Result<Repeat> {
        let only = options.keys.map(read_keys).transpose()?;
        let agreed = agreed_keys(options.unless_agree)?;
        Ok(Repeat { again: options.again, agreed, retry_faults: options.retry_faults, only, counters: None })
    }

    /// Returns whether an experiment is selected.
    pub fn is_wanted(&self, key: Key) -> bool {
        !self.agreed.contains(&key) && self.only.as_ref().is_none_or(|only| only.contains(&key))
    }

    /// Excludes experiments that this nightly run has already measured, unless experiments were selected by key.
    pub fn exclude_measured(&mut self, store: &Store, night: Option<&str>) -> Result<()> {
        let Some(night) = night.filter(|_| self.again && self.only.is_none()) else { return Ok(()) };
        for record in store.select_records(Choose::All).map_err(store_failure)? {
            let record = record.map_err(store_failure)?;
            if record.run_id == night {
                self.agreed.insert(record.key);
            }
        }
        Ok(())
    }

    /// Returns whether an experiment need not be measured. Crashes and timeouts are known only after all retries.
    pub fn is_known(&self, keys: &Keys, key: Key) -> bool {
        match keys.known_outcome(key) {
            _ if self.again => false,
            None => false,
            // A candidate that one search rejected may still be measured by a sweep or another search.
            Some(Outcome::PassedOver) => false,
            Some(Outcome::Crashed | Outcome::TimedOut) => keys.attempts(key) > self.retry_faults,
            Some(_) => true,
        }
    }
}

fn read_keys(path: &Path) -> Result<HashSet<Key>> {
    const MAX_BYTES: u64 = 1 << 30;
    let wrong = |why: String| Failure::usage(format!("cannot use `--keys {}`: {why}", path.display()));
    let text = models::files::read_bounded_text(path, MAX_BYTES).map_err(|error| wrong(error.to_string()))?;
    let lines = text.trim_start_matches('\u{FEFF}').lines().map(str::trim).filter(|line| !line.is_empty());
    let keys: HashSet<Key> =
        lines.map(|line| line.parse().map_err(|error: RowError| wrong(error.problem))).collect::<Result<_>>()?;
    if keys.is_empty() { Err(wrong("the file has no keys".to_owned())) } else { Ok(keys) }
}

fn agreed_keys(stores: &[PathBuf]) -> Result<HashSet<Key>> {
    let mut known: HashMap<Key, Vec<f64>> = HashMap::new();
    for path in stores {
        for record in open_existing(path)?.select_records(Choose::Middle).map_err(store_failure)? {
            let record = record.map_err(store_failure)?;
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
