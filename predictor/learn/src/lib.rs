//! Learners with a common interface, which predict times for samples; and the predictor, which our learner trains and
//! which can be adapted to other devices with a few measurements. Unsafe code is only in `xgboost.rs`.

pub mod adaptation;
pub mod applicability;
mod blend;
pub mod boosted;
pub mod calibration;
pub mod choice_classifier;
pub mod cross_validation;
pub mod ensemble;
mod error;
mod forest;
pub mod gaussian_process;
pub mod host_translation;
pub mod in_place;
pub mod levels;
mod linear;
mod neighbours;
pub mod operator;
pub mod operator_statistics;
pub mod predictor;
mod quantiles;
mod ranking;
pub mod shap;
pub mod split;
mod support_vectors;
#[cfg(test)]
mod synthetic;
pub mod train;
pub mod training;
pub mod trees;
pub mod tune;
mod xgboost;

pub use error::{Error, Result};
pub use linear::Cholesky;
pub use xgboost::set_program;

use boosted::BoostingParameters;
use ensemble::Purpose;
use levels::LevelRatios;
use samples::Samples;
use samples::features::{FEATURES, Matrix, Origin};
use samples::statistics::median;
use std::collections::BTreeMap;
use trees::Trees;

pub const COVERAGE: f64 = 0.9;
/// Name under which maps by device hold the value for devices without training data.
pub const UNSEEN: &str = "";

models::choice! {
    /// A method that predicts times: first this project's learner and its variants, then baselines to compare with.
    pub enum Learner {
        /// Boosted trees on utilisation, as in `train`
        Ensemble = "ours",
        /// As ours, with tuned hyperparameters per operator
        Tuned = "tuned",
        /// XGBoost's quantile objective on utilisation: median and intervals
        Quantiles = "quantiles",
        /// XGBoost's ranking objective: only the order of schedules of a task
        Ranking = "order",
        /// XGBoost with its defaults on sizes and device, predicting the time
        PlainXgboost = "xgboost",
        /// Random forest per operator on sizes and device
        Forest = "forest",
        /// Ridge regression of log time per operator on sizes, work and device
        Linear = "linear",
        /// As linear, with an L1 penalty
        Lasso = "lasso",
        /// Support vector regression of log time per operator on sizes, work and device
        SupportVectors = "svr",
        /// Nearest measured shapes of the operator
        Neighbours = "neighbours",
        /// Median utilisation of the operator times its roofline bound
        OperatorMedian = "median",
        /// Roofline bound
        Roofline = "roofline",
    }
}

impl Learner {
    pub fn predicts_times(self) -> bool {
        self != Learner::Ranking
    }

    pub fn fit_learner(self, samples: &Samples, train: &[usize], options: &FitOptions) -> Result<Box<dyn Fitted>> {
        let (seed, purpose) = (options.seed, options.purpose);
        Ok(match self {
            Learner::Ensemble => {
                let min_split_loss = options.min_split_loss;
                let parameters =
                    |_: &str| BoostingParameters { min_split_loss, ..BoostingParameters::default_parameters() };
                Box::new(training::fit_with_options(samples, train, &parameters, options)?)
            }
            Learner::Tuned => {
                let chosen = tune::search_parameters(samples, train, seed, purpose)?;
                Box::new(training::fit_with_options(samples, train, &|operator| chosen[operator].clone(), options)?)
            }
            Learner::Quantiles => Box::new(quantiles::fit_quantiles(samples, train, options)?),
            Learner::Ranking => Box::new(ranking::fit_ranking(samples, train, seed)?),
            Learner::PlainXgboost => Box::new(time_trees(samples, train, |matrix, labels| {
                boosted::fit_trees(matrix, labels, &BoostingParameters::of_xgboost(), seed)
            })?),
            Learner::Forest => {
                Box::new(time_trees(samples, train, |matrix, labels| Ok(forest::fit_forest(matrix, labels, seed)))?)
            }
            Learner::Linear => Box::new(linear::fit_regressions(samples, train, linear::Penalty::L2)),
            Learner::Lasso => Box::new(linear::fit_regressions(samples, train, linear::Penalty::L1)),
            Learner::SupportVectors => Box::new(support_vectors::fit_regressions(samples, train)),
            Learner::Neighbours => Box::new(neighbours::fit_neighbours(samples, train)),
            Learner::OperatorMedian => Box::new(Medians(median_slowdowns(samples, train))),
            Learner::Roofline => Box::new(Medians(BTreeMap::new())),
        })
    }
}

