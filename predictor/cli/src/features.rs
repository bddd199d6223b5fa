//! The command `oppredict features`.

use crate::{DONE, print_line, stdout_paper};
use predictor::Result;
use report::{Table, text_column};
use samples::features::FEATURES;

pub fn run() -> Result<u8> {
    let mut table = Table::new([text_column("feature"), text_column("unit"), text_column("source")]);
    for feature in FEATURES {
        table.add_row([feature.name, feature.unit, feature.origin.name()]);
    }
    print_line(&table.format_for(&stdout_paper()))?;
    Ok(DONE)
}
