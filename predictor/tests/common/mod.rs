//! A synthetic foreign table: two operators on three devices, whose times follow a law with tiles and waves.

use learn::train::{TrainOptions, train_predictor};
use samples::Samples;
use samples::table::Mapping;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

const MAPPING: &str = include_str!("../../samples/tests/made-up.toml");

pub fn write(folder: &Path) -> (PathBuf, PathBuf) {
    let mut mapping = MAPPING.to_owned();
    let mut table = "op,device,time_us,b,m,n,k,kernel\n".to_owned();
    for (name, units, clock, bandwidth) in
        [("small", 20.0, 1.0, 200.0), ("middle", 40.0, 1.2, 400.0), ("large", 80.0, 1.4, 900.0)]
    {
        let _ = write!(
            mapping,
            "\n[devices.{name}]\nunits = {units}\nflops_per_cycle = 128\nclock_ghz = {clock}\nbandwidth_gb_per_s = {bandwidth}\ncache_bytes = 4e6\n"
        );
        for step in 0..220u64 {
            // Sizes that spread over the range without a generator.
            let size = |salt: u64, most: u64| 16 + (step * 7919 + salt * 104_729) % most;
            let (b, m, n, k) = (1 + step % 7, size(1, 900), size(2, 700), size(3, 500));
            let tiles = (b * m.div_ceil(64) * n.div_ceil(64)) as f64;
            let flops = 2.0 * 64.0 * 64.0 * k as f64 * (tiles / units).ceil() * units;
            let product_us = 10.0 + flops / (0.7 * units * 128.0 * clock * 1e3);
            let soft_us = 8.0 + 8.0 * (m * n) as f64 / (0.6 * bandwidth * 1e3);
            let _ = writeln!(table, "product,{name},{product_us:.3},{b},{m},{n},{k},\"a, \"\"b\"\"\"");
            let _ = writeln!(table, "soft,{name},{soft_us:.3},,{m},{n},,");
        }
    }
    let (mapping_path, table_path) = (folder.join("mapping.toml"), folder.join("table.csv"));
    std::fs::write(&mapping_path, mapping).expect("a temporary folder takes files");
    std::fs::write(&table_path, table).expect("a temporary folder takes files");
    (mapping_path, table_path)
}

pub fn trained() -> &'static [u8] {
    static TRAINED: OnceLock<Vec<u8>> = OnceLock::new();
    TRAINED.get_or_init(|| {
        let (mut samples, _) = samples();
        // Rows of both operators stand in turns, so an odd step takes of both.
        let few: Vec<usize> = (0..samples.rows.len()).step_by(7).collect();
        samples.keep_rows(&few);
        let predictor =
            train_predictor(&samples, &TrainOptions { seed: 7, ..TrainOptions::default() }).expect("a predictor");
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("made-up.opp");
        predictor::bundle::write_bundle(&predictor, &path).expect("a file");
        std::fs::read(&path).expect("the file")
    })
}

pub fn samples() -> (Samples, Mapping) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (mapping, table) = write(folder.path());
    let mapping = Mapping::read_file(&mapping).expect("the mapping");
    (samples::table::read_samples(&[table], &mapping).expect("the table"), mapping)
}
