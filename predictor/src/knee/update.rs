//! Updates a predicted curve with a few measurements.
//!
//! The prior is Gaussian in the logarithms of the times: most of a prediction's error is common to all thread counts of
//! an operator, and the remainder is correlated over about one doubling.

use super::{HALF_WIDTH_OF_90, Point};
use datasets::DOUBTED;
use samples::statistics::NORMAL_95;
use serde::Serialize;

/// Share of the prior variance that is common to all points.
const SHARED_VARIANCE: f64 = 0.7;
/// Correlation length of the remaining variance, in doublings.
const LENGTH_SCALE: f64 = 1.0;
/// Standard deviation of the log time that is assumed for predictions without intervals.
const PRIOR_SPREAD: f64 = 0.3;
/// Minimum standard deviation of the log time between runs of the same program.
pub(super) const NOISE: f64 = 0.01;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Probe {
    pub at: f64,
    pub predicted_ns: f64,
    pub measured_ns: f64,
    pub cv: Option<f64>,
    /// Half-width of the 95 % confidence interval of the median, divided by the median, if known.
    pub uncertainty: Option<f64>,
}

impl Probe {
    /// Returns the relative standard deviation of the time: from the interval of the median, else `cv`, else
    /// [`DOUBTED`]. The interval comes first, because disturbed runs increase the `cv` but hardly move the median.
    pub fn known_to(&self) -> f64 {
        let of_interval = self.uncertainty.map(|half| half / NORMAL_95);
        of_interval.or(self.cv).unwrap_or(DOUBTED / NORMAL_95)
    }
}

#[derive(Clone, Debug)]
pub struct Posterior {
    at: Vec<f64>,
    logs: Vec<f64>,
    covariance: Vec<Vec<f64>>,
    probed: Vec<usize>,
}

impl Posterior {
    pub fn from_curve(curve: &[Point]) -> Posterior {
        let spread = |point: &Point| {
            let half = (point.high_ns / point.time_ns).ln();
            if half.is_finite() && half > 0.0 { half / HALF_WIDTH_OF_90 } else { PRIOR_SPREAD }
        };
        let spreads: Vec<f64> = curve.iter().map(spread).collect();
        let correlation = |one: f64, two: f64| {
            let doublings = (one / two).log2() / LENGTH_SCALE;
            SHARED_VARIANCE + (1.0 - SHARED_VARIANCE) * (-doublings * doublings / 2.0).exp()
        };
        let row = |one: usize| {
            let covariance = |two: usize| spreads[one] * spreads[two] * correlation(curve[one].at, curve[two].at);
            (0..curve.len()).map(covariance).collect()
        };
        Posterior {
            at: curve.iter().map(|point| point.at).collect(),
            logs: curve.iter().map(|point| point.time_ns.ln()).collect(),
            covariance: (0..curve.len()).map(row).collect(),
            probed: Vec::new(),
        }
    }

    /// Returns the next point to measure: the lowest expected time, then the most uncertain point that may be as fast.
    pub fn next_probe(&self) -> Option<f64> {
        let lowest = (0..self.at.len()).min_by(|one, two| self.logs[*one].total_cmp(&self.logs[*two]))?;
        if self.probed.is_empty() {
            return Some(self.at[lowest]);
        }
        let spread = |place: usize| self.covariance[place][place].max(0.0).sqrt();
        let could_be_low = |place: &usize| {
            let low = self.logs[*place] - HALF_WIDTH_OF_90 * spread(*place);
            !self.probed.contains(place) && low <= self.logs[lowest] + super::NEAR.ln()
        };
        let candidates = (0..self.at.len()).filter(could_be_low);
        candidates.max_by(|one, two| spread(*one).total_cmp(&spread(*two))).map(|place| self.at[place])
    }

    /// Conditions on a measurement whose relative standard deviation is `share`.
    pub fn condition_on(&mut self, at: f64, time_ns: f64, share: f64) {
        let Some(place) = self.at.iter().position(|known| *known == at) else { return };
        let noise = share * share + NOISE * NOISE;
        let column: Vec<f64> = self.covariance.iter().map(|row| row[place]).collect();
        let whole = column[place] + noise;
        let innovation = time_ns.ln() - self.logs[place];
        for (one, covariance) in column.iter().enumerate() {
            self.logs[one] += covariance / whole * innovation;
            for (two, other) in column.iter().enumerate() {
                self.covariance[one][two] -= covariance * other / whole;
            }
        }
        self.probed.push(place);
    }

    pub fn mean_curve(&self) -> Vec<Point> {
        let point = |(place, at): (usize, &f64)| {
            let time_ns = self.logs[place].exp();
            let wide = (HALF_WIDTH_OF_90 * (self.covariance[place][place].max(0.0) + NOISE * NOISE).sqrt()).exp();
            Point { at: *at, time_ns, low_ns: time_ns / wide, high_ns: time_ns * wide }
        };
        self.at.iter().enumerate().map(point).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::curve;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn three_measurements_find_a_lowest_point_that_was_predicted_elsewhere() {
        // Predicted to fall to the end; in truth it turns behind four threads.
        let predicted = curve(&[80.0, 42.0, 29.0, 23.0, 20.0, 18.0, 17.0, 16.5]);
        let truth = [80.0, 41.0, 28.0, 22.0, 24.0, 26.0, 28.0, 30.0];
        let mut posterior = Posterior::from_curve(&predicted);
        let mut asked = Vec::new();
        for _ in 0..3 {
            let at = posterior.next_probe().expect("something to learn");
            posterior.condition_on(at, truth[at as usize - 1], 0.0);
            asked.push(at);
        }
        assert_eq!(asked[0], 8.0, "the lowest first");
        let updated = posterior.mean_curve();
        let lowest = updated.iter().min_by(|one, two| one.time_ns.total_cmp(&two.time_ns)).expect("points").at;
        assert!(truth[lowest as usize - 1] <= 1.2 * 22.0, "{asked:?} {updated:?}");
    }

    #[test]
    fn a_single_run_is_not_known_exactly() {
        let probe = Probe { at: 1.0, predicted_ns: 1.0, measured_ns: 1.0, cv: None, uncertainty: None };
        let known = Probe { uncertainty: Some(0.01), ..probe.clone() };
        assert!(probe.known_to() > 5.0 * known.known_to(), "{} {}", probe.known_to(), known.known_to());
    }

    proptest! {
        #[test]
        fn measurements_are_believed_and_only_narrow(
            times in prop::collection::vec(1.0f64..1e6, 2..20),
            probes in prop::collection::vec((any::<prop::sample::Index>(), 1.0f64..1e6), 1..4),
        ) {
            let before = curve(&times);
            let mut posterior = Posterior::from_curve(&before);
            for (index, time) in probes {
                let place = index.index(times.len());
                posterior.condition_on(before[place].at, time, 0.0);
            }
            for (old, new) in before.iter().zip(posterior.mean_curve()) {
                prop_assert!(new.time_ns.is_finite() && new.low_ns <= new.time_ns && new.time_ns <= new.high_ns);
                // The rest is what repeats of one program differ by.
                prop_assert!(new.high_ns / new.time_ns <= old.high_ns / old.time_ns * 1.02, "{old:?} {new:?}");
            }
        }
    }
}
