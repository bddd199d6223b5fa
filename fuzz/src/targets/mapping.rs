//! Parses arbitrary texts as a mapping, such as `configs/gpu-ops.toml`, and, after the first zero byte, as its table.

use super::valid_text;
use predictor::queries::{self, Cell, Setting};
use samples::features::attainable_ns;
use samples::table::{Mapping, read_samples};
use std::path::Path;

pub fn run(bytes: &[u8]) {
    let text = valid_text(bytes);
    let (mapping, table) = text.split_once('\0').unwrap_or((text, ""));
    let Ok(mapping) = Mapping::parse_text(mapping, Path::new("fuzz.toml")) else { return };
    let cells: Vec<(String, Cell)> =
        mapping.mapped_columns().into_iter().map(|name| (name.to_owned(), Cell::Number(64.0))).collect();
    let _ = queries::parse_row(&cells, &Setting::default(), Some(&mapping));
    if let Ok(operator) = queries::parse_operator(table.lines().next().unwrap_or_default(), Some(&mapping)) {
        for device in mapping.described_devices().values() {
            let _ = attainable_ns(&operator.work, device, 2.0);
        }
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("table.csv");
    std::fs::write(&path, table).expect("the folder takes it");
    let _ = read_samples(&[path], &mapping);
}
