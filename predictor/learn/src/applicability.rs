//! The applicability domain: the distance of a query from the training data, and how much wider its interval must be.
//!
//! Randomly held-out shapes are similar to training shapes, so their errors say nothing about extrapolation. Therefore
//! whole regions are held out, too: the largest tenth of each size and of each alignment together, then the smallest
//! tenths. The errors there, as a function of distance, determine by how much intervals widen.

use super::COVERAGE;
use samples::Samples;
use samples::features::FEATURES;
use samples::statistics::quantile;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

const COORDINATES: &[&str] =
    &["batch", "rows", "columns", "depth", "taps", "rows_alignment", "columns_alignment", "depth_alignment"];
/// Limit on the number of stored points, to which the time of a prediction is proportional.
const MOST_POINTS: usize = 512;
/// Minimum number of shapes for a domain; with fewer, the held-out regions would contain too few shapes.
const FEWEST_SHAPES: usize = 40;
const NEIGHBOURS: usize = 5;
/// Number of points whose distances are computed together, in registers.
const BLOCK: usize = 16;
const REGION: f64 = 0.1;
/// Lower limits of the distance bins, as excess distances; a bin with fewer than `FEWEST_ROWS` rows is skipped.
const STEPS: [f64; 5] = [0.25, 0.5, 1.0, 2.0, 4.0];
const FEWEST_ROWS: usize = 40;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApplicabilityDomain {
    columns: Vec<usize>,
    scales: Vec<f32>,
    points: Points,
    /// 90th percentile of the distance of one half of the training shapes from the other half.
    usual_distance: f64,
    /// Pairs of excess distance and widening factor, both ascending; fitted on held-out regions.
    widths: Vec<(f64, f64)>,
}

/// Points in blocks, so that distances to all points of a block are computed together; a file lists them one by one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Vec<f32>>", into = "Vec<Vec<f32>>")]
struct Points {
    count: usize,
    /// For each block its coordinates, each with the values of all points; absent points are infinitely far.
    blocks: Vec<Vec<[f32; BLOCK]>>,
}

impl TryFrom<Vec<Vec<f32>>> for Points {
    type Error = &'static str;

    fn try_from(points: Vec<Vec<f32>>) -> Result<Points, &'static str> {
        let dimensions = points.first().map_or(0, Vec::len);
        if points.iter().any(|point| point.len() != dimensions) {
            return Err("the points of the applicability domain have different lengths");
        }
        Ok(Points::from_rows(&points))
    }
}

impl From<Points> for Vec<Vec<f32>> {
    fn from(points: Points) -> Vec<Vec<f32>> {
        let point = |place: usize| points.blocks[place / BLOCK].iter().map(|values| values[place % BLOCK]).collect();
        (0..points.count).map(point).collect()
    }
}

impl Points {
    /// Stores points of equal length.
    fn from_rows(points: &[Vec<f32>]) -> Points {
        let dimensions = points.first().map_or(0, Vec::len);
        let block = |points: &[Vec<f32>]| {
            let value =
                |dimension: usize, lane: usize| points.get(lane).map_or(f32::INFINITY, |point| point[dimension]);
            (0..dimensions).map(|dimension| std::array::from_fn(|lane| value(dimension, lane))).collect()
        };
        Points { count: points.len(), blocks: points.chunks(BLOCK).map(block).collect() }
    }

    fn are_sound(&self, dimensions: usize) -> bool {
        let is_sound = |(index, block): (usize, &Vec<[f32; BLOCK]>)| {
            let points = BLOCK.min(self.count - index * BLOCK);
            block.len() == dimensions
                && block.iter().all(|values| values[..points].iter().all(|value| value.is_finite()))
        };
        self.blocks.iter().enumerate().all(is_sound)
    }

