//! Tests that records with different settings are never mixed: one group is used, and other records are counted.
#![allow(missing_docs)]

use datasets::{CacheState, Json, Outcome, Record, ScheduleSource};
use samples::Samples;
use samples::records::{Policy, check_setting, gather_samples};
use std::collections::BTreeMap;

fn record(elements: usize, median_ns: f64) -> Record {
    let graph = zoo::simple::build_operator(&format!("relu:shape=1x{elements}")).expect("an operator");
    let task = models::distinct_tasks(&graph, models::Fuse::Epilogue).expect("tasks").remove(0).task;
    Record {
        task_hash: task.hash(),
        outcome: Outcome::Ok,
        schedule_source: Some(ScheduleSource::Default),
        schedule_hash: Some("default".to_owned()),
        code_revision: Some("new".to_owned()),
        tvm_version: Some("2".to_owned()),
        started_at_us: 1000,
        host_class: "here".to_owned(),
        op_kind: task.anchor_kind(),
        op_name: task.name(),
        task: Some(Json::from(serde_json::to_value(&task).expect("tasks have a JSON form"))),
        threads: Some(1),
        median_ns: Some(median_ns),
        schema_version: 5,
        median_interval_ns: Some(median_ns / 100.0),
        ..Record::default()
    }
}

fn with_keys(records: Vec<Record>) -> Vec<Record> {
    records.into_iter().map(|record| Record { key: record.experiment_key(), ..record }).collect()
}

fn taken(records: &[Record], policy: &Policy) -> Samples {
    gather_samples(records, &[], policy).expect("samples")
}

fn times(samples: &Samples) -> Vec<f64> {
    samples.rows.iter().map(|row| row.time_ns).collect()
}

fn asking(column: &str, value: &str) -> Policy {
    Policy { settings: BTreeMap::from([(column.to_owned(), value.to_owned())]), ..Policy::default() }
}

fn check(column: &str, others: &str, change: impl Fn(Record) -> Record) {
    let records = with_keys(vec![record(64, 100.0), change(record(64, 900.0)), record(128, 200.0)]);
    let usual = taken(&records, &Policy::default());
    assert_eq!(times(&usual), [100.0, 200.0], "{column}");
    let (reason, count) = usual.left_out.iter().next().expect("one is left out");
    assert!(reason.starts_with(&format!("`{column}` is ")) && *count == 1, "{column}: {:?}", usual.left_out);
    assert_eq!(times(&taken(&records, &asking(column, others))), [900.0], "{column}");
    check_setting(column).expect("a setting");
}

#[test]
fn one_group_of_settings_is_learned_from() {
    let text = |word: &str| Some(word.to_owned());
    check("cache_state", "cold", |record| Record { cache_state: Some(CacheState::Cold), ..record });
    check("clock_policy", "powersave", |record| Record { clock_policy: text("powersave"), ..record });
    check("target_text", "llvm -mcpu=x", |record| Record { target_text: text("llvm -mcpu=x"), ..record });
    check("llvm_version", "23", |record| Record { llvm_version: text("23"), ..record });
    check("driver_version", "9", |record| Record { driver_version: text("9"), ..record });
    check("thread_mode", "free", |record| Record { thread_mode: text("free"), ..record });
    check("spin_count", "0", |record| Record { spin_count: Some(0), ..record });
    check("cache_share", "0.5", |record| Record { cache_share: Some(0.5), ..record });
    check("symbolic_task", "yes", |record| Record { symbolic_task: text("relu(f32[n])"), ..record });
    let error = check_setting("governor").expect_err("no column").to_string();
    assert!(error.starts_with("unknown setting `governor`; "), "{error}");
}

#[test]
fn each_device_has_its_own_group() {
    let on = |host_class: &str, policy: &str, elements: usize| Record {
        host_class: host_class.to_owned(),
        clock_policy: Some(policy.to_owned()),
        ..record(elements, elements as f64)
    };
    let records = with_keys(vec![
        on("one", "performance", 64),
        on("one", "performance", 128),
        on("one", "powersave", 256),
        on("two", "powersave", 512),
        on("two", "powersave", 1024),
        on("two", "performance", 2048),
    ]);
    let samples = taken(&records, &Policy::default());
    assert_eq!(times(&samples), [64.0, 128.0, 512.0, 1024.0]);
    let settings = &samples.provenance.expect("records have one").settings;
    let policies = ["one", "two"].map(|device| settings[device]["clock_policy"].as_str());
    assert_eq!(policies, ["performance", "powersave"]);
    assert_eq!(settings["one"]["cache_state"], "warm", "a state that is not recorded is the usual one");
}

