//! Tests of the whole path from a table to predictions, with the real XGBoost library.

mod common;

use learn::host_translation::{Factors, HostTranslation};
use learn::predictor::{About, Basis, Prediction, Predictor, Query};
use learn::train::{self, TrainOptions};
use learn::{Fitted, Learner, adaptation};
use predictor::answers::rank_schedules;
use predictor::evaluate::{Evaluation, Plan, Protocol, evaluate};
use predictor::knee::KneeOptions;
use predictor::queries::{Setting, ThreadsOrigin};
use predictor::{bundle, exchange, explain, queries};
use proptest::prelude::*;
use samples::features::{Device, View, Work};
use samples::{Network, Samples};
use serde_json::json;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::LazyLock;

fn plan(protocol: Protocol, learners: &[Learner]) -> Plan {
    Plan { folds: Some(3), ..Plan::for_protocol(protocol, learners) }
}

const BASELINES: &[Learner] = &[
    Learner::PlainXgboost,
    Learner::Forest,
    Learner::Linear,
    Learner::Lasso,
    Learner::SupportVectors,
    Learner::Neighbours,
    Learner::OperatorMedian,
    Learner::Roofline,
];

fn rows(samples: &Samples, of_large: bool) -> Vec<usize> {
    (0..samples.rows.len()).filter(|row| (samples.device_name(*row) == "large") == of_large).collect()
}

fn half() -> Samples {
    let (mut samples, _) = common::samples();
    let every_other: Vec<usize> = (0..samples.rows.len()).filter(|row| row / 2 % 2 == 0).collect();
    samples.keep_rows(&every_other);
    samples
}

fn trained_on_half() -> Predictor {
    static TRAINED: LazyLock<Predictor> =
        LazyLock::new(|| train::train_predictor(&half(), &TrainOptions::default()).expect("a predictor"));
    TRAINED.clone()
}

fn without_large() -> Predictor {
    static WITHOUT_LARGE: LazyLock<Predictor> = LazyLock::new(|| {
        let samples = half();
        train::train_predictor(&samples.select_rows(&rows(&samples, false)), &TrainOptions::default())
            .expect("a predictor")
    });
    WITHOUT_LARGE.clone()
}

fn after_few() -> &'static Evaluation {
    static AFTER_FEW: LazyLock<Evaluation> = LazyLock::new(|| {
        let (samples, _) = common::samples();
        evaluate(&samples, &plan(Protocol::P4, &[Learner::Ensemble, Learner::Roofline])).expect("an evaluation")
    });
    &AFTER_FEW
}

#[test]
fn shapes_held_out_are_predicted_better_than_by_every_baseline() {
    let (samples, _) = common::samples();
    let learners = [&[Learner::Ensemble], BASELINES].concat();
    let found = evaluate(&samples, &plan(Protocol::P1, &learners)).expect("an evaluation");
    let ours = &found.learners["ours"];
    assert_eq!(ours.rows, samples.rows.len(), "every row is asked once");
    assert!(ours.mape < 5.0, "{ours:?}");
    assert_eq!(found.learners.len(), learners.len());
    for (name, metrics) in &found.learners {
        assert!(name == "ours" || metrics.mape > ours.mape, "{name}: {metrics:?}\nours: {ours:?}");
    }
}

#[test]
fn a_predictor_knows_how_far_off_it_is_for_shapes_that_were_held_out() {
    let samples = half();
    let held_out = |samples: &Samples| {
        train::train_predictor(samples, &TrainOptions::default()).expect("a predictor").about.held_out
    };
    let usual = trained_on_half().about.held_out;
    for (place, name) in samples.operators.iter().enumerate() {
        let of = samples.rows.iter().filter(|row| row.operator as usize == place);
        let shapes: BTreeSet<u64> = of.clone().map(|row| row.shape).collect();
        let error = usual[name][&View::Sizes];
        assert_eq!((error.shapes, error.rows), (shapes.len(), of.count()), "each shape is held out once");
        assert!(error.median_percent < 10.0, "{name}: {error:?}");
    }
    // Rows of one shape are held out together: what only its other rows tell is not known.
    let few: Vec<usize> = (0..samples.rows.len()).filter(|row| row / 2 % 3 == 0).flat_map(|row| [row, row]).collect();
    let mut twice = samples.select_rows(&few);
    twice.rows.iter_mut().for_each(|sample| sample.time_ns *= if sample.shape % 2 == 0 { 0.4 } else { 2.5 });
    for (name, views) in held_out(&twice) {
        assert!(views[&View::Sizes].median_percent > 40.0, "{name}: {views:?}");
    }
}

fn on_a_host(predictor: &Predictor, cpus: usize) -> Predictor {
    let mut predictor = predictor.clone();
    for of in predictor.learned.operators.values_mut() {
        of.statistics.overheads_ns.retain(|device, _| device == "middle");
    }
    let host_class = "slow host".to_owned();
    predictor.this_host = Some(HostTranslation {
        host_class,
        cpus,
        factors: Factors { common: 2.0, ..Factors::default() },
        ..HostTranslation::default()
    });
    predictor
}

