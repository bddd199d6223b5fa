//! A whole trace in memory, with a size limit, for checks, conversion and merging.

use super::open;
use super::{Error, Event, Full, Kind, TraceContents, Track, Value};
use crate::writer::sink::Role;
use std::collections::HashMap;
use std::io::Read;
use std::path::Path;

/// A slice (an interval on a track) or an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    pub track: u32,
    /// Index of the name among the texts.
    pub name: u32,
    pub category: u32,
    pub is_instant: bool,
    /// Whether the slice has no end event. It then ends at the end of the trace.
    pub is_unfinished: bool,
    pub start_ns: i64,
    pub end_ns: i64,
    pub arguments: (u32, u32),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ArgumentValue {
    Whole(i64),
    Real(f64),
    Text(u32),
    Json(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowPoint {
    pub flow: u64,
    pub track: u32,
    pub at_ns: i64,
    pub role: Role,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Slices with negative duration, which are kept with zero duration.
    pub negative_durations: u64,
    pub ends_without_begin: u64,
    /// Slices without an end event, which are extended to the end of the trace.
    pub begins_without_end: u64,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    pub found: TraceContents,
    /// Slices sorted by start, longer ones first.
    pub slices: Vec<Slice>,
    /// Counter values, as track, time in nanoseconds, and value.
    pub values: Vec<(u32, i64, f64)>,
    pub points: Vec<FlowPoint>,
    pub arguments: Vec<(u32, ArgumentValue)>,
    pub texts: Vec<Box<str>>,
    pub losses: Losses,
}

#[derive(Default)]
struct TrackPlaces(HashMap<Box<str>, u32>);

struct Keeper {
    trace: Trace,
    places: TrackPlaces,
    open: HashMap<u32, Vec<u32>>,
    bytes: usize,
    limit_mib: u32,
}

pub fn read_trace(path: &Path, limit_mib: u32) -> Result<Trace, Error> {
    let (format, input) = open::open_trace(path)?;
    read_from(path, format, input, limit_mib)
}

pub fn read_from(path: &Path, format: open::TraceFormat, input: Box<dyn Read>, limit_mib: u32) -> Result<Trace, Error> {
    let mut keeper = Keeper::new(limit_mib);
    let found = open::read_from(path, format, input, &mut |event| keeper.take_event(&event))?;
    Ok(keeper.finish(found))
}

impl Keeper {
    fn new(limit_mib: u32) -> Keeper {
        let mut keeper = Keeper {
            trace: Trace::default(),
            places: TrackPlaces::default(),
            open: HashMap::new(),
            bytes: 0,
            limit_mib,
        };
        keeper.intern_text("");
        keeper
    }

    fn intern_text(&mut self, text: &str) -> u32 {
        if let Some(known) = self.places.0.get(text) {
            return *known;
        }
        let place = self.trace.texts.len() as u32;
        self.trace.texts.push(text.into());
        self.places.0.insert(text.into(), place);
        self.bytes += 2 * text.len() + 64;
        place
    }

    fn take_event(&mut self, event: &Event<'_>) -> Result<(), Full> {
        let (track, at_ns) = (event.track, event.at_ns);
        match event.kind {
            Kind::Slice(length) => {
                self.trace.losses.negative_durations += u64::from(length < 0);
                self.add_slice(event, at_ns + length.max(0), false);
            }
            Kind::Begin => {
                let place = self.add_slice(event, i64::MAX, false);
                self.open.entry(track).or_default().push(place);
            }
            Kind::End => match self.open.get_mut(&track).and_then(Vec::pop) {
                Some(place) => {
                    let slice = &mut self.trace.slices[place as usize];
                    self.trace.losses.negative_durations += u64::from(at_ns < slice.start_ns);
                    slice.end_ns = at_ns.max(slice.start_ns);
                    slice.is_unfinished = false;
                }
                None => self.trace.losses.ends_without_begin += 1,
            },
            Kind::Instant => {
                self.add_slice(event, at_ns, true);
            }
            Kind::Counter(value) => {
                self.trace.values.push((track, at_ns, value));
                self.bytes += size_of::<(u32, i64, f64)>();
            }
            Kind::FlowStart(flow) => self.add_point(FlowPoint { flow, track, at_ns, role: Role::Start }),
            Kind::FlowStep(flow) => self.add_point(FlowPoint { flow, track, at_ns, role: Role::Step }),
            Kind::FlowEnd(flow) => self.add_point(FlowPoint { flow, track, at_ns, role: Role::End }),
        }
        // Indices are 32-bit.
        let is_full =
            self.bytes >> 20 >= self.limit_mib as usize || self.trace.arguments.len() >= u32::MAX as usize / 2;
        if is_full { Err(Full(self.limit_mib as usize, "MiB of events")) } else { Ok(()) }
    }

    fn add_point(&mut self, point: FlowPoint) {
        self.trace.points.push(point);
        self.bytes += size_of::<FlowPoint>();
    }

    fn add_slice(&mut self, event: &Event<'_>, end_ns: i64, is_instant: bool) -> u32 {
        let (name, category) = (self.intern_text(&event.name), self.intern_text(&event.category));
        let first = self.trace.arguments.len() as u32;
        event.arguments.visit_arguments(&mut |key, value| {
            let key = self.intern_text(key);
            let value = match value {
                Value::Whole(value) => ArgumentValue::Whole(value),
                Value::Real(value) => ArgumentValue::Real(value),
                Value::Text(text) => ArgumentValue::Text(self.intern_text(&text)),
                Value::Json(text) => ArgumentValue::Json(self.intern_text(&text)),
            };
            self.trace.arguments.push((key, value));
        });
        let count = self.trace.arguments.len() as u32 - first;
        self.bytes += size_of::<Slice>() + count as usize * size_of::<(u32, ArgumentValue)>();
        let (track, start_ns) = (event.track, event.at_ns);
        self.trace.slices.push(Slice {
            track,
            name,
            category,
            is_instant,
            is_unfinished: end_ns == i64::MAX,
            start_ns,
            end_ns,
            arguments: (first, count),
        });
        self.trace.slices.len() as u32 - 1
    }

    fn finish(mut self, found: TraceContents) -> Trace {
        let trace = &mut self.trace;
        trace.losses.begins_without_end = self.open.values().map(|open| open.len() as u64).sum();
        let ends = trace.slices.iter().filter(|slice| !slice.is_unfinished);
        let last = ends.map(|slice| slice.end_ns).chain(trace.slices.iter().map(|slice| slice.start_ns)).max();
        for slice in trace.slices.iter_mut().filter(|slice| slice.is_unfinished) {
            slice.end_ns = last.unwrap_or(slice.start_ns).max(slice.start_ns);
        }
        trace.slices.sort_by_key(|slice| (slice.start_ns, std::cmp::Reverse(slice.end_ns)));
        trace.points.sort_by_key(|point| point.at_ns);
        trace.values.sort_by_key(|value| value.1);
        trace.found = found;
        self.trace
    }
}

impl Trace {
    pub fn text(&self, place: u32) -> &str {
        &self.texts[place as usize]
    }

    pub fn track(&self, place: u32) -> &Track {
        &self.found.tracks[place as usize]
    }

    pub fn arguments(&self, slice: &Slice) -> &[(u32, ArgumentValue)] {
        let (first, count) = slice.arguments;
        &self.arguments[first as usize..(first + count) as usize]
    }

    pub fn integer_argument(&self, slice: &Slice, name: &str) -> Option<i64> {
        let found = self.arguments(slice).iter().find(|(key, _)| self.text(*key) == name)?;
        if let ArgumentValue::Whole(value) = found.1 { Some(value) } else { None }
    }

    pub fn time_span(&self) -> Option<(i64, i64)> {
        let values = || self.values.iter().map(|value| value.1);
        let start = self.slices.first().map(|slice| slice.start_ns).into_iter().chain(values()).min()?;
        let end = self.slices.iter().map(|slice| slice.end_ns).chain(values()).max()?;
        Some((start, end))
    }

    /// Assigns each flow point to the innermost open slice, or the end of an arrow outside of all slices to the next
    /// slice. Also returns the number of points without a slice.
    pub fn assign_arrows(&self) -> (HashMap<u32, Vec<(u64, Role)>>, u64) {
        let mut by_track: HashMap<u32, Vec<&FlowPoint>> = HashMap::new();
        self.points.iter().for_each(|point| by_track.entry(point.track).or_default().push(point));
        let mut slices: HashMap<u32, Vec<u32>> = HashMap::new();
        for (place, slice) in self.slices.iter().enumerate() {
            if by_track.contains_key(&slice.track) {
                slices.entry(slice.track).or_default().push(place as u32);
            }
        }
        let (mut arrows, mut lost): (HashMap<u32, Vec<(u64, Role)>>, u64) = (HashMap::new(), 0);
        for (track, points) in by_track {
            let own = slices.get(&track).map(Vec::as_slice).unwrap_or_default();
            let (mut next, mut open) = (0, Vec::new());
            for point in points {
                while next < own.len() && self.slices[own[next] as usize].start_ns <= point.at_ns {
                    open.push(own[next]);
                    next += 1;
                }
                while open.pop_if(|place| self.slices[*place as usize].end_ns < point.at_ns).is_some() {}
                let ahead = own.get(next).filter(|_| point.role == Role::End);
                match open.last().or(ahead) {
                    Some(place) => arrows.entry(*place).or_default().push((point.flow, point.role)),
                    None => lost += 1,
                }
            }
        }
        (arrows, lost)
    }
}
