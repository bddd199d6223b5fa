//! Whole models run: the executor gives what the reference does, for models of every source.
#![allow(missing_docs)]

use serde_json::Value;
use std::fs;
use std::process::Command;
use tests::workspace::root;
use tests::{Bench, run, skip};

/// Runs a model and expects it to be right.
fn right(bench: &Bench, arguments: &str) -> Value {
    let ran = run(bench.opcollect(&format!("model run --precision 0.5 --json --wait 300 {arguments}"))).expect(0);
    let report = ran.json();
    let number = |name: &str| report[name].as_f64().unwrap_or_else(|| panic!("no `{name}`: {ran}"));
    assert_eq!(report["check"]["is_right"], true, "{ran}");
    assert!(number("median_ns") > 0.0 && number("first_run_ns") > 0.0, "{ran}");
    assert!(number("activation_bytes") <= 1.1 * number("least_activation_bytes"), "{ran}");
    report
}

#[test]
fn models_of_the_zoo_are_right_on_one_thread_and_on_all() {
    let bench = Bench::new();
    for threads in ["", "--threads 1"] {
        right(&bench, &format!("--modelsource local --modelname mlp --batchsize 3 {threads}"));
    }
    let resnet = right(&bench, "--modelsource local --modelname resnet-18:hw=64");
    assert_eq!(resnet["tasks"].as_u64(), Some(18), "{resnet}");
    assert!(resnet["constant_bytes"].as_u64() > Some(40 << 20), "{resnet}");
}

#[test]
fn transformers_are_right_in_both_phases() {
    let bench = Bench::new();
    let small = "--modelsource transformers --modelname gpt2:n_layer=2,n_embd=64,n_head=4,vocab_size=300 --sequence 9";
    right(&bench, small);
    right(&bench, &format!("{small} --phase decode"));
    right(&bench, &format!("{small} --attention split"));
}

#[test]
fn models_in_files_are_right() {
    let bench = Bench::new();
    let models = root().join("models/readers/tests");
    let quantised = models.join("tflite-cases/one_layer_int8/qdq.onnx");
    right(&bench, &format!("--modelsource onnx --modelname {}", quantised.display()));
    // The second batch sees nothing, and answers with zeros.
    let attended = root().join("tests/onnx-attention/truths/model.onnx");
    right(&bench, &format!("--modelsource onnx --modelname {}", attended.display()));
    let exported = models.join("torch/small_image.pt2");
    right(&bench, &format!("--modelsource torch --modelname {} --shape x=2x3x8x8", exported.display()));
}

#[test]
fn inputs_come_from_files_and_outputs_go_to_files() {
    let bench = Bench::new();
    let script = "import numpy, sys; numpy.save(sys.argv[1], numpy.arange(12, dtype='float32').reshape(3, 4) - 6)";
    let python = root().join(".venv/bin/python");
    let done = Command::new(&python).arg("-c").arg(script).arg(bench.path("x.npy")).output();
    if !done.is_ok_and(|done| done.status.success()) {
        return skip("there is no Python with NumPy");
    }
    let relu = "--modelsource simple --modelname relu:shape=3x4";
    let graph = run(bench.opcollect(&format!("graph {relu} --format json"))).expect(0).json();
    let name = graph["values"][0]["name"].as_str().expect("the input has a name").to_owned();
    right(&bench, &format!("{relu} --input {name}=x.npy --output out"));
    let files: Vec<_> = fs::read_dir(bench.path("out")).expect("a folder").flatten().map(|file| file.path()).collect();
    assert_eq!(files.len(), 1);
    let script = "import numpy, sys; y = numpy.load(sys.argv[1]); print(y.dtype, y.shape, y.sum())";
    let done = Command::new(&python).arg("-c").arg(script).arg(&files[0]).output().expect("Python runs");
    assert_eq!(String::from_utf8_lossy(&done.stdout).trim(), "float32 (3, 4) 15.0");
}

/// Whether ONNX Runtime's library is among the wheels.
fn has_onnxruntime() -> bool {
    let site_packages = root().join(".venv/lib").read_dir().into_iter().flatten().flatten();
    site_packages.into_iter().any(|python| python.path().join("site-packages/onnxruntime/capi").is_dir())
}

#[test]
fn models_are_compared_with_onnx_runtime() {
    if !has_onnxruntime() {
        return skip("ONNX Runtime's library is not installed");
    }
    let bench = Bench::new();
    let gpt = "--modelsource transformers --modelname gpt2:n_layer=1,n_embd=32,n_head=4,vocab_size=50 --sequence 5";
    for (model, threads) in [("--modelsource local --modelname mlp --batchsize 2", 1), (gpt, 1)] {
        let command = format!("model compare {model} --threads {threads} --rounds 6 --wait 300 --json");
        let ran = run(bench.opcollect(&command)).expect(0);
        let report = ran.json();
        let variants = report["variants"].as_array().expect("variants");
        let names: Vec<_> = variants.iter().map(|one| one["variant"].as_str().unwrap_or_default()).collect();
        assert_eq!(names, ["default", "onnxruntime"], "{ran}");
        for one in variants {
            assert_eq!(one["check"]["is_right"], true, "{ran}");
            assert_eq!(one["round_medians_ns"].as_array().map(Vec::len), Some(6), "{ran}");
            let number = |name: &str| one[name].as_f64().unwrap_or_else(|| panic!("no `{name}`: {ran}"));
            assert!(number("n") >= 12.0 && number("min_ns") <= number("median_ns"), "{ran}");
            assert!(number("median_ns") <= number("p95_ns") && number("peak_memory_bytes") > 0.0, "{ran}");
            let ratio = one["ratio"]["median"].as_f64().expect("a ratio");
            let interval = one["ratio"]["interval"].as_array().expect("six rounds give an interval");
            assert!(interval[0].as_f64() <= Some(ratio) && Some(ratio) <= interval[1].as_f64(), "{ran}");
        }
        assert_eq!(variants[0]["ratio"]["interval"], serde_json::json!([1.0, 1.0]), "{ran}");
    }
}

