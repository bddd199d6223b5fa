//! Tests that slowdowns of concurrent operators are left out if their interval is wide or unknown.
#![allow(missing_docs)]

use datasets::{Json, Outcome, Record};
use predictor::planning::coruns::{CoRuns, Score, Scores};
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

#[test]
fn equal_errors_of_rules_have_a_cause() {
    let score = |rule, above_one| Score { rule, mape: 13.24, median: 11.6, p90: 28.1, above_one };
    let scores = |above_one, has_memory_traffic| Scores {
        rules: vec![score("learned from pairs", 9), score("sum", above_one), score("class rule", 0)],
        asked: 9,
        operators: 5,
        noise: 1.5,
        middle: 1.13,
        has_memory_traffic,
    };
    let text = scores(0, false).explain_equal_rules().expect("two equal rules");
    assert!(text.starts_with("2 of 3 rules (sum, class rule) have equal errors"), "{text}");
    assert!(text.ends_with("the data of each operator fits the last-level cache"), "{text}");
    let text = scores(0, true).explain_equal_rules().expect("two equal rules");
    assert!(text.ends_with("do not limit these operators"), "{text}");
    assert_eq!(scores(1, false).explain_equal_rules(), None);
}
