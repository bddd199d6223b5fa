//! Writer of Perfetto traces. Starts and ends of slices are written in chronological order.

use super::slice::{Heading, Role, ShownArgument, ShownSlice, TRUNCATED, UNFINISHED};
use super::{Packets, WrittenTrack, encode_descriptors};
use std::io::Write;

const PIECE: usize = 1 << 18;
/// Maximum length in bytes of names from other programs.
const NAME_BYTES: usize = 256;

pub struct PerfettoSink<'a, W: Write> {
    packets: Packets<'a>,
    out: W,
    bytes: u64,
    /// End times of the open slices of each track, innermost last.
    open: Vec<Vec<i64>>,
    latest_ns: i64,
}

impl<'a, W: Write> PerfettoSink<'a, W> {
    pub fn new(heading: Heading<'a>, mut out: W) -> std::io::Result<PerfettoSink<'a, W>> {
        let cut_short =
            |track: &WrittenTrack| WrittenTrack { name: truncate_text(&track.name).to_owned(), ..track.clone() };
        let bytes = encode_descriptors(&heading.tracks.iter().map(cut_short).collect::<Vec<_>>());
        out.write_all(&bytes)?;
        let open = vec![Vec::new(); heading.tracks.len()];
        Ok(PerfettoSink { packets: Packets::new(heading.keys), out, bytes: bytes.len() as u64, open, latest_ns: 0 })
    }

    pub fn written_bytes(&self) -> u64 {
        self.bytes + self.packets.held_size() as u64
    }

    /// Writes the start of a slice, after the ends of earlier slices of the track.
    pub fn write_slice(&mut self, slice: &ShownSlice<'a, '_>) -> std::io::Result<()> {
        let PerfettoSink { packets, open, .. } = self;
        let open = &mut open[slice.track];
        while let Some(end) = open.pop_if(|end| *end <= slice.start_ns) {
            packets.end_slice(slice.track, end);
        }
        let annotate = |annotations: &mut super::Annotations<'_>| {
            for (id, role) in slice.flows {
                annotations.add_flow(*id, *role == Role::End);
            }
            for (key, argument) in slice.arguments {
                match argument {
                    ShownArgument::Whole(value) => annotations.add_int(*key, *value as u64),
                    ShownArgument::Real(value) => annotations.add_double(*key, *value),
                    ShownArgument::Text(text) | ShownArgument::Json(text) => annotations.add_plain_text(*key, text),
                }
            }
        };
        let name = truncate_text(slice.name);
        match slice.end_ns {
            Some(end) => {
                packets.begin_slice(slice.track, slice.start_ns, truncate_text(slice.category), name, annotate);
                // A child must end with its parent, since a viewer would otherwise assign its end to another slice.
                let end = open.last().map_or(end, |whole| end.min(*whole));
                self.latest_ns = self.latest_ns.max(if end == UNFINISHED { slice.start_ns } else { end });
                open.push(end);
            }
            None => packets.write_instant(slice.track, slice.start_ns, truncate_text(slice.category), name, annotate),
        }
        self.flush_above(PIECE)
    }

    pub fn write_count(&mut self, track: usize, at_ns: i64, value: f64) -> std::io::Result<()> {
        self.packets.write_count(track, at_ns, value);
        self.flush_above(PIECE)
    }

    fn flush_above(&mut self, least: usize) -> std::io::Result<()> {
        if self.packets.held_size() < least {
            return Ok(());
        }
        self.bytes += self.packets.held_size() as u64;
        self.out.write_all(self.packets.held_bytes())?;
        self.packets.clear_bytes();
        Ok(())
    }

    pub fn finish_trace(mut self, left_out: u64) -> std::io::Result<(u64, W)> {
        for (track, open) in self.open.iter_mut().enumerate() {
            while let Some(end) = open.pop().filter(|end| *end != UNFINISHED) {
                self.packets.end_slice(track, end);
            }
        }
        if left_out > 0 && !self.open.is_empty() {
            self.packets.write_instant(0, self.latest_ns, "", TRUNCATED, |_| {});
        }
        self.flush_above(0)?;
        self.out.flush()?;
        Ok((self.bytes, self.out))
    }
}

/// Truncates a text at a character boundary.
fn truncate_text(text: &str) -> &str {
    let end = (0..=NAME_BYTES.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}
