//! Detection of known changes in seeded synthetic histories with noise between runs, between nights, and sentinels.
#![allow(missing_docs)]

use datasets::{Outcome, Record, Source};
use drift::{
    Bounds, ChangePoint, Drift, History, RecordGatherer, SENTINELS, Side, Verdict, find_change_points, judge_lines,
    render_markdown, render_page, render_text,
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use report::Paper;
use std::collections::BTreeSet;

const DAY_US: i64 = 86_400_000_000;

/// Parameters of a synthetic history. Single runs scatter by `noise`; a record has the median of `samples` runs.
#[derive(Clone)]
struct Truth {
    tasks: usize,
    nights: usize,
    noise: f64,
    samples: usize,
    /// Number of tasks that change in the later half of the nights, and their factor.
    changed: usize,
    factor: f64,
    machine: f64,
    sentinels: bool,
    seed: u64,
}

const TRUTH: Truth = Truth {
    tasks: 1000,
    nights: 10,
    noise: 0.05,
    samples: 64,
    changed: 20,
    factor: 1.03,
    machine: 1.0,
    sentinels: true,
    seed: 11,
};

impl Truth {
    fn draw(&self) -> Vec<(usize, Record)> {
        let mut generator = ChaCha8Rng::seed_from_u64(self.seed);
        let mut records = Vec::new();
        // Standard error of the median of many normal samples.
        let error = 1.2533 * self.noise / (self.samples as f64).sqrt();
        for night in 0..self.nights {
            let is_late = night >= self.nights / 2;
            let machine = if is_late { self.machine } else { 1.0 };
            let mut keep = |name: Option<&str>, task: usize, ns: f64, repetition: i64, generator: &mut ChaCha8Rng| {
                let median_ns = ns * (error * normal(generator)).exp();
                let started_at_us = (20_000 + night as i64) * DAY_US + DAY_US * 3 / 4 + repetition * 300_000_000;
                records.push((night, record(name, task, median_ns, 1.96 * error, started_at_us)));
            };
            for task in 0..self.tasks {
                let factor = if is_late && task < self.changed { self.factor } else { 1.0 };
                keep(None, task, 1e5 * (1.0 + task as f64) * factor * machine, 0, &mut generator);
            }
            for (number, sentinel) in SENTINELS.iter().enumerate().filter(|_| self.sentinels) {
                for repetition in 0..12 {
                    keep(Some(sentinel.name), 100_000 + number, 1e6 * machine, repetition, &mut generator);
                }
            }
        }
        records
    }

    fn history(&self, side: impl Fn(usize) -> Side) -> History {
        let mut gather = RecordGatherer::new(false, false);
        self.draw().iter().for_each(|(night, record)| gather.add_record(record, side(*night)));
        gather.build_history()
    }

    fn halves(&self) -> Drift {
        let history = self.history(|night| if night < self.nights / 2 { Side::Before } else { Side::After });
        judge_lines(&history, Bounds::default())
    }

    fn change_points(&self) -> Vec<ChangePoint> {
        find_change_points(&self.history(|_| Side::After), Bounds::default())
    }
}

fn normal(generator: &mut ChaCha8Rng) -> f64 {
    let radius = (-2.0 * generator.random::<f64>().max(1e-300).ln()).sqrt();
    radius * (std::f64::consts::TAU * generator.random::<f64>()).cos()
}

fn record(sentinel: Option<&str>, task: usize, median_ns: f64, half: f64, started_at_us: i64) -> Record {
    Record {
        schema_version: datasets::SCHEMA_VERSION,
        source: Source::Measured,
        outcome: Outcome::Ok,
        started_at_us,
        model_source: Some(if sentinel.is_some() { "simple" } else { "local" }.to_owned()),
        model_name: sentinel.map(str::to_owned),
        op_kind: if task.is_multiple_of(2) { "matmul" } else { "relu" }.to_owned(),
        op_text: format!("task {task}"),
        task_hash: format!("{task:032x}"),
        schedule_hash: Some("default".to_owned()),
        threads: Some(1),
        host: "host".to_owned(),
        tvm_version: Some("0.27".to_owned()),
        code_bytes: Some(if task == 3 && started_at_us > 20_005 * DAY_US { 2000 } else { 1000 }),
        median_ns: Some(median_ns),
        median_interval_ns: Some(half * median_ns),
        ..Record::default()
    }
}

fn number(task: &str) -> usize {
    task.rsplit(' ').next().and_then(|number| number.parse().ok()).expect("tasks are numbered")
}

fn rates(found: &BTreeSet<usize>, changed: usize) -> (f64, f64) {
    let right = found.iter().filter(|task| **task < changed).count();
    (right as f64 / changed as f64, (found.len() - right) as f64 / found.len().max(1) as f64)
}

fn slower(drift: &Drift) -> BTreeSet<usize> {
    let slower = drift.changes.iter().filter(|change| change.verdict == Verdict::Slower);
    slower.map(|change| number(&change.identity.task)).collect()
}

/// Two nights with one measurement per task and side. A neighbour disturbs some measurements from start to end.
#[test]
fn disturbed_measurements_are_not_changes() {
    let truth = Truth { nights: 2, changed: 0, ..TRUTH };
    let disturbed = |changed: usize, factor: f64| {
        let mut generator = ChaCha8Rng::seed_from_u64(5);
        let mut gather = RecordGatherer::new(false, false);
        let mut drawn = Truth { changed, factor, ..truth.clone() }.draw();
        for (night, record) in &mut drawn {
            let is_disturbed = record.model_name.is_none() && generator.random::<f64>() < 0.1;
            let by = if is_disturbed { 1.2 + generator.random::<f64>() } else { 1.0 };
            record.median_ns = record.median_ns.map(|ns| ns * by);
            gather.add_record(record, if *night == 0 { Side::Before } else { Side::After });
        }
        judge_lines(&gather.build_history(), Bounds::default())
    };
    let drift = disturbed(0, 1.0);
    let found = drift.count_verdict(Verdict::Slower) + drift.count_verdict(Verdict::Faster);
    assert!(found <= 10, "{found} of about 190 disturbed lines were reported");
    // Changes larger than most disturbances are still detected.
    let (recall, wrong) = rates(&slower(&disturbed(60, 4.0)), 60);
    assert!(recall >= 0.95 && wrong <= 0.05, "{recall} {wrong}");
}

#[test]
fn few_slow_tasks_among_many_are_found() {
    let (mut recall, mut wrong) = (Vec::new(), Vec::new());
    for seed in 1..=3 {
        let drift = Truth { seed, ..TRUTH }.halves();
        let rates = rates(&slower(&drift), TRUTH.changed);
        recall.push(rates.0);
        wrong.push(rates.1);
        let change = drift.changes.iter().find(|change| number(&change.identity.task) == 3).unwrap();
        assert_eq!(change.causes.iter().map(|cause| cause.name.as_str()).collect::<Vec<_>>(), ["code_bytes"]);
    }
    let mean = |rates: &[f64]| rates.iter().sum::<f64>() / rates.len() as f64;
    assert!(mean(&recall) >= 0.9 && mean(&wrong) <= 0.05, "{recall:?} {wrong:?}");
}

#[test]
fn the_night_of_a_change_is_found() {
    let (mut recall, mut wrong) = (Vec::new(), Vec::new());
    for seed in 1..=3 {
        let change_points = Truth { seed, ..TRUTH }.change_points();
        let rates = rates(
            &change_points.iter().map(|change_point| number(&change_point.identity.task)).collect(),
            TRUTH.changed,
        );
        recall.push(rates.0);
        wrong.push(rates.1);
        let right = change_points.iter().filter(|change_point| number(&change_point.identity.task) < TRUTH.changed);
        let nights: Vec<&str> = right.map(|change_point| change_point.night.as_str()).collect();
        let at_the_night = nights.iter().filter(|night| **night == "2024-10-09").count();
        assert!(2 * at_the_night > nights.len(), "{nights:?}");
    }
    let mean = |rates: &[f64]| rates.iter().sum::<f64>() / rates.len() as f64;
    assert!(mean(&recall) >= 0.9 && mean(&wrong) <= 0.05, "{recall:?} {wrong:?}");
}

#[test]
fn a_slower_machine_causes_no_reports() {
    for seed in 1..=3 {
        let truth = Truth { changed: 0, machine: 1.08, seed, ..TRUTH };
        let drift = truth.halves();
        assert_eq!((drift.count_verdict(Verdict::Slower), drift.count_verdict(Verdict::Faster)), (0, 0));
        assert!((drift.machine_ratio - 1.08).abs() < 0.01, "{}", drift.machine_ratio);
        assert_eq!(truth.change_points(), []);
        let bare = Truth { sentinels: false, ..truth };
        let drift = bare.halves();
        assert_eq!(drift.count_verdict(Verdict::Slower), 0);
        assert!(drift.notes.iter().any(|note| note.starts_with("no sentinel ran")), "{:?}", drift.notes);
    }
}

#[test]
fn sentinels_without_an_interval_are_ignored() {
    let truth = Truth { nights: 2, tasks: 20, changed: 0, ..TRUTH };
    let mut gather = RecordGatherer::new(false, false);
    for (night, record) in truth.draw() {
        let side = if night == 0 { Side::Before } else { Side::After };
        let is_doubtful = night == 1 && record.model_name.is_some();
        let doubtful =
            Record { median_ns: record.median_ns.map(|ns| 3.0 * ns), median_interval_ns: None, ..record.clone() };
        gather.add_record(&record, side);
        (0..5).filter(|_| is_doubtful).for_each(|_| gather.add_record(&doubtful, side));
    }
    let drift = judge_lines(&gather.build_history(), Bounds::default());
    assert!((drift.machine_ratio - 1.0).abs() < 0.02, "{}", drift.machine_ratio);
    assert_eq!((drift.count_verdict(Verdict::Slower), drift.count_verdict(Verdict::Faster)), (0, 0));
    assert!(drift.notes.iter().any(|note| note.starts_with("ignored 240 sentinel measurements")), "{:?}", drift.notes);
}

#[test]
fn sentinels_separate_common_changes_from_the_machine() {
    let truth = Truth { tasks: 200, changed: 200, factor: 1.05, ..TRUTH };
    assert!(truth.halves().count_verdict(Verdict::Slower) > 190);
    let bare = Truth { sentinels: false, ..truth };
    assert_eq!(
        bare.halves().count_verdict(Verdict::Slower),
        0,
        "without sentinels, changes of machine and code are indistinguishable"
    );
}

/// With a single night per side, the variance of medians comes from sentinels.
#[test]
fn two_nights_are_enough_for_large_changes() {
    let truth = Truth { nights: 2, tasks: 100, changed: 10, factor: 1.15, ..TRUTH };
    let (recall, wrong) = rates(&slower(&truth.halves()), truth.changed);
    assert!(recall >= 0.9 && wrong <= 0.1, "{recall} {wrong}");
    let none = Truth { changed: 0, ..truth.clone() };
    assert_eq!(slower(&none.halves()), BTreeSet::new());
    let bare = Truth { sentinels: false, ..truth };
    assert!(bare.halves().notes.iter().any(|note| note.contains("each side is one night")));
}

#[test]
fn incomparable_records_are_reported_and_separated() {
    let mut gather = RecordGatherer::new(false, false);
    let times = |at: i64| record(None, 1, 100.0, 0.01, at);
    gather.add_record(&times(100 * DAY_US), Side::Before);
    gather.add_record(&Record { schema_version: 1, ..times(90 * DAY_US) }, Side::After);
    gather.add_record(&Record { source: Source::Simulated, median_ns: Some(1.0), ..times(0) }, Side::After);
    gather.add_record(&record(None, 2, 100.0, 0.01, 99 * DAY_US), Side::Before);
    let crashed =
        Record { outcome: Outcome::Crashed, median_ns: None, median_interval_ns: None, ..record(None, 2, 1.0, 0.0, 0) };
    gather.add_record(&crashed, Side::After);
    let drift = judge_lines(&gather.build_history(), Bounds::default());
    assert_eq!((drift.changes.len(), drift.lost.len(), drift.has_regressed()), (1, 1, true));
    let texts = drift.notes.join("\n");
    for part in
        ["schema versions 1 and", "1 records with the source `simulated`", "a clock was set back", "no sentinel ran"]
    {
        assert!(texts.contains(part), "{texts}");
    }
    let nothing = judge_lines(&RecordGatherer::new(false, false).build_history(), Bounds::default());
    assert_eq!((nothing.changes.len(), nothing.has_regressed(), nothing.seen_from), (0, false, None));
}

/// Operators timed in the network share one period of time and its disturbances.
#[test]
fn a_network_that_ran_once_counts_as_one_measurement() {
    let drift = |factor: &dyn Fn(usize) -> f64| {
        let mut gather = RecordGatherer::new(false, false);
        for task in 0..30 {
            let place = |ns: f64, night: i64| Record {
                network_hash: Some("a network".to_owned()),
                ..record(None, task, ns, 0.004, (100 + night) * DAY_US)
            };
            let ns = 1e5 * (1.0 + task as f64);
            gather.add_record(&place(ns, 0), Side::Before);
            gather.add_record(&place(ns * factor(task), 1), Side::After);
        }
        for (number, sentinel) in SENTINELS.iter().enumerate() {
            for (side, day) in [(Side::Before, 100), (Side::After, 101)] {
                let look = |repetition: i64| {
                    let at = day * DAY_US + repetition * 300_000_000;
                    record(
                        Some(sentinel.name),
                        100_000 + number,
                        1e6 * (1.0 + 0.002 * (repetition % 2) as f64),
                        0.002,
                        at,
                    )
                };
                (0..6).for_each(|repetition| gather.add_record(&look(repetition), side));
            }
        }
        judge_lines(&gather.build_history(), Bounds::default())
    };
    let together = drift(&|task| 0.9 + 0.0005 * task as f64);
    assert_eq!(together.count_verdict(Verdict::Faster) + together.count_verdict(Verdict::Slower), 0, "{together:?}");
    let texts = together.notes.join("\n");
    assert!(texts.contains("network a netw") && texts.contains("in the network; it ran only once"), "{texts}");
    let one = drift(&|task| if task == 7 { 1.3 } else { 1.0 + 0.0005 * (task as f64 - 15.0) });
    assert_eq!(one.count_verdict(Verdict::Slower), 1, "{one:?}");
    assert!(
        one.changes[0].identity.task == "task 7"
            && !one.notes.iter().any(|note| note.contains("in the network; it ran only once"))
    );
}

/// Time of each night for some lines among many constant ones; the last night is compared with the others.
fn history_over_nights(courses: &[&[f64]]) -> History {
    let mut generator = ChaCha8Rng::seed_from_u64(7);
    let mut gather = RecordGatherer::new(false, false);
    let nights = courses[0].len();
    for task in 0..200 {
        for night in 0..nights {
            let level = courses.get(task).map_or(1.0, |course| course[night]);
            let ns = 1e5 * level * (0.003 * normal(&mut generator)).exp();
            let side = if night + 1 == nights { Side::After } else { Side::Before };
            gather.add_record(&record(None, task, ns, 0.004, (100 + night as i64) * DAY_US), side);
        }
    }
    gather.build_history()
}

fn lines_over_nights(courses: &[&[f64]]) -> (Drift, Vec<ChangePoint>) {
    let history = history_over_nights(courses);
    (judge_lines(&history, Bounds::default()), find_change_points(&history, Bounds::default()))
}

#[test]
fn an_outlier_night_is_neither_a_baseline_nor_a_change_point() {
    let (drift, points) = lines_over_nights(&[
        &[1.0, 1.0, 1.11, 1.0, 1.0],
        &[1.0, 0.9, 1.0, 1.0, 1.0],
        &[1.0, 1.0, 1.0, 1.0, 1.11],
        &[1.0, 1.0, 1.11, 1.11, 1.11],
    ]);
    let change = |task: usize| drift.changes.iter().find(|change| number(&change.identity.task) == task).unwrap();
    for task in [0, 1] {
        let change = change(task);
        assert!(change.verdict != Verdict::Faster && change.verdict != Verdict::Slower, "{change:?}");
        assert!((change.ratio - 1.0).abs() < 0.02, "{change:?}");
    }
    assert_eq!(change(2).verdict, Verdict::Slower);
    let found: BTreeSet<(usize, usize)> =
        points.iter().map(|point| (number(&point.identity.task), point.nights_after)).collect();
    assert_eq!(found, BTreeSet::from([(2, 1), (3, 3)]), "{points:?}");
}

#[test]
fn an_outlier_night_does_not_hide_a_later_change_point() {
    let mut course = [[1.0; 8].as_slice(), &[1.02; 6]].concat();
    course[1] = 0.935;
    let (_, points) = lines_over_nights(&[&course]);
    let found: BTreeSet<(usize, usize)> =
        points.iter().map(|point| (number(&point.identity.task), point.nights_after)).collect();
    assert_eq!(found, BTreeSet::from([(0, 6)]), "{points:?}");
}

#[test]
fn the_page_states_where_a_change_point_is_if_the_sides_do_not_differ() {
    let history = history_over_nights(&[
        &[1.0, 1.0, 1.0, 1.0, 1.1, 1.1, 1.1, 1.1, 1.1],
        &[1.0, 1.0, 1.0, 1.0, 1.1, 1.1, 1.1, 1.1, 1.05],
    ]);
    let (drift, points) = (judge_lines(&history, Bounds::default()), find_change_points(&history, Bounds::default()));
    let is_unclear = |task: usize| {
        let mut changes = drift.changes.iter();
        changes.any(|change| number(&change.identity.task) == task && change.verdict == Verdict::Unclear)
    };
    assert!(is_unclear(0) && is_unclear(1), "{:?}", drift.changes);
    let page = render_page("drift", &history, &drift, &points, "");
    for (task, place) in [(0, "; the change point is within one of them"), (1, ", but a change point is there")] {
        let section = page.split_once(&format!("<h3>task {task},")).expect("the line has a curve").1;
        let description = section.split_once("</p>").expect("the curve has a description").0;
        assert!(description.ends_with(&format!("no significant change between the sides{place}")), "{description}");
    }
    assert!(!page.contains("no change found"), "{page}");
}

#[test]
fn change_points_of_a_host_are_compared_with_its_own_nights() {
    let mut generator = ChaCha8Rng::seed_from_u64(7);
    let mut gather = RecordGatherer::new(false, true);
    for (host, hour) in [("a", 0), ("b", 1)] {
        for task in 0..100 {
            for night in 0..9 {
                let (level, side) = if night < 6 { (1.0, Side::Before) } else { (1.2, Side::After) };
                let level = if task == 0 { level } else { 1.0 };
                let ns = 1e5 * level * (0.003 * normal(&mut generator)).exp();
                let start_us = (100 + night) * DAY_US + hour * DAY_US / 24;
                let one = Record { host: host.to_owned(), ..record(None, task, ns, 0.004, start_us) };
                gather.add_record(&one, side);
            }
        }
    }
    let history = gather.build_history();
    let (drift, points) = (judge_lines(&history, Bounds::default()), find_change_points(&history, Bounds::default()));
    assert_eq!(drift.count_verdict(Verdict::Slower), 2, "{:?}", drift.changes);
    let page = render_page("drift", &history, &drift, &points, "");
    assert!(page.contains("2 of the 2 changed lines above have a change point between the two sides. "), "{page}");
}

#[test]
fn a_disturbed_measurement_is_not_a_change() {
    let slower = |half: f64| {
        let mut gather = RecordGatherer::new(false, false);
        for task in 0..20 {
            let look = |ns: f64, half: f64, day: i64| Record {
                min_ns: Some(1e5),
                ..record(None, task, ns, half, (100 + day) * DAY_US)
            };
            let (ns, half) = if task == 3 { (1.5e5, half) } else { (1.01e5, 0.004) };
            gather.add_record(&look(1.01e5, 0.004, 0), Side::Before);
            gather.add_record(&look(ns, half, 1), Side::After);
        }
        judge_lines(&gather.build_history(), Bounds::default()).count_verdict(Verdict::Slower)
    };
    assert_eq!((slower(0.04), slower(0.004)), (0, 1));
}

/// Without sentinels, the median of all lines represents the machine. Two of 26 lines contain a disturbed visit.
#[test]
fn few_uncertain_lines_hide_no_change_of_others() {
    let mut gather = RecordGatherer::new(false, false);
    for task in 0..26 {
        for visit in 0..3 {
            let half = if task < 2 && visit == 0 { 8.0 } else { 0.004 };
            let slower = if (10..13).contains(&task) { 1.1 } else { 1.0 };
            let ns = 1e5 * (1.0 + 0.001 * f64::from(visit));
            let look = |ns: f64, day: i64| record(None, task, ns, half, (100 + day) * DAY_US + i64::from(visit));
            gather.add_record(&look(ns, 0), Side::Before);
            gather.add_record(&look(ns * slower, 1), Side::After);
        }
    }
    let drift = judge_lines(&gather.build_history(), Bounds::default());
    assert_eq!(slower(&drift), BTreeSet::from([10, 11, 12]), "{:?}", drift.changes);
}

/// If measurements within a night fall into two clusters, a later measurement in the other cluster is no change.
#[test]
fn repetitions_within_a_night_determine_the_uncertainty() {
    let changed = |is_torn: bool| {
        let mut gather = RecordGatherer::new(false, false);
        for task in 0..40 {
            let mut look = |ns: f64, day: i64, at: i64, side: Side| {
                gather.add_record(&record(None, task, ns, 0.004, (100 + day) * DAY_US + at), side);
            };
            for at in 0..6 {
                let other = if is_torn && at % 3 == 0 { 1.0 } else { 1.14 };
                look(1e5 * other * (1.0 + 0.001 * (task + at as usize) as f64), 0, at, Side::Before);
            }
            let after = if task < 10 { 1.0 } else { 1.12 };
            look(1e5 * after * (1.0 + 0.001 * task as f64), 1, 0, Side::After);
        }
        let drift = judge_lines(&gather.build_history(), Bounds::default());
        drift.count_verdict(Verdict::Faster) + drift.count_verdict(Verdict::Slower)
    };
    assert_eq!((changed(true), changed(false)), (0, 10));
}

/// With the best schedule of each night, a new schedule is a cause and not a new line.
#[test]
fn the_best_schedule_may_be_another_one() {
    let mut gather = RecordGatherer::new(true, false);
    for (side, day, schedule, ns) in [
        (Side::Before, 1, "a", 100.0),
        (Side::Before, 1, "b", 200.0),
        (Side::After, 2, "a", 190.0),
        (Side::After, 2, "b", 150.0),
    ] {
        let schedule_hash = Some(schedule.to_owned());
        gather.add_record(&Record { schedule_hash, ..record(None, 1, ns, 0.001, day * DAY_US) }, side);
    }
    let drift = judge_lines(&gather.build_history(), Bounds::default());
    let change = &drift.changes[0];
    assert_eq!((change.ratio * 100.0).round(), 150.0);
}

#[test]
fn all_report_formats_agree() {
    const PAGE_COUNTS: &str = "3 of 60 lines became significantly slower, 0 faster.";
    let truth = Truth { tasks: 60, changed: 3, factor: 1.2, ..TRUTH };
    let history = truth.history(|night| if night < 5 { Side::Before } else { Side::After });
    let (drift, change_points) =
        (judge_lines(&history, Bounds::default()), find_change_points(&history, Bounds::default()));
    let text = render_text(&drift, &change_points, &Paper::without_colours(120));
    let markdown = render_markdown(&drift, &change_points);
    let page = render_page("a <name>", &history, &drift, &change_points, "");
    for (report, counts) in [(&text, "3 slower, 0 faster"), (&markdown, "3 slower, 0 faster"), (&page, PAGE_COUNTS)] {
        assert!(report.contains(counts) && report.contains("task 2"), "{report}");
    }
    assert!(page.contains("a &lt;name&gt;"), "{page}");
    for change in &drift.changes[..3] {
        let [low, high] = [change.interval.0, change.interval.1].map(report::format_number);
        let interval = format!("{low} … {high}");
        assert!(page.contains(&format!("</b> ({interval})</td>")) && text.contains(&interval), "{interval}: {page}");
    }
    // Each change has a row with an interval and a curve; the last night's changes are change points too.
    assert_eq!(page.matches("<section id=\"line-").count(), 3, "{page}");
    assert_eq!(page.matches("class=\"bar up\"").count(), 3, "{page}");
    // Each curve is drawn for broad and for narrow windows.
    assert_eq!(page.matches("change point × ").count(), 6, "{page}");
    assert!(page.contains("Nights and operators"), "{page}");
    let json = serde_json::to_value(&drift).unwrap();
    assert_eq!(json["changes"][0]["verdict"], "slower");
    assert_eq!(json["changes"].as_array().unwrap().len(), 60);
}
