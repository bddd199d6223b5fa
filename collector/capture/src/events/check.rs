//! Consistency checks of a trace: readable records, nested slices, complete flow arrows, and the order of device work.

use super::in_memory::{Slice, Trace};
use crate::writer::sink::Role;
use report::{Paper, Table, format_count, number_column, text_column};
use serde::Serialize;
use std::collections::{HashMap, HashSet};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CheckReport {
    pub slices: u64,
    pub values: u64,
    pub flows: u64,
    pub tracks: u64,
    pub faults: Vec<Fault>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fault {
    pub kind: &'static str,
    pub count: u64,
    pub meaning: &'static str,
    pub example: Option<String>,
}

impl CheckReport {
    pub fn format_text(&self, paper: &Paper) -> String {
        let CheckReport { slices, values, flows, tracks, faults } = self;
        let looked = format!(
            "{}, {} and {} on {}",
            format_count(*slices, "slice"),
            format_count(*values, "counter value"),
            format_count(*flows, "flow arrow"),
            format_count(*tracks, "track")
        );
        if faults.is_empty() {
            return format!("{looked}: no errors");
        }
        let mut table = Table::new([
            text_column("fault"),
            number_column("count"),
            text_column("meaning"),
            text_column("first example"),
        ]);
        for fault in faults {
            let example = fault.example.clone().unwrap_or_default();
            table.add_row([fault.kind.to_owned(), fault.count.to_string(), fault.meaning.to_owned(), example]);
        }
        format!("{looked}\n{}", table.format_for(paper))
    }
}

#[derive(Default)]
struct Faults(Vec<Fault>);

impl Faults {
    fn add_fault(&mut self, kind: &'static str, meaning: &'static str, count: u64, example: Option<String>) {
        if count > 0 {
            self.0.push(Fault { kind, count, meaning, example });
        }
    }

    fn add_examples(&mut self, kind: &'static str, meaning: &'static str, found: Vec<String>) {
        let count = found.len() as u64;
        self.add_fault(kind, meaning, count, found.into_iter().next());
    }
}

pub fn check_trace(trace: &Trace) -> CheckReport {
    let mut faults = Faults::default();
    let found = &trace.found;
    faults.add_fault("cut", "the file ends prematurely", u64::from(found.is_cut), None);
    let malformed = found.malformed - u64::from(found.is_cut);
    faults.add_fault("malformed", "records cannot be read", malformed, found.examples.first().cloned());
    let losses = &trace.losses;
    faults.add_fault("negative_duration", "slices end before they start", losses.negative_durations, None);
    faults.add_fault("end_without_begin", "slice ends without a start", losses.ends_without_begin, None);
    faults.add_fault("begin_without_end", "slices without an end", losses.begins_without_end, None);
    faults.add_examples("not_nested", "slices partially overlap another slice of their track", find_overlaps(trace));
    check_flows(trace, &mut faults);
    check_devices(trace, &mut faults);
    faults.add_examples("steps", "step annotations overlap or are out of order", find_step_faults(trace));
    let flows: HashSet<u64> = trace.points.iter().map(|point| point.flow).collect();
    CheckReport {
        slices: trace.slices.len() as u64,
        values: trace.values.len() as u64,
        flows: flows.len() as u64,
        tracks: found.tracks.len() as u64,
        faults: faults.0,
    }
}

fn describe_slice(trace: &Trace, slice: &Slice) -> String {
    let track = trace.track(slice.track);
    let name = track.name.as_deref().unwrap_or(&track.thread);
    format!("`{}` at {} ns on `{name}`", trace.text(slice.name), slice.start_ns)
}

fn find_overlaps(trace: &Trace) -> Vec<String> {
    let mut open: HashMap<u32, Vec<i64>> = HashMap::new();
    let mut found = Vec::new();
    for slice in trace.slices.iter().filter(|slice| !slice.is_instant) {
        let open = open.entry(slice.track).or_default();
        while open.pop_if(|end| *end <= slice.start_ns).is_some() {}
        if open.last().is_some_and(|end| *end < slice.end_ns) {
            found.push(describe_slice(trace, slice));
        } else {
            open.push(slice.end_ns);
        }
    }
    found
}

fn check_flows(trace: &Trace, faults: &mut Faults) {
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
        faults.add_fault("flow_without_end", "flow arrows without an end", count(|ends| ends.1 && !ends.2), None);
        faults.add_fault("flow_without_start", "flow arrows without a start", count(|ends| !ends.1 && ends.2), None);
    } else {
        faults.add_fault("flow_without_end", "flow arrows with only one point", count(|ends| ends.0 == 1), None);
    }
    let (_, lost) = trace.assign_arrows();
    faults.add_fault("flow_unbound", "points of flow arrows outside of all slices", lost, None);
}

fn check_devices(trace: &Trace, faults: &mut Faults) {
    let is = |slice: &Slice, categories: &[&str]| categories.contains(&trace.text(slice.category));
    let is_work = |slice: &&Slice| is(slice, &["kernel", "gpu_memcpy", "gpu_memset"]);
    let launches = trace.slices.iter().filter(|slice| is(slice, &["cuda_runtime", "cuda_driver"]));
    let launches: HashMap<i64, i64> =
        launches.filter_map(|slice| Some((trace.integer_argument(slice, "correlation")?, slice.start_ns))).collect();
    let is_early = |slice: &&Slice| {
        let launch = trace.integer_argument(slice, "correlation").and_then(|correlation| launches.get(&correlation));
        launch.is_some_and(|launch| slice.start_ns < *launch)
    };
    let early =
        trace.slices.iter().filter(is_work).filter(is_early).map(|slice| describe_slice(trace, slice)).collect();
    faults.add_examples("kernel_before_launch", "device work starts before its launch", early);
    let mut ends: HashMap<u32, i64> = HashMap::new();
    let mut overlapping = Vec::new();
    for slice in trace.slices.iter().filter(is_work) {
        let end = ends.entry(slice.track).or_insert(i64::MIN);
        if slice.start_ns < *end {
            overlapping.push(describe_slice(trace, slice));
        }
        *end = slice.end_ns.max(*end);
    }
    faults.add_examples("stream_overlap", "device work overlaps other work of its stream", overlapping);
}

fn find_step_faults(trace: &Trace) -> Vec<String> {
    let steps = trace.slices.iter().filter_map(|slice| {
        let number: u64 = trace.text(slice.name).strip_prefix("ProfilerStep#")?.parse().ok()?;
        // The trace repeats the same steps on the device.
        (trace.text(slice.category) != "gpu_user_annotation").then_some((slice, number))
    });
    let steps: Vec<(&Slice, u64)> = steps.collect();
    let wrong = steps.windows(2).filter(|pair| pair[1].1 <= pair[0].1 || pair[1].0.start_ns < pair[0].0.end_ns);
    wrong.map(|pair| describe_slice(trace, pair[1].0)).collect()
}
