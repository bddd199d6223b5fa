//! Tests of measuring logic on a fake clock that only the test's kernel advances.

use std::{
    cell::{Cell, RefCell},
    convert::Infallible,
    rc::Rc,
    time::Duration,
};

use expect_test::{Expect, expect};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::counters::{Channel, Coverage, NoCounters, Reading, Step};

const MICROSECOND: u64 = 1_000;
const MILLISECOND: u64 = 1_000_000;

#[derive(Clone, Default)]
struct Time(Rc<Cell<u64>>);

impl Time {
    fn pass(&self, ns: u64) {
        self.0.set(self.0.get() + ns);
    }
}

struct FakeClock {
    time: Time,
    emptied: Rc<RefCell<Vec<(u64, u64)>>>,
    probes_ns: Vec<u64>,
    /// Times of the probes between samples; without any, the clock has none.
    quick_probes_ns: Vec<u64>,
    involuntary_switches_per_reading: u64,
    readings: u64,
}

impl FakeClock {
    fn new(time: &Time) -> Self {
        Self {
            time: time.clone(),
            emptied: Rc::default(),
            probes_ns: vec![15_000],
            quick_probes_ns: Vec::new(),
            involuntary_switches_per_reading: 0,
            readings: 0,
        }
    }
}

impl Clock for FakeClock {
    fn now_ns(&mut self) -> u64 {
        self.time.0.get()
    }

    fn precision_ns(&self) -> u64 {
        50
    }

    fn read_usage(&mut self) -> Usage {
        self.readings += 1;
        Usage {
            thread_cpu_ns: self.time.0.get(),
            process_cpu_ns: 2 * self.time.0.get(),
            involuntary_switches: self.readings * self.involuntary_switches_per_reading,
            ..Usage::default()
        }
    }

    fn speed_probe_ns(&mut self) -> u64 {
        if self.probes_ns.len() > 1 { self.probes_ns.remove(0) } else { self.probes_ns[0] }
    }

    fn quick_probe_ns(&mut self) -> Option<u64> {
        let probe_ns = self.quick_probes_ns.pop()?;
        self.time.pass(probe_ns);
        Some(probe_ns)
    }

    fn sleep(&mut self, duration: Duration) {
        self.time.pass(duration.as_nanos() as u64);
    }

    fn prepare_caches(&mut self, cache: Cache) {
        let Some(bytes) = cache.flush_bytes() else { return };
        self.emptied.borrow_mut().push((bytes, self.readings));
    }
}

fn measured(plan: &Plan, set: impl FnOnce(&mut FakeClock), mut cost: impl FnMut(u64) -> u64) -> Measurement {
    let time = Time::default();
    let mut clock = FakeClock::new(&time);
    set(&mut clock);
    let mut count = 0;
    let mut run = |times| {
        for _ in 0..times {
            time.pass(cost(count));
            count += 1;
        }
        Ok::<(), Infallible>(())
    };
    let Ok(measurement) = sample_runs(&mut run, plan, &mut clock, &mut NoCounters);
    measurement
}

fn check_warnings(measurement: &Measurement, expected: Expect) {
    let lines: Vec<String> = measurement.warnings.iter().map(|warning| format!("{warning}\n")).collect();
    expected.assert_eq(&lines.concat());
}

#[test]
fn a_quiet_kernel_takes_some_tens_of_milliseconds() {
    for run_us in [500, 1000, 2000, 5000] {
        let measurement = measured(&Plan::default(), |_| {}, |_| run_us * MICROSECOND);
        assert_eq!(measurement.stop, StopReason::Precise);
        assert_eq!(measurement.median_ns, (run_us * MICROSECOND) as f64);
        assert_eq!((measurement.batch_size, measurement.warnings.len()), (1, 0));
        let elapsed_ms = measurement.elapsed_ns / MILLISECOND;
        assert!((17..=60).contains(&elapsed_ms), "{run_us} us: {elapsed_ms} ms");
    }
}

