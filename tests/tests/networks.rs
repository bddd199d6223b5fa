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
        ("--modelsource local --modelname no-such-model".to_owned(), 2, "no-such-model"),
    ] {
        let ran = run(bench.opcollect(&format!("model run {arguments}"))).expect(code);
        let errors = ran.stderr.lines().filter(|line| line.starts_with("error:")).count();
        assert!(errors == 1 && ran.stderr.contains(wanted), "{arguments}: {ran}");
    }
    let ran = run(bench.opcollect(&format!("model run {mlp} --input x=text.npy")));
    assert!(ran.stderr.contains("is no array in NumPy's format") || ran.stderr.contains("has no input"), "{ran}");
}
