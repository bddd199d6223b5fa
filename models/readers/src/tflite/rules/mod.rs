//! Import rules, one per TFLite operator, by its number in the schema.

mod contraction;
mod movement;
mod names;
mod pointwise;
mod rearrange;
mod recurrent;
mod reduce;
mod resize;
mod window;

pub(super) use names::builtin_name;

use super::call::Call;
use super::schema::Operator;
use crate::{Outcome, unsupported};
use models::graph::ValueId;
use std::borrow::Cow;

/// Adds an operator to the graph and returns its outputs, as real numbers or as stored in the file.
pub(super) type Rule = fn(&mut Call<'_, '_>) -> Outcome<Vec<ValueId>>;

const CUSTOM: i32 = 32;

/// Returns the import rule of an operator, or None if it has none yet; fails for an operator that cannot have one.
pub(super) fn find_rule(operator: &Operator<'_>) -> Outcome<Option<Rule>> {
    if operator.code == CUSTOM {
        return unsupported("custom operators");
    }
    let Some(name) = builtin_name(operator.code) else { return Ok(None) };
    if let Some((_, reason)) = REFUSED.iter().find(|(refused, _)| *refused == name) {
        return unsupported(*reason);
    }
    let found = RULES.binary_search_by_key(&name, |(name, _)| name);
    Ok(found.ok().map(|found| RULES[found].1))
}

pub(super) fn operator_name<'a>(operator: &'a Operator<'_>) -> Cow<'a, str> {
    match builtin_name(operator.code) {
        _ if operator.code == CUSTOM => models::names::shorten_text(&operator.custom).into(),
        Some(name) => name.into(),
        None => format!("operator {}", operator.code).into(),
    }
}