#[test]
fn whoever_asks_gets_the_times_of_this_host() {
    let (_, mapping) = common::samples();
    let predictor = on_a_host(&bundle::from_bytes(common::trained()).expect("the file"), 64);
    let operators = [queries::parse_operator("product:b=3,m=200,n=300,k=100", Some(&mapping)).expect("an operator")];
    let there = Setting { device: Some("middle".to_owned()), ..Setting::default() };
    let here = Setting::default();
    let single =
        |setting: &Setting| queries::predict_operators(&predictor, &operators, setting).expect("an answer").remove(0);
    let (learned, answer) = (single(&there).prediction, single(&here).prediction);
    let is_double = |time_ns: f64| (time_ns / learned.time_ns - 2.0).abs() < 1e-6;
    assert!(is_double(answer.time_ns) && answer.held_out.is_none() && learned.held_out.is_some(), "{answer:?}");
    assert_eq!((answer.this_host.as_deref(), learned.this_host), (Some("slow host"), None));
    let model = queries::predict_model(&predictor, &operators, &here).expect("an answer").remove(0).prediction;
    assert!(is_double(model.time_ns), "{model:?}");
    let explained = explain::explain_answer(&predictor, &operators[0], &here, None, None).expect("an answer");
    assert!(is_double(explained.explanation.prediction.time_ns), "{explained:?}");
    let knee = predictor::knee::find_knee(
        &predictor,
        &operators[0],
        &Setting { extrapolate: true, ..here },
        "threads",
        &KneeOptions { most_threads: Some(2), ..KneeOptions::default() },
    );
    let at_most = Setting { threads: Some(2.0), extrapolate: true, ..there };
    let ratio = knee.expect("a curve").curve[1].time_ns / single(&at_most).prediction.time_ns;
    assert!((ratio - 2.0).abs() < 1e-6, "{ratio}");
}

#[test]
fn ranked_schedules_have_the_times_of_this_host() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../datasets/published/cpu.opp");
    let mut predictor = bundle::read_bundle(&file).expect("the shipped predictor");
    let folder = tempfile::tempdir().expect("a folder");
    let space = folder.path().join("space.json");
    let knobs = json!({
        "block": 64, "layout": "blocked", "outer": "channels", "parallel": 3, "pool": "yes", "split_r": 8, "tile_c": 1,
        "tile_x": 4, "tile_y": 1, "unroll": 1, "vectorize": "yes",
    });
    let op = "dense:m=64,n=64,k=64";
    let text = queries::parse_operator(op, None).expect("an operator").text;
    std::fs::write(&space, json!([{ "text": text, "sample": [knobs] }]).to_string()).expect("a file");
    let setting = Setting { threads: Some(1.0), ..Setting::default() };
    let time_ns =
        |predictor: &Predictor| rank_schedules(predictor, &space, op, &setting, 1).expect("a ranking").best[0].time_ns;
    let there_ns = time_ns(&predictor);
    predictor.this_host = Some(HostTranslation {
        cpus: 2,
        factors: Factors { common: 2.0, ..Factors::default() },
        ..HostTranslation::default()
    });
    assert!((time_ns(&predictor) / there_ns - 2.0).abs() < 1e-6);
}

