//! `oppredict features`.

use crate::{DONE, paper, print};
use predictor::Result;
use report::{Table, words};
use samples::features::FEATURES;

pub fn run() -> Result<u8> {
    let mut table = Table::new([words("feature"), words("unit"), words("source")]);
    for feature in FEATURES {
        table.row([feature.name, feature.unit, feature.origin.name()]);
    }
    print(&table.on(&paper()))?;
    Ok(DONE)
}
