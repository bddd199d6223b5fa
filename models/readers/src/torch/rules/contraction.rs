//! Linear layers, matrix products, convolutions and attention.

use super::{Call, Outputs, own_output, push_output};
use crate::{Outcome, malformed, unsupported};
use models::compose;
use models::graph::ValueId;
use models::operators::{
    Attention, BiasAdd, BinaryOp, Conv, ConvTranspose, Dense, Einsum, Gather, Op, Reduce, ReduceOp, Where,
};
use models::types::DType;

pub(super) fn linear_layer(call: &mut Call<'_, '_>) -> Outputs {
    let (x, w) = (call.tensor_argument("input")?, call.tensor_argument("weight")?);
    if call.emit.rank(w)? == 1 && !call.has_argument("bias") {
        return own_output(matrix_product(call, x, w)?);
    }
    let y = call.emit.push(Op::Dense(Dense {}), &[x, w])?;
    match call.optional_tensor("bias")? {
        Some(bias) => push_output(call, Op::BiasAdd(BiasAdd { axis: -1 }), &[y, bias]),
        None => own_output(y),
    }
}

/// Emits a product of matrices of 8-bit integers with 32-bit sums.
pub(super) fn integer_product(call: &mut Call<'_, '_>) -> Outputs {
    let (a, b) = (call.operand_as("self", DType::I32)?, call.operand_as("mat2", DType::I32)?);
    own_output(call.emit.mat_mul(a, b)?)
}

pub(super) fn mat_mul(call: &mut Call<'_, '_>) -> Outputs {
    let a = call.tensor_argument(if call.arguments.contains_key("input") { "input" } else { "self" })?;
    let second = ["other", "mat2", "vec"].into_iter().find(|name| call.arguments.contains_key(name));
    let b = call.tensor_argument(second.unwrap_or("other"))?;
    own_output(matrix_product(call, a, b)?)
}

fn matrix_product(call: &mut Call<'_, '_>, a: ValueId, b: ValueId) -> Outcome<ValueId> {
    if call.emit.rank(a)? >= 2 && call.emit.rank(b)? >= 2 {
        return call.emit.mat_mul(a, b);
    }
    Ok(compose::mat_mul(&mut call.emit.builder, a, b)?)
}

pub(super) fn addmm(call: &mut Call<'_, '_>) -> Outputs {
    let names = [["mat1", "mat2"], ["batch1", "batch2"], ["mat", "vec"], ["vec1", "vec2"]];
    let names = names.into_iter().find(|names| call.arguments.contains_key(names[0])).unwrap_or(["mat1", "mat2"]);
    let (added, a, b) =
        (call.tensor_argument("self")?, call.tensor_argument(names[0])?, call.tensor_argument(names[1])?);
    let (alpha, beta) = (call.float_argument("alpha", 1.0)?, call.float_argument("beta", 1.0)?);
    let mut y = match call.operator {
        "addr" => {
            let (rows, columns) = (call.emit.extents(a)?.iter().product(), call.emit.extents(b)?.iter().product());
            let (a, b) = (call.emit.reshape(a, &[rows, 1])?, call.emit.reshape(b, &[1, columns])?);
            call.emit.binary(BinaryOp::Mul, a, b)?
        }
        _ => matrix_product(call, a, b)?,
    };
    if call.operator == "addbmm" {
        y = call.emit.push(Op::Reduce(Reduce { function: ReduceOp::Sum, axes: vec![0], keep: false }), &[y])?;
    }
    if alpha != 1.0 {
        y = call.emit.binary_with(BinaryOp::Mul, y, alpha)?;
    }
    if beta == 0.0 {
        return own_output(y);
    }
    let added = if beta == 1.0 { added } else { call.emit.binary_with(BinaryOp::Mul, added, beta)? };
    own_output(call.emit.binary(BinaryOp::Add, y, added)?)
}

pub(super) fn einsum(call: &mut Call<'_, '_>) -> Outputs {
    let equation: String = call.text_argument("equation", "")?.chars().filter(|sign| !sign.is_whitespace()).collect();
    let operands = call.tensor_list("tensors")?;
    push_output(call, Op::Einsum(Einsum { equation }), &operands)
}

