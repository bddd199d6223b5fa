//! A trace being written: tracks first, then slices and counts, each track's in the order of time.

use super::chrome::ChromeSink;
use super::perfetto::PerfettoSink;
pub use super::shown::{Argument, Heading, Role, Shown};
use std::io::Write;

/// Formats that are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Perfetto's protocol buffers.
    Perfetto,
    /// Chrome's JSON, in the shape that torch.profiler gives it.
    Chrome,
}

/// A trace being written, with what it may take on the disk.
pub struct Sink<'a, W: Write> {
    form: Form<'a, W>,
    limit: u64,
    written: Written,
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Slices and values that were written.
    pub events: u64,
    /// Those that were not, as the file was long enough.
    pub left_out: u64,
    /// Length of the file.
    pub bytes: u64,
}

enum Form<'a, W: Write> {
    Perfetto(PerfettoSink<'a, W>),
    Chrome(ChromeSink<'a, W>),
}

impl<'a, W: Write> Sink<'a, W> {
    /// Begins a trace of at most about `limit` bytes: what closes slices that are open comes on top.
    pub fn new(format: Format, heading: Heading<'a>, out: W, limit: u64) -> std::io::Result<Sink<'a, W>> {
        let form = match format {
            Format::Perfetto => Form::Perfetto(PerfettoSink::new(heading, out)?),
            Format::Chrome => Form::Chrome(ChromeSink::new(heading, out)?),
        };
        Ok(Sink { form, limit, written: Written::default() })
    }

    /// Writes a slice.
    pub fn slice(&mut self, slice: &Shown<'a, '_>) -> std::io::Result<()> {
        if !self.has_room() {
            return Ok(());
        }
        match &mut self.form {
            Form::Perfetto(sink) => sink.slice(slice),
            Form::Chrome(sink) => sink.slice(slice),
        }
    }

    /// Writes a value from some time on.
    pub fn count(&mut self, track: usize, at_ns: i64, value: f64) -> std::io::Result<()> {
        if !self.has_room() {
            return Ok(());
        }
        match &mut self.form {
            Form::Perfetto(sink) => sink.count(track, at_ns, value),
            Form::Chrome(sink) => sink.count(track, at_ns, value),
        }
    }

    fn has_room(&mut self) -> bool {
        let bytes = match &self.form {
            Form::Perfetto(sink) => sink.bytes(),
            Form::Chrome(sink) => sink.bytes(),
        };
        let has_room = bytes < self.limit;
        *if has_room { &mut self.written.events } else { &mut self.written.left_out } += 1;
        has_room
    }

    /// Ends the trace.
    pub fn finish(self) -> std::io::Result<(Written, W)> {
        let left_out = self.written.left_out;
        let (bytes, out) = match self.form {
            Form::Perfetto(sink) => sink.finish(left_out)?,
            Form::Chrome(sink) => sink.finish(left_out)?,
        };
        Ok((Written { bytes, ..self.written }, out))
    }
}
