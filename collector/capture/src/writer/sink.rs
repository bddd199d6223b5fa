//! What a trace is written from: tracks first, then slices and counts, each track's in the order of time.

use super::{Track, chrome::ChromeSink, perfetto::PerfettoSink};
use std::io::Write;

/// A slice to be written. Names are written once and told apart by where they lie, so they last as long as the writing.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a, 'b> {
    /// Its track, by its place among the tracks.
    pub track: usize,
    /// When it begins.
    pub start_ns: i64,
    /// When it ends; `None` is something without length.
    pub end_ns: Option<i64>,
    /// Its name.
    pub name: &'a str,
    /// Its category; empty where it has none.
    pub category: &'a str,
    /// Arrows that it is on.
    pub flows: &'b [(u64, Role)],
    /// What is known of it, by the places of keys.
    pub arguments: &'b [(usize, Argument<'b>)],
}

/// Where on an arrow a slice is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// At its begin.
    Start,
    /// In between.
    Step,
    /// At its end.
    End,
}

/// A value of an argument.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Argument<'a> {
    /// A whole number.
    Whole(i64),
    /// A number.
    Real(f64),
    /// A text.
    Text(&'a str),
    /// JSON, as it is.
    Json(&'a str),
}

/// What all slices share.
#[derive(Clone, Copy, Debug)]
pub struct Heading<'a> {
    /// Tracks; what stands under another stands behind it.
    pub tracks: &'a [Track],
    /// Names of arguments.
    pub keys: &'a [&'a str],
    /// Members of the outermost object, where the format has one: names, and values in JSON.
    pub members: &'a [(String, String)],
}

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

/// What is said in a trace that was long enough.
pub const TRUNCATED: &str = "truncated";

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