#[test]
fn the_clock_rate_is_probed_between_samples_but_not_in_them() {
    // Two probes are interrupted; the last probe of the list comes first.
    let probes = || [vec![9_500; 90], vec![40_000, 9_500, 40_000], vec![9_500; 3]].concat();
    let run = |_| 300 * MICROSECOND;
    let measurement = measured(&Plan::default(), |clock| clock.quick_probes_ns = probes(), run);
    assert_eq!(measurement.clock_probe_ns, Some(9_500.0));
    assert_eq!((measurement.median_ns, measurement.max_ns), (300e3, 300e3));
    // At most one probe in a millisecond, of which none is left out while runs are longer than that.
    let with = |most: usize, run_us| {
        let set = |clock: &mut FakeClock| clock.quick_probes_ns = vec![9_500; most];
        let measurement = measured(&Plan::default(), set, move |_| run_us * MICROSECOND);
        (measurement.elapsed_ns / MILLISECOND, measurement.n)
    };
    let added_ms = with(100_000, 50).0 - with(0, 50).0;
    assert!(added_ms <= 1, "{added_ms} ms");
    assert_eq!(with(100_000, 2_000), with(0, 2_000));
    assert_eq!(measured(&Plan::default(), |_| {}, run).clock_probe_ns, None, "this clock has no probe");
}

#[test]
fn a_short_kernel_is_run_in_batches_long_enough_for_the_clock() {
    let measurement = measured(&Plan::default(), |_| {}, |_| 300);
    assert_eq!(measurement.batch_size, 167, "50 ns x 1000 / 300 ns");
    assert_eq!(measurement.median_ns, 300.0);
    assert_eq!(measurement.timed_runs, u64::from(measurement.n) * 167);
    assert_eq!(measurement.samples_ns.len(), (measurement.n as usize).div_ceil(measurement.samples_stride as usize));
    assert!(measurement.samples_ns.len() <= 256);
}

#[test]
fn the_least_run_decides_how_many_make_a_batch() {
    let slow_start = |run| if run == 0 { 25 * MILLISECOND } else { 300 };
    let measurement = measured(&Plan::default(), |_| {}, slow_start);
    assert_eq!((measurement.batch_size, measurement.median_ns), (167, 300.0));
    assert!(measurement.warm_up_runs > 8000, "5 ms of 300 ns: {}", measurement.warm_up_runs);

    // Only the last part of the warm-up was disturbed.
    let disturbed = |run| if (10_000..16_800).contains(&run) { 3_000 } else { 300 };
    assert_eq!(measured(&Plan::default(), |_| {}, disturbed).batch_size, 167);

    // Without warm-up the first run alone would decide.
    let none = Plan { warm_up_time_ns: 0, warm_up_runs: 0, ..Plan::default() };
    let cold_start = |run| if run == 0 { 40 * MICROSECOND } else { 300 };
    assert_eq!(measured(&none, |_| {}, cold_start).batch_size, 167);

    // A disturbed first run of a long kernel still needs no warm-up.
    let long = |run| if run == 0 { 900 * MILLISECOND } else { 30 * MILLISECOND };
    let measurement = measured(&Plan::default(), |_| {}, long);
    assert_eq!((measurement.warm_up_runs, measurement.median_ns), (0, 30e6));
}

#[test]
fn every_interval_is_made_for_the_same_probability() {
    let noisy = |run: u64| MILLISECOND + (run * 7919 % 101) * 10 * MICROSECOND;
    let plan = |confidence| Plan { confidence, samples_min: 40, samples_max: 40, ..Plan::default() };
    let interval = |confidence| measured(&plan(confidence), |_| {}, noisy).median_interval_ns;
    assert_eq!(interval(0.5), interval(0.95));
}

#[test]
fn processor_time_is_per_timed_run() {
    let measurement = measured(&Plan::default(), |_| {}, |_| MILLISECOND);
    assert_eq!((measurement.thread_cpu_time_ns, measurement.cpu_time_ns), (1e6, 2e6));
}

