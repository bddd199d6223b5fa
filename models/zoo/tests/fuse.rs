//! Tests which operators are fused into one task.
#![allow(missing_docs)]

use expect_test::{Expect, expect};
use models::operators::{BiasAdd, Binary, Reshape, Softmax, Unary};
use models::{BinaryOp, Class, Fuse, Graph, GraphBuilder, Op, Plan, TensorType, UnaryOp, distinct_tasks, plan_calls};
use passes::simplify_graph;

#[track_caller]
fn check(graph: &Graph, fuse: Fuse, expected: Expect) {
    let plan = plan_calls(graph, fuse).unwrap();
    check_runs(graph, &plan);
    let lines: Vec<String> =
        plan.tasks.iter().map(|one| format!("{} ×{}\n", one.task.describe(), one.places.len())).collect();
    expected.assert_eq(&lines.concat());
}

fn check_runs(graph: &Graph, plan: &Plan) {
    let mut is_made: Vec<bool> = graph.values.iter().map(|value| value.data.is_some()).collect();
    graph.inputs.iter().for_each(|id| is_made[id.0 as usize] = true);
    let see_through_views = |is_made: &mut Vec<bool>| {
        for node in graph.nodes.iter().filter(|node| node.op.class() == Class::View) {
            is_made[node.outputs[0].0 as usize] |= is_made[node.inputs[0].0 as usize];
        }
    };
    for call in &plan.calls {
        see_through_views(&mut is_made);
        let parameters = &plan.tasks[call.task].task.parameters;
        assert_eq!(parameters.len(), call.arguments.len());
        for (parameter, argument) in parameters.iter().zip(&call.arguments) {
            assert!(is_made[argument.0 as usize], "{argument:?} is read before it is made");
            assert_eq!(parameter.ty, graph.values[argument.0 as usize].ty);
        }
        is_made[call.result.0 as usize] = true;
    }
    see_through_views(&mut is_made);
    assert!(graph.outputs.iter().all(|id| is_made[id.0 as usize]));
}

#[test]
fn a_residual_network() {
    let graph = simplify_graph(&zoo::build_model("resnet-18", 1).unwrap()).unwrap();
    check(
        &graph,
        Fuse::Epilogue,
        expect![[r#"
        conv2d f32[1,3,224,224] w[64,3,7,7] s=2 p=3 +bias +relu ×1
        max_pool f32[1,64,112,112] k=3 s=2 p=1 ×1
        conv2d f32[1,64,56,56] w[64,64,3,3] p=1 +bias +relu ×2
        conv2d f32[1,64,56,56] w[64,64,3,3] p=1 +bias +add +relu ×2
        conv2d f32[1,64,56,56] w[128,64,3,3] s=2 p=1 +bias +relu ×1
        conv2d f32[1,64,56,56] w[128,64,1,1] s=2 +bias ×1
        conv2d f32[1,128,28,28] w[128,128,3,3] p=1 +bias +add +relu ×2
        conv2d f32[1,128,28,28] w[128,128,3,3] p=1 +bias +relu ×1
        conv2d f32[1,128,28,28] w[256,128,3,3] s=2 p=1 +bias +relu ×1
        conv2d f32[1,128,28,28] w[256,128,1,1] s=2 +bias ×1
        conv2d f32[1,256,14,14] w[256,256,3,3] p=1 +bias +add +relu ×2
        conv2d f32[1,256,14,14] w[256,256,3,3] p=1 +bias +relu ×1
        conv2d f32[1,256,14,14] w[512,256,3,3] s=2 p=1 +bias +relu ×1
        conv2d f32[1,256,14,14] w[512,256,1,1] s=2 +bias ×1
        conv2d f32[1,512,7,7] w[512,512,3,3] p=1 +bias +add +relu ×2
        conv2d f32[1,512,7,7] w[512,512,3,3] p=1 +bias +relu ×1
        global_average_pool f32[1,512,7,7] ×1
        dense f32[1,512] w[1000,512] +bias ×1
    "#]],
    );
    let places = &distinct_tasks(&graph, Fuse::Epilogue).unwrap()[2].places;
    assert_eq!(places, &["layer1.0.conv1", "layer1.1.conv1"]);
}

#[test]
fn without_fusion_every_operator_is_a_task() {
    check(
        &zoo::build_model("mlp", 2).unwrap(),
        Fuse::None,
        expect![[r#"
        dense f32[2,784] w[128,784] ×1
        bias_add f32[2,128] axis=1 ×1
        relu f32[2,128] ×1
        dense f32[2,128] w[64,128] ×1
        bias_add f32[2,64] axis=1 ×1
        relu f32[2,64] ×1
        dense f32[2,64] w[10,64] ×1
        bias_add f32[2,10] axis=1 ×1
        softmax f32[2,10] axis=1 ×1
    "#]],
    );
}

#[test]
fn what_ends_a_group() {
    let mut builder = GraphBuilder::new("ends");
    let relu = || Op::Unary(Unary { function: UnaryOp::Relu });
    let x = builder.add_input("x", TensorType::f32(&[2, 3, 4])).unwrap();
    let softmax = builder.push(Op::Softmax(Softmax { axis: 2, log: false }), &[x]).unwrap();
    // A view between operators changes the shape of the pointwise operator.
    let view = builder.push(Op::Reshape(Reshape { shape: vec![6, 4] }), &[softmax]).unwrap();
    let positive = builder.push(relu(), &[view]).unwrap();
    // An operator that uses the same value twice cannot be an epilogue of it, but can have one.
    let square = builder.push(Op::Binary(Binary { function: BinaryOp::Mul }), &[positive, positive]).unwrap();
    let tanh = builder.push(Op::Unary(Unary { function: UnaryOp::Tanh }), &[square]).unwrap();
    // An output between operators, and a shape that grows.
    let y = builder.add_input("y", TensorType::f32(&[5, 1, 1])).unwrap();
    let sum = builder.push(Op::Binary(Binary { function: BinaryOp::Add }), &[tanh, y]).unwrap();
    let graph = builder.finish(&[tanh, sum]).unwrap();
    check(
        &graph,
        Fuse::Epilogue,
        expect![[r#"
        softmax f32[2,3,4] axis=2 ×1
        relu f32[6,4] ×1
        mul f32[6,4] f32[6,4] +tanh ×1
        add f32[6,4] f32[5,1,1] ×1
    "#]],
    );
}

#[test]
fn a_vector_computed_at_run_time_is_no_epilogue() {
    let mut builder = GraphBuilder::new("vector");
    let x = builder.add_input("x", TensorType::f32(&[1, 4])).unwrap();
    let b = builder.add_input("b", TensorType::f32(&[4])).unwrap();
    let b = builder.push(Op::Softmax(Softmax { axis: 0, log: false }), &[b]).unwrap();
    let y = builder.push(Op::BiasAdd(BiasAdd { axis: 1 }), &[x, b]).unwrap();
    check(
        &builder.finish(&[y]).unwrap(),
        Fuse::Epilogue,
        expect![[r#"
        softmax f32[4] axis=0 ×1
        bias_add f32[1,4] axis=1 ×1
    "#]],
    );
}