#[derive(Clone, Copy, Debug)]
pub struct FitOptions {
    pub seed: u64,
    pub purpose: Purpose,
    pub intervals: bool,
    pub min_split_loss: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogInterval {
    pub below: f64,
    pub above: f64,
    pub levels: Option<LevelRatios>,
}

pub trait Fitted {
    /// Predicts times in nanoseconds; does not read the measured times.
    fn predict(&self, samples: &Samples, rows: &[usize]) -> Vec<f64>;

    /// Returns the 90 % interval of each row; None without fitted intervals.
    fn intervals(&self, _samples: &Samples, rows: &[usize]) -> Vec<Option<LogInterval>> {
        vec![None; rows.len()]
    }

    /// Selects the most useful samples to measure, without reading times; None if the learner does not support this.
    fn most_informative(&self, _samples: &Samples, _rows: &[usize], _count: usize) -> Option<Vec<usize>> {
        None
    }

    /// Adapts to new devices with a few samples; returns false if the learner does not support this.
    fn adapt(&mut self, _samples: &Samples, _few: &[usize]) -> bool {
        false
    }
}

pub fn by_operator(samples: &Samples, rows: &[usize]) -> BTreeMap<u32, Vec<usize>> {
    let mut groups: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    rows.iter().for_each(|row| groups.entry(samples.rows[*row].operator).or_default().push(*row));
    groups
}

pub fn by_device(samples: &Samples, rows: &[usize]) -> BTreeMap<u32, Vec<usize>> {
    let mut groups: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    rows.iter().for_each(|row| groups.entry(samples.rows[*row].device).or_default().push(*row));
    groups
}

pub(crate) fn columns_of(samples: &Samples, origins: &[Origin]) -> Vec<usize> {
    let origin = |column: usize| FEATURES.get(column).map_or(Origin::Schedule, |feature| feature.origin);
    (0..samples.names.len()).filter(|column| origins.contains(&origin(*column))).collect()
}

/// Origins of the features that baseline learners use; features of tiles, waves and caches are excluded.
const BASIC: &[Origin] = &[Origin::Sizes, Origin::Work, Origin::Device, Origin::Setting, Origin::Schedule];

struct Medians(BTreeMap<u32, f64>);

fn median_slowdowns(samples: &Samples, train: &[usize]) -> BTreeMap<u32, f64> {
    let groups = by_operator(samples, train).into_iter().map(|(operator, rows)| {
        let slowdown = |row: &usize| samples.rows[*row].time_ns / samples.rows[*row].attainable_ns;
        (operator, median(&mut rows.iter().map(slowdown).collect::<Vec<_>>()))
    });
    groups.collect()
}

impl Fitted for Medians {
    fn predict(&self, samples: &Samples, rows: &[usize]) -> Vec<f64> {
        let of = |row: &usize| {
            let sample = &samples.rows[*row];
            sample.attainable_ns * self.0.get(&sample.operator).copied().unwrap_or(1.0)
        };
        rows.iter().map(of).collect()
    }
}

struct TimeTrees {
    columns: Vec<usize>,
    trees: BTreeMap<u32, Trees>,
}

fn time_trees(
    samples: &Samples,
    train: &[usize],
    grow: impl Fn(&Matrix, &[f32]) -> Result<Trees>,
) -> Result<TimeTrees> {
    let columns = columns_of(samples, BASIC);
    let mut trees = BTreeMap::new();
    for (operator, rows) in by_operator(samples, train) {
        let matrix = samples.features.select_rows(&rows).select_columns(&columns);
        let labels: Vec<f32> = rows.iter().map(|row| samples.rows[*row].time_ns.ln() as f32).collect();
        trees.insert(operator, grow(&matrix, &labels)?);
    }
    Ok(TimeTrees { columns, trees })
}

impl Fitted for TimeTrees {
    fn predict(&self, samples: &Samples, rows: &[usize]) -> Vec<f64> {
        predict_by_operator(samples, rows, |operator, rows| {
            let trees = self.trees.get(&operator)?;
            let matrix: Matrix = samples.features.select_rows(rows).select_columns(&self.columns);
            Some(trees.predict_rows(&matrix).into_iter().map(|log| f64::from(log).exp()).collect())
        })
    }
}

/// Predicts times operator by operator, in the order of `rows`; rows of unknown operators get their roofline bound.
pub(crate) fn predict_by_operator(
    samples: &Samples,
    rows: &[usize],
    of: impl Fn(u32, &[usize]) -> Option<Vec<f64>>,
) -> Vec<f64> {
    let mut answers: BTreeMap<usize, f64> = BTreeMap::new();
    for (operator, rows) in by_operator(samples, rows) {
        if let Some(times) = of(operator, &rows) {
            answers.extend(rows.iter().copied().zip(times));
        }
    }
    rows.iter().map(|row| answers.get(row).copied().unwrap_or(samples.rows[*row].attainable_ns)).collect()
}
