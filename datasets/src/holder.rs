//! Tells whether the process that holds a file open and locked still runs.
//!
//! The kernel drops a lock with its process, however that ends, so within one boot of a machine a lock tells best. Network file
//! systems give an exclusive lock only to a file opened for writing, and some mounts give none: where a lock is refused although it
//! is not held, the process itself is looked for.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What a lock tells of the process that holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    /// It holds the lock.
    Alive,
    /// No process held the lock; the one that asked now does.
    Gone,
    /// Locks do not work here.
    Unknown,
}

/// Opens a file so that its lock can be asked for.
pub(super) fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).write(true).open(path);
    // A file opened for reading can be locked where locks are local.
    file.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Err(error) } else { File::open(path) })
}

impl Holder {
    /// Asks for the lock of a file, and takes it if it is free.
    pub fn of(file: &File) -> Holder {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => Holder::Alive,
            Ok(()) => Holder::Gone,
            Err(TryLockError::Error(_)) => Holder::Unknown,
        }
    }
}

/// Whether the process of this number runs and began before `wrote_at_us`, in microseconds since 1970. A process that began later
/// is another one with the same number.
pub(super) fn is_running(pid: u32, wrote_at_us: Option<u64>) -> bool {
    /// Resolution of the times: that of a process is known to a hundredth of a second, that of the boot to a second.
    const SLACK: Duration = Duration::from_secs(2);
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    let began = began_at(&stat);
    match (began, wrote_at_us) {
        (Some(began), Some(wrote)) => began <= UNIX_EPOCH + Duration::from_micros(wrote) + SLACK,
        _ => true,
    }
}

/// When a process began, by its line in `/proc`.
fn began_at(stat: &str) -> Option<SystemTime> {
    /// Where the beginning stands after the name, which is in parentheses and may hold anything.
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
        let held = open(file.path()).unwrap();
        held.lock().unwrap();
        assert_eq!(Holder::of(&open(file.path()).unwrap()), Holder::Alive);
        drop(held);
        let found = open(file.path()).unwrap();
        assert_eq!(Holder::of(&found), Holder::Gone);
        use std::io::Write;
        (&found).write_all(b"x").unwrap();
    }
}
