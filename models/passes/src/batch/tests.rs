//! Tests that a changed batch leaves the result of each sample as it is.

use super::*;
use models::builder::GraphBuilder;
use models::operators::{EXAMPLES, Transpose};
use models::task::Task;
use models::types::DType;
use reference::Tensor;
use std::collections::BTreeSet;

const BATCH: i64 = 3;

/// Returns random inputs. Integers are 0 or 1, because they may be indices.
fn small_inputs(graph: &Graph, seed: u64) -> Vec<Tensor> {
    let inputs = reference::graph_inputs(graph, seed).unwrap();
    let small = |tensor: Tensor| {
        let ty = tensor.tensor_type().clone();
        if !matches!(ty.dtype, DType::I32 | DType::I64) {
            return tensor;
        }
        let numbers: Vec<f64> = tensor.to_numbers().iter().map(|number| number.rem_euclid(2.0)).collect();
        Tensor::from_numbers(ty, &numbers).unwrap()
    };
    inputs.into_iter().map(small).collect()
}

fn check_samples(graph: &Graph) -> Outcome<Graph> {
    let (changed, positions) = batch_graph(graph, BATCH)?;
    let samples: Vec<Vec<Tensor>> = (0..BATCH as u64).map(|seed| small_inputs(graph, seed)).collect();
    let inputs: Vec<Tensor> = changed
        .inputs
        .iter()
        .enumerate()
        .map(|(input, id)| {
            let numbers: Vec<f64> = samples.iter().flat_map(|sample| sample[input].to_numbers()).collect();
            Tensor::from_numbers(changed.values[id.0 as usize].ty.clone(), &numbers).unwrap()
        })
        .collect();
    let found = reference::evaluate_graph(&changed, &inputs).unwrap();
    for (number, sample) in samples.iter().enumerate() {
        let expected = reference::evaluate_graph(graph, sample).unwrap();
        for ((expected, found), position) in expected.iter().zip(&found).zip(&positions) {
            let position = position.expect("the output depends on the input");
            let rest =
                expected.to_numbers().len() / position.prefix(&expected.tensor_type().extents().unwrap()) as usize;
            let of_sample = |chunk: &[f64]| chunk[number * rest..(number + 1) * rest].to_vec();
            let found: Vec<f64> = found.to_numbers().chunks(rest * BATCH as usize).flat_map(of_sample).collect();
            for (a, b) in found.iter().zip(expected.to_numbers()) {
                let is_close = (a - b).abs() <= 1e-5 * b.abs().max(1.0) || a.to_bits() == b.to_bits();
                assert!(is_close || (a.is_nan() && b.is_nan()), "{a} is not {b}:\n{}", changed.to_text());
            }
            assert_eq!(found.len(), expected.to_numbers().len());
        }
    }
    Ok(changed)
}

/// Builds a task's graph. `batched` parameters have the batch in `axis` after `outer` elements; others are constants.
fn operator_graph(task: &Task, batched: &[usize], axis: usize, outer: i64) -> Option<Graph> {
    let mut builder = GraphBuilder::new("one");
    let mut values = Vec::new();
    for (number, parameter) in task.parameters.iter().enumerate() {
        let extents = parameter.ty.extents()?;
        let name = format!("p{number}");
        if !batched.contains(&number) {
            let count = parameter.ty.element_count()?;
            // Positive, because variances and scales must be; indices below 2.
            let number = |index: u64| {
                if parameter.ty.dtype.is_float() { 0.5 + (index % 7) as f64 / 4.0 } else { (index % 2) as f64 }
            };
            let data = Const::Small((0..count).map(number).collect());
            values.push(builder.add_constant(&name, parameter.ty.clone(), data).ok()?);
            continue;
        }
        if *extents.get(axis)? % outer != 0 {
            return None;
        }
        let apart = [&extents[..axis], &[outer, extents[axis] / outer], &extents[axis + 1..]].concat();
        let given = TensorType::new(parameter.ty.dtype, &insert_extent(&apart, 0, 1));
        let x = builder.add_input(&name, given).ok()?;
        let mut permutation: Vec<i64> = (1..=apart.len() as i64).collect();
        permutation.insert(axis + 1, 0);
        let x = builder.push(Op::Transpose(Transpose { permutation }), &[x]).ok()?;
        values.push(builder.push(Op::Reshape(Reshape { shape: extents }), &[x]).ok()?);
    }
    let y = builder.push(task.steps[0].op.clone(), &values).ok()?;
    builder.finish(&[y]).ok()
}

