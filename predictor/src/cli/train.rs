//! `oppredict train`.

use super::arguments::Train;
use super::{load, print};
use crate::bundle;
use crate::error::Result;
use serde_json::json;

/// Learns and writes the predictor.
pub fn run(train: &Train) -> Result<u8> {
    let samples = load(&train.data)?;
    let predictor = crate::train::train(&samples, train.seed)?;
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
