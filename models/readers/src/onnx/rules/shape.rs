//! Constants, and operators that only read shapes.

use crate::onnx::call::Call;
use crate::onnx::tensor;
use crate::{Emit, Outcome, malformed, unsupported};
use models::graph::{Const, ValueId};
use models::operators::{Expand, Op};
use models::types::{DType, TensorType};

type Outputs = Outcome<Vec<ValueId>>;

pub(super) fn constant(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    if let Some(message) = call.tensor_attribute("value") {
        if let Some(&id) = emit.shared.get(&tensor::message_key(message)) {
            return Ok(vec![id]);
        }
        let (ty, data) = match tensor::constant_data(message, emit.folder) {
            Ok(constant) => constant,
            Err(reason) => return unsupported(reason),
        };
        let id = emit.add_constant(ty, data)?;
        tensor::record_constant(emit, message, id);
        return Ok(vec![id]);
    }
    let numbers = |list: Vec<f64>, dtype: DType, emit: &mut Emit<'_>| {
        emit.add_constant(TensorType::new(dtype, &[list.len() as i64]), Const::Small(list))
    };
    let found = if let Some(number) = call.optional_float("value_float") {
        emit.add_scalar(DType::F32, number)?
    } else if let Some(number) = call.optional_int("value_int") {
        emit.add_scalar(DType::I64, number as f64)?
    } else if let Some(list) = call.int_list("value_ints") {
        emit.add_integers(&list)?
    } else if let Some(list) = call.optional_floats("value_floats") {
        numbers(list, DType::F32, emit)?
    } else {
        return unsupported("a constant that is neither a tensor nor a number");
    };
    Ok(vec![found])
}

pub(super) fn shape(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let extents = emit.extents(call.input(0)?)?;
    let rank = extents.len() as i64;
    let place = |number: i64| (if number < 0 { number.saturating_add(rank) } else { number }).clamp(0, rank) as usize;
    let (start, end) = (place(call.int_attribute("start", 0)), place(call.int_attribute("end", rank)));
    Ok(vec![emit.add_integers(extents.get(start..end).unwrap_or_default())?])
}

pub(super) fn size(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let ty = emit.ty(call.input(0)?)?;
    let Some(elements) = ty.element_count() else {
        return unsupported(format!("the element count of {ty} is unknown"));
    };
    Ok(vec![emit.add_scalar(DType::I64, elements as f64)?])
}

pub(super) fn constant_of_shape(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let extents = emit.require_integers(call.input(0)?, "shape")?;
    let (dtype, number, exact) = match call.tensor_attribute("value") {
        None => (DType::F32, 0.0, None),
        Some(message) => {
            let (ty, data) = match tensor::constant_data(message, None) {
                Ok(constant) => constant,
                Err(reason) => return unsupported(reason),
            };
            let value = reference::constant_tensor(&ty, &data)?;
            let [number] = value.to_numbers()[..] else {
                return malformed(format!("`value` must be one number, is {ty}"));
            };
            (ty.dtype, number, value.is_rounded_as_numbers().then_some(data))
        }
    };
    let ty = TensorType::new(dtype, &extents);
    if ty.element_count().is_none() {
        return malformed(format!("{ty} is not a valid type"));
    }
    if let Some(data) = exact {
        let value = emit.add_constant(TensorType::new(dtype, &[]), data)?;
        return Ok(vec![emit.push(Op::Expand(Expand { shape: extents }), &[value])?]);
    }
    Ok(vec![emit.add_constant(ty, Const::Fill(number))?])
}
