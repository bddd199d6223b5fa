//! Contractions: convolutions, matrix products, `einsum` and attention.

use crate::call::Call;
use crate::inputs;
use crate::movement::from_last;
use crate::refusal::{Refusal, Result};
use models::operators::{Attention, ConvTranspose, ConvWindow, Einsum, MatMul};
use models::{Op, Task};
use tch::{Kind, Tensor};

pub fn compute_contraction(call: &Call<'_>) -> Result<Option<Tensor>> {
    let (x, inputs, kind) = (call.first_input(), call.inputs, call.kind);
    match call.op {
        Op::Conv(_) => conv(x, inputs[1], call.bias, &window_of(call.op), kind),
        Op::ConvTranspose(ConvTranspose { output_pads, .. }) => {
            conv_transpose(x, inputs[1], call.bias, &window_of(call.op), output_pads)
        }
        Op::MatMul(MatMul { transpose_a, transpose_b }) => mat_mul(x, inputs[1], *transpose_a, *transpose_b, kind),
        Op::Dense(_) => dense_product(x, inputs[1], call.bias, kind),
        Op::Einsum(Einsum { equation }) => einsum_as(equation, inputs, kind),
        Op::Attention(Attention { causal, scale, softcap, .. }) => {
            attention_output(inputs, call.constants.first(), *causal, *scale, *softcap)
        }
        Op::QConv(_) | Op::QDense(_) | Op::QMatMul(_) => Err(Refusal::unsupported_operator(format!(
            "`{}`: PyTorch's integer kernels return rescaled results instead of 32-bit sums",
            call.op.name()
        ))),
        _ => return Ok(None),
    }
    .map(Some)
}

fn window_of(op: &Op) -> ConvWindow<'_> {
    op.window().expect("a convolution has a window")
}

/// Returns the pads of all dimensions; batch and channels are not padded.
pub fn all_pads(window: &ConvWindow<'_>) -> Vec<i64> {
    let (heads, tails) = window.pads.split_at(window.strides.len());
    [&[0, 0], heads, &[0, 0], tails].concat()
}

fn to_accumulator(x: &Tensor, kind: Kind) -> Result<Tensor> {
    Ok(if x.f_kind()? == kind { x.shallow_clone() } else { x.f_to_kind(kind)? })
}

fn conv(x: &Tensor, w: &Tensor, bias: Option<&Tensor>, window: &ConvWindow<'_>, kind: Kind) -> Result<Tensor> {
    let (x, w) = (to_accumulator(x, kind)?, to_accumulator(w, kind)?);
    let none = vec![0; window.strides.len()];
    let (x, pads) = match window.even_pads() {
        Some(pads) => (x, pads),
        None => (x.f_constant_pad_nd(from_last(&all_pads(window)))?, none.as_slice()),
    };
    let ConvWindow { strides, dilations, groups, .. } = *window;
    Ok(match strides.len() {
        1 => x.f_conv1d(&w, bias, strides, pads, dilations, groups)?,
        2 => x.f_conv2d(&w, bias, strides, pads, dilations, groups)?,
        _ => x.f_conv3d(&w, bias, strides, pads, dilations, groups)?,
    })
}

fn conv_transpose(
    x: &Tensor,
    w: &Tensor,
    bias: Option<&Tensor>,
    window: &ConvWindow<'_>,
    output_pads: &[i64],
) -> Result<Tensor> {
    let ConvWindow { strides, dilations, groups, .. } = *window;
    let call = |pads: &[i64], output_pads: &[i64]| match strides.len() {
        1 => x.f_conv_transpose1d(w, bias, strides, pads, output_pads, groups, dilations),
        2 => x.f_conv_transpose2d(w, bias, strides, pads, output_pads, groups, dilations),
        _ => x.f_conv_transpose3d(w, bias, strides, pads, output_pads, groups, dilations),
    };
    if let Some(pads) = window.even_pads() {
        return Ok(call(pads, output_pads)?);
    }
    // The whole result is computed and then cropped; a negative pad crops.
    let none = vec![0; strides.len()];
    let (heads, tails) = window.pads.split_at(strides.len());
    let heads: Vec<i64> = heads.iter().map(|head| -head).collect();
    let tails: Vec<i64> = tails.iter().zip(output_pads).map(|(tail, more)| more - tail).collect();
    let all = [&[0, 0], heads.as_slice(), &[0, 0], tails.as_slice()].concat();
    Ok(call(&none, &none)?.f_constant_pad_nd(from_last(&all))?)
}

