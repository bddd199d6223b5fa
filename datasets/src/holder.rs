//! Determines whether the process that locked a file still runs. A lock ends with its process, so it is reliable within
//! one boot of a machine. Network file systems grant exclusive locks only for files opened for writing, and some mounts
//! have no locks. There, the process table is checked.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    Alive,
    /// No process held the lock; now this process holds it.
    Gone,
    /// File locks do not work on this file system.
    Unknown,
}

pub(super) fn open_lockable(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).write(true).open(path);
    // Local file systems can also lock a file opened for reading.
    file.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Err(error) } else { File::open(path) })
}

impl Holder {
    /// Tries to lock a file, and keeps the lock if it was free.
    pub fn probe_lock(file: &File) -> Holder {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => Holder::Alive,
            Ok(()) => Holder::Gone,
            Err(TryLockError::Error(_)) => Holder::Unknown,
        }
    }
}

/// Returns whether process `pid` runs and already ran when it wrote a file at `wrote_at_us` (microseconds since 1970).
pub(super) fn is_running(pid: u32, wrote_at_us: Option<u64>) -> bool {
    /// Tolerance for the resolution of the boot time.
    const SLACK: Duration = Duration::from_secs(2);
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    let began = began_at(&stat);
    match (began, wrote_at_us) {
        (Some(began), Some(wrote)) => began <= UNIX_EPOCH + Duration::from_micros(wrote) + SLACK,
        _ => true,
    }
}

fn began_at(stat: &str) -> Option<SystemTime> {
    /// Index of the start time among the fields after the process name, which may contain spaces and parentheses.
    const BEGINNING: usize = 19;
    let ticks: u64 = stat.rsplit_once(')')?.1.split_whitespace().nth(BEGINNING)?.parse().ok()?;
    let per_second = u64::try_from(nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok()??).ok()?;
    let system = std::fs::read_to_string("/proc/stat").ok()?;
    let boot: u64 = system.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    Some(UNIX_EPOCH + Duration::from_secs(boot) + Duration::from_millis(ticks.checked_mul(1000)? / per_second.max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_of_the_same_number_that_began_later_is_another() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as u64;
        let own = std::process::id();
        assert!(is_running(own, Some(now)) && is_running(own, None));
        assert!(!is_running(own, Some(now - 86_400_000_000 * 365)), "it began before this process did");
        assert!(!is_running(u32::MAX, Some(now)));
    }

    #[test]
    fn a_lock_is_asked_for_with_write_access() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let held = open_lockable(file.path()).unwrap();
        held.lock().unwrap();
        assert_eq!(Holder::probe_lock(&open_lockable(file.path()).unwrap()), Holder::Alive);
        drop(held);
        let found = open_lockable(file.path()).unwrap();
        assert_eq!(Holder::probe_lock(&found), Holder::Gone);
        use std::io::Write;
        (&found).write_all(b"x").unwrap();
    }
}
