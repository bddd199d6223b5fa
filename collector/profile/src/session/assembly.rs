//! Conversion of a session's recorded data to a profile.

use super::kept::{Session, extrapolate_count};
use crate::data::{Count, Counter, IN_TASKS, Kind, MemoryEvent, Pool, Profile, Refusal, Span, Track};
use crate::schedule::ProfileSchedule;
use measure::counters::{Channel, CounterReader};
use std::collections::BTreeMap;

impl Session {
    pub(super) fn into_profile(self, ran: u64, planned: u64, counters: &dyn CounterReader) -> Profile {
        let mut profile = Profile {
            counters: self.channels.iter().zip(&self.alone).map(|(one, alone)| to_counter(one, *alone)).collect(),
            refusals: counters.refusals().iter().map(to_refusal).collect(),
            spans: self.build_spans(),
            notes: self.collect_notes(ran, planned),
            memory: self.workspace_events(),
            ..Profile::default()
        };
        self.add_counts(&mut profile);
        self.add_threads(&mut profile);
        self.add_thread_counts(&mut profile);
        Profile { steps: self.steps, bare_ns: self.bare_ns, ..profile }
    }

    fn collect_notes(&self, ran: u64, planned: u64) -> Vec<String> {
        let mut notes = Vec::new();
        if self.stride > 1 {
            let (stride, recorded) = (self.stride, self.recorded);
            notes.push(format!("only one of {stride} of the {recorded} steps is kept, to limit memory"));
        }
        if ran < planned && planned < ProfileSchedule::default().active {
            notes.push(format!("the time limit was reached after {ran} of {planned} steps"));
        }
        notes
    }

    fn build_spans(&self) -> Vec<Span> {
        let of_step = |(step, stamps): (usize, &[u64])| {
            let step = u32::try_from(step).ok();
            let span = move |(call, pair): (usize, &[u64])| Span {
                operator: u32::try_from(call).expect("a program has fewer calls"),
                step,
                start_ns: pair[0],
                duration_ns: pair[1].saturating_sub(pair[0]),
                ..Span::default()
            };
            stamps.chunks_exact(2).enumerate().map(span).collect::<Vec<Span>>()
        };
        self.kept_stamps.chunks_exact((2 * self.calls).max(1)).enumerate().flat_map(of_step).collect()
    }

    fn add_threads(&self, profile: &mut Profile) {
        let all = || self.kept_threads.iter().flat_map(|threads| &threads.tasks);
        let Some(most) = all().map(|task| task.thread).max() else { return };
        let cpu_ns = |thread: usize| {
            let of_steps = self.kept_threads.iter().map(|threads| threads.cpu_ns.get(thread).copied());
            of_steps.sum::<Option<u64>>()
        };
        profile.tracks.push(Track::default());
        profile.tracks.extend((0..=most as usize).map(|thread| Track { cpu_ns: cpu_ns(thread), ..Track::default() }));
        for (step, threads) in self.kept_threads.iter().enumerate() {
            for task in threads.tasks.iter().filter(|task| task.call < self.calls) {
                let parent = step * self.calls + task.call;
                let whole = profile.spans[parent];
                // Timestamps of the same clock on two processors may differ slightly.
                let start_ns = task.start_ns.clamp(whole.start_ns, whole.end_ns());
                let end_ns = task.end_ns.clamp(start_ns, whole.end_ns());
                profile.spans.push(Span {
                    kind: Kind::Task,
                    parent: u32::try_from(parent).ok(),
                    track: task.thread + 1,
                    start_ns,
                    duration_ns: end_ns - start_ns,
                    ..whole
                });
            }
        }
    }

    /// Returns the counter of a channel of pool threads. Its name is separate: polling between tasks is excluded.
    fn task_counter(&self, channel: &Channel) -> Counter {
        let same = self.channels.iter().zip(&self.alone).find(|(own, _)| own.name == channel.name);
        let one = to_counter(channel, same.and_then(|(_, alone)| *alone));
        Counter { name: format!("{}{IN_TASKS}", one.name), coverage: "task".to_owned(), ..one }
    }

    /// Adds the counts of pool threads to the first task of each thread and call.
    fn add_thread_counts(&self, profile: &mut Profile) {
        let first = profile.counters.len();
        profile.counters.extend(self.thread_channels.iter().map(|channel| self.task_counter(channel)));
        let mut places: BTreeMap<(u32, u32, u32), usize> = BTreeMap::new();
        for (place, span) in profile.spans.iter().enumerate().filter(|(_, span)| span.kind == Kind::Task) {
            places.entry((span.step.unwrap_or(0), span.operator, span.track)).or_insert(place);
        }
        let index = |place: usize| u32::try_from(place).expect("the recorded data is bounded");
        for (step, counts) in self.kept_thread_counts.iter().enumerate() {
            for count in counts.iter().filter(|count| count.channel < self.thread_channels.len()) {
                let place = places.get(&(index(step), index(count.call), count.thread + 1));
                let Some((place, (value, running_ratio))) = place.zip(extrapolate_count(count.reading)) else {
                    continue;
                };
                let (span, counter) = (index(*place), index(first + count.channel));
                profile.counts.push(Count { span, counter, value, running_ratio });
            }
        }
    }

    /// Returns the workspace allocations of the first recorded step; all steps are equal. A call frees its workspace.
    fn workspace_events(&self) -> Vec<MemoryEvent> {
        let events = |((call, bytes), stamps): ((usize, &u64), &[u64])| {
            let event = |at_ns: u64, bytes: i64, live_bytes: u64| MemoryEvent {
                at_ns,
                span: u32::try_from(call).ok(),
                pool: Pool::Workspace,
                bytes,
                live_bytes,
            };
            let signed = i64::try_from(*bytes).unwrap_or(i64::MAX);
            [event(stamps[0], signed, *bytes), event(stamps[1].max(stamps[0]), -signed, 0)]
        };
        let asked = self.workspace_bytes.iter().flatten().enumerate();
        asked.zip(self.kept_stamps.chunks_exact(2)).flat_map(events).collect()
    }

    /// Adds the counts of all calls. Reports a counter without any count as refused.
    fn add_counts(&self, profile: &mut Profile) {
        let channels = self.channels.len();
        let mut seen = vec![false; channels];
        for (place, passed) in self.kept_counts.iter().enumerate() {
            let (span, channel) = (place / channels, place % channels);
            let Some((value, running_ratio)) = passed.and_then(extrapolate_count) else { continue };
            seen[channel] = true;
            let index = |place: usize| u32::try_from(place).expect("the recorded data is bounded");
            profile.counts.push(Count { span: index(span), counter: index(channel), value, running_ratio });
        }
        for (counter, _) in self.channels.iter().zip(seen).filter(|(_, seen)| !seen && !self.steps.is_empty()) {
            profile.refusals.push(Refusal {
                counter: counter.name.clone(),
                source: counter.step.source_name().to_owned(),
                errno: None,
                why: "no count, a decreasing count, or no free register".to_owned(),
            });
        }
    }
}

fn to_counter(channel: &Channel, alone: Option<f64>) -> Counter {
    Counter {
        name: channel.name.clone(),
        unit: channel.unit.clone(),
        source: channel.step.source_name().to_owned(),
        native: channel.native.clone(),
        coverage: channel.coverage.name().to_owned(),
        alone,
    }
}

pub fn to_refusal(refusal: &measure::counters::Refusal) -> Refusal {
    Refusal {
        counter: refusal.event.clone(),
        source: refusal.step.source_name().to_owned(),
        errno: refusal.errno,
        why: refusal.why.clone(),
    }
}
