//! Feeds arbitrary texts to the reader of mappings, then a table to what was read; both must be refused or understood.
//!
//! What follows the first zero byte is the table, as CSV. Run with `fuzz/run mapping`; a
//! good start is `configs/gpu-ops.toml` with a few rows of its table behind it.

use super::valid_text;
use predictor::queries::{self, Cell, Setting};
use samples::features::attainable_ns;
use samples::table::{Mapping, samples};
use std::path::Path;

/// Runs the target.
pub fn run(bytes: &[u8]) {
    let text = valid_text(bytes);
    let (mapping, table) = text.split_once('\0').unwrap_or((text, ""));
    let Ok(mapping) = Mapping::parse(mapping, Path::new("fuzz.toml")) else { return };
    let cells: Vec<(String, Cell)> =
        mapping.columns().into_iter().map(|name| (name.to_owned(), Cell::Number(64.0))).collect();
    let _ = queries::row(&cells, &Setting::default(), Some(&mapping));
    if let Ok(operator) = queries::operator(table.lines().next().unwrap_or_default(), Some(&mapping)) {
        for device in mapping.devices().values() {
            let _ = attainable_ns(&operator.work, device, 2.0);
        }
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("table.csv");
    std::fs::write(&path, table).expect("the folder takes it");
    let _ = samples(&[path], &mapping);
}
