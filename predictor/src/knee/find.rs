//! Finds the knee of an operator's time over thread counts or a knob, with a predictor and optional measurements.

use super::{Knee, Point, Posterior, Probe};
use crate::error::{Error, Result};
use crate::explain::thread_counts;
use crate::probe::measure_operator;
use crate::queries::{self, Operator, Setting};
use learn::predictor::{Basis, Prediction, Predictor};
use samples::schedules::describe_knob;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

const MOST_PROBES: usize = 3;

#[derive(Clone, Debug, Default)]
pub struct KneeOptions {
    /// Largest thread count of the curve; None for all trained thread counts.
    pub most_threads: Option<u32>,
    pub probing: Option<Probing>,
}

#[derive(Clone, Debug)]
pub struct Probing {
    pub program: PathBuf,
    pub operator: String,
    pub deadline: Duration,
}

pub fn find_knee(
    predictor: &Predictor,
    operator: &Operator,
    usual: &Setting,
    over: &str,
    options: &KneeOptions,
) -> Result<Knee> {
    match over {
        "threads" => over_threads(predictor, operator, usual, options),
        knob => over_knob(predictor, operator, usual, knob, options),
    }
}

fn over_threads(predictor: &Predictor, operator: &Operator, usual: &Setting, options: &KneeOptions) -> Result<Knee> {
    let trained_on = queries::find_device(predictor, usual)?;
    let has_fixed_threads = predictor.has_fixed_threads(trained_on);
    if has_fixed_threads && !usual.extrapolate {
        return Err(Error::Query(format!(
            "the training data has `{trained_on}` with all of its units only; --extrapolate predicts a curve over units"
        )));
    }
    let usual_most = match predictor.about.devices.get(trained_on).filter(|_| has_fixed_threads) {
        Some(device) => device.units,
        None => thread_counts(predictor, &operator.name)?.into_iter().map(f64::from).fold(1.0, f64::max),
    };
    let here = usual.this_host(predictor).map_or(f64::INFINITY, |host| host.cpus as f64);
    if here < 2.0 && options.most_threads.is_none() {
        let problem = "this machine has one CPU, so there is no curve over threads";
        return Err(Error::Query(format!("{problem}; give --most-threads, or --device for the training machine")));
    }
    let most = options.most_threads.map_or(usual_most.min(here), f64::from) as u32;
    let settings =
        (1..=most).map(|threads| (f64::from(threads), Setting { threads: Some(f64::from(threads)), ..usual.clone() }));
    let (predicted, mut unseen) = predict_curve(predictor, operator, settings)?;
    let mut posterior = Posterior::from_curve(&predicted);
    let mut probes = Vec::new();
    let device = queries::find_machine(predictor, usual)?;
    while let Some(probing) = options.probing.as_ref().filter(|_| probes.len() < MOST_PROBES) {
        let Some(at) = posterior.next_probe() else { break };
        let measured = measure_operator(&probing.program, &probing.operator, at as u32, probing.deadline)?;
        if measured.device != device {
            return Err(Error::Query(format!(
                "the probe measured `{}`, but the predictions are for `{device}`; omit --probe, or predict for this \
                 machine",
                measured.device
            )));
        }
        let known = predicted.iter().find(|point| point.at == at).map_or(f64::NAN, |point| point.time_ns);
        let (cv, uncertainty) = (measured.cv, measured.uncertainty);
        let probe = Probe { at, predicted_ns: known, measured_ns: measured.time_ns, cv, uncertainty };
        posterior.condition_on(at, probe.measured_ns, probe.known_to());
        probes.push(probe);
    }
    unseen.retain(|at| probes.iter().all(|probe| probe.at != *at));
    let updated = if probes.is_empty() { predicted } else { posterior.mean_curve() };
    let found = Knee::of_extrapolated("threads", updated, unseen).ok_or_else(|| {
        Error::Query("the training data has only one thread count; use --most-threads and --extrapolate".to_owned())
    })?;
    Ok(Knee { probes, fixed: name_schedule(predictor, operator, usual)?, ..found })
}

