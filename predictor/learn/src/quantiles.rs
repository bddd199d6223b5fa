//! Predicts quantiles of the utilisation with XGBoost's quantile objective: the median and both ends of an interval.
//!
//! The half-width of `ours` is one number per operator and device; a quantile interval adapts to each query. Quantiles
//! fitted to training rows are too narrow for new rows, so a fifth of the shapes is held out to widen the intervals
//! (conformalised quantile regression, Romano and others, 2019).

use super::COVERAGE;
use super::boosted::{self, BoostingParameters, Objective};
use super::ensemble::Ensemble;
use super::trees::Trees;
use super::{FitOptions, Fitted, LogInterval, by_operator, predict_by_operator};
use crate::error::Result;
use crate::split;
use samples::Samples;
use samples::statistics::quantile;
use std::collections::BTreeMap;

const SHARES: [f64; 3] = [(1.0 - COVERAGE) / 2.0, 0.5, (1.0 + COVERAGE) / 2.0];

struct Quantiles {
    /// Ensemble that supplies bounds and features; its trees are not used.
    known: Ensemble,
    /// Trees by operator, one set per quantile of `SHARES`; only the median if no intervals are requested.
    trees: BTreeMap<u32, Vec<Trees>>,
    margins: BTreeMap<u32, f64>,
}

pub(super) fn fit_quantiles(samples: &Samples, train: &[usize], options: &FitOptions) -> Result<impl Fitted + use<>> {
    let shares = if options.intervals { &SHARES[..] } else { &SHARES[1..2] };
    let mut fitted = grow_quantiles(samples, train, options.seed, shares)?;
    let (learned, held_out) = split::held_out_fifth(samples, train, options.seed ^ 1);
    if options.intervals && !learned.is_empty() {
        let trial = grow_quantiles(samples, &learned, options.seed, shares)?;
        for (operator, rows) in by_operator(samples, &held_out) {
            let mut nonconformity_scores = trial.nonconformity_scores(samples, &rows);
            let share =
                (COVERAGE * (nonconformity_scores.len() + 1) as f64 / nonconformity_scores.len() as f64).min(1.0);
            fitted.margins.insert(operator, quantile(&mut nonconformity_scores, share));
        }
    }
    Ok(fitted)
}

fn grow_quantiles(samples: &Samples, train: &[usize], seed: u64, shares: &[f64]) -> Result<Quantiles> {
    let mut fitted = Quantiles { known: Ensemble::default(), trees: BTreeMap::new(), margins: BTreeMap::new() };
    for (operator, rows) in by_operator(samples, train) {
        let (matrix, labels) = fitted.known.fit_statistics(samples, operator, &rows);
        let of_share = |share: &f64| {
            let parameters = BoostingParameters {
                objective: Objective::Quantile(*share),
                ..BoostingParameters::default_parameters()
            };
            boosted::fit_trees(&matrix, &labels, &parameters, seed)
        };
        fitted.trees.insert(operator, shares.iter().map(of_share).collect::<Result<_>>()?);
    }
    Ok(fitted)
}

impl Quantiles {
    fn predict_logs(&self, samples: &Samples, operator: u32, rows: &[usize]) -> Option<Vec<Vec<f32>>> {
        let trees = self.trees.get(&operator)?;
        let matrix = self.known.feature_matrix(samples, rows);
        Some(trees.iter().map(|trees| trees.predict_rows(&matrix)).collect())
    }

    /// Returns the distance of each label from its interval; negative inside the interval.
    fn nonconformity_scores(&self, samples: &Samples, rows: &[usize]) -> Vec<f64> {
        let operator = rows.first().map(|row| samples.rows[*row].operator);
        let logs = operator.and_then(|one| self.predict_logs(samples, one, rows)).unwrap_or_default();
        let Ok([low, _, high]) = <[Vec<f32>; 3]>::try_from(logs) else { return vec![0.0; rows.len()] };
        let outside = rows.iter().zip(low.iter().zip(&high)).map(|(row, (low, high))| {
            let label = self.known.log_label(samples, *row);
            f64::from((low - label).max(label - high))
        });
        outside.collect()
    }
}

impl Fitted for Quantiles {
    fn predict(&self, samples: &Samples, rows: &[usize]) -> Vec<f64> {
        predict_by_operator(samples, rows, |operator, rows| {
            let logs = self.predict_logs(samples, operator, rows)?;
            let middle = logs.get(logs.len() / 2)?;
            let time =
                |(row, log): (&usize, &f32)| self.known.time_ns(samples, *row, f64::from(*log), samples.row_view(*row));
            Some(rows.iter().zip(middle).map(time).collect())
        })
    }

    fn intervals(&self, samples: &Samples, rows: &[usize]) -> Vec<Option<LogInterval>> {
        let mut found: BTreeMap<usize, LogInterval> = BTreeMap::new();
        for (operator, rows) in by_operator(samples, rows) {
            let (Some(margins), Some(logs)) =
                (self.margins.get(&operator), self.predict_logs(samples, operator, &rows))
            else {
                continue;
            };
            let Ok([low, middle, high]) = <[Vec<f32>; 3]>::try_from(logs) else { continue };
            for (place, row) in rows.iter().enumerate() {
                // Quantiles are fitted independently and may cross.
                let reach = |to: f32, from: f32| (f64::from(to - from) + margins).max(0.0);
                let (below, above) = (reach(middle[place], low[place]), reach(high[place], middle[place]));
                found.insert(*row, LogInterval { below, above, levels: None });
            }
        }
        rows.iter().map(|row| found.get(row).copied()).collect()
    }
}
