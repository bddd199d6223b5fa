//! Gradient-boosted trees: hyperparameters, fitting by XGBoost, and a check that `Trees` agree with XGBoost.

use super::trees::Trees;
use crate::error::{Error, Result};
use crate::xgboost::{Booster, BoosterOutput, Data};
use samples::features::Matrix;
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Objective {
    SquaredError,
    Quantile(f64),
    /// Pairwise loss within a group of rows: predicts an order, not a value.
    PairwiseRanking,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BoostingParameters {
    pub objective: Objective,
    pub rounds: usize,
    pub learning_rate: f64,
    pub max_depth: usize,
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
    pub fn default_parameters() -> BoostingParameters {
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

    /// Returns parameters for fewer and smaller trees: only coarse effects are common to all devices.
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

    pub fn of_xgboost() -> BoostingParameters {
        let (learning_rate, max_depth, min_child_weight) = (0.3, 6, 1.0);
        BoostingParameters {
            rounds: 100,
            learning_rate,
            max_depth,
            min_child_weight,
            subsample: 1.0,
            colsample: 1.0,
            ..BoostingParameters::default_parameters()
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
            ("max_bin", histogram_bins(rows).to_string()),
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

/// Returns the number of histogram bins: few for few rows, and at most 256, so that a bin index fits in a byte.
fn histogram_bins(rows: usize) -> usize {
    (rows / 8).clamp(32, 128).max(rows / 64).min(256)
}

pub fn fit_trees(matrix: &Matrix, labels: &[f32], parameters: &BoostingParameters, seed: u64) -> Result<Trees> {
    train_booster(matrix, Data::from_matrix(matrix)?.with_labels(labels)?, parameters, seed)
}

/// Fits trees that interpolate between the values of training rows, for features on a grid.
pub fn fit_interpolating_trees(
    matrix: &Matrix,
    labels: &[f32],
    parameters: &BoostingParameters,
    seed: u64,
) -> Result<Trees> {
    let mut trees = fit_trees(matrix, labels, parameters, seed)?;
    trees.spread_thresholds(matrix);
    Ok(trees)
}

/// Fits trees that rank rows within consecutive groups, highest label first; `sizes` are the groups' row counts.
pub fn fit_ranking(
    matrix: &Matrix,
    labels: &[f32],
    sizes: &[u32],
    parameters: &BoostingParameters,
    seed: u64,
) -> Result<Trees> {
    train_booster(matrix, Data::from_matrix(matrix)?.with_labels(labels)?.with_groups(sizes)?, parameters, seed)
}

fn train_booster(matrix: &Matrix, data: Data, parameters: &BoostingParameters, seed: u64) -> Result<Trees> {
    let booster = Booster::train_rounds(&parameters.to_xgboost(seed, matrix.row_count()), &data, parameters.rounds)?;
    let trees = Trees::from_json(&booster.to_json()?)?;
    check_agreement(&booster, &trees, matrix)?;
    Ok(trees)
}

fn check_agreement(booster: &Booster, trees: &Trees, matrix: &Matrix) -> Result<()> {
    const ROWS: usize = 64;
    let some: Vec<usize> = (0..matrix.row_count()).step_by(matrix.row_count().div_ceil(ROWS).max(1)).collect();
    let some = matrix.select_rows(&some);
    let theirs = booster.predict_rows(&Data::from_matrix(&some)?, BoosterOutput::Margin)?;
    let is_near = |(ours, theirs): (f32, f32)| (ours - theirs).abs() <= 1e-4 * (1.0 + theirs.abs());
    match trees.predict_rows(&some).into_iter().zip(theirs).all(is_near) {
        true => Ok(()),
        false => {
            Err(Error::XgBoost("this version of XGBoost evaluates trees in another way than this program; run scripts/setup to install the supported version".to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn synthetic() -> (Matrix, Vec<f32>) {
        let mut matrix = Matrix::new(3);
        let mut labels = Vec::new();
        for step in 0..400u32 {
            let (a, b) = ((step % 20) as f32, (step / 20) as f32);
            matrix.push_row(&[a, if step % 7 == 0 { f32::NAN } else { b }, (step % 3) as f32]);
            labels.push((a * 0.3).sin() + b.sqrt() + if step % 7 == 0 { 0.5 } else { 0.0 });
        }
        (matrix, labels)
    }

    #[test]
    fn our_answers_are_those_of_xgboost() {
        let (matrix, labels) = synthetic();
        let parameters = BoostingParameters { rounds: 60, ..BoostingParameters::default_parameters() };
        let trees = fit_trees(&matrix, &labels, &parameters, 3).expect("trees");
        let names: Vec<String> = ["a", "b", "c"].map(str::to_owned).to_vec();
        // XGBoost must read our JSON and predict the same from it.
        let booster = Booster::load(&trees.to_json(&names)).expect("our JSON");
        let data = Data::from_matrix(&matrix).expect("rows");
        let theirs = booster.predict_rows(&data, BoosterOutput::Margin).expect("answers");
        let ours = trees.predict_rows(&matrix);
        for (row, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
            assert!((ours - theirs).abs() < 1e-4, "row {row}: {ours} {theirs}");
            assert_eq!(*ours, trees.predict_row(matrix.row(row)), "row {row}");
        }
        let contributions = booster.predict_rows(&data, BoosterOutput::Contributions).expect("contributions");
        for (parts, whole) in contributions.chunks(4).zip(&theirs) {
            assert!((parts.iter().sum::<f32>() - whole).abs() < 1e-3, "{parts:?} {whole}");
        }
        assert_eq!(Trees::from_json(&booster.to_json().expect("JSON")).expect("trees").len(), trees.len());
    }

    #[test]
    fn predictions_between_training_values_are_interpolated() {
        let (sizes, labels): (Vec<f32>, Vec<f32>) = (0..160).map(|row| (row % 8) as f32).map(|x| (x, x * x)).unzip();
        let matrix = Matrix::from_rows(1, sizes);
        let parameters = BoostingParameters { rounds: 100, ..BoostingParameters::default_parameters() };
        let plain = fit_trees(&matrix, &labels, &parameters, 3).expect("trees");
        let trees = fit_interpolating_trees(&matrix, &labels, &parameters, 3).expect("trees");
        assert_eq!(trees.predict_rows(&matrix), plain.predict_rows(&matrix));
        for low in 0u8..7 {
            let low = f32::from(low);
            let share = |part: f32| {
                let [own, above, between] = [low, low + 1.0, low + part].map(|size| trees.predict_row(&[size]));
                (between - own) / (above - own)
            };
            assert!(share(0.05).abs() < 1e-3 && (share(0.95) - 1.0).abs() < 1e-3, "{low}");
            assert!((share(0.5) - 0.5).abs() < 0.2, "{low}: {}", share(0.5));
        }
    }

    #[test]
    fn models_of_another_kind_are_refused() {
        let (matrix, labels) = synthetic();
        let parameters = BoostingParameters { rounds: 1, ..BoostingParameters::default_parameters() };
        let data = Data::from_matrix(&matrix).and_then(|data| data.with_labels(&labels)).expect("rows");
        let booster = Booster::train_rounds(&parameters.to_xgboost(0, 400), &data, 1).expect("a tree");
        let json = booster.to_json().expect("JSON");
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