    /// Returns the squares of the distances of the nearest points from a place, in ascending order.
    fn nearest_squares(&self, place: &[f32]) -> [f32; NEIGHBOURS] {
        let mut nearest = [f32::INFINITY; NEIGHBOURS];
        for block in &self.blocks {
            let mut squares = [0.0; BLOCK];
            for (values, at) in block.iter().zip(place) {
                squares.iter_mut().zip(values).for_each(|(square, value)| *square += (value - at) * (value - at));
            }
            for square in squares {
                if square < nearest[NEIGHBOURS - 1] {
                    let at = nearest.partition_point(|known| *known <= square);
                    nearest[at..].rotate_right(1);
                    nearest[at] = square;
                }
            }
        }
        nearest
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Large,
    Small,
}

impl ApplicabilityDomain {
    pub(super) fn fit_domain(samples: &Samples, rows: &[usize]) -> Option<ApplicabilityDomain> {
        let shapes: BTreeMap<u64, usize> = rows.iter().map(|row| (samples.rows[*row].shape, *row)).collect();
        if shapes.len() < FEWEST_SHAPES {
            return None;
        }
        // Shapes are hashes, so their order is random: half of them become points, the other half probe the distance.
        let shapes: Vec<usize> = shapes.into_values().collect();
        let row = |row: &usize| samples.features.row(*row);
        let mut domain = ApplicabilityDomain::default();
        for column in coordinate_columns() {
            let values: Vec<f64> = shapes.iter().map(|place| f64::from(row(place)[column])).collect();
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len() as f64;
            if variance.is_finite() && variance > 1e-9 {
                domain.columns.push(column);
                domain.scales.push(variance.sqrt() as f32);
            }
        }
        let standardised: Vec<Vec<f32>> = shapes.iter().map(|place| domain.standardise_row(row(place))).collect();
        let (points, probes) = standardised.split_at(standardised.len() / 2);
        let half = Points::from_rows(&points[..points.len().min(MOST_POINTS)]);
        let probes = probes.iter().take(MOST_POINTS);
        let mut distances: Vec<f64> = probes.map(|probe| mean_distance(&half.nearest_squares(probe))).collect();
        domain.usual_distance = quantile(&mut distances, COVERAGE);
        domain.points = Points::from_rows(&covering_points(standardised, MOST_POINTS));
        (domain.usual_distance > 0.0).then_some(domain)
    }

    pub fn widening_factor(&self, row: &[f32]) -> f64 {
        let beyond = self.excess_distance(row);
        let (mut from, mut width) = (0.0, 1.0);
        for (to, wider) in &self.widths {
            if beyond < *to {
                return width + (wider - width) * (beyond - from) / (to - from);
            }
            (from, width) = (*to, *wider);
        }
        // Beyond the farthest held-out region, errors are extrapolated with the square root of the distance.
        if from > 0.0 { 1.0 + (width - 1.0) * (beyond / from).sqrt() } else { 1.0 }
    }

    /// Returns the distance beyond `usual_distance`, in multiples of it; 0 for a training shape, even an isolated one.
    fn excess_distance(&self, row: &[f32]) -> f64 {
        let nearest = self.points.nearest_squares(&self.standardise_row(row));
        match nearest[0] == 0.0 {
            true => 0.0,
            false => (mean_distance(&nearest) / self.usual_distance - 1.0).max(0.0),
        }
    }

    fn standardise_row(&self, row: &[f32]) -> Vec<f32> {
        self.columns.iter().zip(&self.scales).map(|(column, scale)| row[*column] / scale).collect()
    }

    /// Checks the contents of a file: indices below `width`, the number of features, and valid numbers.
    pub fn is_sound(&self, width: usize) -> bool {
        let count = self.columns.len();
        self.scales.len() == count
            && self.columns.iter().all(|column| *column < width)
            && self.scales.iter().all(|scale| scale.is_finite() && *scale > 0.0)
            && self.points.are_sound(count)
            && self.usual_distance.is_finite()
            && self.usual_distance > 0.0
            && self
                .widths
                .iter()
                .all(|(beyond, width)| beyond.is_finite() && *beyond > 0.0 && (1.0..1e6).contains(width))
            && self.widths.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1)
    }

    pub(super) fn held_out_error(&self, row: &[f32], off: f64) -> HeldOutError {
        HeldOutError { excess_distance: self.excess_distance(row), half_widths: off }
    }

    pub(super) fn fit_widening(&mut self, errors: &[HeldOutError]) {
        self.widths.clear();
        for (place, from) in STEPS.iter().enumerate() {
            let to = STEPS.get(place + 1).copied().unwrap_or(f64::INFINITY);
            let (beyond, mut off): (Vec<f64>, Vec<f64>) = errors
                .iter()
                .filter(|one| (*from..to).contains(&one.excess_distance))
                .map(|one| (one.excess_distance, one.half_widths))
                .unzip();
            if off.len() >= FEWEST_ROWS {
                let mean = beyond.iter().sum::<f64>() / beyond.len() as f64;
                let before = self.widths.last().map_or(1.0, |(_, width)| *width);
                self.widths.push((mean, quantile(&mut off, COVERAGE).max(before)));
            }
        }
    }
}

