//! Corrects predictions for a new device: a Gaussian process over the residuals of a few measurements.
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
const MEAN_VARIANCE: f64 = 0.25;
/// Candidate length scales of the exponential kernel, in doublings of a size.
const ROUGH_LENGTHS: [f64; 3] = [3.0, 8.0, 20.0];
/// Degrees of freedom of the t-distributed noise of robust fits; fewer give outliers less weight.
const FREEDOM: f64 = 4.0;
const ROBUST_ROUNDS: usize = 2;
const GRID: [&[f64]; 6] = [
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
    // Correlation of inputs that differ in their group.
    &[0.1, 0.4, 0.7, 0.9, 0.97],
];
/// Mode of the prior, as an index into each row of `GRID`; chosen on held-out devices.
const PRIOR_MODE: [usize; 6] = [1, 1, 2, 1, 1, 2];
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
    /// Group of the input, such as its number format; inputs of different groups are less correlated.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub group: u32,
}

fn is_zero(group: &u32) -> bool {
    *group == 0
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CovarianceKernel {
    length_scale: f64,
    signal_variance: f64,
    linear_variance: f64,
    forest_variance: f64,
    noise_variance: f64,
    /// Correlation of equal inputs that differ only in their group.
    #[serde(default = "full_correlation", skip_serializing_if = "is_full_correlation")]
    group_correlation: f64,
    /// Whether the covariance is exponential in the distance instead of in the squared distance.
    #[serde(default, skip_serializing_if = "is_false")]
    is_rough: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CorrectionOptions {
    /// Whether residuals change abruptly with sizes: an exponential instead of a squared-exponential kernel.
    pub is_rough: bool,
    /// Whether outliers have less weight, as with noise of a t-distribution.
    pub is_robust: bool,
}

fn is_false(value: &bool) -> bool {
    !value
}

fn full_correlation() -> f64 {
    1.0
}

fn is_full_correlation(correlation: &f64) -> bool {
    *correlation == 1.0
}

#[derive(Clone, Copy, Debug)]
struct Similarity {
    squared_distance: f64,
    deviation_product: f64,
    /// Share of trees in which both inputs reach the same leaf.
    shared_leaves: f64,
    has_same_group: bool,
}

impl Similarity {
    fn between_inputs(one: &Input, two: &Input) -> Similarity {
        let squares = one.sizes.iter().zip(&two.sizes).map(|(one, two)| f64::from(one - two).powi(2));
        let same = one.leaves.iter().zip(&two.leaves).filter(|(one, two)| one == two).count();
        Similarity {
            squared_distance: squares.filter(|square| square.is_finite()).sum(),
            deviation_product: one.deviations.iter().zip(&two.deviations).map(|(one, two)| f64::from(one * two)).sum(),
            shared_leaves: same as f64 / one.leaves.len().max(1) as f64,
            has_same_group: one.group == two.group,
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
    fn from_grid(places: [usize; 6], is_rough: bool) -> CovarianceKernel {
        let [mut length_scale, signal_variance, linear_variance, forest_variance, noise_variance, group_correlation] =
            std::array::from_fn(|which| GRID[which][places[which]]);
        if is_rough {
            length_scale = ROUGH_LENGTHS[places[0]];
        }
        CovarianceKernel {
            length_scale,
            signal_variance,
            linear_variance,
            forest_variance,
            noise_variance,
            group_correlation,
            is_rough,
        }
    }

    fn pair_covariance(&self, pair: Similarity) -> f64 {
        let near = match self.is_rough {
            true => (-pair.squared_distance.sqrt() / self.length_scale).exp(),
            false => (-pair.squared_distance / (2.0 * self.length_scale * self.length_scale)).exp(),
        };
        let same_group = MEAN_VARIANCE
            + self.signal_variance * near
            + self.linear_variance * pair.deviation_product
            + self.forest_variance * pair.shared_leaves;
        if pair.has_same_group { same_group } else { self.group_correlation * same_group }
    }

    /// Factors the covariance of measurements, whose noise variances are `noise` times that of the kernel.
    fn factor_covariance(&self, pairs: &[Vec<Similarity>], noise: &[f64]) -> Cholesky {
        let width = pairs.len();
        let mut lower = vec![0.0; width * width];
        for (row, pairs) in pairs.iter().enumerate() {
            let values = pairs.iter().map(|pair| self.pair_covariance(*pair));
            lower[row * width..].iter_mut().zip(values).for_each(|(place, value)| *place = value);
            lower[row * width + row] += self.noise_variance * noise[row];
        }
        Cholesky::factor_matrix(lower, width)
    }

    /// Returns minus twice the log marginal likelihood, up to a constant.
    fn likelihood_deviance(&self, pairs: &[Vec<Similarity>], residuals: &[f64]) -> f64 {
        let factored = self.factor_covariance(pairs, &vec![1.0; residuals.len()]);
        let weights = factored.solve(residuals.to_vec());
        residuals.iter().zip(weights).map(|(residual, weight)| residual * weight).sum::<f64>()
            + factored.log_determinant()
    }
}

pub fn fit_correction(overhead_ns: f64, inputs: Vec<Input>, residuals: &[f64]) -> Correction {
    fit_posterior(overhead_ns, inputs, residuals, CorrectionOptions::default()).0
}

/// Fits a correction. Also returns leave-one-out residuals, computed with the hyperparameters of all measurements.
pub fn fit_with_errors(
    overhead_ns: f64,
    inputs: Vec<Input>,
    residuals: &[f64],
    options: CorrectionOptions,
) -> (Correction, Vec<f64>) {
    let (correction, covariance) = fit_posterior(overhead_ns, inputs, residuals, options);
    let precisions = covariance.inverse_diagonal();
    let errors = correction.weights.iter().zip(precisions).map(|(weight, precision)| weight / precision).collect();
    (correction, errors)
}

fn fit_posterior(
    overhead_ns: f64,
    inputs: Vec<Input>,
    residuals: &[f64],
    options: CorrectionOptions,
) -> (Correction, Cholesky) {
    let thin = |most: usize| inputs.len().div_ceil(most).max(1);
    let some: Vec<Input> = inputs.iter().step_by(thin(MOST_OF_LIKELIHOOD)).cloned().collect();
    let some_residuals: Vec<f64> = residuals.iter().copied().step_by(thin(MOST_OF_LIKELIHOOD)).collect();
    let mut kernel = likeliest_kernel(&pairwise_similarities(&some), &some_residuals, options.is_rough);
    if inputs.windows(2).all(|pair| pair[0].group == pair[1].group) {
        kernel.group_correlation = full_correlation();
    }
    let step = thin(MOST);
    let inputs: Vec<Input> = inputs.into_iter().step_by(step).collect();
    let residuals: Vec<f64> = residuals.iter().copied().step_by(step).collect();
    let pairs = pairwise_similarities(&inputs);
    let mut noise = vec![1.0; inputs.len()];
    let mut covariance = kernel.factor_covariance(&pairs, &noise);
    let mut weights = covariance.solve(residuals.clone());
    for _ in 0..if options.is_robust { ROBUST_ROUNDS } else { 0 } {
        for ((noise, weight), precision) in noise.iter_mut().zip(&weights).zip(covariance.inverse_diagonal()) {
            let variance = 1.0 / precision + kernel.noise_variance * (1.0 - *noise);
            *noise = ((FREEDOM + (weight / precision).powi(2) / variance) / (FREEDOM + 1.0)).max(1.0);
        }
        covariance = kernel.factor_covariance(&pairs, &noise);
        weights = covariance.solve(residuals.clone());
    }
    (Correction { overhead_ns, kernel, weights, inputs }, covariance)
}

/// Selects inputs greedily, each of which minimises the remaining total posterior variance.
pub fn most_informative(inputs: &[Input], count: usize) -> Vec<usize> {
    let kernel = CovarianceKernel::from_grid(PRIOR_MODE, false);
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

fn pairwise_similarities(inputs: &[Input]) -> Vec<Vec<Similarity>> {
    let with_all_before =
        |(row, one): (usize, &Input)| inputs[..=row].iter().map(|two| Similarity::between_inputs(one, two)).collect();
    inputs.iter().enumerate().map(with_all_before).collect()
}

/// Returns the maximum a-posteriori kernel, by coordinate search from the prior's mode.
fn likeliest_kernel(pairs: &[Vec<Similarity>], residuals: &[f64], is_rough: bool) -> CovarianceKernel {
    let cost = |places: [usize; 6]| {
        let steps: usize = places.iter().zip(PRIOR_MODE).map(|(one, mode)| one.abs_diff(mode).pow(2)).sum();
        CovarianceKernel::from_grid(places, is_rough).likelihood_deviance(pairs, residuals)
            + PRIOR_PENALTY * steps as f64
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
            return CovarianceKernel::from_grid(from, is_rough);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measurements(count: usize) -> (Vec<Input>, Vec<f64>) {
        let size = |place: usize| (place * 7 % count) as f32 / 2.0;
        let input = |place| Input { sizes: vec![size(place)], deviations: vec![0.1 * size(place)], ..Input::default() };
        let inputs: Vec<Input> = (0..count).map(input).collect();
        let residuals = inputs.iter().map(|input| 0.3 + 0.1 * f64::from(input.sizes[0]).sin()).collect();
        (inputs, residuals)
    }

    #[test]
    fn leaving_one_out_is_fitting_without_it() {
        let (inputs, residuals) = measurements(12);
        let (fitted, errors) = fit_with_errors(1.0, inputs.clone(), &residuals, CorrectionOptions::default());
        for (place, left_out) in errors.iter().enumerate() {
            let (mut others, mut rest) = (inputs.clone(), residuals.clone());
            let (own, wanted) = (others.remove(place), rest.remove(place));
            let weights = fitted.kernel.factor_covariance(&pairwise_similarities(&others), &[1.0; 11]).solve(rest);
            let without = Correction { inputs: others, weights, ..fitted.clone() };
            let error = wanted - without.posterior_mean(&own);
            assert!((left_out - error).abs() < 1e-9, "{place}: {left_out} {error}");
        }
    }

    #[test]
    fn an_outlier_has_less_weight_in_a_robust_fit() {
        let (inputs, mut residuals) = measurements(12);
        residuals[5] += 1.0;
        let error = |is_robust| {
            let options = CorrectionOptions { is_robust, ..CorrectionOptions::default() };
            let fitted = fit_with_errors(1.0, inputs.clone(), &residuals, options).0;
            let others = inputs.iter().zip(&residuals).enumerate().filter(|(place, _)| *place != 5);
            others.map(|(_, (input, wanted))| (fitted.posterior_mean(input) - wanted).abs()).sum::<f64>()
        };
        assert!(error(true) < 0.8 * error(false), "{} {}", error(true), error(false));
    }

    #[test]
    fn groups_that_differ_are_corrected_apart() {
        let (mut inputs, mut residuals) = measurements(12);
        let second = inputs.iter().cloned().map(|input| Input { group: 1, ..input }).collect::<Vec<_>>();
        residuals.extend(residuals.iter().map(|residual| residual - 1.0).collect::<Vec<_>>());
        inputs.extend(second);
        let fitted = fit_correction(1.0, inputs.clone(), &residuals);
        for (input, wanted) in inputs.iter().zip(&residuals) {
            assert!((fitted.posterior_mean(input) - wanted).abs() < 0.2, "{} {wanted}", fitted.posterior_mean(input));
        }
    }
}
