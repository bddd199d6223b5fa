//! How unlike a question is to what was learned, and how much wider its interval must be for it.
//!
//! Shapes drawn aside at random lie among those that were learned, so they say how far off answers are there and nothing
//! about anywhere else: networks ask for sizes that are all multiples of 64, or for one row, which drawing hardly ever
//! meets. So whole regions are held out, too: the largest tenth of each size and the roundest numbers, then the smallest
//! tenth. What lies there is further from what is left than drawn shapes are from each other; by how much answers are
//! further off for it says how intervals widen with that distance.

use super::spread::COVERAGE;
use crate::features::FEATURES;
use crate::samples::Samples;
use crate::statistics::quantile;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The features that place a question: how large it is, and how round its numbers are.
const COORDINATES: &[&str] =
    &["batch", "rows", "columns", "depth", "taps", "rows_alignment", "columns_alignment", "depth_alignment"];
/// Learned shapes that are kept to measure distances to.
const MOST_POINTS: usize = 512;
/// Shapes of an operator below which there are no regions worth the name.
const FEWEST_SHAPES: usize = 40;
/// The neighbours whose mean distance counts.
const NEIGHBOURS: usize = 5;
/// The share of shapes that each region holds.
const REGION: f64 = 0.1;
/// The distances that are told apart, as multiples of the usual one beyond it, and the rows that each must have.
const STEPS: [f64; 5] = [0.25, 0.5, 1.0, 2.0, 4.0];
const FEWEST_ROWS: usize = 40;

/// What was learned of an operator, as places, and how intervals widen away from them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unlike {
    /// Indices of the features that differ among what was learned.
    columns: Vec<usize>,
    /// What each is divided by.
    scales: Vec<f32>,
    /// Learned shapes, scaled.
    points: Vec<Vec<f32>>,
    /// The distance that nine tenths of other learned shapes have at most.
    usual: f64,
    /// How many times as wide intervals are at so many usual distances beyond the first, ascending; by the regions held out.
    widths: Vec<(f64, f64)>,
}

/// Which end of each coordinate is held out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Large,
    Small,
}

impl Unlike {
    /// The places of some samples of one operator; nothing where their shapes are few.
    pub(super) fn learn(samples: &Samples, rows: &[usize]) -> Option<Unlike> {
        let shapes: BTreeMap<u64, usize> = rows.iter().map(|row| (samples.rows[*row].shape, *row)).collect();
        if shapes.len() < FEWEST_SHAPES {
            return None;
        }
        // Shapes are hashes, so their order is that of a draw: half of them are points, the others try the distance.
        let shapes: Vec<usize> = shapes.into_values().collect();
        let (points, probes) = shapes.split_at(shapes.len() / 2);
        let row = |row: &usize| samples.features.row(*row);
        let mut unlike = Unlike::default();
        for column in coordinates() {
            let values: Vec<f64> = shapes.iter().map(|place| f64::from(row(place)[column])).collect();
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len() as f64;
            if variance.is_finite() && variance > 1e-9 {
                unlike.columns.push(column);
                unlike.scales.push(variance.sqrt() as f32);
            }
        }
        unlike.points = points.iter().take(MOST_POINTS).map(|place| unlike.place(row(place))).collect();
        let mut distances: Vec<f64> =
            probes.iter().take(MOST_POINTS).map(|place| unlike.distance(row(place))).collect();
        unlike.usual = quantile(&mut distances, COVERAGE);
        (unlike.usual > 0.0).then_some(unlike)
    }

    /// How many times as wide as usual the interval of a question is.
    pub fn factor(&self, row: &[f32]) -> f64 {
        let beyond = self.beyond(row);
        let (mut from, mut width) = (0.0, 1.0);
        for (to, wider) in &self.widths {
            if beyond < *to {
                return width + (wider - width) * (beyond - from) / (to - from);
            }
            (from, width) = (*to, *wider);
        }
        // Where no region was as far, errors grow on, ever more slowly.
        if from > 0.0 { 1.0 + (width - 1.0) * (beyond / from).sqrt() } else { 1.0 }
    }

    /// Usual distances beyond the first.
    fn beyond(&self, row: &[f32]) -> f64 {
        (self.distance(row) / self.usual - 1.0).max(0.0)
    }

    fn place(&self, row: &[f32]) -> Vec<f32> {
        self.columns.iter().zip(&self.scales).map(|(column, scale)| row[*column] / scale).collect()
    }

    /// The mean distance to the nearest points.
    fn distance(&self, row: &[f32]) -> f64 {
        let place = self.place(row);
        let mut nearest = [f32::INFINITY; NEIGHBOURS];
        for point in &self.points {
            let square: f32 = point.iter().zip(&place).map(|(one, two)| (one - two) * (one - two)).sum();
            let at = nearest.partition_point(|known| *known <= square);
            if at < NEIGHBOURS {
                nearest[at..].rotate_right(1);
                nearest[at] = square;
            }
        }
        let found = nearest.iter().filter(|square| square.is_finite());
        found.clone().map(|square| f64::from(*square).sqrt()).sum::<f64>() / found.count().max(1) as f64
    }

