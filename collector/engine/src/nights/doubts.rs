//! Selects the measurements that a nightly run repeats: regressions, and results with wide intervals.

use super::options::NightOptions;
use super::progress::NightProgress;
use crate::Result;
use crate::campaign::Night;
use crate::drift::compare_night;
use crate::observer::Observer;
use crate::stores::{open_existing, store_failure};
use datasets::{Choose, Key, Record};
use drift::{LineIdentity, Verdict, aspect_of};
use std::collections::{BTreeMap, BTreeSet};

/// Largest number of experiments to repeat; more would take longer than a nightly run.
const KEYS_MAX: usize = 20_000;

/// Returns the experiments to repeat: those that became slower in this run, then those with uncertain medians.
pub fn doubtful_keys(
    options: &NightOptions,
    progress: &NightProgress,
    settings: &Night,
    observer: &dyn Observer,
) -> Result<Vec<Key>> {
    let found = compare_night(&options.store, progress.label(), settings.nights, options.bounds, observer)?;
    let slower = found.drift.changes.iter().filter(|change| change.verdict == Verdict::Slower);
    let slower: BTreeSet<_> = slower.map(|change| line_place(&change.identity)).collect();
    let mut keys: BTreeSet<(u8, Key)> = BTreeSet::new();
    for record in open_existing(&options.store)?.select_records(Choose::Latest).map_err(store_failure)? {
        let record = record.map_err(store_failure)?;
        if aspect_of(&record).is_some() || !record.is_alone() {
            continue;
        }
        let is_slower = record.run_id == progress.id && slower.contains(&place_of(&record));
        if is_slower || (record.median_ns.is_some() && !record.is_known_well()) {
            keys.insert((u8::from(!is_slower), record.key));
        }
    }
    Ok(keys.into_iter().map(|(_, key)| key).take(KEYS_MAX).collect())
}

/// Returns the keys that were measured fewer than twice in the run `id`.
pub fn keys_measured_once(options: &NightOptions, id: &str, keys: &[Key]) -> Result<Vec<Key>> {
    let mut made: BTreeMap<Key, usize> = BTreeMap::new();
    for record in open_existing(&options.store)?.select_records(Choose::All).map_err(store_failure)? {
        let record = record.map_err(store_failure)?;
        if record.run_id == id {
            *made.entry(record.key).or_default() += 1;
        }
    }
    Ok(keys.iter().copied().filter(|key| made.get(key).copied().unwrap_or_default() < 2).collect())
}

type Place = (String, Option<String>, Option<i64>, Option<&'static str>);

fn line_place(identity: &LineIdentity) -> Place {
    (identity.task_hash.clone(), identity.schedule_hash.clone(), identity.threads, identity.cache_state)
}

fn place_of(record: &Record) -> Place {
    let cache = record.cache_state.map(|state| state.name());
    (record.task_hash.clone(), record.schedule_hash.clone(), record.threads, cache)
}
