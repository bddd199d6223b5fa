//! Reads arbitrary bytes as Perfetto events. Useful seeds: `chrome_trace` seeds after `opcollect trace convert`.

use crate::events;
use capture::events::open::TraceFormat;

pub fn run(bytes: &[u8]) {
    events::exercise(TraceFormat::Perfetto, bytes);
}
