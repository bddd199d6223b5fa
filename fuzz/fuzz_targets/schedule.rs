//! Feeds arbitrary texts to the reader of schedules, which stand in records and in saved traces of TVM's tuner; it must
//! answer with an error or a schedule that can be described, written and read again.
//!
//! Run with `. scripts/env` and `cargo +nightly fuzz run schedule`; good starts are the column `schedule` of a store and
//! the lines of a trace file.

#![no_main]

use job::space::Schedule;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(schedule) = Schedule::from_json(text) else { return };
    let _ = (schedule.describe(), schedule.layout(), schedule.rounding(), schedule.has_fragments());
    let again = Schedule::from_json(&schedule.to_json()).expect("what we write we read");
    assert_eq!(again.hash(), schedule.hash());
});
