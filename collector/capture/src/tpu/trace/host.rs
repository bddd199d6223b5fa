//! Host traces in any supported format, to be merged with a capture. Calls without an end event are closed at the end
//! of the trace and marked.

use super::key;
use super::track::Lanes;
use crate::events::{self, Event, Full, Kind, TraceContents, chrome, open};
use crate::tpu::loss::Losses;
use crate::tpu::{Error, Result};
use crate::writer::Packets;
use std::collections::HashMap;
use std::path::Path;

#[derive(Clone, Debug, PartialEq)]
pub struct HostSlice {
    pub name: String,
    pub category: String,
    pub start: i64,
    pub end: i64,
    pub is_incomplete: bool,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostTrace {
    /// Calls in the order of their starts, outer calls before inner ones.
    pub slices: Vec<HostSlice>,
    /// Host time in nanoseconds of the capture's time zero, if known.
    pub zero_ns: Option<i64>,
}

pub const LIBRARY: &str = "tpudnn";
const SWITCHES: [&str; 5] =
    ["PyTorch Profiler (0)", "enable_profile", "my_ops::enable_profile", "disable_profile", "my_ops::disable_profile"];

/// Maximum absolute time, so that sums of several times fit into 64 bits. Times since 1970 reach it in 2043.
const FARTHEST_NS: i64 = 2_300_000_000_000_000_000;
const MAX_CALLS: usize = 20_000_000;

struct HostEvent {
    kind: Kind,
    track: u32,
    name: String,
    category: String,
    at_ns: i64,
}

/// Checks that a file exists and starts like a trace.
pub fn check_host_trace(path: &Path) -> Result<()> {
    open::open_trace(path).map(drop).map_err(|error| convert_error(path, error))
}

/// Reads a host trace. `tail`: end of the last record, and host time from there to the end of `disable_profile`.
pub fn read_host_trace(path: &Path, tail: (i64, Option<i64>), losses: &mut Losses) -> Result<HostTrace> {
    let (format, input) = open::open_trace(path).map_err(|error| convert_error(path, error))?;
    gather_slices(path, tail, losses, |take| open::read_from(path, format, input, take))
}

pub fn parse_host_trace(path: &Path, bytes: &[u8], tail: (i64, Option<i64>), losses: &mut Losses) -> Result<HostTrace> {
    gather_slices(path, tail, losses, |take| {
        let read = chrome::read_events(bytes, take);
        let read = read.map_err(|source| events::Error::Read { path: path.to_owned(), source })?;
        read.map_err(|Full(limit, what)| events::Error::Large { path: path.to_owned(), limit, what })
    })
}

fn convert_error(path: &Path, error: events::Error) -> Error {
    match error {
        events::Error::Read { path, source } => Error::Read { path, source },
        error => Error::HostTrace { path: path.to_owned(), problem: error.to_string() },
    }
}

type Take<'a> = dyn FnMut(Event<'_>) -> std::result::Result<(), Full> + 'a;

