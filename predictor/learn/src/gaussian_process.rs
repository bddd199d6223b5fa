//! Corrects predictions for a new device with few measurements: a Gaussian process over the residuals of its
//! measurements.
//!
//! The kernel is a sum of a constant, a linear part over the deviations of the per-device trees (a new device may
//! resemble some known ones), a squared-exponential part over sizes and a forest kernel (shared leaves).
//! Hyperparameters maximise the posterior on a small grid; the prior is centred on settings that did well for held-out
//! devices. Active selection uses the same process.

use super::linear::Cholesky;
use serde::{Deserialize, Serialize};

/// Maximum number of measurements; larger sets are subsampled evenly.
const MOST: usize = 1024;
const MOST_OF_LIKELIHOOD: usize = 256;
/// Prior variance of the constant mean.
const MEAN_VARIANCE: f64 = 0.25;
/// Candidate values of each hyperparameter, in ascending order.
const GRID: [&[f64]; 5] = [
    // Length scale in doublings of a size.
    &[1.5, 3.0, 6.0],
    // Variance of the squared-exponential part, in squared logarithms.
    &[0.005, 0.02, 0.08, 0.3],
    // Variance of the linear weights of the ensemble members' deviations.
    &[0.01, 0.03, 0.1, 0.3],
    // Variance of the forest kernel.
    &[0.005, 0.02, 0.08, 0.3],
    // Variance of the measurement noise, in squared logarithms.
    &[0.0004, 0.002, 0.01, 0.04],
];
/// Mode of the prior, as an index into each row of `GRID`; chosen on held-out devices.
const PRIOR_MODE: [usize; 5] = [1, 1, 2, 1, 1];
/// Minus twice the log prior for each grid step away from the mode.
const PRIOR_PENALTY: f64 = 3.0;

