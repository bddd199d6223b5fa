//! Ranks features by permutation importance: the increase of the error on held-out shapes if a feature is permuted.

use crate::error::{Error, Result};
use learn::boosted::BoostingParameters;
use learn::ensemble::{self, Purpose};
use learn::split;
use learn::{Fitted, by_operator};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;
use samples::Samples;
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Importance {
    pub operator: String,
    pub feature: String,
    /// Increase of the MAPE on held-out shapes if the feature is permuted, in percentage points.
    pub cost: f64,
}

/// Ranks features by permutation importance, on a held-out fifth of the shapes.
pub fn rank_importance(samples: &Samples, seed: u64) -> Result<Vec<Importance>> {
    let folds = split::by_group(&split::shape_groups(samples), 5, seed);
    let fold = folds.first().ok_or_else(|| Error::Data("the data has no shapes".to_owned()))?;
    let fitted = ensemble::fit_ensemble(
        samples,
        &fold.train,
        &|_| BoostingParameters::default_parameters(),
        seed,
        Purpose::Known,
    )?;
    let mut found = Vec::new();
    for (operator, rows) in by_operator(samples, &fold.test) {
        // Only the test rows are copied for each feature, to save memory.
        let asked = samples.select_rows(&rows);
        let rows: Vec<usize> = (0..rows.len()).collect();
        let mape = |samples: &Samples| {
            let times = fitted.predict(samples, &rows);
            let errors = samples.rows.iter().zip(times).map(|(row, time)| 100.0 * (time / row.time_ns - 1.0).abs());
            errors.sum::<f64>() / rows.len() as f64
        };
        let whole = mape(&asked);
        let mut order = rows.clone();
        order.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
        let cost = |(column, name): (usize, &String)| {
            let mut mixed = asked.clone();
            rows.iter()
                .zip(&order)
                .for_each(|(row, other)| mixed.features.set(*row, column, asked.features.row(*other)[column]));
            let operator = samples.operators[operator as usize].clone();
            Importance { operator, feature: name.clone(), cost: mape(&mixed) - whole }
        };
        found.extend(samples.names.par_iter().enumerate().map(cost).collect::<Vec<_>>());
    }
    found.sort_by(|one, two| two.cost.total_cmp(&one.cost));
    Ok(found)
}
