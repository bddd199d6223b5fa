//! Lowers quantised operators (scale and zero point), computed in 32-bit floats unless the scale is wider.

use super::pointwise::axis_of;
use super::{Element, Output, Result, Writer};
use crate::tvm::TvmError;
use crate::tvm::expression::{Expression, Tensor, constant};
use models::operators::{Dequantize, Quantize, Requantize};
use models::{DType, Op};

pub(super) fn lower_quantised(
    writer: &mut Writer,
    op: &Op,
    inputs: &[Tensor],
    output: &Output,
) -> Result<Option<Tensor>> {
    let Some(scale) = inputs.get(1) else { return Ok(None) };
    let wide = if scale.dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let float = |x: Expression| x.cast(wide);
    let zero = |place: &[Expression], axis: i64| -> std::result::Result<Option<Expression>, TvmError> {
        inputs.get(2).map(|zero| float(per_channel(zero, place, axis)?)).transpose()
    };
    match op {
        Op::Quantize(Quantize { to, axis }) => {
            let (low, high) = to.integer_range().expect("checked by shape inference");
            writer.add_block(&output.block_name("quantize"), output.block_part(), output.element_type(), |i| {
                let scale = float(per_channel(&inputs[1], i, *axis)?)?;
                let whole = float(inputs[0].element_at(i)?)?.div(&scale)?.nearest()?;
                let moved = match zero(i, *axis)? {
                    Some(zero) => whole.add(&zero)?,
                    None => whole,
                };
                clamp_to_range(&moved, wide, low, high)?.cast(*to)
            })
        }
        Op::Dequantize(Dequantize { axis }) => {
            writer.add_block(&output.block_name("dequantize"), output.block_part(), output.element_type(), |i| {
                // The zero point is subtracted as integer, because the conversion to float may round 32-bit sums.
                let stored = inputs[0].element_at(i)?.cast(DType::I32)?;
                let moved = match inputs.get(2) {
                    Some(zero) => stored.sub(&per_channel(zero, i, *axis)?.cast(DType::I32)?)?,
                    None => stored,
                };
                float(moved)?.mul(&float(per_channel(&inputs[1], i, *axis)?)?)?.cast(output.dtype)
            })
        }
        Op::Requantize(Requantize { to, axis, zero, low, high }) => {
            writer.add_block(&output.block_name("requantize"), output.block_part(), output.element_type(), |i| {
                let multiplier = float(per_channel(&inputs[1], i, *axis)?)?;
                let whole = float(inputs[0].element_at(i)?)?.mul(&multiplier)?.nearest()?;
                clamp_to_range(&whole.add(&constant(wide, *zero as f64)?)?, wide, *low, *high)?.cast(*to)
            })
        }
        _ => return Ok(None),
    }
    .map(Some)
}

fn per_channel(scale: &Tensor, place: &[Expression], axis: i64) -> Element {
    if scale.extents.is_empty() {
        return scale.element_at(&[]);
    }
    scale.element_at(&[place[axis_of(axis, place.len())].clone()])
}

/// Clamps to integer bounds. The largest `i32` is not representable in `f32`; the next lower float is used.
fn clamp_to_range(x: &Expression, wide: DType, low: i64, high: i64) -> Element {
    const LARGEST: f64 = 2_147_483_520.0;
    let high = if wide == DType::F32 && high as f64 > LARGEST { LARGEST } else { high as f64 };
    x.max(&constant(wide, low as f64)?)?.min(&constant(wide, high)?)
}
