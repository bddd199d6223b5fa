//! Feeds arbitrary bytes to the reader of events of Perfetto's traces, and does all that can be done with what it finds.
//!
//! Run with `fuzz/run perfetto_events`; good starts are those of `chrome_trace` after `opcollect trace convert`.

#![no_main]

use capture::events::open::Format;
use libfuzzer_sys::fuzz_target;

mod events;

fuzz_target!(|bytes: &[u8]| events::exercise(Format::Perfetto, bytes));
