//! The public GPU tables, where they lie beside the checkout.

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
    let samples = samples(&[table], &mapping).expect("the table");
    let plan =
        Plan { protocol: Protocol::P1, learners: vec![Learner::Ours], seeds: vec![0], folds: 3, intervals: false };
    let found = evaluate(&samples, &plan).expect("an evaluation");
    assert!(found.learners["ours"].mape <= 2.5, "{found:?}");
}
