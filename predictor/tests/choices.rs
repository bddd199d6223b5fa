//! Tests that a library's choice is learned if recorded, predicted for queries, and never required in a query.
#![allow(missing_docs)]

use learn::predictor::{Predictor, Query};
use learn::train::{self, TrainOptions};
use learn::{Fitted, ensemble};
use predictor::bundle;
use samples::Samples;
use samples::features::{CHOICE, Work};
use samples::table::Mapping;
use std::fmt::Write;

const MAPPING: &str = r#"
operator = "op"
device = "device"
time = { column = "time_us", unit = "us" }
choice = "kernel"

[operators]
product = { form = "contraction", batch = 1, rows = "m", columns = "n", depth = "k" }

[devices.one]
units = 20
flops_per_cycle = 128
clock_ghz = 1.0
bandwidth_gb_per_s = 200
cache_bytes = 4e6
"#;

/// Products that run as `tall` if they have more rows than columns, else as `wide`, which takes three times as long.
fn samples() -> Samples {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut table = "op,device,time_us,m,n,k,kernel\n".to_owned();
    for step in 0..600u64 {
        let size = |salt: u64| 16 + (step * 7919 + salt * 104_729) % 900;
        let (m, n, k) = (size(1), size(2), size(3));
        let (kernel, factor) = if m > n { ("tall", 1.0) } else { ("wide", 3.0) };
        let time_us = 10.0 + factor * (2 * m * n * k) as f64 / (0.7 * 20.0 * 128.0 * 1e3);
        let _ = writeln!(table, "product,one,{time_us:.3},{m},{n},{k},{kernel}");
    }
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("a temporary folder takes files");
        path
    };
    let mapping = Mapping::read_file(&write("mapping.toml", MAPPING)).expect("the mapping");
    samples::table::read_samples(&[write("table.csv", &table)], &mapping).expect("the table")
}

fn choice(predictor: &Predictor, rows: f64, columns: f64) -> Option<String> {
    let work = Work::contraction_work(1.0, rows, columns, 300.0, false);
    let query = Query { operator: "product", work: &work, device: "one", threads: None, extras: &Default::default() };
    predictor.predict(&query).expect("an answer").choice
}

#[test]
fn the_choice_is_guessed_and_kept() {
    let predictor = train::train_predictor(&samples(), &TrainOptions::default()).expect("a predictor");
    assert_eq!(choice(&predictor, 700.0, 200.0).as_deref(), Some("tall"));
    assert_eq!(choice(&predictor, 200.0, 700.0).as_deref(), Some("wide"));
    assert_eq!(predictor.learned.operators["product"].statistics.choices, ["tall", "wide"], "the quicker first");

    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("choices.opp");
    bundle::write_bundle(&predictor, &path).expect("a file");
    let read = bundle::read_bundle(&path).expect("the file");
    assert_eq!(
        read.learned.operators["product"].choice_classifiers,
        predictor.learned.operators["product"].choice_classifiers
    );
    assert_eq!(choice(&read, 200.0, 700.0).as_deref(), Some("wide"));

    let mut nameless = predictor;
    nameless.learned.operators.values_mut().for_each(|of| of.statistics.choices.truncate(1));
    bundle::write_bundle(&nameless, &path).expect("a file");
    let error = bundle::read_bundle(&path).expect_err("a choice without a name").to_string();
    assert!(error.contains("has no name") && error.contains("choices.opp"), "{error}");
}

#[test]
fn answers_do_not_depend_on_what_was_chosen() {
    let samples = samples();
    assert_eq!(samples.names.last().map(String::as_str), Some(CHOICE));
    let learn: Vec<usize> = (0..400).collect();
    let query: Vec<usize> = (400..600).collect();
    let parameters = |_: &str| learn::boosted::BoostingParameters::default_parameters();
    let fitted = ensemble::fit_ensemble(&samples, &learn, &parameters, 0, ensemble::Purpose::Known).expect("trees");
    let times = fitted.predict(&samples, &query);
    let mut turned = samples.clone();
    query.iter().for_each(|row| turned.rows[*row].choice = turned.rows[*row].choice.map(|choice| 1 - choice));
    assert_eq!(fitted.predict(&turned, &query), times);
    let off = |(row, time): (&usize, &f64)| (time / samples.rows[*row].time_ns - 1.0).abs();
    let off: f64 = query.iter().zip(&times).map(off).sum::<f64>() / query.len() as f64;
    assert!(off < 0.1, "{off}");
}
