//! What a trace is written from.

use super::Track;

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

/// What is said in a trace that was long enough.
pub const TRUNCATED: &str = "truncated";
