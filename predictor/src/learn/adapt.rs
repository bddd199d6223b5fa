//! Corrects answers for a new device by a few of its measurements: a Gaussian process over what is left unexplained.
//!
//! Where measurements are near, the correction is theirs; far from all of them it is their mean, leaning to those sets of
//! trees that the measurements agree with: each known device has trees of its own, and a new device may be like some of
//! them. How far corrections reach, how much they lean and how much is noise is chosen among a few settings by the
//! likelihood of the measurements.

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
/// Variances of how much each set of trees is believed.
const SLOPES: &[f64] = &[0.0, 0.01, 0.03, 0.1, 0.3];
/// Variances of measurements, as squared logarithms.
const NOISES: &[f64] = &[0.0004, 0.002, 0.01, 0.04];

/// What was learned from few measurements.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Adapted {
    /// What the smallest operators cost on the device.
    pub overhead_ns: f64,
    reach: Reach,
    places: Vec<Place>,
    weights: Vec<f64>,
}

/// Where a question lies for corrections.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// Its sizes, as logarithms.
    pub sizes: Vec<f32>,
    /// How far each set of trees is from the answer that is corrected.
    pub leanings: Vec<f32>,
}

/// How corrections go from place to place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Reach {
    length: f64,
    signal: f64,
    slope: f64,
    noise: f64,
}

impl Adapted {
    /// An overhead and nothing else.
    pub fn of_overhead(overhead_ns: f64) -> Adapted {
        Adapted { overhead_ns, ..Adapted::default() }
    }

    /// Whether its parts fit together and are usable.
    pub fn is_sound(&self) -> bool {
        let widths = |place: &Place| (place.sizes.len(), place.leanings.len());
        self.places.len() == self.weights.len()
            && self.places.windows(2).all(|pair| widths(&pair[0]) == widths(&pair[1]))
            && self.weights.iter().all(|weight| weight.is_finite())
            && self.overhead_ns.is_finite()
            && self.overhead_ns > 0.0
    }

    /// What to add to the logarithm of the ratio at a place.
    pub fn correction(&self, place: &Place) -> f64 {
        self.places.iter().zip(&self.weights).map(|(other, weight)| weight * self.reach.likeness(other, place)).sum()
    }
}

impl Reach {
    fn likeness(&self, one: &Place, two: &Place) -> f64 {
        let squares = one.sizes.iter().zip(&two.sizes).map(|(one, two)| f64::from(one - two).powi(2));
        let distance: f64 = squares.filter(|square| square.is_finite()).sum();
        let alike: f64 = one.leanings.iter().zip(&two.leanings).map(|(one, two)| f64::from(one * two)).sum();
        MEAN + self.signal * (-distance / (2.0 * self.length * self.length)).exp() + self.slope * alike
    }

    fn factored(&self, places: &[Place]) -> Cholesky {
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
    fn surprise(&self, places: &[Place], residuals: &[f64]) -> f64 {
        let factored = self.factored(places);
        let weights = factored.solve(residuals.to_vec());
        residuals.iter().zip(weights).map(|(residual, weight)| residual * weight).sum::<f64>()
            + factored.log_determinant()
    }
}

/// All settings that are tried.
fn reaches() -> impl Iterator<Item = Reach> {
    let lengths = LENGTHS.iter().map(|length| Reach { length: *length, ..Reach::default() });
    lengths
        .flat_map(|reach| SIGNALS.iter().map(move |signal| Reach { signal: *signal, ..reach }))
        .flat_map(|reach| SLOPES.iter().map(move |slope| Reach { slope: *slope, ..reach }))
        .flat_map(|reach| NOISES.iter().map(move |noise| Reach { noise: *noise, ..reach }))
}

/// Learns corrections from places and what was left unexplained there.
pub fn adapt(overhead_ns: f64, places: Vec<Place>, residuals: &[f64]) -> Adapted {
    let thin = |most: usize| places.len().div_ceil(most).max(1);
    let some: Vec<Place> = places.iter().step_by(thin(CHOOSING)).cloned().collect();
    let some_residuals: Vec<f64> = residuals.iter().copied().step_by(thin(CHOOSING)).collect();
    let mut best =
        (f64::INFINITY, Reach { length: LENGTHS[1], signal: SIGNALS[1], slope: SLOPES[0], noise: NOISES[1] });
    for reach in reaches() {
        let surprise = reach.surprise(&some, &some_residuals);
        if surprise < best.0 {
            best = (surprise, reach);
        }
    }
    let step = thin(MOST);
    let places: Vec<Place> = places.into_iter().step_by(step).collect();
    let residuals: Vec<f64> = residuals.iter().copied().step_by(step).collect();
    let reach = best.1;
    Adapted { overhead_ns, reach, weights: reach.factored(&places).solve(residuals), places }
}
