//! Moments, the t distribution of Student, gamma functions and multiple-testing correction, tested with published
//! tables.

use measure::statistics::median;

/// Returns the mean, or 0 for an empty list.
pub(super) fn mean_of(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Returns the median, or 0 for an empty list.
pub(super) fn median_of(values: &[f64]) -> f64 {
    median(values).unwrap_or(0.0)
}

/// Returns the sum of squared deviations from the mean.
pub(super) fn sum_of_squares(values: &[f64]) -> f64 {
    let mean = mean_of(values);
    values.iter().map(|value| (value - mean).powi(2)).sum()
}

/// Returns the logarithm of the gamma function for positive numbers.
pub(super) fn ln_gamma(x: f64) -> f64 {
    let (x, shift) = raise_argument(x, f64::ln);
    let series = 1.0 / (12.0 * x) - 1.0 / (360.0 * x.powi(3)) + 1.0 / (1260.0 * x.powi(5));
    (x - 0.5) * x.ln() - x + 0.5 * (2.0 * std::f64::consts::PI).ln() + series - shift
}

pub(super) fn digamma(x: f64) -> f64 {
    let (x, shift) = raise_argument(x, |x| 1.0 / x);
    x.ln() - 0.5 / x - 1.0 / (12.0 * x.powi(2)) + 1.0 / (120.0 * x.powi(4)) - 1.0 / (252.0 * x.powi(6)) - shift
}

pub(super) fn trigamma(x: f64) -> f64 {
    let (x, shift) = raise_argument(x, |x| 1.0 / (x * x));
    1.0 / x + 0.5 / x.powi(2) + 1.0 / (6.0 * x.powi(3)) - 1.0 / (30.0 * x.powi(5)) + 1.0 / (42.0 * x.powi(7)) + shift
}

/// Raises `x` until the asymptotic series is accurate. Also returns the sum of `step` over skipped values.
fn raise_argument(mut x: f64, step: impl Fn(f64) -> f64) -> (f64, f64) {
    let mut sum = 0.0;
    while x < 8.0 {
        sum += step(x);
        x += 1.0;
    }
    (x, sum)
}

pub(super) fn student_tails(t: f64, freedom: f64) -> f64 {
    if !t.is_finite() {
        return 0.0;
    }
    incomplete_beta(freedom / (freedom + t * t), freedom / 2.0, 0.5)
}

/// Returns the probability that a ratio of two variances with these degrees of freedom is at least `ratio`.
pub(super) fn variance_ratio_tail(ratio: f64, freedom: f64, of_divisor: f64) -> f64 {
    incomplete_beta(of_divisor / (of_divisor + freedom * ratio), of_divisor / 2.0, freedom / 2.0)
}

/// Returns the two-sided critical value of Student's t distribution.
pub(super) fn student_critical_value(tails: f64, freedom: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1e4);
    for _ in 0..80 {
        let middle = f64::midpoint(low, high);
        if student_tails(middle, freedom) > tails { low = middle } else { high = middle }
    }
    high
}

fn incomplete_beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    let front = (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (-x).ln_1p()).exp();
    match x < (a + 1.0) / (a + b + 2.0) {
        true => front * beta_fraction(x, a, b) / a,
        false => 1.0 - front * beta_fraction(1.0 - x, b, a) / b,
    }
}

/// Returns the continued fraction of the incomplete beta function, computed by Lentz's method.
fn beta_fraction(x: f64, a: f64, b: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let whole = |value: f64| if value.abs() < TINY { TINY } else { value };
    let (mut c, mut d) = (1.0, 1.0 / whole(1.0 - (a + b) * x / (a + 1.0)));
    let mut result = d;
    for step in 1..300 {
        let m = f64::from(step);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut last = 1.0;
        for term in [even, odd] {
            d = 1.0 / whole(1.0 + term * d);
            c = whole(1.0 + term / c);
            last = c * d;
            result *= last;
        }
        if (last - 1.0).abs() < 1e-14 {
            break;
        }
    }
    result
}

/// Returns q-values for p-values, by the method of Benjamini and Hochberg.
pub(super) fn adjust_p_values(tails: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..tails.len()).collect();
    order.sort_by(|&one, &other| tails[other].total_cmp(&tails[one]));
    let (mut least, mut found) = (1.0f64, vec![1.0; tails.len()]);
    for (from_end, &place) in order.iter().enumerate() {
        let rank = tails.len() - from_end;
        least = least.min(tails[place] * tails.len() as f64 / rank as f64);
        found[place] = least;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(value: f64, expected: f64) {
        assert!((value - expected).abs() < 2e-4 * expected.abs().max(1e-3), "{value} is not {expected}");
    }

    #[test]
    fn tables_agree() {
        near(ln_gamma(0.5), 0.572_364_9);
        near(ln_gamma(10.0), 12.801_827_5);
        near(digamma(1.0), -0.577_215_7);
        near(trigamma(1.0), 1.644_934_1);
        // Quantiles from published tables of Student's t.
        for (freedom, reach) in [(1.0, 12.7062), (2.0, 4.3027), (5.0, 2.5706), (30.0, 2.0423), (1000.0, 1.9623)] {
            near(student_critical_value(0.05, freedom), reach);
            near(student_tails(reach, freedom), 0.05);
        }
        near(student_tails(-2.0, 1e6), 0.0455);
        // Quantiles of the F distribution.
        near(variance_ratio_tail(10.1280, 1.0, 3.0), 0.05);
        near(variance_ratio_tail(5.4095, 3.0, 5.0), 0.05);
        assert_eq!((student_tails(f64::INFINITY, 3.0), student_tails(0.0, 3.0)), (0.0, 1.0));
    }

    #[test]
    fn many_tests_are_judged_together() {
        let found = adjust_p_values(&[0.01, 0.04, 0.03, 0.5]);
        assert_eq!(found.iter().map(|q| (q * 1e4).round() / 1e4).collect::<Vec<_>>(), [0.04, 0.0533, 0.0533, 0.5]);
        assert_eq!(adjust_p_values(&[]), Vec::<f64>::new());
    }
}
