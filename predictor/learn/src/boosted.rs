//! Gradient-boosted trees: parameters, fitting by XGBoost, and the check of `Trees` against XGBoost.

use super::trees::Trees;
use crate::error::{Error, Result};
use crate::xgboost::{Booster, BoosterOutput, Data};
use samples::features::Matrix;
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Objective {
    /// Squared error; predictions are means.
    SquaredError,
    /// Pinball loss; the given share of labels lies below the predictions.
    Quantile(f64),
    /// Number of misordered pairs of rows within a group.
    PairwiseRanking,
}

/// Hyperparameters of boosting under XGBoost's names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BoostingParameters {
    pub objective: Objective,
    pub rounds: usize,
    /// Factor applied to the output of each tree.
    pub learning_rate: f64,
    pub max_depth: usize,
    /// Minimum number of rows in a leaf.
    pub min_child_weight: f64,
    /// Minimum loss reduction of a split (XGBoost's `gamma`). Smaller gains fit noise and enlarge the model.
    pub min_split_loss: f64,
    pub subsample: f64,
    pub colsample: f64,
    /// L2 penalty on leaf values.
    pub lambda: f64,
    pub threads: usize,
}

impl BoostingParameters {
    /// Returns the default hyperparameters of this program.
    pub fn usual() -> BoostingParameters {
        BoostingParameters {
            objective: Objective::SquaredError,
            rounds: 600,
            learning_rate: 0.05,
            max_depth: 8,
            min_child_weight: 3.0,
            min_split_loss: 0.0,
            subsample: 0.8,
            colsample: 0.5,
            lambda: 1.0,
            threads: 1,
        }
    }

    /// Returns parameters for transfer trees: fewer and smaller trees, because what devices have in common is coarse.
    pub fn for_transfer(&self) -> BoostingParameters {
        let (learning_rate, max_depth, min_child_weight) = (0.08, 7, 5.0);
        let (subsample, colsample) = (0.7, 0.4);
        BoostingParameters {
            rounds: self.rounds / 2,
            learning_rate,
            max_depth,
            min_child_weight,
            subsample,
            colsample,
            ..self.clone()
        }
    }

    /// Returns XGBoost's own defaults.
    pub fn of_xgboost() -> BoostingParameters {
        let (learning_rate, max_depth, min_child_weight) = (0.3, 6, 1.0);
        BoostingParameters {
            rounds: 100,
            learning_rate,
            max_depth,
            min_child_weight,
            subsample: 1.0,
            colsample: 1.0,
            ..BoostingParameters::usual()
        }
    }

    fn to_xgboost(&self, seed: u64, rows: usize) -> Vec<(&'static str, String)> {
        let objective = match self.objective {
            Objective::SquaredError => "reg:squarederror",
            Objective::Quantile(_) => "reg:quantileerror",
            Objective::PairwiseRanking => "rank:pairwise",
        };
        let mut parameters = vec![
            ("objective", objective.to_owned()),
            ("eta", self.learning_rate.to_string()),
            ("max_depth", self.max_depth.to_string()),
            ("min_child_weight", self.min_child_weight.to_string()),
            ("min_split_loss", self.min_split_loss.to_string()),
            ("subsample", self.subsample.to_string()),
            ("colsample_bytree", self.colsample.to_string()),
            ("lambda", self.lambda.to_string()),
            ("tree_method", "hist".to_owned()),
            ("max_bin", bins(rows).to_string()),
            ("base_score", "0".to_owned()),
            ("nthread", self.threads.to_string()),
            ("seed", (seed & 0x7fff_ffff).to_string()),
        ];
        if let Objective::Quantile(share) = self.objective {
            parameters.push(("quantile_alpha", share.to_string()));
        }
        parameters
    }
}

/// Returns the number of histogram bins. With few rows, more bins only cost time; more than a byte can count double the
/// memory.
fn bins(rows: usize) -> usize {
    (rows / 8).clamp(32, 128).max(rows / 64).min(256)
}

pub fn fit(matrix: &Matrix, labels: &[f32], parameters: &BoostingParameters, seed: u64) -> Result<Trees> {
    grow(matrix, Data::new(matrix)?.with_labels(labels)?, parameters, seed)
}

