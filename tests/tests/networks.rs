//! Whole models from every source run, and compute the reference's results.
#![allow(missing_docs)]

use datasets::{Choose, NETWORK, Origin, Outcome, Record, ScheduleSource, Source, Store};
use models::operators::{Compare, Reduce, Unary};
use models::{CompareOp, GraphBuilder, Op, ReduceOp, TensorType, UnaryOp, ValueId};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;
use tests::workspace::root;
use tests::{Bench, change_sealed, program, run, skip, stores};

fn right(bench: &Bench, arguments: &str) -> Value {
    let report = checked(bench, arguments);
    let number = |name: &str| report[name].as_f64().unwrap_or_else(|| panic!("no `{name}`: {report}"));
    assert!(number("median_ns") > 0.0 && number("first_run_ns") > 0.0, "{report}");
    assert!(number("activation_bytes") <= 1.1 * number("least_activation_bytes"), "{report}");
    report
}

/// Runs a model and checks its outputs.
fn checked(bench: &Bench, arguments: &str) -> Value {
    let ran = run(bench.opcollect(&format!("model run --precision 0.5 --json --wait 300 {arguments}"))).expect(0);
    let report = ran.json();
    assert_eq!(report["check"]["is_right"], true, "{ran}");
    report
}

#[test]
fn models_of_the_zoo_are_correct_on_one_and_all_threads() {
    let bench = Bench::new();
    for threads in ["", "--threads 1"] {
        right(&bench, &format!("--modelsource local --modelname mlp --batchsize 3 {threads}"));
    }
    let resnet = right(&bench, "--modelsource local --modelname resnet-18:hw=64");
    assert_eq!(resnet["tasks"].as_u64(), Some(18), "{resnet}");
    assert!(resnet["constant_bytes"].as_u64() > Some(40 << 20), "{resnet}");
}

/// Square roots of negative numbers are not equal to themselves.
#[test]
fn nan_is_not_equal_to_itself() {
    use CompareOp::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, NotEqual};
    const FUNCTIONS: [CompareOp; 6] = [Equal, NotEqual, Less, LessOrEqual, Greater, GreaterOrEqual];
    let mut builder = GraphBuilder::new("roots");
    let x = builder.add_input("x", TensorType::f32(&[8, 33])).expect("an input");
    let unary = |builder: &mut GraphBuilder, function, x| {
        builder.push(Op::Unary(Unary { function }), &[x]).expect("a function")
    };
    // Of numbers and their negatives, some have no root.
    let negative = unary(&mut builder, UnaryOp::Neg, x);
    let roots = [x, negative].map(|x| unary(&mut builder, UnaryOp::Sqrt, x));
    let mut compare =
        |root, function| builder.push(Op::Compare(Compare { function }), &[root, root]).expect("a comparison");
    let results: Vec<ValueId> =
        roots.into_iter().flat_map(|root| FUNCTIONS.map(|function| compare(root, function))).collect();
    let graph = builder.finish(&results).expect("a graph");
    let bench = Bench::new();
    fs::write(bench.path("roots.onnx"), readers::onnx::write_graph(&graph).expect("a file")).expect("it is written");
    right(&bench, "roots.onnx --threads 1");
}

/// The logarithm of 0 is -∞. Rows contain no infinity, some, or infinities alone.
#[test]
fn sums_of_exponentials_are_correct_for_infinities() {
    let mut builder = GraphBuilder::new("infinities");
    let x = builder.add_input("x", TensorType::f32(&[8, 33, 1])).expect("an input");
    let mut unary = |function, x| builder.push(Op::Unary(Unary { function }), &[x]).expect("a function");
    let positive = unary(UnaryOp::Relu, x);
    let least = unary(UnaryOp::Log, positive);
    let largest = unary(UnaryOp::Neg, least);
    let mut results = Vec::new();
    for (data, axis) in [(least, 1), (least, 2), (largest, 1), (largest, 2)] {
        let sum = Op::Reduce(Reduce { function: ReduceOp::LogSumExp, axes: vec![axis], keep: false });
        results.push(builder.push(sum, &[data]).expect("a sum"));
    }
    let graph = builder.finish(&results).expect("a graph");
    let bench = Bench::new();
    fs::write(bench.path("sums.onnx"), readers::onnx::write_graph(&graph).expect("a file")).expect("it is written");
    right(&bench, "sums.onnx --threads 1");
}

#[test]
fn transformers_are_correct_in_both_phases() {
    let bench = Bench::new();
    let small = "--modelsource transformers --modelname gpt2:n_layer=2,n_embd=64,n_head=4,vocab_size=300 --sequence 9";
    right(&bench, small);
    right(&bench, &format!("{small} --phase decode"));
    right(&bench, &format!("{small} --attention split"));
}

#[test]
fn decoding_goes_in_steps_with_a_growing_cache() {
    let bench = Bench::new();
    let gpt = "--modelsource transformers --modelname gpt2:n_layer=2,n_embd=64,n_head=4,vocab_size=300 --phase decode";
    let single = right(&bench, &format!("{gpt} --sequence 20"));
    let steps = right(&bench, &format!("{gpt} --sequence 17 --steps 4 --output out"));
    assert_eq!(steps["model"].as_str(), Some("gpt2:n_layer=2,n_embd=64,n_head=4,vocab_size=300 decode 17 steps 4"));
    assert_eq!(steps["calls"].as_u64(), single["calls"].as_u64().map(|calls| 4 * calls), "{steps}");
    let bytes = |report: &Value, name: &str| report[name].as_u64().unwrap_or_else(|| panic!("no `{name}`: {report}"));
    assert!(bytes(&steps, "constant_bytes") < 2 * bytes(&single, "constant_bytes"), "weights are there once: {steps}");
    // Inputs of a concatenation are freed: the keys and values of two layers, 18 and 19 tokens long, are never all in
    // memory.
    let token_bytes = 4 * 64;
    assert!(bytes(&steps, "activation_bytes") < 2 * 2 * (18 + 19) * token_bytes, "{steps}");
    // The results of each step, followed by all keys and values.
    assert_eq!(outputs(&bench, "out").len(), 4 + 4);
    for (arguments, wanted) in [
        ("--steps 0", "`steps` is 0; allowed are 1 to 1024"),
        ("--steps 4 --phase prefill", "only the phase `decode` has steps"),
        ("--steps 4 --executor vm", "the executor `vm` supports only one step"),
    ] {
        let gpt = gpt.replace("--phase decode", "");
        let phase = if arguments.contains("--phase") { "" } else { "--phase decode" };
        let ran = run(bench.opcollect(&format!("model run {gpt} {phase} {arguments}"))).expect(2);
        assert!(ran.stderr.contains(wanted), "{arguments}: {ran}");
    }
}

