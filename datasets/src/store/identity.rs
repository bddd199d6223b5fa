//! Which process on which machine wrote a journal, and whether it still does.

use serde::{Deserialize, Serialize};
use std::fs::{File, TryLockError};

/// A process, told apart from every other that ever ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Identity {
    /// The machine: a hash of its identity, or its name where it has none.
    pub machine: String,
    /// Changes with every boot of the machine.
    pub boot: String,
    /// Number of the process.
    pub pid: u32,
}

/// What became of the process that wrote a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// It is running.
    Alive,
    /// It has ended.
    Gone,
    /// It ran on another machine, so nobody here can know.
    Elsewhere,
}

impl Identity {
    /// This process.
    pub fn current() -> Identity {
        let read = |path: &str| std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
        let machine = match read("/etc/machine-id").filter(|text| !text.is_empty()) {
            Some(text) => crate::record::key::Key::of_bytes(text.as_bytes()).hex(),
            None => host_name(),
        };
        let boot = read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        Identity { machine, boot, pid: std::process::id() }
    }

    /// What became of the process that wrote this open journal.
    ///
    /// Within one boot the lock on the journal decides: the kernel drops it with the process, whichever way that
    /// ends, and other containers see it too. Where locks are not to be had, the process number decides.
    pub fn owner(&self, journal: &File, here: &Identity) -> Owner {
        let lock = journal.try_lock();
        if matches!(lock, Err(TryLockError::WouldBlock)) {
            return Owner::Alive;
        }
        match (self.boot == here.boot, self.machine == here.machine) {
            (true, _) if lock.is_ok() => Owner::Gone,
            (true, _) if std::path::Path::new(&format!("/proc/{}", self.pid)).exists() => Owner::Alive,
            (true, _) | (false, true) => Owner::Gone,
            (false, false) => Owner::Elsewhere,
        }
    }
}

/// The name of this host.
fn host_name() -> String {
    nix::unistd::gethostname().map_or_else(|_| "unknown".to_owned(), |name| name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(machine: &str, boot: &str) -> Identity {
        Identity { machine: machine.to_owned(), boot: boot.to_owned(), pid: u32::MAX }
    }

    #[test]
    fn a_lock_within_this_boot_decides() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let here = process("m", "b");
        let other = File::open(file.path()).unwrap();
        assert_eq!(here.owner(&other, &here), Owner::Gone);
        drop(other);
        file.as_file().lock().unwrap();
        assert_eq!(here.owner(&File::open(file.path()).unwrap(), &here), Owner::Alive);
    }

    #[test]
    fn another_boot_means_gone_and_another_machine_means_unknown() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let here = process("m", "b");
        assert_eq!(process("m", "earlier").owner(file.as_file(), &here), Owner::Gone);
        assert_eq!(process("other", "c").owner(file.as_file(), &here), Owner::Elsewhere);
    }
}
