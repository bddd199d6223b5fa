//! Consistency checks of a trace: readability, nesting, complete arrows and the order of device work.

use super::held::{Slice, Trace};
use crate::writer::sink::Role;
use report::{Paper, Table, figures, words};
use serde::Serialize;
use std::collections::{HashMap, HashSet};

/// Statistics of a trace and its faults.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CheckReport {
    pub slices: u64,
    pub values: u64,
    pub flows: u64,
    pub tracks: u64,
    /// Faults by kind, without absent kinds.
    pub faults: Vec<Fault>,
}

/// Faults of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// Identifier for scripts.
    pub kind: &'static str,
    pub count: u64,
    pub meaning: &'static str,
    /// Description of the first occurrence, if available.
    pub example: Option<String>,
}

impl CheckReport {
    /// Formats the statistics and the faults.
    pub fn text(&self, paper: &Paper) -> String {
        let CheckReport { slices, values, flows, tracks, faults } = self;
        let looked = format!("{slices} slices, {values} values of counters and {flows} arrows on {tracks} tracks");
        if faults.is_empty() {
            return format!("{looked}: nothing is wrong");
        }
        let mut table = Table::new([words("fault"), figures("count"), words("meaning"), words("the first one")]);
        for fault in faults {
            let example = fault.example.clone().unwrap_or_default();
            table.row([fault.kind.to_owned(), fault.count.to_string(), fault.meaning.to_owned(), example]);
        }
        format!("{looked}\n{}", table.on(paper))
    }
}

#[derive(Default)]
struct Faults(Vec<Fault>);

impl Faults {
    fn add(&mut self, kind: &'static str, meaning: &'static str, count: u64, example: Option<String>) {
        if count > 0 {
            self.0.push(Fault { kind, count, meaning, example });
        }
    }

    fn of(&mut self, kind: &'static str, meaning: &'static str, found: Vec<String>) {
        let count = found.len() as u64;
        self.add(kind, meaning, count, found.into_iter().next());
    }
}

pub fn check(trace: &Trace) -> CheckReport {
    let mut faults = Faults::default();
    let found = &trace.found;
    faults.add("cut", "the file ends in the middle", u64::from(found.is_cut), None);
    let malformed = found.malformed - u64::from(found.is_cut);
    faults.add("malformed", "records cannot be read", malformed, found.examples.first().cloned());
    let losses = &trace.losses;
    faults.add("negative_duration", "slices end before they begin", losses.negative_durations, None);
    faults.add("end_without_begin", "ends where nothing is open", losses.ends_without_begin, None);
    faults.add("begin_without_end", "slices begin and never end", losses.begins_without_end, None);
    faults.of("not_nested", "slices overlap another of their track without lying inside it", overlaps(trace));
    flows(trace, &mut faults);
    devices(trace, &mut faults);
    faults.of("steps", "step annotations are not one after the other", steps(trace));
    let flows: HashSet<u64> = trace.points.iter().map(|point| point.flow).collect();
    CheckReport {
        slices: trace.slices.len() as u64,
        values: trace.values.len() as u64,
        flows: flows.len() as u64,
        tracks: found.tracks.len() as u64,
        faults: faults.0,
    }
}

fn told(trace: &Trace, slice: &Slice) -> String {
    let track = trace.track(slice.track);
    let name = track.name.as_deref().unwrap_or(&track.thread);
    format!("`{}` at {} ns on `{name}`", trace.text(slice.name), slice.start_ns)
}

fn overlaps(trace: &Trace) -> Vec<String> {
    let mut open: HashMap<u32, Vec<i64>> = HashMap::new();
    let mut found = Vec::new();
    for slice in trace.slices.iter().filter(|slice| !slice.is_instant) {
        let open = open.entry(slice.track).or_default();
        while open.pop_if(|end| *end <= slice.start_ns).is_some() {}
        if open.last().is_some_and(|end| *end < slice.end_ns) {
            found.push(told(trace, slice));
        } else {
            open.push(slice.end_ns);
        }
    }
    found
}

/// Checks for arrows with a single end and points outside of slices.
fn flows(trace: &Trace, faults: &mut Faults) {
    // Perfetto's arrows have no start or end: any two points form an arrow.
    let mut ends: HashMap<u64, (u64, bool, bool)> = HashMap::new();
    for point in &trace.points {
        let ends = ends.entry(point.flow).or_default();
        ends.0 += 1;
        ends.1 |= point.role == Role::Start;
        ends.2 |= point.role == Role::End;
    }
    let is_chrome = trace.points.iter().any(|point| point.role == Role::Start);
    let count = |is: fn(&(u64, bool, bool)) -> bool| ends.values().filter(|ends| is(ends)).count() as u64;
    if is_chrome {
        faults.add("flow_without_end", "arrows begin and never arrive", count(|ends| ends.1 && !ends.2), None);
        faults.add("flow_without_start", "arrows arrive and never begin", count(|ends| !ends.1 && ends.2), None);
    } else {
        faults.add("flow_without_end", "arrows have one point only", count(|ends| ends.0 == 1), None);
    }
    let (_, lost) = trace.arrows();
    faults.add("flow_unbound", "points of arrows lie on no slice", lost, None);
}

/// Checks that device work starts after its launch and does not overlap on a stream.
fn devices(trace: &Trace, faults: &mut Faults) {
    let is = |slice: &Slice, categories: &[&str]| categories.contains(&trace.text(slice.category));
    let is_work = |slice: &&Slice| is(slice, &["kernel", "gpu_memcpy", "gpu_memset"]);
    let launches = trace.slices.iter().filter(|slice| is(slice, &["cuda_runtime", "cuda_driver"]));
    let launches: HashMap<i64, i64> =
        launches.filter_map(|slice| Some((trace.whole(slice, "correlation")?, slice.start_ns))).collect();
    let is_early = |slice: &&Slice| {
        let launch = trace.whole(slice, "correlation").and_then(|correlation| launches.get(&correlation));
        launch.is_some_and(|launch| slice.start_ns < *launch)
    };
    let early = trace.slices.iter().filter(is_work).filter(is_early).map(|slice| told(trace, slice)).collect();
    faults.of("kernel_before_launch", "work of a device begins before it was launched", early);
    let mut ends: HashMap<u32, i64> = HashMap::new();
    let mut overlapping = Vec::new();
    for slice in trace.slices.iter().filter(is_work) {
        let end = ends.entry(slice.track).or_insert(i64::MIN);
        if slice.start_ns < *end {
            overlapping.push(told(trace, slice));
        }
        *end = slice.end_ns.max(*end);
    }
    faults.of("stream_overlap", "work of a device overlaps other work of its stream", overlapping);
}

fn steps(trace: &Trace) -> Vec<String> {
    let steps = trace.slices.iter().filter_map(|slice| {
        let number: u64 = trace.text(slice.name).strip_prefix("ProfilerStep#")?.parse().ok()?;
        // The trace repeats the same steps on the device.
        (trace.text(slice.category) != "gpu_user_annotation").then_some((slice, number))
    });
    let steps: Vec<(&Slice, u64)> = steps.collect();
    let wrong = steps.windows(2).filter(|pair| pair[1].1 <= pair[0].1 || pair[1].0.start_ns < pair[0].0.end_ns);
    wrong.map(|pair| told(trace, pair[1].0)).collect()
}
