//! Statistics of pool threads: balance, wake-up latency, and time outside of tasks.

use crate::data::{Kind, Profile};
use measure::statistics::median;
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Thread {
    pub name: String,
    pub id: u64,
    pub tasks: u64,
    pub busy_ns: u64,
    /// Ratio of the time in tasks to the duration of all steps.
    pub busy_share: f64,
    /// Duration of all operators minus the time of this thread's tasks.
    pub idle_ns: u64,
    /// Processor time outside tasks: polling, waking and sleeping, and the calling thread's own code.
    pub polling_ns: Option<u64>,
    /// Counts per step, summed over the tasks of the thread.
    pub counters: BTreeMap<String, f64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    pub tasks_per_call: Option<f64>,
    /// Ratio of the busiest thread's time to the mean over all threads, in the median call; 1 is balanced.
    pub imbalance: Option<f64>,
    /// Time from the start of the median call until the last thread started its first task.
    pub wake_ns: Option<f64>,
}

pub fn thread_statistics(profile: &Profile) -> Vec<Thread> {
    let total_ns: u64 = profile.steps.iter().map(|step| step.duration_ns).sum();
    let operators = profile.spans.iter().filter(|span| span.kind == Kind::Operator);
    let operators_ns: u64 = operators.map(|span| span.duration_ns).sum();
    let mut all: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for span in profile.spans.iter().filter(|span| span.kind == Kind::Task) {
        let one = all.entry(span.track).or_default();
        *one = (one.0 + 1, one.1 + span.duration_ns);
    }
    let mut counts: BTreeMap<u32, BTreeMap<String, f64>> = BTreeMap::new();
    for count in &profile.counts {
        let span = &profile.spans[count.span as usize];
        if span.kind == Kind::Task {
            let name = &profile.counters[count.counter as usize].name;
            let sum = counts.entry(span.track).or_default().entry(name.clone()).or_default();
            *sum += count.value as f64 / profile.steps.len().max(1) as f64;
        }
    }
    let mut thread = |(track, (tasks, busy_ns)): (u32, (u64, u64))| {
        let counters = counts.remove(&track).unwrap_or_default();
        let track = &profile.tracks[track as usize];
        Thread {
            name: track.name.clone(),
            id: track.id,
            tasks,
            busy_ns,
            busy_share: if total_ns == 0 { 0.0 } else { busy_ns as f64 / total_ns as f64 },
            idle_ns: operators_ns.saturating_sub(busy_ns),
            polling_ns: track.cpu_ns.map(|cpu_ns| cpu_ns.saturating_sub(busy_ns)),
            counters,
        }
    };
    all.into_iter().map(&mut thread).collect()
}

pub(super) type Parts = BTreeMap<usize, Part>;

#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    tasks: u64,
    imbalance: f64,
    wake_ns: f64,
}

pub(super) fn task_parts(profile: &Profile) -> Parts {
    let mut spans: BTreeMap<usize, BTreeMap<u32, (u64, u64)>> = BTreeMap::new();
    let mut counts: BTreeMap<usize, u64> = BTreeMap::new();
    let tasks = profile.spans.iter().filter(|span| span.kind == Kind::Task);
    let threads = tasks.clone().map(|span| span.track).collect::<std::collections::BTreeSet<_>>().len();
    for span in tasks {
        let Some(parent) = span.parent.map(|parent| parent as usize) else { continue };
        let one = spans.entry(parent).or_default().entry(span.track).or_insert((0, u64::MAX));
        *one = (one.0 + span.duration_ns, one.1.min(span.start_ns));
        *counts.entry(parent).or_default() += 1;
    }
    let part = |(parent, by_thread): (usize, BTreeMap<u32, (u64, u64)>)| {
        let busy: u64 = by_thread.values().map(|(busy_ns, _)| busy_ns).sum();
        let most = by_thread.values().map(|(busy_ns, _)| *busy_ns).max().unwrap_or(0);
        let last = by_thread.values().map(|(_, start_ns)| *start_ns).max().unwrap_or(0);
        let imbalance = if busy == 0 { 1.0 } else { most as f64 * threads as f64 / busy as f64 };
        let wake_ns = last.saturating_sub(profile.spans[parent].start_ns) as f64;
        (parent, Part { tasks: counts[&parent], imbalance, wake_ns })
    };
    spans.into_iter().map(part).collect()
}

impl Spread {
    pub(super) fn from_parts(parts: &[Part], calls: usize) -> Spread {
        if parts.is_empty() {
            return Spread::default();
        }
        let middle = |value: fn(&Part) -> f64| median(&parts.iter().map(value).collect::<Vec<f64>>());
        let tasks: u64 = parts.iter().map(|part| part.tasks).sum();
        Spread {
            tasks_per_call: Some(tasks as f64 / calls.max(1) as f64),
            imbalance: middle(|part| part.imbalance),
            wake_ns: middle(|part| part.wake_ns),
        }
    }
}
