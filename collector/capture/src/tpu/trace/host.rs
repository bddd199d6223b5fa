//! A trace of the host, in the format of Chrome's tracing, to stand beside the records.
//!
//! Whole traces, bare lists of events and traces that end in the middle are read alike: events are taken one by one
//! until the text ends. Calls that begin and end in separate events are joined; those that never end are closed with
//! the trace and say so.

use super::key;
use super::track::Lanes;
use crate::tpu::loss::Losses;
use crate::tpu::{Error, Result};
use crate::writer::Packets;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::collections::HashMap;
use std::fmt;
use std::io::Read;
use std::path::Path;

/// One call on the host.
#[derive(Clone, Debug, PartialEq)]
pub struct Slice {
    /// What was called.
    pub name: String,
    /// Its group.
    pub category: String,
    /// Begin.
    pub start: i64,
    /// End.
    pub end: i64,
    /// Whether the trace did not hold its end.
    pub is_incomplete: bool,
}

/// A trace of the host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostTrace {
    /// Calls in order of begin, outer ones first.
    pub slices: Vec<Slice>,
    /// Where the time of the records begins, in this trace's time.
    pub zero_ns: Option<i64>,
}

/// The group of calls into the TPU's library.
pub const LIBRARY: &str = "tpudnn";
const SWITCHES: [&str; 5] =
    ["PyTorch Profiler (0)", "enable_profile", "my_ops::enable_profile", "disable_profile", "my_ops::disable_profile"];

/// Times farther from zero than this, in microseconds, are none: sums of several must fit into nanoseconds of 64 bits.
/// Those since 1970 reach it in 2043.
const FARTHEST: f64 = 2.3e15;
/// A file larger than this is no trace that anybody can look at.
const MAX_BYTES: u64 = 4 << 30;

/// A time that may be written as a number or as text.
#[derive(Clone, Copy, Debug, Default)]
struct Micros(Option<f64>);

impl<'de> Deserialize<'de> for Micros {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Micros, D::Error> {
        let time = match serde_json::Value::deserialize(deserializer)? {
            serde_json::Value::Number(number) => number.as_f64(),
            serde_json::Value::String(text) => text.trim().parse().ok(),
            _ => None,
        };
        Ok(Micros(time.filter(|time: &f64| time.abs() <= FARTHEST)))
    }
}

/// An event as it is written; what is missing or of another kind is empty.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Raw {
    #[serde(deserialize_with = "text")]
    ph: String,
    #[serde(deserialize_with = "text")]
    cat: String,
    #[serde(deserialize_with = "text")]
    name: String,
    ts: Micros,
    dur: Micros,
    #[serde(deserialize_with = "text")]
    pid: String,
    #[serde(deserialize_with = "text")]
    tid: String,
}

fn text<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<String, D::Error> {
    Ok(match serde_json::Value::deserialize(deserializer)? {
        serde_json::Value::String(text) => text,
        serde_json::Value::Null => String::new(),
        other => other.to_string(),
    })
}

/// Collects events while the text is read, so that a broken end does not cost what came before.
struct Collect<'a>(&'a mut Vec<Raw>);

