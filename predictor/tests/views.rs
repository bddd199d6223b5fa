//! Tests predictions if nothing, the knobs or the code of a schedule is known, with the real XGBoost library.

use learn::Learner;
use learn::predictor::Query;
use learn::train::{TrainOptions, train_predictor};
use predictor::evaluate::{Plan, Protocol, evaluate};
use predictor::knee::{KneeOptions, find_knee};
use predictor::queries::{Cell, Operator, Setting, predict_operators};
use samples::features::{Device, View, Work};
use samples::{RawSample, Samples, SamplesBuilder, Timing};
use std::collections::BTreeMap;

fn device() -> Device {
    Device {
        units: 2.0,
        flops_per_cycle: 64.0,
        clock_ghz: 2.0,
        bandwidth_gb_per_s: 20.0,
        cache_bytes: 2097152.0,
        near_bytes: 49152.0,
        memory_bytes: 0.0,
        generation: 0.0,
        peaks: None,
    }
}

fn work(step: u64) -> Work {
    let size = |salt: u64| (16 + (step * 7919 + salt * 104_729) % 300) as f64;
    Work::contraction_work(1.0, size(1), size(2), size(3), true)
}

fn product(work: &Work, is_default: bool, extras: &[(&str, f64)]) -> RawSample {
    RawSample {
        operator: "product".to_owned(),
        device: 0,
        model: String::new(),
        detail: String::new(),
        work: work.clone(),
        threads: 1.0,
        is_default,
        extras: extras.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
        choice: None,
        text: String::new(),
    }
}

/// Default schedules take 3 times the bound, others 6 times with a large tile and 1.5 times with a small tile. Spills,
/// which only code features show, multiply the times of non-default schedules by 5.
fn samples() -> Samples {
    let mut builder = SamplesBuilder::new(vec![("here".to_owned(), device())]);
    for step in 0..90u64 {
        let work = work(step);
        let bound_ns = 2.0 * work.flops / 256.0 + 5e3;
        for schedule in 0..4u64 {
            let is_default = schedule == 0;
            let tile = if is_default { 4.0 } else { [1.0, 16.0][(step + schedule) as usize % 2] };
            let spills = if !is_default && (step * 31 + schedule * 17) % 3 == 0 { 1.0 } else { 0.0 };
            let factor = if is_default {
                3.0
            } else if tile > 4.0 {
                6.0
            } else {
                1.5
            };
            let cycles = work.flops / 64.0 * (1.0 + spills);
            let extras = [
                ("knob.from=template", 1.0),
                ("knob.split_r", tile),
                ("code.code_cycles", cycles),
                ("code.code_spill_loads", spills * work.flops),
            ];
            let time_ns = bound_ns * factor * (1.0 + 4.0 * spills);
            builder.push_sample(product(&work, is_default, &extras), Timing::single_timing(time_ns, Some(0.01)));
        }
    }
    builder.finish_samples().expect("samples")
}

fn error(samples: &Samples, default_only: bool) -> f64 {
    let plan =
        Plan { score_default: default_only, folds: Some(3), ..Plan::for_protocol(Protocol::P1, &[Learner::Ensemble]) };
    evaluate(samples, &plan).expect("an evaluation").learners["ours"].mape
}

#[test]
fn the_more_is_known_the_nearer_the_answer() {
    let samples = samples();
    let (code, knobs) =
        (error(&samples, false), error(&samples.clone().restrict_view(View::Knobs).expect("samples"), false));
    assert!(code < 8.0, "{code}");
    assert!(knobs > 20.0, "spills cannot be seen in knobs: {knobs}");
    let sizes = samples.clone().restrict_view(View::Sizes).expect("samples");
    assert_eq!(sizes.rows.len(), 90);
    assert!(sizes.rows.iter().all(|sample| sample.is_default));
    assert!(error(&sizes, false) < 8.0);
    assert!(error(&samples, true) < 8.0);
}