pub(super) fn conv(call: &mut Call<'_, '_>) -> Outputs {
    let (x, w) = (call.tensor_argument("input")?, call.tensor_argument("weight")?);
    let rank = call.emit.rank(w)?.saturating_sub(2);
    let (strides, dilations) = (call.spatial_list("stride", rank, 1)?, call.spatial_list("dilation", rank, 1)?);
    let pads = match call.arguments.get("padding") {
        Some(super::Argument::Text(text)) if text == "valid" => vec![0; 2 * rank],
        Some(super::Argument::Text(text)) if text == "same" => {
            let kernel = call.emit.extents(w)?;
            let all: Vec<i64> =
                dilations.iter().zip(&kernel[2..]).map(|(d, k)| d.saturating_mul(k - 1).max(0)).collect();
            all.iter().map(|all| all / 2).chain(all.iter().map(|all| all - all / 2)).collect()
        }
        Some(super::Argument::Text(other)) => return unsupported(format!("`padding` with the value `{other}`")),
        _ => {
            let pads = call.spatial_list("padding", rank, 0)?;
            [pads.as_slice(), &pads].concat()
        }
    };
    let op = Op::Conv(Conv { strides, pads, dilations, groups: call.int_argument("groups", 1)? });
    batch_window(call, x, rank, op, w)
}

/// Applies a window operator and its bias; an unbatched image gets a temporary batch axis.
fn batch_window(call: &mut Call<'_, '_>, x: ValueId, rank: usize, op: Op, w: ValueId) -> Outputs {
    let mut x = x;
    let is_single = call.emit.rank(x)? == rank + 1;
    if is_single {
        let extents = call.emit.extents(x)?;
        x = call.emit.reshape(x, &[&[1], extents.as_slice()].concat())?;
    }
    let mut y = call.emit.push(op, &[x, w])?;
    if let Some(bias) = call.optional_tensor("bias")? {
        y = call.emit.push(Op::BiasAdd(BiasAdd { axis: 1 }), &[y, bias])?;
    }
    if is_single {
        let extents = call.emit.extents(y)?;
        y = call.emit.reshape(y, &extents[1..])?;
    }
    own_output(y)
}

pub(super) fn conv_transpose(call: &mut Call<'_, '_>) -> Outputs {
    let (x, w) = (call.tensor_argument("input")?, call.tensor_argument("weight")?);
    let rank = call.emit.rank(w)?.saturating_sub(2);
    let pads = call.spatial_list("padding", rank, 0)?;
    let op = Op::ConvTranspose(ConvTranspose {
        strides: call.spatial_list("stride", rank, 1)?,
        pads: [pads.as_slice(), &pads].concat(),
        output_pads: call.spatial_list("output_padding", rank, 0)?,
        dilations: call.spatial_list("dilation", rank, 1)?,
        groups: call.int_argument("groups", 1)?,
    });
    batch_window(call, x, rank, op, w)
}

pub(super) fn convolution(call: &mut Call<'_, '_>) -> Outputs {
    if call.flag_argument("transposed", false)? { conv_transpose(call) } else { conv(call) }
}

/// Emits attention. In a causal mask, query `i` sees keys 0 to `i`, even if there are more keys than queries.
pub(super) fn attention(call: &mut Call<'_, '_>) -> Outputs {
    let mut parts = [call.tensor_argument("query")?, call.tensor_argument("key")?, call.tensor_argument("value")?];
    if call.float_argument("dropout_p", 0.0)? != 0.0 {
        return unsupported("`dropout_p` is not 0, so the result is random");
    }
    let dtype = call.emit.dtype(parts[0])?;
    let extents = call.emit.extents(parts[0])?;
    let rank = extents.len();
    if rank < 2 {
        return malformed("the queries must have at least 2 dimensions");
    }
    let width = extents[rank - 1];
    let scale = call.optional_float("scale")?.unwrap_or(1.0 / (width as f64).sqrt());
    // All dimensions before the heads are batch dimensions.
    for part in &mut parts {
        let own = call.emit.extents(*part)?;
        if own.len() != rank {
            return unsupported("queries, keys and values differ in their number of dimensions");
        }
        let shape = fold_to_rank_4(&own);
        *part = call.emit.reshape(*part, &shape)?;
    }
    let [_, _, rows, _] = fold_to_rank_4(&extents);
    let places = call.emit.extents(parts[1])?[2];
    let mut causal = call.flag_argument("is_causal", false)?;
    let mut mask = call.optional_tensor("attn_mask")?;
    if let Some(given) = mask {
        match plain_mask(call, given, rows, places)? {
            Some(is_causal) => {
                causal |= is_causal;
                mask = None;
            }
            None => {
                let own = call.emit.extents(given)?;
                if own.len() > 4 {
                    let shape = fold_to_rank_4(&own);
                    mask = Some(call.emit.reshape(given, &shape)?);
                }
            }
        }
    }
    if causal && rows != places {
        if mask.is_some() {
            return unsupported("a mask together with a causal mask of a different number of queries and keys");
        }
        mask = Some(call.emit.constant_mask([rows, places], dtype, |row, place| place > row)?);
        causal = false;
    }
    let mut inputs = parts.to_vec();
    if let Some(given) = mask {
        inputs.push(additive_mask(call, given, dtype)?);
    }
    let y = call.emit.push(Op::Attention(Attention { causal, scale, window: None, softcap: None }), &inputs)?;
    let value = call.emit.extents(parts[2])?[3];
    let shape = [&extents[..rank - 1], &[value]].concat();
    own_output(call.emit.reshape(y, &shape)?)
}

