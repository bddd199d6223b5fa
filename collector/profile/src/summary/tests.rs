//! Tests of rows and totals of small profiles, and of properties of generated profiles.

use super::*;
use crate::data::{Count, Counter, MemoryEvent, Span, Step, Track};
use proptest::prelude::*;

fn small() -> Profile {
    let operator = |name: &str, scope: &str, shape: i64, flops| Operator {
        name: name.to_owned(),
        text: format!("{name} f32[{shape}]"),
        scope: scope.to_owned(),
        input_shapes: vec![vec![shape]],
        input_dtypes: vec!["f32".to_owned()],
        flops,
        roofline_ns: flops.map(|flops| flops as f64 / 10.0),
        ..Operator::default()
    };
    let span = |operator, step, start_ns, duration_ns| Span {
        operator,
        step: Some(step),
        start_ns,
        duration_ns,
        ..Span::default()
    };
    Profile {
        tracks: vec![Track::default()],
        operators: vec![
            operator("dense", "net.a", 4, Some(400)),
            operator("dense", "net/b", 8, Some(800)),
            operator("relu", "net/b", 8, None),
        ],
        steps: vec![
            Step { duration_ns: 100, ..Step::default() },
            Step { start_ns: 200, duration_ns: 140, number: 1, ..Step::default() },
        ],
        spans: vec![
            span(0, 0, 0, 40),
            span(1, 0, 40, 40),
            span(2, 0, 80, 10),
            span(0, 1, 200, 60),
            span(1, 1, 260, 40),
            span(2, 1, 300, 30),
        ],
        bare_ns: vec![100, 100],
        counters: vec![Counter { name: "faults".to_owned(), ..Counter::default() }],
        counts: vec![
            Count { span: 0, counter: 0, value: 2, running_ratio: 1.0 },
            Count { span: 4, counter: 0, value: 5, running_ratio: 1.0 },
        ],
        ..Profile::default()
    }
}

#[test]
fn rows_follow_the_grouping() {
    let profile = small();
    let of = |group_by| -> Vec<(String, u64, u64)> {
        let rows = summary_rows(&profile, group_by, SortBy::SelfCpuTimeTotal);
        rows.into_iter().map(|row| (row.name, row.calls, row.self_total_ns)).collect()
    };
    let row = |name: &str, calls, ns| (name.to_owned(), calls, ns);
    assert_eq!(of(GroupBy::Name), [row("dense", 4, 180), row("relu", 2, 40)]);
    assert_eq!(of(GroupBy::InputShape), [row("dense", 2, 100), row("dense", 2, 80), row("relu", 2, 40)]);
    assert_eq!(of(GroupBy::Scope(0)), [row("net/b", 4, 120), row("net.a", 2, 100)]);
    assert_eq!(of(GroupBy::Scope(1)), [row("net", 6, 220)]);
    assert_eq!(of(GroupBy::Call).len(), 3);
}

#[test]
fn a_row_has_rates_if_all_work_is_known() {
    let all = summary_rows(&small(), GroupBy::Name, SortBy::Order);
    let (dense, relu) = (&all[0], &all[1]);
    // (400 + 800) operations in typical times of 50 + 40 ns.
    assert_eq!(dense.gflops_per_second, Some(1200.0 / 90.0));
    assert_eq!(dense.roofline_share, Some(120.0 / 90.0));
    assert_eq!((dense.scope.as_str(), dense.text.as_str(), dense.input_shapes.len()), ("net", "", 0));
    assert_eq!((relu.gflops_per_second, relu.text.as_str()), (None, "relu f32[8]"));
    assert_eq!(dense.counters, BTreeMap::from([("faults".to_owned(), 3.5)]), "mean over the spans that were counted");
    assert_eq!(relu.counters, BTreeMap::new(), "a missing count is not zero");
}

#[test]
fn derived_metrics_need_all_counters() {
    let mut profile = small();
    let counter = |name: &str| Counter { name: name.to_owned(), ..Counter::default() };
    profile.counters = ["instructions", "cycles", "llc_load_misses"].map(counter).to_vec();
    let count = |span, counter, value| Count { span, counter, value, running_ratio: 1.0 };
    profile.counts = vec![count(0, 0, 300), count(0, 1, 100), count(0, 2, 4), count(1, 0, 7)];
    let all = summary_rows(&profile, GroupBy::Call, SortBy::Order);
    let first = Derived {
        instructions_per_cycle: Some(3.0),
        llc_misses_per_kflop: Some(10.0),
        llc_gbytes_per_second: Some(256.0 / 50.0),
        ghz: None,
    };
    assert_eq!((&all[0].derived, &all[1].derived), (&first, &Derived::default()));
}

