//! Transformer layers that PyTorch fuses into one operator when no gradients are needed.

use super::{Argument, Call, Memory, Outputs, Rule, RuleOutput, contraction, normalise, own_output, pointwise};
use crate::{Outcome, unsupported};
use models::graph::ValueId;
use models::operators::{BinaryOp, UnaryOp};
use models::types::TensorType;

fn apply_rule(call: &mut Call<'_, '_>, rule: Rule, arguments: Vec<(&'static str, Argument)>) -> Outcome<ValueId> {
    let first = arguments.iter().find_map(|(_, argument)| match argument {
        Argument::Tensor(id) => Some(*id),
        _ => None,
    });
    let stated = vec![first.map(|id| call.emit.dtype(id)).transpose()?.map(|dtype| TensorType::new(dtype, &[]))];
    let arguments = arguments.into_iter().collect();
    let mut inner = Call {
        emit: &mut *call.emit,
        operator: call.operator,
        arguments,
        complex: Vec::new(),
        stated,
        wanted: usize::MAX,
        memory_order: None,
    };
    match rule(&mut inner)?.first() {
        Some(RuleOutput { id, .. }) => Ok(*id),
        None => unsupported("a part of the layer has no result"),
    }
}

fn linear_layer(call: &mut Call<'_, '_>, x: ValueId, weight: &str, bias: &str) -> Outcome<ValueId> {
    let (weight, bias) = (call.tensor_argument(weight)?, call.tensor_argument(bias)?);
    let arguments = [("input", x), ("weight", weight), ("bias", bias)];
    apply_rule(call, contraction::linear_layer, arguments.map(|(name, id)| (name, Argument::Tensor(id))).to_vec())
}

fn self_attention(call: &mut Call<'_, '_>, x: ValueId, heads: i64) -> Outcome<ValueId> {
    if call.has_argument("mask") {
        return unsupported("the argument `mask`; export the model with `torch.export.save`");
    }
    let extents = call.emit.extents(x)?;
    let &[batch, tokens, width] = extents.as_slice() else { return unsupported("tokens must have 3 dimensions") };
    if heads < 1 || width % heads != 0 {
        return unsupported(format!("{heads} heads that do not divide the width {width}"));
    }
    let joint = linear_layer(call, x, "qkv_weight", "qkv_bias")?;
    let mut parts = Vec::new();
    for (part, name) in (0i64..).zip(["query", "key", "value"]) {
        let rows = call.emit.slice(joint, 2, part * width, (part + 1) * width)?;
        let rows = call.emit.reshape(rows, &[batch, tokens, heads, width / heads])?;
        parts.push((name, Argument::Tensor(call.emit.transpose(rows, &[0, 2, 1, 3])?)));
    }
    let y = apply_rule(call, contraction::attention, parts)?;
    let y = call.emit.transpose(y, &[0, 2, 1, 3])?;
    let y = call.emit.reshape(y, &extents)?;
    linear_layer(call, y, "proj_weight", "proj_bias")
}

pub(super) fn multi_head_attention(call: &mut Call<'_, '_>) -> Outputs {
    let (query, key, value) =
        (call.tensor_argument("query")?, call.tensor_argument("key")?, call.tensor_argument("value")?);
    if query != key || key != value {
        return unsupported("queries, keys and values that are different tensors");
    }
    if call.flag_argument("need_weights", true)? {
        return unsupported("the attention weights as a result; export the model with `torch.export.save`");
    }
    let heads = call.int_argument("num_head", 1)?;
    let id = self_attention(call, query, heads)?;
    Ok(vec![RuleOutput { id, window: Memory::Own }])
}

fn apply_layer_norm(call: &mut Call<'_, '_>, x: ValueId, weight: &str, bias: &str) -> Outcome<ValueId> {
    let (weight, bias) = (call.tensor_argument(weight)?, call.tensor_argument(bias)?);
    let shape = call.emit.extents(weight)?;
    let epsilon = call.float_argument("eps", 1e-5)?;
    let mut arguments =
        [("input", x), ("weight", weight), ("bias", bias)].map(|(name, id)| (name, Argument::Tensor(id))).to_vec();
    arguments.extend([("normalized_shape", Argument::Ints(shape)), ("eps", Argument::Float(epsilon))]);
    apply_rule(call, normalise::layer_norm, arguments)
}

pub(super) fn encoder_layer(call: &mut Call<'_, '_>) -> Outputs {
    let (mut x, heads) = (call.tensor_argument("src")?, call.int_argument("num_heads", 1)?);
    let is_first = call.flag_argument("norm_first", false)?;
    let read = if is_first { apply_layer_norm(call, x, "norm_weight_1", "norm_bias_1")? } else { x };
    let y = self_attention(call, read, heads)?;
    x = call.emit.binary(BinaryOp::Add, x, y)?;
    if !is_first {
        x = apply_layer_norm(call, x, "norm_weight_1", "norm_bias_1")?;
    }
    let read = if is_first { apply_layer_norm(call, x, "norm_weight_2", "norm_bias_2")? } else { x };
    let y = linear_layer(call, read, "ffn_weight_1", "ffn_bias_1")?;
    let bend: Rule = match call.flag_argument("use_gelu", false)? {
        true => |call| pointwise::unary(call, UnaryOp::Gelu),
        false => |call| pointwise::unary(call, UnaryOp::Relu),
    };
    let y = apply_rule(call, bend, vec![("self", Argument::Tensor(y))])?;
    let y = linear_layer(call, y, "ffn_weight_2", "ffn_bias_2")?;
    x = call.emit.binary(BinaryOp::Add, x, y)?;
    if !is_first {
        x = apply_layer_norm(call, x, "norm_weight_2", "norm_bias_2")?;
    }
    own_output(x)
}
