//! Campaigns through PyTorch's library, with the real programs, as built and run by `scripts/test-torch`.
#![allow(missing_docs)]

use datasets::{Outcome, Record, Target};
use std::collections::BTreeSet;
use std::path::Path;
use tests::workspace::root;
use tests::{Bench, program, run, stores};

/// Returns whether the library's worker belongs to this build; prints a message otherwise.
fn is_built() -> bool {
    let is_built = std::env::var_os("OPCOLLECT_TEST_TORCH").is_some();
    if is_built {
        program("opcollect-torch");
    } else {
        tests::skip("`scripts/test-torch` builds PyTorch's worker and runs this");
    }
    is_built
}

fn records(bench: &Bench) -> Vec<Record> {
    stores::records(&bench.path("store"))
}

fn file(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("torchscript").join(name).display().to_string()
}

#[test]
fn the_library_computes_the_same_tasks() {
    if !is_built() {
        return;
    }
    let bench = Bench::new();
    let common = "--modelsource local --modelname mlp --config quick.toml --store store --json";
    let ran = run(bench.opcollect(&format!("{common} --backend torch"))).expect(0).json();
    assert_eq!(ran["outcomes"]["counts"]["ok"], ran["attempts"]);
    let vendor = records(&bench);
    assert!(!vendor.is_empty());
    for record in &vendor {
        assert_eq!((record.target, record.outcome), (Target::Torch, Outcome::Ok));
        assert!(record.target_text.as_ref().is_some_and(|text| text.contains(r#""version":"2."#)), "{record:?}");
        assert!(record.schedule.is_none() && record.tvm_version.is_none() && record.max_abs_error.is_some());
    }
    // Nothing is measured twice, and TVM's times of the same tasks are stored separately.
    let again = run(bench.opcollect(&format!("{common} --backend torch"))).expect(0).json();
    assert_eq!(again["known_before"], ran["attempts"]);
    run(bench.opcollect(&format!("{common} --schedules 1"))).expect(0);
    let all = records(&bench);
    let hashes = |target: Target| -> BTreeSet<String> {
        all.iter().filter(|record| record.target == target).map(|record| record.task_hash.clone()).collect()
    };
    assert_eq!(hashes(Target::Torch), hashes(Target::Llvm));
}

#[test]
fn a_partner_computes_supported_operators() {
    if !is_built() {
        return;
    }
    let bench = Bench::new();
    let mut command = bench.opcollect(
        "--modelsource simple --modelname dense:m=4,n=16,k=8,bias=1,act=relu --modelname sigmoid:shape=3x17 \
         --modelname softmax:shape=3x17 --schedules 2 --config quick.toml --store store --json",
    );
    command.args(["--target", "cpu-vendor, llvm"]);
    run(command).expect(0);
    let mut who: Vec<(String, Target)> =
        records(&bench).into_iter().map(|record| (record.op_kind, record.target)).collect();
    who.sort();
    who.dedup();
    let expected = [("dense", Target::Torch), ("sigmoid", Target::Llvm), ("softmax", Target::Torch)];
    assert_eq!(who, expected.map(|(kind, target)| (kind.to_owned(), target)));
}

#[test]
fn unsupported_operators_are_records() {
    if !is_built() {
        return;
    }
    let bench = Bench::new();
    run(bench.opcollect(
        "--modelsource simple --modelname avg_pool2d:c=4,hw=11,k=3,d=2,p=2 --backend torch --config quick.toml \
         --store store",
    ))
    .expect(1);
    let records = records(&bench);
    let [record] = records.as_slice() else { panic!("{records:?}") };
    assert_eq!(record.outcome, Outcome::Skipped);
    assert_eq!(record.reason.as_deref(), Some("unsupported: PyTorch's average pooling does not support dilation"));
}

#[test]
fn whole_models_are_compared_with_the_library() {
    if !is_built() {
        return;
    }
    let bench = Bench::new();
    let models = root().join("models/readers/tests");
    let gpt = "--modelsource transformers --modelname gpt2:n_layer=2,n_embd=64,n_head=4,vocab_size=300 --sequence 9";
    for (model, threads) in [
        ("--modelsource local --modelname mlp --batchsize 3".to_owned(), 1),
        ("--modelsource local --modelname resnet-18:hw=64".to_owned(), 2),
        ("--modelsource local --modelname squeezenet-1.1:hw=64".to_owned(), 1),
        (gpt.to_owned(), 1),
        (format!("{gpt} --phase decode --attention split"), 1),
        (
            format!(
                "--modelsource torch --modelname {} --shape x=2x3x8x8",
                models.join("torch/small_image.pt2").display()
            ),
            1,
        ),
    ] {
        let variants = "--variant default --variant torch --rounds 6 --wait 300 --json";
        let ran = run(bench.opcollect(&format!("model compare {model} --threads {threads} {variants}"))).expect(0);
        let report = ran.json();
        let torch = &report["variants"][1];
        assert_eq!((torch["variant"].as_str(), &torch["check"]["is_right"]), (Some("torch"), &true.into()), "{ran}");
        assert_eq!(torch["round_medians_ns"].as_array().map(Vec::len), Some(6), "{ran}");
        assert!(torch["ratio"]["interval"].is_array() && torch["tasks"].is_null(), "{ran}");
    }
    // An operator that PyTorch does not support gives one error.
    let quantised = models.join("tflite-cases/one_layer_int8/qdq.onnx").display().to_string();
    let ran = run(bench.opcollect(&format!(
        "model compare --modelsource onnx --modelname {quantised} --variant torch --rounds 1 --wait 300"
    )))
    .expect(3);
    assert!(ran.stderr.contains("PyTorch's integer kernels return rescaled results"), "{ran}");
}

#[test]
fn torchscript_runs_as_a_whole() {
    if !is_built() {
        return;
    }
    let bench = Bench::new();
    let script = file("two-inputs.pt");
    let arguments = format!("--modelsource torch --modelname {script} --config quick.toml --store store");
    let whole = format!("{arguments} --backend torch --shape 0=5x4 --shape 1:i64=5");
    let ran = run(bench.opcollect(&whole)).expect(0);
    assert!(ran.stdout.contains("torchscript f32[5,4] i64[5]"), "{ran}");
    let records = records(&bench);
    let [record] = records.as_slice() else { panic!("{records:?}") };
    assert_eq!((record.outcome, record.target), (Outcome::Ok, Target::Torch));
    assert_eq!((record.op_kind.as_str(), record.max_abs_error), ("module", None));
    // A wrong number of inputs is rejected by PyTorch and becomes a record.
    let ran = run(bench.opcollect(&format!("{arguments} --backend torch --shape 0=5x4"))).expect(1);
    assert!(ran.stdout.contains("no time for torchscript f32[5,4]"), "{ran}");
    let ran = run(bench.opcollect(&format!("{arguments} --backend torch"))).expect(2);
    assert!(ran.stderr.contains("TorchScript files lack the shapes of inputs"), "{ran}");
}
