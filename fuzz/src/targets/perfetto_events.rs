//! Feeds arbitrary bytes to the reader of events of Perfetto's traces, and does all that can be done with what it finds.
//!
//! Run with `fuzz/run perfetto_events`; good starts are those of `chrome_trace` after `opcollect trace convert`.

use crate::events;
use capture::events::open::Format;

/// Runs the target.
pub fn run(bytes: &[u8]) {
    events::exercise(Format::Perfetto, bytes);
}
