//! The public GPU tables, where they lie beside the checkout.
#![allow(clippy::print_stderr)]

use predictor::evaluate::{Plan, Protocol, evaluate};
use predictor::learn::Learner;
use predictor::table::{Mapping, samples};
use std::path::Path;

#[test]
fn layer_norm_with_shapes_held_out_keeps_its_bar() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let table = root.join("../shared/data/gpu-ops/ln.csv.gz");
    if !table.exists() {
        eprintln!("skipped: `{}` is not there", table.display());
        return;
    }
    let mapping = Mapping::read(&root.join("configs/gpu-ops.toml")).expect("the mapping");
    let mut samples = samples(&[table], &mapping).expect("the table");
    // One device is enough to see a fault, and takes seconds.
    let of_device = |row: &usize| samples.device_name(*row) == "NVIDIA A100-PCIE-40GB";
    let rows: Vec<usize> = (0..samples.rows.len()).filter(of_device).collect();
    samples.keep(&rows);
    let plan = Plan { folds: Some(3), ..Plan::of(Protocol::P1, &[Learner::Ours]) };
    let found = evaluate(&samples, &plan).expect("an evaluation");
    assert!(found.learners["ours"].mape <= 2.5, "{found:?}");
}
