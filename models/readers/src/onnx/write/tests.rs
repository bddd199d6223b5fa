//! Tests that a written file is read back as a graph that computes the same.

use crate::{Options, onnx};
use expect_test::expect;
use models::operators::{ArgReduce, Dense, OneHot, Unary};
use models::types::TensorType;
use models::{DType, Graph, GraphBuilder, Op};
use passes::simplify_graph;
use reference::Tensor;
use std::collections::BTreeSet;
use zoo::{simple, transformers};

fn both(graph: &Graph) -> models::Result<(Vec<Tensor>, Vec<Tensor>)> {
    let file = onnx::write_graph(graph)?;
    let again = onnx::import(file.into(), "written.onnx", None, &Options::default())?.graph;
    let types = |graph: &Graph, ids: &[models::ValueId]| -> Vec<TensorType> {
        ids.iter().map(|id| graph.values[id.0 as usize].ty.clone()).collect()
    };
    assert_eq!(types(&again, &again.inputs), types(graph, &graph.inputs), "{}", graph.name);
    assert_eq!(types(&again, &again.outputs), types(graph, &graph.outputs), "{}", graph.name);
    let inputs = reference::graph_inputs(graph, 7)?;
    Ok((reference::evaluate_graph(&again, &inputs)?, reference::evaluate_graph(graph, &inputs)?))
}

fn apart(found: &[Tensor], wanted: &[Tensor]) -> f64 {
    assert_eq!(found.len(), wanted.len());
    let mut worst = 0.0f64;
    for (found, wanted) in found.iter().zip(wanted) {
        let (found, wanted) = (found.to_numbers(), wanted.to_numbers());
        let largest =
            wanted.iter().filter(|one| one.is_finite()).fold(f64::MIN_POSITIVE, |most, one| most.max(one.abs()));
        for (one, other) in found.iter().zip(&wanted) {
            let is_same = one == other || (one.is_nan() && other.is_nan());
            worst = worst.max(if is_same { 0.0 } else { (one - other).abs() / largest });
        }
    }
    worst
}

#[track_caller]
fn same(graph: &Graph) {
    let (found, wanted) = both(graph).unwrap_or_else(|error| panic!("{}: {error}", graph.name));
    let apart = apart(&found, &wanted);
    assert!(apart < 1e-5, "{}: off by {apart:.1e}", graph.name);
}

#[test]
fn networks_compute_the_same_from_their_files() {
    for name in ["mlp", "lstm", "resnet-18:hw=32", "mobilenet-v2:hw=32", "squeezenet:hw=64", "densenet-121:hw=32"] {
        let graph = zoo::build_model(name, 2).expect(name);
        same(&simplify_graph(&graph).expect(name));
    }
}

#[test]
fn transformers_compute_the_same_from_their_files() {
    let options = |phase| transformers::Options { sequence: 9, phase, ..transformers::Options::default() };
    let small = [
        "gpt2:n_layer=1,n_embd=32,n_head=4,vocab_size=50",
        "bert:num_hidden_layers=1,hidden_size=32,num_attention_heads=4,intermediate_size=64,vocab_size=50",
        "llama-7b:num_hidden_layers=1,hidden_size=32,num_attention_heads=4,intermediate_size=64,vocab_size=50,num_key_value_heads=2",
    ];
    for name in small {
        for phase in [transformers::Phase::Prefill, transformers::Phase::Decode] {
            if name.starts_with("bert") && phase == transformers::Phase::Decode {
                continue;
            }
            let loaded =
                transformers::load_model(name, &options(phase)).unwrap_or_else(|error| panic!("{name}: {error}"));
            same(&simplify_graph(&loaded.graph).expect(name));
        }
    }
}

