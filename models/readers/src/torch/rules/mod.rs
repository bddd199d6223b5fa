//! One rule per ATen operator, whatever its overload: arguments have names, so overloads differ in which are there.

mod contraction;
mod create;
mod index;
mod movement;
mod normalise;
mod pointwise;
mod recurrent;
mod reduce;
mod window;

use super::call::{Argument, Call};
use crate::{Emit, Outcome, malformed};
use models::graph::ValueId;
use models::operators::{BinaryOp, CompareOp, Op, ReduceOp, UnaryOp};
use std::collections::HashMap;

pub(super) use movement::write_range;

/// One output of a rule.
pub(super) struct Made {
    pub id: ValueId,
    pub window: Memory,
}

/// Whether an output has memory of its own, or is a window on the memory of the first input.
#[derive(Clone, Copy)]
pub(super) enum Memory {
    Own,
    /// Elements `start` to `stop` of one dimension, which is dropped when `is_row`.
    Range {
        axis: usize,
        start: i64,
        stop: i64,
        is_row: bool,
    },
    /// Some other way, or perhaps.
    Other,
}

type Outputs = Outcome<Vec<Made>>;
pub(super) type Rule = fn(&mut Call<'_, '_>) -> Outputs;

/// One output with memory of its own.
fn own(id: ValueId) -> Outputs {
    Ok(vec![Made { id, window: Memory::Own }])
}

/// One output that may share the memory of the input.
fn view(id: ValueId) -> Outputs {
    Ok(vec![Made { id, window: Memory::Other }])
}

/// Operators that only check or announce something.
pub(super) fn is_dropped(target: &str) -> bool {
    const DROPPED: &[&str] =
        &["aten._assert", "aten.sym_constrain", "aten._functional_assert", "higher_order._assert", "_assert"];
    DROPPED.iter().any(|start| target.starts_with(start))
}

/// The operator of a target such as `aten.add_.Tensor`, without the mark of those that write to their input.
pub(super) fn operator(target: &str) -> Option<(&str, bool)> {
    let rest = target.strip_prefix("aten.")?;
    let base = rest.split_once('.').map_or(rest, |(base, _)| base);
    if base.starts_with("__") {
        return Some((base.trim_matches('_'), base.starts_with("__i")));
    }
    Some(match base.strip_suffix('_') {
        Some(bare) => (bare, true),
        None => (base, false),
    })
}

/// The integer a node computes from shapes; nothing for the nodes that compute tensors.
pub(super) fn number(target: &str, arguments: &HashMap<&str, Argument>, emit: &Emit<'_>) -> Outcome<Option<i64>> {
    if target.starts_with("aten.sym_size") {
        let (Some(Argument::Tensor(x)), Some(Argument::Int(dim))) = (arguments.get("self"), arguments.get("dim"))
        else {
            return malformed("it has no tensor or no dimension");
        };
        let axis = emit.axis(*dim, emit.rank(*x)?)?;
        return Ok(Some(emit.extents(*x)?[axis]));
    }
    if target.starts_with("aten.sym_numel") {
        let Some(Argument::Tensor(x)) = arguments.get("self") else { return malformed("it has no tensor") };
        let count = emit.ty(*x)?.elements().and_then(|count| i64::try_from(count).ok());
        return Ok(count);
    }
    let Some(name) = target.strip_prefix("_operator.").or(target.strip_prefix("math.")) else { return Ok(None) };
    let operand = |names: [&str; 2]| match names.iter().find_map(|name| arguments.get(name)) {
        Some(Argument::Int(number)) => Ok(*number),
        _ => malformed("its operand is no integer"),
    };
    let (a, b) = (operand(["a", ""])?, operand(["b", "a"])?);
    let result = match name {
        "add" => a.checked_add(b),
        "sub" => a.checked_sub(b),
        "mul" => a.checked_mul(b),
        "floordiv" => a.checked_div_euclid(b).filter(|_| b > 0),
        "mod" => a.checked_rem_euclid(b).filter(|_| b > 0),
        "neg" => a.checked_neg(),
        _ => return Ok(None),
    };
    match result {
        Some(number) => Ok(Some(number)),
        None => malformed(format!("{a} and {b} have no result")),
    }
}

/// The rule of an operator.
pub(super) fn rule(operator: &str) -> Option<Rule> {
    let found = RULES.binary_search_by(|(name, _)| name.cmp(&operator)).ok()?;
    Some(RULES[found].1)
}

