//! Tests of ONNX files that are read, and of those that are refused.

mod edges;
mod flow;
mod quantised;
mod small_floats;
mod undefined;

use super::messages::{self, Attribute, Dimension, Extent, Node, ValueInfo};
use super::*;
use expect_test::{Expect, expect};
use models::fuse::{Fuse, distinct_tasks};
use models::operators::{Binary, BinaryOp, Op, Reshape, Unary, UnaryOp};
use models::types::DType;
use passes::simplify_graph;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Returns a tensor with dimensions of a number, a name, or neither (`?`).
fn info(name: &str, dims: &[&str]) -> ValueInfo {
    let dim = |text: &&str| {
        let stated = || text.parse().map(Extent::Value).unwrap_or_else(|_| Extent::Symbol((*text).to_owned()));
        Dimension { value: (*text != "?").then(stated) }
    };
    let shape = messages::Shape { dim: dims.iter().map(dim).collect() };
    let tensor = messages::TensorType { elem_type: 1, shape: Some(shape) };
    ValueInfo { name: name.to_owned(), ty: Some(messages::Type { tensor: Some(tensor) }) }
}

/// Parses a node such as `y = Add(a, b)`.
fn node(text: &str) -> Node {
    let (outputs, call) = text.split_once(" = ").unwrap();
    let (operator, inputs) = call.split_once('(').unwrap();
    let names = |list: &str| list.split(',').map(|name| name.trim().to_owned()).collect::<Vec<_>>();
    let inputs = inputs.trim_end_matches(')');
    Node {
        input: if inputs.is_empty() { vec![] } else { names(inputs) },
        output: names(outputs),
        op_type: operator.to_owned(),
        ..Node::default()
    }
}

fn ints(name: &str, numbers: &[i64]) -> Attribute {
    Attribute { name: name.to_owned(), ints: numbers.to_vec(), ..Attribute::default() }
}

fn int(name: &str, number: i64) -> Attribute {
    Attribute { name: name.to_owned(), i: Some(number), ..Attribute::default() }
}

fn floats(name: &str, dims: &[i64], numbers: &[f32]) -> messages::Tensor {
    let raw: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    messages::Tensor {
        dims: dims.to_vec(),
        data_type: 1,
        name: name.to_owned(),
        raw_data: Some(raw.into()),
        ..messages::Tensor::default()
    }
}

fn integers(name: &str, numbers: &[i64]) -> messages::Tensor {
    messages::Tensor {
        dims: vec![numbers.len() as i64],
        data_type: 7,
        int64_data: numbers.to_vec(),
        name: name.to_owned(),
        ..messages::Tensor::default()
    }
}

fn model(x: &[&str], constants: Vec<messages::Tensor>, nodes: Vec<Node>) -> messages::Model {
    let output = ValueInfo { name: "y".to_owned(), ty: None };
    messages::Model {
        opset_import: vec![messages::OperatorSet { domain: String::new(), version: 21 }],
        graph: Some(messages::Graph {
            name: "small".to_owned(),
            node: nodes,
            initializer: constants,
            input: vec![info("x", x)],
            output: vec![output],
            ..messages::Graph::default()
        }),
        ..messages::Model::default()
    }
}

/// Builds a model that flattens a batch as exporters do, to the shape `[batch, -1]` with the batch read from the input.
fn flattening() -> messages::Model {
    let constants = vec![integers("zero", &[0]), integers("rest", &[-1]), floats("w", &[2, 4], &[0.5; 8])];
    let mut concat = node("shape = Concat(batch, rest)");
    concat.attribute.push(int("axis", 0));
    let mut gemm = node("y = Gemm(flat, w)");
    gemm.attribute.push(int("transB", 1));
    let nodes = vec![
        node("extents = Shape(x)"),
        node("batch = Gather(extents, zero)"),
        concat,
        node("flat = Reshape(x, shape)"),
        gemm,
    ];
    model(&["batch", "2", "2"], constants, nodes)
}

fn read(model: &messages::Model, options: &Options) -> Result<Imported> {
    import(model.encode_to_vec().into(), "small.onnx", None, options)
}

#[track_caller]
fn check_error(model: &messages::Model, expected: Expect) {
    expected.assert_eq(&read(model, &Options::default()).unwrap_err().to_string());
}

