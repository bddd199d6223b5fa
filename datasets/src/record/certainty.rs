//! How well the median of a row is known.

use super::table::Record;

/// A median whose interval over visits reaches farther than this share of it is uncertain.
pub const KNOWN_WELL: f64 = 0.1;

/// How far a median without an interval may be off, for who has to compare it with others.
pub const DOUBTED: f64 = 0.25;

impl Record {
    /// Half of the interval over visits as a share of the median; nothing where no scatter between visits is known, which is not
    /// zero.
    pub fn uncertainty(&self) -> Option<f64> {
        self.over_visits()?.uncertainty()
    }

    /// Half of the interval within the row's own visit, as a share of the median; it says nothing of other visits.
    pub fn uncertainty_within_visit(&self) -> Option<f64> {
        let (half_width, median) = (self.median_interval_ns?, self.median_ns?);
        (median > 0.0).then(|| half_width / median)
    }

    /// The upper end of what is known of the median over visits; nothing where there is no median. A median without an interval
    /// may be anything, so it counts as known to [`DOUBTED`].
    pub fn upper_end_ns(&self) -> Option<f64> {
        let known = self.over_visits()?;
        Some(known.interval_ns.map_or(self.median_ns? * (1.0 + DOUBTED), |(_, high)| high))
    }

    /// Whether there is a median and it is known to [`KNOWN_WELL`]. One without an interval is not.
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
