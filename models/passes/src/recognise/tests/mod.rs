//! Tests of recognising operators that files express in many small operators.

mod attention;

use crate::simplify_graph;
use models::graph::Graph;
use reference::{Tensor, Tolerance, compare_tensors, evaluate_graph};

#[track_caller]
fn check(lines: &str, expected: &str) {
    let graph = Graph::from_text(&format!("graph \"pattern\"\n{lines}")).unwrap();
    let after = simplify_graph(&graph).unwrap();
    let names: Vec<&str> = after.nodes.iter().map(|node| node.op.name()).collect();
    assert_eq!(names.join(" "), expected, "{}", after.to_text());
    let inputs: Vec<Tensor> = graph.inputs.iter().map(|id| counting(&graph, id.0 as usize)).collect();
    let (before, after) = (evaluate_graph(&graph, &inputs).unwrap(), evaluate_graph(&after, &inputs).unwrap());
    let tolerance = Tolerance { absolute: 1e-5, relative: 1e-4 };
    for (after, before) in after.iter().zip(&before) {
        assert!(compare_tensors(after, before, tolerance).unwrap().ok, "{after:?} {before:?}");
    }
}

fn counting(graph: &Graph, value: usize) -> Tensor {
    let ty = graph.values[value].ty.clone();
    let numbers: Vec<f64> = (0..ty.element_count().unwrap()).map(|index| (index % 7) as f64 / 2.0 - 1.25).collect();
    Tensor::from_numbers(ty, &numbers).unwrap()
}

