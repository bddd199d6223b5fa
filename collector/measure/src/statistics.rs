//! Definitions and computation of the statistics of a set of samples.
//!
//! * *median*: the central sample, or the mean of the two central ones.
//! * *percentile p*: linear interpolation between the samples around position `p (n - 1)`, counted from 0 in sorted
//!   order (type 7 of Hyndman and Fan, the default of NumPy, pandas and R).
//! * *standard deviation*: of the sample, with `n - 1`; *CV* is standard deviation over mean.
//! * *interval of the median*: the narrowest symmetric pair of order statistics that encloses the true median with at
//!   least the given probability. It assumes independent samples and no distribution; if disturbances last longer than
//!   a sample, it is too narrow. Of 3 to 5 run times, whose range does not enclose the median often enough, it is
//!   Student's interval around the median, which assumes normal samples.
//! * *drift*: whether the later half of the samples differs from the earlier by more than chance (rank sum test).

use serde::{Deserialize, Serialize};

/// Confidence level of the intervals in every summary and record, independent of the plan's stopping rule.
pub const CONFIDENCE: f64 = 0.95;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SampleSummary {
    pub n: u32,
    pub median: f64,
    pub mean: f64,
    pub min: f64,
    pub max: f64,
    pub p95: f64,
    /// Standard deviation; `None` for one sample.
    pub std: Option<f64>,
    /// Coefficient of variation; `None` for one sample or a mean of zero.
    pub cv: Option<f64>,
    /// Confidence interval of the median; `None` for too few samples.
    pub median_interval: Option<(f64, f64)>,
}

/// Computes all statistics of sorted samples, in the unit of the samples; `None` without samples.
pub fn summarise_samples(sorted: &[f64]) -> Option<SampleSummary> {
    debug_assert!(sorted.is_sorted(), "samples must be sorted");
    let (first, last) = (*sorted.first()?, *sorted.last()?);
    let count = sorted.len() as f64;
    let mean = sorted.iter().sum::<f64>() / count;
    let squares: f64 = sorted.iter().map(|sample| (sample - mean).powi(2)).sum();
    let std = (sorted.len() > 1).then(|| (squares / (count - 1.0)).sqrt());
    Some(SampleSummary {
        n: u32::try_from(sorted.len()).unwrap_or(u32::MAX),
        median: median_of_sorted(sorted),
        mean,
        min: first,
        max: last,
        p95: interpolate_percentile(sorted, 0.95),
        std,
        cv: std.filter(|_| mean != 0.0).map(|std| std / mean),
        median_interval: median_interval(sorted, CONFIDENCE),
    })
}

/// Returns the median of samples in any order; None without samples.
pub fn median(samples: &[f64]) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    (!sorted.is_empty()).then(|| median_of_sorted(&sorted))
}

/// Returns the median; panics without samples.
pub fn median_of_sorted(sorted: &[f64]) -> f64 {
    let half = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[half] } else { f64::midpoint(sorted[half - 1], sorted[half]) }
}

/// Interpolates the `part` quantile (0 to 1) linearly; panics without samples.
pub fn interpolate_percentile(sorted: &[f64], part: f64) -> f64 {
    let place = part.clamp(0.0, 1.0) * (sorted.len() - 1) as f64;
    let below = place.floor();
    let (low, high) = (sorted[below as usize], sorted[place.ceil() as usize]);
    low + (high - low) * (place - below)
}

/// Returns the confidence interval of the median by order statistics; None for too few samples.
pub fn median_interval(sorted: &[f64], confidence: f64) -> Option<(f64, f64)> {
    let outside = samples_outside_interval(sorted.len(), confidence)?;
    Some((sorted[outside], sorted[sorted.len() - 1 - outside]))
}

/// Returns the confidence interval of the median of run times, also of few; None for fewer than three.
pub fn time_interval(sorted: &[f64], confidence: f64) -> Option<(f64, f64)> {
    median_interval(sorted, confidence).or_else(|| interval_of_few(sorted, confidence))
}