#[test]
fn a_question_without_a_schedule_is_answered_for_the_default_one() {
    let predictor = train_predictor(&samples(), &TrainOptions { seed: 7, is_tuned: true, ..TrainOptions::default() })
        .expect("a predictor");
    let work = work(1000);
    let bound_ns = 2.0 * work.flops / 256.0 + 5e3;
    let ask = |extras: &[(&str, f64)]| {
        let extras: BTreeMap<String, f64> = extras.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        let ask = Query { operator: "product", work: &work, device: "here", threads: Some(1.0), extras: &extras };
        predictor.predict(&ask).expect("an answer")
    };
    let default = ask(&[]);
    assert_eq!(default.known, View::Sizes);
    assert!((2.4..3.6).contains(&(default.time_ns / bound_ns)), "{default:?}");
    assert!(default.high_ns / default.low_ns < 2.0, "{default:?}");
    let knobs = ask(&[("knob.from=template", 1.0), ("knob.split_r", 16.0)]);
    assert_eq!(knobs.known, View::Knobs);
    assert!(knobs.time_ns / bound_ns > 6.0, "{knobs:?}");
    assert!(knobs.high_ns / knobs.low_ns > 2.0, "whether it spills is not known: {knobs:?}");
}

/// Products with a second knob `unroll`, which is 1 in default schedules; with 0, times are 8 times as long.
fn unrolled() -> Samples {
    let mut builder = SamplesBuilder::new(vec![("here".to_owned(), device())]);
    for step in 0..90u64 {
        let work = work(step);
        let bound_ns = 2.0 * work.flops / 256.0 + 5e3;
        for schedule in 0..6u64 {
            let is_default = schedule == 0;
            let (tile, unroll) =
                if is_default { (4.0, 1.0) } else { ([1.0, 4.0, 16.0][schedule as usize % 3], (schedule % 2) as f64) };
            let extras = [("knob.from=template", 1.0), ("knob.split_r", tile), ("knob.unroll", unroll)];
            let factor = (1.0 + tile.log2()) * if unroll == 1.0 { 1.0 } else { 8.0 };
            builder
                .push_sample(product(&work, is_default, &extras), Timing::single_timing(bound_ns * factor, Some(0.01)));
        }
    }
    builder.finish_samples().expect("samples")
}

#[test]
fn a_knob_that_is_left_out_is_as_in_the_default_schedule() {
    let predictor =
        train_predictor(&unrolled(), &TrainOptions { seed: 7, ..TrainOptions::default() }).expect("a predictor");
    let operator = Operator { name: "product".to_owned(), text: "product".to_owned(), work: work(1000), count: 1 };
    let time = |knobs: &[(&str, f64)]| {
        let mut setting = Setting { threads: Some(1.0), ..Setting::default() };
        knobs.iter().for_each(|(name, value)| setting.set_extra(name, &Cell::Number(*value)));
        predict_operators(&predictor, std::slice::from_ref(&operator), &setting)
            .map(|answers| answers[0].prediction.time_ns)
    };
    let of = |knobs: &[(&str, f64)]| time(knobs).expect("an answer");
    assert_eq!(of(&[("knob.split_r", 4.0)]), of(&[]), "it is the default schedule");
    assert_eq!(of(&[("knob.split_r", 4.0), ("knob.unroll", 1.0)]), of(&[]), "and so it is when all is named");
    let (alone, spelled_out) = (of(&[("knob.split_r", 1.0)]), of(&[("knob.split_r", 1.0), ("knob.unroll", 1.0)]));
    assert_eq!(alone, spelled_out);
    let rolled = of(&[("knob.split_r", 1.0), ("knob.unroll", 0.0)]);
    assert!(rolled > 4.0 * alone, "{alone} against {rolled}");
    for wrong in [f64::NAN, 9999.0, 0.5] {
        let error = time(&[("knob.split_r", wrong)]).expect_err("no setting of it").to_string();
        assert!(error.contains("for these sizes; known settings: 1, 4"), "{error}");
    }
    let error = time(&[("knob.tile_q", 4.0)]).expect_err("no knob of it").to_string();
    assert!(error.contains("the knobs of this operator are split_r, unroll"), "{error}");
    // A curve over threads states the schedule that is predicted.
    let fixed = |split: f64| {
        let mut setting = Setting { extrapolate: true, ..Setting::default() };
        setting.set_extra("knob.split_r", &Cell::Number(split));
        let options = KneeOptions { most_threads: Some(2), ..KneeOptions::default() };
        find_knee(&predictor, &operator, &setting, "threads", &options).expect("a curve").fixed
    };
    assert_eq!(fixed(1.0), ["split_r = 1", "unroll = 1"], "including the knobs of the default schedule");
    assert_eq!(fixed(4.0), ["default schedule"], "the given knob equals that of the default schedule");
}
