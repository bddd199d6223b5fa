//! Tests with the public GPU tables, skipped if `shared/data/gpu-ops` is not next to the checkout.
#![allow(clippy::print_stderr)]

use learn::Learner;
use predictor::evaluate::{Plan, Protocol, evaluate};
use samples::table::{Mapping, read_samples};
use std::path::Path;

#[test]
fn layer_norm_with_shapes_held_out_keeps_its_bar() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let table = root.join("../shared/data/gpu-ops/ln.csv.gz");
    if !table.exists() {
        eprintln!("skipped: `{}` is not there", table.display());
        return;
    }
    let mapping = Mapping::read_file(&root.join("configs/gpu-ops.toml")).expect("the mapping");
    let mut samples = read_samples(&[table], &mapping).expect("the table");
    // One device is enough to see a fault, and takes seconds.
    let of_device = |row: &usize| samples.device_name(*row) == "NVIDIA A100-PCIE-40GB";
    let rows: Vec<usize> = (0..samples.rows.len()).filter(of_device).collect();
    samples.keep_rows(&rows);
    let plan = Plan { folds: Some(3), ..Plan::for_protocol(Protocol::P1, &[Learner::Ensemble]) };
    let found = evaluate(&samples, &plan).expect("an evaluation");
    assert!(found.learners["ours"].mape <= 2.5, "{found:?}");
}

#[test]
fn the_mapping_fits_its_tables_and_a_mapping_with_exchanged_sizes_does_not() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let own = std::fs::read_to_string(root.join("configs/gpu-ops.toml")).expect("the mapping");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("exchanged.toml");
    let (right, wrong) = (r#"columns = "K", depth = "N""#, r#"columns = "N", depth = "K""#);
    assert_eq!(own.matches(right).count(), 2, "batched products and linear layers");
    std::fs::write(&path, own.replace(right, wrong)).expect("a file");
    for name in ["bmm", "linear", "conv", "softmax", "ln", "elem"] {
        let table = root.join(format!("../shared/data/gpu-ops/{name}.csv.gz"));
        if !table.exists() {
            eprintln!("skipped: `{}` is not there", table.display());
            continue;
        }
        let mapping = Mapping::read_file(&root.join("configs/gpu-ops.toml")).expect("the mapping");
        let found = read_samples(std::slice::from_ref(&table), &mapping).expect("the table");
        assert!(found.warnings.is_empty(), "{name}: {:?}", found.warnings);
        if ["bmm", "linear"].contains(&name) {
            let error = read_samples(&[table], &Mapping::read_file(&path).expect("a mapping"))
                .expect_err("exchanged")
                .to_string();
            assert!(error.contains(right) && error.contains(&format!("launch grids of `{name}`")), "{error}");
        }
    }
}
