//! Parses arbitrary bytes as a safetensors header. Useful seeds are headers of files without the first eight bytes.

use zoo::safetensors::parse_header;

pub fn run(bytes: &[u8]) {
    let size = 1 << 20;
    if let Ok(places) = parse_header(bytes, size) {
        for place in places.values() {
            assert!(place.start + place.length <= size);
            assert_eq!(place.ty.size_bytes(), Some(place.length));
        }
    }
}
