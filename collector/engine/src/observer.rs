//! What the engine tells besides its results: notes for people, and how far long work is.

use crate::campaign::Event;
use datasets::store::{Status, Telling};

/// Hears notes and progress. The engine itself prints nothing.
pub trait Observer {
    /// Hears what a person should know besides the result.
    fn note(&self, note: &str);

    /// Hears that work on some attempts begins, and where a store keeps its status, if it does.
    fn begin(&self, attempts: usize, store: Option<StoreStatus>) -> Box<dyn Progress>;
}

/// Hears how far one stretch of work is.
pub trait Progress {
    /// Hears an event.
    fn hear(&mut self, event: &Event<'_>);

    /// Hears that the work has ended.
    fn finish(self: Box<Self>);
}

/// The place where a store keeps the status of this process.
pub struct StoreStatus {
    /// The place.
    pub telling: Telling,
    /// What of the status does not change.
    pub status: Status,
}

/// Hears nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Observer for Silent {
    fn note(&self, _: &str) {}

    fn begin(&self, _: usize, _: Option<StoreStatus>) -> Box<dyn Progress> {
        Box::new(Silent)
    }
}

impl Progress for Silent {
    fn hear(&mut self, _: &Event<'_>) {}

    fn finish(self: Box<Self>) {}
}
