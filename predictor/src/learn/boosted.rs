//! Gradient-boosted trees: parameters, fitting by XGBoost, answering by `Trees`.

use super::trees::Trees;
use crate::error::Result;
use crate::features::Matrix;
use crate::xgboost::{Booster, Data};
use serde::{Deserialize, Serialize};

/// How trees are grown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Growth {
    /// What is minimised, in XGBoost's words.
    pub objective: String,
    /// Trees.
    pub rounds: usize,
    /// Share of each tree that counts.
    pub rate: f64,
    /// Splits from the root to a leaf.
    pub depth: usize,
    /// Rows a leaf must hold.
    pub leaf_rows: f64,
    /// Share of rows a tree sees.
    pub row_share: f64,
    /// Share of features a tree sees.
    pub feature_share: f64,
    /// Penalty on large leaves.
    pub penalty: f64,
    /// Threads while growing.
    pub threads: usize,
}

impl Growth {
    /// Boosting as this program does it by default.
    pub fn boosting() -> Growth {
        Growth {
            objective: "reg:squarederror".to_owned(),
            rounds: 600,
            rate: 0.05,
            depth: 8,
            leaf_rows: 3.0,
            row_share: 0.8,
            feature_share: 0.5,
            penalty: 1.0,
            threads: 1,
        }
    }

    /// The same for devices that were not learned from: fewer, smaller trees, because what they share is coarse.
    pub fn for_transfer(&self) -> Growth {
        let (rate, depth, leaf_rows) = (0.08, 7, 5.0);
        let (row_share, feature_share) = (0.7, 0.4);
        Growth { rounds: self.rounds / 2, rate, depth, leaf_rows, row_share, feature_share, ..self.clone() }
    }

    /// XGBoost's own defaults.
    pub fn plain() -> Growth {
        let (rate, depth, leaf_rows) = (0.3, 6, 1.0);
        Growth { rounds: 100, rate, depth, leaf_rows, row_share: 1.0, feature_share: 1.0, ..Growth::boosting() }
    }

    fn parameters(&self, seed: u64) -> Vec<(&'static str, String)> {
        vec![
            ("objective", self.objective.clone()),
            ("eta", self.rate.to_string()),
            ("max_depth", self.depth.to_string()),
            ("min_child_weight", self.leaf_rows.to_string()),
            ("subsample", self.row_share.to_string()),
            ("colsample_bytree", self.feature_share.to_string()),
            ("lambda", self.penalty.to_string()),
            ("tree_method", "hist".to_owned()),
            ("max_bin", "512".to_owned()),
            ("base_score", "0".to_owned()),
            ("nthread", self.threads.to_string()),
            ("seed", (seed & 0x7fff_ffff).to_string()),
        ]
    }
}

/// Grows trees on rows and what is to be learned of each.
pub fn fit(matrix: &Matrix, labels: &[f32], weights: Option<&[f32]>, growth: &Growth, seed: u64) -> Result<Trees> {
    let data = Data::new(matrix)?.with_labels(labels)?;
    let data = match weights {
        Some(weights) => data.with_weights(weights)?,
        None => data,
    };
    let booster = Booster::train(&growth.parameters(seed), &data, growth.rounds)?;
    Trees::from_json(&booster.json()?)
}
