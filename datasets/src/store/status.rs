//! What processes at work on a store say of themselves, for whoever asks from another terminal.
//!
//! ```text
//! store/status/<start>-<pid>-<boot>.json    one per process, written anew every second or so, gone when it ends
//! ```
//!
//! The lock on the file tells whether its process lives, as with claims; of a process elsewhere, the age of the file.

use super::Store;
use super::identity::{Identity, create_own};
use super::lease::Lease;
use crate::error::{IoContext, Result};
use crate::files::{list, make_folder, remove};
use crate::holder::{self, Holder};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// A process elsewhere that has not written for so long has ended.
const SILENT_SECONDS: u64 = 120;
/// A file is as long as a multiple of this, so that a shorter text leaves nothing of a longer one.
const BLOCK: usize = 4096;
/// Longest file that is read.
const MOST_BYTES: u64 = 1 << 20;

/// How far a process is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    /// The host.
    pub host: String,
    /// The number of the process there.
    pub pid: u32,
    /// What was typed.
    pub command: String,
    /// When this stretch of work began, in microseconds since 1970.
    pub began_us: i64,
    /// Attempts that ended, those without a time among them.
    pub done: u64,
    /// Attempts that there are, as far as it is known.
    pub total: u64,
    /// Attempts without a time.
    pub losses: u64,
    /// Artifacts that were built.
    pub built: u64,
    /// Attempts a second.
    pub rate: Option<f64>,
    /// Seconds that are left, as far as the rate holds.
    pub seconds_left: Option<f64>,
    /// What is being done, where there is more to say.
    pub standing: Option<String>,
}

/// What is known of the process that wrote a status.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Seen {
    /// What it said last.
    #[serde(flatten)]
    pub status: Status,
    /// Whether it is running: known on this boot of this machine, elsewhere taken from when it wrote last.
    pub is_running: bool,
}

/// The place of this process's status; it goes with the process.
#[derive(Debug)]
pub struct Telling {
    path: PathBuf,
    file: File,
}

#[derive(Serialize, Deserialize)]
struct Written {
    boot: String,
    #[serde(flatten)]
    status: Status,
}

impl Store {
    /// Begins to say how far this process is.
    pub fn telling(&self) -> Result<Telling> {
        let folder = self.root().join("status");
        make_folder(&folder)?;
        let (path, file) = create_own(&folder, "json", OpenOptions::new().write(true))?;
        // A file system without locks still tells by age.
        let _ = file.lock();
        Ok(Telling { path, file })
    }

    /// All processes that said something and have not ended, and those that ended without a word; the longest at work first.
    pub fn statuses(&self) -> Result<Vec<Seen>> {
        let folder = self.root().join("status");
        let here = Identity::current().boot;
        let mut seen = Vec::new();
        for path in list(&folder, |name| name.ends_with(".json"))? {
            let Ok(file) = holder::open(&path) else { continue };
            let mut text = String::new();
            if (&file).take(MOST_BYTES).read_to_string(&mut text).is_err() {
                continue;
            }
            let Ok(written) = serde_json::from_str::<Written>(text.trim_end_matches(['\0', ' ', '\n'])) else {
                continue;
            };
            let is_running = match Holder::of(&file) {
                Holder::Alive => true,
                Holder::Gone if written.boot == here => false,
                Holder::Gone | Holder::Unknown => Lease::of(&file, &folder, Some(SILENT_SECONDS)) == Lease::Held,
            };
            seen.push(Seen { status: written.status, is_running });
        }
        seen.sort_by_key(|seen| seen.status.began_us);
        Ok(seen)
    }
}

impl Telling {
    /// Says how far it is.
    pub fn say(&self, status: &Status) -> Result<()> {
        let written = Written { boot: Identity::current().boot, status: status.clone() };
        let mut text = serde_json::to_vec(&written).expect("a status holds only JSON values");
        // Nothing of a longer one may stay behind it.
        let before = self.file.metadata().map_or(0, |data| usize::try_from(data.len()).unwrap_or(0));
        text.resize(text.len().max(before).next_multiple_of(BLOCK), b' ');
        self.file.write_all_at(&text, 0).context("writing", &self.path)
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        // Who looks next sees that the process has ended.
        let _ = remove(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_seen_until_it_ends() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::create(folder.path()).unwrap();
        assert_eq!(store.statuses().unwrap(), []);
        let telling = store.telling().unwrap();
        let long = Status { done: 3, total: 10, standing: Some("x".repeat(5000)), ..Status::default() };
        telling.say(&long).unwrap();
        telling.say(&Status { standing: None, ..long.clone() }).unwrap();
        let seen = store.statuses().unwrap();
        assert_eq!((seen.len(), seen[0].is_running, seen[0].status.done), (1, true, 3));
        drop(telling);
        assert_eq!(store.statuses().unwrap(), []);
        // One that was killed leaves its file, and one of a stranger is passed over.
        std::fs::write(folder.path().join("status/1-2-x.json"), "{").unwrap();
        let boot = Identity::current().boot;
        std::fs::write(folder.path().join("status/3-4-x.json"), format!("{{\"boot\":\"{boot}\",\"pid\":4}}")).unwrap();
        let seen = store.statuses().unwrap();
        assert_eq!((seen.len(), seen[0].is_running, seen[0].status.pid), (1, false, 4));
        assert!(store.verify().unwrap().problems.is_empty());
    }
}
