//! Slowdowns of concurrent operators on one host class, from a store, and the prediction error for held-out operators.

use super::coruns::{CoRuns, KNOWN, Scores};
use super::demand::{bytes_per_ns, cache_bytes};
use crate::error::{Error, Result};
use datasets::store::Damage;
use datasets::{Choose, Peaks, Store};
use planners::interference::{Learned, Machine};
use std::path::{Path, PathBuf};

pub struct RecordedSlowdowns {
    store: PathBuf,
    pub host_class: String,
    pub machine: Machine,
    pub coruns: CoRuns,
    pub left_out: usize,
    /// Damaged contents of the store, which were skipped.
    pub damage: Vec<Damage>,
}

impl RecordedSlowdowns {
    pub fn read_slowdowns(path: &Path, class: Option<&str>, all_versions: bool) -> Result<RecordedSlowdowns> {
        let store = Store::open(path)?;
        let records = store.select_records(Choose::Middle)?;
        let damage = records.damage().to_vec();
        let (coruns, records, left_out) = CoRuns::select_coruns((path, records), class, all_versions)?;
        let host_class = records.first().map(|record| record.host_class.clone()).unwrap_or_default();
        let peaks =
            Peaks::from_measurements(store.peaks()?.iter().filter(|measured| measured.host_class == host_class));
        let cores = records.iter().filter_map(|record| usize::try_from(record.logical_cpus?).ok()).max().unwrap_or(1);
        let (bytes_per_ns, cache_bytes) = (bytes_per_ns(&peaks, cores), cache_bytes(&records));
        let machine = Machine { cores, bytes_per_ns, cache_bytes, learned: Learned::default() };
        Ok(RecordedSlowdowns { store: path.to_owned(), host_class, machine, coruns, left_out, damage })
    }

    pub fn score_rules(&self, seed: u64) -> Result<Scores> {
        if self.coruns.beside.is_empty() {
            let problem = match self.coruns.left_out {
                0 => "has only co-runs with synthetic partners; measure pairs of operators with `sizes = [2]` in `[corun]`".to_owned(),
                count => format!(
                    "has no slowdown known to {:.0} %, of {count} measured with other operators; give more `rounds` in `[corun]`, on an idle machine",
                    100.0 * KNOWN
                ),
            };
            return Err(Error::Query(format!("`{}` {problem}", self.store.display())));
        }
        self.coruns.score_rules(&self.machine, seed)
    }
}