    /// Whether its parts fit together and rows of so many features.
    pub fn is_sound(&self, width: usize) -> bool {
        let count = self.columns.len();
        self.scales.len() == count
            && self.columns.iter().all(|column| *column < width)
            && self.scales.iter().all(|scale| scale.is_finite() && *scale > 0.0)
            && self.points.iter().all(|point| point.len() == count && point.iter().all(|value| value.is_finite()))
            && self.usual.is_finite()
            && self.usual > 0.0
            && self
                .widths
                .iter()
                .all(|(beyond, width)| beyond.is_finite() && *beyond > 0.0 && (1.0..1e6).contains(width))
            && self.widths.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1)
    }

    /// How far beyond the usual distance a row of a region held out is.
    pub(super) fn seen(&self, row: &[f32], off: f64) -> Seen {
        Seen { beyond: self.beyond(row), off }
    }

    /// Finds how wide intervals must be to hold what they should at every distance that some rows had.
    pub(super) fn widen(&mut self, seen: &[Seen]) {
        self.widths.clear();
        for (place, from) in STEPS.iter().enumerate() {
            let to = STEPS.get(place + 1).copied().unwrap_or(f64::INFINITY);
            let (beyond, mut off): (Vec<f64>, Vec<f64>) =
                seen.iter().filter(|one| (*from..to).contains(&one.beyond)).map(|one| (one.beyond, one.off)).unzip();
            if off.len() >= FEWEST_ROWS {
                let mean = beyond.iter().sum::<f64>() / beyond.len() as f64;
                let before = self.widths.last().map_or(1.0, |(_, width)| *width);
                self.widths.push((mean, quantile(&mut off, COVERAGE).max(before)));
            }
        }
    }
}

/// A row of a region held out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// Usual distances beyond the first.
    beyond: f64,
    /// How many half-widths its answer was off by.
    off: f64,
}

/// Some rows of one operator as those to learn from and those in any region at one end of a coordinate.
pub(super) fn without_ends(samples: &Samples, rows: &[usize], end: End) -> (Vec<usize>, Vec<usize>) {
    let mut held: BTreeSet<usize> = BTreeSet::new();
    for column in coordinates() {
        let value = |row: &usize| f64::from(samples.features.row(*row)[column]);
        let mut values: Vec<f64> = rows.iter().map(value).collect();
        match end {
            End::Large => {
                let limit = quantile(&mut values, 1.0 - REGION);
                held.extend(rows.iter().filter(|row| value(row) > limit));
            }
            End::Small => {
                let limit = quantile(&mut values, REGION);
                held.extend(rows.iter().filter(|row| value(row) < limit));
            }
        }
    }
    rows.iter().partition(|row| !held.contains(row))
}

/// The columns of the coordinates.
pub(crate) fn coordinates() -> impl Iterator<Item = usize> {
    (0..FEATURES.len()).filter(|column| COORDINATES.contains(&FEATURES[*column].name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line() -> Unlike {
        let points = (0..40).map(|place| vec![place as f32 / 4.0]).collect();
        Unlike { columns: vec![0], scales: vec![1.0], points, usual: 0.5, widths: vec![(1.0, 2.0), (4.0, 3.0)] }
    }

    #[test]
    fn intervals_grow_with_the_distance_and_not_before() {
        let unlike = line();
        assert!(unlike.factor(&[5.0]) == 1.0 && unlike.is_sound(1) && !unlike.is_sound(0));
        let factors: Vec<f64> = [9.0, 10.0, 10.5, 11.0, 12.0, 20.0, 40.0].map(|place| unlike.factor(&[place])).to_vec();
        assert!(factors.windows(2).all(|pair| pair[0] <= pair[1]), "{factors:?}");
        // 30.75 from the nearest five is 60.5 usual distances beyond the first: 1 + (3 - 1) √(60.5 / 4).
        assert!((factors[6] - 8.778).abs() < 0.001, "{factors:?}");
        assert_eq!(Unlike { widths: Vec::new(), ..unlike }.factor(&[40.0]), 1.0);
    }

    #[test]
    fn widths_hold_what_they_should_at_every_distance() {
        let mut unlike = line();
        let rows: Vec<[f32; 1]> = (0..400).map(|place| [9.0 + place as f32 / 100.0]).collect();
        // Off by one half-width and two more for each usual distance; then by nothing that distance explains.
        let off: Vec<f64> = rows.iter().map(|row| 1.0 + 2.0 * unlike.beyond(row)).collect();
        let seen: Vec<Seen> = rows.iter().zip(&off).map(|(row, off)| unlike.seen(row, *off)).collect();
        unlike.widen(&seen);
        let inside = rows.iter().zip(&off).filter(|(row, off)| **off <= unlike.factor(*row)).count();
        assert!(unlike.is_sound(1) && inside >= 360, "{inside} {:?}", unlike.widths);
        let flat: Vec<Seen> = rows.iter().map(|row| unlike.seen(row, 0.7)).collect();
        unlike.widen(&flat);
        assert_eq!(unlike.factor(&[40.0]), 1.0);
    }
}
