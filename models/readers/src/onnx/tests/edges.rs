//! Tests of unusual extents and attributes.

use super::*;

fn text(name: &str, value: &str) -> Attribute {
    Attribute { name: name.to_owned(), s: Some(value.to_owned().into()), ..Attribute::default() }
}

fn evaluated(model: &messages::Model, options: &Options, x: &[f64]) -> (String, Vec<f64>) {
    let graph = read(model, options).unwrap_or_else(|error| panic!("{error}")).graph;
    let x = Tensor::from_numbers(graph.values[0].ty.clone(), x).unwrap();
    let y = reference::evaluate_graph(&graph, &[x]).unwrap().remove(0);
    (y.tensor_type().to_string(), y.to_numbers())
}

/// The size of a cropped result does not depend on the region, as in ONNX's shape inference and ONNX Runtime.
#[test]
fn a_cropped_resize_has_the_scaled_size() {
    let mut resize = node("y = Resize(x, region, scales)");
    resize.attribute = vec![text("mode", "linear"), text("coordinate_transformation_mode", "tf_crop_and_resize")];
    let region = floats("region", &[8], &[0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.5, 0.5]);
    let scales = floats("scales", &[4], &[1.0, 1.0, 2.0, 2.0]);
    let cropped = model(&["1", "1", "4", "4"], vec![region, scales], vec![resize]);
    let x: Vec<f64> = (0..16).map(f64::from).collect();
    let (ty, numbers) = evaluated(&cropped, &Options::default(), &x);
    assert_eq!(ty, "f32[1,1,8,8]");
    assert!(numbers[0].abs() < 1e-6 && (numbers[63] - 7.5).abs() < 1e-5, "{numbers:?}");
}

#[test]
fn initializers_that_nothing_reads_may_be_unreadable() {
    let words = |name: &str| messages::Tensor { data_type: 8, ..floats(name, &[1], &[0.0]) };
    let unread = model(&["2"], vec![words("words")], vec![node("y = Relu(x)")]);
    assert_eq!(evaluated(&unread, &Options::default(), &[-1.0, 2.0]).1, [0.0, 2.0]);
    let reads = model(&["2"], vec![words("words")], vec![node("y = Add(x, words)")]);
    let Err(error) = read(&reads, &Options::default()) else { panic!("strings cannot be added") };
    let error = error.to_string();
    assert!(error.contains("initializer `words`") && error.contains("strings"), "{error}");
}

#[test]
fn tensors_without_elements_have_any_empty_shape() {
    let mut reshape = node("y = Reshape(x, shape)");
    reshape.attribute.push(int("allowzero", 1));
    let turned = model(&["0", "3"], vec![integers("shape", &[3, 0])], vec![reshape]);
    assert_eq!(evaluated(&turned, &Options::default(), &[]).0, "f32[3,0]");
    for operator in ["Softmax", "LogSoftmax", "Hardmax"] {
        let mut old = model(&["1", "0", "2"], vec![], vec![node(&format!("y = {operator}(x)"))]);
        old.opset_import[0].version = 12;
        assert_eq!(evaluated(&old, &Options::default(), &[]).0, "f32[1,0,2]", "{operator}");
    }
}

/// A window of more than twice the channels covers all channels, but its size still divides `alpha`.
#[test]
fn windows_of_normalisation_may_exceed_the_channels() {
    let normalised = |size| {
        let mut lrn = node("y = LRN(x)");
        lrn.attribute = vec![int("size", size), Attribute { name: "alpha".to_owned(), f: Some(5.0), ..ints("", &[]) }];
        evaluated(&model(&["1", "2", "1"], vec![], vec![lrn]), &Options::default(), &[1.0, 2.0]).1
    };
    for size in [4, 5, 1 << 40] {
        let divisor = (1.0 + 5.0 / size as f64 * 5.0f64).powf(0.75);
        let numbers = normalised(size);
        assert!((numbers[0] - 1.0 / divisor).abs() < 1e-5 && (numbers[1] - 2.0 / divisor).abs() < 1e-5, "{numbers:?}");
    }
}

#[test]
fn causal_attention_between_different_lengths_is_refused() {
    let attention = |queries: &str| {
        let mut attention = node("y = MultiHeadAttention(x, k, k)");
        attention.domain = "com.microsoft".to_owned();
        attention.attribute = vec![int("num_heads", 1), int("unidirectional", 1)];
        model(&["1", queries, "2"], vec![floats("k", &[1, 3, 2], &[0.5; 6])], vec![attention])
    };
    assert_eq!(evaluated(&attention("3"), &Options::default(), &[1.0; 6]).0, "f32[1,3,2]");
    check_error(
        &attention("2"),
        expect![
            "`small.onnx`, node `y` (`MultiHeadAttention`): not supported: `unidirectional` with different lengths of queries and keys"
        ],
    );
}

