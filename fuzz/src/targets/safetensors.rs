//! Feeds arbitrary bytes to the reader of safetensors headers; it must answer with an error or places inside of the file.
//!
//! Run with `fuzz/run safetensors`; a good start is a folder with the headers of some
//! files, which begin after their first eight bytes.

use zoo::safetensors::parse;

/// Runs the target.
pub fn run(bytes: &[u8]) {
    let size = 1 << 20;
    if let Ok(places) = parse(bytes, size) {
        for place in places.values() {
            assert!(place.start + place.length <= size);
            assert_eq!(place.ty.bytes(), Some(place.length));
        }
    }
}