#[test]
fn of_a_task_and_schedule_only_the_newest_code_counts() {
    let older = |record: Record| Record { code_revision: Some("old".to_owned()), started_at_us: 10, ..record };
    let drawn = |record: Record| Record {
        schedule_source: Some(ScheduleSource::Template),
        schedule_hash: Some("drawn".to_owned()),
        ..record
    };
    let records = with_keys(vec![
        older(record(64, 900.0)),
        record(64, 100.0),
        // Another default schedule of older code is the default one no more.
        Record { schedule_hash: Some("default before".to_owned()), ..older(record(64, 800.0)) },
        older(drawn(record(64, 300.0))),
        // On two threads nothing newer was measured.
        Record { threads: Some(2), ..older(record(64, 700.0)) },
    ]);
    let samples = taken(&records, &Policy::default());
    assert_eq!(times(&samples), [100.0, 300.0, 700.0]);
    let left_out: Vec<(&str, u64)> = samples.left_out.iter().map(|(reason, count)| (reason.as_str(), *count)).collect();
    assert!(matches!(left_out[..], [(reason, 2)] if reason.starts_with("older code")), "{left_out:?}");
    assert_eq!(samples.warnings.len(), 1, "{:?}", samples.warnings);
    assert!(
        samples.warnings[0].contains("2 rows of the main code revision and 1 row of others are used together"),
        "{:?}",
        samples.warnings
    );
    let all = Policy { all_versions: true, ..Policy::default() };
    assert_eq!(times(&taken(&records, &all)).len(), 5);
    // Operators of another kind are learned apart, so their code may be of another time.
    let other_kind = Record { op_kind: "clip".to_owned(), ..older(record(64, 900.0)) };
    let other_kind = Record { task_hash: "another".to_owned(), ..other_kind };
    let warnings = taken(&with_keys(vec![record(64, 100.0), other_kind]), &Policy::default()).warnings;
    assert!(warnings.is_empty(), "{warnings:?}");
    // Of TVM, too, the newer one counts where several are taken.
    let of_tvm = |version: &str, at: i64, record: Record| Record {
        tvm_version: Some(version.to_owned()),
        started_at_us: at,
        ..record
    };
    let records = with_keys(vec![
        of_tvm("2", 5, record(64, 100.0)),
        of_tvm("2", 6, record(128, 200.0)),
        of_tvm("1", 9, record(64, 50.0)),
    ]);
    assert_eq!(times(&taken(&records, &Policy::default())), [100.0, 200.0], "the most frequent version");
}

#[test]
fn what_was_learned_from_is_told() {
    let records = with_keys(vec![
        record(64, 100.0),
        Record { started_at_us: 5000, ..record(128, 200.0) },
        Record { target: datasets::Target::Torch, tvm_version: None, ..record(256, 300.0) },
    ]);
    let provenance = taken(&records, &Policy { all_versions: true, ..Policy::default() }).provenance.expect("records");
    assert_eq!((provenance.first_us, provenance.last_us), (1000, 5000));
    assert_eq!(provenance.host_classes.iter().collect::<Vec<_>>(), ["here"]);
    assert_eq!(provenance.tvm_versions.iter().collect::<Vec<_>>(), ["2"]);
    let [code] = &provenance.code[..] else { panic!("{:?}: a library's operators are not compiled", provenance.code) };
    assert_eq!((code.target.as_str(), code.steps.join("+"), code.rows), ("llvm", "unary".to_owned(), 2));
    assert_eq!(code.revision.as_deref(), Some("new"));
}

#[test]
fn the_setting_that_would_bring_most_back_is_named() {
    let clock = |policy: &str, elements: usize| Record {
        clock_policy: Some(policy.to_owned()),
        ..record(elements, elements as f64)
    };
    let mut records: Vec<Record> = (0..3).map(|step| clock("performance", 64 << step)).collect();
    records.extend((0..2).map(|step| clock("powersave", 64 << step)));
    records.extend((0..2).map(|step| clock("schedutil", 64 << step)));
    let hints = taken(&with_keys(records), &Policy::default()).filter_hints.expect("most are left out");
    assert_eq!((hints.measured, hints.left_out), (7, 4));
    let flags = [("--setting clock_policy=powersave", 2), ("--setting clock_policy=schedutil", 2)];
    assert_eq!(hints.flags, flags.map(|(flag, rows)| (flag.to_owned(), rows)));
}
