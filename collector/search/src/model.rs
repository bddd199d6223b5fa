//! A cost model: boosted trees over features of schedules, trained again when there are new results.

use crate::Result;
use learn::boosted::{self, BoostingParameters, Objective};
use learn::trees::Trees;
use samples::features::Matrix;
use std::collections::BTreeMap;

pub type Features = BTreeMap<String, f64>;

pub fn iter_features(features: &Features) -> impl Iterator<Item = (&str, f64)> {
    features.iter().map(|(name, value)| (name.as_str(), *value))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    Value,
    /// Trees predict the order of labels within a group.
    Order,
}

/// Training rows, with the union of their features as columns.
#[derive(Default)]
pub struct TrainingRows {
    columns: BTreeMap<String, usize>,
    rows: Vec<Vec<(usize, f32)>>,
}

impl TrainingRows {
    pub fn add_row<'a>(&mut self, features: impl IntoIterator<Item = (&'a str, f64)>) -> usize {
        // Columns are sorted by name, independent of the order of the parts.
        let features: BTreeMap<&str, f64> = features.into_iter().collect();
        let row = features.into_iter().map(|(name, value)| {
            let next = self.columns.len();
            (*self.columns.entry(name.to_owned()).or_insert(next), value as f32)
        });
        let row = row.collect();
        self.rows.push(row);
        self.rows.len() - 1
    }

    fn to_matrix(&self) -> Matrix {
        let mut matrix = Matrix::new(self.columns.len().max(1));
        for row in &self.rows {
            let mut values = vec![f32::NAN; matrix.column_count()];
            row.iter().for_each(|(column, value)| values[*column] = *value);
            matrix.push_row(&values);
        }
        matrix
    }

    /// Trains one ensemble of trees per seed; `labels` has one label per row.
    pub fn train_trees(&self, labels: &[f32], goal: Goal, seeds: impl Iterator<Item = u64>) -> Result<CostModel> {
        let matrix = self.to_matrix();
        let train = |seed: u64| match goal {
            Goal::Value => boosted::fit_trees(&matrix, labels, &tree_parameters(Objective::SquaredError), seed),
            Goal::Order => {
                let all = u32::try_from(labels.len()).unwrap_or(u32::MAX);
                boosted::fit_ranking(&matrix, labels, &[all], &tree_parameters(Objective::PairwiseRanking), seed)
            }
        };
        let trees = seeds.map(train).collect::<learn::Result<Vec<Trees>>>()?;
        Ok(CostModel { columns: self.columns.clone(), trees })
    }
}

pub struct RetrainedTrees {
    /// Retraining is due when the new rows exceed the known rows divided by this number.
    enough: usize,
    /// Trained trees, and the number of their training rows.
    trained: Option<(CostModel, usize)>,
}

impl RetrainedTrees {
    pub fn new(enough: usize) -> RetrainedTrees {
        RetrainedTrees { enough, trained: None }
    }

    pub fn train_if_due(&mut self, rows: usize, train: impl FnOnce() -> Result<CostModel>) -> Result<()> {
        if self.trained.as_ref().is_none_or(|(_, known)| rows - known > known / self.enough) {
            self.trained = Some((train()?, rows));
        }
        Ok(())
    }

    pub fn trained_model(&self) -> Option<&CostModel> {
        self.trained.as_ref().map(|(model, _)| model)
    }
}

/// Returns parameters for small trees, because there are few rows and many queries.
fn tree_parameters(objective: Objective) -> BoostingParameters {
    BoostingParameters {
        objective,
        rounds: 40,
        learning_rate: 0.2,
        max_depth: 4,
        min_child_weight: 1.0,
        subsample: 0.9,
        colsample: 0.6,
        ..BoostingParameters::default_parameters()
    }
}

pub fn check_training() -> Result<()> {
    let mut lessons = TrainingRows::default();
    lessons.add_row([("x", 0.0)]);
    lessons.add_row([("x", 1.0)]);
    lessons.train_trees(&[0.0, 1.0], Goal::Value, std::iter::once(0)).map(drop)
}

pub struct CostModel {
    columns: BTreeMap<String, usize>,
    trees: Vec<Trees>,
}

/// A prediction: mean and spread over the ensembles of trees.
#[derive(Clone, Copy, Debug)]
pub struct Prediction {
    pub mean: f64,
    pub spread: f64,
}

impl CostModel {
    /// Predicts from named features and ignores unknown features; fastest if `features` is a few parts sorted by name.
    pub fn predict_features<'a>(&self, features: impl IntoIterator<Item = (&'a str, f64)>) -> Prediction {
        let mut row = vec![f32::NAN; self.columns.len().max(1)];
        let mut columns = self.columns.iter().peekable();
        let mut last = "";
        for (name, value) in features {
            if name < last {
                columns = self.columns.iter().peekable();
            }
            last = name;
            while columns.next_if(|(own, _)| own.as_str() < name).is_some() {}
            if let Some((_, column)) = columns.next_if(|(own, _)| own.as_str() == name) {
                row[*column] = value as f32;
            }
        }
        let answers: Vec<f64> = self.trees.iter().map(|trees| f64::from(trees.predict_row(&row))).collect();
        let mean = answers.iter().sum::<f64>() / answers.len() as f64;
        let variance = answers.iter().map(|answer| (answer - mean).powi(2)).sum::<f64>() / answers.len() as f64;
        Prediction { mean, spread: variance.sqrt() }
    }
}