#[test]
fn answers_say_how_many_threads_they_are_for_and_how_far_off_such_are() {
    let mut predictor = bundle::from_bytes(common::trained()).expect("the file");
    let setting = |threads: Option<f64>| Setting { device: Some("middle".to_owned()), threads, ..Setting::default() };
    let assumed = |predictor: &Predictor, threads: Option<f64>, here: Option<usize>| {
        let found = match here {
            None => queries::assumed_threads(predictor, &setting(threads)),
            Some(cpus) => {
                let setting = Setting { device: None, ..setting(threads) };
                queries::assumed_threads(&on_a_host(predictor, cpus), &setting)
            }
        };
        let found = found.expect("a device");
        (found.count, found.word, found.from, found.reason)
    };
    let default = ThreadsOrigin::Default;
    assert_eq!(assumed(&predictor, None, None), (40.0, "unit", default, "default: all of `middle`".to_owned()));
    assert_eq!(assumed(&predictor, Some(3.0), None).2, ThreadsOrigin::Flag);
    let work = Work::contraction_work(2.0, 300.0, 300.0, 300.0, false);
    let ask = |predictor: &Predictor, device: &str| {
        let query = Query { operator: "product", work: &work, device, threads: None, extras: &Default::default() };
        predictor.predict(&query).expect("an answer")
    };
    let answer = ask(&predictor, "middle");
    assert_eq!((answer.threads, answer.held_out), (40.0, Some(predictor.about.held_out["product"][&View::Sizes])));

    // Learned on one thread and on two of a host that has 64.
    let column = samples::features::FEATURES.iter().position(|feature| feature.name == "threads").expect("a feature");
    for of in predictor.learned.operators.values_mut() {
        of.statistics.ranges[column] = Some((1.0, 2.0));
    }
    predictor.about.devices.get_mut("middle").expect("a device").units = 64.0;
    let (count, word, _, reason) = assumed(&predictor, None, None);
    assert_eq!((count, word, ask(&predictor, "middle").threads), (2.0, "thread", 2.0));
    assert!(reason.contains("the maximum of the training data; `middle` has 64"), "{reason}");
    assert!(
        assumed(&predictor, None, Some(96))
            .3
            .contains("this machine has 96, but the training data does not cover that many")
    );
    for (cpus, wanted) in [
        (1, "default: all CPUs of this machine; `middle` has 64"),
        (2, "default: all CPUs of this machine; `middle` has 64"),
    ] {
        let (count, _, _, reason) = assumed(&predictor, None, Some(cpus));
        assert_eq!((count, reason.as_str()), (cpus as f64, wanted));
    }

    // Files of older programs do not know how far off they are.
    predictor.about.held_out.clear();
    let again = bundle::from_bytes(&bundle::to_bytes(&predictor)).expect("it is read all the same");
    assert_eq!((ask(&again, "middle").held_out, again.about.provenance), (None, None));
    let new = without_large();
    let large = common::samples().0.devices.into_iter().find(|(name, _)| name == "large").expect("a device");
    let new = Predictor { about: About { devices: [large].into(), ..new.about.clone() }, ..new };
    let other = ask(&new, "large");
    assert_eq!((other.threads, other.held_out), (80.0, None), "how far off it is on other devices nobody has tried");
}

#[test]
fn intervals_hold_about_what_they_promise() {
    let plan = Plan { intervals: true, ..plan(Protocol::P1, &[Learner::Ensemble, Learner::Quantiles]) };
    let found = evaluate(&half(), &plan).expect("an evaluation");
    for (name, metrics) in &found.learners {
        let interval = metrics.interval.as_ref().expect("both learn intervals");
        assert!(metrics.mape < 6.0 && (80.0..=99.0).contains(&interval.coverage), "{name}: {metrics:?}");
    }
}

#[test]
fn operators_of_one_shape_have_intervals_too() {
    let mut samples = half();
    // One shape of its own operator: in one division it was never seen, in the others it cannot be left aside.
    let rare = samples.rows[0].shape;
    samples.operators.push("rare".to_owned());
    let name = samples.operators.len() as u32 - 1;
    samples.rows.iter_mut().filter(|row| row.shape == rare).for_each(|row| row.operator = name);
    let plan = Plan { intervals: true, ..plan(Protocol::P1, &[Learner::Ensemble]) };
    let found = evaluate(&samples, &plan).expect("an evaluation");
    let interval = found.learners["ours"].interval.as_ref().expect("all rows have one");
    assert!((80.0..=99.0).contains(&interval.coverage), "{interval:?}");
}

#[test]
fn networks_are_the_sums_of_their_operators() {
    let (mut samples, _) = common::samples();
    // Networks that share no shapes, of which each shape occurs twice.
    let shapes: BTreeSet<u64> = samples.rows.iter().map(|sample| sample.shape).collect();
    let network = |part: u64| Network {
        name: format!("net-{part}"),
        setting: "batch 1".to_owned(),
        uses: shapes.iter().filter(|shape| *shape % 3 == part).map(|shape| (*shape, 2.0)).collect(),
    };
    samples.networks = (0..3).map(network).collect();
    let found =
        evaluate(&samples, &plan(Protocol::P2, &[Learner::Ensemble, Learner::Roofline])).expect("an evaluation");
    let whole = found.end_to_end.expect("networks were held out");
    assert_eq!(whole.networks.len(), 3 * samples.devices.len(), "each on each device");
    let sum = |of: fn(&samples::Sample) -> f64| 2.0 * samples.rows.iter().map(of).sum::<f64>();
    let total: f64 = whole.networks.iter().map(|network| network.measured_ns).sum();
    let bound: f64 = whole.networks.iter().map(|network| network.predicted_ns["roofline"]).sum();
    assert!((total / sum(|sample| sample.time_ns) - 1.0).abs() < 1e-9);
    assert!((bound / sum(|sample| sample.attainable_ns) - 1.0).abs() < 1e-9);
    assert_eq!(whole.learners["ours"].hit10, 100.0, "{:?}", whole.learners);
    // Two of three are held out together.
    let dealt = Plan { folds: Some(2), ..plan(Protocol::P2, &[Learner::Roofline]) };
    let whole = evaluate(&samples, &dealt).expect("an evaluation").end_to_end.expect("networks were held out");
    assert_eq!(whole.networks.len(), 3 * samples.devices.len(), "each on each device, once");
    // All networks are of one family, so nothing is left to learn from.
    assert!(evaluate(&samples, &plan(Protocol::P2f, &[Learner::Roofline])).is_err());
}