#[test]
fn the_first_run_is_kept_apart() {
    let measurement = measured(&Plan::default(), |_| {}, |run| if run == 0 { 90 * MILLISECOND } else { MILLISECOND });
    assert_eq!((measurement.first_run_ns, measurement.max_ns), (90 * MILLISECOND, 1e6));
    check_warnings(
        &measurement,
        expect![[r#"
            the first run of a visit took 90.0 times its median; it is reported separately; raise the warm-up time if later runs are not stable either
        "#]],
    );
}

#[test]
fn a_noisy_kernel_uses_its_budget_and_says_so() {
    let mut generator = ChaCha8Rng::seed_from_u64(11);
    let mut cost = move |_| (MILLISECOND as f64 * (1.0 + generator.random::<f64>().powi(2))) as u64;
    let measurement = measured(&Plan::default(), |_| {}, &mut cost);
    assert_eq!(measurement.stop, StopReason::TimeBudget);
    check_warnings(
        &measurement,
        expect![[r#"
            the uncertainty of the median is 7.6 % instead of 1.0 %; stop other work on the machine, pin the threads, or raise the time budget; compare minima
        "#]],
    );
    let patient = Plan { time_budget_ns: 60_000 * MILLISECOND, time_limit_ns: 90_000 * MILLISECOND, ..Plan::default() };
    let measurement = measured(&patient, |_| {}, cost);
    assert_eq!(measurement.stop, StopReason::Precise, "with time enough the median is found");
    let (low, high) = measurement.median_interval_ns.expect("many samples");
    assert!((high - low) / 2.0 / measurement.median_ns <= 0.01);
    assert!((low..=high).contains(&1.25e6) || (measurement.median_ns / 1.25e6 - 1.0).abs() < 0.02);
}

#[test]
fn a_very_slow_kernel_ends_at_the_limit() {
    let measurement = measured(&Plan::default(), |_| {}, |_| 4_000 * MILLISECOND);
    assert_eq!((measurement.stop, measurement.n), (StopReason::TimeLimit, 2));
    check_warnings(
        &measurement,
        expect![[r#"
            2 samples instead of 8: single runs are long; raise the time budget if this candidate matters
        "#]],
    );
    // Even a first run beyond the limit leaves one sample.
    assert_eq!(measured(&Plan::default(), |_| {}, |_| 20_000 * MILLISECOND).n, 1);
}

#[test]
fn what_the_machine_does_becomes_warnings() {
    let disturbed = |clock: &mut FakeClock| {
        clock.probes_ns = vec![15_000, 16_500];
        clock.involuntary_switches_per_reading = 1;
    };
    let measurement = measured(&Plan::default(), disturbed, |run| MILLISECOND + 10 * run * MICROSECOND);
    check_warnings(
        &measurement,
        expect![[r#"
            the uncertainty of the median is 6.3 % instead of 1.0 %; stop other work on the machine, pin the threads, or raise the time budget; compare minima
            later samples differ from earlier ones by +24.9 %; raise the warm-up time; check for thermal throttling and other load
            the time of a fixed computation changed by +10.0 % during the samples; fix the clock governor and boost, and measure again
            60 involuntary context switches, in 100 % of the samples; stop other work, use fewer threads than cores, or isolate cores
        "#]],
    );
}

#[test]
fn a_cold_cache_allows_one_run_per_batch() {
    let cache = Cache::Cold { flush_bytes: 1 << 16 };
    let emptied = Rc::new(RefCell::new(Vec::new()));
    let watched = Rc::clone(&emptied);
    let plan = Plan { cache, samples_max: 500, ..Plan::default() };
    let measurement = measured(&plan, |clock| clock.emptied = watched, |_| 300);
    // Usage is read twice per sample, and caches are emptied before the first run and before each sample.
    let before_samples = (0..u64::from(measurement.n)).map(|sample| (1 << 16, 2 * sample));
    let wanted: Vec<(u64, u64)> = [(1 << 16, 0)].into_iter().chain(before_samples).collect();
    assert_eq!(*emptied.borrow(), wanted);
    assert_eq!((measurement.batch_size, measurement.flush_bytes), (1, Some(1 << 16)));
    check_warnings(
        &measurement,
        expect![[r#"
            a batch takes 300 ns, but the clock has a precision of 50 ns; raise the number of runs per batch; with a cold cache it is always 1
        "#]],
    );
}

#[test]
fn an_error_of_the_kernel_ends_the_measuring() {
    let time = Time::default();
    let mut runs = 0;
    let mut run = |_| {
        time.pass(MILLISECOND);
        runs += 1;
        if runs < 10 { Ok(()) } else { Err("out of memory") }
    };
    let result = sample_runs(&mut run, &Plan::default(), &mut FakeClock::new(&time), &mut NoCounters);
    assert_eq!(result.expect_err("the tenth run fails"), "out of memory");
}

struct TwoGroups {
    time: Time,
    channels: Vec<Channel>,
    group: usize,
    since_ns: u64,
    values: [Reading; 2],
}

impl CounterReader for TwoGroups {
    fn channels(&self) -> &[Channel] {
        &self.channels
    }

    fn group_count(&self) -> usize {
        2
    }

    fn select_group(&mut self, group: usize) {
        self.group = group;
        self.since_ns = self.time.0.get();
    }

    fn read_channels(&mut self, into: &mut [Option<Reading>]) {
        let passed_ns = self.time.0.get() - self.since_ns;
        self.since_ns += passed_ns;
        let own = &mut self.values[self.group];
        // The second counter has its register only half of the time and misses half of the events.
        let share = 1 + self.group as u64;
        own.add_reading(&Reading { value: passed_ns / share, enabled_ns: passed_ns, running_ns: passed_ns / share });
        into.copy_from_slice(&self.values.map(Some));
    }

    fn refusals(&self) -> &[Refusal] {
        &[]
    }
}

#[test]
fn groups_of_counters_take_turns_and_each_is_divided_by_its_own_runs() {
    let time = Time::default();
    let channel = |group: usize| Channel {
        name: ["whole", "shared"][group].into(),
        unit: "ns".into(),
        step: Step::Perf,
        native: String::new(),
        coverage: Coverage::Thread,
        group: Some(group),
    };
    let channels = vec![channel(0), channel(1)];
    let mut counters =
        TwoGroups { time: time.clone(), channels, group: 0, since_ns: 0, values: [Reading::default(); 2] };
    let mut run = |times: u32| {
        time.pass(u64::from(times) * MILLISECOND);
        Ok::<(), Infallible>(())
    };
    let plan = Plan { samples_min: 9, samples_max: 9, ..Plan::default() };
    let Ok(measurement) = sample_runs(&mut run, &plan, &mut FakeClock::new(&time), &mut counters);
    let values: Vec<_> =
        measurement.counters.iter().map(|value| (value.per_run, value.runs, value.running_ratio)).collect();
    assert_eq!(values, [(1e6, 5, 1.0), (1e6, 4, 0.5)]);
    check_warnings(
        &measurement,
        expect![[r#"
            counter `shared` counted only 50 % of the time; request fewer counters at once
        "#]],
    );
    // With one sample the second group never counted, which is a refusal and not a zero.
    let plan = Plan { samples_min: 1, samples_max: 1, ..Plan::default() };
    let Ok(measurement) = sample_runs(&mut run, &plan, &mut FakeClock::new(&time), &mut counters);
    assert_eq!((measurement.counters.len(), measurement.refusals.len()), (1, 1));
}

struct Unreliable {
    channels: Vec<Channel>,
    reads: u64,
}

impl CounterReader for Unreliable {
    fn channels(&self) -> &[Channel] {
        &self.channels
    }

    fn group_count(&self) -> usize {
        1
    }

    fn select_group(&mut self, _: usize) {}

    fn read_channels(&mut self, into: &mut [Option<Reading>]) {
        let batch = self.reads / 2;
        self.reads += 1;
        let at_times = batch.is_multiple_of(2).then_some(Reading::always_counting(7 * self.reads));
        into.copy_from_slice(&[None, Some(Reading::always_counting(1000 - self.reads)), at_times]);
    }

    fn refusals(&self) -> &[Refusal] {
        &[]
    }
}

#[test]
fn what_was_not_counted_is_refused_and_never_zero() {
    let channel = |name: &str| Channel {
        name: name.into(),
        unit: "count".into(),
        step: Step::Papi,
        native: String::new(),
        coverage: Coverage::External,
        group: None,
    };
    let channels = ["silent", "sinking", "at_times"].map(channel).to_vec();
    let time = Time::default();
    let mut run = |times: u32| {
        time.pass(u64::from(times) * MILLISECOND);
        Ok::<(), Infallible>(())
    };
    let plan = Plan { samples_min: 8, samples_max: 8, ..Plan::default() };
    let mut counters = Unreliable { channels, reads: 0 };
    let Ok(measurement) = sample_runs(&mut run, &plan, &mut FakeClock::new(&time), &mut counters);
    let given: Vec<_> = measurement.counters.iter().map(|value| (value.name.as_str(), value.per_run)).collect();
    assert_eq!(given, [("at_times", 7.0)], "{:?}", measurement.counters);
    assert_eq!(measurement.counters[0].runs, 4, "of eight");
    let refused: Vec<_> = measurement.refusals.iter().map(|refusal| refusal.event.as_str()).collect();
    assert_eq!(refused, ["silent", "sinking"]);
}

fn evaluated(rule: &Evaluator, run_us: u64) -> (Measurement, Vec<u32>) {
    let time = Time::default();
    let mut calls = Vec::new();
    let mut run = |times: u32| {
        calls.push(times);
        time.pass(u64::from(times) * run_us * MICROSECOND);
        Ok::<(), Infallible>(())
    };
    let Ok(measurement) = evaluate_rule(&mut run, rule, &mut FakeClock::new(&time), &mut NoCounters);
    (measurement, calls)
}

#[test]
fn the_evaluators_number_grows_and_stays_grown() {
    let rule = Evaluator { number: 3, repeat: 3, min_repeat_ms: 10, ..Evaluator::default() };
    let (measurement, calls) = evaluated(&rule, 1000);
    // 3 runs take 3 ms; 10 + 1 are needed, which is more than 3 x 1.618. Later repeats begin with 11.
    assert_eq!(calls, [1, 3, 11, 11, 11]);
    assert_eq!((measurement.n, measurement.batch_size, measurement.median_ns), (3, 11, 1e6));
    assert_eq!((measurement.stop, measurement.timed_runs), (StopReason::RepeatsDone, 33));
    // Nearly long enough: 1.618 times is more than the need plus one.
    let rule = Evaluator { number: 9, repeat: 1, min_repeat_ms: 10, ..Evaluator::default() };
    assert_eq!(evaluated(&rule, 1000).1, [1, 9, 14]);
    // Without a minimum duration nothing grows.
    let rule = Evaluator { number: 5, repeat: 2, ..Evaluator::default() };
    assert_eq!(evaluated(&rule, 1).1, [1, 5, 5]);
}

#[test]
fn the_evaluator_gives_up_on_a_clock_that_stands_still_and_pauses_when_told() {
    let rule = Evaluator { number: 2, min_repeat_ms: 1, limit_zero_time_iterations: 3, ..Evaluator::default() };
    assert_eq!(evaluated(&rule, 0).1, [1, 2, 2, 2]);
    let pausing = Evaluator { repeat: 4, cooldown_interval_ms: 7, repeats_to_cooldown: 2, ..Evaluator::default() };
    let (measurement, _) = evaluated(&pausing, 100);
    assert_eq!(measurement.elapsed_ns, 41 * 100 * MICROSECOND + 2 * 7 * MILLISECOND);
}

#[test]
fn the_real_clock_and_counters_agree_on_a_real_kernel() {
    let mut state = 1_u64;
    let mut run = |times: u32| {
        for _ in 0..times * 1000 {
            state = std::hint::black_box(state.wrapping_mul(6_364_136_223_846_793_005));
        }
        Ok::<(), Infallible>(())
    };
    let plan = Plan { time_budget_ns: 20 * MILLISECOND, ..Plan::default() };
    let Ok(measurement) = sample_runs(&mut run, &plan, &mut HostClock::new(), &mut NoCounters);
    assert!(measurement.n >= 8 && measurement.min_ns > 0.0, "{measurement:?}");
    assert!(measurement.min_ns <= measurement.median_ns && measurement.median_ns <= measurement.max_ns);
    // A thread's CPU time cannot exceed the elapsed time by more than its clock's step.
    let passed_ns = measurement.timed_ns as f64 / measurement.timed_runs as f64;
    assert!(measurement.thread_cpu_time_ns <= passed_ns * 1.5 + 1000.0, "{measurement:?}");
    let bytes = postcard::to_allocvec(&measurement).expect("it crosses the worker's socket");
    assert_eq!(postcard::from_bytes::<Measurement>(&bytes).expect("and back"), measurement);
    let text = serde_json::to_string(&measurement).expect("it goes into a journal");
    assert_eq!(serde_json::from_str::<Measurement>(&text).expect("and back"), measurement);
}
