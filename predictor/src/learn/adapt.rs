//! Corrects answers for a new device by a few of its measurements: a Gaussian process over what is left unexplained.
//!
//! Where measurements are near, the correction is theirs; far from all of them it is their mean. Lengths are shared by
//! all sizes and were chosen once, so that ten measurements do not have to decide them.

use super::linear::solve;
use serde::{Deserialize, Serialize};

/// Measurements that are used; more are thinned out evenly.
const MOST: usize = 1024;
/// Distance in doublings over which corrections agree.
const LENGTH: f64 = 3.0;
/// Variance of the correction, around its mean, and of the measurements, as squared logarithms.
const SIGNAL: f64 = 0.02;
const NOISE: f64 = 0.004;
/// How far the mean is trusted: its own variance before anything is measured.
const MEAN: f64 = 0.25;

/// What was learned from few measurements.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Adapted {
    /// What the smallest operators cost on the device.
    pub overhead_ns: f64,
    places: Vec<Vec<f32>>,
    weights: Vec<f64>,
}

impl Adapted {
    /// An overhead and nothing else.
    pub fn of_overhead(overhead_ns: f64) -> Adapted {
        Adapted { overhead_ns, ..Adapted::default() }
    }

    /// Whether its parts fit together and are usable.
    pub fn is_sound(&self) -> bool {
        let width = self.places.first().map_or(0, Vec::len);
        self.places.len() == self.weights.len()
            && self.places.iter().all(|place| place.len() == width)
            && self.weights.iter().all(|weight| weight.is_finite())
            && self.overhead_ns.is_finite()
            && self.overhead_ns > 0.0
    }

    /// What to add to the logarithm of the ratio at a place.
    pub fn correction(&self, place: &[f32]) -> f64 {
        self.places.iter().zip(&self.weights).map(|(other, weight)| weight * likeness(other, place)).sum()
    }
}

fn likeness(one: &[f32], two: &[f32]) -> f64 {
    let squares = one.iter().zip(two).map(|(one, two)| f64::from(one - two).powi(2));
    MEAN + SIGNAL * (-squares.filter(|square| square.is_finite()).sum::<f64>() / (2.0 * LENGTH * LENGTH)).exp()
}

/// Learns corrections from places and what was left unexplained there.
pub fn adapt(overhead_ns: f64, places: Vec<Vec<f32>>, residuals: &[f64]) -> Adapted {
    let step = places.len().div_ceil(MOST).max(1);
    let places: Vec<Vec<f32>> = places.into_iter().step_by(step).collect();
    let residuals: Vec<f64> = residuals.iter().copied().step_by(step).collect();
    let width = places.len();
    let mut lower = vec![0.0; width * width];
    for (row, one) in places.iter().enumerate() {
        for (column, two) in places.iter().enumerate().take(row + 1) {
            lower[row * width + column] = likeness(one, two) + if row == column { NOISE } else { 0.0 };
        }
    }
    Adapted { overhead_ns, weights: solve(lower, residuals), places }
}