#[test]
fn layer_norm() {
    let norm = r#"
        input %0 "x": f32[2,3,8]
        %1 "mean": f32[2,3,1] = reduce(%0) function="mean" axes=[2] keep=true
        %2 "centred": f32[2,3,8] = binary(%0, %1) function="sub"
        constant %3 "two": f32[] = fill(2.0)
        %4 "squares": f32[2,3,8] = binary(%2, %3) function="pow"
        %5 "variance": f32[2,3,1] = reduce(%4) function="mean" axes=[2] keep=true
        constant %6 "epsilon": f32[] = fill(1e-5)
        %7 "moved": f32[2,3,1] = binary(%5, %6) function="add"
        %8 "deviation": f32[2,3,1] = unary(%7) function="sqrt"
        %9 "normalised": f32[2,3,8] = binary(%2, %8) function="div"
    "#;
    check(&format!("{norm}\noutput %9"), "layer_norm");
    let affine = r#"
        constant %10 "scale": f32[8] = list(1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0)
        %11 "scaled": f32[2,3,8] = binary(%9, %10) function="mul"
        constant %12 "shift": f32[1,1,8] = list(0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
        %13 "y": f32[2,3,8] = binary(%12, %11) function="add"
        output %13
    "#;
    check(&format!("{norm}{affine}"), "layer_norm");
}

#[test]
fn rms_norm() {
    let lines = r#"
        input %0 "x": f32[2,3,4]
        %1 "squares": f32[2,3,4] = unary(%0) function="square"
        %2 "mean": f32[2,3,1] = reduce(%1) function="mean" axes=[2] keep=true
        constant %3 "epsilon": f32[] = fill(1e-6)
        %4 "moved": f32[2,3,1] = binary(%2, %3) function="add"
        %5 "factor": f32[2,3,1] = unary(%4) function="rsqrt"
        %6 "normalised": f32[2,3,4] = binary(%0, %5) function="mul"
        constant %7 "scale": f32[4] = list(1.0, 2.0, 3.0, 4.0)
        %8 "y": f32[2,3,4] = binary(%7, %6) function="mul"
        output %8
    "#;
    check(lines, "rms_norm");
    // Over other dimensions it is none.
    let other = lines.replace("[2,3,1]", "[2,1,4]").replace("axes=[2]", "axes=[1]");
    check(&other, "square reduce_mean add rsqrt mul mul");
}

#[test]
fn gelu_in_both_forms() {
    check(
        r#"
        input %0 "x": f32[9]
        constant %1 "root": f32[] = fill(1.4142135381698608)
        %2 "small": f32[9] = binary(%0, %1) function="div"
        %3 "erf": f32[9] = unary(%2) function="erf"
        constant %4 "one": f32[] = fill(1.0)
        %5 "gate": f32[9] = binary(%3, %4) function="add"
        %6 "gated": f32[9] = binary(%0, %5) function="mul"
        constant %7 "half": f32[] = fill(0.5)
        %8 "y": f32[9] = binary(%6, %7) function="mul"
        output %8
    "#,
        "gelu",
    );
    check(
        r#"
        input %0 "x": f32[9]
        constant %1 "half": f32[] = fill(0.5)
        %2 "halved": f32[9] = binary(%0, %1) function="mul"
        constant %3 "three": f32[] = fill(3.0)
        %4 "cube": f32[9] = binary(%0, %3) function="pow"
        constant %5 "part": f32[] = fill(0.044714998453855515)
        %6 "some": f32[9] = binary(%4, %5) function="mul"
        %7 "sum": f32[9] = binary(%0, %6) function="add"
        constant %8 "scale": f32[] = fill(0.7978845834732056)
        %9 "scaled": f32[9] = binary(%7, %8) function="mul"
        %10 "bent": f32[9] = unary(%9) function="tanh"
        constant %11 "one": f32[] = fill(1.0)
        %12 "gate": f32[9] = binary(%10, %11) function="add"
        %13 "y": f32[9] = binary(%2, %12) function="mul"
        output %13
    "#,
        "gelu_tanh",
    );
}

#[test]
fn silu_hard_swish_and_mish() {
    check(
        r#"
        input %0 "x": f32[9]
        %1 "gate": f32[9] = unary(%0) function="sigmoid"
        %2 "y": f32[9] = binary(%1, %0) function="mul"
        output %2
    "#,
        "silu",
    );
    check(
        r#"
        input %0 "x": f32[9]
        constant %1 "three": f32[] = fill(3.0)
        %2 "moved": f32[9] = binary(%0, %1) function="add"
        %3 "ramp": f32[9] = clip(%2) low=0.0 high=6.0
        %4 "product": f32[9] = binary(%0, %3) function="mul"
        constant %5 "six": f32[] = fill(6.0)
        %6 "y": f32[9] = binary(%4, %5) function="div"
        output %6
    "#,
        "hard_swish",
    );
    check(
        r#"
        input %0 "x": f32[9]
        %1 "soft": f32[9] = unary(%0) function="softplus"
        %2 "gate": f32[9] = unary(%1) function="tanh"
        %3 "y": f32[9] = binary(%0, %2) function="mul"
        output %3
    "#,
        "mish",
    );
    // The gate of another tensor is no activation.
    check(
        r#"
        input %0 "x": f32[9]
        input %1 "z": f32[9]
        %2 "gate": f32[9] = unary(%1) function="sigmoid"
        %3 "y": f32[9] = binary(%0, %2) function="mul"
        output %3
    "#,
        "sigmoid mul",
    );
}

#[test]
fn convolution_takes_pads_and_bias() {
    let lines = r#"
        input %0 "x": f32[1,1,3,3]
        %1 "padded": f32[1,1,5,6] = pad(%0) pads=[0,0,1,2,0,0,1,1] value=0.0
        constant %2 "w": f32[2,1,2,2] = list(1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0)
        %3 "c": f32[1,2,4,5] = conv(%1, %2) strides=[1,1] pads=[0,0,0,0] dilations=[1,1] groups=1
        constant %4 "b": f32[2,1,1] = list(0.5, -0.5)
        %5 "y": f32[1,2,4,5] = binary(%3, %4) function="add"
        output %5
    "#;
    check(lines, "conv bias_add");
    check(&lines.replace("value=0.0", "value=1.0"), "pad conv bias_add");
}

#[test]
fn a_mean_over_space_is_a_global_pool() {
    let lines = |keep: &str, ty: &str| {
        format!(
            "input %0 \"x\": f32[2,3,4,4]\n%1 \"y\": {ty} = reduce(%0) function=\"mean\" axes=[2,3] keep={keep}\noutput %1"
        )
    };
    check(&lines("true", "f32[2,3,1,1]"), "global_pool");
    check(&lines("false", "f32[2,3]"), "global_pool flatten");
}

#[test]
fn a_softmax_is_guarded_only_where_a_mask_comes_in() {
    let guarded = |scores: &str| {
        format!(
            r#"
            input %0 "x": f32[2,4]
            input %1 "m": f32[2,4]
            constant %2 "w": f32[4,4] = fill(0.5)
            %3 "product": f32[2,4] = mat_mul(%0, %2) transpose_a=false transpose_b=false
            {scores}
            %5 "weights": f32[2,4] = softmax(%4) axis=1 log=false
            %6 "bad": bool[2,4] = unary(%5) function="is_nan"
            constant %7 "zero": f32[] = fill(0.0)
            %8 "y": f32[2,4] = where(%6, %7, %5)
            output %8
        "#
        )
    };
    let scaled = r#"%4 "scores": f32[2,4] = unary(%3) function="tanh""#;
    check(&guarded(scaled), "dense tanh softmax");
    let masked = r#"%4 "scores": f32[2,4] = binary(%3, %1) function="add""#;
    check(&guarded(masked), "dense add softmax is_nan where");
}
