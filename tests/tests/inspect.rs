//! Commands that show what would be done: complete, deterministic and machine-readable.
#![allow(missing_docs)]

use models::Graph;
use serde_json::Value;
use std::collections::BTreeSet;
use std::process::Stdio;
use tests::{Bench, run, start};

fn document(arguments: &str) -> Value {
    run(Bench::new().opcollect(arguments)).expect(0).json()
}

fn array(value: &Value) -> &Vec<Value> {
    value.as_array().unwrap_or_else(|| panic!("{value} is no array"))
}

#[test]
fn the_list_names_every_model() {
    let listed = document("list --json");
    let names: Vec<&str> = array(&listed).iter().map(|model| model["name"].as_str().expect("a name")).collect();
    let zoo = zoo::list_models().iter().map(|entry| entry.name);
    let all: Vec<&str> = zoo.chain(zoo::transformers::list_entries().iter().map(|entry| entry.name)).collect();
    assert_eq!(names, all);
    assert!(array(&listed).iter().all(|model| model["macs"].as_u64() > Some(0)));
}

#[test]
fn a_graph_reads_back() {
    let bench = Bench::new();
    let ran = run(bench.opcollect("graph --modelsource local --modelname mlp")).expect(0);
    let graph = Graph::from_text(&ran.stdout).unwrap_or_else(|error| panic!("{error}\n{ran}"));
    assert_eq!(format!("{}\n", graph.to_text().trim_end()), ran.stdout);
    let json = document("graph --modelsource local --modelname mlp --format json");
    let read: Graph = serde_json::from_value(json).expect("a graph");
    assert_eq!(read, graph);
    let dot = run(bench.opcollect("graph --modelsource local --modelname mlp --format dot")).expect(0);
    assert!(dot.stdout.starts_with("digraph"), "{dot}");
}

#[test]
fn tasks_are_those_of_the_graph() {
    let tasks = document("tasks --modelsource local --modelname mlp --json");
    let texts: Vec<&str> = array(&tasks).iter().map(|task| task["text"].as_str().expect("a text")).collect();
    assert_eq!(texts.len(), 4, "{texts:?}");
    let unfused = document("tasks --modelsource local --modelname mlp --fuse none --json");
    assert!(array(&unfused).len() > texts.len());
}

#[test]
fn variations_have_the_operators_of_a_task_and_other_sizes() {
    let tasks = |more: &str| document(&format!("tasks --modelsource local --modelname mlp --json {more}"));
    let (plain, varied) = (tasks(""), tasks("--variations 3"));
    assert_eq!(array(&varied)[..4], array(&plain)[..]);
    let drawn = &array(&varied)[4..];
    assert_eq!(drawn.len(), 12, "three of each task: {drawn:?}");
    let field = |task: &Value, name: &str| task[name].as_str().expect("a text").to_owned();
    let names: BTreeSet<String> = array(&plain).iter().map(|task| field(task, "name")).collect();
    let hashes: BTreeSet<String> = array(&varied).iter().map(|task| field(task, "hash")).collect();
    assert_eq!(hashes.len(), array(&varied).len(), "none twice");
    for task in drawn {
        assert!(names.contains(&field(task, "name")), "{task}");
        // Each operator is accepted by its text.
        let bench = Bench::new();
        let mut again = bench.opcollect("tasks --modelsource simple --json --modelname");
        again.arg(field(task, "model"));
        assert_eq!(run(again).expect(0).json()[0]["hash"], task["hash"]);
    }
    assert_eq!(tasks("--variations 3"), varied, "the same every time");
}

#[test]
fn a_transformer_has_lengths_phases_and_two_forms_of_attention() {
    let model = "tasks --modelsource transformers --modelname gpt2:n_layer=1 --json";
    let kinds = |more: &str| -> Vec<(String, String)> {
        let tasks = document(&format!("{model} {more}"));
        let text = |task: &Value, name: &str| task[name].as_str().expect("a text").to_owned();
        array(&tasks).iter().map(|task| (text(task, "kind"), text(task, "model"))).collect()
    };
    let both = kinds("--sequence 16,32 --phase prefill,decode");
    let models: std::collections::BTreeSet<&str> = both.iter().map(|(_, model)| model.as_str()).collect();
    assert_eq!(models.len(), 4, "{models:?}");
    let count = |tasks: &[(String, String)], kind: &str| tasks.iter().filter(|(found, _)| found == kind).count();
    let (fused, split, all) = (kinds(""), kinds("--attention split"), kinds("--attention both"));
    assert_eq!((count(&fused, "attention"), count(&fused, "softmax")), (1, 0));
    assert_eq!((count(&split, "attention"), count(&split, "softmax")), (0, 1));
    assert_eq!((count(&all, "attention"), count(&all, "softmax")), (1, 1));
}

