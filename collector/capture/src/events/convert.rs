//! Conversion of traces between formats, and merging of several traces.
//! Tracks are grouped by process. Viewers display only nested slices, so partially overlapping slices are moved to
//! additional lanes. Merged traces keep their processes separate, and each clock is shifted by an offset.

use super::in_memory::{ArgumentValue, Slice, Trace};
use crate::writer::sink::{Count, Format, Heading, Role, ShownArgument, ShownSlice, Sink, UNFINISHED, Written};
use crate::writer::{Sort, WrittenTrack};
use std::collections::{BTreeMap, HashMap};
use std::io::Write;

#[derive(Clone, Debug)]
pub struct Part {
    pub name: String,
    pub trace: Trace,
    pub offset_ns: i64,
}

/// Maximum number of lanes per track. Further overlapping slices are clamped.
const MAX_LANES: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Aligns all traces by the wall-clock time of their time zero, if all record it, as torch.profiler does.
    Clock,
    Start,
    Keep,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClockError {
    #[error("the wall-clock time of the origin (`{BASE_TIME}`) is missing in {0}")]
    Unknown(String),
    #[error("with these clock offsets, times exceed the range of 64-bit nanoseconds")]
    Overflow,
}

/// Member of a Chrome trace with the wall-clock time of its time zero.
pub const BASE_TIME: &str = "baseTimeNanoseconds";

fn wall_clock_zero(trace: &Trace) -> Option<i64> {
    trace.found.find_member(BASE_TIME)?.parse().ok()
}

/// Returns the offset of each trace. The errors contain the names of traces.
pub fn clock_offsets(traces: &[(String, &Trace)], align: Align) -> Result<Vec<i64>, ClockError> {
    let differences = |times: Vec<(i64, i64)>| {
        let difference = |(from, to): (i64, i64)| to.checked_sub(from).ok_or(ClockError::Overflow);
        times.into_iter().map(difference).collect()
    };
    match align {
        Align::Keep => Ok(vec![0; traces.len()]),
        Align::Start => {
            let starts: Vec<Option<i64>> = traces.iter().map(|(_, trace)| Some(trace.time_span()?.0)).collect();
            let earliest = starts.iter().copied().flatten().min().unwrap_or(0);
            differences(starts.iter().map(|start| (start.unwrap_or(earliest), earliest)).collect())
        }
        Align::Clock => {
            let without = traces.iter().filter(|(_, trace)| wall_clock_zero(trace).is_none());
            let without: Vec<String> = without.map(|(name, _)| format!("`{name}`")).collect();
            if !without.is_empty() {
                return Err(ClockError::Unknown(without.join(", ")));
            }
            let zeros: Vec<i64> = traces.iter().filter_map(|(_, trace)| wall_clock_zero(trace)).collect();
            differences(zeros.iter().map(|zero| (zeros[0], *zero)).collect())
        }
    }
}

/// Checks that all times fit with their offsets. Perfetto's format has no negative times: if the earliest event would
/// have one, all traces are shifted together so that this event is at 0.
pub fn fit_times(parts: &mut [Part], format: Format) -> Result<(), ClockError> {
    let spans = parts.iter().filter_map(|part| {
        let (start, end) = part.trace.time_span()?;
        let offset = i128::from(part.offset_ns);
        Some((i128::from(start) + offset, i128::from(end) + offset))
    });
    let Some((first, last)) = spans.reduce(|all, span| (all.0.min(span.0), all.1.max(span.1))) else { return Ok(()) };
    let shift = if format == Format::Perfetto { (-first).max(0) } else { 0 };
    let whole = |time: i128| i64::try_from(time).map_err(|_| ClockError::Overflow);
    whole(first + shift)?;
    whole(last + shift)?;
    for part in parts {
        part.offset_ns = whole(i128::from(part.offset_ns) + shift)?;
    }
    Ok(())
}

