//! Few-shot correction of answers for a new device: a Gaussian process over the residuals of its measurements.
//!
//! Where measurements are near, the correction is theirs; far from all of them it is their mean, leaning to those members of
//! the ensemble that the measurements agree with: each known device has trees of its own, and a new device may be like some
//! of them. Trees also define similarity: what shares leaves is corrected alike (a forest kernel). The hyperparameters of the
//! kernel are those of the largest marginal likelihood on a small grid, with a prior at settings that did well for devices
//! held out. The same process selects actively which shapes to measure first, by how much each reduces the variance of all.

use super::linear::Cholesky;
use serde::{Deserialize, Serialize};

/// Measurements that are used; more are thinned out evenly.
const MOST: usize = 1024;
/// Measurements that the marginal likelihood is computed of.
const MOST_OF_LIKELIHOOD: usize = 256;
/// Variance of the mean before anything is measured.
const MEAN_VARIANCE: f64 = 0.25;
/// The grid of hyperparameters, each ascending.
const GRID: [&[f64]; 5] = [
    // Length scale: distances in doublings over which corrections agree.
    &[1.5, 3.0, 6.0],
    // Variance of the squared-exponential part, as squared logarithms.
    &[0.005, 0.02, 0.08, 0.3],
    // Variance of the weight of each ensemble member's deviation: the linear part.
    &[0.01, 0.03, 0.1, 0.3],
    // Variance of the forest kernel.
    &[0.005, 0.02, 0.08, 0.3],
    // Variance of the noise of measurements, as squared logarithms.
    &[0.0004, 0.002, 0.01, 0.04],
];
/// The mode of the prior, as places in the grid: what did well for devices held out.
const PRIOR_MODE: [usize; 5] = [1, 1, 2, 1, 1];
/// Minus twice the logarithm of the prior of one step away from its mode.
const PRIOR_PENALTY: f64 = 3.0;

/// What corrects answers for one device: the overhead and the posterior mean of the residuals. The names in files are those
/// of the formats that they came with.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Correction {
    /// What the smallest operators cost on the device.
    pub overhead_ns: f64,
    kernel: Kernel,
    inputs: Vec<Input>,
    weights: Vec<f64>,
}

/// A question as the process sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// Its sizes, as logarithms.
    pub sizes: Vec<f32>,
    /// How far the answer of each ensemble member is from that of the ensemble.
    pub deviations: Vec<f32>,
    /// The leaves it comes to in some trees.
    #[serde(default)]
    pub leaves: Vec<u32>,
}

/// The kernel, as its hyperparameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kernel {
    length_scale: f64,
    signal_variance: f64,
    linear_variance: f64,
    forest_variance: f64,
    noise_variance: f64,
}

/// What the kernel needs of two inputs, whatever its hyperparameters.
#[derive(Clone, Copy, Debug)]
struct Similarity {
    /// Squared distance of their sizes.
    squared_distance: f64,
    /// Dot product of their deviations: how much the same members are off to the same side.
    deviation_product: f64,
    /// The share of trees in which they come to the same leaf.
    shared_leaves: f64,
}

impl Similarity {
    fn of(one: &Input, two: &Input) -> Similarity {
        let squares = one.sizes.iter().zip(&two.sizes).map(|(one, two)| f64::from(one - two).powi(2));
        let same = one.leaves.iter().zip(&two.leaves).filter(|(one, two)| one == two).count();
        Similarity {
            squared_distance: squares.filter(|square| square.is_finite()).sum(),
            deviation_product: one.deviations.iter().zip(&two.deviations).map(|(one, two)| f64::from(one * two)).sum(),
            shared_leaves: same as f64 / one.leaves.len().max(1) as f64,
        }
    }
}

impl Correction {
    /// An overhead and nothing else.
    pub fn of_overhead(overhead_ns: f64) -> Correction {
        Correction { overhead_ns, ..Correction::default() }
    }

    /// Whether its parts fit together and are usable.
    pub fn is_sound(&self) -> bool {
        let widths = |input: &Input| (input.sizes.len(), input.deviations.len(), input.leaves.len());
        self.inputs.len() == self.weights.len()
            && self.inputs.windows(2).all(|pair| widths(&pair[0]) == widths(&pair[1]))
            && self.weights.iter().all(|weight| weight.is_finite())
            && self.overhead_ns.is_finite()
            && self.overhead_ns > 0.0
    }

    /// What to add to the logarithm of the ratio at an input: the posterior mean.
    pub fn mean(&self, input: &Input) -> f64 {
        let covariance = |other| self.kernel.covariance(Similarity::of(other, input));
        self.inputs.iter().zip(&self.weights).map(|(other, weight)| weight * covariance(other)).sum()
    }
}

impl Kernel {
    /// The hyperparameters at some places of the grid.
    fn of(places: [usize; 5]) -> Kernel {
        let [length_scale, signal_variance, linear_variance, forest_variance, noise_variance] =
            std::array::from_fn(|which| GRID[which][places[which]]);
        Kernel { length_scale, signal_variance, linear_variance, forest_variance, noise_variance }
    }

