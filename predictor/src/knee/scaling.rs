//! Finds a machine's fastest thread count from a few measurements, with a prior from the curves of other machines.
//!
//! The prior is a set of Gunther's scaling laws, with parameters sampled around those of the other machines. A curve
//! is one of these laws plus a smooth deviation, a Gaussian process over the logarithm of the thread count. Each
//! measurement updates the weights of the laws by their likelihoods, and conditions the deviations.

use super::law::{fit_law, log_shape};
use super::update::NOISE;
use super::{HALF_WIDTH_OF_90, Point};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use samples::table::ThreadCurve;
use std::collections::BTreeMap;

const LAWS: usize = 400;
/// Standard deviation of the logarithms of the sampled parameters around those of known laws.
const SPREAD: f64 = 1.0;
/// Lower limits of contention and coherence, from which parameters are sampled.
const LEAST: (f64, f64) = (1e-3, 1e-5);
const MOST: (f64, f64) = (1.0, 0.5);
/// Prior without other machines: for contention and coherence, the median and the deviation of the logarithm.
const USUAL: [(f64, f64); 2] = [(0.03, 1.5), (5e-4, 2.5)];
/// Standard deviation of the smooth deviation from a law, in log space; `ROUGHNESS` is that of the independent part
/// per thread count.
const DEVIATION: f64 = 0.06;
const ROUGHNESS: f64 = 0.03;
/// Correlation length of the smooth deviation, in doublings of the thread count.
const DOUBLINGS: f64 = 1.0;
/// Prior standard deviation of the log time in seconds on one thread; large enough to be uninformative.
const LEVEL: f64 = 5.0;
const DRAWS: usize = 256;
const FEWEST_POINTS: usize = 3;

#[derive(Clone, Debug, PartialEq)]
pub struct ScalingPrior {
    laws: Vec<(f64, f64)>,
    pub machines: Vec<String>,
}

impl ScalingPrior {
    /// Creates the prior from all machines except `without`, each with equal weight.
    pub fn learn_prior(curves: &[ThreadCurve], without: &str) -> ScalingPrior {
        let mut known: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
        for curve in curves.iter().filter(|curve| curve.device != without && curve.points.len() >= FEWEST_POINTS) {
            known.entry(&curve.device).or_default().push(fit_law(&curve.points));
        }
        let machines: Vec<String> = known.keys().map(|name| (*name).to_owned()).collect();
        let known: Vec<Vec<(f64, f64)>> = known.into_values().collect();
        let mut random = ChaCha8Rng::seed_from_u64(0);
        let laws = (0..LAWS).map(|place| {
            let spread = [standard_normal(&mut random), standard_normal(&mut random)];
            let parameters = match known.len() {
                0 => USUAL,
                count => {
                    let of_machine = &known[place % count];
                    let (contention, coherence) = of_machine[random.random_range(0..of_machine.len())];
                    [(contention.max(LEAST.0), SPREAD), (coherence.max(LEAST.1), SPREAD)]
                }
            };
            let drawn = |place: usize| parameters[place].0 * (parameters[place].1 * spread[place]).exp();
            (drawn(0).min(MOST.0), drawn(1).min(MOST.1))
        });
        ScalingPrior { laws: laws.collect(), machines }
    }
}

fn standard_normal(random: &mut ChaCha8Rng) -> f64 {
    let radius = (-2.0 * (1.0 - random.random::<f64>()).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.random::<f64>()).cos()
}

#[derive(Clone, Debug)]
pub struct ScalingPosterior {
    threads: Vec<f64>,
    /// For each law, the posterior mean of the logarithm of the time in seconds, at each thread count.
    means: Vec<Vec<f64>>,
    log_weights: Vec<f64>,
    covariance: Vec<Vec<f64>>,
    measured: Vec<usize>,
}