impl<'de> serde::de::DeserializeSeed<'de> for Collect<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> std::result::Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Collect<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with `traceEvents`, or a list of events")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> std::result::Result<(), A::Error> {
        while let Some(event) = list.next_element::<Raw>()? {
            self.0.push(event);
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<(), A::Error> {
        while let Some(name) = map.next_key::<String>()? {
            if name == "traceEvents" {
                map.next_value_seed(Collect(&mut *self.0))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

/// Reads a trace; `tail` is the end of the last record and the host time from there to the end of `disable_profile`.
pub fn read(path: &Path, tail: (i64, Option<i64>), losses: &mut Losses) -> Result<HostTrace> {
    let failed = |source| Error::Read { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_BYTES {
        let problem = format!("it has more than {} GiB", MAX_BYTES >> 30);
        return Err(Error::HostTrace { path: path.to_owned(), problem });
    }
    parse(path, &bytes, tail, losses)
}

/// The same from bytes.
pub fn parse(path: &Path, bytes: &[u8], tail: (i64, Option<i64>), losses: &mut Losses) -> Result<HostTrace> {
    use serde::de::DeserializeSeed;
    let mut events = Vec::new();
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    if let Err(error) = Collect(&mut events).deserialize(&mut deserializer) {
        if events.is_empty() {
            return Err(Error::HostTrace { path: path.to_owned(), problem: error.to_string() });
        }
        losses.skip(path, None, format!("the trace breaks off after {} events: {error}", events.len()));
    }
    let slices = join(path, events, losses);
    let zero_ns = zero(&slices, tail);
    let mut slices: Vec<Slice> = slices.into_iter().filter(|slice| !SWITCHES.contains(&slice.name.as_str())).collect();
    if zero_ns.is_none() && !slices.is_empty() {
        losses.note("the host trace has no call of category `tpudnn`; records begin at its time zero");
    }
    slices.sort_by_key(|slice| (slice.start, std::cmp::Reverse(slice.end)));
    Ok(HostTrace { slices, zero_ns })
}

fn ns(micros: f64) -> i64 {
    (micros * 1000.0) as i64
}

/// Calls in the order they are listed.
fn join(path: &Path, events: Vec<Raw>, losses: &mut Losses) -> Vec<Slice> {
    let ends = events.iter().filter_map(|event| Some(event.ts.0? + event.dur.0.unwrap_or(0.0)));
    let latest = ends.fold(0.0, f64::max).min(FARTHEST);
    let mut open: HashMap<(String, String), Vec<usize>> = HashMap::new();
    let mut slices: Vec<Slice> = Vec::new();
    for event in events {
        if !matches!(event.ph.as_str(), "X" | "B" | "E") {
            continue;
        }
        let Some(start) = event.ts.0 else {
            losses.skip(path, None, format!("the event `{}` has no time that can be shown", event.name));
            continue;
        };
        let thread = (event.pid, event.tid);
        if event.ph == "E" {
            match open.get_mut(&thread).and_then(Vec::pop) {
                Some(index) => {
                    let begun = &mut slices[index];
                    (begun.end, begun.is_incomplete) = (ns(start).max(begun.start), false);
                }
                None => losses.skip(path, None, format!("an end without a begin on thread {}", thread.1)),
            }
            continue;
        }
        let duration = if event.ph == "X" { event.dur.0 } else { None };
        if duration.is_none() && event.ph == "B" {
            open.entry(thread).or_default().push(slices.len());
        }
        slices.push(Slice {
            name: event.name,
            category: event.cat,
            start: ns(start),
            end: ns(duration.map_or(latest, |duration| start + duration.max(0.0)).clamp(start, FARTHEST)),
            is_incomplete: duration.is_none(),
        });
    }
    slices
}

fn zero(slices: &[Slice], (tail_ns, tail_offset_ns): (i64, Option<i64>)) -> Option<i64> {
    let library = || slices.iter().filter(|slice| slice.category == LIBRARY);
    let switched_off = library().filter(|slice| slice.name == "disable_profile").map(|slice| slice.end).max();
    match (switched_off, tail_offset_ns) {
        (Some(end), Some(offset)) => Some(end - offset - tail_ns),
        // Without both, the first call of the library is taken for the one that started the records.
        _ => library().find(|slice| !SWITCHES.contains(&slice.name.as_str())).map(|slice| slice.end),
    }
}

/// A lane for each call, so that on one lane calls only nest.
pub fn lanes(slices: &[&Slice]) -> Vec<u8> {
    const MAX_LANES: usize = 64;
    let mut stacks: Vec<Vec<i64>> = Vec::new();
    let choose = |slice: &&Slice| {
        for stack in &mut stacks {
            while stack.last().is_some_and(|end| *end <= slice.start) {
                stack.pop();
            }
        }
        let free = stacks.iter().position(|stack| stack.last().is_none_or(|end| *end >= slice.end));
        let lane = free.unwrap_or(stacks.len()).min(MAX_LANES - 1);
        if lane == stacks.len() {
            stacks.push(Vec::new());
        }
        stacks[lane].push(slice.end);
        lane as u8
    };
    slices.iter().map(choose).collect()
}

/// Writes calls to their lanes.
pub fn write(packets: &mut Packets, lanes: &Lanes, slices: &[&Slice], places: &[u8], offset_ns: i64) {
    for (slice, place) in slices.iter().zip(places) {
        let span = (slice.start + offset_ns, slice.end + offset_ns);
        packets.slice(lanes.track(*place), span, &slice.category, &slice.name, |annotations| {
            if slice.is_incomplete {
                annotations.int(key::INCOMPLETE, 1);
            }
        });
    }
}