/// Fits trees that rank the rows of each group by label, highest first. Rows of a group are contiguous.
pub fn fit_ranking(
    matrix: &Matrix,
    labels: &[f32],
    sizes: &[u32],
    parameters: &BoostingParameters,
    seed: u64,
) -> Result<Trees> {
    grow(matrix, Data::new(matrix)?.with_labels(labels)?.with_groups(sizes)?, parameters, seed)
}

fn grow(matrix: &Matrix, data: Data, parameters: &BoostingParameters, seed: u64) -> Result<Trees> {
    let booster = Booster::train(&parameters.to_xgboost(seed, matrix.rows()), &data, parameters.rounds)?;
    let trees = Trees::from_json(&booster.json()?)?;
    compare(&booster, &trees, matrix)?;
    Ok(trees)
}

/// Checks on a sample of rows that `Trees` predicts what XGBoost predicts.
fn compare(booster: &Booster, trees: &Trees, matrix: &Matrix) -> Result<()> {
    const ROWS: usize = 64;
    let some: Vec<usize> = (0..matrix.rows()).step_by(matrix.rows().div_ceil(ROWS).max(1)).collect();
    let some = matrix.select(&some);
    let theirs = booster.predict(&Data::new(&some)?, BoosterOutput::Margin)?;
    let is_near = |(ours, theirs): (f32, f32)| (ours - theirs).abs() <= 1e-4 * (1.0 + theirs.abs());
    match trees.predict(&some).into_iter().zip(theirs).all(is_near) {
        true => Ok(()),
        false => {
            Err(Error::XgBoost("this version of XGBoost evaluates trees differently; run scripts/setup".to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns rows whose labels follow a rule, some with missing values.
    fn synthetic() -> (Matrix, Vec<f32>) {
        let mut matrix = Matrix::new(3);
        let mut labels = Vec::new();
        for step in 0..400u32 {
            let (a, b) = ((step % 20) as f32, (step / 20) as f32);
            matrix.push(&[a, if step % 7 == 0 { f32::NAN } else { b }, (step % 3) as f32]);
            labels.push((a * 0.3).sin() + b.sqrt() + if step % 7 == 0 { 0.5 } else { 0.0 });
        }
        (matrix, labels)
    }

    #[test]
    fn our_answers_are_those_of_xgboost() {
        let (matrix, labels) = synthetic();
        let parameters = BoostingParameters { rounds: 60, ..BoostingParameters::usual() };
        let trees = fit(&matrix, &labels, &parameters, 3).expect("trees");
        let names: Vec<String> = ["a", "b", "c"].map(str::to_owned).to_vec();
        // XGBoost must read our JSON and predict the same from it.
        let booster = Booster::load(&trees.to_json(&names)).expect("our JSON");
        let data = Data::new(&matrix).expect("rows");
        let theirs = booster.predict(&data, BoosterOutput::Margin).expect("answers");
        let ours = trees.predict(&matrix);
        for (row, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
            assert!((ours - theirs).abs() < 1e-4, "row {row}: {ours} {theirs}");
            assert_eq!(*ours, trees.predict_row(matrix.row(row)), "row {row}");
        }
        let contributions = booster.predict(&data, BoosterOutput::Contributions).expect("contributions");
        for (parts, whole) in contributions.chunks(4).zip(&theirs) {
            assert!((parts.iter().sum::<f32>() - whole).abs() < 1e-3, "{parts:?} {whole}");
        }
        assert_eq!(Trees::from_json(&booster.json().expect("JSON")).expect("trees").len(), trees.len());
    }

    #[test]
    fn models_of_another_kind_are_refused() {
        let (matrix, labels) = synthetic();
        let parameters = BoostingParameters { rounds: 1, ..BoostingParameters::usual() };
        let data = Data::new(&matrix).and_then(|data| data.with_labels(&labels)).expect("rows");
        let booster = Booster::train(&parameters.to_xgboost(0, 400), &data, 1).expect("a tree");
        let json = booster.json().expect("JSON");
        for (from, to, reason) in [
            ("reg:squarederror", "binary:logistic", "is not a regression"),
            ("\"name\":\"gbtree\"", "\"name\":\"gblinear\"", "is not `gbtree`"),
            ("\"left_children\":[", "\"left_children\":[7,", "lists of different lengths"),
        ] {
            let error = Trees::from_json(&json.replace(from, to)).expect_err(reason).to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
