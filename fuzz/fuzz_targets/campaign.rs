//! Feeds arbitrary texts to the reader of campaigns' configurations; it must answer with an error or a configuration that can be carried out.
//!
//! Run with `. scripts/env` and `cargo +nightly fuzz run campaign`; a good start is the folder `configs`.

#![no_main]

use engine::campaign::Settings;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(raw) = Settings::parse(text)
        && let Ok(config) = raw.check(4)
    {
        config.check().expect("what was checked once passes again");
    }
});