/// Returns at most `count` of the points, each the farthest from those before, so that isolated ones are among them.
fn covering_points(points: Vec<Vec<f32>>, count: usize) -> Vec<Vec<f32>> {
    if points.len() <= count {
        return points;
    }
    let square = |one: &[f32], two: &[f32]| one.iter().zip(two).map(|(one, two)| (one - two).powi(2)).sum::<f32>();
    let mut squares = vec![f32::INFINITY; points.len()];
    let mut chosen = Vec::with_capacity(count);
    while chosen.len() < count {
        let farthest = (0..points.len()).max_by(|one, two| squares[*one].total_cmp(&squares[*two])).unwrap_or(0);
        for (least, point) in squares.iter_mut().zip(&points) {
            *least = least.min(square(point, &points[farthest]));
        }
        chosen.push(points[farthest].clone());
    }
    chosen
}

fn mean_distance(squares: &[f32; NEIGHBOURS]) -> f64 {
    let found = squares.iter().filter(|square| square.is_finite());
    found.clone().map(|square| f64::from(*square).sqrt()).sum::<f64>() / found.count().max(1) as f64
}

#[derive(Clone, Copy, Debug)]
pub(super) struct HeldOutError {
    /// Distance beyond the usual distance, in multiples of the usual distance.
    excess_distance: f64,
    /// Absolute log error in units of the interval's half-width.
    half_widths: f64,
}

pub(super) fn split_off_ends(samples: &Samples, rows: &[usize], end: End) -> (Vec<usize>, Vec<usize>) {
    let mut held: BTreeSet<usize> = BTreeSet::new();
    for column in coordinate_columns() {
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

pub fn coordinate_columns() -> impl Iterator<Item = usize> {
    (0..FEATURES.len()).filter(|column| COORDINATES.contains(&FEATURES[*column].name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line() -> ApplicabilityDomain {
        let points: Vec<_> = (0..40).map(|place| vec![place as f32 / 4.0]).collect();
        ApplicabilityDomain {
            columns: vec![0],
            scales: vec![1.0],
            points: Points::from_rows(&points),
            usual_distance: 0.5,
            widths: vec![(1.0, 2.0), (4.0, 3.0)],
        }
    }

    #[test]
    fn intervals_grow_with_the_distance_and_not_before() {
        let domain = line();
        assert!(domain.widening_factor(&[5.0]) == 1.0 && domain.is_sound(1) && !domain.is_sound(0));
        let factors: Vec<f64> =
            [9.0, 10.0, 10.5, 11.0, 12.0, 20.0, 40.0].map(|place| domain.widening_factor(&[place])).to_vec();
        assert!(factors.windows(2).all(|pair| pair[0] <= pair[1]), "{factors:?}");
        // The mean distance to the five nearest points is 30.75, which is 60.5 usual distances beyond the first: 1 + (3
        // - 1) √(60.5 / 4).
        assert!((factors[6] - 8.778).abs() < 0.001, "{factors:?}");
        assert_eq!(ApplicabilityDomain { widths: Vec::new(), ..domain }.widening_factor(&[40.0]), 1.0);
    }

    #[test]
    fn few_points_cover_isolated_shapes() {
        let mut points: Vec<Vec<f32>> = (0..100).map(|place| vec![0.01 * place as f32, 0.0]).collect();
        points.push(vec![9.0, 9.0]);
        assert_eq!(covering_points(points.clone(), 101), points);
        let chosen = covering_points(points.clone(), 11);
        assert_eq!(chosen.len(), 11);
        assert!(chosen.contains(&vec![9.0, 9.0]));
        let nearest = |point: &Vec<f32>| {
            chosen.iter().map(|one| (one[0] - point[0]).hypot(one[1] - point[1])).fold(f32::INFINITY, f32::min)
        };
        assert!(points.iter().all(|point| nearest(point) <= 0.13), "{chosen:?}");
    }

    #[test]
    fn widths_hold_what_they_should_at_every_distance() {
        let mut domain = line();
        let rows: Vec<[f32; 1]> = (0..400).map(|place| [9.0 + place as f32 / 100.0]).collect();
        // The error is one half-width plus two per usual distance; after that, distance explains nothing.
        let off: Vec<f64> = rows.iter().map(|row| 1.0 + 2.0 * domain.excess_distance(row)).collect();
        let errors: Vec<HeldOutError> =
            rows.iter().zip(&off).map(|(row, off)| domain.held_out_error(row, *off)).collect();
        domain.fit_widening(&errors);
        let inside = rows.iter().zip(&off).filter(|(row, off)| **off <= domain.widening_factor(*row)).count();
        assert!(domain.is_sound(1) && inside >= 360, "{inside} {:?}", domain.widths);
        let flat: Vec<HeldOutError> = rows.iter().map(|row| domain.held_out_error(row, 0.7)).collect();
        domain.fit_widening(&flat);
        assert_eq!(domain.widening_factor(&[40.0]), 1.0);
    }
}
