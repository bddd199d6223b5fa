//! Random operands and tilings, and comparison with the reference.

use accelerator::{
    Core, FunctionalMachine, Kind, Knobs, Layer, Tensors, check_fit, check_program, generate_program, knob_choices,
    layer_of,
};
use models::{DType, Task, TensorType};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use reference::Tensor;

pub fn random(seed: u64) -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(seed)
}

/// Generates full-range 8-bit data, small shifts, and other 32-bit integers of moderate size.
pub fn values(task: &Task, random: &mut ChaCha8Rng) -> Vec<Tensor> {
    let is_shift = |place: usize| {
        let text = serde_json::to_string(
            &task
                .steps
                .iter()
                .filter(|step| step.inputs.contains(&models::Operand::Parameter(place)))
                .map(|step| &step.op)
                .collect::<Vec<_>>(),
        )
        .unwrap();
        text.contains("shift_right")
    };
    let parameters = task.parameters.iter().enumerate();
    parameters
        .map(|(place, parameter)| {
            let TensorType { dtype, .. } = parameter.ty;
            let count = parameter.ty.element_count().unwrap();
            let numbers: Vec<f64> = (0..count)
                .map(|_| match dtype {
                    DType::I8 => f64::from(random.random_range(-128i32..128)),
                    _ if is_shift(place) => f64::from(random.random_range(0i32..13)),
                    _ => f64::from(random.random_range(-5000i32..5000)),
                })
                .collect();
            Tensor::from_numbers(parameter.ty.clone(), &numbers).unwrap()
        })
        .collect()
}

pub fn cut(core: &Core, task: &Task, random: &mut ChaCha8Rng) -> Option<Knobs> {
    let layer = layer_of(task).unwrap_or_else(|why| panic!("{}: {why}", task.to_text()));
    let choices = knob_choices(core, &layer);
    (0..200).find_map(|_| {
        let numbers = choices.each_ref().map(|settings| settings[random.random_range(0..settings.len())]);
        let knobs = Knobs::from_array(numbers);
        check_fit(core, &layer, &knobs).is_ok().then_some(knobs)
    })
}

pub fn is_exact(core: &Core, task: &Task, knobs: &Knobs, inputs: &[Tensor], orders: u64) {
    let what = format!("{} by {knobs:?}", task.to_text());
    let layer = layer_of(task).unwrap();
    let program = generate_program(core, &layer, knobs).unwrap_or_else(|why| panic!("{what}: {why}"));
    check_program(&program).unwrap_or_else(|why| panic!("{what}: {why}"));
    let wanted = reference::evaluate_task(task, inputs).unwrap();
    let operands: Vec<&[u8]> = inputs.iter().map(Tensor::as_bytes).collect();
    for order in 0..orders {
        let (bytes, _) =
            FunctionalMachine::compute_result(&program, &operands, order).unwrap_or_else(|why| panic!("{what}: {why}"));
        assert!(bytes == wanted.as_bytes(), "{what}: differs for module order {order}");
    }
}

/// Returns the number of multiplications that a layer needs.
pub fn count_macs(layer: &Layer) -> u64 {
    let [rows, columns] = layer.output_extents().map(u64::from);
    let images = match layer.tensors {
        Tensors::Images => u64::from(layer.images),
        Tensors::Matrix { rows } => u64::from(rows).div_ceil(columns),
    };
    let depth = match layer.kind {
        Kind::Convolution => u64::from(layer.channels_in),
        Kind::Depthwise => 1,
        Kind::Elementwise => 0,
    };
    let taps = u64::from(layer.kernel[0]) * u64::from(layer.kernel[1]);
    images * u64::from(layer.channels_out) * rows * columns * depth * taps
}
