//! Makes caches cold by writing other data.

use std::hint::black_box;

/// Distance of the writes: no cache has shorter lines.
const LINE_BYTES: usize = 64;

/// A buffer that pushes everything else out of the caches this thread can reach.
pub struct Flusher(Vec<u8>);

impl Flusher {
    /// A buffer of the given size; its pages are touched here, so that flushing never waits for the system.
    pub fn new(bytes: u64) -> Self {
        // Not zeros: a zeroed buffer would be one shared page of the system.
        Self(vec![1; usize::try_from(bytes).unwrap_or(usize::MAX)])
    }

    /// Writes every line of the buffer.
    pub fn flush(&mut self) {
        for byte in self.0.iter_mut().step_by(LINE_BYTES) {
            *byte = byte.wrapping_add(1);
        }
        black_box(&mut self.0);
    }
}
