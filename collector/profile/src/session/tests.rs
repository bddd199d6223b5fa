//! Tests of sessions on a clock that only the test advances.

use super::kept::extrapolate_count;
use super::*;
use measure::counters::{Channel, Coverage, NoCounters, Reading, Step as Source, Usage};
use std::time::Duration;

#[derive(Clone, Default)]
struct SharedClock(std::rc::Rc<std::cell::Cell<u64>>);

impl SharedClock {
    fn pass(&self, ns: u64) {
        self.0.set(self.0.get() + ns);
    }
}

impl Clock for SharedClock {
    fn now_ns(&mut self) -> u64 {
        self.0.get()
    }

    fn precision_ns(&self) -> u64 {
        1
    }

    fn read_usage(&mut self) -> Usage {
        Usage::default()
    }

    fn speed_probe_ns(&mut self) -> u64 {
        1
    }

    fn sleep(&mut self, duration: Duration) {
        self.pass(u64::try_from(duration.as_nanos()).expect("a short time"));
    }

    fn prepare_caches(&mut self, _: measure::Cache) {}
}

/// A model whose calls take 10, 20, 30 … ns, with 1 ns before each.
struct Model {
    clock: SharedClock,
    calls: usize,
    bare_runs: u64,
    watched_runs: u64,
    tasks: Vec<Task>,
}

impl Model {
    fn new(clock: &SharedClock, calls: usize) -> Model {
        Model { clock: clock.clone(), calls, bare_runs: 0, watched_runs: 0, tasks: Vec::new() }
    }

    fn call(&self, call: usize) {
        self.clock.pass(10 * (call as u64 + 1));
    }
}

impl Subject for Model {
    type Error = String;

    fn call_count(&self) -> usize {
        self.calls
    }

    fn run(&mut self) -> Result<(), String> {
        self.bare_runs += 1;
        (0..self.calls).for_each(|call| self.call(call));
        Ok(())
    }

    fn run_watched(&mut self, watch: &mut impl Watch) -> Result<(), String> {
        self.watched_runs += 1;
        for call in 0..self.calls {
            self.clock.pass(1);
            watch.begin_call(call);
            self.call(call);
            watch.end_call(call);
        }
        if self.watched_runs > 1000 { Err("worn out".to_owned()) } else { Ok(()) }
    }

    fn workspace_bytes(&mut self) -> Result<Option<Vec<u64>>, String> {
        Ok((self.calls == 2).then(|| vec![0, 640]))
    }

    fn tasks(&mut self) -> Vec<Task> {
        self.tasks.clone()
    }

    fn threads_cpu_ns(&mut self) -> Vec<u64> {
        vec![self.clock.0.get(), 7 * self.watched_runs]
    }
}

/// Counters, some of them in groups: each reading increases channel `i`, counted from 0, by `i + 1`.
struct Fake {
    channels: Vec<Channel>,
    groups: usize,
    selected: usize,
    now: u64,
}

impl Fake {
    fn new(groups: &[Option<usize>]) -> Fake {
        let channel = |(place, group): (usize, &Option<usize>)| Channel {
            name: format!("counter-{place}"),
            unit: "count".to_owned(),
            step: Source::Perf,
            native: String::new(),
            coverage: Coverage::Thread,
            group: *group,
        };
        let most = groups.iter().flatten().max().map_or(1, |most| most + 1);
        Fake { channels: groups.iter().enumerate().map(channel).collect(), groups: most, selected: 0, now: 0 }
    }
}

impl CounterReader for Fake {
    fn channels(&self) -> &[Channel] {
        &self.channels
    }

    fn group_count(&self) -> usize {
        self.groups
    }

    fn select_group(&mut self, group: usize) {
        self.selected = group;
    }

    fn read_channels(&mut self, into: &mut [Option<Reading>]) {
        self.now += 1;
        for (place, channel) in self.channels.iter().enumerate() {
            let counts = channel.group.is_none_or(|own| own == self.selected);
            into[place] =
                counts.then(|| Reading { value: self.now * (place as u64 + 1), enabled_ns: 0, running_ns: 0 });
        }
    }

    fn refusals(&self) -> &[measure::counters::Refusal] {
        &[]
    }
}

fn plan(schedule: &str) -> Plan {
    Plan::new(schedule.parse().expect("a schedule"), 1_000_000)
}

#[test]
fn only_active_steps_are_kept_each_with_an_unprofiled_run() {
    let mut clock = SharedClock::default();
    let mut model = Model::new(&clock, 3);
    let plan = plan("skip_first=2,wait=1,warmup=1,active=2,repeat=2");
    let profile = profile_model(&mut model, &plan, &mut clock, &mut NoCounters).expect("it runs");
    let numbers: Vec<(u64, u32)> = profile.steps.iter().map(|step| (step.number, step.cycle)).collect();
    assert_eq!(numbers, [(4, 0), (5, 0), (8, 1), (9, 1)]);
    assert_eq!(
        (model.bare_runs, model.watched_runs),
        (4 + 2 + 4, 6),
        "skipped, waiting and warm-up steps, and one per recorded step"
    );
    assert_eq!(profile.bare_ns, [60; 4]);
    let durations: Vec<u64> = profile.spans.iter().map(|span| span.duration_ns).collect();
    assert_eq!(durations, [10, 20, 30].repeat(4));
    assert!(profile.steps.iter().all(|step| step.duration_ns == 63), "{:?}", profile.steps);
    assert_eq!(profile.notes, Vec::<String>::new());
}