fn mat_mul(a: &Tensor, b: &Tensor, transpose_a: bool, transpose_b: bool, kind: Kind) -> Result<Tensor> {
    let operand = |x: &Tensor, is_transposed: bool| -> Result<Tensor> {
        let x = to_accumulator(x, kind)?;
        Ok(if is_transposed { x.f_transpose(-2, -1)? } else { x })
    };
    Ok(operand(a, transpose_a)?.f_matmul(&operand(b, transpose_b)?)?)
}

fn dense_product(x: &Tensor, w: &Tensor, bias: Option<&Tensor>, kind: Kind) -> Result<Tensor> {
    Ok(to_accumulator(x, kind)?.f_linear(&to_accumulator(w, kind)?, bias)?)
}

fn einsum_as(equation: &str, inputs: &[&Tensor], kind: Kind) -> Result<Tensor> {
    let inputs = inputs.iter().map(|x| to_accumulator(x, kind)).collect::<Result<Vec<Tensor>>>()?;
    // With one operand, the result may be a view.
    let result = Tensor::f_einsum(equation, &inputs, None::<i64>)?;
    Ok(if inputs.len() == 1 { result.f_alias_copy()? } else { result })
}

/// Returns an additive attention mask if PyTorch's causal flag cannot express the task's mask; otherwise an empty list.
pub fn attention_mask(task: &Task, causal: bool, window: Option<i64>) -> Result<Vec<Tensor>> {
    let anchor = &task.steps[0];
    let ty = |input: usize| task.operand_type(anchor.inputs[input]).map_err(|error| Refusal::Failed(error.to_string()));
    let (q, k) = (ty(0)?, ty(1)?);
    let (rows, places) = (inputs::fixed_extents(q)?[2], inputs::fixed_extents(k)?[2]);
    let has_mask = anchor.inputs.len() > 3;
    let has_softcap = matches!(anchor.op, Op::Attention(Attention { softcap: Some(_), .. }));
    let is_plain = window.is_none() && !has_mask && !has_softcap && (rows == places);
    if !(causal || window.is_some()) || is_plain || (causal && window.is_none() && rows == 1) {
        return Ok(Vec::new());
    }
    let (window, last) = (window.unwrap_or(i64::MAX), if causal { 0 } else { i64::MAX });
    let seen = |row: i64, place: i64| {
        let own = row + places - rows;
        place.saturating_sub(own) <= last && place > own.saturating_sub(window)
    };
    let cells = (0..rows).flat_map(|row| (0..places).map(move |place| (row, place)));
    let mask: Vec<f32> = cells.map(|(row, place)| if seen(row, place) { 0.0 } else { f32::NEG_INFINITY }).collect();
    let mask = Tensor::f_from_slice(&mask)?.f_reshape([rows, places])?;
    Ok(vec![mask.f_to_kind(inputs::torch_kind(q.dtype)?)?])
}

fn attention_output(
    inputs: &[&Tensor],
    seen: Option<&Tensor>,
    causal: bool,
    scale: f64,
    softcap: Option<f64>,
) -> Result<Tensor> {
    let [q, k, v] = [inputs[0], inputs[1], inputs[2]];
    let rows = q.size()[2];
    let mask = match (inputs.get(3), seen) {
        (Some(given), Some(seen)) => Some(given.f_add(seen)?),
        (Some(given), None) => Some(given.shallow_clone()),
        (None, seen) => seen.map(Tensor::shallow_clone),
    };
    let Some(softcap) = softcap else {
        // The single query of a causal attention is the last one, which attends to all keys.
        let is_causal = causal && mask.is_none() && rows > 1;
        let shares_keys = q.size()[1] != k.size()[1];
        return Ok(Tensor::f_scaled_dot_product_attention(q, k, v, mask.as_ref(), 0.0, is_causal, scale, shares_keys)?);
    };
    // Query heads are grouped by the key head that they share.
    let (sizes, heads) = (q.size(), k.size()[1]);
    let groups = [sizes[0], heads, sizes[1] / heads, rows, -1];
    let scores = q.f_reshape(groups)?.f_matmul(&k.f_unsqueeze(2)?.f_transpose(-2, -1)?)?;
    let mut scores = scores.f_mul_scalar(scale / softcap)?.f_tanh()?.f_mul_scalar(softcap)?;
    if let Some(mask) = mask {
        let mask = mask.f_expand([sizes[0], sizes[1], rows, k.size()[2]], false)?.f_reshape(groups)?;
        scores = scores.f_add(&mask)?;
    }
    let weighted = scores.f_softmax(-1, None)?.f_matmul(&v.f_unsqueeze(2)?)?;
    Ok(weighted.f_reshape([sizes[0], sizes[1], rows, -1])?)
}
