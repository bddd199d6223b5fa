//! Corrects answers for a new device by a few of its measurements: a Gaussian process over what is left unexplained.
//!
//! Where measurements are near, the correction is theirs; far from all of them it is their mean, leaning to those sets of
//! trees that the measurements agree with: each known device has trees of its own, and a new device may be like some of
//! them. Trees also say what behaves alike: what comes to the same leaves is corrected alike. How far corrections reach, how
//! much they lean and how much is noise is chosen among a few settings by the likelihood of the measurements, beginning with
//! settings that did well for devices held out.

use super::linear::Cholesky;
use serde::{Deserialize, Serialize};

/// Measurements that are used; more are thinned out evenly.
const MOST: usize = 1024;
/// Measurements that settings are chosen by.
const CHOOSING: usize = 256;
/// How far the mean is trusted: its own variance before anything is measured.
const MEAN: f64 = 0.25;
/// Settings that are tried, each the next further than the one before.
const SETTINGS: [&[f64]; 5] = [
    // Distances in doublings over which corrections agree.
    &[1.5, 3.0, 6.0],
    // Variances of corrections around their mean that agree near by, as squared logarithms.
    &[0.005, 0.02, 0.08, 0.3],
    // Variances of how much each set of trees is believed.
    &[0.01, 0.03, 0.1, 0.3],
    // Variances of corrections that agree in the same leaves.
    &[0.005, 0.02, 0.08, 0.3],
    // Variances of measurements, as squared logarithms.
    &[0.0004, 0.002, 0.01, 0.04],
];
/// The settings that few measurements speak for or against: those that did well for devices held out.
const USUAL: [usize; 5] = [1, 1, 2, 1, 1];
/// How unlikely a step from the usual settings is, as twice a logarithm.
const DOUBT: f64 = 3.0;

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
    /// The leaves it comes to in some trees.
    #[serde(default)]
    pub leaves: Vec<u32>,
}

/// How corrections go from place to place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Reach {
    length: f64,
    signal: f64,
    slope: f64,
    /// New in format 3.
    #[serde(default)]
    kinship: f64,
    noise: f64,
}

/// What two places have in common.
#[derive(Clone, Copy, Debug)]
struct Pair {
    /// Squared distance of their sizes.
    distance: f64,
    /// How much the same sets of trees lean to the same side.
    alike: f64,
    /// The share of trees in which they lie in the same leaf.
    kin: f64,
}

impl Pair {
    fn of(one: &Place, two: &Place) -> Pair {
        let squares = one.sizes.iter().zip(&two.sizes).map(|(one, two)| f64::from(one - two).powi(2));
        let same = one.leaves.iter().zip(&two.leaves).filter(|(one, two)| one == two).count();
        Pair {
            distance: squares.filter(|square| square.is_finite()).sum(),
            alike: one.leanings.iter().zip(&two.leanings).map(|(one, two)| f64::from(one * two)).sum(),
            kin: same as f64 / one.leaves.len().max(1) as f64,
        }
    }
}

impl Adapted {
    /// An overhead and nothing else.
    pub fn of_overhead(overhead_ns: f64) -> Adapted {
        Adapted { overhead_ns, ..Adapted::default() }
    }

    /// Whether its parts fit together and are usable.
    pub fn is_sound(&self) -> bool {
        let widths = |place: &Place| (place.sizes.len(), place.leanings.len(), place.leaves.len());
        self.places.len() == self.weights.len()
            && self.places.windows(2).all(|pair| widths(&pair[0]) == widths(&pair[1]))
            && self.weights.iter().all(|weight| weight.is_finite())
            && self.overhead_ns.is_finite()
            && self.overhead_ns > 0.0
    }

    /// What to add to the logarithm of the ratio at a place.
    pub fn correction(&self, place: &Place) -> f64 {
        let likeness = |other| self.reach.likeness(Pair::of(other, place));
        self.places.iter().zip(&self.weights).map(|(other, weight)| weight * likeness(other)).sum()
    }
}

impl Reach {
    fn of(settings: [usize; 5]) -> Reach {
        let [length, signal, slope, kinship, noise] = std::array::from_fn(|which| SETTINGS[which][settings[which]]);
        Reach { length, signal, slope, kinship, noise }
    }

    fn likeness(&self, pair: Pair) -> f64 {
        let near = (-pair.distance / (2.0 * self.length * self.length)).exp();
        MEAN + self.signal * near + self.slope * pair.alike + self.kinship * pair.kin
    }

