//! What is measured once more.

use super::Result;
use super::failure::{Failure, chain};
use datasets::{Key, Outcome, Store};
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

/// Medians so far apart agree, as a share of the smaller one.
const AGREEMENT: f64 = 0.02;

/// What is measured although it is known, or left out although it is not.
#[derive(Debug, Default)]
pub struct Repeat {
    /// Whether what the store has is measured again.
    pub again: bool,
    /// Experiments that other stores agree about.
    pub agreed: HashSet<Key>,
}

/// Experiments that every one of some stores has a time of, and whose times agree.
pub fn agreed(stores: &[PathBuf]) -> Result<HashSet<Key>> {
    let failed = |error: datasets::Error| Failure::usage(chain(&error));
    let mut known: HashMap<Key, Vec<f64>> = HashMap::new();
    for path in stores {
        for record in Store::open(path).and_then(|store| store.records()).map_err(failed)? {
            let record = record.map_err(failed)?;
            if let (Outcome::Ok, Some(median_ns)) = (record.outcome, record.median_ns) {
                known.entry(record.key).or_default().push(median_ns);
            }
        }
    }
    let agree = |medians: &[f64]| {
        let (least, most) =
            medians.iter().fold((f64::INFINITY, 0.0_f64), |(least, most), one| (least.min(*one), most.max(*one)));
        medians.len() == stores.len() && most <= (1.0 + AGREEMENT) * least
    };
    Ok(known.into_iter().filter(|(_, medians)| agree(medians)).map(|(key, _)| key).collect())
}
