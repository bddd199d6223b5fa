//! Input types of the trace writers.

use super::WrittenTrack;

/// A slice to be written. Names are interned by address, so they must live as long as the writer.
#[derive(Clone, Copy, Debug)]
pub struct ShownSlice<'a, 'b> {
    pub track: usize,
    pub start_ns: i64,
    /// End time; `None` for an event without duration, [`UNFINISHED`] for a slice without an end event.
    pub end_ns: Option<i64>,
    pub name: &'a str,
    /// Category; empty if there is none.
    pub category: &'a str,
    /// Flow arrows through this slice, by id, and the role of the slice in each.
    pub flows: &'b [(u64, Role)],
    /// Arguments: for each, the index of its name, and its value.
    pub arguments: &'b [(usize, ShownArgument<'b>)],
}

/// End time of a slice whose end is missing in the trace.
pub const UNFINISHED: i64 = i64::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Start,
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

#[derive(Clone, Copy, Debug)]
pub struct Heading<'a> {
    /// Tracks; parents precede their children.
    pub tracks: &'a [WrittenTrack],
    pub keys: &'a [&'a str],
    /// Names and JSON values of members of the outermost object, for formats that have such an object.
    pub members: &'a [(String, String)],
}

pub const TRUNCATED: &str = "truncated";