#[test]
fn trees_go_out_as_xgboosts_files_and_come_back() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let before = bundle::from_bytes(common::trained()).expect("the file");
    let written = exchange::export_trees(&before, folder.path()).expect("files");
    assert!(written.iter().any(|path| path.ends_with("product.known.0.json")), "{written:?}");
    let mut after = before.clone();
    after.learned.operators.values_mut().for_each(|of| of.known.clear());
    assert_eq!(exchange::import_trees(&mut after, folder.path()).expect("trees"), ["product", "soft"]);
    for (name, of) in &after.learned.operators {
        // The places of nodes may differ, so answers are compared.
        for size in [20.0, 90.0, 300.0, 700.0] {
            let work = Work::contraction_work(2.0, size, size, size, false);
            let query =
                Query { operator: name, work: &work, device: "middle", threads: None, extras: &Default::default() };
            let row = before.feature_row(&query).expect("a described device");
            let ours = before.learned.operators[name].log_ratio(&row, true);
            assert!((of.log_ratio(&row, true) - ours).abs() < 1e-6, "{name} {size}");
        }
        assert!(of.statistics.half_widths.is_empty(), "nobody knows how far off these are");
    }
    let path = folder.path().join("soft.known.0.json");
    let text = std::fs::read_to_string(&path).expect("the file");
    std::fs::write(&path, text.replace("\"depth\"", "\"length\"")).expect("a file");
    let error = exchange::import_trees(&mut after, folder.path()).expect_err("another feature").to_string();
    assert!(error.contains("is `length`, but in the predictor it is `depth`"), "{error}");
}

#[test]
fn few_measurements_of_a_new_device_help() {
    let found = after_few();
    let (few, many) = (&found.learners["ours k=10"], &found.learners["ours k=50"]);
    assert!(many.mape <= few.mape && many.mape < 8.0, "{few:?} {many:?}");
}

#[test]
fn the_error_after_few_measurements_is_that_of_other_shapes() {
    let (samples, _) = common::samples();
    let mut predictor = without_large();
    // Every shape was measured twice, and is fast or slow in a way that no other shape tells of.
    let twice: Vec<usize> = (0..samples.rows.len())
        .filter(|row| {
            samples.device_name(*row) == "large" && samples.operators[samples.rows[*row].operator as usize] == "product"
        })
        .step_by(4)
        .flat_map(|row| [row, row])
        .collect();
    let mut measured = samples.select_rows(&twice);
    measured.rows.iter_mut().for_each(|sample| sample.time_ns *= if sample.shape % 2 == 0 { 0.5 } else { 2.0 });
    let changes = adaptation::adapt_predictor(&mut predictor, measured.clone()).expect("measurements");
    assert!(changes[0].after.is_some_and(|after| after > 60.0), "{changes:?}");

    // The errors of other shapes are random, and two percentage points more are no news of so few shapes.
    assert!(!changes[0].is_worse, "{changes:?}");

    // Predictions are exact but for every eighth shape, which misleads the correction of all others.
    let mut predictor = without_large();
    let mut misleading = measured.clone().with_features(&predictor.about.names);
    let all: Vec<usize> = (0..misleading.rows.len()).collect();
    let predicted = predictor.learned.predict(&misleading, &all);
    for (place, (sample, time_ns)) in misleading.rows.iter_mut().zip(predicted).enumerate() {
        sample.time_ns = if place / 2 % 8 == 0 { 3.0 * time_ns } else { time_ns };
    }
    let changes = adaptation::adapt_predictor(&mut predictor, misleading).expect("measurements");
    assert!(changes[0].is_worse, "{changes:?}");

    // Times in another unit are refused, and the predictor stays as it is.
    let mut other_unit = measured.clone();
    other_unit.rows.iter_mut().for_each(|sample| sample.time_ns *= 1000.0);
    let error =
        adaptation::adapt_predictor(&mut without_large(), other_unit).expect_err("1000 times as long").to_string();
    assert!(
        error.contains("the time of `product` on large is") && error.contains("check the sizes and the unit"),
        "{error}"
    );

    // Many measurements of one shape say nothing of another one, and do not make intervals narrower.
    let width = |predictor: &Predictor| predictor.learned.operators["product"].statistics.half_widths.clone();
    let mut predictor = without_large();
    let before = width(&predictor);
    let changes = adaptation::adapt_predictor(&mut predictor, measured.select_rows(&[0; 30])).expect("measurements");
    assert!(changes[0].after.is_none() && width(&predictor) == before, "{changes:?}");
}

