//! Ratios of two series of times, taken within rounds that time one after the other, so that a disturbance of some
//! seconds affects both. The median is reported with its distribution-free confidence interval.

use crate::statistics::{CONFIDENCE, median_interval, median_of_sorted};
use serde::{Deserialize, Serialize};

/// Default number of rounds: enough for a confidence interval despite occasional disturbances.
pub const ROUNDS: u32 = 15;

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    pub median: f64,
    /// 95 % confidence interval of the median; `None` for too few rounds.
    pub interval: Option<(f64, f64)>,
}

/// Returns the ratio of two series, paired round by round; None without common rounds.
pub fn paired_ratio(times_ns: &[f64], others_ns: &[f64]) -> Option<Ratio> {
    let mut ratios: Vec<f64> = times_ns.iter().zip(others_ns).map(|(time, other)| time / other).collect();
    ratios.sort_by(f64::total_cmp);
    let median = if ratios.is_empty() { return None } else { median_of_sorted(&ratios) };
    Some(Ratio { median, interval: median_interval(&ratios, CONFIDENCE) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_disturbs_both_of_a_round_changes_no_ratio() {
        let others = [10.0, 30.0, 10.0, 11.0, 90.0, 10.0, 20.0];
        let times: Vec<f64> = others.iter().map(|other| other * 0.5).collect();
        assert_eq!(paired_ratio(&times, &others), Some(Ratio { median: 0.5, interval: Some((0.5, 0.5)) }));
    }

    #[test]
    fn few_rounds_have_no_interval() {
        assert_eq!(paired_ratio(&[], &[]), None);
        assert_eq!(paired_ratio(&[3.0], &[2.0]), Some(Ratio { median: 1.5, interval: None }));
        assert_eq!(paired_ratio(&[1.0; 5], &[1.0; 5]), Some(Ratio { median: 1.0, interval: None }));
        let six = paired_ratio(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &[1.0; 6]);
        assert_eq!(six, Some(Ratio { median: 3.5, interval: Some((1.0, 6.0)) }));
    }
}
