//! Feeds arbitrary texts to the reader of plans of folders of artifacts; it must answer with an error or a plan that can be carried out.
//!
//! Run with `. scripts/env` and `cargo +nightly fuzz run plan`; a good start is a `plan.json` that `opcollect build` wrote.

#![no_main]

use engine::artifacts::Plan;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = Plan::parse(text);
});
