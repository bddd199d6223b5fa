//! An experiment that was measured several times is one sample: the middle of its measurements.
#![allow(missing_docs)]

use datasets::{Json, Outcome, Record, ScheduleSource, Source};
use predictor::evaluate::{Plan, Protocol, evaluate};
use predictor::learn::Learner;
use predictor::records::{Policy, gather};

/// A measurement of an operator of so many elements.
fn record(elements: usize, median_ns: f64) -> Record {
    record_on("here", elements, median_ns)
}

/// The same on some machine.
fn record_on(host_class: &str, elements: usize, median_ns: f64) -> Record {
    let graph = models::simple::build(&format!("relu:shape=1x{elements}")).expect("an operator");
    let task = models::tasks(&graph, models::Fuse::Epilogue).expect("tasks").remove(0).task;
    let record = Record {
        task_hash: task.hash(),
        outcome: Outcome::Ok,
        source: Source::Measured,
        schedule_source: Some(ScheduleSource::Default),
        host_class: host_class.to_owned(),
        op_kind: task.kind().to_owned(),
        op_name: task.name(),
        task: Some(Json::from(serde_json::to_value(&task).expect("tasks have a JSON form"))),
        threads: Some(1),
        median_ns: Some(median_ns),
        cv: Some(median_ns / 10_000.0),
        ..Record::default()
    };
    Record { key: record.experiment_key(), ..record }
}

#[test]
fn measurements_of_one_experiment_are_one_sample() {
    let records = [record(64, 100.0), record(128, 210.0), record(64, 130.0), record(64, 110.0)];
    let samples = gather(&records, &[], &Policy::default()).expect("samples");
    let times: Vec<f64> = samples.rows.iter().map(|sample| sample.time_ns).collect();
    assert_eq!(times, [110.0, 210.0]);
    assert_eq!(samples.rows[0].measured_ns, [100.0, 110.0, 130.0]);
    assert_eq!(samples.rows[0].cv, Some(0.011));
    assert_eq!(samples.rows[0].apart(), Some(130.0 / 110.0 - 1.0));
    assert_eq!(samples.rows[1].apart(), None, "it was measured once");

    let floor = evaluate(&samples, &Plan::of(Protocol::P0, &[])).expect("repeats").repeats.expect("one was repeated");
    assert_eq!(floor.candidates, 1);
    assert!((floor.mape - (10.0 / 110.0 + 20.0 / 110.0) / 3.0 * 100.0).abs() < 1e-9, "{floor:?}");
}

#[test]
fn another_machine_is_another_experiment() {
    let records = [record(64, 100.0), record_on("there", 64, 300.0)];
    let samples = gather(&records, &[], &Policy::default()).expect("samples");
    assert_eq!(samples.rows.iter().map(|sample| sample.time_ns).collect::<Vec<_>>(), [100.0, 300.0]);
}

#[test]
fn only_what_measurements_agree_about_is_asked() {
    let twice = |elements, one, other| [record(elements, one), record(elements, other)];
    let records = [twice(64, 100.0, 102.0), twice(128, 200.0, 300.0), twice(256, 400.0, 404.0)].concat();
    let samples = gather(&records, &[], &Policy::default()).expect("samples");
    let plan = Plan { folds: Some(3), ..Plan::of(Protocol::P1, &[Learner::Roofline]) };
    let asked = |most| {
        let found = evaluate(&samples, &Plan { score_apart: most, ..plan.clone() }).expect("an evaluation");
        found.learners["roofline"].rows
    };
    assert_eq!((asked(None), asked(Some(0.03)), asked(Some(0.3))), (3, 2, 3));
    assert!(evaluate(&samples, &Plan { score_apart: Some(0.001), ..plan }).is_err());
}

/// Each division asks everything once; together they are no larger tasks.
#[test]
fn schedules_are_ranked_within_a_division() {
    let records: Vec<Record> = (0..6).map(|step| record(64 << step, 100.0 + f64::from(step))).collect();
    let samples = gather(&records, &[], &Policy::default()).expect("samples");
    let plan = Plan { seeds: (0..5).collect(), ..Plan::of(Protocol::P1, &[Learner::Roofline]) };
    let found = evaluate(&samples, &plan).expect("an evaluation");
    assert_eq!(found.learners["roofline"].rows, 30);
    assert!(found.ranking.is_empty(), "no task has two schedules: {:?}", found.ranking);
}
