//! What a store says operators lose beside each other on one class of hosts, and how far off that is for held-out operators.

use super::coruns::{CoRuns, Scores};
use super::demand::{bytes_per_ns, cache_bytes};
use crate::error::{Error, Result};
use datasets::{Peaks, Store};
use planners::interference::{Learned, Machine};
use std::path::{Path, PathBuf};

/// Slowdowns of one class of hosts.
pub struct RecordedSlowdowns {
    store: PathBuf,
    /// The class.
    pub host_class: String,
    /// What operators share on it.
    pub machine: Machine,
    /// The slowdowns.
    pub coruns: CoRuns,
    /// Number of records that were left out because of their versions.
    pub left_out: usize,
}

impl RecordedSlowdowns {
    /// Reads the records of one class of hosts: the one named, or the only one.
    pub fn read(path: &Path, class: Option<&str>, all_versions: bool) -> Result<RecordedSlowdowns> {
        let (coruns, records, left_out) = CoRuns::read(path, class, all_versions)?;
        let host_class = records.first().map(|record| record.host_class.clone()).unwrap_or_default();
        let store = Store::open(path)?;
        let peaks = Peaks::of(store.peaks()?.iter().filter(|measured| measured.host_class == host_class));
        let cores = records.iter().filter_map(|record| usize::try_from(record.logical_cpus?).ok()).max().unwrap_or(1);
        let (bytes_per_ns, cache_bytes) = (bytes_per_ns(&peaks, cores), cache_bytes(&records));
        let machine = Machine { cores, bytes_per_ns, cache_bytes, learned: Learned::default() };
        Ok(RecordedSlowdowns { store: path.to_owned(), host_class, machine, coruns, left_out })
    }

    /// Scores rules on operators that were held out.
    pub fn scores(&self, seed: u64) -> Result<Scores> {
        if self.coruns.beside.is_empty() {
            let problem = "has only operators with synthetic partners; measure pairs with `sizes = [2]` in `[corun]`";
            return Err(Error::Query(format!("`{}` {problem}", self.store.display())));
        }
        self.coruns.scores(&self.machine, seed)
    }
}
