//! Tests of the features of code that TVM generated.

mod common;

use bench::Build;
use bench::{Ability, Bench};
use job::space::{Schedule, Setting, task_space};
use std::collections::BTreeMap;

#[track_caller]
fn figures(text: &str, others: &[(&str, Setting)]) -> BTreeMap<String, f64> {
    let mut workers = common::workers();
    let cpu = workers.capability(Ability::Build).expect("a builder starts")["cpu"].clone();
    let target = targets::llvm_target(&cpu, &["avx2".to_owned()], 1);
    let task = common::task(text);
    let mut knobs = task_space(&task, &target.machine).default;
    for (name, setting) in others {
        assert!(knobs.0.insert((*name).to_owned(), setting.clone()).is_some(), "`{name}` is a knob of `{text}`");
    }
    let job = common::build_job(&task, &target, &Schedule::Template { knobs });
    match workers.build_jobs(&[job], &mut || {}).pop() {
        Some(Build::Built(artifact)) => artifact.features,
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn a_product_multiplies_as_often_as_asked() {
    let text = "matmul:m=64,n=96,k=32";
    let macs = f64::from(64 * 96 * 32);
    let usual = figures(text, &[]);
    assert_eq!(usual["code_fma_lanes"], macs);
    assert!(usual["store_float_products"] + usual["store_float_mads"] >= macs, "{usual:?}");
    assert!(usual["code_cycles"] > 0.0 && usual["code_loops"] >= 1.0, "{usual:?}");
    // A tile of one column reads as much as it computes.
    let narrow = figures(text, &[("tile_x", Setting::Number(1)), ("tile_c", Setting::Number(1))]);
    assert!(narrow["code_loaded_bytes"] > 1.5 * usual["code_loaded_bytes"], "{narrow:?}\n{usual:?}");
}

#[test]
fn a_transposition_computes_nothing() {
    let found = figures("transpose(f32[8,48,16]) permutation=[0,2,1]", &[]);
    assert_eq!(found["code_fmas"], 0.0);
    assert_eq!(found["store_bytes"], 2.0 * 4.0 * 8.0 * 48.0 * 16.0, "it reads and writes each number once");
    assert!(found["code_stored_bytes"] > 0.0, "{found:?}");
}