/// Writes all parts into one trace. [`fit_times`] must have accepted their offsets.
pub fn write_merged<W: Write>(parts: &[Part], format: Format, out: W, limit: u64) -> std::io::Result<(Written, W)> {
    let plan = ConversionPlan::plan_parts(parts);
    let keys: Vec<&str> = plan.keys.keys().copied().collect();
    let numbers: HashMap<&str, usize> = keys.iter().enumerate().map(|(number, key)| (*key, number)).collect();
    let members = merge_members(parts);
    let heading = Heading { tracks: &plan.tracks, keys: &keys, members: &members };
    let mut sink = Sink::new(format, heading, out, limit)?;
    for (Part { trace, offset_ns, .. }, own) in parts.iter().zip(&plan.parts) {
        let count = |(track, at_ns, value): &(u32, i64, f64)| Count {
            track: own.tracks[*track as usize],
            at_ns: at_ns + offset_ns,
            value: *value,
        };
        sink.add_counts(trace.values.iter().map(count));
    }
    for (part, own) in parts.iter().zip(&plan.parts) {
        let Part { trace, offset_ns, .. } = part;
        let (arrows, _) = trace.assign_arrows();
        let mut arguments = Vec::new();
        let mut flows = Vec::new();
        for (place, slice) in trace.slices.iter().enumerate() {
            arguments.clear();
            arguments.extend(trace.arguments(slice).iter().map(|(key, value)| {
                let value = match value {
                    ArgumentValue::Whole(value) => ShownArgument::Whole(*value),
                    ArgumentValue::Real(value) => ShownArgument::Real(*value),
                    ArgumentValue::Text(text) => ShownArgument::Text(trace.text(*text)),
                    ArgumentValue::Json(text) => ShownArgument::Json(trace.text(*text)),
                };
                (numbers[trace.text(*key)], value)
            }));
            flows.clear();
            flows.extend(
                arrows
                    .get(&(place as u32))
                    .into_iter()
                    .flatten()
                    .map(|(flow, role)| (own.salt_flow(*flow), own.written_role(*flow, *role, place as u32))),
            );
            sink.write_slice(&ShownSlice {
                track: own.track_of_slice(slice.track, place),
                start_ns: slice.start_ns + offset_ns,
                end_ns: match slice {
                    Slice { is_instant: true, .. } => None,
                    Slice { is_unfinished: true, .. } => Some(UNFINISHED),
                    _ => Some(slice.end_ns + offset_ns),
                },
                name: trace.text(slice.name),
                category: trace.text(slice.category),
                flows: &flows,
                arguments: &arguments,
            })?;
        }
    }
    sink.finish_trace()
}

/// Returns the members of the outermost object: those of the first trace, with the wall-clock time of the shifted time
/// zero, and a default time unit.
fn merge_members(parts: &[Part]) -> Vec<(String, String)> {
    let own = parts.first().map(|part| part.trace.found.members.as_slice()).unwrap_or_default();
    let mut members: Vec<(String, String)> = own.to_vec();
    members.retain(|(_, value)| serde_json::from_str::<serde::de::IgnoredAny>(value).is_ok());
    if let Some((Some(zero), offset_ns)) = parts.first().map(|part| (wall_clock_zero(&part.trace), part.offset_ns)) {
        let shifted = members.iter_mut().filter(|(name, _)| name == BASE_TIME && offset_ns != 0);
        shifted.for_each(|(_, value)| *value = zero.saturating_sub(offset_ns).to_string());
    }
    if !members.iter().any(|(name, _)| name == "displayTimeUnit") {
        members.push(("displayTimeUnit".to_owned(), "\"ms\"".to_owned()));
    }
    members
}

struct ConversionPlan<'a> {
    tracks: Vec<WrittenTrack>,
    keys: BTreeMap<&'a str, ()>,
    parts: Vec<PartPlan>,
}

struct PartPlan {
    tracks: Vec<usize>,
    lanes: HashMap<(u32, u16), usize>,
    /// For each slice that is not in the first lane of its track, by index, its lane.
    lane_of: HashMap<u32, u16>,
    ends: HashMap<u64, (u32, u32)>,
    /// Salt of the ids of flow arrows. It keeps this trace's arrows distinct from those of other traces.
    salt: u64,
}

impl PartPlan {
    fn track_of_slice(&self, track: u32, slice: usize) -> usize {
        match self.lane_of.get(&(slice as u32)) {
            Some(lane) => self.lanes[&(track, *lane)],
            None => self.tracks[track as usize],
        }
    }

    fn salt_flow(&self, flow: u64) -> u64 {
        flow ^ self.salt
    }

    /// Returns the role to write. Perfetto has only steps: an arrow's first step becomes the start, the last the end.
    fn written_role(&self, flow: u64, role: Role, slice: u32) -> Role {
        match (role, self.ends.get(&flow)) {
            (Role::Step, Some((first, _))) if *first == slice => Role::Start,
            (Role::Step, Some((_, last))) if *last == slice => Role::End,
            (role, _) => role,
        }
    }
}