    /// The likeness of all pairs, as their lower half, with what measurements vary by.
    fn factored(&self, pairs: &[Vec<Pair>]) -> Cholesky {
        let width = pairs.len();
        let mut lower = vec![0.0; width * width];
        for (row, pairs) in pairs.iter().enumerate() {
            let values = pairs.iter().map(|pair| self.likeness(*pair));
            lower[row * width..].iter_mut().zip(values).for_each(|(place, value)| *place = value);
            lower[row * width + row] += self.noise;
        }
        Cholesky::of(lower, width)
    }

    /// How unlikely the residuals are, up to what is the same for all settings.
    fn surprise(&self, pairs: &[Vec<Pair>], residuals: &[f64]) -> f64 {
        let factored = self.factored(pairs);
        let weights = factored.solve(residuals.to_vec());
        residuals.iter().zip(weights).map(|(residual, weight)| residual * weight).sum::<f64>()
            + factored.log_determinant()
    }
}

/// Learns corrections from places and what was left unexplained there.
pub fn adapt(overhead_ns: f64, places: Vec<Place>, residuals: &[f64]) -> Adapted {
    let thin = |most: usize| places.len().div_ceil(most).max(1);
    let some: Vec<Place> = places.iter().step_by(thin(CHOOSING)).cloned().collect();
    let some_residuals: Vec<f64> = residuals.iter().copied().step_by(thin(CHOOSING)).collect();
    let reach = likeliest(&pairs(&some), &some_residuals);
    let step = thin(MOST);
    let places: Vec<Place> = places.into_iter().step_by(step).collect();
    let residuals: Vec<f64> = residuals.iter().copied().step_by(step).collect();
    Adapted { overhead_ns, reach, weights: reach.factored(&pairs(&places)).solve(residuals), places }
}

/// The places whose measurements would tell most about all of them, the most telling first: each leaves as little unknown
/// as possible after those before it.
pub fn telling(places: &[Place], count: usize) -> Vec<usize> {
    let reach = Reach::of(USUAL);
    let width = places.len();
    // What is unknown of each place and shared with each other one.
    let mut unknown = vec![0.0; width * width];
    for (row, pairs) in pairs(places).into_iter().enumerate() {
        for (column, pair) in pairs.into_iter().enumerate() {
            let shared = reach.likeness(pair);
            unknown[row * width + column] = shared;
            unknown[column * width + row] = shared;
        }
    }
    let mut told: Vec<usize> = Vec::new();
    while told.len() < count.min(width) {
        let gain = |place: usize| {
            let shared = &unknown[place * width..][..width];
            shared.iter().map(|shared| shared * shared).sum::<f64>() / (shared[place] + reach.noise)
        };
        let rest = (0..width).filter(|place| !told.contains(place)).map(|place| (gain(place), place));
        let Some((_, best)) = rest.max_by(|one, two| one.0.total_cmp(&two.0)) else { break };
        told.push(best);
        let shared = unknown[best * width..][..width].to_vec();
        let variance = shared[best] + reach.noise;
        for (unknown, of_row) in unknown.chunks_mut(width).zip(&shared) {
            let part = of_row / variance;
            unknown.iter_mut().zip(&shared).for_each(|(unknown, shared)| *unknown -= part * shared);
        }
    }
    told
}

/// Every place with itself and all before it.
fn pairs(places: &[Place]) -> Vec<Vec<Pair>> {
    let with_all_before = |(row, one): (usize, &Place)| places[..=row].iter().map(|two| Pair::of(one, two)).collect();
    places.iter().enumerate().map(with_all_before).collect()
}

/// From the usual settings one step after the other, as long as one makes the residuals likelier.
fn likeliest(pairs: &[Vec<Pair>], residuals: &[f64]) -> Reach {
    let cost = |settings: [usize; 5]| {
        let steps: usize = settings.iter().zip(USUAL).map(|(one, usual)| one.abs_diff(usual).pow(2)).sum();
        Reach::of(settings).surprise(pairs, residuals) + DOUBT * steps as f64
    };
    let mut best = (cost(USUAL), USUAL);
    loop {
        let from = best.1;
        let tries =
            (0..from.len()).flat_map(|which| [from[which].wrapping_sub(1), from[which] + 1].map(|to| (which, to)));
        for (which, to) in tries.filter(|(which, to)| *to < SETTINGS[*which].len()) {
            let mut settings = from;
            settings[which] = to;
            let cost = cost(settings);
            if cost < best.0 {
                best = (cost, settings);
            }
        }
        if best.1 == from {
            return Reach::of(from);
        }
    }
}
