//! Empirical Bayes estimate of variances. Each line has few nights, so its variance is shrunk towards that of all
//! lines.
//! Variances are assumed to follow a scaled inverse chi-square distribution. Its scale and degrees of freedom are
//! fitted to the mean and the variance of the logarithms of the observed variances (Smyth 2004).
//! A variance that is improbably large under this distribution, such as that of a line with an outlier night, is not
//! shrunk (as in the robust variant of Phipson 2016).

use super::distributions::{digamma, trigamma, variance_ratio_tail};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Prior {
    pub variance: f64,
    pub freedom: f64,
}

const FREEDOM_MAX: f64 = 1000.0;
/// Lower limit of a variance, because a coarse clock can make all repetitions equal.
const VARIANCE_MIN: f64 = 1e-10;
/// Probability under the prior below which a variance is outlying.
const OUTLYING: f64 = 0.01;

impl Prior {
    /// Fits the prior to observed variances with their degrees of freedom; `None` if there are too few.
    pub fn fit_prior(found: &[(f64, f64)]) -> Option<Prior> {
        let known: Vec<(f64, f64)> =
            found.iter().filter(|(_, freedom)| *freedom > 0.0).map(|(s, f)| (s.max(VARIANCE_MIN), *f)).collect();
        if known.len() < 3 {
            return None;
        }
        let count = known.len() as f64;
        let centred = |(variance, freedom): &(f64, f64)| variance.ln() - digamma(freedom / 2.0) + (freedom / 2.0).ln();
        let logs: Vec<f64> = known.iter().map(centred).collect();
        let mean = logs.iter().sum::<f64>() / count;
        let spread = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / (count - 1.0);
        let own = known.iter().map(|(_, freedom)| trigamma(freedom / 2.0)).sum::<f64>() / count;
        let freedom = solve_freedom(spread - own);
        let variance = match freedom < FREEDOM_MAX {
            true => (mean + digamma(freedom / 2.0) - (freedom / 2.0).ln()).exp(),
            false => mean.exp(),
        };
        Some(Prior { variance: variance.max(VARIANCE_MIN), freedom })
    }

    /// Returns whether a variance is improbably large under the prior.
    pub fn is_outlying(self, variance: f64, freedom: f64) -> bool {
        freedom > 0.0 && variance_ratio_tail(variance / self.variance, freedom, self.freedom) < OUTLYING
    }

    /// Returns the variance of a line and its degrees of freedom.
    pub fn posterior_variance(self, variance: f64, freedom: f64) -> (f64, f64) {
        if self.is_outlying(variance, freedom) {
            return (variance, freedom);
        }
        self.shared_variance(variance, freedom)
    }

    /// Returns the variance of a line shrunk towards the prior, and its degrees of freedom.
    pub fn shared_variance(self, variance: f64, freedom: f64) -> (f64, f64) {
        let together = self.freedom + freedom;
        ((self.freedom * self.variance + freedom * variance) / together, together)
    }
}

/// Returns the degrees of freedom for a given trigamma value of half of them, by bisection.
fn solve_freedom(trigamma_of_half: f64) -> f64 {
    if trigamma_of_half <= trigamma(FREEDOM_MAX / 2.0) {
        return FREEDOM_MAX;
    }
    let (mut low, mut high) = (0.01, FREEDOM_MAX / 2.0);
    for _ in 0..80 {
        let middle = f64::midpoint(low, high);
        if trigamma(middle) > trigamma_of_half { low = middle } else { high = middle }
    }
    2.0 * high
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    #[test]
    fn variances_are_shared_between_similar_lines_only() {
        let mut generator = ChaCha8Rng::seed_from_u64(5);
        // A chi-square variable with four degrees of freedom is the sum of two exponentials.
        let mut draw = |variance: f64| {
            let chi: f64 = (0..2).map(|_| -2.0 * generator.random::<f64>().max(1e-12).ln()).sum();
            (variance * chi / 4.0, 4.0)
        };
        let alike = Prior::fit_prior(&(0..500).map(|_| draw(0.01)).collect::<Vec<_>>()).unwrap();
        assert!(alike.freedom > 30.0 && (alike.variance / 0.01 - 1.0).abs() < 0.1, "{alike:?}");
        let (shared, freedom) = alike.posterior_variance(0.02, 4.0);
        assert!(shared < 0.015 && freedom > 30.0, "{shared} {freedom}");
        assert_eq!(alike.posterior_variance(0.2, 4.0), (0.2, 4.0), "an outlying variance is not shared");
        let unlike: Vec<_> = (0..500).map(|at| draw(if at % 2 == 0 { 0.0001 } else { 0.01 })).collect();
        let unlike = Prior::fit_prior(&unlike).unwrap();
        assert!(unlike.freedom < 3.0, "{unlike:?}");
        assert_eq!(Prior::fit_prior(&[(0.1, 0.0); 9]), None);
        assert!(Prior::fit_prior(&[(0.0, 2.0); 9]).unwrap().variance > 0.0);
    }
}
