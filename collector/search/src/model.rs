//! A cost model: trees over the features of schedules, grown anew when there is news.

use crate::Result;
use learn::boosted::{self, BoostingParameters, Objective};
use learn::trees::Trees;
use samples::features::Matrix;
use std::collections::BTreeMap;

/// Features by name.
pub type Features = BTreeMap<String, f64>;

/// Each of them.
pub fn each(features: &Features) -> impl Iterator<Item = (&str, f64)> {
    features.iter().map(|(name, value)| (name.as_str(), *value))
}

/// What is learned of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// The label itself.
    Value,
    /// Which of two rows of a group has the higher label.
    Order,
}

/// Rows with labels, whose columns are all features that were ever seen.
#[derive(Default)]
pub struct Lessons {
    columns: BTreeMap<String, usize>,
    rows: Vec<Vec<(usize, f32)>>,
}

impl Lessons {
    /// Takes a row; says its number.
    pub fn add<'a>(&mut self, features: impl IntoIterator<Item = (&'a str, f64)>) -> usize {
        // Columns stand in the order of names, whatever parts those come in.
        let features: BTreeMap<&str, f64> = features.into_iter().collect();
        let row = features.into_iter().map(|(name, value)| {
            let next = self.columns.len();
            (*self.columns.entry(name.to_owned()).or_insert(next), value as f32)
        });
        let row = row.collect();
        self.rows.push(row);
        self.rows.len() - 1
    }

    fn matrix(&self) -> Matrix {
        let mut matrix = Matrix::new(self.columns.len().max(1));
        for row in &self.rows {
            let mut values = vec![f32::NAN; matrix.columns()];
            row.iter().for_each(|(column, value)| values[*column] = *value);
            matrix.push(&values);
        }
        matrix
    }

    /// Learns a label for each row.
    pub fn fit(&self, labels: &[f32], goal: Goal, seeds: impl Iterator<Item = u64>) -> Result<Model> {
        let matrix = self.matrix();
        let grow = |seed: u64| match goal {
            Goal::Value => boosted::fit(&matrix, labels, &parameters(Objective::SquaredError), seed),
            Goal::Order => {
                let all = u32::try_from(labels.len()).unwrap_or(u32::MAX);
                boosted::fit_ranking(&matrix, labels, &[all], &parameters(Objective::PairwiseRanking), seed)
            }
        };
        let trees = seeds.map(grow).collect::<learn::Result<Vec<Trees>>>()?;
        Ok(Model { columns: self.columns.clone(), trees })
    }
}

/// Trees that are grown anew when there is enough news.
pub struct Growing {
    /// Rows have become more by more than this part.
    enough: usize,
    /// Trees, and how many rows they were grown on.
    grown: Option<(Model, usize)>,
}

impl Growing {
    /// Nothing yet.
    pub fn new(enough: usize) -> Growing {
        Growing { enough, grown: None }
    }

    /// Grows trees on so many rows, unless there is little news.
    pub fn study(&mut self, rows: usize, grow: impl FnOnce() -> Result<Model>) -> Result<()> {
        if self.grown.as_ref().is_none_or(|(_, known)| rows - known > known / self.enough) {
            self.grown = Some((grow()?, rows));
        }
        Ok(())
    }

    /// The trees, if there are any.
    pub fn model(&self) -> Option<&Model> {
        self.grown.as_ref().map(|(model, _)| model)
    }
}

/// Few rows, asked many times: small trees.
fn parameters(objective: Objective) -> BoostingParameters {
    BoostingParameters {
        objective,
        rounds: 40,
        learning_rate: 0.2,
        max_depth: 4,
        min_child_weight: 1.0,
        subsample: 0.9,
        colsample: 0.6,
        ..BoostingParameters::usual()
    }
}

/// Whether trees can be grown on this machine.
pub fn check() -> Result<()> {
    let mut lessons = Lessons::default();
    lessons.add([("x", 0.0)]);
    lessons.add([("x", 1.0)]);
    lessons.fit(&[0.0, 1.0], Goal::Value, std::iter::once(0)).map(drop)
}

/// What was learned.
pub struct Model {
    columns: BTreeMap<String, usize>,
    trees: Vec<Trees>,
}

/// What a model says of one row: the mean of its sets of trees, and how far they are apart.
#[derive(Clone, Copy, Debug)]
pub struct Guess {
    /// The mean.
    pub mean: f64,
    /// The standard deviation.
    pub spread: f64,
}

impl Model {
    /// What is said of a row by its features, of which those that no row had before are not looked at. It is quickest where they
    /// stand in the order of names, or in a few parts that do.
    pub fn ask<'a>(&self, features: impl IntoIterator<Item = (&'a str, f64)>) -> Guess {
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
        Guess { mean, spread: variance.sqrt() }
    }
}