#[test]
fn samples_depend_on_the_seed_alone() {
    let space = |seed: u64| {
        let task = "--modelsource simple --modelname matmul:m=64,n=64,k=64";
        document(&format!("space {task} --sample 20 --seed {seed} --json"))
    };
    let first = space(1);
    assert_eq!(array(&first[0]["sample"]).len(), 20);
    assert_eq!(space(1), first);
    assert_ne!(space(2)[0]["sample"], first[0]["sample"]);
    let ran = run(Bench::new().opcollect("space mlp --sample 1001")).expect(2);
    assert!(ran.stderr.contains("invalid value '1001' for '--sample <N>': 1001 is not in 0..=1000"), "{ran}");
}

#[test]
fn the_doctor_finds_this_build_s_libraries() {
    let findings = document("doctor --json");
    let libraries =
        array(&findings).iter().filter(|finding| finding["topic"].as_str().is_some_and(|t| t.contains("TVM")));
    let states: Vec<(&Value, &Value)> = libraries.map(|finding| (&finding["topic"], &finding["status"])).collect();
    assert!(states.len() >= 3 && states.iter().all(|(_, status)| *status == "ok"), "{states:?}");
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let bench = Bench::new();
    let mut command = bench.opcollect("list");
    let (reader, writer) = std::io::pipe().expect("a pipe can be made");
    drop(reader);
    command.stdout(Stdio::from(writer)).stderr(Stdio::piped());
    let output = command.output().expect("the program starts");
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
}

#[test]
fn the_version_is_printed() {
    let bench = Bench::new();
    let running = start(bench.opcollect("--version"));
    let ran = running.finish().expect(0);
    assert_eq!(ran.stdout, format!("opcollect {}\n", env!("CARGO_PKG_VERSION")));
}

fn tflite_case(name: &str) -> String {
    format!("{}/../models/readers/tests/tflite-cases/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn a_quantised_layer_is_the_same_task_from_either_file() {
    let hashes = |source: &str, file: &str| -> Vec<String> {
        let file = tflite_case(&format!("padded_int8/{file}"));
        let tasks = document(&format!("tasks --modelsource {source} --modelname {file} --json"));
        let layers = array(&tasks).iter().filter(|task| task["kind"] == "q_conv2d");
        layers.map(|task| task["hash"].as_str().expect("a hash").to_owned()).collect()
    };
    let from_tflite = hashes("tflite", "model.tflite");
    assert_eq!(from_tflite.len(), 1);
    assert_eq!(hashes("onnx", "qdq.onnx"), from_tflite);
    assert_eq!(hashes("onnx", "dynamic.onnx"), from_tflite);
}

#[test]
fn a_page_holds_the_drawing_of_a_graph() {
    let bench = Bench::new();
    let model = tflite_case("block_int8/model.tflite");
    run(bench.opcollect(&format!("graph --modelsource tflite --modelname {model} --html page.html"))).expect(0);
    let page = std::fs::read_to_string(bench.path("page.html")).expect("the page");
    assert!(page.starts_with("<!doctype html>") && page.contains("q_conv2d+bias+requantize"), "{page}");
    assert!(!page.contains("http://") && !page.contains("https://"), "the page needs no network");
}

#[test]
fn a_composite_target_lists_operators_per_partner() {
    let document = |target: &str| {
        let bench = Bench::new();
        let mut command = bench.opcollect("tasks --modelsource local --modelname mobilenet-v3-small --json");
        command.args(["--target", target]);
        run(command).expect(0).json()
    };
    let (plain, split) = (document("llvm"), document("cpu-vendor, llvm"));
    let partners = |tasks: &Value| array(tasks).iter().filter(|task| task["partner"] == "cpu-vendor").count();
    assert_eq!(partners(&plain), 0);
    assert!((1..array(&split).len()).contains(&partners(&split)), "{} of {}", partners(&split), array(&split).len());
}

#[test]
fn tasks_of_several_models_are_grouped() {
    let bench = Bench::new();
    let ran = run(bench.opcollect(
        "tasks --modelsource transformers --modelname gpt2:n_layer=1 --phase prefill,decode --sequence 8 --batchsize 1,2",
    ))
    .expect(0);
    for title in ["gpt2:n_layer=1 prefill 8 (batch 1)", "gpt2:n_layer=1 decode 8 (batch 2)"] {
        assert!(ran.stdout.lines().any(|line| line == title), "{title}: {ran}");
    }
    assert_eq!(ran.stdout.matches(" GFLOP\n").count(), 4, "each has its own sum: {ran}");
}
