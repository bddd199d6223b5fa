//! Protocol K: finds the fastest thread count of a curve with a few probes; data of its machine is held out.

use crate::error::{Error, Result};
use crate::knee::{ScalingPosterior, ScalingPrior, fit_law, log_shape};
use rayon::prelude::*;
use samples::statistics::quantile;
use samples::table::ThreadCurve;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

pub const CURVES_PROTOCOL: &str = "K";
const PROBES: [usize; 2] = [3, 4];
/// Minimum number of thread counts of a curve; with fewer, the probes would cover the whole curve.
const FEWEST_POINTS: usize = PROBES[0] + 1;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CurvesEvaluation {
    pub protocol: String,
    pub curves: usize,
    pub left_out: usize,
    pub methods: BTreeMap<String, Regret>,
    pub machines: BTreeMap<String, BTreeMap<String, Regret>>,
}

/// Slowdown of the chosen thread counts, relative to the fastest measured thread count.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Regret {
    pub curves: usize,
    pub mean_percent: f64,
    pub p90_percent: f64,
    pub found_percent: f64,
}

pub fn evaluate_curves(curves: &[ThreadCurve]) -> Result<CurvesEvaluation> {
    let asked: Vec<&ThreadCurve> = curves.iter().filter(|curve| curve.points.len() >= FEWEST_POINTS).collect();
    let devices: BTreeSet<&str> = asked.iter().map(|curve| curve.device.as_str()).collect();
    if devices.len() < 2 {
        let problem = format!(
            "protocol {CURVES_PROTOCOL} needs curves of at least {FEWEST_POINTS} thread counts on two machines; the data has {}",
            devices.len()
        );
        return Err(Error::Data(problem));
    }
    let priors: BTreeMap<&str, ScalingPrior> =
        devices.into_par_iter().map(|device| (device, ScalingPrior::learn_prior(curves, device))).collect();
    let answers: Vec<Vec<(String, f64)>> =
        asked.par_iter().map(|curve| method_times(curve, &priors[&*curve.device])).collect();
    let mut machines: BTreeMap<String, BTreeMap<String, Vec<f64>>> = BTreeMap::new();
    let mut methods: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for (curve, answers) in asked.iter().zip(answers) {
        let fastest = curve.points.iter().map(|point| point.1).fold(f64::INFINITY, f64::min);
        for (method, time_ns) in answers {
            let regret = 100.0 * (time_ns / fastest - 1.0);
            let of_machine = machines.entry(curve.device.clone()).or_default();
            of_machine.entry(method.clone()).or_default().push(regret);
            methods.entry(method).or_default().push(regret);
        }
    }
    let scores = |found: BTreeMap<String, Vec<f64>>| {
        found.into_iter().map(|(name, all)| (name, Regret::from_regrets(all))).collect()
    };
    Ok(CurvesEvaluation {
        protocol: CURVES_PROTOCOL.to_owned(),
        curves: asked.len(),
        left_out: curves.len() - asked.len(),
        methods: scores(methods),
        machines: machines.into_iter().map(|(name, found)| (name, scores(found))).collect(),
    })
}

fn method_times(curve: &ThreadCurve, prior: &ScalingPrior) -> Vec<(String, f64)> {
    let threads: Vec<f64> = curve.points.iter().map(|point| point.0).collect();
    let time_ns = |at: f64| curve.points.iter().find(|point| point.0 == at).map_or(f64::NAN, |point| point.1);
    let mut posterior = ScalingPosterior::from_prior(prior, &threads);
    let mut found = Vec::new();
    for count in 1..=PROBES[PROBES.len() - 1] {
        if let Some(at) = posterior.next_probe() {
            posterior.condition_on(at, time_ns(at));
        }
        if PROBES.contains(&count) {
            found.push((format!("ours, {count} probes"), time_ns(posterior.expected_fastest())));
            found.push((format!("law, {count} probes"), time_ns(fastest_by_law(curve, count))));
        }
    }
    found.push(("all threads".to_owned(), time_ns(threads[threads.len() - 1])));
    found
}

/// Returns the fastest thread count according to Gunther's law, fitted to evenly spaced probes only.
fn fastest_by_law(curve: &ThreadCurve, probes: usize) -> f64 {
    let last = curve.points.len() - 1;
    let places: BTreeSet<usize> = (0..probes).map(|probe| (probe * last + (probes - 1) / 2) / (probes - 1)).collect();
    let points: Vec<(f64, f64)> = places.into_iter().map(|place| curve.points[place]).collect();
    let (contention, coherence) = fit_law(&points);
    let log = |at: &f64| log_shape(*at, contention, coherence);
    let threads = curve.points.iter().map(|point| point.0);
    threads.min_by(|one, two| log(one).total_cmp(&log(two))).unwrap_or(1.0)
}

impl Regret {
    fn from_regrets(mut regrets: Vec<f64>) -> Regret {
        let curves = regrets.len();
        let share = |is_so: &dyn Fn(&f64) -> bool| {
            100.0 * regrets.iter().filter(|one| is_so(one)).count() as f64 / curves as f64
        };
        Regret {
            curves,
            mean_percent: regrets.iter().sum::<f64>() / curves as f64,
            found_percent: share(&|one| *one <= 0.0),
            p90_percent: quantile(&mut regrets, 0.9),
        }
    }
}