fn interval_of_few(sorted: &[f64], confidence: f64) -> Option<(f64, f64)> {
    let quantile = student_quantile(sorted.len().checked_sub(1)?, confidence)?;
    let count = sorted.len() as f64;
    let mean = sorted.iter().sum::<f64>() / count;
    let variance = sorted.iter().map(|sample| (sample - mean).powi(2)).sum::<f64>() / (count - 1.0);
    let (median, half) = (median_of_sorted(sorted), quantile * (variance / count).sqrt());
    Some(((median - half).max(0.0), median + half))
}

/// Returns the value that the magnitude of Student's t stays below with a probability, for 2 to 4 degrees of freedom.
fn student_quantile(freedom: usize, probability: f64) -> Option<f64> {
    // The distribution as a function of the angle whose tangent is t over the root of the degrees of freedom.
    let below = |angle: f64| match freedom {
        2 => angle.sin(),
        3 => std::f64::consts::FRAC_2_PI * (angle + angle.sin() * angle.cos()),
        _ => angle.sin() * (1.0 + angle.cos().powi(2) / 2.0),
    };
    (2..=4).contains(&freedom).then(|| {
        let (mut low, mut high) = (0.0, std::f64::consts::FRAC_PI_2);
        for _ in 0..64 {
            let middle = f64::midpoint(low, high);
            if below(middle) < probability { low = middle } else { high = middle }
        }
        (freedom as f64).sqrt() * low.tan()
    })
}

/// Returns the number of order statistics to drop at each end for the interval of the median; None for too few samples.
/// Samples below the median are binomial with p = 1/2; terms are logarithms, because 2^-n underflows.
fn samples_outside_interval(n: usize, confidence: f64) -> Option<usize> {
    let tail = (1.0 - confidence) / 2.0;
    let mut log_term = -(n as f64) * std::f64::consts::LN_2;
    let mut below = 0.0;
    for count in 0..n.div_ceil(2) {
        below += log_term.exp();
        if below > tail {
            return count.checked_sub(1);
        }
        log_term += ((n - count) as f64 / (count + 1) as f64).ln();
    }
    n.div_ceil(2).checked_sub(1)
}