/// Returns the extents with rank 4: the last three, and the product of those before.
fn fold_to_rank_4(extents: &[i64]) -> [i64; 4] {
    let from_end = |index: usize| extents.len().checked_sub(index).map_or(1, |at| extents[at]);
    let batch = extents[..extents.len().saturating_sub(3)].iter().product();
    [batch, from_end(3), from_end(2), from_end(1)]
}

/// Classifies a constant mask: Some(false) if nothing is masked, Some(true) if it is causal, None otherwise.
fn plain_mask(call: &Call<'_, '_>, mask: ValueId, rows: i64, places: i64) -> Outcome<Option<bool>> {
    let ty = call.emit.ty(mask)?;
    let is_small = ty.element_count().is_some_and(|elements| elements <= passes::fold::MAX_SMALL);
    if ty.dtype != DType::Bool || !is_small || call.emit.builder.constant_data(mask).is_none() {
        return Ok(None);
    }
    let numbers = call.emit.require_numbers(mask, "attn_mask")?;
    if numbers.iter().all(|&number| number != 0.0) {
        return Ok(Some(false));
    }
    let extents = call.emit.extents(mask)?;
    let is_whole = extents.ends_with(&[rows, places]) && rows == places;
    let is_open = |index: i64| (index % places <= index / places % rows) as u8 as f64;
    let is_causal = is_whole && (0..).zip(&numbers).all(|(index, &number)| number == is_open(index));
    Ok(is_causal.then_some(true))
}

fn additive_mask(call: &mut Call<'_, '_>, mask: ValueId, dtype: DType) -> Outcome<ValueId> {
    if call.emit.dtype(mask)? != DType::Bool {
        return call.emit.cast(mask, dtype);
    }
    let (open, hidden) = (call.emit.add_scalar(dtype, 0.0)?, call.emit.add_scalar(dtype, f64::NEG_INFINITY)?);
    call.emit.push(Op::Where(Where {}), &[mask, open, hidden])
}

pub(super) fn inner_product(call: &mut Call<'_, '_>) -> Outputs {
    let a = call.tensor_argument("self")?;
    let b = call.tensor_argument(if call.arguments.contains_key("tensor") { "tensor" } else { "other" })?;
    let rank = call.emit.rank(b)?;
    if rank > 2 || call.emit.rank(a)? == 0 || rank == 0 {
        return unsupported(format!("an operand of {rank} dimensions"));
    }
    let b = if rank == 2 { call.emit.transpose(b, &[1, 0])? } else { b };
    own_output(matrix_product(call, a, b)?)
}

/// Emits `bias + x1 · weight · x2`, with one matrix per output.
pub(super) fn bilinear(call: &mut Call<'_, '_>) -> Outputs {
    let (a, b, w) = (call.tensor_argument("input1")?, call.tensor_argument("input2")?, call.tensor_argument("weight")?);
    let equation = "...i,oij,...j->...o".to_owned();
    let y = call.emit.push(Op::Einsum(Einsum { equation }), &[a, w, b])?;
    match call.optional_tensor("bias")? {
        Some(bias) => push_output(call, Op::BiasAdd(BiasAdd { axis: -1 }), &[y, bias]),
        None => own_output(y),
    }
}