impl ScalingPosterior {
    /// Creates a posterior without measurements. `threads` must be in ascending order.
    pub fn from_prior(prior: &ScalingPrior, threads: &[f64]) -> ScalingPosterior {
        let covariance = |one: usize, two: usize| {
            let distance = (threads[one] / threads[two]).log2() / DOUBLINGS;
            let own = if one == two { ROUGHNESS * ROUGHNESS } else { 0.0 };
            LEVEL * LEVEL + DEVIATION * DEVIATION * (-distance * distance / 2.0).exp() + own
        };
        let mean = |(contention, coherence): &(f64, f64)| {
            threads.iter().map(|at| log_shape(*at, *contention, *coherence)).collect()
        };
        ScalingPosterior {
            threads: threads.to_vec(),
            means: prior.laws.iter().map(mean).collect(),
            log_weights: vec![0.0; prior.laws.len()],
            covariance: (0..threads.len())
                .map(|one| (0..threads.len()).map(|two| covariance(one, two)).collect())
                .collect(),
            measured: Vec::new(),
        }
    }

    pub fn condition_on(&mut self, threads: f64, time_ns: f64) {
        let Some(place) = self.threads.iter().position(|at| *at == threads) else { return };
        let variance = self.covariance[place][place];
        if self.measured.contains(&place) || variance <= 0.0 {
            return;
        }
        let time = (1e-9 * time_ns).ln();
        let gain: Vec<f64> = self.covariance.iter().map(|row| row[place] / variance).collect();
        for (means, log_weight) in self.means.iter_mut().zip(&mut self.log_weights) {
            let innovation = time - means[place];
            *log_weight -= 0.5 * innovation * innovation / variance;
            means.iter_mut().zip(&gain).for_each(|(mean, gain)| *mean += gain * innovation);
        }
        subtract_explained(&mut self.covariance, &gain, variance);
        self.measured.push(place);
    }

    /// Returns the unmeasured thread count that is most probably the fastest; None if all are measured.
    pub fn next_probe(&self) -> Option<f64> {
        let is_open = |at: &f64| !self.measured.iter().any(|place| self.threads[*place] == *at);
        self.by_probability().into_iter().find(is_open)
    }

    /// Returns the thread counts by decreasing probability of being the fastest; ties prefer fewer threads.
    pub fn by_probability(&self) -> Vec<f64> {
        let mut wins = vec![0usize; self.threads.len()];
        let factors = self.covariance_factors();
        let weights = self.law_weights();
        let mut random = ChaCha8Rng::seed_from_u64(1);
        let (mut law, mut below) = (0, weights[0]);
        for draw in 0..DRAWS {
            // Systematic resampling draws laws in proportion to their weights.
            while below < (draw as f64 + 0.5) / DRAWS as f64 && law + 1 < weights.len() {
                law += 1;
                below += weights[law];
            }
            let mut logs = self.means[law].clone();
            for factor in &factors {
                let deviation = standard_normal(&mut random);
                logs.iter_mut().zip(factor).for_each(|(log, factor)| *log += factor * deviation);
            }
            wins[lowest_index(&logs)] += 1;
        }
        let mut places: Vec<usize> = (0..wins.len()).collect();
        places.sort_by_key(|place| std::cmp::Reverse(wins[*place]));
        places.into_iter().map(|place| self.threads[place]).collect()
    }

    /// Returns the expected curve with intervals; before the first measurement, only ratios of times are meaningful.
    pub fn expected_curve(&self) -> Vec<Point> {
        let weights = self.law_weights();
        let average = |value: &dyn Fn(&Vec<f64>) -> f64| -> f64 {
            self.means.iter().zip(&weights).map(|(means, weight)| weight * value(means)).sum()
        };
        let point = |(place, at): (usize, &f64)| {
            let mean = average(&|means| means[place]);
            let between = average(&|means| (means[place] - mean).powi(2));
            let half = HALF_WIDTH_OF_90 * (between + self.covariance[place][place].max(0.0) + NOISE * NOISE).sqrt();
            let time_ns = 1e9 * mean.exp();
            Point { at: *at, time_ns, low_ns: time_ns / half.exp(), high_ns: time_ns * half.exp() }
        };
        self.threads.iter().enumerate().map(point).collect()
    }

    pub fn expected_fastest(&self) -> f64 {
        let logs: Vec<f64> = self.expected_curve().iter().map(|point| point.time_ns).collect();
        self.threads[lowest_index(&logs)]
    }

