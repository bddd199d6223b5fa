//! Tests of products and convolutions of 8-bit integers whose zero point is computed at run time.

use super::*;
use models::operators::{QConv, QDense};

const SIGNED: i32 = 3;
const UNSIGNED: i32 = 2;

fn bytes(name: &str, dims: &[i64], code: i32, numbers: &[u8]) -> messages::Tensor {
    messages::Tensor {
        dims: dims.to_vec(),
        data_type: code,
        name: name.to_owned(),
        raw_data: Some(numbers.to_vec().into()),
        ..messages::Tensor::default()
    }
}

#[test]
fn quantised_at_run_time_is_a_product_of_bytes() {
    // The weights -1 2 -3 / 4 -5 6: once as signed bytes, once as unsigned bytes with the zero point 130.
    let weights = [(SIGNED, [255, 2, 253, 4, 251, 6], 0_u8, 0), (UNSIGNED, [129, 132, 127, 134, 125, 136], 130, 2)];
    for (code, weight, zero, expected) in weights {
        let constants = vec![bytes("w", &[2, 3], code, &weight), bytes("w_zero", &[], code, &[zero])];
        let nodes =
            vec![node("q,scale,zero = DynamicQuantizeLinear(x)"), node("y = MatMulInteger(q, w, zero, w_zero)")];
        let graph = read(&model(&["2", "2"], constants, nodes), &Options::default()).unwrap().graph;
        let after = simplify_graph(&graph).unwrap();
        let dense = after.nodes.iter().find_map(|node| match node.op {
            Op::QDense(QDense { w_zero, .. }) => Some(w_zero),
            _ => None,
        });
        assert_eq!(dense, Some(expected), "{}", after.to_text());
        // The range is -1 to 254, so scale and zero point are 1 and quantisation loses nothing.
        let x = [Tensor::from_numbers(graph.values[0].ty.clone(), &[-1.0, 254.0, 0.0, 7.0]).unwrap()];
        let y = reference::evaluate_graph(&after, &x).unwrap()[0].to_numbers();
        assert_eq!(y, [1017.0, -1272.0, 1527.0, 28.0, -35.0, 42.0]);
    }
}

/// Padding counts as zero, whatever the zero point of the data is.
#[test]
fn quantised_at_run_time_is_a_convolution_of_bytes() {
    // The range is -1 to 254, so scale and zero point are 1 and quantisation loses nothing.
    let data: Vec<f64> = (0..24).map(|place| [-1.0, 254.0, 0.0, 7.0, 30.0, 100.0, 4.0][place * 5 % 7]).collect();
    for groups in [1, 2] {
        let numbers: Vec<i32> = (0..36 / groups).map(|place| place as i32 * 7 % 11 - 5).collect();
        let dims = [2, 2 / groups, 3, 3];
        let stored: Vec<u8> = numbers.iter().map(|number| (number + 130) as u8).collect();
        let attributes = [ints("pads", &[1, 0, 1, 2]), ints("strides", &[2, 1]), int("group", groups)];
        let convolution = |text: &str| Node { attribute: attributes.to_vec(), ..node(text) };
        let constants = vec![bytes("w", &dims, UNSIGNED, &stored), bytes("w_zero", &[], UNSIGNED, &[130])];
        let nodes =
            vec![node("q,scale,zero = DynamicQuantizeLinear(x)"), convolution("y = ConvInteger(q, w, zero, w_zero)")];
        let quantised =
            simplify_graph(&read(&model(&["1", "2", "3", "4"], constants, nodes), &Options::default()).unwrap().graph);
        let quantised = quantised.unwrap();
        let operators: Vec<&Op> = quantised.nodes.iter().map(|node| &node.op).collect();
        assert!(operators.iter().any(|op| matches!(op, Op::QConv(QConv { w_zero: 2, .. }))), "{}", quantised.to_text());
        assert!(!operators.iter().any(|op| matches!(op, Op::Conv(_))), "{}", quantised.to_text());

        let real: Vec<f32> = numbers.iter().map(|&number| number as f32).collect();
        let float = model(&["1", "2", "3", "4"], vec![floats("w", &dims, &real)], vec![convolution("y = Conv(x, w)")]);
        let float = read(&float, &Options::default()).unwrap().graph;
        let x = [Tensor::from_numbers(float.values[0].ty.clone(), &data).unwrap()];
        let found = reference::evaluate_graph(&quantised, &x).unwrap()[0].to_numbers();
        assert_eq!(found, reference::evaluate_graph(&float, &x).unwrap()[0].to_numbers(), "{groups} groups");
    }
}
