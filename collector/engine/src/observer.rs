//! Notes and progress that the engine reports while it works. The engine itself prints nothing.

use crate::campaign::CampaignEvent;
use crate::campaign::record::now_us;
use datasets::Store;
use datasets::store::{Status, StatusFile};
use measure::host::command::own_command;

/// Receives notes and progress.
pub trait Observer {
    /// Receives notes of one kind for the user, in addition to the result.
    fn receive_notes(&self, notes: &[String]);

    /// Announces a long step that has no progress display of its own.
    fn announce_step(&self, _what: &str) {}

    /// Receives a single note for the user.
    fn note(&self, note: String) {
        self.receive_notes(&[note]);
    }

    /// Starts a progress report over a number of attempts. `store` is a status file to update as well, if given.
    fn begin_progress(&self, attempts: usize, store: Option<StoreStatus>) -> Box<dyn Progress>;
}

/// An observer for tests that measure nothing.
#[cfg(test)]
pub(crate) struct SilentObserver;

#[cfg(test)]
impl Observer for SilentObserver {
    fn receive_notes(&self, _notes: &[String]) {}

    fn begin_progress(&self, _attempts: usize, _store: Option<StoreStatus>) -> Box<dyn Progress> {
        unreachable!("nothing is measured")
    }
}

/// Progress display during one pass over attempts.
pub trait Progress {
    /// Updates the display by an event of the campaign.
    fn observe_event(&mut self, event: &CampaignEvent<'_>);

    /// Ends the progress display.
    fn finish(self: Box<Self>);
}

/// Status file that this process writes in a store.
pub struct StoreStatus {
    /// The status file.
    pub file: StatusFile,
    /// Status fields that do not change during the process.
    pub status: Status,
}

impl StoreStatus {
    /// Creates the status file of this process. Returns None if that fails, which does not stop the work.
    pub fn create(store: &Store, host: &str) -> Option<StoreStatus> {
        let status = Status {
            host: host.to_owned(),
            pid: std::process::id(),
            command: own_command(),
            began_us: now_us(),
            ..Status::default()
        };
        Some(StoreStatus { file: store.create_status_file().ok()?, status })
    }
}
