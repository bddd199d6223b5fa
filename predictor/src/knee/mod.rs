//! The knee of a curve of times over thread counts or knob values: its fastest value, the smallest value
//! within 5 % of the fastest time, its last minimum, and for threads its scaling law.
//!
//! `find` predicts the curve of an operator, `law` fits a scaling law to it, and `update` conditions it on
//! measurements. `scaling` needs no predictor: its prior consists of the curves of other machines, which `table` reads.

mod find;
mod law;
mod scaling;
mod table;
mod update;

pub use find::{KneeOptions, Probing, find_knee};
pub use law::{Break, Law, fit_with_breaks};
pub(crate) use law::{fit_law, log_shape};
pub use scaling::{ScalingPosterior, ScalingPrior};
pub use table::{Contradiction, TableKnee, find_table_knee};
pub use update::{Posterior, Probe};

use samples::statistics::kendall;
use serde::Serialize;

/// Factor on the fastest time up to which a time is treated as equally fast.
const NEAR: f64 = 1.05;
/// Ratio of the times of both neighbours to that of the fastest value from which it is isolated.
const DEEP: f64 = 1.25;
/// Half-width of a 90 % interval, in standard deviations.
const HALF_WIDTH_OF_90: f64 = 1.645;
/// Number of points of a local correlation.
const WINDOW: usize = 5;
/// Smallest absolute local correlation that counts as rising or falling.
const CLEAR: f64 = 0.3;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Thread count or knob value of the point.
    pub at: f64,
    pub time_ns: f64,
    /// Lower end of the 90 % interval of the time, in nanoseconds.
    pub low_ns: f64,
    pub high_ns: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Knee {
    /// Variable of the curve: `threads` or the name of a knob.
    pub over: String,
    /// Values of the other settings, such as `threads = 2`; empty for curves of tables.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fixed: Vec<String>,
    pub fastest: f64,
    pub knee: f64,
    /// Whether the fastest value of a knob is a dip of one point whose interval overlaps those of all other values.
    pub is_isolated: bool,
    /// Value after which the times no longer decrease; None if they decrease up to the last value.
    pub turns_at: Option<f64>,
    /// Values at which the local correlation of the times changes from falling to rising.
    pub flips_at: Vec<f64>,
    /// Scaling law; None for knobs, and for fewer than three points.
    pub law: Option<Law>,
    pub probes: Vec<Probe>,
    pub curve: Vec<Point>,
    /// Values outside of the training range. Neither the knee nor the law depends on them, if two others are left.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unseen: Vec<f64>,
}

impl Point {
    /// Returns whether the 90 % interval is known.
    pub fn has_interval(&self) -> bool {
        self.low_ns.is_finite() && self.high_ns.is_finite()
    }
}

impl Knee {
    /// Finds the knee of a curve of which some values are outside of the training range; None for fewer than two points.
    pub fn of_extrapolated(over: &str, curve: Vec<Point>, unseen: Vec<f64>) -> Option<Knee> {
        let considered: Vec<Point> = considered_points(&curve, &unseen).cloned().collect();
        let mut found = knee_of_curve(over, considered.clone())?;
        if let Some(law) = &mut found.law {
            let mut known = considered.iter().zip(std::mem::take(&mut law.times_ns)).peekable();
            let time_at =
                |point: &Point| known.next_if(|(other, _)| other.at == point.at).map_or(f64::NAN, |(_, time)| time);
            law.times_ns = curve.iter().map(time_at).collect();
        }
        Some(Knee { curve, unseen, ..found })
    }

    /// Returns the points on which the knee depends.
    pub fn considered_points(&self) -> impl Iterator<Item = &Point> {
        considered_points(&self.curve, &self.unseen)
    }

    /// Returns whether the times decrease up to the last considered value, which is the fastest.
    pub fn falls_to_the_end(&self) -> bool {
        self.turns_at.is_none() && self.considered_points().last().is_some_and(|last| last.at == self.knee)
    }

    /// Returns the ratio of the smallest time at the values next to the knee to the time at the knee.
    pub fn ratio_to_neighbours(&self) -> Option<f64> {
        let points: Vec<&Point> = self.considered_points().collect();
        let place = points.iter().position(|point| point.at == self.knee)?;
        let before = place.checked_sub(1).and_then(|place| points.get(place));
        let neighbours = before.into_iter().chain(points.get(place + 1)).map(|point| point.time_ns);
        neighbours.min_by(f64::total_cmp).map(|time_ns| time_ns / points[place].time_ns)
    }

    /// Returns how many other values have intervals that overlap the interval of the knee; None if it has no interval.
    pub fn count_overlaps(&self) -> Option<usize> {
        let own = self.curve.iter().find(|point| point.at == self.knee).filter(|own| own.has_interval())?;
        let others = self.considered_points().filter(|point| point.at != own.at && point.has_interval());
        let overlaps = |point: &&Point| point.low_ns <= own.high_ns && own.low_ns <= point.high_ns;
        Some(others.filter(overlaps).count())
    }

