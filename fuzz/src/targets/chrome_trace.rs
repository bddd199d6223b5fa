//! Reads arbitrary bytes as traces in Chrome's JSON, and exercises the result. Useful seeds are the unpacked files of
//! `collector/profile/tests/traces`.

use crate::events;
use capture::events::open::TraceFormat;

pub fn run(bytes: &[u8]) {
    events::exercise(TraceFormat::Chrome, bytes);
}
