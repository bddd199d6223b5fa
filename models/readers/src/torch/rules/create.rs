//! Import rules of constants, copies and type conversions.

use super::{Call, Memory, Outputs, RuleOutput, own_output, view_output};
use crate::{Outcome, malformed, unsupported};
use models::graph::{Const, ValueId};
use models::operators::BinaryOp;
use models::types::{DType, TensorType};
use passes::fold::MAX_SMALL;
use reference::Tensor;

pub(super) fn alias_input(call: &mut Call<'_, '_>) -> Outputs {
    let x = call.tensor_argument(if call.arguments.contains_key("input") { "input" } else { "self" })?;
    let is_alias = matches!(call.operator, "alias" | "detach");
    Ok(vec![RuleOutput { id: x, window: if is_alias { Memory::Reshaped } else { Memory::Other } }])
}

pub(super) fn copy_tensor(call: &mut Call<'_, '_>) -> Outputs {
    own_output(call.tensor_argument("self")?)
}

/// Emits dropout as the identity; refuses dropout in training mode.
pub(super) fn dropout(call: &mut Call<'_, '_>) -> Outputs {
    if call.flag_argument("train", false)? && call.float_argument("p", 0.5)? != 0.0 {
        return unsupported("dropout in training mode; export the model after `eval()`");
    }
    alias_input(call)
}

pub(super) fn convert_tensor(call: &mut Call<'_, '_>) -> Outputs {
    let x = call.tensor_argument("self")?;
    let dtype = call.result_dtype()?;
    view_output(call.emit.cast(x, dtype)?)
}

pub(super) fn type_as(call: &mut Call<'_, '_>) -> Outputs {
    convert_tensor(call)
}

fn fill_result(call: &mut Call<'_, '_>, number: f64) -> Outputs {
    let ty = call.result_type()?;
    // A size argument follows from the given input shapes; the stated type has the shapes at export.
    let extents = match call.arguments.contains_key("size") {
        true => call.int_list("size")?,
        false => match call.optional_tensor("self") {
            Ok(Some(x)) => call.emit.extents(x)?,
            _ => ty.extents().unwrap_or_default(),
        },
    };
    own_output(call.emit.add_filled(ty.dtype, &extents, number)?)
}

pub(super) fn zeros(call: &mut Call<'_, '_>) -> Outputs {
    fill_result(call, 0.0)
}

pub(super) fn ones(call: &mut Call<'_, '_>) -> Outputs {
    fill_result(call, 1.0)
}

pub(super) fn full(call: &mut Call<'_, '_>) -> Outputs {
    let number = call.float_argument("fill_value", 0.0)?;
    fill_result(call, number)
}

pub(super) fn scalar_tensor(call: &mut Call<'_, '_>) -> Outputs {
    let (dtype, number) = (call.result_dtype()?, call.float_argument("s", 0.0)?);
    own_output(call.emit.add_scalar(dtype, number)?)
}

pub(super) fn fill_number(call: &mut Call<'_, '_>) -> Outputs {
    let x = call.tensor_argument("self")?;
    let (dtype, extents) = (call.emit.dtype(x)?, call.emit.extents(x)?);
    if let Some(super::Argument::Tensor(value)) = call.arguments.get("value").cloned() {
        return own_output(broadcast_to(call, value, dtype, &extents)?);
    }
    let number = call.float_argument("value", 0.0)?;
    own_output(call.emit.add_filled(dtype, &extents, number)?)
}

pub(super) fn copy_into(call: &mut Call<'_, '_>) -> Outputs {
    let x = call.tensor_argument("self")?;
    let (dtype, extents) = (call.emit.dtype(x)?, call.emit.extents(x)?);
    let source = call.operand_as(if call.arguments.contains_key("other") { "other" } else { "src" }, dtype)?;
    own_output(broadcast_to(call, source, dtype, &extents)?)
}