    fn is_dip(&self) -> bool {
        let is_deep = self.ratio_to_neighbours().is_some_and(|ratio| ratio >= DEEP);
        let is_fastest = self.over != "threads" && self.knee == self.fastest;
        is_fastest && is_deep && self.overlaps_all()
    }

    /// Returns whether the interval of the knee, or of the fastest value, overlaps those of all other values.
    pub fn overlaps_all(&self) -> bool {
        self.count_overlaps() == Some(self.considered_points().count() - 1)
    }
}

/// Returns the points inside of the training range, or all if they are fewer than two.
fn considered_points<'a>(curve: &'a [Point], unseen: &'a [f64]) -> impl Iterator<Item = &'a Point> {
    let is_seen = |point: &Point| !unseen.contains(&point.at);
    let takes_all = curve.iter().filter(|point| is_seen(point)).count() < 2;
    curve.iter().filter(move |point| takes_all || is_seen(point))
}

/// Finds the knee of a curve that is sorted by value; None for fewer than two points.
pub fn knee_of_curve(over: &str, curve: Vec<Point>) -> Option<Knee> {
    let fastest = curve.iter().min_by(|one, two| one.time_ns.total_cmp(&two.time_ns))?.clone();
    let knee = curve.iter().find(|point| point.time_ns <= NEAR * fastest.time_ns)?.at;
    if curve.len() < 2 {
        return None;
    }
    let last_fall = curve.windows(2).rposition(|pair| pair[1].time_ns < pair[0].time_ns);
    let turn = last_fall.map_or(0, |place| place + 1);
    let found = Knee {
        over: over.to_owned(),
        fixed: Vec::new(),
        fastest: fastest.at,
        knee,
        is_isolated: false,
        turns_at: (turn + 1 < curve.len()).then(|| curve[turn].at),
        flips_at: find_flips(&curve),
        law: (over == "threads" && curve.len() >= 3).then(|| fit_with_breaks(&curve)),
        probes: Vec::new(),
        curve,
        unseen: Vec::new(),
    };
    Some(Knee { is_isolated: found.is_dip(), ..found })
}

fn find_flips(curve: &[Point]) -> Vec<f64> {
    let mut found = Vec::new();
    let mut falls = false;
    for window in curve.windows(WINDOW.min(curve.len())) {
        let (at, times): (Vec<f64>, Vec<f64>) = window.iter().map(|point| (point.at, point.time_ns)).unzip();
        let direction = kendall(&at, &times);
        if direction > CLEAR && falls {
            // The minimum is the lowest point that both windows contain.
            let lowest = window.iter().min_by(|one, two| one.time_ns.total_cmp(&two.time_ns));
            found.extend(lowest.map(|point| point.at));
        }
        if direction.abs() > CLEAR {
            falls = direction < 0.0;
        }
    }
    found
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn curve(times: &[f64]) -> Vec<Point> {
        let point = |(place, time): (usize, &f64)| Point {
            at: place as f64 + 1.0,
            time_ns: *time,
            low_ns: *time / 1.2,
            high_ns: *time * 1.2,
        };
        times.iter().enumerate().map(point).collect()
    }

    #[test]
    fn a_curve_that_only_falls_does_not_turn() {
        let knee = knee_of_curve("threads", curve(&[8.0, 4.0, 2.7, 2.0])).expect("a curve");
        assert_eq!((knee.fastest, knee.knee, knee.turns_at), (4.0, 4.0, None));
        assert!(knee.flips_at.is_empty());
    }

    #[test]
    fn values_outside_of_the_training_range_do_not_count() {
        let times = [9.0, 8.0, 4.2, 3.0, 2.5, 2.5];
        let inner = knee_of_curve("threads", curve(&times)[1..5].to_vec()).expect("a curve");
        let knee = Knee::of_extrapolated("threads", curve(&times), vec![1.0, 6.0]).expect("a curve");
        assert_eq!((knee.knee, knee.turns_at, knee.falls_to_the_end()), (inner.knee, inner.turns_at, true));
        let (law, inner) = (knee.law.expect("a law"), inner.law.expect("a law"));
        assert_eq!(law.times_ns[1..5], inner.times_ns);
        assert!(law.times_ns.len() == 6 && law.times_ns[0].is_nan() && law.times_ns[5].is_nan(), "{law:?}");
        // With one value left, all count.
        let knee = Knee::of_extrapolated("threads", curve(&times), vec![1.0, 3.0, 4.0, 5.0, 6.0]).expect("a curve");
        assert_eq!((knee.knee, knee.turns_at), (5.0, Some(5.0)));
    }

    #[test]
    fn every_turn_is_found_and_the_last_for_good() {
        let times = [9.0, 7.0, 5.0, 4.0, 4.5, 5.0, 6.0, 5.0, 4.0, 3.0, 2.0, 2.05, 2.5, 3.0, 4.0];
        let knee = knee_of_curve("threads", curve(&times)).expect("a curve");
        assert_eq!((knee.fastest, knee.knee, knee.turns_at), (11.0, 11.0, Some(11.0)));
        assert_eq!(knee.flips_at, [4.0, 11.0], "the local correlation sees the first valley, too");
    }
}