#[test]
fn the_best_schedules_of_a_store_are_compared_with_the_default_ones() {
    let bench = Bench::new();
    let mlp = "--modelsource local --modelname mlp --threads 1";
    let sweep = format!("{mlp} --config quick.toml --schedules 2 --cache warm --wait 300 --store store");
    run(bench.opcollect(&sweep)).expect(0);
    let compare = |model: &str| {
        let variants = "--variant best --variant default --store store --rounds 1 --wait 300";
        run(bench.opcollect(&format!("model compare {model} {variants} --json"))).expect(0)
    };
    let ran = compare(mlp);
    let best = &ran.json()["variants"][0];
    assert_eq!((best["tasks"].as_u64(), best["tasks_found"].as_u64()), (Some(4), Some(4)), "{ran}");
    assert_eq!(best["check"]["is_right"], true, "{ran}");
    // Other shapes are other tasks.
    let ran = compare(&format!("{mlp} --batchsize 2"));
    assert_eq!(ran.json()["variants"][0]["tasks_found"].as_u64(), Some(0), "{ran}");
}

#[test]
fn what_cannot_be_compared_is_one_error() {
    let bench = Bench::new();
    let mlp = "--modelsource local --modelname mlp";
    let pool = "--modelsource simple --modelname adaptive_avg_pool:shape=1x3x10x10,to=7x7";
    for (arguments, code, wanted) in [
        (format!("{mlp} --variant default --variant default"), 2, "is given twice"),
        (format!("{mlp} --variant best"), 2, "needs a store"),
        (format!("{mlp} --variant default --store nowhere"), 2, "is for `--variant best`"),
        (format!("{mlp} --variant best --store nowhere"), 2, "nowhere"),
        (format!("{mlp} --variant default --rounds 0"), 2, "--rounds"),
        (format!("{mlp} --variant default --batchsize 1,8"), 2, "one model at one size"),
        (format!("{mlp} --variant default --executor vm"), 2, "`--executor vm` makes code for all sizes"),
        (format!("{mlp} --variant default --attention both"), 2, "`--attention both` cuts a model in two ways"),
        (format!("{mlp} --variant default --variations 2"), 2, "`--variations` makes tasks"),
    ] {
        let ran = run(bench.opcollect(&format!("model compare {arguments}"))).expect(code);
        let errors = ran.stderr.lines().filter(|line| line.starts_with("error:")).count();
        assert!(errors == 1 && ran.stderr.contains(wanted), "{arguments}: {ran}");
    }
    let mut without = bench.opcollect(&format!("model compare {mlp}"));
    without.env("OPCOLLECT_TVM", bench.path("packages/tvm/lib"));
    let ran = run(without).expect(3);
    assert!(ran.stderr.contains("ONNX Runtime's library is not installed"), "{ran}");
    assert!(ran.stderr.contains("hint: run `scripts/setup --test`"), "{ran}");
    if !has_onnxruntime() {
        return skip("ONNX Runtime's library is not installed");
    }
    let ran = run(bench.opcollect(&format!("model compare {pool}"))).expect(2);
    assert!(ran.stderr.contains("cannot be an ONNX file") && ran.stderr.contains("adaptive_pool"), "{ran}");
}

#[test]
fn what_cannot_be_run_is_one_error() {
    let bench = Bench::new();
    bench.write("text.npy", "this is no array");
    let mlp = "--modelsource local --modelname mlp";
    for (arguments, code, wanted) in [
        (format!("{mlp} --batchsize 1,8"), 2, "one model at one size"),
        (format!("{mlp} --modelname resnet-18"), 2, "one model at one size"),
        (format!("{mlp} --input nowhere"), 2, "is not a name and a file"),
        (format!("{mlp} --input nowhere=text.npy"), 2, "has no input `nowhere`"),
        (format!("{mlp} --threads 4000"), 2, "threads"),
        (format!("{mlp} --target cuda --arch sm_80"), 2, "whole models run on CPUs"),
        (format!("{mlp} --backend torch"), 2, "has no code to run"),
        (format!("{mlp} --executor vm"), 2, "`--executor vm` makes code for all sizes"),
        ("--modelsource local --modelname no-such-model".to_owned(), 2, "no-such-model"),
    ] {
        let ran = run(bench.opcollect(&format!("model run {arguments}"))).expect(code);
        let errors = ran.stderr.lines().filter(|line| line.starts_with("error:")).count();
        assert!(errors == 1 && ran.stderr.contains(wanted), "{arguments}: {ran}");
    }
    let ran = run(bench.opcollect(&format!("model run {mlp} --input x=text.npy")));
    assert!(ran.stderr.contains("is no array in NumPy's format") || ran.stderr.contains("has no input"), "{ran}");
}
