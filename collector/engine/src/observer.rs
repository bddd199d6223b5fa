//! Notes and progress that the engine reports while it works. The engine itself prints nothing.

use crate::campaign::CampaignEvent;
use datasets::store::{Status, Telling};

/// Receives notes and progress.
pub trait Observer {
    /// Receives notes of one kind for the user, in addition to the result.
    fn notes(&self, notes: &[String]);

    /// Receives what is done from now on, where that takes long and nothing else shows it.
    fn doing(&self, _what: &str) {}

    /// Receives a single note.
    fn note(&self, note: String) {
        self.notes(&[note]);
    }

    /// Starts a progress report over a number of attempts, also to a store's status file if there is one.
    fn begin(&self, attempts: usize, store: Option<StoreStatus>) -> Box<dyn Progress>;
}

/// Progress of one pass over attempts.
pub trait Progress {
    /// Receives an event.
    fn hear(&mut self, event: &CampaignEvent<'_>);

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