#[test]
fn memory_comes_from_the_step_with_events() {
    let mut profile = small();
    let event = |span, at_ns, bytes, live_bytes| MemoryEvent {
        at_ns,
        span: Some(span),
        bytes,
        live_bytes,
        pool: Pool::Activations,
    };
    // The first operator allocates 64 bytes. The second allocates 128 and frees the first's. The third works in place.
    profile.memory = vec![event(0, 0, 64, 64), event(1, 40, 128, 192), event(1, 80, -64, 128), event(2, 90, -128, 0)];
    let of = |group_by| {
        let rows = summary_rows(&profile, group_by, SortBy::SelfCpuMemoryUsage);
        rows.iter().map(|row| (row.text.clone(), row.allocated_bytes, row.live_bytes)).collect::<Vec<_>>()
    };
    let row = |text: &str, taken, live| (text.to_owned(), Some(taken), Some(live));
    assert_eq!(
        of(GroupBy::Call),
        [row("dense f32[8]", 128, 192), row("dense f32[4]", 64, 64), row("relu f32[8]", 0, 128)]
    );
    assert_eq!(of(GroupBy::Name)[0], row("", 192, 192));
}

#[test]
fn thread_statistics_cover_tasks_and_polling() {
    let mut profile = small();
    let track = |name: &str, cpu_ns| Track { name: name.to_owned(), cpu_ns, ..Track::default() };
    profile.tracks = vec![track("caller", None), track("thread 0", Some(120)), track("thread 1", Some(90))];
    let part = |track, start_ns, duration_ns| Span {
        kind: Kind::Task,
        operator: 0,
        step: Some(0),
        parent: Some(0),
        track,
        start_ns,
        duration_ns,
        cpu_ns: None,
    };
    profile.spans.extend([part(1, 1, 30), part(2, 8, 10)]);
    profile.check().expect("it fits together");
    let all = summary_rows(&profile, GroupBy::Call, SortBy::Order);
    let spread = Spread { tasks_per_call: Some(1.0), imbalance: Some(1.5), wake_ns: Some(8.0) };
    assert_eq!((all[0].spread, all[1].spread), (spread, Spread::default()));
    assert_eq!(all[0].self_total_ns, 100, "parts on other tracks do not reduce an operator's self time");
    let of: Vec<_> = threads::thread_statistics(&profile)
        .into_iter()
        .map(|one| (one.tasks, one.busy_ns, one.idle_ns, one.polling_ns))
        .collect();
    assert_eq!(of, [(1, 30, 190, Some(90)), (1, 10, 210, Some(80))]);
}

#[test]
fn commas_in_names_are_quoted() {
    let mut profile = small();
    profile.operators[2].scope = "net, \"quoted\"".to_owned();
    let mut bytes = Vec::new();
    csv::write_rows(&summary_rows(&profile, GroupBy::Name, SortBy::Order), &mut bytes)
        .expect("memory takes everything");
    let mut read = ::csv::Reader::from_reader(bytes.as_slice());
    let headers = read.headers().expect("a first line").clone();
    let records: Vec<::csv::StringRecord> = read.records().map(|one| one.expect("it is read back")).collect();
    let column = |name: &str| headers.iter().position(|known| known == name).expect(name);
    assert_eq!(&records[1][column("scope")], "net, \"quoted\"");
    assert_eq!((&records[0][column("faults")], &records[1][column("faults")]), ("3.5", ""));
    assert_eq!(&records[1][column("input_shapes")], "[[8]]");
}

#[test]
fn totals_include_unattributed_time() {
    let totals = compute_totals(&small());
    assert_eq!((totals.sum_ns, totals.total_ns, totals.not_attributed_ns), (220, 240, 20));
    assert_eq!(totals.profiler_slowdown, Some(Ratio { median: 1.2, interval: None }));
    assert_eq!(super::compute_totals(&Profile::default()), Totals::default());
}

#[test]
fn rows_follow_the_sort_key() {
    let first = |sort_by| summary_rows(&small(), GroupBy::Call, sort_by)[0].text.clone();
    assert_eq!(first(SortBy::Order), "dense f32[4]");
    assert_eq!(first(SortBy::CpuTime), "dense f32[4]");
    let mut profile = small();
    profile.spans[2].duration_ns = 90;
    let rows = summary_rows(&profile, GroupBy::Call, SortBy::CpuTimeTotal);
    assert_eq!(rows[0].text, "relu f32[8]");
}