#[test]
fn models_in_files_are_correct() {
    let bench = Bench::new();
    let models = root().join("models/readers/tests");
    let quantised = models.join("tflite-cases/one_layer_int8/qdq.onnx");
    right(&bench, &format!("--modelsource onnx --modelname {}", quantised.display()));
    // The second batch attends to nothing, so its result is zero.
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
fn a_model_run_is_recorded() {
    let bench = Bench::new();
    let mlp = "--modelsource local --modelname mlp --threads 1";
    let sweep = format!("{mlp} --config quick.toml --schedules 1 --wait 300 --store store");
    run(bench.opcollect(&sweep)).expect(0);
    let reports = [(), ()].map(|()| right(&bench, &format!("{mlp} --store store")));
    let records = stores::chosen(&bench.path("store"), Choose::All);
    let networks: Vec<&Record> = records.iter().filter(|record| record.is_network()).collect();
    assert_eq!((records.len(), networks.len()), (6, 2), "four operators, and two runs of the model");
    for (report, record) in reports.iter().zip(&networks) {
        assert_eq!(report["record"]["key"].as_str(), Some(&*record.key.to_hex()), "{report}");
        assert_eq!((record.outcome, record.source), (Outcome::Ok, Source::Measured));
        assert_eq!((record.model_name.as_deref(), record.batch, record.threads), (Some("mlp"), Some(1), Some(1)));
        assert_eq!(record.median_ns, report["median_ns"].as_f64());
        assert_eq!(record.first_run_ns, report["first_run_ns"].as_f64());
        assert_eq!(record.max_abs_error, report["check"]["max_abs_error"].as_f64());
        let bytes = |column: Option<i64>| column.and_then(|bytes| u64::try_from(bytes).ok());
        assert_eq!(bytes(record.workspace_bytes), report["activation_bytes"].as_u64());
        assert_eq!(bytes(record.bytes_weights), report["constant_bytes"].as_u64());
        assert_eq!(record.schedule_source, Some(ScheduleSource::Default));
        let sum: i64 = records.iter().filter(|one| !one.is_network()).map(|one| one.flops.unwrap_or(0)).sum();
        assert_eq!(record.flops, Some(sum), "each task of this model is called once");
        assert!(record.tvm_version.is_some() && record.cpu_model.is_some() && record.code_revision.is_some());
        assert!(record.samples_ns.len() > 1 && record.op_text.contains("4 tasks"), "{}", record.op_text);
    }
    assert_eq!((networks[0].key, networks[0].attempt, networks[1].attempt), (networks[1].key, 1, 2));
    // No operator is measured.
    let ran = run(bench.opcollect(&format!("{sweep} --json"))).expect(0).json();
    assert_eq!((ran["attempts"].as_u64(), ran["known_before"].as_u64()), (Some(4), Some(4)), "{ran}");
    let ran = run(bench.opcollect(&format!("{sweep} --again --json"))).expect(0).json();
    assert_eq!((ran["attempts"].as_u64(), ran["known_before"].as_u64()), (Some(4), Some(0)), "{ran}");
    run(bench.opcollect("dataset verify --store store")).expect(0);
    let stats = run(bench.opcollect("dataset stats --store store")).expect(0).stdout;
    assert!(stats.contains(NETWORK), "{stats}");
    for format in ["csv", "parquet", "jsonl"] {
        run(bench.opcollect(&format!("dataset export --store store --format {format} --out rows.{format}"))).expect(0);
        run(bench.opcollect(&format!("dataset import --store of-{format} rows.{format}"))).expect(0);
        let kept = stores::chosen(&bench.path(&format!("of-{format}")), Choose::All);
        assert_eq!(kept.iter().filter(|record| record.is_network()).count(), 2, "{format}");
    }
    let replayed = format!("replay --store store --key {}", networks[0].key.to_hex());
    let ran = run(bench.opcollect(&replayed)).expect(2);
    assert!(ran.stderr.contains("it describes a whole model"), "{ran}");
}

#[test]
fn a_run_that_fails_is_recorded_and_a_mistake_leaves_no_store() {
    let bench = Bench::new();
    let mlp = "--modelsource local --modelname mlp --threads 1 --wait 300 --store store";
    run(bench.opcollect(&format!("model run {mlp} --input nowhere=x.npy"))).expect(2);
    assert_eq!(bench.entries(), ["quick.toml"]);
    bench.write("hasty.toml", "[limits]\nbuild_seconds = 0.001\n");
    let ran = run(bench.opcollect(&format!("model run {mlp} --config hasty.toml"))).expect(2);
    assert!(ran.stderr.contains("error: cannot build"), "{ran}");
    let records = stores::records(&bench.path("store"));
    let [record] = records.as_slice() else { panic!("{} records", records.len()) };
    assert_eq!((record.op_kind.as_str(), record.outcome), (NETWORK, Outcome::BuildFailed));
    assert!(record.reason.as_ref().is_some_and(|why| why.contains("cannot build")), "{:?}", record.reason);
}

fn has_onnxruntime() -> bool {
    has_library("onnxruntime/capi")
}

fn has_library(folder: &str) -> bool {
    let site_packages = root().join(".venv/lib").read_dir().into_iter().flatten().flatten();
    site_packages.into_iter().any(|python| python.path().join("site-packages").join(folder).is_dir())
}

#[test]
fn models_are_compared_with_onnx_runtime() {
    match has_onnxruntime() {
        true => compared_with("onnxruntime", ""),
        false => skip("ONNX Runtime's library is not installed"),
    }
}

/// Writes a model with NumPy and `onnx`: a matrix product of an input of shape `dims`, and a reshape to `shape`.
fn write_reshaped(bench: &Bench, file: &str, dims: &str, shape: &str) -> bool {
    let script = format!(
        "import numpy as np, onnx\n\
         from onnx import helper, numpy_helper\n\
         w = numpy_helper.from_array(np.ones((8, 8), 'float32'), 'w')\n\
         s = numpy_helper.from_array(np.array({shape}), 's')\n\
         nodes = [helper.make_node('MatMul', ['x', 'w'], ['a']), helper.make_node('Reshape', ['a', 's'], ['y'])]\n\
         x = helper.make_tensor_value_info('x', 1, {dims})\n\
         y = helper.make_tensor_value_info('y', 1, None)\n\
         graph = helper.make_graph(nodes, 'net', [x], [y], [w, s])\n\
         onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid('', 17)], ir_version=9), '{file}')\n"
    );
    let mut python = Command::new(root().join(".venv/bin/python"));
    python.arg("-c").arg(script).current_dir(bench.path("")).output().is_ok_and(|done| done.status.success())
}

#[test]
fn a_file_gets_the_requested_batch_and_sequence() {
    let bench = Bench::new();
    let files = [
        ("open.onnx", "[1, 3, 8]", "[0, -1]"),
        ("fixed.onnx", "[1, 3, 8]", "[1, -1]"),
        ("pair.onnx", "[2, 3, 8]", "[2, -1]"),
        ("named.onnx", "['batch', 'sequence_length', 8]", "[0, 0, 8]"),
    ];
    if !files.iter().all(|(file, dims, shape)| write_reshaped(&bench, file, dims, shape)) {
        return skip("there is no Python with `onnx`");
    }
    let graph = |arguments: &str| bench.opcollect(&format!("graph --modelsource onnx --modelname {arguments}"));
    let ran = run(graph("open.onnx --batchsize 8")).expect(0);
    assert!(ran.stdout.contains("f32[8,3,8]") && ran.stdout.contains("f32[8,24]"), "{ran}");
    let ran = run(graph("fixed.onnx --batchsize 8")).expect(0);
    assert!(ran.stdout.contains("f32[8,3,8]") && ran.stdout.contains("f32[8,24]"), "{ran}");
    let ran = run(graph("pair.onnx --batchsize 8")).expect(2);
    assert!(
        ran.stderr.contains("would have the type f32[2,96], not the shape [8, 24]")
            && ran.stderr.contains("--batchsize"),
        "{ran}"
    );
    let ran = run(graph("named.onnx --batchsize 2 --sequence 5")).expect(0);
    assert!(ran.stdout.contains("f32[2,5,8]"), "{ran}");
    let ran = run(graph("open.onnx --sequence 5")).expect(2);
    assert!(ran.stderr.contains("`--sequence` has no effect"), "{ran}");
    if has_onnxruntime() {
        let named = "--modelsource onnx --modelname named.onnx --batchsize 2 --sequence 5";
        let variants = "--variant onnxruntime --variant onnxruntime-original --rounds 1 --wait 300 --json";
        let ran = run(bench.opcollect(&format!("model compare {named} {variants}"))).expect(0);
        let report = ran.json();
        assert_eq!(report["batch"], 2, "{ran}");
        for one in report["variants"].as_array().expect("variants") {
            assert_eq!(one["check"]["is_right"], true, "{ran}");
        }
    }
}

/// Maxima of rows of -∞, the places of these maxima, and slices at these places.
#[test]
fn rows_of_infinities_are_correct() {
    let bench = Bench::new();
    let script = "import numpy as np, onnx\n\
         from onnx import helper, numpy_helper\n\
         mask = np.zeros((4, 16), 'float32')\n\
         mask[1] = -np.inf\n\
         table = np.arange(48, dtype='float32').reshape(16, 3)\n\
         np.save('at.npy', np.array([1, -3, 16]))\n\
         constants = {'mask': mask, 'table': table, 'axis': np.array([1])}\n\
         node = helper.make_node\n\
         x = helper.make_tensor_value_info('x', 1, [4, 16])\n\
         at = helper.make_tensor_value_info('at', 7, [3])\n\
         def save(nodes, results, file):\n\
         \x20   used = {name for one in nodes for name in one.input}\n\
         \x20   data = [numpy_helper.from_array(value, name) for name, value in constants.items() if name in used]\n\
         \x20   results = [helper.make_tensor_value_info(name, kind, None) for name, kind in results]\n\
         \x20   inputs = [x, at] if file == 'outside.onnx' else [x]\n\
         \x20   graph = helper.make_graph(nodes, 'net', inputs, results, data)\n\
         \x20   model = helper.make_model(graph, opset_imports=[helper.make_opsetid('', 18)], ir_version=9)\n\
         \x20   onnx.save(model, file)\n\
         masked = [node('Add', ['x', 'mask'], ['y']), node('Neg', ['y'], ['n'])]\n\
         save(masked + [node('ReduceMax', ['y', 'axis'], ['most']), node('ReduceMin', ['n', 'axis'], ['least'])],\n\
         \x20    [('most', 1), ('least', 1)], 'extremes.onnx')\n\
         save(masked + [node('ArgMax', ['y'], ['p'], axis=1, keepdims=0),\n\
         \x20    node('ArgMin', ['n'], ['q'], axis=1, keepdims=0, select_last_index=1),\n\
         \x20    node('Gather', ['table', 'p'], ['first']), node('Gather', ['table', 'q'], ['last'])],\n\
         \x20    [('first', 1), ('last', 1)], 'places.onnx')\n\
         save([node('MatMul', ['x', 'table'], ['y']), node('Gather', ['x', 'at'], ['z'], axis=1)],\n\
         \x20    [('y', 1), ('z', 1)], 'outside.onnx')\n";
    let mut python = Command::new(root().join(".venv/bin/python"));
    let done = python.arg("-c").arg(script).current_dir(bench.path("")).output();
    if !done.is_ok_and(|done| done.status.success()) {
        return skip("there is no Python with `onnx`");
    }
    for file in ["extremes.onnx", "places.onnx"] {
        right(&bench, &format!("--modelsource onnx --modelname {file} --threads 1"));
    }
    let outside = "model run --modelsource onnx --modelname outside.onnx --input at=at.npy --threads 1";
    let ran = run(bench.opcollect(outside)).expect(2);
    assert!(ran.stderr.contains("the index 16 is outside of a dimension of 16"), "{ran}");
}

/// Sums and maxima of empty tensors are constant, and no call computes them.
#[test]
fn outputs_without_operators_are_correct_and_have_no_time() {
    let bench = Bench::new();
    let script = "import numpy as np, onnx\n\
         from onnx import helper, numpy_helper\n\
         def save(kind, operand, shape, file):\n\
         \x20   node = helper.make_node(kind, ['x', 'c'], ['y'])\n\
         \x20   x = helper.make_tensor_value_info('x', 1, [2, 0])\n\
         \x20   y = helper.make_tensor_value_info('y', 1, shape)\n\
         \x20   graph = helper.make_graph([node], 'net', [x], [y], [numpy_helper.from_array(operand, 'c')])\n\
         \x20   model = helper.make_model(graph, opset_imports=[helper.make_opsetid('', 20)], ir_version=9)\n\
         \x20   onnx.save(model, file)\n\
         save('ReduceMax', np.array([1]), [2, 1], 'least.onnx')\n\
         save('MatMul', np.zeros((0, 3), 'float32'), [2, 3], 'sums.onnx')\n\
         x, y = [helper.make_tensor_value_info(name, 1, [2, 3]) for name in 'xy']\n\
         graph = helper.make_graph([helper.make_node('Identity', ['x'], ['y'])], 'net', [x], [y])\n\
         model = helper.make_model(graph, opset_imports=[helper.make_opsetid('', 20)], ir_version=9)\n\
         onnx.save(model, 'identity.onnx')\n";
    let mut python = Command::new(root().join(".venv/bin/python"));
    let done = python.arg("-c").arg(script).current_dir(bench.path("")).output();
    if !done.is_ok_and(|done| done.status.success()) {
        return skip("there is no Python with `onnx`");
    }
    for file in ["least.onnx", "sums.onnx", "identity.onnx"] {
        let report = checked(&bench, &format!("--modelsource onnx --modelname {file}"));
        assert!(report["median_ns"].is_null() && report["first_run_ns"].is_null(), "{report}");
        assert_eq!((report["calls"].as_u64(), report["n"].as_u64()), (Some(0), Some(0)), "{report}");
    }
    let ran = run(bench.opcollect("model run identity.onnx --wait 300 --store store")).expect(0);
    assert!(ran.stdout.contains("none, because the model has no operators"), "{ran}");
    let records = stores::records(&bench.path("store"));
    let [record] = &records[..] else { panic!("{records:?}") };
    assert_eq!((record.outcome, record.median_ns), (Outcome::Skipped, None));
    for command in ["model compare identity.onnx --variant default --wait 300", "profile identity.onnx"] {
        let ran = run(bench.opcollect(command)).expect(2);
        assert!(ran.stderr.contains("`identity.onnx` has no operators to time"), "{ran}");
    }
}

#[test]
fn models_are_compared_with_openvino() {
    match has_library("openvino/libs") {
        true => compared_with("openvino", "--variant default --variant openvino"),
        false => skip("OpenVINO's library is not installed"),
    }
}

/// Compares two models with default schedules and another runtime.
fn compared_with(runtime: &str, variants: &str) {
    let bench = Bench::new();
    let gpt = "--modelsource transformers --modelname gpt2:n_layer=1,n_embd=32,n_head=4,vocab_size=50 --sequence 5";
    for (model, threads) in [("--modelsource local --modelname mlp --batchsize 2", 1), (gpt, 1)] {
        let command = format!("model compare {model} --threads {threads} --rounds 6 --wait 300 --json {variants}");
        let ran = run(bench.opcollect(&command)).expect(0);
        let report = ran.json();
        let variants = report["variants"].as_array().expect("variants");
        let names: Vec<_> = variants.iter().map(|one| one["variant"].as_str().unwrap_or_default()).collect();
        assert_eq!(names, ["default", runtime], "{ran}");
        for one in variants {
            assert_eq!(one["check"]["is_right"], true, "{ran}");
            // More rounds are measured on a busy machine.
            let rounds = one["round_medians_ns"].as_array().map_or(0, Vec::len);
            assert!([6, 12, 18].contains(&rounds) && rounds as u64 == report["rounds"], "{ran}");
            assert_eq!(one["visit_ratios"].as_array().map(Vec::len), Some(5 * rounds / 6), "{ran}");
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
    // Other shapes give other tasks.
    let ran = compare(&format!("{mlp} --batchsize 2"));
    assert_eq!(ran.json()["variants"][0]["tasks_found"].as_u64(), Some(0), "{ran}");
}

fn changed(bench: &Bench, from: &str, to: &str, change: impl Fn(&mut Record)) {
    let store = Store::create(&bench.path(to)).expect("a store");
    let origin = Origin { host: "test".to_owned(), program: "test".to_owned(), command: "test".to_owned() };
    let mut journal = store.start_journal(origin).expect("a journal");
    for mut record in stores::records(&bench.path(from)) {
        change(&mut record);
        record.key = record.experiment_key();
        journal.append(&record).expect("a sound record");
    }
    journal.seal().expect("a part");
}

#[test]
fn best_schedules_are_of_this_host_and_current_code() {
    let bench = Bench::new();
    let mlp = "--modelsource local --modelname mlp --threads 1 --wait 300";
    run(bench.opcollect(&format!("{mlp} --config quick.toml --schedules 2 --store store"))).expect(0);
    changed(&bench, "store", "elsewhere", |record| record.host_class = "another".to_owned());
    changed(&bench, "store", "before", |record| record.code_revision = Some("0123456789abcdef".to_owned()));
    changed(&bench, "store", "half", |record| {
        if !record.op_kind.contains("softmax") {
            record.host_class = "another".to_owned();
        }
    });
    for (store, found, wanted) in [
        ("store", 4, None),
        ("elsewhere", 0, Some("4 of 4 tasks keep the default schedule: ")),
        ("before", 0, Some("measured with other code only")),
        ("half", 1, Some("3 of 4 tasks keep the default schedule: ")),
    ] {
        let variants = format!("--variant best --store {store} --rounds 1 --json");
        let ran = run(bench.opcollect(&format!("model compare {mlp} {variants}"))).expect(0);
        assert_eq!(ran.json()["variants"][0]["tasks_found"].as_u64(), Some(found), "{ran}");
        let notes: Vec<&str> = ran.stderr.lines().filter(|line| line.starts_with("note: for the best")).collect();
        assert_eq!(notes.len(), usize::from(wanted.is_some()), "{ran}");
        assert!(wanted.is_none_or(|wanted| notes[0].contains(wanted)), "{ran}");
    }
    let built = run(bench.opcollect(
        "model build --modelsource local --modelname mlp --best --store elsewhere --threads 1 --out mlp --json",
    ));
    let built = built.expect(0);
    assert_eq!(built.json()["tasks_found"].as_u64(), Some(0), "{built}");
    assert!(built.stderr.contains("measured on other hosts only"), "{built}");
}

#[test]
fn a_campaign_may_end_in_a_comparison() {
    let bench = Bench::new();
    let mlp = "--modelsource local --modelname mlp --config quick.toml --schedules 2 --wait 300 --store store";
    let ran = run(bench.opcollect(&format!("{mlp} --ifcompare --json"))).expect(0);
    let again = run(bench.opcollect(&format!("{mlp} --ifcompare --json --batchsize 1,2"))).expect(0);
    assert_eq!(again.json()["known_before"].as_u64(), Some(8), "{again}");
    for (ran, batches) in [(&ran, vec![1]), (&again, vec![1, 2])] {
        let report = ran.json();
        let comparisons = report["comparisons"].as_array().expect("comparisons");
        let found: Vec<_> = comparisons.iter().map(|one| one["batch"].as_u64().unwrap_or(0)).collect();
        assert_eq!(found, batches, "{ran}");
        for one in comparisons {
            assert_eq!((one["model"].as_str(), one["threads"].as_u64()), (Some("mlp"), Some(1)), "{ran}");
            let variants = one["variants"].as_array().expect("variants");
            let names: Vec<_> = variants.iter().map(|one| one["variant"].as_str().unwrap_or_default()).collect();
            assert_eq!(names, ["default", "best"], "{ran}");
            assert!(variants.iter().all(|one| one["check"]["is_right"] == true), "{ran}");
            assert!(variants[1]["ratio"]["interval"].is_array(), "{ran}");
            assert_eq!(variants[1]["tasks_found"].as_u64(), Some(4), "{ran}");
        }
    }
    let output = run(bench.opcollect(&format!("{mlp} --ifcompare"))).expect(0).stdout;
    assert!(
        output.contains("known before") && output.contains("mlp: 1 thread, ") && output.contains(" visits"),
        "{output}"
    );
    let plain = run(bench.opcollect(&format!("{mlp} --json"))).expect(0).json();
    assert!(plain.get("comparisons").is_none(), "{plain}");
}

#[test]
fn an_impossible_comparison_is_reported() {
    let bench = Bench::new();
    let mlp = "--modelsource local --modelname mlp --threads 1 --ifcompare true --wait 300 --store store";
    for (arguments, wanted) in [
        ("--executor vm", "`--executor vm` generates code for all sizes"),
        ("--attention both", "`--attention both` splits a model into tasks in two ways"),
        ("--variations 2", "`--variations` creates tasks"),
        ("--target cuda --arch sm_80", "on GPUs this version can only run whole models"),
        ("--backend torch", "a library computes some"),
        ("--shard 1/2", "needs the whole campaign"),
    ] {
        let ran = run(bench.opcollect(&format!("{mlp} {arguments}"))).expect(2);
        let errors = ran.stderr.lines().filter(|line| line.starts_with("error:")).count();
        assert!(errors == 1 && ran.stderr.contains(wanted) && ran.stderr.contains("hint: "), "{arguments}: {ran}");
    }
    assert_eq!(bench.entries(), ["quick.toml"]);
    // All builds fail: the campaign still reports them, and there is nothing to compare.
    bench.write("hasty.toml", &format!("{}build_seconds = 0.001\n", tests::QUICK));
    let ran = run(bench.opcollect(&format!("{mlp} --config hasty.toml --schedules 1"))).expect(1);
    assert!(ran.stdout.contains("4 attempts: 4 timed_out"), "{ran}");
    assert!(ran.stdout.contains("not compared: the store has no schedule for its tasks"), "{ran}");
    let ran = run(bench.opcollect(&format!("{mlp} --config hasty.toml --schedules 1 --json"))).expect(1);
    assert_eq!(ran.json()["comparisons"][0]["threads"].as_u64(), Some(1), "{ran}");
}

#[test]
fn invalid_comparisons_give_one_error() {
    let bench = Bench::new();
    let mlp = "--modelsource local --modelname mlp";
    let shift = "--modelsource simple --modelname shift_left:shape=1x64,dtype=i32";
    for (arguments, code, wanted) in [
        (format!("{mlp} --variant default --variant default"), 2, "is given twice"),
        (format!("{mlp} --variant best"), 2, "needs a store"),
        (format!("{mlp} --variant default --store nowhere"), 2, "needs `--variant best`"),
        (format!("{mlp} --variant best --store nowhere"), 2, "nowhere"),
        (format!("{mlp} --variant default --rounds 0"), 2, "--rounds"),
        (format!("{mlp} --variant default --batchsize 1,8"), 2, "one model with one size"),
        (format!("{mlp} --variant default --executor vm"), 2, "`--executor vm` generates code for all sizes"),
        (
            format!("{mlp} --variant default --attention both"),
            2,
            "`--attention both` splits a model into tasks in two ways",
        ),
        (format!("{mlp} --variant default --variations 2"), 2, "`--variations` creates tasks"),
    ] {
        let ran = run(bench.opcollect(&format!("model compare {arguments}"))).expect(code);
        let errors = ran.stderr.lines().filter(|line| line.starts_with("error:")).count();
        assert!(errors == 1 && ran.stderr.contains(wanted), "{arguments}: {ran}");
    }
    for (variants, runtime, folder, setup) in [
        ("", "ONNX Runtime", "onnxruntime/capi", "scripts/setup --test"),
        ("--variant default --variant openvino", "OpenVINO", "openvino/libs", "scripts/setup --openvino"),
    ] {
        let mut without = bench.opcollect(&format!("model compare {mlp} {variants}"));
        without.env("OPCOLLECT_TVM", bench.path("packages/tvm/lib"));
        let ran = run(without).expect(3);
        assert!(ran.stderr.contains(&format!("{runtime}'s library is not installed")), "{ran}");
        assert_eq!(ran.stderr.matches(folder).count(), 1, "{ran}");
        assert!(ran.stderr.contains(&format!("hint: run `{setup}`")), "{ran}");
    }
    if !program("opcollect").with_file_name("opcollect-torch").exists() {
        let ran = run(bench.opcollect(&format!("model compare {mlp} --variant torch"))).expect(3);
        assert!(
            ran.stderr.contains("its worker `opcollect-torch` is not built\nhint: run `scripts/setup --torch`"),
            "{ran}"
        );
    }
    if !has_onnxruntime() {
        return skip("ONNX Runtime's library is not installed");
    }
    let ran = run(bench.opcollect(&format!("model compare {shift}"))).expect(2);
    assert!(ran.stderr.contains("has no ONNX representation") && ran.stderr.contains("shift_left"), "{ran}");
    let half = "--modelsource simple --modelname relu:shape=4x8,dtype=bf16 --variant default --variant onnxruntime";
    let ran = run(bench.opcollect(&format!("model compare {half} --wait 300"))).expect(3);
    assert!(ran.stderr.contains("ONNX Runtime cannot load the model"), "{ran}");
    assert!(ran.stderr.contains("hint: leave out `--variant onnxruntime`"), "{ran}");
}

#[test]
fn invalid_model_runs_give_one_error() {
    let bench = Bench::new();
    bench.write("text.npy", "this is no array");
    let mlp = "--modelsource local --modelname mlp";
    for (arguments, code, wanted) in [
        (format!("{mlp} --batchsize 1,8"), 2, "one model with one size"),
        (format!("{mlp} --modelname resnet-18"), 2, "one model with one size"),
        (format!("{mlp} --input nowhere"), 2, "is not a name and a file"),
        (format!("{mlp} --input nowhere=text.npy"), 2, "has no input `nowhere`"),
        (format!("{mlp} --threads 4000"), 2, "threads"),
        (format!("{mlp} --backend torch"), 2, "have no compiled code"),
        (format!("{mlp} --executor vm"), 2, "`--executor vm` generates code for all sizes"),
        ("--modelsource local --modelname no-such-model".to_owned(), 2, "no-such-model"),
    ] {
        let ran = run(bench.opcollect(&format!("model run {arguments}"))).expect(code);
        let errors = ran.stderr.lines().filter(|line| line.starts_with("error:")).count();
        assert!(errors == 1 && ran.stderr.contains(wanted), "{arguments}: {ran}");
    }
    bench.write("small.toml", "[limits]\nrun_memory_mib = 64\n");
    for large in ["--modelsource local --modelname resnet-50", "--modelsource transformers --modelname llama-7b"] {
        let ran = run(bench.opcollect(&format!("model run {large} --config small.toml --store store"))).expect(3);
        assert!(ran.stderr.contains("MiB, and the limit of a runner is 64 MiB\nhint: raise `run_memory_mib`"), "{ran}");
        assert!(!bench.path("store").exists());
    }
    let on_gpu = format!("{mlp} --target cuda --arch sm_80");
    for command in [format!("model compare {on_gpu} --variant default"), format!("model build {on_gpu} --out built")] {
        let ran = run(bench.opcollect(&command)).expect(2);
        assert!(ran.stderr.contains("on GPUs this version can only run whole models"), "{ran}");
    }
    assert!(!bench.path("built").exists());
    if !Path::new("/dev/nvidiactl").exists() {
        let ran = run(bench.opcollect(&format!("model run {on_gpu} --store store"))).expect(3);
        assert!(ran.stderr.contains("error: nothing can run on a GPU here: "), "{ran}");
        assert!(!bench.path("store").exists());
    }
    let ran = run(bench.opcollect(&format!("model run {mlp} --input x=text.npy")));
    assert!(
        ran.stderr.contains("is not an array in NumPy's NPY format") || ran.stderr.contains("has no input"),
        "{ran}"
    );
}

fn built(bench: &Bench, arguments: &str, out: &str) -> Value {
    let mlp = "--modelsource local --modelname mlp --batchsize 2";
    run(bench.opcollect(&format!("model build {mlp} {arguments} --out {out} --json"))).expect(0).json()
}

#[test]
fn a_built_folder_runs_without_compiler_and_model() {
    let bench = Bench::new();
    let report = built(&bench, "--seed 3", "mlp");
    assert_eq!((report["tasks"].as_u64(), &report["is_checkable"]), (Some(4), &Value::Bool(true)), "{report}");
    assert_eq!(bench.entries(), ["mlp", "quick.toml"]);
    // The folder is self-contained and can be moved.
    fs::rename(bench.path("mlp"), bench.path("moved")).expect("it can be moved");
    let ran = run(bench.opcollect("run moved --precision 0.5 --wait 300 --json --output out")).expect(0);
    let report = ran.json();
    assert_eq!((report["model"].as_str(), report["seed"].as_u64()), (Some("mlp"), Some(3)), "{ran}");
    assert_eq!(report["check"]["is_right"], true, "{ran}");
    assert!(report["median_ns"].as_f64() > Some(0.0) && report["calls"].as_u64() > Some(2), "{ran}");
    let first = outputs(&bench, "out");
    // The expected outputs for other inputs are unknown.
    let ran = run(bench.opcollect("run moved --precision 0.5 --wait 300 --json --seed 4 --threads 1 --output other"))
        .expect(0);
    assert_eq!((&ran.json()["check"], ran.json()["threads"].as_u64()), (&Value::Null, Some(1)), "{ran}");
    assert!(ran.stderr.contains("outputs are not compared") && ran.stderr.contains("seed 3"), "{ran}");
    assert_ne!(outputs(&bench, "other"), first);
    // The same seed gives the same inputs as for the model itself.
    let mlp = "--modelsource local --modelname mlp --batchsize 2 --precision 0.5 --wait 300 --seed 3";
    run(bench.opcollect(&format!("model run {mlp} --output whole"))).expect(0);
    assert_eq!(outputs(&bench, "whole"), first);
    let output = run(bench.opcollect("run moved --precision 0.5 --wait 300")).expect(0).stdout;
    assert!(output.contains("code        for ") && output.contains("check       right"), "{output}");
}

fn outputs(bench: &Bench, folder: &str) -> Vec<Vec<u8>> {
    let mut files: Vec<_> =
        fs::read_dir(bench.path(folder)).expect("a folder").flatten().map(|file| file.path()).collect();
    files.sort();
    files.iter().map(|file| fs::read(file).expect("a file")).collect()
}

#[test]
fn built_folders_state_missing_checks_and_schedules() {
    let bench = Bench::new();
    let report = built(&bench, "--no-check", "plain");
    assert_eq!(report["is_checkable"], false, "{report}");
    let ran = run(bench.opcollect("run plain --precision 0.5 --wait 300 --json")).expect(0);
    assert_eq!(ran.json()["check"], Value::Null, "{ran}");
    let sweep = "--modelsource local --modelname mlp --threads 1 --config quick.toml --schedules 2 --cache warm";
    run(bench.opcollect(&format!("{sweep} --batchsize 2 --wait 300 --store store"))).expect(0);
    let report = built(&bench, "--best --store store --threads 1", "best");
    assert_eq!(report["tasks_found"].as_u64(), Some(4), "{report}");
    let ran = run(bench.opcollect("run best --threads 1 --precision 0.5 --wait 300 --json")).expect(0);
    assert_eq!(ran.json()["check"]["is_right"], true, "{ran}");
}

#[test]
fn expected_outputs_reveal_a_wrong_program() {
    let bench = Bench::new();
    built(&bench, "", "mlp");
    // A program with other weights and valid hashes computes other results.
    let (about, expected) = (bench.path("mlp/model.json"), bench.path("mlp/expected.bin"));
    let mut bytes = fs::read(&expected).expect("outputs");
    bytes[..4].copy_from_slice(&1e3f32.to_le_bytes());
    fs::write(&expected, &bytes).expect("a file");
    change_sealed(&about, &|portable| portable["expected_hash"] = blake3::hash(&bytes).to_hex().as_str().into());
    let ran = run(bench.opcollect("run mlp --precision 0.5 --wait 300")).expect(1);
    assert!(ran.stdout.contains("check       WRONG"), "{ran}");
}

#[test]
fn invalid_folders_give_one_error() {
    let bench = Bench::new();
    built(&bench, "", "mlp");
    let copy = |name: &str| {
        let folder = bench.path(name);
        fs::create_dir(&folder).expect("a folder");
        for file in fs::read_dir(bench.path("mlp")).expect("a folder").flatten() {
            fs::copy(file.path(), folder.join(file.file_name())).expect("a copy");
        }
        folder
    };
    let refused = |arguments: &str, code: i32, wanted: &str| {
        let ran = run(bench.opcollect(&format!("run {arguments} --wait 300"))).expect(code);
        let errors = ran.stderr.lines().filter(|line| line.starts_with("error:")).count();
        assert!(errors == 1 && ran.stderr.contains(wanted) && ran.stderr.contains("hint: "), "{arguments}: {ran}");
    };
    for name in ["code-0.o", "constants.bin", "program.json", "expected.bin", "model.json"] {
        let folder = copy(&format!("without-{name}"));
        fs::remove_file(folder.join(name)).expect("a file");
        refused(&format!("without-{name}"), 2, name);
        let folder = copy(&format!("changed-{name}"));
        let mut bytes = fs::read(folder.join(name)).expect("a file");
        let last = bytes.len() - 2;
        bytes[last] ^= 1;
        fs::write(folder.join(name), bytes).expect("a file");
        refused(&format!("changed-{name}"), 2, name);
        refused(&format!("changed-{name}"), 2, "its hash differs");
    }
    fs::remove_file(copy("half").join("model.json")).expect("a file");
    refused("half", 2, "model.json");
    let change = |name: &str, change: &dyn Fn(&mut Value)| change_sealed(&copy(name).join("model.json"), change);
    change("newer", &|portable| portable["format"] = 3.into());
    refused("newer", 2, "its format version is 3, but this program reads version 2");
    change("elsewhere", &|portable| portable["instruction_sets"] = serde_json::json!(["avx2048"]));
    refused("elsewhere", 3, "the code uses avx2048, which this processor lacks");
    change("other", &|portable| portable["architecture"] = "z80".into());
    refused("other", 3, "the code is for z80");
    change("inputs", &|portable| portable["draws"] = serde_json::json!([]));
    refused("inputs", 2, "the file describes 0 inputs");
    refused("mlp --store nowhere", 2, "`--store` applies only to folders of artifacts");
    refused("nowhere", 2, "nowhere");
    let build = "model build --modelsource local --modelname mlp";
    let ran = run(bench.opcollect(&format!("{build} --out mlp"))).expect(2);
    assert!(ran.stderr.contains("`mlp` exists and is not an empty folder"), "{ran}");
    let ran = run(bench.opcollect(&format!("{build} --out new --best"))).expect(2);
    assert!(ran.stderr.contains("--store"), "{ran}");
    run(bench.opcollect(&format!("{build} --out new --target cuda --arch sm_80"))).expect(2);
    assert!(!bench.entries().iter().any(|name| name == "new" || name.starts_with('.')), "{:?}", bench.entries());
    fs::create_dir(bench.path("empty")).expect("a folder");
    refused("empty --threads 1", 2, "`--threads` applies only to a folder of `model build`");
}

/// Tests a model with two inputs, which a script writes to files of several formats.
#[test]
fn inputs_come_from_archives_by_their_names() {
    let bench = Bench::new();
    let add = "--modelsource simple --modelname add:shape=2x3";
    let graph = run(bench.opcollect(&format!("graph {add} --format json"))).expect(0).json();
    let values = graph["values"].as_array().expect("values");
    let name = |place: usize| values[place]["name"].as_str().expect("an input has a name").to_owned();
    let (first, second) = (name(0), name(1));
    let script = format!(
        "import numpy, sys, struct\n\
         x = numpy.arange(6, dtype='float32').reshape(2, 3); y = x * 10\n\
         numpy.savez('stored.npz', **{{'{first}': x, '{second}': y}})\n\
         numpy.savez_compressed('packed.npz', **{{'{first}': x, '{second}': y}})\n\
         numpy.savez('half.npz', **{{'{first}': x}})\n\
         numpy.savez('more.npz', **{{'{first}': x, '{second}': y, 'z': y}})\n\
         numpy.savez('other.npz', **{{'{first}': x, '{second}': y.astype('float64')}})\n\
         header = b'{{\"{first}\":{{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}},\
         \"{second}\":{{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[24,48]}}}}'\n\
         open('both.safetensors', 'wb').write(struct.pack('<Q', len(header)) + header + x.tobytes() + y.tobytes())\n"
    );
    let mut python = Command::new(root().join(".venv/bin/python"));
    let done = python.arg("-c").arg(script).current_dir(bench.path("")).output();
    if !done.is_ok_and(|done| done.status.success()) {
        return skip("there is no Python with NumPy");
    }
    run(bench.opcollect(&format!("model build {add} --out folder"))).expect(0);
    let given = [
        "--inputs stored.npz".to_owned(),
        "--inputs packed.npz".to_owned(),
        "--inputs both.safetensors".to_owned(),
        format!("--input {first}=packed.npz --input {second}=both.safetensors"),
        format!("--inputs half.npz --input {second}=stored.npz"),
    ];
    for (place, given) in given.iter().enumerate() {
        right(&bench, &format!("{add} {given} --output out-{place}"));
        run(bench.opcollect(&format!("run folder {given} --precision 0.5 --wait 300 --output own-{place}"))).expect(0);
        for out in ["out", "own"] {
            let found = outputs(&bench, &format!("{out}-{place}"));
            let numbers: Vec<f32> = found[0][found[0].len() - 24..]
                .chunks_exact(4)
                .map(|bytes| f32::from_le_bytes(bytes.try_into().expect("four bytes")))
                .collect();
            assert_eq!(numbers, [0.0, 11.0, 22.0, 33.0, 44.0, 55.0], "{given}");
        }
    }
    bench.write("text.npz", "this is no archive");
    bench.write("text.safetensors", "this is no such file");
    for (arguments, wanted) in [
        ("--inputs half.npz".to_owned(), format!("the file has no tensor `{second}`; it has {first}")),
        ("--inputs more.npz".to_owned(), "`z`, which is not an input of the model".to_owned()),
        ("--inputs other.npz".to_owned(), "the array is f64[2,3], but the model expects f32[2,3]".to_owned()),
        ("--inputs text.npz".to_owned(), "the file is not an archive of arrays".to_owned()),
        ("--inputs text.safetensors".to_owned(), "text.safetensors".to_owned()),
        ("--inputs nowhere.npz".to_owned(), "nowhere.npz".to_owned()),
        ("--inputs x.npy".to_owned(), "the file contains one array without a name".to_owned()),
        (format!("--input {second}=half.npz"), format!("the file has no tensor `{second}`")),
        (format!("--input {first}=half.npz --input {first}=stored.npz"), format!("`--input` gives `{first}` twice")),
    ] {
        let ran = run(bench.opcollect(&format!("run folder {arguments}"))).expect(2);
        let errors = ran.stderr.lines().filter(|line| line.starts_with("error:")).count();
        assert!(errors == 1 && ran.stderr.contains(&wanted), "{arguments}: {ran}");
    }
}
