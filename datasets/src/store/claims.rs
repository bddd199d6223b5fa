//! Claims of experiments, so that processes on one store share their work.
//!
//! ```text
//! store/claims/turn                     locked while a process claims; contains the number of claims so far
//! store/claims/<start>-<pid>-<boot>.txt one per process, its only writer: a line for each claimed experiment
//! ```
//!
//! A claim is valid while its process lives. On the same machine since the same boot, the file lock shows whether the
//! process lives, or the process table if locks do not work. For a process on another machine, the file's modification
//! time must be recent. If a claim is lost, an experiment is repeated; no record is lost.

use super::Store;
use super::identity::{Identity, Maker, create_own};
use super::lease::Renewal;
use crate::error::{Error, IoContext, Result};
use crate::files::{list_matching, make_folder, remove_if_exists};
use crate::holder::{self, Holder};
use crate::layout::MARKER;
use crate::record::key::Key;
use nix::fcntl::OFlag;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Age at which claim files of other machines expire. Longer than the minute between two renewals, because some file
/// systems show a new modification time late.
const LEASE: Duration = Duration::from_secs(5 * 60);

const MOST_BYTES: u64 = 1 << 30;

/// Claims of this process, released on drop.
#[derive(Debug)]
pub struct Claims {
    folder: PathBuf,
    path: PathBuf,
    file: File,
    boot: String,
    /// Number of claims in the store after the last claim of this process.
    turn: Option<u64>,
    _renewal: Renewal,
}

/// Claims of other processes, found while claiming.
#[derive(Debug, Default)]
pub struct TakenClaim {
    /// Experiments claimed by other processes.
    pub held: HashSet<Key>,
    /// Claim files of the processes that hold these experiments.
    pub holders: BTreeSet<PathBuf>,
    /// Whether other processes have claimed since this process's last claim, so that the store may have new records.
    pub has_news: bool,
}

impl Store {
    /// Creates an empty claim file for this process.
    pub fn create_claims(&self) -> Result<Claims> {
        let folder = self.root().join("claims");
        make_folder(&folder)?;
        let boot = Identity::current().boot.replace('-', "");
        loop {
            let (path, file) = create_own(&folder, "txt", OpenOptions::new().append(true).read(true))?;
            // Without file locks, other processes check the process table.
            let _ = file.lock();
            // Another process may have removed the file as stale before it was locked.
            if path.exists() {
                let _renewal = Renewal::begin(&file);
                return Ok(Claims { folder, path, file, boot, turn: None, _renewal });
            }
        }
    }
}

impl Claims {
    /// Claims the wanted experiments that no other process has claimed, and returns the claims of other processes.
    pub fn claim_free(&mut self, wanted: &[Key]) -> Result<TakenClaim> {
        let turn_path = self.folder.join("turn");
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).read(true).write(true).custom_flags(OFlag::O_NOFOLLOW.bits());
        let turn = options.open(&turn_path);
        let mut turn = turn.context("opening", &turn_path).map_err(|error| match self.folder.parent() {
            Some(root) if !root.join(MARKER).exists() => Error::Gone { folder: root.to_owned() },
            _ => error,
        })?;
        let _ = turn.lock();
        let earlier = read_turn(&mut turn).context("reading", &turn_path)?;
        self.append_bytes(b"\n")?;
        let others = self.claims_of_others()?;
        let held: HashSet<Key> = wanted.iter().copied().filter(|key| others.contains_key(key)).collect();
        let holders = held.iter().map(|key| others[key].clone()).collect();
        let ours = wanted.iter().filter(|key| !held.contains(*key));
        self.append_bytes(ours.map(|key| format!("{key}\n")).collect::<String>().as_bytes())?;
        let now = earlier.wrapping_add(1);
        write_turn(&mut turn, now).context("writing", &turn_path)?;
        let has_news = self.turn != Some(earlier);
        self.turn = Some(now);
        Ok(TakenClaim { held, holders, has_news })
    }

    fn append_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).context("writing", &self.path)
    }

    fn claims_of_others(&self) -> Result<HashMap<Key, PathBuf>> {
        let now = self.file.metadata().and_then(|own| own.modified()).context("reading the metadata of", &self.path)?;
        let mut claimed = HashMap::new();
        for path in
            list_matching(&self.folder, |name| name.ends_with(".txt"))?.into_iter().filter(|path| *path != self.path)
        {
            let Ok(mut file) = holder::open_lockable(&path) else { continue };
            if self.has_ended(&path, &file, now) {
                remove_if_exists(&path)?;
                continue;
            }
            let mut text = Vec::new();
            (&mut file).take(MOST_BYTES).read_to_end(&mut text).context("reading", &path)?;
            // Damaged or incomplete lines are ignored.
            let keys =
                text.split(|byte| *byte == b'\n').filter_map(|line| std::str::from_utf8(line).ok()?.parse().ok());
            claimed.extend(keys.map(|key| (key, path.clone())));
        }
        Ok(claimed)
    }

    fn has_ended(&self, path: &Path, file: &File, now: SystemTime) -> bool {
        let maker = Maker::from_file_name(path).filter(|maker| !self.boot.is_empty() && maker.boot == self.boot);
        match (Holder::probe_lock(file), maker) {
            (Holder::Alive, _) => return false,
            (Holder::Gone, Some(_)) => return true,
            // A process that is invisible in another container counts as ended; its work may be repeated.
            (Holder::Unknown, Some(maker)) => return !holder::is_running(maker.pid, Some(maker.moment_us)),
            // Locks may be local to each machine.
            (Holder::Gone | Holder::Unknown, None) => {}
        }
        let written = file.metadata().and_then(|metadata| metadata.modified());
        written.is_ok_and(|written| now.duration_since(written).is_ok_and(|age| age > LEASE))
    }
}

impl Drop for Claims {
    fn drop(&mut self) {
        // A file left behind is ignored once this process has ended.
        let _ = remove_if_exists(&self.path);
    }
}

fn read_turn(file: &mut File) -> std::io::Result<u64> {
    let mut text = Vec::new();
    file.take(32).read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).trim().parse().unwrap_or(0))
}

fn write_turn(file: &mut File, turn: u64) -> std::io::Result<()> {
    file.rewind()?;
    file.set_len(0)?;
    writeln!(file, "{turn}")
}