/// Why an operator has no rule.
pub(super) fn reason(operator: &str) -> &'static str {
    match operator {
        "nonzero" | "unique" | "masked_select" | "unique2" => "the size of its result depends on the data",
        "rand" | "randn" | "rand_like" | "randn_like" | "randint" | "bernoulli" | "multinomial" => {
            "its result is random"
        }
        _ => "this version has no rule for this operator",
    }
}

const MEAN: ReduceOp = ReduceOp::Mean;

macro_rules! unary {
    ($function:expr) => {
        |call| pointwise::unary(call, $function)
    };
}

macro_rules! binary {
    ($function:expr) => {
        |call| pointwise::binary(call, $function)
    };
}

macro_rules! compare {
    ($function:expr) => {
        |call| pointwise::compare(call, $function)
    };
}

/// In alphabetical order.
const RULES: &[(&str, Rule)] = &[
    ("_adaptive_avg_pool2d", window::adaptive_average_pool),
    ("_log_softmax", |call| normalise::softmax(call, true)),
    ("_native_batch_norm_legit_no_training", normalise::batch_norm),
    ("_safe_softmax", |call| normalise::softmax(call, false)),
    ("_scaled_dot_product_flash_attention_for_cpu", contraction::attention),
    ("_softmax", |call| normalise::softmax(call, false)),
    ("_to_copy", create::to),
    ("_unsafe_view", movement::view_as),
    ("abs", unary!(UnaryOp::Abs)),
    ("acos", unary!(UnaryOp::Acos)),
    ("acosh", unary!(UnaryOp::Acosh)),
    ("adaptive_avg_pool1d", window::adaptive_average_pool),
    ("adaptive_avg_pool2d", window::adaptive_average_pool),
    ("adaptive_avg_pool3d", window::adaptive_average_pool),
    ("adaptive_max_pool1d", window::adaptive_max_pool),
    ("adaptive_max_pool2d", window::adaptive_max_pool),
    ("add", pointwise::add),
    ("addmm", contraction::addmm),
    ("alias", create::same),
    ("all", reduce::all),
    ("amax", |call| reduce::reduce(call, ReduceOp::Max)),
    ("amin", |call| reduce::reduce(call, ReduceOp::Min)),
    ("and", pointwise::and),
    ("any", reduce::any),
    ("arange", create::arange),
    ("argmax", |call| reduce::arg_reduce(call, true)),
    ("argmin", |call| reduce::arg_reduce(call, false)),
    ("argsort", reduce::top),
    ("asin", unary!(UnaryOp::Asin)),
    ("asinh", unary!(UnaryOp::Asinh)),
    ("atan", unary!(UnaryOp::Atan)),
    ("atanh", unary!(UnaryOp::Atanh)),
    ("avg_pool1d", window::average_pool),
    ("avg_pool2d", window::average_pool),
    ("avg_pool3d", window::average_pool),
    ("baddbmm", contraction::addmm),
    ("batch_norm", normalise::batch_norm),
    ("bitwise_and", pointwise::and),
    ("bitwise_not", pointwise::not),
    ("bitwise_or", pointwise::or),
    ("bitwise_xor", pointwise::xor),
    ("bmm", contraction::mat_mul),
    ("cat", movement::cat),
    ("ceil", unary!(UnaryOp::Ceil)),
    ("celu", pointwise::celu),
    ("chunk", movement::chunk),
    ("clamp", pointwise::clamp),
    ("clamp_max", pointwise::clamp),
    ("clamp_min", pointwise::clamp),
    ("clone", create::copy),
    ("constant_pad_nd", movement::pad),
    ("contiguous", create::same),
    ("conv1d", contraction::conv),
    ("conv2d", contraction::conv),
    ("conv3d", contraction::conv),
    ("conv_transpose1d", contraction::conv_transpose),
    ("conv_transpose2d", contraction::conv_transpose),
    ("conv_transpose3d", contraction::conv_transpose),
    ("convolution", contraction::convolution),
    ("copy", create::copy_into),
    ("cos", unary!(UnaryOp::Cos)),
    ("cosh", unary!(UnaryOp::Cosh)),
    ("cumsum", reduce::cum_sum),
    ("detach", create::same),
    ("diff", reduce::diff),
    ("div", pointwise::div),
    ("divide", pointwise::div),
    ("dropout", create::dropout),
    ("einsum", contraction::einsum),
    ("elu", pointwise::elu),
    ("embedding", index::embedding),
    ("empty", create::zeros),
    ("empty_like", create::zeros),
    ("eq", compare!(CompareOp::Equal)),
    ("erf", unary!(UnaryOp::Erf)),
    ("exp", unary!(UnaryOp::Exp)),
    ("exp2", unary!(UnaryOp::Exp2)),
    ("expand", movement::expand),
    ("expand_as", movement::expand_as),
    ("expm1", unary!(UnaryOp::Expm1)),
    ("feature_dropout", create::dropout),
    ("fill", create::fill),
    ("flatten", movement::flatten),
    ("flip", movement::flip),
    ("floor", unary!(UnaryOp::Floor)),
    ("floor_divide", |call| pointwise::whole_binary(call, BinaryOp::FloorDiv)),
    ("fmod", |call| pointwise::whole_binary(call, BinaryOp::Fmod)),
    ("full", create::full),
    ("full_like", create::full),
    ("gather", index::gather),
    ("ge", compare!(CompareOp::GreaterOrEqual)),
    ("gelu", pointwise::gelu),
    ("glu", pointwise::glu),
    ("group_norm", normalise::group_norm),
    ("gru", recurrent::gru),
    ("gt", compare!(CompareOp::Greater)),
    ("hardshrink", pointwise::hardshrink),
    ("hardsigmoid", unary!(UnaryOp::HardSigmoid)),
    ("hardswish", unary!(UnaryOp::HardSwish)),
    ("hardtanh", pointwise::hardtanh),
    ("index", index::index),
    ("index_put", index::index_put),
    ("index_select", index::index_select),
    ("instance_norm", normalise::instance_norm),
    ("isinf", unary!(UnaryOp::IsInf { negative: true, positive: true })),
    ("isnan", unary!(UnaryOp::IsNan)),
    ("layer_norm", normalise::layer_norm),
    ("le", compare!(CompareOp::LessOrEqual)),
    ("leaky_relu", pointwise::leaky_relu),
    ("lift_fresh_copy", create::copy),
    ("linear", contraction::linear),
    ("log", unary!(UnaryOp::Log)),
    ("log10", unary!(UnaryOp::Log10)),
    ("log1p", unary!(UnaryOp::Log1p)),
    ("log2", unary!(UnaryOp::Log2)),
    ("log_sigmoid", pointwise::log_sigmoid),
    ("log_softmax", |call| normalise::softmax(call, true)),
    ("logical_and", pointwise::logical_and),
    ("logical_not", pointwise::logical_not),
    ("logical_or", pointwise::logical_or),
    ("logical_xor", pointwise::logical_xor),
    ("logsumexp", |call| reduce::reduce(call, ReduceOp::LogSumExp)),
    ("lstm", recurrent::lstm),
    ("lt", compare!(CompareOp::Less)),
    ("masked_fill", index::masked_fill),
    ("matmul", contraction::mat_mul),
    ("max", |call| reduce::extreme(call, true)),
    ("max_pool1d", window::max_pool),
    ("max_pool2d", window::max_pool),
    ("max_pool2d_with_indices", window::max_pool),
    ("max_pool3d", window::max_pool),
    ("maximum", binary!(BinaryOp::Max)),
    ("mean", |call| reduce::reduce(call, MEAN)),
    ("min", |call| reduce::extreme(call, false)),
    ("minimum", binary!(BinaryOp::Min)),
    ("mish", unary!(UnaryOp::Mish)),
    ("mm", contraction::mat_mul),
    ("mul", binary!(BinaryOp::Mul)),
    ("multiply", binary!(BinaryOp::Mul)),
    ("mv", contraction::mat_mul),
    ("narrow", movement::narrow),
    ("native_dropout", create::dropout),
    ("native_group_norm", normalise::group_norm),
    ("native_layer_norm", normalise::layer_norm),
    ("ne", compare!(CompareOp::NotEqual)),
    ("neg", unary!(UnaryOp::Neg)),
    ("new_empty", create::zeros),
    ("new_full", create::full),
    ("new_ones", create::ones),
    ("new_zeros", create::zeros),
    ("numpy_T", movement::transpose_all),
    ("one_hot", index::one_hot),
    ("ones", create::ones),
    ("ones_like", create::ones),
    ("or", pointwise::or),
    ("pad", movement::pad),
    ("permute", movement::permute),
    ("pixel_shuffle", movement::pixel_shuffle),
    ("pixel_unshuffle", movement::pixel_unshuffle),
    ("pow", pointwise::pow),
    ("prelu", pointwise::prelu),
    ("prod", |call| reduce::reduce(call, ReduceOp::Prod)),
    ("reciprocal", unary!(UnaryOp::Reciprocal)),
    ("relu", unary!(UnaryOp::Relu)),
    ("relu6", pointwise::relu6),
    ("remainder", |call| pointwise::whole_binary(call, BinaryOp::Mod)),
    ("repeat", movement::repeat),
    ("repeat_interleave", movement::repeat_interleave),
    ("reshape", movement::view_as),
    ("rms_norm", normalise::rms_norm),
    ("roll", movement::roll),
    ("round", unary!(UnaryOp::Round)),
    ("rsqrt", unary!(UnaryOp::Rsqrt)),
    ("rsub", pointwise::rsub),
    ("scalar_tensor", create::scalar),
    ("scaled_dot_product_attention", contraction::attention),
    ("scatter", index::scatter),
    ("scatter_add", index::scatter),
    ("select", movement::select),
    ("select_scatter", movement::select_scatter),
    ("selu", unary!(UnaryOp::Selu)),
    ("sigmoid", unary!(UnaryOp::Sigmoid)),
    ("sign", unary!(UnaryOp::Sign)),
    ("silu", unary!(UnaryOp::Silu)),
    ("sin", unary!(UnaryOp::Sin)),
    ("sinh", unary!(UnaryOp::Sinh)),
    ("slice", movement::slice),
    ("slice_scatter", movement::slice_scatter),
    ("softmax", |call| normalise::softmax(call, false)),
    ("softplus", pointwise::softplus),
    ("softshrink", pointwise::softshrink),
    ("sort", reduce::top),
    ("split", movement::split),
    ("split_with_sizes", movement::split),
    ("sqrt", unary!(UnaryOp::Sqrt)),
    ("square", unary!(UnaryOp::Square)),
    ("squeeze", movement::squeeze),
    ("stack", movement::stack),
    ("std", |call| reduce::spread(call, true)),
    ("sub", pointwise::sub),
    ("sum", |call| reduce::reduce(call, ReduceOp::Sum)),
    ("t", movement::transpose_all),
    ("tan", unary!(UnaryOp::Tan)),
    ("tanh", unary!(UnaryOp::Tanh)),
    ("to", create::to),
    ("topk", reduce::top),
    ("transpose", movement::transpose),
    ("tril", |call| movement::triangle(call, false)),
    ("triu", |call| movement::triangle(call, true)),
    ("trunc", unary!(UnaryOp::Trunc)),
    ("type_as", create::type_as),
    ("unbind", movement::unbind),
    ("unflatten", movement::unflatten),
    ("unsqueeze", movement::unsqueeze),
    ("upsample_bilinear2d", window::bilinear),
    ("upsample_linear1d", window::bilinear),
    ("upsample_nearest1d", window::nearest),
    ("upsample_nearest2d", window::nearest),
    ("upsample_nearest3d", window::nearest),
    ("var", |call| reduce::spread(call, false)),
    ("view", movement::view_as),
    ("view_as", movement::reshape_as),
    ("where", index::choose),
    ("xor", pointwise::xor),
    ("zero", create::fill),
    ("zeros", create::zeros),
    ("zeros_like", create::zeros),
];

/// An operator with one output of its own.
fn push(call: &mut Call<'_, '_>, op: Op, inputs: &[ValueId]) -> Outputs {
    own(call.emit.push(op, inputs)?)
}

#[cfg(test)]
mod tests {
    use super::{RULES, operator};

    #[test]
    fn rules_are_in_order() {
        assert!(RULES.is_sorted_by(|a, b| a.0 < b.0));
    }

    #[test]
    fn names_of_operators_lose_overload_and_mark() {
        assert_eq!(operator("aten.add_.Tensor"), Some(("add", true)));
        assert_eq!(operator("aten.__and__.Tensor"), Some(("and", false)));
        assert_eq!(operator("aten._softmax.default"), Some(("_softmax", false)));
        assert_eq!(operator("prims.add.default"), None);
    }
}
