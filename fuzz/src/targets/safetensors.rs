//! Parses arbitrary bytes as a safetensors header; the result is an error or positions within the file. Useful seeds
//! are headers of files, without their first eight bytes.

use zoo::safetensors::parse;

pub fn run(bytes: &[u8]) {
    let size = 1 << 20;
    if let Ok(places) = parse(bytes, size) {
        for place in places.values() {
            assert!(place.start + place.length <= size);
            assert_eq!(place.ty.bytes(), Some(place.length));
        }
    }
}
