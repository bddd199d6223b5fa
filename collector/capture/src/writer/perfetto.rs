//! Writer of Perfetto traces, with slice starts and ends in chronological order.

use super::slice::{Heading, Role, ShownArgument, ShownSlice, TRUNCATED};
use super::{Packets, WrittenTrack, descriptors};
use std::io::Write;

const PIECE: usize = 1 << 18;
/// Maximum length of names from other programs.
const NAME_BYTES: usize = 256;

/// Writer of a trace.
pub struct PerfettoSink<'a, W: Write> {
    packets: Packets<'a>,
    out: W,
    bytes: u64,
    /// Ends of open slices by track, innermost last.
    open: Vec<Vec<i64>>,
    latest_ns: i64,
}

impl<'a, W: Write> PerfettoSink<'a, W> {
    /// Starts a trace with its tracks.
    pub fn new(heading: Heading<'a>, mut out: W) -> std::io::Result<PerfettoSink<'a, W>> {
        let cut_short = |track: &WrittenTrack| WrittenTrack { name: cut(&track.name).to_owned(), ..track.clone() };
        let bytes = descriptors(&heading.tracks.iter().map(cut_short).collect::<Vec<_>>());
        out.write_all(&bytes)?;
        let open = vec![Vec::new(); heading.tracks.len()];
        Ok(PerfettoSink { packets: Packets::new(heading.keys), out, bytes: bytes.len() as u64, open, latest_ns: 0 })
    }

    /// Returns the number of written bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes + self.packets.held() as u64
    }

    /// Writes a slice after closing earlier ones of its track.
    pub fn slice(&mut self, slice: &ShownSlice<'a, '_>) -> std::io::Result<()> {
        let PerfettoSink { packets, open, .. } = self;
        let open = &mut open[slice.track];
        while let Some(end) = open.pop_if(|end| *end <= slice.start_ns) {
            packets.end(slice.track, end);
        }
        let annotate = |annotations: &mut super::Annotations<'_>| {
            for (id, role) in slice.flows {
                annotations.flow(*id, *role == Role::End);
            }
            for (key, argument) in slice.arguments {
                match argument {
                    ShownArgument::Whole(value) => annotations.int(*key, *value as u64),
                    ShownArgument::Real(value) => annotations.double(*key, *value),
                    ShownArgument::Text(text) | ShownArgument::Json(text) => annotations.plain(*key, text),
                }
            }
        };
        let name = cut(slice.name);
        match slice.end_ns {
            Some(end) => {
                packets.begin(slice.track, slice.start_ns, cut(slice.category), name, annotate);
                // A child must end with its parent, since a viewer would otherwise assign its end to another slice.
                let end = open.last().map_or(end, |whole| end.min(*whole));
                self.latest_ns = self.latest_ns.max(end);
                open.push(end);
            }
            None => packets.instant(slice.track, slice.start_ns, cut(slice.category), name, annotate),
        }
        self.write(PIECE)
    }

    pub fn count(&mut self, track: usize, at_ns: i64, value: f64) -> std::io::Result<()> {
        self.packets.count(track, at_ns, value);
        self.write(PIECE)
    }

    fn write(&mut self, least: usize) -> std::io::Result<()> {
        if self.packets.held() < least {
            return Ok(());
        }
        self.bytes += self.packets.held() as u64;
        self.out.write_all(self.packets.held_bytes())?;
        self.packets.clear();
        Ok(())
    }

    /// Closes all slices, and marks the trace if events were omitted.
    pub fn finish(mut self, left_out: u64) -> std::io::Result<(u64, W)> {
        for (track, open) in self.open.iter_mut().enumerate() {
            while let Some(end) = open.pop() {
                self.packets.end(track, end);
            }
        }
        if left_out > 0 && !self.open.is_empty() {
            self.packets.instant(0, self.latest_ns, "", TRUNCATED, |_| {});
        }
        self.write(0)?;
        self.out.flush()?;
        Ok((self.bytes, self.out))
    }
}

/// Truncates a text at a character boundary.
fn cut(text: &str) -> &str {
    let end = (0..=NAME_BYTES.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}
