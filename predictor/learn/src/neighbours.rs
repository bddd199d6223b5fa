//! Nearest-neighbour prediction from measured shapes of an operator, scaled by the ratio of the roofline bounds.

use super::{Fitted, columns_of, predict_by_operator};
use samples::Samples;
use samples::features::Origin;
use std::collections::BTreeMap;

const NEAREST: usize = 5;
/// Maximum number of points per operator and device; larger sets are subsampled evenly.
const MOST: usize = 4096;

type NeighbourPoint = (Vec<f32>, f64);

struct Neighbours {
    columns: Vec<usize>,
    points: BTreeMap<(u32, u32), Vec<NeighbourPoint>>,
}

pub(super) fn fit_neighbours(samples: &Samples, train: &[usize]) -> impl Fitted + use<> {
    let columns = columns_of(samples, &[Origin::Sizes, Origin::Setting, Origin::Schedule]);
    let mut groups: BTreeMap<(u32, u32), Vec<usize>> = BTreeMap::new();
    for row in train {
        let sample = &samples.rows[*row];
        groups.entry((sample.operator, sample.device)).or_default().push(*row);
    }
    let points = groups.into_iter().map(|(group, rows)| {
        let step = rows.len().div_ceil(MOST);
        let point = |row: &usize| {
            let sample = &samples.rows[*row];
            (shape_coordinates(samples, *row, &columns), (sample.time_ns / sample.attainable_ns).ln())
        };
        (group, rows.iter().step_by(step).map(point).collect())
    });
    Neighbours { points: points.collect(), columns }
}

fn shape_coordinates(samples: &Samples, row: usize, columns: &[usize]) -> Vec<f32> {
    let features = samples.features.row(row);
    // Raw counts are clamped; otherwise they would dominate the distance over logarithmic features.
    let small = |value: f32| if value.is_nan() { 0.0 } else { value.clamp(-64.0, 64.0) };
    columns.iter().map(|column| small(features[*column])).collect()
}

impl Neighbours {
    fn predict_slowdown(&self, points: &[NeighbourPoint], place: &[f32]) -> f64 {
        let mut nearest: Vec<(f32, f64)> = Vec::with_capacity(NEAREST + 1);
        for (other, log) in points {
            let distance: f32 = other.iter().zip(place).map(|(one, two)| (one - two) * (one - two)).sum();
            if nearest.len() == NEAREST && distance >= nearest[NEAREST - 1].0 {
                continue;
            }
            let at = nearest.partition_point(|(known, _)| *known <= distance);
            nearest.insert(at, (distance, *log));
            nearest.truncate(NEAREST);
        }
        let weights = nearest.iter().map(|(distance, log)| (1.0 / (f64::from(*distance).sqrt() + 1e-6), log));
        let (sum, weight) = weights.fold((0.0, 0.0), |(sum, all), (weight, log)| (sum + weight * log, all + weight));
        (sum / weight).exp()
    }
}

impl Fitted for Neighbours {
    fn predict(&self, samples: &Samples, rows: &[usize]) -> Vec<f64> {
        predict_by_operator(samples, rows, |operator, rows| {
            let of = |row: &usize| {
                let sample = &samples.rows[*row];
                let place = shape_coordinates(samples, *row, &self.columns);
                let unit = |device: u32| samples.devices[device as usize].1.flops_per_ns().ln();
                let difference = |device: &u32| (unit(*device) - unit(sample.device)).abs();
                let known = self.points.keys().filter(|(known, _)| *known == operator).map(|(_, device)| *device);
                let device = known.min_by(|one, two| difference(one).total_cmp(&difference(two)));
                let slowdown =
                    device.map_or(1.0, |device| self.predict_slowdown(&self.points[&(operator, device)], &place));
                sample.attainable_ns * slowdown
            };
            Some(rows.iter().map(of).collect())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::synthetic;
    use super::*;
    use smartcore::neighbors::KNNWeightFunction;
    use smartcore::neighbors::knn_regressor::{KNNRegressor, KNNRegressorParameters};

    #[test]
    fn neighbours_answer_as_smartcores_do() {
        let (samples, learned, asked) = synthetic::synthetic_samples();
        let columns = columns_of(&samples, &[Origin::Sizes, Origin::Setting, Origin::Schedule]);
        let rows = |rows: &[usize]| {
            let of = |row: &usize| shape_coordinates(&samples, *row, &columns).into_iter().map(f64::from).collect();
            synthetic::dense_matrix(&rows.iter().map(of).collect::<Vec<_>>())
        };
        let slowdown = |row: &usize| (samples.rows[*row].time_ns / samples.rows[*row].attainable_ns).ln();
        let slowdowns: Vec<f64> = learned.iter().map(slowdown).collect();
        let parameters = KNNRegressorParameters::default().with_k(NEAREST).with_weight(KNNWeightFunction::Distance);
        let theirs = KNNRegressor::fit(&rows(&learned), &slowdowns, parameters).expect("neighbours");
        let theirs: Vec<f64> = theirs.predict(&rows(&asked)).expect("answers");
        let theirs: Vec<f64> =
            theirs.iter().zip(&asked).map(|(log, row)| log + samples.rows[*row].attainable_ns.ln()).collect();
        let ours = synthetic::log_times(&fit_neighbours(&samples, &learned).predict(&samples, &asked));
        assert!(
            synthetic::mean_max_difference(&ours, &theirs).1 < 1e-4,
            "{:?}",
            synthetic::mean_max_difference(&ours, &theirs)
        );
    }
}
