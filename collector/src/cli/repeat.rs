//! What is measured once more.

use super::Result;
use super::arguments::Measuring;
use super::dataset::{failed, open};
use datasets::{Choose, Key, Keys, Outcome};
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

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
}

impl Repeat {
    /// As the arguments say.
    pub fn new(measuring: &Measuring) -> Result<Repeat> {
        let Measuring { again, retry_faults, .. } = *measuring;
        Ok(Repeat { again, agreed: agreed(&measuring.unless_agree)?, retry_faults })
    }

    /// Whether a store that has these experiments need not have this one again. Passing faults end in the outcomes of a
    /// crash or a deadline; what they say is believed after some tries.
    pub fn is_known(&self, keys: &Keys, key: Key) -> bool {
        match keys.outcome(key) {
            _ if self.again => false,
            None => false,
            Some(Outcome::Crashed | Outcome::TimedOut) => keys.attempts(key) > self.retry_faults,
            Some(_) => true,
        }
    }
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
