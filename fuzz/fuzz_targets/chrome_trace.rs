//! Feeds arbitrary bytes to the reader of traces in Chrome's JSON, and does all that can be done with what it finds.
//!
//! Run with `fuzz/run chrome_trace`; good starts are `collector/profile/tests/traces`, unpacked.

#![no_main]

use capture::events::open::Format;
use libfuzzer_sys::fuzz_target;

mod events;

fuzz_target!(|bytes: &[u8]| events::exercise(Format::Chrome, bytes));