#[test]
fn every_operator_computes_the_same_for_each_sample() {
    let mut converted = BTreeSet::new();
    for (name, texts) in EXAMPLES {
        for text in *texts {
            let task = Task::from_text(text).unwrap();
            for subset in 1u32..1 << task.parameters.len() {
                let batched: Vec<usize> =
                    (0..task.parameters.len()).filter(|parameter| subset >> parameter & 1 == 1).collect();
                for (axis, outer) in (0..4).flat_map(|axis| [(axis, 1), (axis, 2), (axis, 3)]) {
                    let graph = operator_graph(&task, &batched, axis, outer);
                    if graph.is_some_and(|graph| check_samples(&graph).is_ok()) {
                        converted.insert((*name, batched.clone()));
                    }
                }
            }
        }
    }
    let is_missing = |name: &&str| !converted.contains(&(*name, vec![0]));
    let missing: Vec<&str> = EXAMPLES.iter().map(|(name, _)| *name).filter(is_missing).collect();
    assert_eq!(missing, [""; 0]);
    for several in [
        ("Gather", vec![1]),
        ("Gather", vec![0, 1]),
        ("GatherElements", vec![0, 1]),
        ("GatherNd", vec![0, 1]),
        ("ScatterElements", vec![0, 1, 2]),
        ("ScatterNd", vec![2]),
        ("ScatterNd", vec![0, 1, 2]),
        ("Attention", vec![0, 1, 2]),
        ("Concat", vec![1]),
        ("Einsum", vec![0, 1]),
        ("MatMul", vec![0, 1]),
        ("Where", vec![0, 2]),
    ] {
        assert!(converted.contains(&several), "{several:?}");
    }
}

fn graph(text: &str) -> Graph {
    Graph::from_text(text).unwrap()
}

#[test]
fn reshapes_expansions_and_constants_of_one_sample_follow_the_batch() {
    let changed = check_samples(&graph(
        r#"
        graph "tokens"
        input %0 "x": f32[1,3,4,4]
        constant %1 "w": f32[6,3,2,2] = random(1)
        %2 "patches": f32[1,6,2,2] = conv(%0, %1) dilations=[1,1] groups=1 pads=[0,0,0,0] strides=[2,2]
        %3 "flat": f32[1,6,4] = reshape(%2) shape=[1,6,4]
        %4 "turned": f32[1,4,6] = transpose(%3) permutation=[0,2,1]
        %12 "rows": f32[4,6] = reshape(%4) shape=[4,6]
        %5 "tokens": f32[1,4,6] = reshape(%12) shape=[1,4,6]
        constant %6 "class": f32[1,1,6] = random(2)
        %7 "all": f32[1,5,6] = concat(%6, %5) axis=1
        constant %8 "places": f32[1,5,6] = random(3)
        %9 "sum": f32[1,5,6] = binary(%7, %8) function="add"
        constant %10 "first": i64[] = list(0)
        %11 "y": f32[1,6] = gather(%9, %10) axis=1
        output %11
        "#,
    ))
    .unwrap();
    let value = |name: &str| &changed.values.iter().find(|value| value.name == name).unwrap().ty;
    assert_eq!(value("rows").extents(), Some(vec![12, 6]));
    assert_eq!(value("all").extents(), Some(vec![3, 5, 6]));
    assert_eq!(value("y").extents(), Some(vec![3, 6]));
}

#[test]
fn windows_with_a_mask_keep_the_mask_of_each_window() {
    check_samples(&graph(
        r#"
        graph "windows"
        input %0 "x": f32[1,4,4,2]
        %1 "apart": f32[2,2,2,2,2] = reshape(%0) shape=[2,2,2,2,2]
        %2 "windows": f32[2,2,2,2,2] = transpose(%1) permutation=[0,2,1,3,4]
        %3 "tokens": f32[4,4,2] = reshape(%2) shape=[4,4,2]
        %4 "scores": f32[4,4,4] = mat_mul(%3, %3) transpose_a=false transpose_b=true
        constant %5 "mask": f32[4,4,4] = random(1)
        %6 "masked": f32[4,4,4] = binary(%4, %5) function="add"
        %7 "shares": f32[4,4,4] = softmax(%6) axis=2 log=false
        %8 "seen": f32[4,4,2] = mat_mul(%7, %3) transpose_a=false transpose_b=false
        output %8
        "#,
    ))
    .unwrap();
}

#[test]
fn samples_that_an_operator_would_combine_are_refused() {
    let refusal = |text: &str| batch_graph(&graph(text), BATCH).unwrap_err();
    let error = refusal(
        r#"
        graph "statistics"
        input %0 "x": f32[1,2,2,2]
        %1 "turned": f32[2,1,2,2] = transpose(%0) permutation=[1,0,2,3]
        constant %2 "w": f32[2,1,1,1] = random(1)
        %3 "y": f32[2,2,2,2] = conv(%1, %2) dilations=[1,1] groups=1 pads=[0,0,0,0] strides=[1,1]
        output %3
        "#,
    );
    assert_eq!(error, "node `y` (`conv`): the operator combines the samples");
    let error =
        refusal("graph \"two\"\ninput %0 \"x\": f32[2,2]\n%1 \"y\": f32[2,2] = unary(%0) function=\"relu\"\noutput %1");
    assert_eq!(error, "input `x` has no batch of 1");
}