#[test]
fn operators_compute_the_same_from_their_files_or_are_refused() {
    let mut refused = Vec::new();
    for form in simple::list_forms() {
        let graph = simple::build_operator(form.example).expect(form.example);
        match both(&graph) {
            Ok((found, wanted)) => {
                let apart = apart(&found, &wanted);
                // Half precision is rounded after each of several operators.
                let is_narrow = graph.values.iter().any(|value| matches!(value.ty.dtype, DType::F16 | DType::BF16));
                assert!(apart < if is_narrow { 1e-2 } else { 1e-5 }, "{}: off by {apart:.1e}", form.example);
            }
            Err(error) => refused.push(error.to_string()),
        }
    }
    expect![[r#"
        graph `shift_left`, `shift_left` (shift_left): ONNX shifts only unsigned integers, not i32
        graph `shift_right`, `shift_right` (shift_right): ONNX shifts only unsigned integers, not i32"#]]
    .assert_eq(&refused.join("\n"));
}

#[test]
fn operators_that_are_not_written_are_named() {
    let is_written = |text: &str| onnx::write_graph(&simple::build_operator(text).expect(text)).is_ok();
    let missing = models::operators::EXAMPLES.iter().filter(|(_, texts)| !texts.iter().all(|text| is_written(text)));
    assert_eq!(missing.map(|(name, _)| *name).collect::<Vec<_>>(), Vec::<&str>::new());
}

const SUMS: &str = r#"
    graph "quantised"
    input %0 "x": u8[1,2,4,4]
    constant %1 "w": i8[2,2,3,3] = random(4)
    constant %2 "bias": i32[2] = list(40.0, -70.0)
    constant %3 "multiplier": f32[2] = list(0.01, 0.02)
    %4 "sums": i32[1,2,4,4] = q_conv(%0, %1) dilations=[1,1] groups=1 pads=[1,1,1,1] strides=[1,1] w_zero=0 x_zero=5
    %5 "biased": i32[1,2,4,4] = bias_add(%4, %2) axis=1
"#;

#[test]
fn quantised_convolutions_are_one_operator() {
    let write = |rest: &str| {
        let text = format!("{SUMS}{rest}");
        let graph = Graph::from_text(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
        same(&graph);
        onnx::operator_names(onnx::write_graph(&graph).expect("a file").into(), "written.onnx").expect("operators")
    };
    let named = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<BTreeSet<_>>();
    let requantized = "%6 \"y\": u8[1,2,4,4] = requantize(%5, %3) axis=1 high=255 low=0 to=\"u8\" zero=3\noutput %6";
    assert_eq!(write(requantized), named(&["QLinearConv"]));
    let bounded = "%6 \"y\": u8[1,2,4,4] = requantize(%5, %3) axis=1 high=200 low=3 to=\"u8\" zero=3\noutput %6";
    assert_eq!(write(bounded), named(&["QLinearConv", "Clip"]));
    // Sums that someone else wants, too, are there.
    let read_twice = format!("{}, %4", requantized);
    assert!(write(&read_twice).contains("ConvInteger"));
    let of_other_type =
        "%6 \"y\": i8[1,2,4,4] = requantize(%5, %3) axis=1 high=127 low=-128 to=\"i8\" zero=3\noutput %6";
    assert!(write(of_other_type).contains("ConvInteger"));
}

#[test]
fn what_is_stored_as_integers_stays_so() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tflite-cases/one_layer_int8/qdq.onnx");
    let file = bytes::Bytes::from(std::fs::read(path).expect("the sample"));
    let source = onnx::import(file.clone(), "qdq.onnx", None, &Options::default()).expect("a model").graph;
    let written = onnx::write_graph(&source).expect("a file");
    let operators = |file| onnx::operator_names(file, "qdq.onnx").expect("operators");
    assert_eq!(operators(written.clone().into()), operators(file));
    let again = onnx::import(written.into(), "written.onnx", None, &Options::default()).expect("a model").graph;
    let operators =
        |graph: &Graph| simplify_graph(graph).expect("a graph").nodes.into_iter().map(|node| node.op).collect();
    let (again, source): (Vec<Op>, Vec<Op>) = (operators(&again), operators(&source));
    assert_eq!(again, source);
    assert!(source.iter().any(|op| matches!(op, Op::QConv(_) | Op::QDense(_))), "{source:?}");
}

#[test]
fn what_is_given_constant_or_answered_twice_is_copied() {
    let mut builder = GraphBuilder::new("copies");
    let x = builder.add_input("x", TensorType::f32(&[2, 3])).expect("an input");
    let c = builder.add_constant("c", TensorType::f32(&[4]), models::Const::Fill(2.0)).expect("a constant");
    let y = builder.push(Op::Unary(Unary { function: models::UnaryOp::Relu }), &[x]).expect("a call");
    same(&builder.finish(&[y, x, y, c]).expect("a graph"));
    // The outputs are exactly the inputs.
    let mut builder = GraphBuilder::new("unchanged");
    let x = builder.add_input("x", TensorType::f32(&[2, 3])).expect("an input");
    let y = builder.add_input("", TensorType::f32(&[4])).expect("an input");
    same(&builder.finish(&[x, y]).expect("a graph"));
}

/// In ONNX, the indices of `OneHot` have at least one dimension.
#[test]
fn a_single_index_is_written_with_a_dimension() {
    let mut builder = GraphBuilder::new("single");
    let x = builder.add_input("x", TensorType::f32(&[4])).expect("an input");
    let place = Op::ArgReduce(ArgReduce { largest: true, axis: 0, keep: false, last: false });
    let place = builder.push(place, &[x]).expect("a call");
    let marks = Op::OneHot(OneHot { axis: 0, depth: 4, on: 1.0, off: 0.0, to: DType::F32 });
    let marks = builder.push(marks, &[place]).expect("a call");
    let graph = builder.finish(&[marks]).expect("a graph");
    same(&graph);
    let file = onnx::write_graph(&graph).expect("a file");
    let operators = onnx::operator_names(file.into(), "single.onnx").expect("operators");
    assert!(operators.iter().any(|name| name.contains("Reshape")), "{operators:?}");
}

#[test]
fn what_is_too_large_or_has_no_size_is_refused() {
    let mut builder = GraphBuilder::new("large");
    let x = builder.add_input("x", TensorType::f32(&[1, 32_768])).expect("an input");
    let w = builder.add_constant("w", TensorType::f32(&[32_768, 32_768]), models::Const::Random { seed: 1 });
    let y = builder.push(Op::Dense(Dense {}), &[x, w.expect("a constant")]).expect("a call");
    let graph = builder.finish(&[y]).expect("a graph");
    expect!["graph `large`, constants: the constants take 4294967296 bytes; an ONNX file has at most 2 GiB"]
        .assert_eq(&onnx::write_graph(&graph).expect_err("too large").to_string());
    let mut builder = GraphBuilder::new("open");
    let x = builder.add_input("x", "f32[n,3]".parse().expect("a type")).expect("an input");
    let y = builder.push(Op::Unary(Unary { function: models::UnaryOp::Relu }), &[x]).expect("a call");
    let graph = builder.finish(&[y]).expect("a graph");
    expect!["graph `open`, x: f32[n,3] has a symbolic dimension"]
        .assert_eq(&onnx::write_graph(&graph).expect_err("no size").to_string());
}
