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
