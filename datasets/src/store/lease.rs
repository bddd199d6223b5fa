//! The lease of a journal: its writer says again and again that it is alive, by the time at which the file was changed.
//!
//! Both times that are compared come from the file system, so the clocks of hosts that share a store need not agree.

use crate::files::Scratch;
use nix::sys::stat::futimens;
use nix::sys::time::TimeSpec;
use std::fs::File;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a writer that says nothing counts as running.
pub(super) const LEASE: Duration = Duration::from_secs(15 * 60);

/// How often a writer says that it is.
const RENEWED_EVERY: Duration = Duration::from_secs(60);

/// How it stands with a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lease {
    /// It was renewed not long ago.
    Held,
    /// It was not renewed for longer than its writer said it would be.
    RanOut,
    /// Its writer renews none, or the file system does not tell.
    Unknown,
}

impl Lease {
    /// How it stands with the lease of an open journal that is to be renewed within so many seconds.
    pub fn of(journal: &File, folder: &Path, seconds: Option<u64>) -> Lease {
        let Some(seconds) = seconds else { return Lease::Unknown };
        // What is written now has the time of now, on whichever machine the files are.
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

/// Renews the lease of a journal as long as it exists.
#[derive(Debug)]
pub(super) struct Renewal {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Renewal {
    /// Begins to renew. Where no thread is to be had every record still does.
    pub fn begin(journal: &File) -> Renewal {
        let (stop, stopped) = channel::<()>();
        let renew = |journal: File| {
            move || {
                while stopped.recv_timeout(RENEWED_EVERY) == Err(RecvTimeoutError::Timeout) {
                    // A journal that is gone is noticed at the next record.
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
    /// The thread's handle of the file holds the lock, so it has to be gone, too.
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
