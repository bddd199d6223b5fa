//! Identifies the process that wrote a file and determines whether it still runs.

use super::lease::Lease;
use crate::error::{IoContext, Result};
use crate::holder::{self, Holder};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Identity {
    /// Hash of the machine ID, or the host name without one; only for display, because clones of a machine share it.
    pub machine: String,
    pub boot: String,
    pub pid: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Alive,
    /// The process has ended, or its lease has expired.
    Gone,
    /// The process is on another machine, and its lease has not expired.
    Elsewhere,
}

impl Identity {
    pub fn current() -> Identity {
        let read = |path: &str| std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
        let machine = match read("/etc/machine-id").filter(|text| !text.is_empty()) {
            Some(text) => crate::record::key::Key::of_bytes(text.as_bytes()).to_hex(),
            None => host_name(),
        };
        let boot = read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        Identity { machine, boot, pid: std::process::id() }
    }

    pub fn unknown() -> Identity {
        Identity { machine: String::new(), boot: String::new(), pid: 0 }
    }

    /// Returns the state of an open journal's writer: within one boot by the file lock, or without locks by the process
    /// ID. For another machine, only the lease is reliable, because hosts may share even a machine ID.
    pub fn owner_state(&self, (path, journal): (&Path, &File), here: &Identity, lease: Lease) -> Owner {
        let is_here = !self.boot.is_empty() && self.boot == here.boot;
        let wrote_at_us = Maker::from_file_name(path).map(|maker| maker.moment_us);
        match Holder::probe_lock(journal) {
            Holder::Alive => return Owner::Alive,
            Holder::Gone if is_here => return Owner::Gone,
            Holder::Unknown if is_here && holder::is_running(self.pid, wrote_at_us) => return Owner::Alive,
            Holder::Gone | Holder::Unknown => {}
        }
        match lease {
            Lease::RanOut => Owner::Gone,
            Lease::Held | Lease::Unknown => Owner::Elsewhere,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Maker {
    pub moment_us: u64,
    pub pid: u32,
    /// Boot ID without hyphens.
    pub boot: String,
}

impl Maker {
    pub fn from_file_name(path: &Path) -> Option<Maker> {
        let name = path.file_stem()?.to_str()?;
        let mut parts = name.splitn(3, '-');
        let (moment_us, pid) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        Some(Maker { moment_us, pid, boot: parts.next()?.to_owned() })
    }
}

/// Creates a file of this process, named after the time, the process and the boot.
pub(super) fn create_own(folder: &Path, extension: &str, options: &mut OpenOptions) -> Result<(PathBuf, File)> {
    let Identity { boot, pid, .. } = Identity::current();
    let boot = boot.replace('-', "");
    let mut moment = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
    loop {
        let path = folder.join(format!("{moment}-{pid}-{boot}.{extension}"));
        match options.create_new(true).open(&path) {
            // Processes in different containers on one machine may have the same process ID.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => moment += 1,
            file => return Ok((path.clone(), file.context("creating", &path)?)),
        }
    }
}

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
        assert_eq!(here.owner_state((file.path(), &other), &here, Lease::Held), Owner::Gone);
        drop(other);
        file.as_file().lock().unwrap();
        assert_eq!(
            here.owner_state((file.path(), &File::open(file.path()).unwrap()), &here, Lease::RanOut),
            Owner::Alive
        );
    }

    #[test]
    fn in_another_boot_only_the_lease_tells_even_on_the_same_machine() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let here = process("m", "b");
        for writer in [process("m", "earlier"), process("other", "c"), process("m", "")] {
            for (lease, owner) in
                [(Lease::Held, Owner::Elsewhere), (Lease::Unknown, Owner::Elsewhere), (Lease::RanOut, Owner::Gone)]
            {
                assert_eq!(
                    writer.owner_state((file.path(), file.as_file()), &here, lease),
                    owner,
                    "{writer:?} {lease:?}"
                );
            }
        }
        let nameless = process("m", "");
        assert_eq!(nameless.owner_state((file.path(), file.as_file()), &nameless, Lease::Held), Owner::Elsewhere);
    }
}
