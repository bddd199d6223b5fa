//! Tests that other runtimes compute the results of ONNX files written by this program: all operators, many networks.

mod common;

use bench::{Ability, Bench, Workers};
use common::PATIENCE;
use expect_test::{Expect, expect};
use job::{Engine, NetworkJob, RunReply};
use measure::counters::{Backend, CounterRequest};
use measure::{Method, Plan, affinity};
use models::{DType, Graph};
use passes::simplify_graph;
use reference::Tensor;
use runtimes::{MODEL, RuntimeDescription, onnxruntime, openvino};
use std::fs;
use std::io::Write;
use std::path::Path;
use tempfile::TempDir;
use zoo::{simple, transformers};

struct Other {
    engine: Engine,
    ability: Ability,
    described: &'static RuntimeDescription,
    version: &'static str,
}

const ONNX_RUNTIME: Other = Other {
    engine: Engine::OnnxRuntime,
    ability: Ability::RunOnnxRuntime,
    described: &onnxruntime::DESCRIPTION,
    version: "1.",
};

const OPENVINO: Other =
    Other { engine: Engine::OpenVino, ability: Ability::RunOpenVino, described: &openvino::DESCRIPTION, version: "20" };

fn workers(of: &Other) -> Option<Workers> {
    let mut workers = common::workers();
    match workers.capability(of.ability) {
        Ok(versions) => {
            assert!(versions[of.described.key].starts_with(of.version), "{versions:?}");
            Some(workers)
        }
        Err(fault) if fault.to_string().contains("is not installed") => {
            // Past libtest, which keeps the output of tests that pass to itself.
            let skipped = format!("skipped: {}'s library is not installed\n", of.described.name);
            let _ = std::io::stderr().lock().write_all(skipped.as_bytes());
            None
        }
        Err(fault) => panic!("{fault}"),
    }
}

fn job(of: &Other, file: &[u8], inputs: &[Tensor], threads: usize) -> (TempDir, NetworkJob) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    fs::write(folder.path().join(MODEL), file).expect("a file");
    write_inputs(folder.path(), inputs);
    let allowed = affinity::allowed_cpus().expect("the system tells the CPUs");
    let quick = Plan { samples_min: 1, samples_max: 2, sampling_time_min_ns: 0, time_budget_ns: 0, ..Plan::default() };
    let job = NetworkJob {
        engine: of.engine,
        program: folder.path().to_owned(),
        inputs: folder.path().join("inputs.bin"),
        outputs: folder.path().join("outputs.bin"),
        cpus: allowed.into_iter().take(threads).collect(),
        method: Method::Sample(quick),
        placement: measure::Placement::default(),
        counters: CounterRequest { backend: Backend::None, ..CounterRequest::default() },
        profile: None,
        code: job::listing::CodeRequests::default(),
    };
    (folder, job)
}

fn write_inputs(folder: &Path, inputs: &[Tensor]) {
    let bytes: Vec<u8> = inputs.iter().flat_map(|tensor| tensor.as_bytes().to_vec()).collect();
    fs::write(folder.join("inputs.bin"), bytes).expect("a file");
}

/// Returns a library's largest error relative to the largest number of the reference, or the reason of its failure.
fn apart(of: &Other, workers: &mut Workers, graph: &Graph, threads: usize) -> Result<f64, String> {
    let file = readers::onnx::write_graph(graph).map_err(|error| error.to_string())?;
    let inputs = reference::graph_inputs(graph, 7).expect("inputs");
    let wanted = reference::evaluate_graph(graph, &inputs).expect("a reference");
    let (_folder, job) = job(of, &file, &inputs, threads);
    match workers.run_network(&job, PATIENCE) {
        Ok(RunReply::Measured(measured)) => assert!(measured.measurement.median_ns > 0.0),
        Ok(RunReply::Failed(why)) => return Err(why),
        other => panic!("{}: {other:?}", graph.name),
    }
    let bytes = fs::read(&job.outputs).expect("outputs");
    let mut rest = bytes.as_slice();
    let mut worst = 0.0f64;
    for wanted in &wanted {
        let (own, others) = rest.split_at(wanted.as_bytes().len());
        rest = others;
        let found = Tensor::from_bytes(wanted.tensor_type().clone(), own.to_vec()).expect("as many bytes").to_numbers();
        let wanted = wanted.to_numbers();
        let largest =
            wanted.iter().filter(|one| one.is_finite()).fold(f64::MIN_POSITIVE, |most, one| most.max(one.abs()));
        for (one, other) in found.iter().zip(&wanted) {
            let is_same = one == other || (one.is_nan() && other.is_nan());
            let difference = if is_same { 0.0 } else { (one - other).abs() / largest };
            worst = worst.max(if difference.is_nan() { f64::INFINITY } else { difference });
        }
    }
    assert!(rest.is_empty(), "{}: {} bytes too many", graph.name, rest.len());
    Ok(worst)
}

fn operators_are_right_or_named(of: &Other, wanted: &Expect) {
    let Some(mut workers) = workers(of) else { return };
    let mut refused = Vec::new();
    for form in simple::list_forms() {
        let graph = simple::build_operator(form.example).expect(form.example);
        match apart(of, &mut workers, &graph, 1) {
            Ok(apart) => {
                let is_narrow = graph.values.iter().any(|value| matches!(value.ty.dtype, DType::F16 | DType::BF16));
                assert!(apart < if is_narrow { 1e-2 } else { 1e-4 }, "{}: off by {apart:.1e}", form.example);
            }
            // Its own words change with its versions.
            Err(why) => refused.push(format!("{}: {}", form.name, why.split(": ").next().unwrap_or_default())),
        }
    }
    wanted.assert_eq(&refused.join("\n"));
}

