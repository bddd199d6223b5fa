//! Leases of journals: a writer proves that it is alive by updating the journal's modification time. That time is
//! compared with the current time of the same file system, so clocks of different hosts need not agree.

use crate::files::Scratch;
use nix::sys::stat::futimens;
use nix::sys::time::TimeSpec;
use std::fs::File;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

pub(super) const LEASE: Duration = Duration::from_secs(15 * 60);

const RENEWED_EVERY: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lease {
    Held,
    RanOut,
    /// The journal has no lease, or the file system does not provide its age.
    Unknown,
}

impl Lease {
    /// Returns the state of an open journal's lease, which must be renewed within `seconds`.
    pub fn from_journal(journal: &File, folder: &Path, seconds: Option<u64>) -> Lease {
        let Some(seconds) = seconds else { return Lease::Unknown };
        // A new file has the current time of the file server.
        let now = Scratch::new(folder).ok().and_then(|scratch| scratch.file().metadata().ok()?.modified().ok());
        let renewed = journal.metadata().and_then(|metadata| metadata.modified()).ok();
        match (now, renewed) {
            (Some(now), Some(renewed)) => match now.duration_since(renewed) {
                Ok(silent) if silent > Duration::from_secs(seconds) => Lease::RanOut,
                _ => Lease::Held,
            },
            _ => Lease::Unknown,
        }
    }
}

#[derive(Debug)]
pub(super) struct Renewal {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Renewal {
    /// Starts a thread that renews the lease. If no thread can be started, each new record still renews the lease.
    pub fn begin(journal: &File) -> Renewal {
        let (stop, stopped) = channel::<()>();
        let renew = |journal: File| {
            move || {
                while stopped.recv_timeout(RENEWED_EVERY) == Err(RecvTimeoutError::Timeout) {
                    // A deleted journal is noticed at the next record.
                    let _ = futimens(&journal, &TimeSpec::UTIME_NOW, &TimeSpec::UTIME_NOW);
                }
            }
        };
        let thread = journal.try_clone().ok().map(renew);
        let thread = thread.and_then(|renew| std::thread::Builder::new().name("lease".to_owned()).spawn(renew).ok());
        Renewal { stop: Some(stop), thread }
    }
}

impl Drop for Renewal {
    /// Waits for the thread to end, because its file handle keeps the lock.
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
