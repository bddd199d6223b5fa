//! Feeds arbitrary bytes to the reader of safetensors headers; it must answer with an error or places inside of the file.
//!
//! Run with `. scripts/env` and `cargo +nightly fuzz run safetensors`; a good start is a folder with the headers of some
//! files, which begin after their first eight bytes.

#![no_main]

use libfuzzer_sys::fuzz_target;
use zoo::safetensors::parse;

fuzz_target!(|bytes: &[u8]| {
    let size = 1 << 20;
    if let Ok(places) = parse(bytes, size) {
        for place in places.values() {
            assert!(place.start + place.length <= size);
            assert_eq!(place.ty.bytes(), Some(place.length));
        }
    }
});
