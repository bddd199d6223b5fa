//! The precision of a row's median.

use super::table::Record;

/// Relative half-width of the confidence interval over processes (visits) up to which a median counts as well known.
pub const KNOWN_WELL: f64 = 0.1;

/// Relative error that is assumed for a median without a confidence interval.
pub const DOUBTED: f64 = 0.25;

impl Record {
    /// Returns the relative half-width of the interval over processes (visits). None means unknown scatter, not zero.
    pub fn uncertainty(&self) -> Option<f64> {
        self.over_visits()?.uncertainty()
    }

    /// Returns the relative half-width within the row's process (visit), without the scatter between processes.
    pub fn uncertainty_within_visit(&self) -> Option<f64> {
        let (half_width, median) = (self.median_interval_ns?, self.median_ns?);
        (median > 0.0).then(|| half_width / median)
    }

    /// Returns the upper end of the interval over processes (visits); without one, [`DOUBTED`] is the relative error.
    pub fn upper_end_ns(&self) -> Option<f64> {
        let known = self.over_visits()?;
        Some(known.interval_ns.map_or(self.median_ns? * (1.0 + DOUBTED), |(_, high)| high))
    }

    /// Returns whether the relative half-width of the median's interval is at most [`KNOWN_WELL`]; false without one.
    pub fn is_known_well(&self) -> bool {
        self.uncertainty().is_some_and(|uncertainty| uncertainty <= KNOWN_WELL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::words::{Covers, Outcome};

    #[test]
    fn what_is_not_known_is_not_zero() {
        let of = |median_ns, median_interval_ns| {
            let record = Record {
                outcome: Outcome::Ok,
                median_ns,
                median_interval_ns,
                interval_covers: Some(Covers::Visits),
                ..Record::default()
            };
            (record.uncertainty(), record.is_known_well())
        };
        assert_eq!(of(Some(100.0), Some(1.0)), (Some(0.01), true));
        assert_eq!(of(Some(100.0), Some(0.0)), (Some(0.0), true), "a coarse clock");
        assert_eq!(of(Some(100.0), Some(30.0)), (Some(0.3), false));
        assert_eq!(of(Some(100.0), None), (None, false));
        assert_eq!(of(Some(0.0), Some(0.0)), (None, false), "a share of nothing");
        assert_eq!(of(None, Some(1.0)), (None, false));
    }
}
