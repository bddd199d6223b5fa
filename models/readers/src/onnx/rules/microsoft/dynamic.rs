//! Integer products with scales that are computed from the data at run time.

use super::fused::add_last_bias;
use crate::onnx::call::Call;
use crate::onnx::rules::quantise::{self, quantise_dynamic};
use crate::onnx::rules::recurrent;
use crate::{Emit, Outcome, malformed};
use models::graph::ValueId;
use models::types::DType;

type Outputs = Outcome<Vec<ValueId>>;

/// Emits `DynamicQuantizeMatMul`, which quantises `A` at run time; inputs: `A, B, scale, zero point, bias`.
pub(super) fn mat_mul(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let [a, a_scale, a_zero] = quantise_dynamic(emit, call.input(0)?)?;
    let sums = quantise::product_sums(emit, [a, call.input(1)?], [Some(a_zero), call.optional_input(3)])?;
    let y = quantise::scale_sums(emit, sums, [a_scale, call.input(2)?], DType::F32)?;
    Ok(vec![add_last_bias(emit, y, call.optional_input(4))?])
}

/// Emits `MatMulIntegerToFloat`; inputs: `A, B, scale of A, scale of B, zero of A, zero of B, bias`.
pub(super) fn to_float(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let operands = [call.input(0)?, call.input(1)?];
    let sums = quantise::product_sums(emit, operands, [call.optional_input(4), call.optional_input(5)])?;
    let (a_scale, b_scale) = (call.input(2)?, call.input(3)?);
    let y = quantise::scale_sums(emit, sums, [a_scale, b_scale], emit.dtype(a_scale)?)?;
    Ok(vec![add_last_bias(emit, y, call.optional_input(6))?])
}

/// Emits an LSTM with transposed quantised weights; input and state are quantised to 8 bits for each product.
pub(super) fn quantised_lstm(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let mut weights = Vec::new();
    for (place, scale) in [(1, 8), (2, 10)] {
        let w = call.input(place)?;
        let [directions, rows, columns] = emit.extents(w)?[..] else {
            return malformed(format!("{} must have 3 dimensions", emit.ty(w)?));
        };
        let mut reals = Vec::new();
        for index in 0..directions {
            let own = emit.slice(w, 0, index, index + 1)?;
            let own = emit.reshape(own, &[rows, columns])?;
            let mut scales = Vec::new();
            for id in [Some(call.input(scale)?), call.optional_input(scale + 1)].into_iter().flatten() {
                scales.push(direction_scales(emit, id, index, directions)?);
            }
            let real = quantise::real_along(emit, own, scales[0], scales.get(1).copied(), 1)?;
            let transposed = emit.transpose(real, &[1, 0])?;
            reals.push(emit.reshape(transposed, &[1, columns, rows])?);
        }
        weights.push(emit.concat_parts(&reals, 0)?);
    }
    recurrent::rounded_lstm(emit, call, [weights[0], weights[1]])
}

fn direction_scales(emit: &mut Emit<'_>, scales: ValueId, index: i64, directions: i64) -> Outcome<ValueId> {
    let extents = emit.extents(scales)?;
    if extents.first() != Some(&directions) {
        return malformed(format!("scales {} do not fit {directions} directions", emit.ty(scales)?));
    }
    let own = emit.slice(scales, 0, index, index + 1)?;
    emit.reshape(own, &extents[1..])
}