fn over_knob(
    predictor: &Predictor,
    operator: &Operator,
    usual: &Setting,
    knob: &str,
    options: &KneeOptions,
) -> Result<Knee> {
    if options.probing.is_some() {
        return Err(Error::Query("--probe measures thread counts, not knobs; omit --over".to_owned()));
    }
    let knob = knob.strip_prefix("knob.").unwrap_or(knob);
    let schedules = &predictor.find_operator(&operator.name)?.statistics.schedules;
    let refused = |problem: String| Error::Query(format!("`{}`: {problem}", operator.text));
    let settings =
        schedules.fitting_settings(&operator.work, queries::find_device(predictor, usual)?, knob).map_err(refused)?;
    if let Some((word, _)) = settings.iter().find(|(feature, _)| feature.contains('=')) {
        let problem = format!("settings of the knob `{knob}` are words such as `{word}`, but a curve needs numbers");
        return Err(refused(problem.replace(&format!("knob.{knob}="), "")));
    }
    let complete = usual.complete_knobs(predictor, operator)?;
    let (places, questions): (Vec<f64>, Vec<_>) = settings
        .into_iter()
        .map(|(feature, value)| {
            let mut setting = usual.clone();
            setting.extras.insert(feature, value);
            (value, (operator.clone(), setting))
        })
        .unzip();
    let predictions = queries::predict_schedules(predictor, &questions);
    let threads = predictions.iter().flatten().map(|prediction| prediction.threads).next();
    let threads = threads.map(|threads| format!("threads = {threads}"));
    let fixed = threads.into_iter().chain(name_knobs(&complete.extras, Some(knob))).collect();
    let (curve, unseen) = curve_points(places, predictions)?;
    let found = Knee::of_extrapolated(knob, curve, unseen)
        .ok_or_else(|| refused(format!("the knob `{knob}` has fewer than two settings in the training data")))?;
    Ok(Knee { fixed, ..found })
}

/// Lists the knobs of the schedule that is predicted over threads.
fn name_schedule(predictor: &Predictor, operator: &Operator, usual: &Setting) -> Result<Vec<String>> {
    let setting = usual.without_default_knobs(predictor, &operator.as_learned(predictor))?;
    Ok(match setting.extras.is_empty() {
        true => vec!["default schedule".to_owned()],
        false => name_knobs(&setting.extras, None),
    })
}

/// Lists knobs with their values, except for one.
fn name_knobs(knobs: &BTreeMap<String, f64>, except: Option<&str>) -> Vec<String> {
    let knobs = knobs.iter().filter_map(|(feature, value)| describe_knob(feature, *value));
    let others = knobs.filter(|(knob, _)| Some(*knob) != except);
    others.map(|(knob, value)| format!("{knob} = {value}")).collect()
}

/// Returns the predicted points of a curve, and the values outside of the training range.
fn predict_curve(
    predictor: &Predictor,
    operator: &Operator,
    settings: impl Iterator<Item = (f64, Setting)>,
) -> Result<(Vec<Point>, Vec<f64>)> {
    let (places, questions): (Vec<f64>, Vec<_>) =
        settings.map(|(at, setting)| (at, (operator.clone(), setting))).unzip();
    curve_points(places, queries::predict_each(predictor, &questions))
}

fn curve_points(places: Vec<f64>, predictions: Vec<Result<Prediction>>) -> Result<(Vec<Point>, Vec<f64>)> {
    let (mut points, mut unseen) = (Vec::new(), Vec::new());
    for (at, prediction) in places.into_iter().zip(predictions) {
        let Prediction { time_ns, low_ns, high_ns, basis, .. } = prediction?;
        points.push(Point { at, time_ns, low_ns, high_ns });
        unseen.extend((basis == Basis::Extrapolated).then_some(at));
    }
    Ok((points, unseen))
}
