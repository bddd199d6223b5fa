//! `oppredict train` and `oppredict xgboost`.

use super::arguments::{Train, Xgboost};
use super::{load, print};
use crate::error::Result;
use crate::{bundle, exchange as trees};
use serde_json::json;

/// Learns and writes the predictor.
pub fn run(train: &Train) -> Result<u8> {
    let samples = load(&train.data)?;
    let predictor = crate::train::train(&samples, train.seed, train.tune)?;
    bundle::write(&predictor, &train.out)?;
    let operators: Vec<_> = predictor.learned.operators.keys().cloned().collect();
    print(&format!(
        "learned {} operators from {} samples ({} features); wrote `{}`",
        operators.len(),
        samples.rows.len(),
        samples.names.len(),
        train.out.display()
    ))?;
    if train.json {
        let document = json!({
            "out": train.out, "rows": samples.rows.len(), "left_out": samples.left_out, "operators": operators,
            "data_hash": predictor.about.data_hash,
        });
        print(&document.to_string())?;
    }
    Ok(0)
}

/// Writes the trees, or a predictor with trees that were read.
pub fn exchange(arguments: &Xgboost) -> Result<u8> {
    let mut predictor = bundle::read(&arguments.predictor)?;
    if let (Some(folder), Some(out)) = (&arguments.read, &arguments.out) {
        let replaced = trees::read(&mut predictor, folder)?;
        bundle::write(&predictor, out)?;
        print(&format!(
            "took the trees of {} from `{}`; wrote `{}`",
            replaced.join(", "),
            folder.display(),
            out.display()
        ))?;
    }
    if let Some(folder) = &arguments.write {
        let written = trees::write(&predictor, folder)?;
        print(&format!("wrote {} files into `{}`", written.len(), folder.display()))?;
    }
    Ok(0)
}
