//! Status files, in which processes that use a store report their progress.
//!
//! ```text
//! store/status/<start>-<pid>-<boot>.json    one per process, rewritten about every second, removed at its end
//! ```
//!
//! The file of a killed process stays until journals are sealed, as the next campaign does when it begins.
//! The file's lock shows whether its process lives. For a process on another machine, the age of the file decides.

use super::Store;
use super::identity::{Identity, create_own};
use super::lease::Lease;
use crate::error::{IoContext, Result};
use crate::files::{list_matching, make_folder, remove_if_exists};
use crate::holder::{self, Holder};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

const SILENT_SECONDS: u64 = 120;
/// File sizes are multiples of this number of bytes, so that a shorter text fully overwrites a longer one.
const BLOCK: usize = 4096;
const MOST_BYTES: u64 = 1 << 20;

/// The progress of a process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// Host name.
    pub host: String,
    /// Process ID.
    pub pid: u32,
    /// Command line.
    pub command: String,
    /// Start of the current phase, in microseconds since 1970.
    pub began_us: i64,
    /// Number of finished attempts, including attempts without a time.
    pub done: u64,
    /// Number of attempts that are planned so far.
    pub total: u64,
    /// Number of attempts without a time.
    pub losses: u64,
    /// Number of built artifacts.
    pub built: u64,
    /// Attempts per second.
    pub rate: Option<f64>,
    /// Estimated seconds left.
    pub seconds_left: Option<f64>,
    /// Description of the current activity, if any.
    pub standing: Option<String>,
}

/// A status with the state of its process.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProcessView {
    /// Last reported status.
    #[serde(flatten)]
    pub status: Status,
    /// Whether the process is running: certain for processes of this boot, otherwise inferred from the file's age.
    pub is_running: bool,
}

/// The status file of this process, removed on drop.
#[derive(Debug)]
pub struct StatusFile {
    path: PathBuf,
    file: File,
}

#[derive(Serialize, Deserialize)]
struct WrittenStatus {
    boot: String,
    #[serde(flatten)]
    status: Status,
}

impl Store {
    /// Creates the status file of this process.
    pub fn create_status_file(&self) -> Result<StatusFile> {
        let folder = self.root().join("status");
        make_folder(&folder)?;
        let (path, file) = create_own(&folder, "json", OpenOptions::new().write(true))?;
        // Without file locks, the age of the file decides.
        let _ = file.lock();
        Ok(StatusFile { path, file })
    }

    /// Returns the status of all running and all killed processes, the longest-running first.
    pub fn read_statuses(&self) -> Result<Vec<ProcessView>> {
        Ok(self.list_statuses()?.into_iter().map(|(_, seen)| seen).collect())
    }

    /// Removes the status files of processes that have ended.
    pub(super) fn remove_ended_statuses(&self) -> Result<()> {
        for (path, seen) in self.list_statuses()? {
            if !seen.is_running {
                remove_if_exists(&path)?;
            }
        }
        Ok(())
    }

    fn list_statuses(&self) -> Result<Vec<(PathBuf, ProcessView)>> {
        let folder = self.root().join("status");
        let here = Identity::current().boot;
        let mut seen = Vec::new();
        for path in list_matching(&folder, |name| name.ends_with(".json"))? {
            let Ok(file) = holder::open_lockable(&path) else { continue };
            let mut text = String::new();
            if (&file).take(MOST_BYTES).read_to_string(&mut text).is_err() {
                continue;
            }
            let Ok(written) = serde_json::from_str::<WrittenStatus>(text.trim_end_matches(['\0', ' ', '\n'])) else {
                continue;
            };
            let is_running = match Holder::probe_lock(&file) {
                Holder::Alive => true,
                Holder::Gone if written.boot == here => false,
                Holder::Gone | Holder::Unknown => {
                    Lease::from_journal(&file, &folder, Some(SILENT_SECONDS)) == Lease::Held
                }
            };
            seen.push((path, ProcessView { status: written.status, is_running }));
        }
        seen.sort_by_key(|(_, seen)| seen.status.began_us);
        Ok(seen)
    }
}

impl StatusFile {
    /// Writes the current status.
    pub fn write_status(&self, status: &Status) -> Result<()> {
        let written = WrittenStatus { boot: Identity::current().boot, status: status.clone() };
        let mut text = serde_json::to_vec(&written).expect("a status holds only JSON values");
        // Spaces overwrite the rest of a longer text.
        let before = self.file.metadata().map_or(0, |data| usize::try_from(data.len()).unwrap_or(0));
        text.resize(text.len().max(before).next_multiple_of(BLOCK), b' ');
        self.file.write_all_at(&text, 0).context("writing", &self.path)
    }
}

impl Drop for StatusFile {
    fn drop(&mut self) {
        // Removes the file, which shows that the process has ended.
        let _ = remove_if_exists(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::super::SealOptions;
    use super::*;

    #[test]
    fn what_is_said_is_seen_until_it_ends() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::create(folder.path()).unwrap();
        assert_eq!(store.read_statuses().unwrap(), []);
        let telling = store.create_status_file().unwrap();
        let long = Status { done: 3, total: 10, standing: Some("x".repeat(5000)), ..Status::default() };
        telling.write_status(&long).unwrap();
        telling.write_status(&Status { standing: None, ..long.clone() }).unwrap();
        let seen = store.read_statuses().unwrap();
        assert_eq!((seen.len(), seen[0].is_running, seen[0].status.done), (1, true, 3));
        drop(telling);
        assert_eq!(store.read_statuses().unwrap(), []);
        // A killed process leaves its file; a foreign file is skipped.
        std::fs::write(folder.path().join("status/1-2-x.json"), "{").unwrap();
        let boot = Identity::current().boot;
        std::fs::write(folder.path().join("status/3-4-x.json"), format!("{{\"boot\":\"{boot}\",\"pid\":4}}")).unwrap();
        let seen = store.read_statuses().unwrap();
        assert_eq!((seen.len(), seen[0].is_running, seen[0].status.pid), (1, false, 4));
        assert!(store.verify().unwrap().problems.is_empty());
        // Sealing removes it, but not that of a running process.
        let telling = store.create_status_file().unwrap();
        telling.write_status(&long).unwrap();
        store.seal_journals(SealOptions::default()).unwrap();
        let seen = store.read_statuses().unwrap();
        assert_eq!((seen.len(), seen[0].is_running), (1, true));
    }
}
