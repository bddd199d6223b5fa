//! Tests that constant operands which make a result undefined are refused.

use super::*;

fn with_attributes(text: &str, attributes: Vec<Attribute>) -> Node {
    Node { attribute: attributes, ..node(text) }
}

fn shaped(name: &str, dims: &[i64], numbers: &[i64]) -> messages::Tensor {
    messages::Tensor { dims: dims.to_vec(), ..integers(name, numbers) }
}

/// Reads `y = …` over `x[3,4]`, the integers `i` and `u`, which is filled with ones; returns the error.
fn error_of(call: Node, dims: &[i64], numbers: &[i64], updates: &[i64]) -> Option<String> {
    let count = updates.iter().product::<i64>() as usize;
    let constants = vec![shaped("i", dims, numbers), floats("u", updates, &vec![1.0; count])];
    read(&model(&["3", "4"], constants, vec![call]), &Options::default()).err().map(|error| error.to_string())
}

#[track_caller]
fn check_both(call: &Node, dims: &[i64], cases: [&[i64]; 2], updates: &[i64], expected: Expect) {
    let [accepted, refused] = cases;
    assert_eq!(error_of(call.clone(), dims, accepted, updates), None);
    expected.assert_eq(&error_of(call.clone(), dims, refused, updates).expect("an error"));
}

#[test]
fn constant_indices_out_of_range_are_refused() {
    check_both(
        &with_attributes("y = Gather(x, i)", vec![int("axis", 1)]),
        &[2],
        [&[-4, 3], &[0, 4]],
        &[],
        expect![
            "`small.onnx`, node `y` (`Gather`): index 4 is out of range: axis 1 has 4 elements, so indices are from -4 to 3"
        ],
    );
    check_both(
        &node("y = GatherElements(x, i)"),
        &[1, 4],
        [&[-3, 2, 0, 0], &[0, -4, 0, 0]],
        &[],
        expect![
            "`small.onnx`, node `y` (`GatherElements`): index -4 is out of range: axis 0 has 3 elements, so indices are from -3 to 2"
        ],
    );
    // Each column of the indices has its own range.
    check_both(
        &node("y = GatherND(x, i)"),
        &[1, 2],
        [&[2, 3], &[3, 2]],
        &[],
        expect![
            "`small.onnx`, node `y` (`GatherND`): index 3 is out of range: axis 0 has 3 elements, so indices are from -3 to 2"
        ],
    );
    let within_batch = with_attributes("y = GatherND(x, i)", vec![int("batch_dims", 1)]);
    check_both(
        &within_batch,
        &[3, 1],
        [&[3, 3, 3], &[0, 0, -5]],
        &[],
        expect![
            "`small.onnx`, node `y` (`GatherND`): index -5 is out of range: axis 1 has 4 elements, so indices are from -4 to 3"
        ],
    );
    check_both(
        &with_attributes("y = ScatterElements(x, i, u)", vec![int("axis", 1)]),
        &[1, 1],
        [&[3], &[10_000_000_000]],
        &[1, 1],
        expect![
            "`small.onnx`, node `y` (`ScatterElements`): index 10000000000 is out of range: axis 1 has 4 elements, so indices are from -4 to 3"
        ],
    );
    check_both(
        &node("y = ScatterND(x, i, u)"),
        &[1, 1],
        [&[-3], &[1 << 40]],
        &[1, 4],
        expect![
            "`small.onnx`, node `y` (`ScatterND`): index 1099511627776 is out of range: axis 0 has 3 elements, so indices are from -3 to 2"
        ],
    );
}

#[test]
fn constant_sequence_lengths_out_of_range_are_refused() {
    let call = node("y = ReverseSequence(x, i)");
    check_both(
        &call,
        &[4],
        [&[0, 1, 2, 3], &[1, 4_000_000, 2, 0]],
        &[],
        expect![
            "`small.onnx`, node `y` (`ReverseSequence`): sequence length 4000000 is out of range; it must be from 0 to 3"
        ],
    );
}

#[test]
fn indices_that_are_folded_or_large_are_checked() {
    // Both operands are constants, so the result is folded.
    let nodes = vec![node("e = Gather(u, i)"), node("y = Add(e, x)")];
    let constants = vec![floats("u", &[3, 4], &[1.0; 12]), integers("i", &[0, 1, 3])];
    check_error(
        &model(&["3", "4"], constants, nodes),
        expect![
            "`small.onnx`, node `e` (`Gather`): index 3 is out of range: axis 0 has 3 elements, so indices are from -3 to 2"
        ],
    );

    // The expanded indices are stored as an expression.
    let nodes = vec![node("all = Expand(i, shape)"), node("y = Gather(x, all)")];
    let constants = vec![shaped("i", &[1, 2], &[0, 5]), integers("shape", &[70_000, 2])];
    check_error(
        &model(&["3", "4"], constants, nodes),
        expect![
            "`small.onnx`, node `y` (`Gather`): index 5 is out of range: axis 0 has 3 elements, so indices are from -3 to 2"
        ],
    );
}

#[test]
fn indices_computed_at_run_time_are_not_checked() {
    let mut open = model(&["2"], vec![floats("u", &[3], &[1.0; 3])], vec![node("y = Gather(u, x)")]);
    let graph = open.graph.as_mut().unwrap();
    graph.input[0].ty.as_mut().unwrap().tensor.as_mut().unwrap().elem_type = 7;
    read(&open, &Options::default()).unwrap();
}

#[test]
fn integer_divisors_of_zero_name_the_node() {
    let nodes = vec![node("extents = Shape(x)"), node("y = Div(extents, i)")];
    check_error(
        &model(&["3", "4"], vec![integers("i", &[2, 0])], nodes),
        expect!["`small.onnx`, node `y` (`Div`): integers are divided by a constant whose element 1 is 0"],
    );
}
