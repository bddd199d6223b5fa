//! Input types of the trace writers.

use super::WrittenTrack;

/// A slice to be written. Names are interned by address, so they must live as long as the writer.
#[derive(Clone, Copy, Debug)]
pub struct ShownSlice<'a, 'b> {
    pub track: usize,
    pub start_ns: i64,
    /// End time; `None` for an event without duration.
    pub end_ns: Option<i64>,
    pub name: &'a str,
    /// Category; empty if there is none.
    pub category: &'a str,
    /// Arrows through this slice.
    pub flows: &'b [(u64, Role)],
    /// By index of the key.
    pub arguments: &'b [(usize, ShownArgument<'b>)],
}

/// Role of a slice in an arrow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Start,
    /// Intermediate point.
    Step,
    End,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ShownArgument<'a> {
    Whole(i64),
    Real(f64),
    Text(&'a str),
    Json(&'a str),
}

/// Metadata of a trace.
#[derive(Clone, Copy, Debug)]
pub struct Heading<'a> {
    /// Tracks; parents precede their children.
    pub tracks: &'a [WrittenTrack],
    pub keys: &'a [&'a str],
    /// Members of the outermost object as names and JSON values, for formats that have one.
    pub members: &'a [(String, String)],
}

/// Name of the event that marks a truncated trace.
pub const TRUNCATED: &str = "truncated";
