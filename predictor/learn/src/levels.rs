//! Widths of intervals at several levels of coverage, relative to the 90 % interval.

use super::COVERAGE;
use samples::statistics::quantile;
use serde::{Deserialize, Serialize};

pub const LEVELS: [u8; 4] = [50, 80, 90, 95];
/// Minimum number of scores; with fewer, errors are assumed to be normally distributed.
const FEWEST: usize = 30;

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LevelRatios {
    pub at_50: f64,
    pub at_80: f64,
    pub at_95: f64,
}

const NORMAL: LevelRatios = LevelRatios { at_50: 0.41, at_80: 0.779, at_95: 1.192 };

impl LevelRatios {
    pub(super) fn fit_ratios(scores: &[f64], half_width: f64) -> LevelRatios {
        if scores.len() < FEWEST || half_width <= 0.0 {
            return NORMAL;
        }
        let mut scores = scores.to_vec();
        let correction = (scores.len() + 1) as f64 / scores.len() as f64;
        let mut ratio = |coverage: f64| quantile(&mut scores, (coverage * correction).min(1.0)) / half_width;
        LevelRatios { at_50: ratio(0.5).min(1.0), at_80: ratio(0.8).min(1.0), at_95: ratio(0.95).max(1.0) }
    }

    /// Returns the relative half-width at a level; None for levels that are not in [`LEVELS`].
    pub fn ratio_at(&self, level: u8) -> Option<f64> {
        match level {
            50 => Some(self.at_50),
            80 => Some(self.at_80),
            95 => Some(self.at_95),
            level if f64::from(level) == 100.0 * COVERAGE => Some(1.0),
            _ => None,
        }
    }

    pub fn is_sound(&self) -> bool {
        let ratios = [0.0, self.at_50, self.at_80, 1.0, self.at_95];
        ratios.iter().all(|ratio| ratio.is_finite()) && ratios.windows(2).all(|pair| pair[0] <= pair[1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_those_of_the_scores_and_normal_for_few() {
        let scores: Vec<f64> = (1..=1000).map(|place| f64::from(place) / 1000.0).collect();
        let ratios = LevelRatios::fit_ratios(&scores, 0.9);
        assert!((ratios.at_50 - 0.5 / 0.9).abs() < 0.01 && (ratios.at_95 - 0.95 / 0.9).abs() < 0.01, "{ratios:?}");
        assert_eq!((ratios.ratio_at(90), ratios.ratio_at(99)), (Some(1.0), None));
        assert_eq!(LevelRatios::fit_ratios(&scores[..5], 0.9), NORMAL);
        assert!(LEVELS.iter().all(|level| ratios.ratio_at(*level).is_some()) && ratios.is_sound() && NORMAL.is_sound());
        assert!(!LevelRatios { at_50: 2.0, ..NORMAL }.is_sound());
    }
}
