//! Tests that a held-out device is described only by facts known before: its own records do not set its peaks.
#![allow(missing_docs)]

use datasets::{Json, Outcome, Record, ScheduleSource, Target};
use learn::Learner;
use predictor::evaluate::{Plan, Protocol, evaluate};
use samples::records::{Policy, gather_samples};
use serde_json::Value;

/// Returns the record of a matrix product on a GPU with this rate.
fn product(device: &str, size: i64, flops_per_ns: f64) -> Record {
    let graph = zoo::simple::build_operator(&format!("matmul:m={size},n={size},k={size}")).expect("a product");
    let task = models::distinct_tasks(&graph, models::Fuse::Epilogue).expect("tasks").remove(0).task;
    let work = task.work().expect("sizes are known");
    let count = |number: u64| i64::try_from(number).ok();
    let median_ns = work.flops as f64 / flops_per_ns;
    let record = Record {
        schema_version: 5,
        run_id: "run".to_owned(),
        program_version: "0".to_owned(),
        started_at_us: 1,
        host: "h".to_owned(),
        host_class: "class".to_owned(),
        task_hash: task.hash(),
        outcome: Outcome::Ok,
        schedule_hash: Some("default".to_owned()),
        schedule_source: Some(ScheduleSource::Default),
        target: Target::Cuda,
        device: Some(device.to_owned()),
        op_kind: task.anchor_kind(),
        op_name: task.name(),
        op_text: task.describe(),
        dtype: Some("f32".to_owned()),
        flops: count(work.flops),
        macs: count(work.macs),
        bytes_in: count(work.bytes_in),
        bytes_out: count(work.bytes_out),
        bytes_weights: count(work.bytes_weights),
        task: Some(Json::from(serde_json::to_value(&task).expect("tasks have a JSON form"))),
        threads: Some(1),
        n: 9,
        median_ns: Some(median_ns),
        mean_ns: Some(median_ns),
        min_ns: Some(median_ns),
        p95_ns: Some(median_ns),
        samples_ns: vec![median_ns; 9],
        median_interval_ns: Some(median_ns / 200.0),
        ..Record::default()
    };
    Record { key: record.experiment_key(), ..record }
}

fn records(of_new: f64) -> Vec<Record> {
    let sizes = [64, 96, 128, 192, 256, 384, 512];
    let of = |device: &'static str, rate: f64| sizes.into_iter().map(move |size| product(device, size, rate));
    of("known", 5000.0).chain(of("new", of_new)).collect()
}

#[test]
fn records_that_are_held_out_do_not_set_the_peaks_of_their_device() {
    let plan = Plan::for_protocol(Protocol::P3, &[Learner::Roofline]);
    let refused = evaluate(&gather_samples(&records(20e3), &[], &Policy::default()).expect("samples"), &plan);
    assert!(refused.expect_err("peaks hold what was reached").to_string().contains("no device can be held out"));

    let before = Policy { has_reached_peaks: false, ..Policy::default() };
    let mape = |of_new: f64| {
        let samples = gather_samples(&records(of_new), &[], &before).expect("samples");
        evaluate(&samples, &plan).expect("an evaluation").held_out["new"]["roofline"].mape
    };
    // The bound is the same however fast the device turns out to be, so of a device ten times as fast it is ten times as far off.
    assert!((mape(200e3) + 100.0) / (mape(20e3) + 100.0) > 9.9, "{} {}", mape(200e3), mape(20e3));
}

#[test]
fn the_program_holds_devices_out_so() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("gpus.jsonl");
    let file = std::fs::File::create(&path).expect("a file");
    let mut writer = datasets::Writer::new(&path, datasets::Format::JsonLines, file).expect("a writer");
    records(20e3).iter().for_each(|record| writer.write(record).expect("the record is sound"));
    writer.finish().expect("the file");
    let ran = std::process::Command::new(env!("CARGO_BIN_EXE_oppredict"))
        .args(["eval", "--protocol", "P3", "--learners", "roofline", "--json", "--data"])
        .arg(&path)
        .output()
        .expect("the program runs");
    let document: Value = serde_json::from_str(String::from_utf8_lossy(&ran.stdout).lines().last().unwrap_or_default())
        .unwrap_or_else(|error| panic!("{error}: {ran:?}"));
    let mape = document["held_out"]["new"]["roofline"]["mape"].as_f64().expect("an error");
    assert!(mape > 100.0, "a bound that its own rows set is never above them: {mape}");
}
