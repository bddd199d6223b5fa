//! Tests that slowdowns of concurrent operators are left out if their interval is wide or unknown.
#![allow(missing_docs)]

use datasets::{Json, Outcome, Record};
use predictor::planning::coruns::CoRuns;
use serde_json::{Value, json};

fn record(elements: usize, other: &str, counted: Value) -> Record {
    let graph = zoo::simple::build_operator(&format!("relu:shape=1x{elements}")).expect("an operator");
    let task = models::distinct_tasks(&graph, models::Fuse::Epilogue).expect("tasks").remove(0).task;
    Record {
        outcome: Outcome::Ok,
        task_hash: task.hash(),
        op_kind: task.anchor_kind(),
        op_text: task.describe(),
        task: Some(Json::from(serde_json::to_value(&task).expect("JSON"))),
        threads: Some(1),
        co_run: Some(Json::from(json!([other]))),
        counters: Some(Json::from(counted)),
        ..Record::default()
    }
}

#[test]
fn slowdowns_of_too_few_rounds_for_an_interval_are_not_known() {
    let hashes = [64, 128].map(|elements| record(elements, "", json!({})).task_hash);
    let of = |elements: usize, interval: Value| {
        let mut counted = json!({ "slowdown": 1.5, "alone_ns": 100.0 });
        let (Some(all), Some(more)) = (counted.as_object_mut(), interval.as_object()) else {
            panic!("both are objects")
        };
        all.extend(more.clone());
        record(elements, &hashes[usize::from(elements == 64)], counted)
    };
    let known = json!({ "slowdown_low": 1.48, "slowdown_high": 1.52 });
    let vague = json!({ "slowdown_low": 1.0, "slowdown_high": 2.0 });
    let found = CoRuns::from_records(&[of(64, known), of(128, vague), of(128, json!({}))]);
    assert_eq!((found.beside.len(), found.left_out), (1, 2));
}
