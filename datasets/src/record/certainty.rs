//! How well the median of a row is known.

use super::table::Record;

/// A median whose interval reaches farther than this share of it to either side is uncertain.
pub const KNOWN_WELL: f64 = 0.02;

/// How far a median without an interval may be off, for who has to compare it with others.
pub const DOUBTED: f64 = 0.1;

impl Record {
    /// Half of the median's interval, as a share of the median; nothing where there were too few samples for an interval,
    /// which is not zero.
    pub fn uncertainty(&self) -> Option<f64> {
        let (half_width, median) = (self.median_interval_ns?, self.median_ns?);
        (median > 0.0).then(|| half_width / median)
    }

    /// The upper end of what is known of the median; nothing where there is no median. A median without an interval may be
    /// anything, so it counts as known to [`DOUBTED`].
    pub fn upper_end_ns(&self) -> Option<f64> {
        Some(self.median_ns? * (1.0 + self.uncertainty().unwrap_or(DOUBTED)))
    }

    /// Whether there is a median and it is known to [`KNOWN_WELL`]. One without an interval is not.
    pub fn is_known_well(&self) -> bool {
        self.uncertainty().is_some_and(|uncertainty| uncertainty <= KNOWN_WELL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_not_zero() {
        let of = |median_ns, median_interval_ns| {
            let record = Record { median_ns, median_interval_ns, ..Record::default() };
            (record.uncertainty(), record.is_known_well())
        };
        assert_eq!(of(Some(100.0), Some(1.0)), (Some(0.01), true));
        assert_eq!(of(Some(100.0), Some(0.0)), (Some(0.0), true), "a coarse clock");
        assert_eq!(of(Some(100.0), Some(3.0)), (Some(0.03), false));
        assert_eq!(of(Some(100.0), None), (None, false));
        assert_eq!(of(Some(0.0), Some(0.0)), (None, false), "a share of nothing");
        assert_eq!(of(None, Some(1.0)), (None, false));
    }
}
