//! Corrects answers for a new device by a few of its measurements: a Gaussian process over what is left unexplained.
//!
//! Where measurements are near, the correction is theirs; far from all of them it is their mean. How far corrections reach
//! and how much is noise is chosen among a few settings by the likelihood of the measurements.

use super::linear::Cholesky;
use serde::{Deserialize, Serialize};

/// Measurements that are used; more are thinned out evenly.
const MOST: usize = 1024;
/// Measurements that settings are chosen by.
const CHOOSING: usize = 256;
/// How far the mean is trusted: its own variance before anything is measured.
const MEAN: f64 = 0.25;
/// Distances in doublings over which corrections agree.
const LENGTHS: &[f64] = &[1.5, 3.0, 6.0];
/// Variances of corrections around their mean, as squared logarithms.
const SIGNALS: &[f64] = &[0.005, 0.02, 0.08, 0.3];
/// Variances of measurements, as squared logarithms.
const NOISES: &[f64] = &[0.0004, 0.002, 0.01, 0.04];

/// What was learned from few measurements.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Adapted {
    /// What the smallest operators cost on the device.
    pub overhead_ns: f64,
    reach: Reach,
    places: Vec<Vec<f32>>,
    weights: Vec<f64>,
}

/// How corrections go from place to place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Reach {
    length: f64,
    signal: f64,
    noise: f64,
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
        self.places.iter().zip(&self.weights).map(|(other, weight)| weight * self.reach.likeness(other, place)).sum()
    }
}

impl Reach {
    fn likeness(&self, one: &[f32], two: &[f32]) -> f64 {
        let squares = one.iter().zip(two).map(|(one, two)| f64::from(one - two).powi(2));
        let distance: f64 = squares.filter(|square| square.is_finite()).sum();
        MEAN + self.signal * (-distance / (2.0 * self.length * self.length)).exp()
    }

    fn factored(&self, places: &[Vec<f32>]) -> Cholesky {
        let width = places.len();
        let mut lower = vec![0.0; width * width];
        for (row, one) in places.iter().enumerate() {
            for (column, two) in places.iter().enumerate().take(row + 1) {
                lower[row * width + column] = self.likeness(one, two) + if row == column { self.noise } else { 0.0 };
            }
        }
        Cholesky::of(lower, width)
    }

    /// How unlikely the residuals are, up to what is the same for all settings.
    fn surprise(&self, places: &[Vec<f32>], residuals: &[f64]) -> f64 {
        let factored = self.factored(places);
        let weights = factored.solve(residuals.to_vec());
        residuals.iter().zip(weights).map(|(residual, weight)| residual * weight).sum::<f64>()
            + factored.log_determinant()
    }
}

/// Learns corrections from places and what was left unexplained there.
pub fn adapt(overhead_ns: f64, places: Vec<Vec<f32>>, residuals: &[f64]) -> Adapted {
    let thin = |most: usize| places.len().div_ceil(most).max(1);
    let some: Vec<Vec<f32>> = places.iter().step_by(thin(CHOOSING)).cloned().collect();
    let some_residuals: Vec<f64> = residuals.iter().copied().step_by(thin(CHOOSING)).collect();
    let mut best = (f64::INFINITY, Reach { length: LENGTHS[1], signal: SIGNALS[1], noise: NOISES[1] });
    for length in LENGTHS {
        for signal in SIGNALS {
            for noise in NOISES {
                let reach = Reach { length: *length, signal: *signal, noise: *noise };
                let surprise = reach.surprise(&some, &some_residuals);
                if surprise < best.0 {
                    best = (surprise, reach);
                }
            }
        }
    }
    let step = thin(MOST);
    let places: Vec<Vec<f32>> = places.into_iter().step_by(step).collect();
    let residuals: Vec<f64> = residuals.iter().copied().step_by(step).collect();
    let reach = best.1;
    Adapted { overhead_ns, reach, weights: reach.factored(&places).solve(residuals), places }
}