#[test]
fn counter_groups_have_separate_runs_and_the_same_spans() {
    let mut clock = SharedClock::default();
    let mut model = Model::new(&clock, 2);
    let mut counters = Fake::new(&[None, Some(0), Some(1)]);
    let profile = profile_model(&mut model, &plan("active=2,repeat=1"), &mut clock, &mut counters).expect("it runs");
    assert_eq!(model.watched_runs, 2 * (1 + 2));
    let counts: Vec<(u32, u32, u64)> = profile.counts.iter().map(|one| (one.span, one.counter, one.value)).collect();
    let wanted = (0..4).flat_map(|span| [(span, 0, 1), (span, 1, 2), (span, 2, 3)]);
    assert_eq!(counts, wanted.collect::<Vec<_>>());
    assert_eq!(profile.refusals, []);
    let alone: Vec<Option<f64>> = profile.counters.iter().map(|counter| counter.alone).collect();
    assert_eq!(alone, [Some(1.0), Some(2.0), Some(3.0)], "counts of reading alone");
}

#[test]
fn thread_tasks_are_children_of_their_operators() {
    let mut clock = SharedClock::default();
    let mut model = Model::new(&clock, 2);
    let task = |call, thread, start_ns, end_ns| Task { call, thread, start_ns, end_ns };
    // The second call of the first step lasts from 32 to 52, after an unprofiled run of 30.
    model.tasks = vec![task(1, 0, 43, 47), task(1, 1, 40, 1000), task(9, 0, 0, 1)];
    let profile = profile_model(&mut model, &plan("active=1,repeat=1"), &mut clock, &mut NoCounters).expect("it runs");
    let profile = Profile { operators: vec![Default::default(); 2], ..profile };
    profile.check().expect("it fits together");
    let parts: Vec<_> = profile.spans[2..].iter().map(|span| (span.track, span.start_ns, span.end_ns())).collect();
    let whole = profile.spans[1];
    assert_eq!(parts, [(1, 43, 47), (2, whole.start_ns, whole.end_ns())], "{:?}", profile.spans);
    let asked: Vec<_> = profile.memory.iter().map(|event| (event.span, event.bytes, event.live_bytes)).collect();
    assert_eq!(asked, [(Some(0), 0, 0), (Some(0), 0, 0), (Some(1), 640, 640), (Some(1), -640, 0)]);
    let cpu_ns: Vec<_> = profile.tracks.iter().map(|track| track.cpu_ns).collect();
    assert_eq!(cpu_ns, [None, Some(32), Some(7)]);
}

#[test]
fn a_long_session_keeps_little() {
    let mut clock = SharedClock::default();
    let mut model = Model::new(&clock, 4);
    let plan = Plan { cells_max: 64, ..plan("active=900,repeat=1") };
    let profile = profile_model(&mut model, &plan, &mut clock, &mut NoCounters).expect("it runs");
    assert!((8..=16).contains(&profile.steps.len()), "{}", profile.steps.len());
    assert_eq!((profile.spans.len(), profile.bare_ns.len()), (4 * profile.steps.len(), profile.steps.len()));
    let stride = profile.steps[1].number;
    assert!(profile.steps.iter().enumerate().all(|(place, step)| step.number == place as u64 * stride));
    assert_eq!(profile.notes, [format!("only one of {stride} of the 900 steps is kept, to limit memory")]);
}

#[test]
fn a_session_ends_at_its_time_limit_with_a_note() {
    let mut clock = SharedClock::default();
    let mut model = Model::new(&clock, 1);
    let plan = Plan { budget_ns: 100, limit_ns: 200, ..plan("active=50,repeat=1") };
    let profile = profile_model(&mut model, &plan, &mut clock, &mut NoCounters).expect("it runs");
    assert_eq!(profile.steps.len(), STEPS_MIN);
    assert_eq!(profile.notes, ["the time limit was reached after 5 of 50 steps"]);
}

#[test]
fn failed_and_empty_models_give_no_steps() {
    let mut clock = SharedClock::default();
    let mut model = Model::new(&clock, 1);
    let failed = profile_model(&mut model, &plan("active=2000,repeat=1"), &mut clock, &mut NoCounters);
    assert_eq!(failed.map(drop), Err("worn out".to_owned()));
    let mut empty = Model::new(&clock, 0);
    let profile =
        profile_model(&mut empty, &plan("active=3,repeat=1"), &mut clock, &mut Fake::new(&[None])).expect("it runs");
    assert_eq!((profile.steps.len(), profile.spans.len(), profile.counts.len()), (3, 0, 0));
}

#[test]
fn a_counter_without_a_register_is_not_zero() {
    let waiting = Reading { value: 0, enabled_ns: 50, running_ns: 0 };
    assert_eq!(extrapolate_count(waiting), None);
    assert_eq!(extrapolate_count(Reading { value: 10, enabled_ns: 100, running_ns: 50 }), Some((20, 0.5)));
    assert_eq!(extrapolate_count(Reading::always_counting(7)), Some((7, 1.0)));
}