fn broadcast_to(call: &mut Call<'_, '_>, x: ValueId, dtype: DType, extents: &[i64]) -> Outcome<ValueId> {
    let x = call.emit.cast(x, dtype)?;
    call.emit.expand(x, extents)
}

pub(super) fn shape_as_tensor(call: &mut Call<'_, '_>) -> Outputs {
    let extents = call.emit.extents(call.tensor_argument("self")?)?;
    own_output(call.emit.add_integers(&extents)?)
}

pub(super) fn arange(call: &mut Call<'_, '_>) -> Outputs {
    let dtype = call.result_dtype()?;
    let (start, end) = (call.float_argument("start", 0.0)?, call.float_argument("end", 0.0)?);
    let step = call.float_argument("step", 1.0)?;
    let count = ((end - start) / step).ceil();
    if !(step != 0.0 && count.is_finite()) {
        return malformed(format!("the range from {start} to {end} in steps of {step} is infinite"));
    }
    if count > 1e9 {
        return unsupported(format!("a range of {count} numbers is too long"));
    }
    let count = count.max(0.0) as i64;
    let ty = TensorType::new(dtype, &[count]);
    let id = if count as u64 <= MAX_SMALL {
        let numbers: Vec<f64> = (0..count).map(|index| start + index as f64 * step).collect();
        call.emit.constant_of(&Tensor::from_numbers(ty, &numbers)?)?
    } else {
        let places = call.emit.add_constant(ty.clone(), Const::range_along(dtype, &[count], 0, 0))?;
        let scaled = call.emit.binary_with(BinaryOp::Mul, places, step)?;
        call.emit.binary_with(BinaryOp::Add, scaled, start)?
    };
    Ok(vec![RuleOutput { id, window: Memory::Own }])
}

pub(super) fn linspace(call: &mut Call<'_, '_>) -> Outputs {
    let dtype = call.result_dtype()?;
    let (start, end, steps) =
        (call.float_argument("start", 0.0)?, call.float_argument("end", 0.0)?, call.int_argument("steps", 0)?);
    if !(1..=MAX_SMALL as i64).contains(&steps) {
        return unsupported(format!("{steps} numbers; 1 to {MAX_SMALL} are supported"));
    }
    let step = if steps > 1 { (end - start) / (steps - 1) as f64 } else { 0.0 };
    // The second half is counted from the end, so both ends are exact.
    let number = |at: i64| {
        if at < steps / 2 { start + at as f64 * step } else { end - (steps - 1 - at) as f64 * step }
    };
    let numbers: Vec<f64> = (0..steps).map(|at| if steps == 1 { start } else { number(at) }).collect();
    own_output(call.emit.constant_of(&Tensor::from_numbers(TensorType::new(dtype, &[steps]), &numbers)?)?)
}

pub(super) fn cosine_window(call: &mut Call<'_, '_>) -> Outputs {
    let dtype = call.result_dtype()?;
    let (length, is_periodic) = (call.int_argument("window_length", 0)?, call.flag_argument("periodic", true)?);
    let coefficients = match call.operator {
        "hann_window" => [0.5, 0.5, 0.0],
        "hamming_window" => [call.float_argument("alpha", 0.54)?, call.float_argument("beta", 0.46)?, 0.0],
        _ => [0.42, 0.5, 0.08],
    };
    if !(1..=MAX_SMALL as i64).contains(&length) {
        return unsupported(format!("a window of {length} elements"));
    }
    let period = if is_periodic { length } else { length - 1 }.max(1) as f64;
    let number = |at: i64| {
        let turn = 2.0 * std::f64::consts::PI * at as f64 / period;
        coefficients[0] - coefficients[1] * turn.cos() + coefficients[2] * (2.0 * turn).cos()
    };
    let numbers: Vec<f64> = (0..length).map(|at| if length == 1 { 1.0 } else { number(at) }).collect();
    own_output(call.emit.constant_of(&Tensor::from_numbers(TensorType::new(dtype, &[length]), &numbers)?)?)
}