fn nested() -> impl Strategy<Value = Profile> {
    prop::collection::vec((0u32..3, 1u64..50, 0u64..4), 1..40).prop_map(|parts| {
        let mut profile = Profile { steps: vec![Step::default()], bare_ns: vec![], counts: vec![], ..small() };
        profile.spans.clear();
        let mut start_ns = 0;
        for (operator, length, inner) in parts {
            let duration_ns = length * (inner + 1);
            let parent = u32::try_from(profile.spans.len()).unwrap();
            let span = Span { operator, step: Some(0), start_ns, duration_ns, ..Span::default() };
            profile.spans.push(span);
            for part in 0..inner {
                let start_ns = start_ns + part * length;
                profile.spans.push(Span { parent: Some(parent), start_ns, duration_ns: length, ..span });
            }
            start_ns += duration_ns;
        }
        profile.steps[0].duration_ns = start_ns;
        profile
    })
}

#[test]
fn one_preempted_call_changes_no_share() {
    let run = |pool_ns: [u64; 5]| {
        let operator = |name: &str| Operator { name: name.to_owned(), ..Operator::default() };
        let mut profile = Profile {
            tracks: vec![Track::default()],
            operators: vec![operator("conv2d"), operator("max_pool")],
            ..Profile::default()
        };
        let mut start_ns = 0;
        for (step, pool_ns) in pool_ns.into_iter().enumerate() {
            profile.steps.push(Step { start_ns, duration_ns: 980 + pool_ns, ..Step::default() });
            for (operator, duration_ns) in [(0, 980), (1, pool_ns)] {
                let step = u32::try_from(step).ok();
                profile.spans.push(Span { operator, step, start_ns, duration_ns, ..Span::default() });
                start_ns += duration_ns;
            }
        }
        profile.check().expect("it fits together");
        summary_rows(&profile, GroupBy::Name, SortBy::default())
    };
    let shares = |rows: &[Row]| rows.iter().map(|row| (row.name.clone(), row.share)).collect::<Vec<_>>();
    let (quiet, preempted) = (run([20; 5]), run([20, 20, 9000, 20, 20]));
    assert_eq!(shares(&quiet), shares(&preempted));
    assert_eq!(shares(&quiet), [("conv2d".to_owned(), 0.98), ("max_pool".to_owned(), 0.02)]);
    assert!(preempted[1].total_share > 0.6, "total times are affected: {}", preempted[1].total_share);
}

#[test]
fn a_typical_step_has_no_disturbance() {
    let operator = |name: &str| Operator { name: name.to_owned(), ..Operator::default() };
    // Each step has one operator that is disturbed, and ends 10 ns after its last operator.
    let spans = (0..60u64).flat_map(|step| {
        let disturbed = usize::try_from(step % 3).expect("it is small");
        let mut at_ns = 10_000 * step;
        [100u64, 200, 300].into_iter().enumerate().map(move |(place, quiet_ns)| {
            let duration_ns = quiet_ns + step % 5 + if place == disturbed { 1000 } else { 0 };
            at_ns += duration_ns;
            let (operator, start_ns) = (place as u32, at_ns - duration_ns);
            Span { operator, step: Some(step as u32), start_ns, duration_ns, ..Span::default() }
        })
    });
    let spans: Vec<Span> = spans.collect();
    let steps = spans.chunks(3).enumerate().map(|(number, own)| Step {
        number: number as u64,
        start_ns: own[0].start_ns,
        duration_ns: own.iter().map(|span| span.duration_ns).sum::<u64>() + 10,
        ..Step::default()
    });
    let profile = Profile {
        tracks: vec![Track::default()],
        operators: vec![operator("a"), operator("b"), operator("c")],
        steps: steps.collect(),
        spans,
        ..Profile::default()
    };
    profile.check().expect("it fits together");
    let totals = compute_totals(&profile);
    assert!(totals.step_median_ns > 1600.0, "{totals:?}");
    let typical = totals.typical.expect("the medians add to less");
    assert!((610.0..=622.0).contains(&typical.time_ns), "{typical:?}");
    let (low, high) = typical.interval_ns.expect("60 steps");
    assert!(low < typical.time_ns && typical.time_ns < high && high < 1600.0, "{typical:?}");
    assert_eq!(compute_totals(&Profile { source: Source::Imported, ..profile }).typical, None);
}

proptest! {
    #[test]
    fn self_times_add_up_to_the_total(profile in nested()) {
        profile.check().unwrap();
        let totals = compute_totals(&profile);
        prop_assert_eq!(totals.sum_ns, totals.total_ns);
        for group_by in [GroupBy::Name, GroupBy::InputShape, GroupBy::Scope(1), GroupBy::Call] {
            let rows = summary_rows(&profile, group_by, SortBy::SelfCpuTimeTotal);
            prop_assert_eq!(rows.iter().map(|row| row.self_total_ns).sum::<u64>(), totals.sum_ns);
            prop_assert!(rows.iter().all(|row| row.self_total_ns <= row.total_ns && row.min_ns <= row.median_ns));
            prop_assert!((rows.iter().map(|row| row.total_share).sum::<f64>() - 1.0).abs() < 1e-9);
        }
    }
}