fn networks_are_right_on_one_thread_and_on_all(of: &Other) {
    let Some(mut workers) = workers(of) else { return };
    let options = |phase| transformers::Options { sequence: 9, phase, ..transformers::Options::default() };
    let small = "hidden_size=32,num_attention_heads=4,intermediate_size=64,vocab_size=50,num_hidden_layers=1";
    let mut graphs: Vec<Graph> = ["mlp", "lstm", "resnet-18:hw=32", "mobilenet-v2:hw=32", "squeezenet:hw=64"]
        .into_iter()
        .map(|name| zoo::build_model(name, 1).expect(name))
        .collect();
    for (name, phase) in [
        ("gpt2:n_layer=1,n_embd=32,n_head=4,vocab_size=50".to_owned(), transformers::Phase::Prefill),
        ("gpt2:n_layer=1,n_embd=32,n_head=4,vocab_size=50".to_owned(), transformers::Phase::Decode),
        (format!("bert-base-uncased:{small}"), transformers::Phase::Prefill),
        (format!("llama-7b:{small},num_key_value_heads=2"), transformers::Phase::Decode),
    ] {
        graphs.push(transformers::load_model(&name, &options(phase)).expect(&name).graph);
    }
    for graph in graphs {
        let graph = simplify_graph(&graph).expect("a simple graph");
        for threads in [1, usize::MAX] {
            let apart = apart(of, &mut workers, &graph, threads).expect(&graph.name);
            assert!(apart < 1e-4, "{}: off by {apart:.1e}", graph.name);
        }
    }
}

fn a_model_is_kept_until_something_changes(of: &Other) {
    let Some(mut workers) = workers(of) else { return };
    let graph = simple::build_operator("relu:shape=2x3").expect("an operator");
    let ty = &graph.values[graph.inputs[0].0 as usize].ty;
    let tensor = |first: f64| Tensor::from_numbers(ty.clone(), &[first, -1.0, 2.0, 3.0, 4.0, 5.0]).expect("numbers");
    let (folder, job) = job(of, &readers::onnx::write_graph(&graph).expect("a file"), &[tensor(7.0)], 1);
    let mut first = || {
        let ran = workers.run_network(&job, PATIENCE);
        assert!(matches!(ran, Ok(RunReply::Measured(_))), "{ran:?}");
        let bytes = fs::read(&job.outputs).expect("outputs");
        Tensor::from_bytes(ty.clone(), bytes).expect("as many bytes").to_numbers()[..2].to_vec()
    };
    assert_eq!(first(), [7.0, 0.0]);
    assert_eq!(first(), [7.0, 0.0]);
    write_inputs(folder.path(), &[tensor(8.0)]);
    assert_eq!(first(), [8.0, 0.0]);
    let graph = simple::build_operator("neg:shape=2x3").expect("an operator");
    fs::write(folder.path().join(MODEL), readers::onnx::write_graph(&graph).expect("a file")).expect("a file");
    assert_eq!(first(), [-8.0, 1.0]);
}

fn what_cannot_be_run_is_told(of: &Other) {
    let Some(mut workers) = workers(of) else { return };
    let graph = simple::build_operator("relu:shape=2x3").expect("an operator");
    let file = readers::onnx::write_graph(&graph).expect("a file");
    let mut told = |file: &[u8], inputs: &[Tensor]| {
        let (_folder, job) = job(of, file, inputs, 1);
        match workers.run_network(&job, PATIENCE) {
            Ok(RunReply::Failed(why)) => why,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(told(&file, &[]), "the model's inputs have 24 bytes, but the input data has 0");
    let refusal = format!("{} cannot load the model: ", of.described.name);
    for damaged in [b"no model", &file[..file.len() / 2]] {
        let why = told(damaged, &[]);
        assert!(why.starts_with(&refusal), "{why}");
    }
}

mod of_onnxruntime {
    use super::*;

    #[test]
    fn operators_are_right_or_named() {
        let wanted = expect![[r#"
            shift_left: graph `shift_left`, `shift_left` (shift_left)
            shift_right: graph `shift_right`, `shift_right` (shift_right)"#]];
        super::operators_are_right_or_named(&ONNX_RUNTIME, &wanted);
    }

    #[test]
    fn networks_are_right_on_one_thread_and_on_all() {
        super::networks_are_right_on_one_thread_and_on_all(&ONNX_RUNTIME);
    }

    #[test]
    fn a_model_is_kept_until_something_changes() {
        super::a_model_is_kept_until_something_changes(&ONNX_RUNTIME);
    }

    #[test]
    fn what_cannot_be_run_is_told() {
        super::what_cannot_be_run_is_told(&ONNX_RUNTIME);
    }
}

mod of_openvino {
    use super::*;

    #[test]
    fn operators_are_right_or_named() {
        let wanted = expect![[r#"
            shift_left: graph `shift_left`, `shift_left` (shift_left)
            shift_right: graph `shift_right`, `shift_right` (shift_right)
            wrap_pad: OpenVINO cannot load the model"#]];
        super::operators_are_right_or_named(&OPENVINO, &wanted);
    }

    #[test]
    fn networks_are_right_on_one_thread_and_on_all() {
        super::networks_are_right_on_one_thread_and_on_all(&OPENVINO);
    }

    #[test]
    fn a_model_is_kept_until_something_changes() {
        super::a_model_is_kept_until_something_changes(&OPENVINO);
    }

    #[test]
    fn what_cannot_be_run_is_told() {
        super::what_cannot_be_run_is_told(&OPENVINO);
    }
}
