//! Streaming readers and writers of traces. Readers return events in file order, skip unreadable ones with counts, and
//! keep only the names of tracks in memory. Times are whole nanoseconds on the trace's own clock.

pub mod check;
pub mod chrome;
pub mod convert;
pub mod frames;
pub mod in_memory;
pub mod number;
pub mod open;
pub mod perfetto;

use std::borrow::Cow;
use std::path::PathBuf;

#[derive(Clone, Debug, PartialEq)]
pub struct Event<'a> {
    pub kind: Kind,
    /// Index in [`TraceContents::tracks`].
    pub track: u32,
    pub name: Cow<'a, str>,
    /// Category; empty if there is none.
    pub category: Cow<'a, str>,
    /// Time of the event in nanoseconds, or start time of a slice.
    pub at_ns: i64,
    pub arguments: Arguments<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Slice with a duration, which may be negative in damaged traces.
    Slice(i64),
    Begin,
    /// End of the innermost open slice of the track.
    End,
    Instant,
    Counter(f64),
    FlowStart(u64),
    FlowStep(u64),
    /// End of a flow arrow, in the open slice or in the next one.
    FlowEnd(u64),
}

#[derive(Clone, Debug, Default, PartialEq)]
pub enum Arguments<'a> {
    #[default]
    None,
    Json(&'a str),
    List(Vec<(String, Value)>),
}

#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Whole(i64),
    Real(f64),
    Text(String),
    Json(String),
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Track {
    pub process: String,
    pub thread: String,
    pub process_name: Option<String>,
    pub name: Option<String>,
    pub is_counter: bool,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct TraceContents {
    /// Tracks, in the order of their first occurrence.
    pub tracks: Vec<Track>,
    /// Names and values of those members of the outermost object that are short.
    pub members: Vec<(String, String)>,
    pub events: u64,
    pub malformed: u64,
    pub ignored: u64,
    pub examples: Vec<String>,
    pub is_cut: bool,
}

/// Maximum number of unreadable records that are described.
const EXAMPLES: usize = 5;
/// Maximum number of kept members of a Chrome trace's top-level JSON object.
const MEMBERS: usize = 100;
/// Maximum number of tracks. A file with more tracks is probably not a trace.
pub const MAX_TRACKS: usize = 100_000;

impl TraceContents {
    pub fn skip_record(&mut self, offset: u64, why: impl std::fmt::Display) {
        self.malformed += 1;
        if self.examples.len() < EXAMPLES {
            self.examples.push(format!("at byte {offset}: {why}"));
        }
    }

    pub fn find_member(&self, name: &str) -> Option<&str> {
        self.members.iter().find(|(known, _)| known == name).map(|(_, value)| value.trim_matches('"'))
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot read the trace `{}`: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("`{}` is not a trace: {why}", path.display())]
    Format { path: PathBuf, why: String },
    #[error("`{}` has more than {limit} {what}", path.display())]
    Large { path: PathBuf, limit: usize, what: &'static str },
}

/// Limit that a consumer of events has reached, and a name of what it limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full(pub usize, pub &'static str);

impl Arguments<'_> {
    /// Calls `take` with each argument. JSON values other than objects have no arguments.
    pub fn visit_arguments(&self, take: &mut dyn FnMut(&str, Value)) {
        match self {
            Arguments::None => {}
            Arguments::Json(text) => chrome::visit_members(text, take),
            Arguments::List(list) => list.iter().for_each(|(name, value)| take(name, value.clone())),
        }
    }
}