#[test]
fn other_trees_have_no_interval_however_much_is_known_of_the_schedule() {
    let mut before = bundle::from_bytes(common::trained()).expect("the file");
    for of in before.learned.operators.values_mut() {
        of.statistics.half_widths_by_view.insert(View::Sizes, of.statistics.half_widths.clone());
    }
    let work = Work::contraction_work(2.0, 300.0, 300.0, 300.0, false);
    let query =
        Query { operator: "product", work: &work, device: "middle", threads: None, extras: &Default::default() };
    assert!(before.predict(&query).expect("an answer").high_ns.is_finite());
    let folder = tempfile::tempdir().expect("a temporary folder");
    exchange::export_trees(&before, folder.path()).expect("files");
    exchange::import_trees(&mut before, folder.path()).expect("trees");
    assert!(before.predict(&query).expect("an answer").high_ns.is_nan(), "the width was that of other trees");
}

#[test]
fn answers_without_an_interval_leave_those_of_others_where_they_are() {
    let mut samples = half();
    // An operator that is in one division alone: where it is asked it was never learned, so it has no interval.
    let rare = samples.rows[0].shape;
    samples.operators.push("rare".to_owned());
    let name = samples.operators.len() as u32 - 1;
    samples.rows.iter_mut().filter(|row| row.shape == rare).for_each(|row| row.operator = name);
    let plan = Plan { intervals: true, ..plan(Protocol::P1, &[Learner::Quantiles]) };
    let found = evaluate(&samples, &plan).expect("an evaluation");
    assert!(found.operators["rare"]["quantiles"].interval.is_none());
    let all = &found.learners["quantiles"];
    let interval = all.interval.as_ref().expect("all others have one");
    assert_eq!((interval.rows, all.rows), (samples.rows.len() - 3, samples.rows.len()));
    for name in ["product", "soft"] {
        let metrics = &found.operators[name]["quantiles"];
        let interval = metrics.interval.as_ref().expect("it was learned");
        assert!(interval.rows == metrics.rows && (80.0..=99.5).contains(&interval.coverage), "{name}: {metrics:?}");
    }
}

#[test]
fn intervals_are_wider_where_nothing_like_it_was_learned() {
    let (mut samples, _) = common::samples();
    let product = samples.operators.iter().position(|name| name == "product").expect("an operator") as u32;
    let products: Vec<usize> = (0..samples.rows.len()).filter(|row| samples.rows[*row].operator == product).collect();
    samples.keep_rows(&products);
    // What few rows take beside many is a law that trees do not carry on beyond what they saw.
    let rows = samples::features::FEATURES.iter().position(|feature| feature.name == "rows").expect("a feature");
    for row in 0..samples.rows.len() {
        samples.rows[row].time_ns *= f64::from(samples.features.row(row)[rows]).powi(2);
    }
    let predictor = train::train_predictor(&samples, &TrainOptions::default()).expect("a predictor");
    let width = |size: f64| {
        let work = Work::contraction_work(3.0, size, 300.0, 200.0, false);
        let query =
            Query { operator: "product", work: &work, device: "middle", threads: None, extras: &Default::default() };
        let answer = predictor.predict(&query).expect("an answer");
        (answer.high_ns / answer.time_ns).ln()
    };
    let (inside, beyond, far) = (width(400.0), width(4.0), width(1.0));
    assert!(inside < beyond && beyond < far && far > 2.0 * inside, "{inside} {beyond} {far}");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("wide.opp");
    bundle::write_bundle(&predictor, &path).expect("a file");
    let unlike = |predictor: &Predictor| predictor.learned.operators["product"].statistics.applicability.clone();
    assert_eq!(unlike(&bundle::read_bundle(&path).expect("the file")), unlike(&predictor));
}

#[test]
fn shapes_of_models_are_asked_and_those_of_no_model_learned_from() {
    let (mut samples, _) = common::samples();
    let sides = |samples: &samples::Samples| {
        let division = Protocol::P1m.split_samples(samples, None, 0).expect("a division").remove(0);
        let shapes = |rows: &[usize]| rows.iter().map(|row| samples.rows[*row].shape).collect::<BTreeSet<u64>>();
        let (learned, asked) = (shapes(&division.train), shapes(&division.rounds[0].test));
        assert!(learned.is_disjoint(&asked) && !learned.is_empty(), "whole shapes");
        (learned.len(), asked)
    };
    // Without networks, the tenth that is most like what built-in models ask for: round numbers are among it.
    let (learned, asked) = sides(&samples);
    assert!((learned / 10..=learned / 8).contains(&asked.len()), "{} of {learned}", asked.len());
    let column = |name: &str| samples::features::FEATURES.iter().position(|one| one.name == name).expect("a feature");
    let alignments = ["rows_alignment", "columns_alignment", "depth_alignment"].map(column);
    let round = |row: usize| alignments.iter().map(|column| samples.features.row(row)[*column]).sum::<f32>();
    let mean = |belongs: &dyn Fn(u64) -> bool| {
        let rows: Vec<f32> =
            (0..samples.rows.len()).filter(|row| belongs(samples.rows[*row].shape)).map(round).collect();
        rows.iter().sum::<f32>() / rows.len() as f32
    };
    let (of_asked, of_others) = (mean(&|shape| asked.contains(&shape)), mean(&|shape| !asked.contains(&shape)));
    assert!(of_asked > of_others, "{of_asked} {of_others}");
    // With networks, what stands in them.
    let uses = samples.rows.iter().step_by(11).map(|sample| (sample.shape, 1.0)).collect();
    samples.networks = vec![Network { name: "net".to_owned(), setting: "batch 1".to_owned(), uses }];
    assert_eq!(sides(&samples).1, samples.networks[0].uses.keys().copied().collect());
}