/// Returns the later half's median over the earlier half's, minus one; None if the rank-sum test is not significant.
pub fn detect_drift(samples: &[f64]) -> Option<f64> {
    if samples.len() < 16 {
        return None;
    }
    let half = samples.len() / 2;
    let mut order: Vec<usize> = (0..samples.len()).collect();
    order.sort_by(|&a, &b| samples[a].total_cmp(&samples[b]));
    let (early, late) = (half as f64, (samples.len() - half) as f64);
    // Equal samples get their mean rank, so that a coarse clock does not look like a trend.
    let mut late_ranks = 0.0;
    let mut ties = 0.0;
    let mut rank = 0;
    for group in order.chunk_by(|&a, &b| samples[a] == samples[b]) {
        let size = group.len() as f64;
        let mean_rank = rank as f64 + (size + 1.0) / 2.0;
        late_ranks += mean_rank * group.iter().filter(|&&place| place >= half).count() as f64;
        ties += size.powi(3) - size;
        rank += group.len();
    }
    let count = early + late;
    let expected = late * (count + 1.0) / 2.0;
    let variance = early * late / 12.0 * (count + 1.0 - ties / (count * (count - 1.0)));
    if variance <= 0.0 || (late_ranks - expected).abs() < 3.5 * variance.sqrt() {
        return None;
    }
    let median_of = |part: &[f64]| {
        let mut sorted = part.to_vec();
        sorted.sort_by(f64::total_cmp);
        median_of_sorted(&sorted)
    };
    Some(median_of(&samples[half..]) / median_of(&samples[..half]) - 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use proptest::prelude::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    #[test]
    fn a_summary_by_hand() {
        let summary = summarise_samples(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 16.0]).expect("samples");
        expect![[r#"
            SampleSummary {
                n: 8,
                median: 4.5,
                mean: 5.5,
                min: 1.0,
                max: 16.0,
                p95: 12.849999999999994,
                std: Some(
                    4.69041575982343,
                ),
                cv: Some(
                    0.8528028654224418,
                ),
                median_interval: Some(
                    (
                        1.0,
                        16.0,
                    ),
                ),
            }
        "#]]
        .assert_debug_eq(&summary);
        assert_eq!(summarise_samples(&[]), None);
        assert_eq!(summarise_samples(&[3.0]).expect("one sample").std, None);
    }

    #[test]
    fn ranks_of_the_interval_are_those_of_the_tables() {
        // (n, confidence) -> samples outside at either end; compared with tables of the sign test.
        let table =
            [(5, None), (6, Some(0)), (8, Some(0)), (9, Some(1)), (20, Some(5)), (50, Some(17)), (100, Some(39))];
        for (n, expected) in table {
            assert_eq!(samples_outside_interval(n, 0.95), expected, "n = {n}");
        }
        // 2^-n underflows here; the normal approximation is n/2 - 0.98 sqrt(n).
        assert!((4890..=4903).contains(&samples_outside_interval(10_000, 0.95).expect("many")));
    }

    #[test]
    fn few_samples_have_students_interval() {
        // Quantiles of the tables for 2, 3 and 4 degrees of freedom.
        let table = [(2, 0.95, 4.303), (3, 0.95, 3.182), (4, 0.95, 2.776), (2, 0.5, 0.816), (3, 0.99, 5.841)];
        for (freedom, probability, expected) in table {
            let found = student_quantile(freedom, probability).expect("few");
            assert!((found - expected).abs() < 1e-3, "{freedom} {probability}: {found}");
        }
        assert_eq!([0, 1, 5].map(|freedom| student_quantile(freedom, 0.95)), [None; 3]);
        assert_eq!(time_interval(&[], 0.95), None);
        assert_eq!(time_interval(&[1.0, 2.0], 0.95), None);
        assert_eq!(time_interval(&[7.0; 3], 0.95), Some((7.0, 7.0)));
        assert_eq!(median_interval(&[7.0; 3], 0.95), None);
        let (low, high) = time_interval(&[99.0, 100.0, 101.0], 0.95).expect("three");
        assert!((low - (100.0 - 2.484)).abs() < 1e-3 && (high - 102.484).abs() < 1e-3, "{low} {high}");
        assert_eq!(time_interval(&[1.0, 2.0, 90.0], 0.95).expect("three").0, 0.0, "no time is negative");
    }

    #[test]
    fn the_interval_holds_the_true_median_as_often_as_promised() {
        let mut generator = ChaCha8Rng::seed_from_u64(7);
        let hits = (0..2000)
            .filter(|_| {
                let mut samples: Vec<f64> = (0..40).map(|_| generator.random::<f64>().powi(4)).collect();
                samples.sort_by(f64::total_cmp);
                let (low, high) = median_interval(&samples, 0.95).expect("enough");
                (low..=high).contains(&0.0625)
            })
            .count();
        assert!((1900..=1960).contains(&hits), "{hits} of 2000");
    }

    #[test]
    fn drift_is_seen_and_noise_is_not() {
        let mut generator = ChaCha8Rng::seed_from_u64(3);
        let noise: Vec<f64> = (0..200).map(|_| 100.0 + 10.0 * generator.random::<f64>()).collect();
        assert_eq!(detect_drift(&noise), None);
        let rising: Vec<f64> = noise.iter().enumerate().map(|(place, sample)| sample + place as f64 * 0.2).collect();
        let change = detect_drift(&rising).expect("it rises by 20 of 105 from half to half");
        assert!((0.15..0.25).contains(&change), "{change}");
        assert_eq!(detect_drift(&[5.0; 64]), None, "a coarse clock");
    }

    proptest! {
        #[test]
        fn numbers_stay_in_order(mut samples in prop::collection::vec(0.0..1e12_f64, 1..200)) {
            samples.sort_by(f64::total_cmp);
            let summary = summarise_samples(&samples).unwrap();
            prop_assert!(summary.min <= summary.median && summary.median <= summary.max);
            prop_assert!(summary.median <= summary.p95 && summary.p95 <= summary.max);
            prop_assert!(summary.min <= summary.mean * (1.0 + 1e-12) && summary.mean <= summary.max * (1.0 + 1e-12));
            if let Some((low, high)) = summary.median_interval {
                prop_assert!(low <= summary.median && summary.median <= high);
                let (wider_low, wider_high) = median_interval(&samples, 0.99).unwrap_or((summary.min, summary.max));
                prop_assert!(wider_low <= low && high <= wider_high);
            }
        }
    }
}