#[test]
fn an_input_with_a_default_can_be_bound() {
    let mut scaled = model(&["2"], vec![floats("w", &[1], &[3.0])], vec![node("y = Mul(x, w)")]);
    scaled.graph.as_mut().unwrap().input.push(info("w", &["1"]));
    assert_eq!(evaluated(&scaled, &Options::default(), &[1.0, 2.0]).1, [3.0, 6.0]);
    let values = BTreeMap::from([("w".to_owned(), vec![5.0])]);
    assert_eq!(evaluated(&scaled, &Options { values, ..Options::default() }, &[1.0, 2.0]).1, [5.0, 10.0]);
}

#[test]
fn constants_of_64_bits_are_not_rounded() {
    let large = (1_i64 << 60) + 1;
    let scalar = |name: &str, number| messages::Tensor { dims: vec![], ..integers(name, &[number]) };
    let mut cast = node("x64 = Cast(x)");
    cast.attribute.push(int("to", 7));
    let mut filled = node("filled = ConstantOfShape(shape)");
    filled.attribute.push(Attribute {
        name: "value".to_owned(),
        t: Some(integers("", &[large])),
        ..Attribute::default()
    });
    let nodes = vec![cast, filled, node("sum = Add(x64, filled)"), node("y = Clip(sum, low)")];
    let graph = model(&["2"], vec![integers("shape", &[2]), scalar("low", large + 2)], nodes);
    let graph = read(&graph, &Options::default()).unwrap_or_else(|error| panic!("{error}")).graph;
    let x = Tensor::from_numbers(graph.values[0].ty.clone(), &[1.0, 4.0]).unwrap();
    let y = reference::evaluate_graph(&graph, &[x]).unwrap().remove(0);
    assert_eq!(y.to_wide().unwrap(), [large + 2, large + 4].map(i128::from));
}

/// ONNX's shape inference counts a last window that starts in the padding; runtimes do not.
#[test]
fn a_stated_pool_may_have_one_window_more() {
    let stated = |extent: &str| {
        let mut pool = node("p = MaxPool(x)");
        pool.attribute = vec![ints("kernel_shape", &[2]), ints("strides", &[3]), ints("pads", &[1, 1])];
        pool.attribute.push(int("ceil_mode", 1));
        let mut model = model(&["1", "1", "5"], vec![], vec![pool, node("y = Relu(p)")]);
        let graph = model.graph.as_mut().unwrap();
        graph.value_info = vec![info("p", &["1", "1", extent])];
        graph.output = vec![info("y", &["1", "1", extent])];
        read(&model, &Options::default())
    };
    let imported = stated("3").unwrap_or_else(|error| panic!("{error}"));
    expect![[r#"
        [
            "node `p` (`MaxPool`): the file states f32[1,1,3] for `p`, as ONNX's shape inference does; the last window would start in the padding, so the result is f32[1,1,2]",
        ]
    "#]]
    .assert_debug_eq(&imported.notes);
    assert!(stated("2").is_ok_and(|imported| imported.notes.is_empty()));
    assert!(stated("4").is_err());
}

#[test]
fn inputs_of_unknown_rank_need_a_shape() {
    let mut net = model(&["2"], vec![], vec![node("y = Relu(x)")]);
    net.graph.as_mut().unwrap().input[0].ty.as_mut().unwrap().tensor.as_mut().unwrap().shape = None;
    check_error(
        &net,
        expect![
            "`small.onnx`, input `x`: the file states no shape; set it with `--shape x=N`, or `NxN…` for more dimensions"
        ],
    );
    let shapes = BTreeMap::from([("x".to_owned(), vec![4, 8])]);
    let graph = read(&net, &Options { shapes, ..Options::default() }).unwrap().graph;
    assert_eq!(graph.values[0].ty.to_string(), "f32[4,8]");
    let of_values = |numbers: &[f64]| {
        let values = BTreeMap::from([("x".to_owned(), numbers.to_vec())]);
        read(&net, &Options { values, ..Options::default() }).unwrap().graph.values[0].ty.to_string()
    };
    assert_eq!((of_values(&[1.0]).as_str(), of_values(&[1.0, 2.0]).as_str()), ("f32[]", "f32[2]"));
}
