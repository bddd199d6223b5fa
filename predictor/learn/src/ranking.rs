//! Ranks schedules with XGBoost's ranking objective. Predictions are rank scores times the roofline bound, not times.

use super::boosted::{self, BoostingParameters, Objective};
use super::trees::Trees;
use super::{Fitted, by_operator, predict_by_operator};
use crate::error::Result;
use samples::Samples;
use std::collections::BTreeMap;

struct RankingTrees(BTreeMap<u32, Trees>);

pub(super) fn fit_ranking(samples: &Samples, train: &[usize], seed: u64) -> Result<impl Fitted + use<>> {
    let parameters =
        BoostingParameters { objective: Objective::PairwiseRanking, ..BoostingParameters::default_parameters() };
    let mut trees = BTreeMap::new();
    for (operator, rows) in by_operator(samples, train) {
        let mut tasks: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        rows.iter().for_each(|row| tasks.entry(samples.rows[*row].task).or_default().push(*row));
        let sizes: Vec<u32> = tasks.values().map(|rows| rows.len() as u32).collect();
        let sorted: Vec<usize> = tasks.values().flatten().copied().collect();
        let best = |rows: &[usize]| rows.iter().map(|row| samples.rows[*row].time_ns).fold(f64::INFINITY, f64::min);
        let labels: Vec<f32> = tasks
            .values()
            .flat_map(|rows| {
                let best = best(rows);
                rows.iter().map(move |row| (best / samples.rows[*row].time_ns) as f32)
            })
            .collect();
        let matrix = samples.features.select_rows(&sorted);
        trees.insert(operator, boosted::fit_ranking(&matrix, &labels, &sizes, &parameters, seed)?);
    }
    Ok(RankingTrees(trees))
}

impl Fitted for RankingTrees {
    fn predict(&self, samples: &Samples, rows: &[usize]) -> Vec<f64> {
        predict_by_operator(samples, rows, |operator, rows| {
            let scores = self.0.get(&operator)?.predict_rows(&samples.features.select_rows(rows));
            let behind = |(row, score): (&usize, f32)| samples.rows[*row].attainable_ns * f64::from(-score).exp();
            Some(rows.iter().zip(scores).map(behind).collect())
        })
    }
}
