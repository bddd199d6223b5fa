//! Conversion of quantised layers to shifts: rounding the weights again is the only loss.

#[allow(dead_code)]
mod common;

use accelerator::{Core, FunctionalMachine, check_program, default_knobs, fold_scales, generate_program, layer_of};
use models::{DType, Task};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use reference::Tensor;

const LAYERS: &[&str] = &[
    r#"q_conv(i8[1,8,6,6], const i8[16,8,3,3]) strides=[1,1] pads=[1,1,1,1] dilations=[1,1] groups=1 x_zero=0 w_zero=0 | bias_add(_, const i32[16]) axis=1 | requantize(_, const f32[16]) to="i8" axis=1 zero=0 low=-128 high=127"#,
    r#"q_conv(i8[2,5,7,9], const i8[6,5,3,3]) strides=[2,2] pads=[1,0,1,2] dilations=[1,1] groups=1 x_zero=-128 w_zero=0 | bias_add(_, const i32[6]) axis=1 | requantize(_, const f32[6]) to="i8" axis=1 zero=-3 low=-3 high=100"#,
    r#"q_conv(i8[1,20,5,5], const i8[20,1,3,3]) strides=[1,1] pads=[1,1,1,1] dilations=[1,1] groups=20 x_zero=-7 w_zero=0 | bias_add(_, const i32[20]) axis=1 | requantize(_, const f32[]) to="i8" axis=0 zero=12 low=-128 high=127"#,
    r#"q_dense(i8[3,24], const i8[10,24]) x_zero=-5 w_zero=0 | bias_add(_, const i32[10]) axis=1 | requantize(_, const f32[]) to="i8" axis=0 zero=-3 low=-128 high=127"#,
    r#"q_dense(i8[1,33], const i8[17,33]) x_zero=9 w_zero=0 | requantize(_, const f32[17]) to="i8" axis=1 zero=0 low=-128 high=127"#,
];

fn drawn(task: &Task, seed: u64, scale: impl Fn(&mut ChaCha8Rng) -> f64) -> Vec<Tensor> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let parameters = task.parameters.iter().map(|parameter| {
        let count =
            parameter.ty.element_count().and_then(|count| usize::try_from(count).ok()).expect("sizes are numbers");
        let numbers: Vec<f64> = (0..count)
            .map(|_| match parameter.ty.dtype {
                DType::I8 => f64::from(random.random_range(-127i32..=127)),
                DType::I32 => f64::from(random.random_range(-2000i32..=2000)),
                _ => scale(&mut random),
            })
            .collect();
        Tensor::from_numbers(parameter.ty.clone(), &numbers).expect("the tensor has this many elements")
    });
    parameters.collect()
}

fn computed(task: &Task, values: &[Tensor]) -> (Tensor, Vec<u8>) {
    let known: Vec<Option<Vec<f64>>> = values
        .iter()
        .zip(&task.parameters)
        .map(|(value, parameter)| parameter.is_constant.then(|| value.to_numbers()))
        .collect();
    let folded = fold_scales(task, &known).expect("the layer runs on the core");
    let types = folded.task.parameters.iter().map(|parameter| parameter.ty.clone());
    let operands: Vec<&[u8]> =
        std::iter::once(values[0].as_bytes()).chain(folded.constants.iter().map(Vec::as_slice)).collect();
    let tensors = types.zip(&operands).map(|(ty, bytes)| Tensor::from_bytes(ty, bytes.to_vec()).expect("its bytes"));
    let wanted = reference::evaluate_task(&folded.task, &tensors.collect::<Vec<Tensor>>()).expect("the task is valid");
    let (core, layer) = (Core::find_published("1x16").expect("a core"), layer_of(&folded.task).expect("a layer"));
    let program = generate_program(&core, &layer, &default_knobs(&core, &layer).expect("a cut")).expect("a program");
    check_program(&program).expect("the program is correct");
    (wanted, FunctionalMachine::compute_result(&program, &operands, 3).expect("the program ends").0)
}

#[test]
fn folded_layers_differ_only_by_rounded_weights() {
    for (place, text) in LAYERS.iter().enumerate() {
        let task = Task::from_text(text).expect(text);
        let values = drawn(&task, place as u64, |random| random.random_range(0.0002..0.001));
        let (wanted, core) = computed(&task, &values);
        assert_eq!(wanted.as_bytes(), core, "{text}");
        let file = reference::evaluate_task(&task, &values).expect(text).to_numbers();
        let errors: Vec<f64> = file.iter().zip(wanted.to_numbers()).map(|(file, core)| (file - core).abs()).collect();
        let (most, mean) = (
            errors.iter().fold(0.0, |most: f64, one| most.max(*one)),
            errors.iter().sum::<f64>() / errors.len() as f64,
        );
        assert!(most <= 2.0 && mean <= 0.5, "{text}: differs by up to {most}, {mean} on average");
    }
}

#[test]
fn power_of_two_scales_are_exact_up_to_ties() {
    for (place, text) in LAYERS.iter().enumerate() {
        let task = Task::from_text(text).expect(text);
        let values = drawn(&task, 90 + place as u64, |random| f64::from(-random.random_range(8i32..11)).exp2());
        let (wanted, core) = computed(&task, &values);
        assert_eq!(wanted.as_bytes(), core, "{text}");
        let file = reference::evaluate_task(&task, &values).expect(text).to_numbers();
        let off: Vec<f64> = file.iter().zip(wanted.to_numbers()).map(|(file, core)| core - file).collect();
        // The core rounds halves up, files round them to even.
        assert!(off.iter().all(|off| *off == 0.0 || *off == 1.0), "{text}: {off:?}");
        assert!(off.iter().filter(|off| **off != 0.0).count() <= 1 + off.len() / 50, "{text}: {off:?}");
    }
}

#[test]
fn unsupported_layers_stay_on_the_cpu() {
    for (from, to, why) in [
        ("i8[1,8,6,6], const", "u8[1,8,6,6], const", "the data are u8"),
        ("x_zero=0 w_zero=0", "x_zero=0 w_zero=3", "the zero point of the weights is 3"),
        (r#"to="i8""#, r#"to="u8""#, "`requantize` follows the sums"),
        ("dilations=[1,1]", "dilations=[2,2]", "does not support dilated windows"),
    ] {
        let mut text = LAYERS[0].replace(from, to);
        if to.starts_with(r#"to="u8""#) {
            text = text.replace("low=-128 high=127", "low=0 high=255");
        }
        if to.contains('2') && to.starts_with("dil") {
            text = text.replace("pads=[1,1,1,1]", "pads=[2,2,2,2]");
        }
        let task = Task::from_text(&text).expect(&text);
        let values = drawn(&task, 1, |_| 0.001);
        let known: Vec<Option<Vec<f64>>> = values.iter().map(|value| Some(value.to_numbers())).collect();
        let said = fold_scales(&task, &known).expect_err(&text).to_string();
        assert!(said.contains(why), "{said}");
    }
    let task = Task::from_text(LAYERS[0]).expect("a task");
    let values = drawn(&task, 1, |_| 1.5);
    let known: Vec<Option<Vec<f64>>> = values.iter().map(|value| Some(value.to_numbers())).collect();
    assert!(
        fold_scales(&task, &known).expect_err("too large").to_string().contains("shifts can only represent factors")
    );
    assert!(fold_scales(&task, &[None, None, None, None]).is_err());
}
