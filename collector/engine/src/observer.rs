//! Notes and progress that the engine reports while it works. The engine itself prints nothing.

use crate::campaign::CampaignEvent;
use datasets::store::{Status, Telling};

/// Receives notes and progress.
pub trait Observer {
    /// Receives notes of one kind for the user, in addition to the result.
    fn receive_notes(&self, notes: &[String]);

    /// Announces a step that takes long and has no other progress display.
    fn announce_step(&self, _what: &str) {}

    /// Receives a single note.
    fn note(&self, note: String) {
        self.receive_notes(&[note]);
    }

    /// Starts a progress report over a number of attempts, also to a store's status file if there is one.
    fn begin_progress(&self, attempts: usize, store: Option<StoreStatus>) -> Box<dyn Progress>;
}

/// Progress of one pass over attempts.
pub trait Progress {
    /// Receives an event.
    fn observe_event(&mut self, event: &CampaignEvent<'_>);

    /// Ends the report.
    fn finish(self: Box<Self>);
}

/// The status file of this process in a store.
pub struct StoreStatus {
    /// The file.
    pub telling: Telling,
    /// The fields that do not change.
    pub status: Status,
}