pub(super) fn tensor_dot(call: &mut Call<'_, '_>) -> Outputs {
    let (a, b) = (call.tensor_argument("self")?, call.tensor_argument("other")?);
    let mut sides = Vec::new();
    for (x, name, is_first) in [(a, "dims_self", true), (b, "dims_other", false)] {
        let extents = call.emit.extents(x)?;
        let summed = call.int_list(name)?;
        let summed = summed
            .into_iter()
            .map(|axis| call.emit.resolve_axis(axis, extents.len()))
            .collect::<Outcome<Vec<usize>>>()?;
        let kept: Vec<usize> = (0..extents.len()).filter(|axis| !summed.contains(axis)).collect();
        let of = |axes: &[usize]| axes.iter().map(|&axis| extents[axis]).collect::<Vec<i64>>();
        let order = if is_first { [kept.as_slice(), &summed].concat() } else { [summed.as_slice(), &kept].concat() };
        let (rows, width) = (of(&kept).iter().product(), of(&summed).iter().product());
        let transposed = call.emit.transpose(x, &order)?;
        let matrix = call.emit.reshape(transposed, &if is_first { [rows, width] } else { [width, rows] })?;
        sides.push((matrix, of(&kept)));
    }
    let y = call.emit.mat_mul(sides[0].0, sides[1].0)?;
    let shape = [sides[0].1.as_slice(), &sides[1].1].concat();
    own_output(call.emit.reshape(y, &shape)?)
}

pub(super) fn cross_product(call: &mut Call<'_, '_>) -> Outputs {
    let dtype = call.result_dtype()?;
    let (a, b) = (call.operand_as("self", dtype)?, call.operand_as("other", dtype)?);
    let extents = call.emit.extents(a)?;
    let axis = match call.optional_int("dim")? {
        Some(axis) => call.emit.resolve_axis(axis, extents.len())?,
        None if call.operator == "linalg_cross" => extents.len().saturating_sub(1),
        None => extents.iter().position(|&extent| extent == 3).unwrap_or(0),
    };
    if extents.get(axis) != Some(&3) || extents != call.emit.extents(b)? {
        return unsupported("vectors that do not have three elements");
    }
    let emit = &mut *call.emit;
    // Elements 1, 2, 0 and 2, 0, 1.
    let places = [emit.add_integers(&[1, 2, 0])?, emit.add_integers(&[2, 0, 1])?];
    let mut rotated =
        |x: ValueId, which: usize| emit.push(Op::Gather(Gather { axis: axis as i64 }), &[x, places[which]]);
    let (a1, b2, a2, b1) = (rotated(a, 0)?, rotated(b, 1)?, rotated(a, 1)?, rotated(b, 0)?);
    let (first, second) = (call.emit.binary(BinaryOp::Mul, a1, b2)?, call.emit.binary(BinaryOp::Mul, a2, b1)?);
    own_output(call.emit.binary(BinaryOp::Sub, first, second)?)
}

pub(super) fn vector_dot(call: &mut Call<'_, '_>) -> Outputs {
    let (x, y) = (call.tensor_argument("x")?, call.tensor_argument("y")?);
    let z = call.emit.binary(BinaryOp::Mul, x, y)?;
    let axes = vec![call.axis_argument(z, "dim", -1)? as i64];
    push_output(call, Op::Reduce(Reduce { function: ReduceOp::Sum, axes, keep: false }), &[z])
}

/// Multiplies three tensors after inserting dimensions, and sums the products over the given dimensions.
pub(super) fn trilinear(call: &mut Call<'_, '_>) -> Outputs {
    let mut product = None;
    for (tensor, added) in [("i1", "expand1"), ("i2", "expand2"), ("i3", "expand3")] {
        let x = call.tensor_argument(tensor)?;
        let mut shape = call.emit.extents(x)?;
        let mut axes = call.int_list(added)?;
        axes.sort_unstable();
        for axis in axes {
            let axis = call.emit.resolve_axis(axis, shape.len() + 1)?;
            shape.insert(axis, 1);
        }
        let x = call.emit.reshape(x, &shape)?;
        product = Some(match product {
            Some(product) => call.emit.binary(BinaryOp::Mul, product, x)?,
            None => x,
        });
    }
    let Some(product) = product else { return malformed("there are no tensors") };
    if call.int_list("sumdim")?.is_empty() {
        return own_output(product);
    }
    let axes = call.axis_list(product, "sumdim")?;
    push_output(call, Op::Reduce(Reduce { function: ReduceOp::Sum, axes, keep: false }), &[product])
}
