//! Error metrics of predictions against measurements.

use learn::LogInterval;
use learn::levels::LEVELS;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use samples::statistics::quantile;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

const DRAWS: usize = 200;

/// Prediction errors, in percent of the measured time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    pub rows: usize,
    pub mape: f64,
    /// 95 % confidence interval of the MAPE, by resampling whole shapes.
    pub mape_interval: (f64, f64),
    pub median: f64,
    pub p90: f64,
    pub rmspe: f64,
    /// Share of predictions within 5 % of the measurement, in percent.
    pub hit5: f64,
    pub hit10: f64,
    pub hit20: f64,
    /// Sum of absolute errors divided by the sum of measured times, in percent.
    pub weighted_mape: f64,
    /// Mean signed error in percent; positive if predictions are too slow.
    pub bias: f64,
    pub interval: Option<IntervalScore>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IntervalScore {
    /// Share of measurements inside the interval, in percent.
    pub coverage: f64,
    /// Mean half-width of the interval, in percent of the prediction.
    pub half_width: f64,
    #[serde(default)]
    pub rows: usize,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub levels: BTreeMap<u8, f64>,
}

impl IntervalScore {
    /// Computes the scores of the intervals; None if no prediction has one.
    pub fn score_intervals(
        predicted: &[f64],
        measured: &[f64],
        intervals: &[Option<LogInterval>],
    ) -> Option<IntervalScore> {
        assert!(predicted.len() == measured.len() && intervals.len() == measured.len(), "one interval per measurement");
        let logs = predicted.iter().zip(measured).map(|(prediction, truth)| (truth / prediction).ln());
        let is_finite = |reach: &LogInterval| (reach.below + reach.above).is_finite();
        let known: Vec<(f64, LogInterval)> =
            logs.zip(intervals).filter_map(|(log, reach)| Some((log, reach.filter(is_finite)?))).collect();
        let count = known.len() as f64;
        let inside = known.iter().filter(|(log, reach)| -reach.below <= *log && *log <= reach.above).count();
        let width = known.iter().map(|(_, reach)| 100.0 * (reach.above.exp() - (-reach.below).exp()));
        let half_width = width.sum::<f64>() / 2.0 / count;
        let coverage = 100.0 * inside as f64 / count;
        let levels = LEVELS.into_iter().filter_map(|level| Some((level, coverage_at(level, &known)?))).collect();
        (!known.is_empty()).then_some(IntervalScore { coverage, half_width, rows: known.len(), levels })
    }
}

fn coverage_at(level: u8, known: &[(f64, LogInterval)]) -> Option<f64> {
    let ratios = known.iter().filter_map(|(log, reach)| Some((log, reach, reach.levels?.ratio_at(level)?)));
    let (mut inside, mut count) = (0, 0);
    for (log, reach, ratio) in ratios {
        inside += usize::from(-reach.below * ratio <= *log && *log <= reach.above * ratio);
        count += 1;
    }
    (count > 0).then(|| 100.0 * f64::from(inside as u32) / f64::from(count))
}

/// Computes the error metrics. Rows of the same group are not treated as independent.
pub fn error_metrics(predicted: &[f64], measured: &[f64], groups: &[u64]) -> Metrics {
    assert!(predicted.len() == measured.len() && groups.len() == measured.len(), "one prediction per measurement");
    let count = measured.len() as f64;
    let signed: Vec<f64> =
        predicted.iter().zip(measured).map(|(prediction, truth)| 100.0 * (prediction / truth - 1.0)).collect();
    let mut errors: Vec<f64> = signed.iter().map(|error| error.abs()).collect();
    let mape_interval = bootstrap_interval(&errors, groups);
    let hit = |within: f64| 100.0 * errors.iter().filter(|error| **error <= within).count() as f64 / count;
    let (hit5, hit10, hit20) = (hit(5.0), hit(10.0), hit(20.0));
    let off: f64 = predicted.iter().zip(measured).map(|(prediction, truth)| (prediction - truth).abs()).sum();
    Metrics {
        rows: measured.len(),
        mape: errors.iter().sum::<f64>() / count,
        mape_interval,
        median: quantile(&mut errors, 0.5),
        p90: quantile(&mut errors, 0.9),
        rmspe: (signed.iter().map(|error| error * error).sum::<f64>() / count).sqrt(),
        hit5,
        hit10,
        hit20,
        weighted_mape: 100.0 * off / measured.iter().sum::<f64>(),
        bias: signed.iter().sum::<f64>() / count,
        interval: None,
    }
}

/// Returns the 95 % interval of a mean by resampling whole groups.
pub(super) fn bootstrap_interval<K: Hash + Eq>(errors: &[f64], groups: &[K]) -> (f64, f64) {
    let mut places: HashMap<&K, usize> = HashMap::new();
    let mut sums: Vec<(f64, f64)> = Vec::new();
    for (error, group) in errors.iter().zip(groups) {
        let place = *places.entry(group).or_insert_with(|| {
            sums.push((0.0, 0.0));
            sums.len() - 1
        });
        sums[place].0 += error;
        sums[place].1 += 1.0;
    }
    let mut random = ChaCha8Rng::seed_from_u64(0);
    let mut means: Vec<f64> = (0..DRAWS)
        .map(|_| {
            let draw = (0..sums.len()).map(|_| sums[random.random_range(0..sums.len())]);
            let (sum, count) = draw.fold((0.0, 0.0), |all, one| (all.0 + one.0, all.1 + one.1));
            sum / count
        })
        .collect();
    (quantile(&mut means, 0.025), quantile(&mut means, 0.975))
}
