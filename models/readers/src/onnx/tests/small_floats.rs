//! Tests of floats of at most 8 bits.

use super::*;
use crate::narrow::SmallFloat;

fn cast(code: i64) -> messages::Model {
    let mut node = node("y = Cast(x)");
    node.attribute.push(int("to", code));
    model(&["1"], vec![], vec![node])
}

fn rounded(model: &messages::Model, number: f32) -> f32 {
    let graph = read(model, &Options::default()).unwrap().graph;
    let x = Tensor::from_numbers(graph.values[0].ty.clone(), &[number.into()]).unwrap();
    reference::evaluate_graph(&graph, &[x]).unwrap()[0].to_numbers()[0] as f32
}

fn nearest(format: SmallFloat, number: f32) -> f32 {
    let table = format.decode_table().into_iter().enumerate().filter(|(_, candidate)| candidate.is_finite());
    let distance = |candidate: f32| (f64::from(candidate) - f64::from(number)).abs();
    table
        .min_by(|(a, x), (b, y)| distance(*x).total_cmp(&distance(*y)).then((a % 2).cmp(&(b % 2))))
        .map(|(_, candidate)| candidate)
        .unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn casts_round_to_the_nearest_number(mantissa in -2.0f32..2.0, exponent in -20i32..18, steps in 0u32..64) {
        for (code, format) in [
            (17, SmallFloat::E4M3Fn),
            (18, SmallFloat::E4M3Fnuz),
            (19, SmallFloat::E5M2),
            (20, SmallFloat::E5M2Fnuz),
            (23, SmallFloat::E2M1),
        ] {
            // Any number, and one halfway between two of the format.
            let middle = (steps as f32 + 0.5) * f32::exp2(exponent as f32 - 4.0);
            for number in [mantissa * f32::exp2(exponent as f32), middle] {
                prop_assert_eq!(rounded(&cast(code), number), nearest(format, number), "{:?} of {}", format, number);
            }
        }
    }
}

#[test]
fn numbers_beyond_the_largest_follow_the_node() {
    let unsaturated = |code: i64| {
        let mut model = cast(code);
        model.graph.as_mut().unwrap().node[0].attribute.push(int("saturate", 0));
        model
    };
    assert_eq!(rounded(&cast(17), f32::INFINITY), 448.0);
    assert!(rounded(&cast(17), f32::NAN).is_nan());
    assert!(rounded(&unsaturated(17), 1e6).is_nan());
    assert_eq!(rounded(&unsaturated(17), 460.0), 448.0);
    assert_eq!(rounded(&unsaturated(19), -1e6), f32::NEG_INFINITY);
    assert_eq!(rounded(&cast(24), 1.1), 2.0);
    assert_eq!(rounded(&cast(24), 0.25), 0.25);
}

#[test]
fn stored_patterns_are_looked_up() {
    let tensor = |data_type: i32, dims: &[i64], raw: Vec<u8>| messages::Tensor {
        dims: dims.to_vec(),
        data_type,
        name: "w".to_owned(),
        raw_data: Some(raw.into()),
        ..messages::Tensor::default()
    };
    let result = |weight: messages::Tensor, extent: &str| {
        let mut like = node("z = CastLike(w, x)");
        like.attribute.clear();
        let graph =
            read(&model(&[extent], vec![weight], vec![like, node("y = Add(x, z)")]), &Options::default()).unwrap();
        let x = Tensor::from_numbers(graph.graph.values[0].ty.clone(), &vec![0.0; extent.parse().unwrap()]).unwrap();
        reference::evaluate_graph(&graph.graph, &[x]).unwrap()[0].to_numbers()
    };
    assert_eq!(result(tensor(17, &[3], vec![0x38, 0xB8, 0x7E]), "3"), [1.0, -1.0, 448.0]);
    // Two numbers in a byte, the first one in the lower half.
    assert_eq!(result(tensor(23, &[3], vec![0x21, 0x0F]), "3"), [0.5, 1.0, -6.0]);
    let many = result(tensor(19, &[70_000], vec![0x3C; 70_000]), "70000");
    assert!(many.len() == 70_000 && many.iter().all(|&number| number == 1.0));
    let short = model(&["3"], vec![tensor(17, &[3], vec![0; 2])], vec![node("y = Add(x, w)")]);
    check_error(&short, expect!["`small.onnx`, initializer `w`: f32[3] takes 3 bytes, but the file contains 2"]);
}
