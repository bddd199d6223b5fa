//! Protocol P0: deviation between repeated measurements of a candidate, a lower bound of any predictor's error.

use samples::Samples;
use samples::statistics::{median, quantile};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Repeats {
    pub candidates: usize,
    /// Mean absolute deviation of a measurement from the candidate's training time, in percent of that time.
    pub mape: f64,
    /// 90th percentile of the absolute deviation of a measurement from the candidate's training time, in percent.
    pub p90: f64,
}

#[derive(Default)]
struct RepeatTimes {
    of_samples: Vec<f64>,
    all: Vec<f64>,
}

/// Computes the noise floor of prediction errors; None if no candidate was measured twice.
pub fn measure_repeatability(samples: &Samples) -> Option<Repeats> {
    let mut groups: BTreeMap<(u64, Vec<u32>), RepeatTimes> = BTreeMap::new();
    for (row, sample) in samples.rows.iter().enumerate() {
        let bits = samples.features.row(row).iter().map(|value| value.to_bits()).collect();
        let RepeatTimes { of_samples, all: times } = groups.entry((sample.task, bits)).or_default();
        of_samples.push(sample.time_ns);
        match &sample.measured_ns[..] {
            [] => times.push(sample.time_ns),
            several => times.extend(several),
        }
    }
    groups.retain(|_, times| times.all.len() > 1);
    let mut errors: Vec<f64> = Vec::new();
    for RepeatTimes { of_samples, all: times } in groups.values_mut() {
        let middle = median(of_samples);
        errors.extend(times.iter().map(|time| 100.0 * (time / middle - 1.0).abs()));
    }
    let mape = errors.iter().sum::<f64>() / errors.len() as f64;
    (!errors.is_empty()).then(|| Repeats { candidates: groups.len(), mape, p90: quantile(&mut errors, 0.9) })
}