impl<'a> ConversionPlan<'a> {
    fn plan_parts(parts: &'a [Part]) -> ConversionPlan<'a> {
        let mut plan = ConversionPlan { tracks: Vec::new(), keys: BTreeMap::new(), parts: Vec::new() };
        // Equal process ids in different traces are a coincidence.
        let mut processes: HashMap<&str, usize> = HashMap::new();
        for part in parts {
            let own: std::collections::HashSet<&str> =
                part.trace.found.tracks.iter().map(|track| track.process.as_str()).collect();
            own.into_iter().for_each(|process| *processes.entry(process).or_default() += 1);
        }
        for (number, part) in parts.iter().enumerate() {
            let trace = &part.trace;
            plan.keys.extend(trace.arguments.iter().map(|(key, _)| (trace.text(*key), ())));
            let own = plan.plan_part(part, parts.len() > 1, &processes, number as u64);
            plan.parts.push(own);
        }
        plan
    }

    fn plan_part(
        &mut self,
        part: &Part,
        is_one_of_many: bool,
        processes: &HashMap<&str, usize>,
        number: u64,
    ) -> PartPlan {
        let trace = &part.trace;
        let mut groups: HashMap<&str, usize> = HashMap::new();
        let mut tracks = Vec::new();
        for track in &trace.found.tracks {
            let is_shared = processes.get(track.process.as_str()).is_some_and(|count| *count > 1);
            let group = *groups.entry(&track.process).or_insert_with(|| {
                let name = track.process_name.as_deref().unwrap_or(&track.process);
                let name = if is_one_of_many { format!("{}: {name}", part.name) } else { name.to_owned() };
                let id = track.process.parse().ok().filter(|_| !is_shared);
                self.add_track(WrittenTrack {
                    name,
                    sort: id.map_or(Sort::Slices, Sort::Process),
                    ..WrittenTrack::default()
                })
            });
            let name = track.name.clone().unwrap_or_else(|| track.thread.clone());
            let numbers = (track.process.parse(), track.thread.parse());
            let sort = match numbers {
                _ if track.is_counter => Sort::Counter(""),
                (Ok(process), Ok(thread)) if !is_shared => Sort::Thread(process, thread),
                _ => Sort::Slices,
            };
            tracks.push(self.add_track(WrittenTrack { name, parent: Some(group), sort, ..WrittenTrack::default() }));
        }
        let (lane_of, count) = assign_lanes(&trace.slices);
        let mut lanes = HashMap::new();
        let mut widths: Vec<(u32, u16)> = count.into_iter().collect();
        widths.sort_unstable();
        for (track, width) in widths {
            let first = self.tracks[tracks[track as usize]].clone();
            for lane in 1..width {
                let name = format!("{} #{}", first.name, lane + 1);
                lanes.insert((track, lane), self.add_track(WrittenTrack { name, sort: Sort::Slices, ..first.clone() }));
            }
        }
        let mut ends: HashMap<u64, (u32, u32)> = HashMap::new();
        let (arrows, _) = trace.assign_arrows();
        for (slice, flows) in arrows {
            for (flow, _) in flows {
                let ends = ends.entry(flow).or_insert((slice, slice));
                *ends = (ends.0.min(slice), ends.1.max(slice));
            }
        }
        PartPlan { tracks, lanes, lane_of, ends, salt: number.wrapping_mul(0x9e37_79b9_7f4a_7c15) }
    }

    fn add_track(&mut self, track: WrittenTrack) -> usize {
        self.tracks.push(track);
        self.tracks.len() - 1
    }
}

/// Returns the lanes of slices outside the first lane, and the number of lanes per track.
fn assign_lanes(slices: &[Slice]) -> (HashMap<u32, u16>, HashMap<u32, u16>) {
    let mut open: HashMap<u32, Vec<Vec<i64>>> = HashMap::new();
    let mut lane_of = HashMap::new();
    for (place, slice) in slices.iter().enumerate().filter(|(_, slice)| !slice.is_instant) {
        let lanes = open.entry(slice.track).or_insert_with(|| vec![Vec::new()]);
        for lane in lanes.iter_mut() {
            while lane.pop_if(|end| *end <= slice.start_ns).is_some() {}
        }
        let end_ns = if slice.is_unfinished { UNFINISHED } else { slice.end_ns };
        let free = lanes.iter().position(|lane| lane.last().is_none_or(|end| *end >= end_ns));
        let lane = free.unwrap_or(lanes.len()).min(MAX_LANES - 1);
        if lane == lanes.len() {
            lanes.push(Vec::new());
        }
        lanes[lane].push(end_ns);
        if lane > 0 {
            lane_of.insert(place as u32, lane as u16);
        }
    }
    (lane_of, open.into_iter().map(|(track, lanes)| (track, lanes.len() as u16)).collect())
}
