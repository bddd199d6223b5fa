//! Tests that passes do not change what a graph computes.

use super::*;
use models::builder::GraphBuilder;
use models::graph::{Const, ValueId};
use models::operators::{
    BatchNorm, BiasAdd, Binary, BinaryOp, Cast, Concat, Conv, Dense, Flatten, GlobalPool, Identity, Op, Pad, PoolMode,
    Reshape, Transpose, Unary, UnaryOp,
};
use models::types::{DType, TensorType};
use reference::{Tensor, Tolerance, compare_tensors, evaluate_graph};

fn conv_bias_norm(weight: Const, bias: Option<Const>, vectors: [Const; 4]) -> Graph {
    let mut builder = GraphBuilder::new("norm");
    let x = builder.add_input("x", TensorType::f32(&[1, 2, 3, 3])).unwrap();
    let w = builder.add_constant("w", TensorType::f32(&[2, 2, 2, 2]), weight).unwrap();
    let conv = Op::Conv(Conv { strides: vec![1, 1], pads: vec![0; 4], dilations: vec![1, 1], groups: 1 });
    let mut y = builder.push(conv, &[x, w]).unwrap();
    let channels = TensorType::f32(&[2]);
    if let Some(bias) = bias {
        let bias = builder.add_constant("bias", channels.clone(), bias).unwrap();
        y = builder.push(Op::BiasAdd(BiasAdd { axis: 1 }), &[y, bias]).unwrap();
    }
    let mut inputs = vec![y];
    for (name, data) in ["scale", "shift", "mean", "variance"].iter().zip(vectors) {
        inputs.push(builder.add_constant(name, channels.clone(), data).unwrap());
    }
    let y = builder.push(Op::BatchNorm(BatchNorm { epsilon: 0.5 }), &inputs).unwrap();
    builder.finish(&[y]).unwrap()
}

fn names(graph: &Graph) -> String {
    graph.nodes.iter().map(|node| node.op.name()).collect::<Vec<_>>().join(" ")
}

fn data_of(graph: &Graph, node: usize, input: usize) -> Const {
    graph.values[graph.nodes[node].inputs[input].0 as usize].data.clone().expect("a constant")
}

#[test]
fn normalisation_folds_into_the_convolution_before_it() {
    let vectors = || [Const::Fill(3.0), Const::Fill(1.0), Const::Fill(4.0), Const::Fill(3.5)];
    // 3 / sqrt(3.5 + 0.5) = 1.5
    let graph = simplify_graph(&conv_bias_norm(Const::Fill(2.0), Some(Const::Fill(10.0)), vectors())).unwrap();
    assert_eq!(names(&graph), "conv bias_add");
    assert_eq!((data_of(&graph, 0, 1), data_of(&graph, 1, 1)), (Const::Fill(3.0), Const::Fill(10.0)));

    let random = || Const::Random { seed: 5 };
    let graph = simplify_graph(&conv_bias_norm(random(), None, [random(), random(), random(), random()])).unwrap();
    assert_eq!(names(&graph), "conv bias_add");
    assert!(matches!(data_of(&graph, 0, 1), Const::Random { .. }));

    // A scale that differs by channel goes into the weight when its values are wanted.
    let [_, shift, mean, variance] = vectors();
    let listed = [Const::Small(vec![2.0, 4.0]), shift, mean, variance];
    let graph = simplify_graph(&conv_bias_norm(Const::Fill(2.0), Some(Const::Fill(10.0)), listed)).unwrap();
    assert_eq!(names(&graph), "conv bias_add");
    assert!(matches!(data_of(&graph, 0, 1), Const::Computed(_)));
    assert_eq!(data_of(&graph, 1, 1), Const::Small(vec![7.0, 13.0]));
}