#[test]
fn arithmetic_around_shapes_disappears() {
    let options = Options { batch: 3, ..Options::default() };
    let graph = read(&flattening(), &options).unwrap().graph;
    expect![[r#"
        graph "small"
        input %0 "x": f32[3,2,2]
        %1 "flat": f32[3,4] = reshape(%0) shape=[3,4] at "flat" from "Reshape"
        constant %2 "w": f32[2,4] = bytes(32, "2e89e04f9f096179a93936a13e9fd22c")
        %3 "y": f32[3,2] = dense(%1, %2) at "y" from "Gemm"
        output %3
    "#]]
    .assert_eq(&graph.to_text());
    let x = Tensor::from_numbers(graph.values[0].ty.clone(), &[1.0; 12]).unwrap();
    assert_eq!(reference::evaluate_graph(&graph, &[x]).unwrap()[0].to_numbers(), [2.0; 6]);
}

#[test]
fn a_given_shape_binds_symbols() {
    let shapes = BTreeMap::from([("x".to_owned(), vec![7, 2, 2])]);
    let graph = read(&flattening(), &Options { shapes, ..Options::default() }).unwrap().graph;
    assert_eq!(graph.values[graph.outputs[0].0 as usize].ty.to_string(), "f32[7,2]");

    let shapes = BTreeMap::from([("z".to_owned(), vec![7])]);
    let error = read(&flattening(), &Options { shapes, ..Options::default() }).unwrap_err().to_string();
    assert_eq!(
        error,
        "`small.onnx`, input `z`: `--shape` names this input, but the model has no such input; the inputs are `x`"
    );
}

#[test]
fn an_input_that_decides_a_shape_can_be_bound() {
    let mut model = model(&["4"], vec![], vec![node("y = Reshape(x, shape)")]);
    let mut shape = info("shape", &["2"]);
    shape.ty.as_mut().unwrap().tensor.as_mut().unwrap().elem_type = 7;
    model.graph.as_mut().unwrap().input.push(shape);
    check_error(
        &model,
        expect![
            "`small.onnx`, node `y` (`Reshape`): not supported: `shape` is computed at run time, so the shapes that depend on it are unknown"
        ],
    );
    let numbers = Tensor::from_numbers(models::types::TensorType::new(DType::I64, &[2]), &[2.0, 2.0]).unwrap();
    let bindings = BTreeMap::from([("shape".to_owned(), numbers)]);
    let graph = read(&model, &Options { bindings, ..Options::default() }).unwrap().graph;
    assert_eq!(graph.nodes[0].op, Op::Reshape(Reshape { shape: vec![2, 2] }));
}

#[test]
fn mistakes_are_named() {
    check_error(
        &model(&["2"], vec![], vec![node("y = Relu(z)")]),
        expect!["`small.onnx`, node `y` (`Relu`): input `z` is not computed by any earlier node"],
    );
    check_error(
        &model(&["2"], vec![], vec![node("a = Add(x, b)"), node("b = Relu(a)"), node("y = Relu(b)")]),
        expect!["`small.onnx`, node `b` (`Relu`): input `a` is not computed by any earlier node"],
    );
    check_error(
        &model(&["2"], vec![], vec![node("y = Relu(x)"), node("y = Relu(x)")]),
        expect!["`small.onnx`, value `y`: several nodes produce it"],
    );
    check_error(
        &model(&["2"], vec![], vec![node("y = NonZero(x)")]),
        expect![
            "`small.onnx`, node `y` (`NonZero`): not supported: the shape of the result depends on data; `--bind NAME=VALUE` fixes an input that the shape depends on, and `--skip-unsupported` leaves the node out"
        ],
    );
    check_error(
        &model(&["2"], vec![floats("w", &[3], &[1.0; 3])], vec![node("y = Add(x, w)")]),
        expect![
            "`small.onnx`, node `y` (`Add`): `add` does not fit its inputs (f32[2], f32[3]): extents 2 and 3 of dimension 0 do not broadcast"
        ],
    );
    check_error(
        &model(&["2"], vec![floats("w", &[i64::MAX, 3], &[])], vec![node("y = Add(x, w)")]),
        expect!["`small.onnx`, initializer `w`: f32[9223372036854775807,3] has a byte count that exceeds 64 bits"],
    );
    check_error(
        &model(&["2", "n"], vec![], vec![node("y = Relu(x)")]),
        expect![
            "`small.onnx`, input `x`: some dimensions are not fixed (`x` is f32[2,n]); set them with `--shape x=2xN`, with a number for each N"
        ],
    );
    let mut old = model(&["2"], vec![], vec![node("y = Relu(x)")]);
    old.opset_import[0].version = 3;
    check_error(
        &old,
        expect![
            "`small.onnx`: not supported: operator set 3 is not between 6 and 28; convert it with ONNX's version converter"
        ],
    );
    let mut wrong = model(&["2"], vec![], vec![node("y = Relu(x)")]);
    wrong.graph.as_mut().unwrap().output = vec![info("y", &["3"])];
    check_error(
        &wrong,
        expect![
            "`small.onnx`, node `y` (`Relu`): the file states f32[3] for `y`, but inputs and attributes give f32[2]"
        ],
    );
}

#[test]
fn what_is_missing_is_said_at_once() {
    let mut nodes = vec![node("a = Bernoulli(x)"), node("b = Unknown(a)"), node("c = Unknown(b)"), node("y = Odd(c)")];
    nodes[3].domain = "com.microsoft.nchwc".to_owned();
    check_error(
        &model(&["2"], vec![], nodes),
        expect![
            "`small.onnx`, node `a` (`Bernoulli`): not supported: the result is random; operators without a rule: 1 `Bernoulli`, 1 `Odd`, 2 `Unknown`; `--skip-unsupported` leaves them out"
        ],
    );
    let mut layout = model(&["2"], vec![], vec![node("y = Conv(x)")]);
    layout.graph.as_mut().unwrap().node[0].domain = "com.microsoft.nchwc".to_owned();
    let error = read(&layout, &Options::default()).unwrap_err().to_string();
    assert!(error.contains("save the file with ONNX Runtime's optimisation level `ORT_ENABLE_EXTENDED`"), "{error}");

    let mut open = model(&["2", "n"], vec![], vec![node("y = Add(x, z)")]);
    open.graph.as_mut().unwrap().input.push(info("z", &["batch", "n", "m"]));
    check_error(
        &open,
        expect![
            "`small.onnx`, 2 inputs: some dimensions are not fixed (`x` is f32[2,n], `z` is f32[batch,n,m]); set them with `--shape x=2xN` `--shape z=1xNxN`, with a number for each N"
        ],
    );
}

#[test]
fn dimensions_without_a_name_are_independent() {
    let unnamed = |dims: &[&str]| {
        let mut net = model(&["?", "?"], vec![], vec![node("y = Add(x, z)")]);
        net.graph.as_mut().unwrap().input.push(info("z", dims));
        net
    };
    let mut options = Options::default();
    let refusal = |net: &messages::Model, options: &Options| read(net, options).unwrap_err().to_string();
    assert_eq!(
        refusal(&unnamed(&["4", "?"]), &options),
        "`small.onnx`, 2 inputs: some dimensions are not fixed (`x` is f32[?,?], `z` is f32[4,?]); set them with \
         `--shape x=1xN` `--shape z=4xN`, with a number for each N"
    );
    options.shapes = BTreeMap::from([("x".to_owned(), vec![4, 3])]);
    let error = refusal(&unnamed(&["4", "?"]), &options);
    assert!(error.contains("(`z` is f32[4,?]); set them with `--shape z=4xN`"), "{error}");
    let graph = read(&unnamed(&["?", "3"]), &Options { batch: 4, ..options }).unwrap().graph;
    assert_eq!(graph.values[1].ty.to_string(), "f32[4,3]", "the first dimension is the batch");
    let options = Options { sequence: Some(7), ..Options::default() };
    let error = refusal(&unnamed(&["4", "?"]), &options);
    assert!(error.ends_with("unknown dimensions are `?`"), "{error}");
}

#[test]
fn unsupported_nodes_that_no_output_needs_are_left_out() {
    let nodes = vec![node("r = RandomNormalLike(x)"), node("s = Add(r, x)"), node("y = Relu(x)"), node("t = Odd(s)")];
    let imported = read(&model(&["2"], vec![], nodes.clone()), &Options::default()).unwrap();
    let names: Vec<&str> = imported.graph.nodes.iter().map(|node| node.op.name()).collect();
    assert_eq!((names, imported.notes.len()), (vec!["relu"], 3), "{:?}", imported.notes);
    assert_eq!(imported.notes[1], "node `s` (`Add`): left out, because no output of the model needs it");
    let mut needed = model(&["2"], vec![], nodes);
    needed.graph.as_mut().unwrap().output.push(info("s", &["2"]));
    let error = read(&needed, &Options::default()).unwrap_err().to_string();
    assert!(error.contains("node `r` (`RandomNormalLike`): not supported"), "{error}");
}

#[test]
fn different_sizes_of_one_dimension_are_noted() {
    let mut net = model(&["n", "3"], vec![], vec![node("y = Relu(x)"), node("w = Relu(z)")]);
    net.graph.as_mut().unwrap().input.push(info("z", &["n", "m"]));
    let shaped = |z: [i64; 2]| {
        let shapes = BTreeMap::from([("x".to_owned(), vec![2, 3]), ("z".to_owned(), z.to_vec())]);
        read(&net, &Options { shapes, ..Options::default() }).unwrap()
    };
    assert_eq!(shaped([2, 4]).notes, Vec::<String>::new());
    let imported = shaped([5, 4]);
    assert_eq!(imported.graph.values[1].ty.to_string(), "f32[5,4]");
    let [note] = &imported.notes[..] else { panic!("{:?}", imported.notes) };
    assert!(note.starts_with("input `z`: the given shapes have the sizes 2 and 5 for the dimension `n`"), "{note}");
}

#[test]
fn a_length_of_sequences_is_for_dimensions_that_are_called_so() {
    let net = model(&["batch", "sequence_length"], vec![], vec![node("y = Relu(x)")]);
    let options = Options { sequence: Some(7), ..Options::default() };
    let graph = read(&net, &options).unwrap().graph;
    assert_eq!(graph.values[0].ty.to_string(), "f32[1,7]");
    let error = read(&model(&["2"], vec![], vec![node("y = Relu(x)")]), &options).unwrap_err().to_string();
    assert!(error.contains("`--sequence` has no effect"), "{error}");
}

#[test]
fn names_in_messages_are_short_and_plain() {
    let long = format!("y\u{202e}{}", "z".repeat(100_000));
    let net = model(&["2"], vec![], vec![node(&format!("{long} = Relu(missing)"))]);
    let error = read(&net, &Options::default()).unwrap_err().to_string();
    assert!(error.len() < 500 && error.contains("y\\u{202e}zzz") && error.contains("(100002 characters)"), "{error}");
}

#[test]
fn nodes_may_stand_in_any_order() {
    let nodes = vec![node("y = Relu(b)"), node("b = Exp(a)"), node("a = Neg(x)")];
    let graph = read(&model(&["2"], vec![], nodes), &Options::default()).unwrap().graph;
    let names: Vec<&str> = graph.nodes.iter().map(|node| node.op.name()).collect();
    assert_eq!(names, ["neg", "exp", "relu"]);
}

#[test]
fn elements_of_less_than_a_byte_are_unpacked() {
    let nibbles = |code: i32, dims: &[i64], bytes: &[u8]| messages::Tensor {
        dims: dims.to_vec(),
        data_type: code,
        raw_data: Some(bytes.to_vec().into()),
        ..messages::Tensor::default()
    };
    let numbers = |tensor: &messages::Tensor| {
        let (ty, data) = tensor::constant_data(tensor, None).unwrap();
        (ty.dtype, reference::constant_tensor(&ty, &data).unwrap().to_numbers())
    };
    assert_eq!(numbers(&nibbles(21, &[3], &[0x21, 0x0f])), (DType::U8, vec![1.0, 2.0, 15.0]));
    assert_eq!(numbers(&nibbles(22, &[3], &[0x81, 0x0f])), (DType::I8, vec![1.0, -8.0, -1.0]));
    assert_eq!(numbers(&nibbles(25, &[5], &[0b1110_0100, 1])), (DType::U8, vec![0.0, 1.0, 2.0, 3.0, 1.0]));
    assert!(tensor::constant_data(&nibbles(22, &[5], &[0, 0]), None).is_err());
    // A large one is an expression over the bytes of the file.
    let bytes: Vec<u8> = (0..40_000u32).map(|index| index as u8).collect();
    let (ty, data) = tensor::constant_data(&nibbles(22, &[80_000 - 1], &bytes), None).unwrap();
    assert!(matches!(data, models::graph::Const::Computed(_)));
    let large = reference::constant_tensor(&ty, &data).unwrap().to_numbers();
    let signed = |nibble: u8| f64::from(((nibble << 4) as i8) >> 4);
    let expected: Vec<f64> = bytes.iter().flat_map(|byte| [signed(byte & 15), signed(byte >> 4)]).collect();
    assert_eq!(large, expected[..79_999]);
}

#[test]
fn nothing_is_summed_without_a_kernel() {
    let net = model(&["2", "0"], vec![floats("w", &[0, 3], &[])], vec![node("p = MatMul(x, w)"), node("y = Relu(p)")]);
    let graph = read(&net, &Options::default()).unwrap().graph;
    assert!(graph.nodes.is_empty(), "{}", graph.to_text());
    let x = Tensor::from_numbers(graph.values[0].ty.clone(), &[]).unwrap();
    assert_eq!(reference::evaluate_graph(&graph, &[x]).unwrap()[0].to_numbers(), [0.0; 6]);
}

#[test]
fn steps_of_a_recurrent_layer_share_their_tasks() {
    let mut layer = node("y = LSTM(x, w, r)");
    layer.attribute.push(int("hidden_size", 2));
    let weights = |name: &str, columns: i64| floats(name, &[1, 8, columns], &vec![0.5; 8 * columns as usize]);
    let net = model(&["1000", "1", "3"], vec![weights("w", 3), weights("r", 2)], vec![layer]);
    let graph = simplify_graph(&read(&net, &Options::default()).unwrap().graph).unwrap();
    let tasks = distinct_tasks(&graph, Fuse::Epilogue).unwrap();
    let list: Vec<String> = tasks.iter().map(|one| format!("{} {}\n", one.places.len(), one.task.describe())).collect();
    expect![[r#"
        1000 gather w[1000,1,3] i64[1] axis=0
        1 dense f32[1,3] w[8,3] +bias
        1000 slice f32[1,8] axes=1 from=6 to=8 +tanh
        1 slice f32[1,8] axes=1 from=4 to=6 +sigmoid +mul
        999 slice f32[1,8] axes=1 from=0 to=2 +sigmoid +mul +add
        999 tanh f32[1,2]
        999 slice f32[1,8] axes=1 from=2 to=4 +sigmoid +mul
        999 dense f32[1,2] w[8,2]
        999 dense f32[1,3] w[8,3] +add
        999 slice f32[1,8] axes=1 from=4 to=6 +sigmoid +mul
        1 slice f32[1,8] axes=1 from=2 to=4 +sigmoid
        1 slice f32[1,8] axes=1 from=0 to=2 +sigmoid +mul +add +tanh +mul
        31 concat 32×f32[1,1,1,2] axis=0
        1 concat 8×f32[1,1,1,2] axis=0
        1 concat 31×f32[32,1,1,2] f32[8,1,1,2] axis=0
    "#]]
    .assert_eq(&list.concat());
}

#[test]
fn sequences_of_known_length_disappear() {
    let mut split = node("s = SplitToSequence(x, parts)");
    split.attribute.push(int("axis", 0));
    let mut concat = node("y = ConcatFromSequence(t)");
    concat.attribute.push(int("axis", 0));
    let nodes = vec![split, node("a = SequenceAt(s, last)"), node("t = SequenceInsert(s, a, first)"), concat];
    let scalar = |name: &str, number: i64| messages::Tensor { dims: vec![], ..integers(name, &[number]) };
    let constants = vec![integers("parts", &[1, 2]), scalar("last", -1), scalar("first", 0)];
    let graph = read(&model(&["3"], constants, nodes), &Options::default()).unwrap().graph;
    let x = Tensor::from_numbers(graph.values[0].ty.clone(), &[1.0, 2.0, 3.0]).unwrap();
    assert_eq!(reference::evaluate_graph(&graph, &[x]).unwrap()[0].to_numbers(), [2.0, 3.0, 1.0, 2.0, 3.0]);
}

#[test]
fn open_dimensions_get_numbers_and_the_rest_stays() {
    let bytes: Bytes = flattening().encode_to_vec().into();
    let graph = import(bytes.clone(), "small.onnx", None, &Options { batch: 3, ..Options::default() }).unwrap().graph;
    let fixed =
        messages::Model::decode(Bytes::from(with_extents(bytes.clone(), "small.onnx", &graph).unwrap())).unwrap();
    let mut expected = messages::Model::decode(bytes).unwrap();
    expected.graph.as_mut().unwrap().input = vec![info("x", &["3", "2", "2"])];
    expected.graph.as_mut().unwrap().output = vec![info("y", &["3", "2"])];
    assert_eq!(fixed, expected);
}

#[test]
fn what_is_left_out_leaves_the_rest_whole() {
    let mut model = model(&["2"], vec![], vec![node("a = Relu(x)"), node("b = NonZero(a)"), node("y = Relu(b)")]);
    model.graph.as_mut().unwrap().value_info = vec![info("b", &["5"])];
    let imported = read(&model, &Options { skip_unsupported: true, ..Options::default() }).unwrap();
    assert_eq!(imported.skipped.len(), 1);
    assert_eq!(imported.skipped[0].operator, "NonZero");
    // What is left out reads `a` and makes `b`: one is a result now, the other is given.
    expect![[r#"
        graph "small"
        input %0 "x": f32[2]
        input %1 "b": f32[5]
        %2 "a": f32[2] = unary(%0) function="relu" at "a" from "Relu"
        %3 "y": f32[5] = unary(%1) function="relu" at "y" from "Relu"
        output %3, %2
    "#]]
    .assert_eq(&imported.graph.to_text());
}

#[test]
fn functions_and_constant_branches_are_inlined() {
    let mut scaled = node("b = LeakyRelu(a)");
    scaled.attribute.push(Attribute {
        name: "alpha".to_owned(),
        ref_attr_name: "slope".to_owned(),
        ..Attribute::default()
    });
    let function = messages::Function {
        name: "Bend".to_owned(),
        domain: "mine".to_owned(),
        input: vec!["a".to_owned()],
        output: vec!["b".to_owned()],
        node: vec![scaled],
        opset_import: vec![messages::OperatorSet { domain: String::new(), version: 21 }],
        ..messages::Function::default()
    };
    let mut call = node("bent = Bend(x)");
    call.domain = "mine".to_owned();
    call.attribute.push(Attribute { name: "slope".to_owned(), f: Some(0.25), ..Attribute::default() });
    let branch = |name: &str, operator: &str| Attribute {
        name: name.to_owned(),
        g: Some(messages::Graph {
            node: vec![node(&format!("r = {operator}(bent)"))],
            output: vec![info("r", &["2"])],
            ..messages::Graph::default()
        }),
        ..Attribute::default()
    };
    let mut choice = node("y = If(no)");
    choice.attribute = vec![branch("then_branch", "Exp"), branch("else_branch", "Neg")];
    let no =
        messages::Tensor { data_type: 9, int32_data: vec![0], name: "no".to_owned(), ..messages::Tensor::default() };
    let mut model = model(&["2"], vec![no], vec![call, choice]);
    model.functions.push(function);
    let graph = read(&model, &Options::default()).unwrap().graph;
    let functions: Vec<Op> = graph.nodes.iter().map(|node| node.op.clone()).collect();
    assert_eq!(
        functions,
        [
            Op::Unary(Unary { function: UnaryOp::LeakyRelu { alpha: 0.25 } }),
            Op::Unary(Unary { function: UnaryOp::Neg })
        ]
    );
    assert_eq!(graph.nodes[0].origin.scope, "bent/b");

    // A function that calls itself ends somewhere.
    model.functions[0].node[0].op_type = "Bend".to_owned();
    model.functions[0].node[0].domain = "mine".to_owned();
    let error = read(&model, &Options::default()).unwrap_err().to_string();
    assert!(error.contains("function calls are nested deeper than 32 levels"), "{error}");
}

#[test]
fn data_beside_the_file_is_read_when_wanted_and_only_from_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("inner");
    std::fs::create_dir(&inner).unwrap();
    std::fs::write(inner.join("weights"), [0u8, 0, 0, 0, 0, 0, 0x80, 0x3f, 0, 0, 0, 0x40]).unwrap();
    std::fs::write(folder.path().join("outside"), [0; 64]).unwrap();
    let tensor = |location: &str, offset: &str| {
        let entry = |key: &str, value: &str| messages::Entry { key: key.to_owned(), value: value.to_owned() };
        messages::Tensor {
            raw_data: None,
            data_location: 1,
            external_data: vec![entry("location", location), entry("offset", offset), entry("length", "8")],
            ..floats("w", &[2], &[])
        }
    };
    let load_with = |tensor: messages::Tensor| {
        let path = inner.join("model.onnx");
        std::fs::write(&path, model(&["2"], vec![tensor], vec![node("y = Add(x, w)")]).encode_to_vec()).unwrap();
        load_file(&path, &Options::default())
    };
    let graph = load_with(tensor("weights", "4")).unwrap().graph;
    let x = Tensor::from_numbers(graph.values[0].ty.clone(), &[0.5, 0.5]).unwrap();
    assert_eq!(reference::evaluate_graph(&graph, &[x]).unwrap()[0].to_numbers(), [1.5, 2.5]);
    for (location, offset, says) in [
        ("../outside", "0", "only files below the model's folder"),
        ("/etc/hostname", "0", "only files below the model's folder"),
        ("link", "0", "only files below the model's folder"),
        ("weights", "8", "too few for 8 bytes at offset 8"),
        ("weights", "18446744073709551615", "too few for 8 bytes"),
        ("weights", "four", "`offset` of the external data is `four`, which is not a number"),
        ("missing", "0", "which cannot be read"),
    ] {
        let _ = std::os::unix::fs::symlink(folder.path().join("outside"), inner.join("link"));
        let error = load_with(tensor(location, offset)).unwrap_err().to_string();
        assert!(error.contains(says), "{location}: {error}");
    }
}

#[test]
fn a_weight_is_a_slice_of_the_file() {
    let bytes: Bytes =
        model(&["2"], vec![floats("w", &[2], &[1.0, 2.0])], vec![node("y = Add(x, w)")]).encode_to_vec().into();
    let range = bytes.as_ptr_range();
    let graph = import(bytes.clone(), "small.onnx", None, &Options::default()).unwrap().graph;
    let weight = graph.values.iter().find_map(|value| match &value.data {
        Some(models::graph::Const::Bytes(contents)) => Some(contents.as_bytes().as_ptr()),
        _ => None,
    });
    assert!(range.contains(&weight.unwrap()));
}

fn rich() -> Vec<u8> {
    let mut conv = node("c = Conv(x, w)");
    conv.attribute = vec![ints("pads", &[1, 1, 1, 1]), ints("strides", &[2, 2])];
    let mut pool = node("p = MaxPool(c)");
    pool.attribute = vec![ints("kernel_shape", &[2, 2]), int("ceil_mode", 1)];
    let mut resize = node("r = Resize(p, , scales)");
    resize.attribute.push(Attribute { name: "mode".to_owned(), s: Some("cubic".into()), ..Attribute::default() });
    let mut split = node("s, t = Split(r)");
    split.attribute = vec![int("axis", 1), int("num_outputs", 2)];
    let mut joined = node("v = Concat(one, two)");
    joined.attribute.push(int("axis", 0));
    let nodes = vec![
        conv,
        pool,
        resize,
        split,
        node("u = Slice(s, one, two, one)"),
        joined,
        node("q = Range(k, two, one)"),
        node("f = Flatten(t)"),
        node("g = Tile(f, tiles)"),
        node("y = Softmax(g)"),
    ];
    let constants = vec![
        floats("w", &[2, 1, 3, 3], &[0.5; 18]),
        floats("scales", &[4], &[1.0, 1.0, 1.5, 0.5]),
        integers("one", &[1]),
        integers("two", &[2]),
        integers("k", &[0]),
        integers("tiles", &[1, 2]),
    ];
    model(&["1", "1", "8", "8"], constants, nodes).encode_to_vec()
}

#[test]
fn the_model_to_be_damaged_is_right() {
    let mut bytes = rich();
    let error = import(bytes.clone().into(), "rich.onnx", None, &Options::default()).map(|_| ()).err();
    assert_eq!(error.map(|error| error.to_string()), None);
    bytes.truncate(bytes.len() / 2);
    let error = import(bytes.into(), "rich.onnx", None, &Options::default()).unwrap_err().to_string();
    assert!(error.contains("truncated, damaged or not an ONNX file"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn damage_is_survived(
        cut in prop::option::weighted(0.2, 0usize..2000),
        changes in prop::collection::vec((0usize..2000, any::<u8>()), 1..6),
        skip_unsupported: bool,
    ) {
        let mut bytes = rich();
        if let Some(cut) = cut {
            bytes.truncate(cut);
        }
        for (at, byte) in changes {
            let length = bytes.len().max(1);
            if let Some(slot) = bytes.get_mut(at % length) {
                *slot = byte;
            }
        }
        let options = Options { skip_unsupported, ..Options::default() };
        if let Ok(imported) = import(bytes.into(), "damaged.onnx", None, &options) {
            let _ = simplify_graph(&imported.graph);
        }
    }
}

#[test]
fn sums_and_products_become_layers() {
    let nodes = vec![node("m = MatMul(x, w)"), node("y = Add(b, m)")];
    let constants = vec![floats("w", &[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), floats("b", &[3], &[0.5, 1.0, 1.5])];
    let graph = read(&model(&["1", "2"], constants, nodes), &Options::default()).unwrap().graph;
    assert!(matches!(graph.nodes[1].op, Op::Binary(Binary { function: BinaryOp::Add })));
    let after = simplify_graph(&graph).unwrap();
    assert_eq!(after.nodes.iter().map(|node| node.op.name()).collect::<Vec<_>>(), ["dense", "bias_add"]);
    let x = [Tensor::from_numbers(graph.values[0].ty.clone(), &[1.0, -1.0]).unwrap()];
    assert_eq!(reference::evaluate_graph(&graph, &x).unwrap(), reference::evaluate_graph(&after, &x).unwrap());
}

fn output_names(graph: &models::graph::Graph) -> Vec<&str> {
    graph.outputs.iter().map(|id| graph.values[id.0 as usize].name.as_str()).collect()
}

#[test]
fn outputs_that_copy_a_value_keep_their_names() {
    let named = |nodes: &[&str], names: &[&str]| {
        let mut copied = model(&["2"], vec![], nodes.iter().map(|text| node(text)).collect());
        let output = |name: &&str| ValueInfo { name: (*name).to_owned(), ty: None };
        copied.graph.as_mut().unwrap().output = names.iter().map(output).collect();
        let graph = read(&copied, &Options::default()).unwrap().graph;
        output_names(&graph).join(" ")
    };
    assert_eq!(named(&["h = Relu(x)", "y = Dropout(h)"], &["y"]), "y");
    // The graph has one value, which the first output names.
    let twice = ["h = Exp(x)", "logits = Identity(h)", "scores = Identity(h)"];
    assert_eq!(named(&twice, &["logits", "scores"]), "logits logits");
    assert_eq!(named(&twice, &["scores", "h"]), "h h");
    // An input keeps its name.
    assert_eq!(named(&["y = Identity(x)"], &["y"]), "x");
}

#[test]
fn attributes_of_another_type_are_refused() {
    use super::messages::Attribute;
    let softmax = |axis: Attribute| {
        let mut call = node("y = Softmax(x)");
        call.attribute.push(Attribute { name: "axis".to_owned(), ..axis });
        model(&["2", "3"], vec![], vec![call])
    };
    let (number, text) = (Some(0), Some(bytes::Bytes::from_static(b"one")));
    check_error(
        &softmax(Attribute { kind: 3, s: text.clone(), ..Attribute::default() }),
        expect!["`small.onnx`, node `y` (`Softmax`): attribute `axis` is STRING, expected INT"],
    );
    check_error(
        &softmax(Attribute { kind: 1, f: Some(1.0), ..Attribute::default() }),
        expect!["`small.onnx`, node `y` (`Softmax`): attribute `axis` is FLOAT, expected INT"],
    );
    check_error(
        &softmax(Attribute { kind: 99, ..Attribute::default() }),
        expect!["`small.onnx`, node `y` (`Softmax`): attribute `axis` is of the unknown type 99, expected INT"],
    );
    // A file without types is read by content.
    check_error(
        &softmax(Attribute { s: text, ..Attribute::default() }),
        expect!["`small.onnx`, node `y` (`Softmax`): attribute `axis` is STRING, expected INT"],
    );
    let axis_of = |attribute: Attribute| {
        let graph = read(&softmax(attribute), &Options::default()).unwrap().graph;
        graph.to_text().lines().find_map(|line| Some(line.split_once("axis=")?.1[..1].to_owned())).unwrap()
    };
    assert_eq!(axis_of(Attribute { i: number, ..Attribute::default() }), "0");
    assert_eq!(axis_of(Attribute { kind: 2, i: number, ..Attribute::default() }), "0");
    // Some writers omit numbers that are 0.
    assert_eq!(axis_of(Attribute { kind: 2, ..Attribute::default() }), "0");

    // The same holds for an attribute that a call passes to a function.
    let mut inner = node("b = Softmax(a)");
    inner.attribute.push(Attribute { name: "axis".to_owned(), ref_attr_name: "along".to_owned(), ..int("", 0) });
    let mut called = node("y = Scaled(x)");
    called.attribute.push(ints("along", &[1]));
    called.domain = "my".to_owned();
    let set = |domain: &str| messages::OperatorSet { domain: domain.to_owned(), version: 21 };
    let mut outer = model(&["2", "3"], vec![], vec![called]);
    outer.functions.push(messages::Function {
        name: "Scaled".to_owned(),
        domain: "my".to_owned(),
        input: vec!["a".to_owned()],
        output: vec!["b".to_owned()],
        node: vec![inner],
        opset_import: vec![set("")],
        ..messages::Function::default()
    });
    check_error(&outer, expect!["`small.onnx`, node `y/b` (`Softmax`): attribute `axis` is INTS, expected INT"]);
}
