//! Feeds arbitrary bytes to the reader of traces in Chrome's JSON, and does all that can be done with what it finds.
//!
//! Run with `fuzz/run chrome_trace`; good starts are `collector/profile/tests/traces`, unpacked.

use crate::events;
use capture::events::open::Format;

/// Runs the target.
pub fn run(bytes: &[u8]) {
    events::exercise(Format::Chrome, bytes);
}