/// Rules sorted by operator name for binary search.
const RULES: &[(&str, Rule)] = &[
    ("ABS", pointwise::abs),
    ("ADD", pointwise::add),
    ("ADD_N", pointwise::add_n),
    ("ARG_MAX", reduce::arg_max),
    ("ARG_MIN", reduce::arg_min),
    ("ATAN2", pointwise::atan2),
    ("AVERAGE_POOL_2D", window::average_pool),
    ("BATCH_MATMUL", contraction::batch_mat_mul),
    ("BATCH_TO_SPACE_ND", rearrange::batch_to_space),
    ("BITWISE_XOR", pointwise::bit_xor),
    ("BROADCAST_ARGS", rearrange::broadcast_shapes),
    ("BROADCAST_TO", movement::broadcast_to),
    ("CAST", pointwise::cast),
    ("CEIL", pointwise::ceil),
    ("CONCATENATION", movement::concat),
    ("CONV_2D", window::conv_2d),
    ("CONV_3D", window::conv_3d),
    ("COS", pointwise::cos),
    ("CUMSUM", reduce::cum_sum),
    ("DENSIFY", rearrange::densify),
    ("DEPTHWISE_CONV_2D", window::depthwise_conv),
    ("DEPTH_TO_SPACE", movement::depth_to_space),
    ("DEQUANTIZE", pointwise::identity),
    ("DIV", pointwise::div),
    ("DYNAMIC_UPDATE_SLICE", rearrange::dynamic_update),
    ("ELU", pointwise::elu),
    ("EMBEDDING_LOOKUP", rearrange::embedding_lookup),
    ("EQUAL", pointwise::equal),
    ("EXP", pointwise::exp),
    ("EXPAND_DIMS", movement::expand_dims),
    ("FILL", movement::fill),
    ("FLOOR", pointwise::floor),
    ("FLOOR_DIV", pointwise::floor_div),
    ("FLOOR_MOD", pointwise::floor_mod),
    ("FULLY_CONNECTED", contraction::fully_connected),
    ("GATHER", movement::gather),
    ("GATHER_ND", movement::gather_nd),
    ("GELU", pointwise::gelu),
    ("GREATER", pointwise::greater),
    ("GREATER_EQUAL", pointwise::greater_equal),
    ("HARD_SWISH", pointwise::hard_swish),
    ("L2_NORMALIZATION", reduce::l2_normalise),
    ("LEAKY_RELU", pointwise::leaky_relu),
    ("LESS", pointwise::less),
    ("LESS_EQUAL", pointwise::less_equal),
    ("LOCAL_RESPONSE_NORMALIZATION", reduce::local_response),
    ("LOG", pointwise::log),
    ("LOGICAL_AND", pointwise::and),
    ("LOGICAL_NOT", pointwise::not),
    ("LOGICAL_OR", pointwise::or),
    ("LOGISTIC", pointwise::sigmoid),
    ("LOG_SOFTMAX", reduce::log_softmax),
    ("MATRIX_DIAG", rearrange::matrix_diagonal),
    ("MAXIMUM", pointwise::maximum),
    ("MAX_POOL_2D", window::max_pool),
    ("MEAN", reduce::mean),
    ("MINIMUM", pointwise::minimum),
    ("MIRROR_PAD", movement::mirror_pad),
    ("MUL", pointwise::mul),
    ("NEG", pointwise::neg),
    ("NOT_EQUAL", pointwise::not_equal),
    ("ONE_HOT", movement::one_hot),
    ("PACK", movement::pack),
    ("PAD", movement::pad),
    ("PADV2", movement::pad),
    ("POW", pointwise::pow),
    ("PRELU", pointwise::p_relu),
    ("QUANTIZE", pointwise::quantise_real),
    ("RANGE", rearrange::integer_range),
    ("RANK", rearrange::rank_of),
    ("REDUCE_ALL", reduce::all_set),
    ("REDUCE_ANY", reduce::any_set),
    ("REDUCE_MAX", reduce::max),
    ("REDUCE_MIN", reduce::min),
    ("REDUCE_PROD", reduce::prod),
    ("RELU", pointwise::relu),
    ("RELU6", pointwise::relu6),
    ("RELU_0_TO_1", pointwise::relu0),
    ("RELU_N1_TO_1", pointwise::relu1),
    ("RESHAPE", movement::reshape),
    ("RESIZE_BILINEAR", resize::bilinear_resize),
    ("RESIZE_NEAREST_NEIGHBOR", resize::nearest_resize),
    ("REVERSE_SEQUENCE", rearrange::reverse_sequence),
    ("REVERSE_V2", movement::reverse),
    ("RIGHT_SHIFT", pointwise::right_shift),
    ("RNN", recurrent::single_rnn),
    ("ROUND", pointwise::round),
    ("RSQRT", pointwise::rsqrt),
    ("SCATTER_ND", rearrange::scatter_nd),
    ("SELECT", pointwise::select),
    ("SELECT_V2", pointwise::select),
    ("SHAPE", movement::shape_of),
    ("SIGN", pointwise::sign),
    ("SIN", pointwise::sin),
    ("SLICE", movement::slice),
    ("SOFTMAX", reduce::softmax),
    ("SPACE_TO_BATCH_ND", rearrange::space_to_batch),
    ("SPACE_TO_DEPTH", movement::space_to_depth),
    ("SPLIT", movement::split_equally),
    ("SPLIT_V", movement::split_v),
    ("SQRT", pointwise::sqrt),
    ("SQUARE", pointwise::square),
    ("SQUARED_DIFFERENCE", pointwise::squared_difference),
    ("SQUEEZE", movement::squeeze),
    ("STRIDED_SLICE", movement::strided_slice),
    ("SUB", pointwise::sub),
    ("SUM", reduce::sum),
    ("TANH", pointwise::tanh),
    ("TILE", movement::tile),
    ("TOPK_V2", reduce::top_k),
    ("TRANSPOSE", movement::transpose),
    ("TRANSPOSE_CONV", window::transpose_conv),
    ("UNIDIRECTIONAL_SEQUENCE_LSTM", recurrent::sequence_lstm),
    ("UNIDIRECTIONAL_SEQUENCE_RNN", recurrent::sequence_rnn),
    ("UNPACK", movement::unpack),
    ("ZEROS_LIKE", movement::zeros_like),
];

const REFUSED: &[(&str, &str)] = &[
    ("LSH_PROJECTION", "the operator looks up strings"),
    ("LSTM", "the operator keeps a state between runs"),
    ("SVDF", "the operator keeps a state between runs"),
    ("BIDIRECTIONAL_SEQUENCE_RNN", "the operator keeps a state between runs"),
    ("BIDIRECTIONAL_SEQUENCE_LSTM", "the operator keeps a state between runs"),
    ("SPARSE_TO_DENSE", "the shape of the result depends on data"),
    ("UNIQUE", "the shape of the result depends on data"),
    ("WHERE", "the shape of the result depends on data"),
    ("NON_MAX_SUPPRESSION_V4", "the shape of the result depends on data"),
    ("NON_MAX_SUPPRESSION_V5", "the shape of the result depends on data"),
    ("CALL_ONCE", "the operator keeps a state between runs"),
];

#[cfg(test)]
mod tests {
    use super::RULES;

    #[test]
    fn rules_are_in_order() {
        assert!(RULES.is_sorted_by(|(a, _), (b, _)| a < b));
    }
}
