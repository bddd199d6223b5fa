//! Tests of tables from records of real tasks, with medians of different certainty.

use super::operators::{Summary, render_summary, summarise_model};
use crate::campaign::graphs::LoadedModels;
use crate::campaign::settings::{ModelEntry, Settings};
use crate::campaign::{PlannedTask, planned_tasks};
use ::report::Paper;
use datasets::{Covers, Key, Outcome, Peaks, Record};

/// `measured`: task, median and half-width of its interval in nanoseconds.
fn summary(measured: &[(usize, f64, Option<f64>)]) -> Summary {
    let source = "simple".to_owned();
    let models = ["relu:shape=64", "softmax:shape=8x64,axis=1"];
    let model = |name: &&str| ModelEntry { source: source.clone(), name: (*name).to_owned(), ..ModelEntry::default() };
    let raw = Settings { models: models.iter().map(model).collect(), ..Settings::default() };
    let config = raw.check(2).expect("a sound configuration");
    let mut tasks = planned_tasks(&config, &LoadedModels::default()).expect("two tasks");
    // Both tasks belong to the first model; the first one has three calls.
    tasks.iter_mut().zip([3, 1]).for_each(|(task, count)| task.counts = vec![(0, count)]);
    let records: Vec<Record> =
        measured.iter().map(|(task, median, half)| record(&tasks[*task], *median, *half)).collect();
    let machine = targets::llvm_target("generic", &[], 2).machine;
    summarise_model((&tasks, &[]), (0, &config.models[0]), &records, &machine, &Peaks::default())
}

fn record(task: &PlannedTask, median_ns: f64, half_width_ns: Option<f64>) -> Record {
    Record {
        outcome: Outcome::Ok,
        key: Key::of_bytes(&median_ns.to_le_bytes()),
        task_hash: task.task.hash(),
        median_ns: Some(median_ns),
        median_interval_ns: half_width_ns,
        interval_covers: Some(Covers::Visits),
        threads: Some(1),
        flops: Some(1000),
        ..Record::default()
    }
}

#[test]
fn a_wide_interval_is_never_best() {
    let known = summary(&[(0, 1.28e6, Some(2.67e6)), (0, 3.0e6, Some(3e4)), (0, 1.0e6, None)]);
    assert_eq!((known.rows[0].median_ns, known.rows[0].spread), (3.0e6, Some(0.01)));
    let unknown = summary(&[(0, 2.0e6, None), (0, 1.0e6, None)]);
    assert_eq!((unknown.rows[0].median_ns, unknown.rows[0].spread), (1.0e6, None), "nothing better is there");
    let close = summary(&[(0, 100.0, Some(1.0)), (0, 99.0, Some(2.5))]);
    assert_eq!(close.rows[0].median_ns, 100.0, "101 ends before 101.5");
}

/// Other program versions may count work differently, so the columns of records are not used.
#[test]
fn work_is_counted_from_the_task() {
    let summary = summary(&[(0, 1000.0, Some(10.0))]);
    assert_eq!(summary.rows[0].gflops, 0.064, "64 elements, whatever the column of the row has");
}

#[test]
fn unknown_values_are_shown_as_unknown() {
    let summary = summary(&[(0, 1000.0, None), (1, 1000.0, Some(10.0))]);
    assert_eq!((summary.total_ns, summary.total_spread, summary.uncertain_share), (4000.0, None, 0.75));
    let text = render_summary(&summary, &Paper::without_colours(180));
    assert!(!text.contains("0.0 %"), "{text}");
    assert!(text.contains("4.00 µs ± –\n75.0 % of the total are medians that are not known to 10 %"), "{text}");
    assert!(text.contains("25.0 %        –"), "a share is not known where the rest is not\n{text}");
}

#[test]
fn shares_and_total_have_intervals() {
    let summary = summary(&[(0, 1000.0, Some(400.0)), (1, 1000.0, Some(10.0))]);
    let near = |told: Option<f64>, by_hand: f64| told.is_some_and(|told| (told / by_hand - 1.0).abs() < 1e-9);
    let (three, one) = (1200.0_f64, 10.0_f64);
    // A disturbance of the machine affects both operators.
    assert!(near(summary.total_spread, (three + one) / 4000.0), "{summary:?}");
    // With two operators, the errors of both shares are equal.
    let off = (1000.0 * three).hypot(3000.0 * one) / 4000.0_f64.powi(2);
    assert!(summary.rows.iter().all(|row| near(row.share_spread, off)), "{summary:?}");
    assert_eq!(summary.uncertain_share, 0.75);
}

#[test]
fn a_model_without_times_has_no_certainty() {
    let summary = summary(&[]);
    assert_eq!((summary.total_ns, summary.total_spread, summary.uncertain_share), (0.0, None, 0.0));
    assert_eq!(summary.missing.len(), 2);
}