#[test]
fn normalisation_of_a_value_that_others_read_stays_apart() {
    let mut builder = GraphBuilder::new("shared");
    let x = builder.add_input("x", TensorType::f32(&[1, 2])).unwrap();
    let w = builder.add_constant("w", TensorType::f32(&[2, 2]), Const::Random { seed: 1 }).unwrap();
    let y = builder.push(Op::Dense(Dense {}), &[x, w]).unwrap();
    let vector = builder.add_constant("v", TensorType::f32(&[2]), Const::Random { seed: 2 }).unwrap();
    let normal =
        builder.push(Op::BatchNorm(BatchNorm { epsilon: 1e-5 }), &[y, vector, vector, vector, vector]).unwrap();
    let sum = builder.push(Op::Binary(Binary { function: BinaryOp::Add }), &[y, normal]).unwrap();
    let graph = simplify_graph(&builder.finish(&[sum]).unwrap()).unwrap();
    assert_eq!(names(&graph), "dense scale_shift add");
}

#[test]
fn what_changes_nothing_and_what_nobody_reads_is_dropped() {
    let mut builder = GraphBuilder::new("noise");
    let x = builder.add_input("x", TensorType::f32(&[2, 3])).unwrap();
    let mut y = x;
    for op in [
        Op::Identity(Identity {}),
        Op::Cast(Cast { to: DType::F32 }),
        Op::Reshape(Reshape { shape: vec![2, -1] }),
        Op::Flatten(Flatten { axis: 1 }),
        Op::Transpose(Transpose { permutation: vec![0, 1] }),
        Op::Concat(Concat { axis: 1 }),
        Op::Pad(Pad { pads: vec![0; 4], value: 0.0 }),
    ] {
        y = builder.push(op, &[y]).unwrap();
    }
    let z = builder.push(Op::Unary(Unary { function: UnaryOp::Relu }), &[y]).unwrap();
    builder.push(Op::Transpose(Transpose { permutation: vec![1, 0] }), &[z]).unwrap();
    let graph = simplify_graph(&builder.finish(&[z]).unwrap()).unwrap();
    assert_eq!(names(&graph), "relu");
}

#[test]
fn equal_things_are_computed_once() {
    let mut builder = GraphBuilder::new("twice");
    let x = builder.add_input("x", TensorType::f32(&[1, 3])).unwrap();
    let mut branch = |value: f64| -> ValueId {
        let one = builder.add_constant("c", TensorType::f32(&[3]), Const::Fill(value)).unwrap();
        builder.push(Op::BiasAdd(BiasAdd { axis: 1 }), &[x, one]).unwrap()
    };
    let branches = [branch(1.0), branch(1.0), branch(2.0)];
    let y = builder.push(Op::Concat(Concat { axis: 1 }), &branches).unwrap();
    let graph = simplify_graph(&builder.finish(&[y]).unwrap()).unwrap();
    assert_eq!(names(&graph), "bias_add bias_add concat");
    let concat = &graph.nodes[2].inputs;
    assert_eq!(concat[0], concat[1]);
    assert_ne!(concat[0], concat[2]);
}

#[test]
fn a_graph_that_breaks_a_rule_is_refused_before_any_pass() {
    let mut graph = conv_bias_norm(Const::Fill(1.0), None, [1.0, 1.0, 1.0, 1.0].map(Const::Fill));
    graph.nodes[0].op = Op::GlobalPool(GlobalPool { mode: PoolMode::Max });
    assert!(simplify_graph(&graph).unwrap_err().to_string().contains("takes 1 inputs, got 2"));
}

#[test]
fn passes_keep_what_a_graph_computes() {
    let listed = |a: f64, b: f64| Const::Small(vec![a, b]);
    for bias in [None, Some(listed(0.5, -0.5))] {
        for scale in [Const::Fill(3.0), listed(2.0, -1.0)] {
            let vectors = [scale, listed(1.0, 2.0), Const::Fill(0.25), Const::Fill(3.5)];
            let graph = conv_bias_norm(Const::Fill(2.0), bias.clone(), vectors);
            let numbers: Vec<f64> = (1..=18).map(f64::from).collect();
            let x = [Tensor::from_numbers(TensorType::f32(&[1, 2, 3, 3]), &numbers).unwrap()];
            let (before, after) =
                (evaluate_graph(&graph, &x).unwrap(), evaluate_graph(&simplify_graph(&graph).unwrap(), &x).unwrap());
            assert!(compare_tensors(&after[0], &before[0], Tolerance { absolute: 0.0, relative: 1e-6 }).unwrap().ok);
        }
    }
}