#[test]
fn protocols_that_cannot_be_done_say_so() {
    let (samples, _) = common::samples();
    for protocol in [Protocol::P0, Protocol::P2] {
        let error = evaluate(&samples, &plan(protocol, &[Learner::Roofline])).expect_err("neither repeats nor models");
        assert!(!error.to_string().is_empty());
    }
}

#[test]
fn a_file_answers_as_the_predictor_it_was_written_from() {
    let (_, mapping) = common::samples();
    let predictor = bundle::from_bytes(common::trained()).expect("the file");
    let operator = queries::parse_operator("product:b=3,m=200,n=300,k=100", Some(&mapping)).expect("an operator");
    let setting = queries::Setting { device: Some("middle".to_owned()), ..queries::Setting::default() };
    let answers = queries::predict_operators(&predictor, std::slice::from_ref(&operator), &setting).expect("an answer");
    let answer = &answers[0].prediction;
    assert!(answer.low_ns < answer.time_ns && answer.time_ns < answer.high_ns, "{answer:?}");
    assert!(answer.time_ns > answer.attainable_ns, "{answer:?}");
    let query = learn::predictor::Query {
        operator: &operator.name,
        work: &operator.work,
        device: "middle",
        threads: None,
        extras: &Default::default(),
    };
    // One by one and in batch, rows climb the trees differently; the answers are the same.
    for together in predictor.predict_all(&vec![query; 19]) {
        assert_eq!(&together.expect("an answer"), answer);
    }
}