/// Correction for one device: launch overhead and posterior of the residuals. Field names are part of the file format.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Correction {
    pub overhead_ns: f64,
    kernel: CovarianceKernel,
    inputs: Vec<Input>,
    weights: Vec<f64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Input {
    pub sizes: Vec<f32>,
    /// Difference of each ensemble member's prediction from the ensemble's.
    pub deviations: Vec<f32>,
    #[serde(default)]
    pub leaves: Vec<u32>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CovarianceKernel {
    length_scale: f64,
    signal_variance: f64,
    linear_variance: f64,
    forest_variance: f64,
    noise_variance: f64,
}

/// Similarity of two inputs, from which the kernel is computed for any hyperparameters.
#[derive(Clone, Copy, Debug)]
struct Similarity {
    squared_distance: f64,
    deviation_product: f64,
    /// Share of trees in which both inputs reach the same leaf.
    shared_leaves: f64,
}

impl Similarity {
    fn between_inputs(one: &Input, two: &Input) -> Similarity {
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
    pub fn of_overhead(overhead_ns: f64) -> Correction {
        Correction { overhead_ns, ..Correction::default() }
    }

    pub fn is_sound(&self) -> bool {
        let widths = |input: &Input| (input.sizes.len(), input.deviations.len(), input.leaves.len());
        self.inputs.len() == self.weights.len()
            && self.inputs.windows(2).all(|pair| widths(&pair[0]) == widths(&pair[1]))
            && self.weights.iter().all(|weight| weight.is_finite())
            && self.overhead_ns.is_finite()
            && self.overhead_ns > 0.0
    }

    /// Returns the posterior mean of the residual, to be added to the predicted log ratio.
    pub fn posterior_mean(&self, input: &Input) -> f64 {
        let covariance = |other| self.kernel.pair_covariance(Similarity::between_inputs(other, input));
        self.inputs.iter().zip(&self.weights).map(|(other, weight)| weight * covariance(other)).sum()
    }
}

impl CovarianceKernel {
    fn from_grid(places: [usize; 5]) -> CovarianceKernel {
        let [length_scale, signal_variance, linear_variance, forest_variance, noise_variance] =
            std::array::from_fn(|which| GRID[which][places[which]]);
        CovarianceKernel { length_scale, signal_variance, linear_variance, forest_variance, noise_variance }
    }

    fn pair_covariance(&self, pair: Similarity) -> f64 {
        let near = (-pair.squared_distance / (2.0 * self.length_scale * self.length_scale)).exp();
        MEAN_VARIANCE
            + self.signal_variance * near
            + self.linear_variance * pair.deviation_product
            + self.forest_variance * pair.shared_leaves
    }

    fn factor_covariance(&self, pairs: &[Vec<Similarity>]) -> Cholesky {
        let width = pairs.len();
        let mut lower = vec![0.0; width * width];
        for (row, pairs) in pairs.iter().enumerate() {
            let values = pairs.iter().map(|pair| self.pair_covariance(*pair));
            lower[row * width..].iter_mut().zip(values).for_each(|(place, value)| *place = value);
            lower[row * width + row] += self.noise_variance;
        }
        Cholesky::factor_matrix(lower, width)
    }

    /// Returns minus twice the log marginal likelihood, up to a constant.
    fn likelihood_deviance(&self, pairs: &[Vec<Similarity>], residuals: &[f64]) -> f64 {
        let factored = self.factor_covariance(pairs);
        let weights = factored.solve(residuals.to_vec());
        residuals.iter().zip(weights).map(|(residual, weight)| residual * weight).sum::<f64>()
            + factored.log_determinant()
    }
}

pub fn fit_correction(overhead_ns: f64, inputs: Vec<Input>, residuals: &[f64]) -> Correction {
    let thin = |most: usize| inputs.len().div_ceil(most).max(1);
    let some: Vec<Input> = inputs.iter().step_by(thin(MOST_OF_LIKELIHOOD)).cloned().collect();
    let some_residuals: Vec<f64> = residuals.iter().copied().step_by(thin(MOST_OF_LIKELIHOOD)).collect();
    let kernel = likeliest_kernel(&pairwise_similarities(&some), &some_residuals);
    let step = thin(MOST);
    let inputs: Vec<Input> = inputs.into_iter().step_by(step).collect();
    let residuals: Vec<f64> = residuals.iter().copied().step_by(step).collect();
    Correction {
        overhead_ns,
        kernel,
        weights: kernel.factor_covariance(&pairwise_similarities(&inputs)).solve(residuals),
        inputs,
    }
}

/// Selects inputs greedily, each of which minimises the remaining total posterior variance.
pub fn most_informative(inputs: &[Input], count: usize) -> Vec<usize> {
    let kernel = CovarianceKernel::from_grid(PRIOR_MODE);
    let width = inputs.len();
    // Posterior covariance of all inputs, given the selected ones.
    let mut covariance = vec![0.0; width * width];
    for (row, pairs) in pairwise_similarities(inputs).into_iter().enumerate() {
        for (column, pair) in pairs.into_iter().enumerate() {
            let value = kernel.pair_covariance(pair);
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

/// Returns the similarity of every input to itself and to all earlier inputs.
fn pairwise_similarities(inputs: &[Input]) -> Vec<Vec<Similarity>> {
    let with_all_before =
        |(row, one): (usize, &Input)| inputs[..=row].iter().map(|two| Similarity::between_inputs(one, two)).collect();
    inputs.iter().enumerate().map(with_all_before).collect()
}

/// Returns the maximum a-posteriori kernel, by coordinate search from the prior's mode.
fn likeliest_kernel(pairs: &[Vec<Similarity>], residuals: &[f64]) -> CovarianceKernel {
    let cost = |places: [usize; 5]| {
        let steps: usize = places.iter().zip(PRIOR_MODE).map(|(one, mode)| one.abs_diff(mode).pow(2)).sum();
        CovarianceKernel::from_grid(places).likelihood_deviance(pairs, residuals) + PRIOR_PENALTY * steps as f64
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
            return CovarianceKernel::from_grid(from);
        }
    }
}
