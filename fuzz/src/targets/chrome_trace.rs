//! Reads arbitrary bytes as Chrome's JSON traces. Useful seeds are the unpacked `collector/profile/tests/traces`.

use crate::events;
use capture::events::open::TraceFormat;

pub fn run(bytes: &[u8]) {
    events::exercise(TraceFormat::Chrome, bytes);
}