#[test]
fn what_was_never_learned_is_refused() {
    let (_, mapping) = common::samples();
    let predictor = bundle::from_bytes(common::trained()).expect("the file");
    let refusal = |text: &str, device: &str| {
        let operator = queries::parse_operator(text, Some(&mapping)).expect("an operator");
        let setting = queries::Setting { device: Some(device.to_owned()), ..queries::Setting::default() };
        queries::predict_operators(&predictor, &[operator], &setting).expect_err("it is outside").to_string()
    };
    let broken = queries::parse_operator("product:b=1.5,m=200,n=300,k=100", Some(&mapping)).expect_err("a fraction");
    assert!(broken.to_string().contains("`b` is 1.5, not a whole number"), "{broken}");
    let far = refusal("product:b=1,m=200,n=300,k=90000", "middle");
    assert!(far.contains("`k`: 90000, training range "), "as the table calls it: {far}");
    assert!(refusal("product:b=1,m=200,n=300,k=100", "other").contains("unknown device `other`"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn damaged_files_are_refused(place in any::<prop::sample::Index>(), byte: u8, length in any::<prop::sample::Index>()) {
        let bytes = common::trained();
        let mut damaged = bytes.to_vec();
        let place = place.index(damaged.len());
        prop_assume!(damaged[place] != byte);
        damaged[place] = byte;
        prop_assert!(bundle::from_bytes(&damaged).is_err());
        prop_assert!(bundle::from_bytes(&bytes[..length.index(bytes.len())]).is_err());
    }

    /// Anyone can compute a valid hash for a hostile file, so the content is checked, too.
    #[test]
    fn hostile_files_do_no_harm(place in any::<prop::sample::Index>(), byte: u8) {
        let bytes = common::trained();
        // Format 4 is the same without compression, which would refuse most of what is changed.
        let packed = &bytes[12..bytes.len() - 32];
        let mut hostile = [&bytes[..8], &4u32.to_le_bytes()].concat();
        zstd::stream::copy_decode(packed, &mut hostile).expect("the file");
        let place = place.index(hostile.len());
        hostile[place] = byte;
        let hash = blake3::hash(&hostile);
        hostile.extend_from_slice(hash.as_bytes());
        if let Ok(predictor) = bundle::from_bytes(&hostile) {
            let work = samples::features::Work::contraction_work(3.0, 200.0, 300.0, 100.0, false);
            let extras = Default::default();
            for device in ["small", "middle"] {
                let query = learn::predictor::Query { operator: "product", work: &work, device, threads: None, extras: &extras };
                let _ = predictor.predict(&query);
            }
        }
    }
}

#[test]
fn few_measurements_of_a_new_device_correct_a_predictor_and_its_file() {
    let (samples, _) = common::samples();
    let some = |of_large: bool, step: usize| {
        samples.select_rows(&rows(&samples, of_large).into_iter().step_by(step).collect::<Vec<usize>>())
    };
    let mut predictor = without_large();
    let work = Work::contraction_work(2.0, 300.0, 300.0, 300.0, false);
    let query = Query { operator: "product", work: &work, device: "large", threads: None, extras: &Default::default() };
    let before = predictor.predict(&query).expect("devices of a table are described");
    assert!(before.outside[0].contains("lacks the device"), "{before:?}");

    let changes = adaptation::adapt_predictor(&mut predictor, some(true, 3)).expect("measurements");
    assert_eq!(changes.iter().map(|change| change.operator.as_str()).collect::<Vec<_>>(), ["product", "soft"]);
    for change in &changes {
        let after = change.after.expect("there are two halves");
        assert!(change.device == "large" && change.rows > 50 && after < 0.8 * change.before, "{change:?}");
    }
    let after = predictor.predict(&query).expect("an answer");
    let width = |answer: &Prediction| answer.high_ns / answer.low_ns;
    assert!(after.outside.is_empty() && width(&after) < width(&before), "{before:?} {after:?}");
    let setting = Setting { device: Some("large".to_owned()), ..Setting::default() };
    assert_eq!(queries::assumed_threads(&predictor, &setting).expect("a device").word, "unit");
    let known = predictor::devices::known_devices(&predictor).into_iter().find(|one| one.device == "large");
    assert!(known.is_some_and(|one| (one.learned_operators, one.corrected_operators) == (0, 2)));
    assert!(adaptation::count_unknown_rows(&predictor, &samples).is_empty());
    predictor.learned.operators.remove("soft");
    assert_eq!(adaptation::count_unknown_rows(&predictor, &samples), [("soft".to_owned(), 660)].into());

    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("adapted.opp");
    bundle::write_bundle(&predictor, &path).expect("a file");
    assert_eq!(bundle::read_bundle(&path).expect("the file").predict(&query).expect("an answer"), after);

    let error =
        adaptation::adapt_predictor(&mut predictor, some(false, 9)).expect_err("all devices are known").to_string();
    assert!(error.contains("train again"), "{error}");
}

#[test]
fn trees_of_each_device_alone_count_as_much_as_they_should() {
    let samples = half();
    let mut predictor = trained_on_half();
    let new = Device { units: 60.0, ..samples.devices[0].1.clone() };
    predictor.about.devices.insert("new".to_owned(), new);
    let work = Work::contraction_work(2.0, 300.0, 300.0, 300.0, false);
    let query = Query { operator: "product", work: &work, device: "new", threads: None, extras: &Default::default() };
    let row = predictor.feature_row(&query).expect("a row");
    let mut log = |share: f64| {
        let operator = predictor.learned.operators.get_mut("product").expect("an operator");
        operator.statistics.per_device_weight = share;
        let log = operator.log_ratio(&row, false);
        let explanation = explain::explain_prediction(&predictor, &query).expect("an explanation");
        let parts: f64 = explanation.parts.iter().map(|part| part.factor.ln()).sum();
        assert!((parts + explanation.average.ln() - log).abs() < 1e-4, "{share}: {explanation:?}");
        log
    };
    let (without, half, only) = (log(0.0), log(0.5), log(1.0));
    assert!((without - only).abs() > 1e-4 && (half - (without + only) / 2.0).abs() < 1e-9, "{without} {half} {only}");
    let bytes = common::trained();
    let known = &bundle::from_bytes(bytes).expect("a predictor").learned.operators["product"];
    assert!((0.0..=1.0).contains(&known.statistics.per_device_weight) && known.per_device.len() == 3);
}

#[test]
fn chosen_measurements_teach_more_than_drawn_ones() {
    let samples = half();
    let found = after_few();
    let (drawn, chosen) = (&found.learners["ours k=10"], &found.learners["ours k=10 chosen"]);
    assert!(chosen.mape < drawn.mape, "{chosen:?} against {drawn:?}");
    assert!(!found.learners.contains_key("roofline k=10 chosen"), "the roofline cannot choose");

    let predictor = trained_on_half();
    let suggested = adaptation::suggest_shapes(&predictor, samples.clone(), 7).expect("shapes");
    let sizes: Vec<&str> = suggested[0].sizes.iter().map(|(name, _)| *name).collect();
    assert_eq!((suggested.len(), sizes), (14, vec!["batch", "rows", "columns", "depth"]));
    for of_operator in suggested.chunk_by(|one, two| one.operator == two.operator) {
        let distinct: std::collections::HashSet<String> = of_operator.iter().map(|one| format!("{one:?}")).collect();
        assert_eq!(distinct.len(), 7, "no shape twice: {of_operator:?}");
    }
    // Times say nothing about what should be measured.
    let mut other = samples.clone();
    other.rows.iter_mut().for_each(|row| row.time_ns = 1.0);
    assert_eq!(adaptation::suggest_shapes(&predictor, other, 7).expect("shapes"), suggested);
}

#[test]
fn a_model_is_answered_where_one_of_its_operators_was_never_learned() {
    let (_, mapping) = common::samples();
    let predictor = bundle::from_bytes(common::trained()).expect("the file");
    let operator = |text: &str| queries::parse_operator(text, Some(&mapping)).expect("an operator");
    let known = operator("product:b=3,m=200,n=300,k=100");
    let far = operator("soft:m=90000,n=600");
    let strange =
        queries::Operator { name: "strange".to_owned(), text: "strange".to_owned(), count: 2, ..known.clone() };
    let layers = [known.clone(), strange, far.clone()];
    let setting = queries::Setting { device: Some("middle".to_owned()), ..queries::Setting::default() };
    let single = queries::predict_each(&predictor, &layers.clone().map(|layer| (layer, setting.clone())));
    assert!(single[2].is_err(), "single questions outside of what was learned are refused");

    let answers = queries::predict_model(&predictor, &layers, &setting).expect("all are answered");
    let bases: Vec<Basis> = answers.iter().map(|one| one.prediction.basis).collect();
    assert_eq!(bases, [Basis::Learned, Basis::Bound, Basis::Extrapolated]);
    assert_eq!(
        answers[0].prediction,
        queries::predict_operators(&predictor, &[known], &setting).expect("an answer")[0].prediction
    );
    assert!(answers[2].prediction.outside[0].contains("`m`: 90000, training range "), "{answers:?}");
    let bound = &answers[1].prediction;
    let alone = single[1].as_ref().expect("what was never learned has a bound, alone or in a model");
    assert_eq!((alone.basis, alone.time_ns), (Basis::Bound, bound.time_ns));
    assert!(bound.outside[0].contains("the training data lacks `strange`"), "{bound:?}");
    assert!(
        bound.time_ns >= bound.attainable_ns && bound.low_ns == bound.time_ns && bound.high_ns.is_nan(),
        "{bound:?}"
    );

    let total = queries::total_time(&layers, &answers, &queries::Run::default());
    assert_eq!(total.calls, 4);
    assert!((total.bounds_ns - 2.0 * bound.time_ns).abs() < 1e-6, "{total:?}");
    assert!((total.extrapolated_ns - answers[2].prediction.time_ns).abs() < 1e-6, "{total:?}");
    assert!(total.low_ns < total.time_ns && total.high_ns > total.time_ns, "bounds have no upper end: {total:?}");

    let knobs = queries::Setting { extras: [("knob.tile_x".to_owned(), 4.0)].into(), ..setting };
    let error =
        queries::predict_model(&predictor, &layers, &knobs).expect_err("a schedule is one operator's").to_string();
    assert!(error.contains("knobs apply to a single operator"), "{error}");
}

#[test]
fn operators_of_fewer_shapes_than_can_be_held_out_are_not_learned() {
    let (mut samples, _) = common::samples();
    let few: Vec<usize> = (0..samples.rows.len()).step_by(7).collect();
    samples.keep_rows(&few);
    let soft = samples.operators.iter().position(|name| name == "soft").expect("an operator") as u32;
    let mut shapes: Vec<u64> = samples.rows.iter().filter(|row| row.operator == soft).map(|row| row.shape).collect();
    shapes.sort_unstable();
    shapes.dedup();
    let of = |count: usize| {
        let is_kept =
            |row: &usize| samples.rows[*row].operator != soft || shapes[..count].contains(&samples.rows[*row].shape);
        let kept: Vec<usize> = (0..samples.rows.len()).filter(is_kept).collect();
        samples.select_rows(&kept)
    };
    let enough = train::train_predictor(&of(5), &TrainOptions::default()).expect("a predictor");
    assert!(enough.learned.operators.contains_key("soft") && enough.about.not_learned.is_empty());
    let scarce = train::train_predictor(&of(4), &TrainOptions::default()).expect("a predictor of the other");
    assert_eq!(scarce.learned.operators.keys().collect::<Vec<_>>(), ["product"]);
    assert_eq!(scarce.about.not_learned, [("soft".to_owned(), 4)].into());
    let alone: Vec<usize> = (0..of(4).rows.len()).filter(|row| of(4).rows[*row].operator == soft).collect();
    let error = train::train_predictor(&of(4).select_rows(&alone), &TrainOptions::default())
        .expect_err("nothing is left")
        .to_string();
    assert!(error.contains("5 are required; available: soft 4") && error.contains("hint: "), "{error}");
}