fn gather_slices(
    path: &Path,
    tail: (i64, Option<i64>),
    losses: &mut Losses,
    read: impl FnOnce(&mut Take<'_>) -> std::result::Result<TraceContents, events::Error>,
) -> Result<HostTrace> {
    let mut seen = Vec::new();
    let mut far = 0_u64;
    let found = read(&mut |event| {
        if !matches!(event.kind, Kind::Slice(_) | Kind::Begin | Kind::End) {
            return Ok(());
        }
        if event.at_ns.unsigned_abs() > FARTHEST_NS.unsigned_abs() {
            far += 1;
            return Ok(());
        }
        if seen.len() >= MAX_CALLS {
            return Err(Full(MAX_CALLS, "calls"));
        }
        let (name, category) = (event.name.into_owned(), event.category.into_owned());
        seen.push(HostEvent { kind: event.kind, track: event.track, name, category, at_ns: event.at_ns });
        Ok(())
    });
    let found = found.map_err(|error| convert_error(path, error))?;
    if found.events == 0 && found.malformed > 0 {
        return Err(Error::HostTrace { path: path.to_owned(), problem: found.examples.join("; ") });
    }
    for example in &found.examples {
        losses.skip_part(path, None, example.clone());
    }
    (0..far).for_each(|_| losses.skip_part(path, None, "event time outside of the supported range".to_owned()));
    let slices = join_slices(path, seen, &found, losses);
    let zero_ns = zero_time(&slices, tail);
    let mut slices: Vec<HostSlice> =
        slices.into_iter().filter(|slice| !SWITCHES.contains(&slice.name.as_str())).collect();
    if zero_ns.is_none() && !slices.is_empty() {
        losses.add_note("the host trace has no call of category `tpudnn`; the capture starts at its time zero");
    }
    slices.sort_by_key(|slice| (slice.start, std::cmp::Reverse(slice.end)));
    Ok(HostTrace { slices, zero_ns })
}

fn end_of(at_ns: i64, length_ns: i64) -> i64 {
    at_ns.saturating_add(length_ns.max(0)).min(FARTHEST_NS)
}

fn join_slices(path: &Path, seen: Vec<HostEvent>, found: &TraceContents, losses: &mut Losses) -> Vec<HostSlice> {
    let ends =
        seen.iter().map(|one| if let Kind::Slice(length) = one.kind { end_of(one.at_ns, length) } else { one.at_ns });
    let latest = ends.fold(0, i64::max);
    let mut open: HashMap<u32, Vec<usize>> = HashMap::new();
    let mut slices: Vec<HostSlice> = Vec::new();
    for one in seen {
        let end = match one.kind {
            Kind::End => {
                match open.get_mut(&one.track).and_then(Vec::pop) {
                    Some(index) => {
                        let begun = &mut slices[index];
                        (begun.end, begun.is_incomplete) = (one.at_ns.max(begun.start), false);
                    }
                    None => {
                        let thread = found.tracks.get(one.track as usize).map_or("", |track| &track.thread);
                        losses.skip_part(path, None, format!("end event without a start event on thread {thread}"));
                    }
                }
                continue;
            }
            Kind::Slice(length) => Some(end_of(one.at_ns, length)),
            _ => {
                open.entry(one.track).or_default().push(slices.len());
                None
            }
        };
        slices.push(HostSlice {
            name: one.name,
            category: one.category,
            start: one.at_ns,
            end: end.unwrap_or(latest).max(one.at_ns),
            is_incomplete: end.is_none(),
        });
    }
    slices
}

fn zero_time(slices: &[HostSlice], (tail_ns, tail_offset_ns): (i64, Option<i64>)) -> Option<i64> {
    let library = || slices.iter().filter(|slice| slice.category == LIBRARY);
    let switched_off = library().filter(|slice| slice.name == "disable_profile").map(|slice| slice.end).max();
    match (switched_off, tail_offset_ns) {
        (Some(end), Some(offset)) => Some(end - offset - tail_ns),
        // Otherwise, the first call of the library is assumed to have started the recording.
        _ => library().find(|slice| !SWITCHES.contains(&slice.name.as_str())).map(|slice| slice.end),
    }
}

/// Assigns a lane to each call, such that the calls in a lane are properly nested.
pub fn assign_lanes(slices: &[&HostSlice]) -> Vec<u8> {
    const MAX_LANES: usize = 64;
    let mut stacks: Vec<Vec<i64>> = Vec::new();
    let choose = |slice: &&HostSlice| {
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

pub fn write_slices(packets: &mut Packets, lanes: &Lanes, slices: &[&HostSlice], places: &[u8], offset_ns: i64) {
    for (slice, place) in slices.iter().zip(places) {
        let span = (slice.start + offset_ns, slice.end + offset_ns);
        packets.write_slice(lanes.track_of(*place), span, &slice.category, &slice.name, |annotations| {
            if slice.is_incomplete {
                annotations.add_int(key::INCOMPLETE, 1);
            }
        });
    }
}
