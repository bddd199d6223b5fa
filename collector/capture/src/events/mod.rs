//! Traces as streams of events, whoever wrote them: read one by one, within bounds, and written again.
//!
//! Readers give events in the order of the file and skip what they cannot read, with counts; they hold nothing but the names of
//! tracks. Times are whole nanoseconds on the trace's own clock.

pub mod check;
pub mod chrome;
pub mod convert;
pub mod frames;
pub mod held;
pub mod number;
pub mod open;
pub mod perfetto;

use std::borrow::Cow;
use std::path::PathBuf;

/// Something in a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Event<'a> {
    /// What sort of thing.
    pub kind: Kind,
    /// Its place among [`Found::tracks`].
    pub track: u32,
    /// Its name.
    pub name: Cow<'a, str>,
    /// Its category; empty where it has none.
    pub category: Cow<'a, str>,
    /// When it is, or begins.
    pub at_ns: i64,
    /// What is known of it.
    pub arguments: Arguments<'a>,
}

/// The sorts of events.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Something that lasts so long. Negative lengths come as they are.
    Slice(i64),
    /// Something begins, whose end is told later.
    Begin,
    /// What began last on the track ends.
    End,
    /// Something without length.
    Instant,
    /// A value from now on.
    Counter(f64),
    /// An arrow begins, in the slice that is open then.
    FlowStart(u64),
    /// An arrow goes on.
    FlowStep(u64),
    /// An arrow ends: at the slice that is open then, or at the next one that begins.
    FlowEnd(u64),
}

/// What is known of an event, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Arguments<'a> {
    /// Nothing.
    #[default]
    None,
    /// A JSON object, as it was written.
    Json(&'a str),
    /// Values by name.
    List(Vec<(String, Value)>),
}

/// A value of an argument.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A whole number.
    Whole(i64),
    /// A number.
    Real(f64),
    /// A text.
    Text(String),
    /// Lists, objects and what else JSON has, as it was written.
    Json(String),
}

/// A track: a thread, a queue of a device, or a counter.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Track {
    /// Its process, as it is numbered or named.
    pub process: String,
    /// Its thread, likewise.
    pub thread: String,
    /// The name of its process, where it was told.
    pub process_name: Option<String>,
    /// Its own name, where it was told.
    pub name: Option<String>,
    /// Whether it holds values.
    pub is_counter: bool,
}

/// What there was beside events.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    /// Tracks, in the order of their first mention.
    pub tracks: Vec<Track>,
    /// Other members of the outermost object, where they are short.
    pub members: Vec<(String, String)>,
    /// How many events were given.
    pub events: u64,
    /// How many records could not be read.
    pub malformed: u64,
    /// How many records are of a kind that nobody asks for.
    pub ignored: u64,
    /// What was wrong with the first ones.
    pub examples: Vec<String>,
    /// Whether the file ends in the middle.
    pub is_cut: bool,
}

/// So many malformed records are described; others are counted.
const EXAMPLES: usize = 5;
/// So much of the members of the outermost object is kept.
const MEMBERS: usize = 100;
/// A track is something a person looks at: files with more are not traces.
pub const MAX_TRACKS: usize = 100_000;

impl Found {
    /// Counts a record that could not be read.
    pub fn skip(&mut self, offset: u64, why: impl std::fmt::Display) {
        self.malformed += 1;
        if self.examples.len() < EXAMPLES {
            self.examples.push(format!("at byte {offset}: {why}"));
        }
    }

    /// A member of the outermost object, as text without quotes.
    pub fn member(&self, name: &str) -> Option<&str> {
        self.members.iter().find(|(known, _)| known == name).map(|(_, value)| value.trim_matches('"'))
    }
}

/// Why a file is not read at all.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("cannot read the trace `{}`: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is none of the formats we know.
    #[error("`{}` is no trace: {why}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What it is instead.
        why: String,
    },
    /// Whoever takes the events has no room for more.
    #[error("`{}` has more than {limit} {what}", path.display())]
    Large {
        /// The file.
        path: PathBuf,
        /// How many there may be.
        limit: usize,
        /// Of what.
        what: &'static str,
    },
}

/// What takes events says there is no room for more: how many there may be, and of what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full(pub usize, pub &'static str);

impl Arguments<'_> {
    /// Calls `take` with each argument; what is no object of JSON has none.
    pub fn each(&self, take: &mut dyn FnMut(&str, Value)) {
        match self {
            Arguments::None => {}
            Arguments::Json(text) => chrome::arguments(text, take),
            Arguments::List(list) => list.iter().for_each(|(name, value)| take(name, value.clone())),
        }
    }
}
