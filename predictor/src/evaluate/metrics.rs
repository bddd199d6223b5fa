//! How far predictions are from measurements.

use crate::learn::quantile;
use serde::Serialize;

/// Errors of a set of predictions, in percent of the measured time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Metrics {
    /// Predictions.
    pub rows: usize,
    /// Mean absolute error.
    pub mape: f64,
    /// Middle absolute error.
    pub median: f64,
    /// 90th percentile of the absolute error.
    pub p90: f64,
    /// Root of the mean squared error.
    pub rmspe: f64,
    /// Share of predictions within 5 %.
    pub hit5: f64,
    /// Share of predictions within 10 %.
    pub hit10: f64,
    /// Share of predictions within 20 %.
    pub hit20: f64,
    /// Sum of absolute errors over the sum of times.
    pub weighted_mape: f64,
    /// Mean signed error; above 0 where predictions are too slow.
    pub bias: f64,
}

/// The metrics of predicted against measured times.
pub fn metrics(predicted: &[f64], measured: &[f64]) -> Metrics {
    assert_eq!(predicted.len(), measured.len(), "one prediction per measurement");
    let count = measured.len() as f64;
    let signed: Vec<f64> = predicted.iter().zip(measured).map(|(guess, truth)| 100.0 * (guess / truth - 1.0)).collect();
    let mut errors: Vec<f64> = signed.iter().map(|error| error.abs()).collect();
    let hit = |within: f64| 100.0 * errors.iter().filter(|error| **error <= within).count() as f64 / count;
    let (hit5, hit10, hit20) = (hit(5.0), hit(10.0), hit(20.0));
    let off: f64 = predicted.iter().zip(measured).map(|(guess, truth)| (guess - truth).abs()).sum();
    Metrics {
        rows: measured.len(),
        mape: errors.iter().sum::<f64>() / count,
        median: quantile(&mut errors, 0.5),
        p90: quantile(&mut errors, 0.9),
        rmspe: (signed.iter().map(|error| error * error).sum::<f64>() / count).sqrt(),
        hit5,
        hit10,
        hit20,
        weighted_mape: 100.0 * off / measured.iter().sum::<f64>(),
        bias: signed.iter().sum::<f64>() / count,
    }
}