    /// The prior covariance of the residuals at two inputs.
    fn covariance(&self, pair: Similarity) -> f64 {
        let near = (-pair.squared_distance / (2.0 * self.length_scale * self.length_scale)).exp();
        MEAN_VARIANCE
            + self.signal_variance * near
            + self.linear_variance * pair.deviation_product
            + self.forest_variance * pair.shared_leaves
    }

    /// The covariance matrix of measurements, noise included, factored.
    fn factored(&self, pairs: &[Vec<Similarity>]) -> Cholesky {
        let width = pairs.len();
        let mut lower = vec![0.0; width * width];
        for (row, pairs) in pairs.iter().enumerate() {
            let values = pairs.iter().map(|pair| self.covariance(*pair));
            lower[row * width..].iter_mut().zip(values).for_each(|(place, value)| *place = value);
            lower[row * width + row] += self.noise_variance;
        }
        Cholesky::of(lower, width)
    }

    /// Minus twice the logarithm of the marginal likelihood of residuals, up to a constant.
    fn deviance(&self, pairs: &[Vec<Similarity>], residuals: &[f64]) -> f64 {
        let factored = self.factored(pairs);
        let weights = factored.solve(residuals.to_vec());
        residuals.iter().zip(weights).map(|(residual, weight)| residual * weight).sum::<f64>()
            + factored.log_determinant()
    }
}

/// Fits a correction to the residuals at some inputs.
pub fn fit(overhead_ns: f64, inputs: Vec<Input>, residuals: &[f64]) -> Correction {
    let thin = |most: usize| inputs.len().div_ceil(most).max(1);
    let some: Vec<Input> = inputs.iter().step_by(thin(MOST_OF_LIKELIHOOD)).cloned().collect();
    let some_residuals: Vec<f64> = residuals.iter().copied().step_by(thin(MOST_OF_LIKELIHOOD)).collect();
    let kernel = likeliest(&pairs(&some), &some_residuals);
    let step = thin(MOST);
    let inputs: Vec<Input> = inputs.into_iter().step_by(step).collect();
    let residuals: Vec<f64> = residuals.iter().copied().step_by(step).collect();
    Correction { overhead_ns, kernel, weights: kernel.factored(&pairs(&inputs)).solve(residuals), inputs }
}

/// Active selection: the inputs to measure, the most informative first. Each reduces the posterior variance of all inputs by
/// as much as any can after those before it.
pub fn most_informative(inputs: &[Input], count: usize) -> Vec<usize> {
    let kernel = Kernel::of(PRIOR_MODE);
    let width = inputs.len();
    // The posterior covariance of all inputs, given those that were selected.
    let mut covariance = vec![0.0; width * width];
    for (row, pairs) in pairs(inputs).into_iter().enumerate() {
        for (column, pair) in pairs.into_iter().enumerate() {
            let value = kernel.covariance(pair);
            covariance[row * width + column] = value;
            covariance[column * width + row] = value;
        }
    }
    let mut selected: Vec<usize> = Vec::new();
    while selected.len() < count.min(width) {
        let reduction = |place: usize| {
            let row = &covariance[place * width..][..width];
            row.iter().map(|value| value * value).sum::<f64>() / (row[place] + kernel.noise_variance)
        };
        let rest = (0..width).filter(|place| !selected.contains(place)).map(|place| (reduction(place), place));
        let Some((_, best)) = rest.max_by(|one, two| one.0.total_cmp(&two.0)) else { break };
        selected.push(best);
        let given = covariance[best * width..][..width].to_vec();
        let variance = given[best] + kernel.noise_variance;
        for (row, with_given) in covariance.chunks_mut(width).zip(&given) {
            let part = with_given / variance;
            row.iter_mut().zip(&given).for_each(|(value, given)| *value -= part * given);
        }
    }
    selected
}

/// Every input with itself and all before it.
fn pairs(inputs: &[Input]) -> Vec<Vec<Similarity>> {
    let with_all_before =
        |(row, one): (usize, &Input)| inputs[..=row].iter().map(|two| Similarity::of(one, two)).collect();
    inputs.iter().enumerate().map(with_all_before).collect()
}

/// The kernel of the largest posterior probability, by steps on the grid from the mode of the prior.
fn likeliest(pairs: &[Vec<Similarity>], residuals: &[f64]) -> Kernel {
    let cost = |places: [usize; 5]| {
        let steps: usize = places.iter().zip(PRIOR_MODE).map(|(one, mode)| one.abs_diff(mode).pow(2)).sum();
        Kernel::of(places).deviance(pairs, residuals) + PRIOR_PENALTY * steps as f64
    };
    let mut best = (cost(PRIOR_MODE), PRIOR_MODE);
    loop {
        let from = best.1;
        let tries =
            (0..from.len()).flat_map(|which| [from[which].wrapping_sub(1), from[which] + 1].map(|to| (which, to)));
        for (which, to) in tries.filter(|(which, to)| *to < GRID[*which].len()) {
            let mut places = from;
            places[which] = to;
            let cost = cost(places);
            if cost < best.0 {
                best = (cost, places);
            }
        }
        if best.1 == from {
            return Kernel::of(from);
        }
    }
}
