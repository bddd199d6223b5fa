//! Writer of a trace in either of two formats. Events must be in chronological order within each track.

use super::chrome::ChromeSink;
use super::perfetto::PerfettoSink;
pub use super::slice::{Heading, Role, ShownArgument, ShownSlice, UNFINISHED};
use std::io::Write;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Perfetto,
    Chrome,
}

pub struct Sink<'a, W: Write> {
    form: SinkForm<'a, W>,
    /// Values of counters that are not written yet, the earliest last.
    counts: Vec<Count>,
    limit: u64,
    written: Written,
}

/// Value of a counter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Count {
    pub track: usize,
    pub at_ns: i64,
    pub value: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    pub events: u64,
    pub left_out: u64,
    pub bytes: u64,
}

enum SinkForm<'a, W: Write> {
    Perfetto(PerfettoSink<'a, W>),
    Chrome(ChromeSink<'a, W>),
}

impl<'a, W: Write> Sink<'a, W> {
    /// Starts a trace of about `limit` bytes. The ends of open slices may exceed the limit.
    pub fn new(format: Format, heading: Heading<'a>, out: W, limit: u64) -> std::io::Result<Sink<'a, W>> {
        let form = match format {
            Format::Perfetto => SinkForm::Perfetto(PerfettoSink::new(heading, out)?),
            Format::Chrome => SinkForm::Chrome(ChromeSink::new(heading, out)?),
        };
        Ok(Sink { form, counts: Vec::new(), limit, written: Written::default() })
    }

    /// Adds values of counters. Each is written before the next slice that starts later, so that a trace that is cut by
    /// its limit has values for its slices.
    pub fn add_counts(&mut self, counts: impl IntoIterator<Item = Count>) {
        self.counts.reverse();
        self.counts.extend(counts);
        self.counts.sort_by_key(|count| count.at_ns);
        self.counts.reverse();
    }

    pub fn write_slice(&mut self, slice: &ShownSlice<'a, '_>) -> std::io::Result<()> {
        while let Some(count) = self.counts.pop_if(|count| count.at_ns <= slice.start_ns) {
            self.write_count(count)?;
        }
        if !self.has_room() {
            return Ok(());
        }
        match &mut self.form {
            SinkForm::Perfetto(sink) => sink.write_slice(slice),
            SinkForm::Chrome(sink) => sink.write_slice(slice),
        }
    }

    fn write_count(&mut self, Count { track, at_ns, value }: Count) -> std::io::Result<()> {
        if !self.has_room() {
            return Ok(());
        }
        match &mut self.form {
            SinkForm::Perfetto(sink) => sink.write_count(track, at_ns, value),
            SinkForm::Chrome(sink) => sink.write_count(track, at_ns, value),
        }
    }

    fn has_room(&mut self) -> bool {
        let bytes = match &self.form {
            SinkForm::Perfetto(sink) => sink.written_bytes(),
            SinkForm::Chrome(sink) => sink.written_bytes(),
        };
        let has_room = bytes < self.limit;
        *if has_room { &mut self.written.events } else { &mut self.written.left_out } += 1;
        has_room
    }

    pub fn finish_trace(mut self) -> std::io::Result<(Written, W)> {
        while let Some(count) = self.counts.pop() {
            self.write_count(count)?;
        }
        let left_out = self.written.left_out;
        let (bytes, out) = match self.form {
            SinkForm::Perfetto(sink) => sink.finish_trace(left_out)?,
            SinkForm::Chrome(sink) => sink.finish_trace(left_out)?,
        };
        Ok((Written { bytes, ..self.written }, out))
    }
}