    fn law_weights(&self) -> Vec<f64> {
        let most = self.log_weights.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = self.log_weights.iter().map(|log| (log - most).exp()).collect();
        let sum: f64 = weights.iter().sum();
        weights.into_iter().map(|weight| weight / sum).collect()
    }

    /// Returns the columns of a square root of the covariance. Weighted by normal numbers, they sum to a deviation.
    fn covariance_factors(&self) -> Vec<Vec<f64>> {
        /// Variance up to which a point counts as measured.
        const NOTHING: f64 = 1e-12;
        let mut rest = self.covariance.clone();
        let mut factors = Vec::new();
        for place in 0..rest.len() {
            let variance = rest[place][place];
            if variance > NOTHING {
                let gain: Vec<f64> = rest.iter().map(|row| row[place] / variance).collect();
                factors.push(gain.iter().map(|gain| gain * variance.sqrt()).collect());
                subtract_explained(&mut rest, &gain, variance);
            }
        }
        factors
    }
}

fn subtract_explained(covariance: &mut [Vec<f64>], gain: &[f64], variance: f64) {
    for (row, one) in covariance.iter_mut().zip(gain) {
        row.iter_mut().zip(gain).for_each(|(cell, two)| *cell -= one * two * variance);
    }
}

fn lowest_index(values: &[f64]) -> usize {
    (0..values.len()).min_by(|one, two| values[*one].total_cmp(&values[*two])).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(device: &str, contention: f64, coherence: f64) -> ThreadCurve {
        let point = |threads: f64| (threads, 1e6 * log_shape(threads, contention, coherence).exp());
        let points = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0].map(point).to_vec();
        ThreadCurve { operator: "net".to_owned(), device: device.to_owned(), points }
    }

    fn answer(prior: &ScalingPrior, truth: &ThreadCurve, probes: usize) -> (f64, Vec<f64>) {
        let threads: Vec<f64> = truth.points.iter().map(|point| point.0).collect();
        let mut posterior = ScalingPosterior::from_prior(prior, &threads);
        let mut asked = Vec::new();
        for _ in 0..probes {
            let at = posterior.next_probe().expect("an open thread count");
            let time_ns = truth.points.iter().find(|point| point.0 == at).expect("a known one").1;
            posterior.condition_on(at, time_ns);
            asked.push(at);
        }
        (posterior.expected_fastest(), asked)
    }

    #[test]
    fn three_probes_find_the_fastest_on_a_machine_unlike_the_others() {
        let known: Vec<ThreadCurve> =
            [0.01, 0.05, 0.1].map(|contention| curve(&format!("{contention}"), contention, 1e-4)).to_vec();
        let prior = ScalingPrior::learn_prior(&known, "here");
        assert_eq!(prior.machines.len(), 3);
        // The fastest is at sqrt((1 - contention) / coherence): 97 and 15.6 threads.
        for (coherence, fastest) in [(1e-4, 64.0), (0.004, 16.0)] {
            let (found, asked) = answer(&prior, &curve("here", 0.03, coherence), 3);
            assert_eq!(found, fastest, "{asked:?}");
        }
    }

    #[test]
    fn measurements_are_believed_and_repeats_change_nothing() {
        let prior = ScalingPrior::learn_prior(&[], "here");
        let mut posterior = ScalingPosterior::from_prior(&prior, &[1.0, 2.0, 4.0]);
        posterior.condition_on(2.0, 5e5);
        let before = posterior.expected_curve();
        posterior.condition_on(2.0, 9e5);
        assert_eq!(posterior.expected_curve(), before);
        assert!(
            (before[1].time_ns / 5e5 - 1.0).abs() < 1e-6 && before[1].high_ns / before[1].low_ns < 1.04,
            "{before:?}"
        );
        assert!(before[0].low_ns < before[0].time_ns && before[0].time_ns > before[1].time_ns, "{before:?}");
        posterior.condition_on(1.0, 1e6);
        posterior.condition_on(4.0, 3e5);
        assert_eq!(posterior.next_probe(), None);
    }

    #[test]
    fn the_machine_itself_is_no_prior() {
        let known = [curve("here", 0.5, 0.1), curve("there", 0.01, 1e-5)];
        assert_eq!(ScalingPrior::learn_prior(&known, "here").machines, ["there"]);
    }
}
