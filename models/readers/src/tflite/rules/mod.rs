//! One rule per operator of the format, by its number in the schema.

mod contraction;
mod movement;
mod pointwise;
mod reduce;
mod resize;
mod window;

use super::call::Call;
use super::schema::Operator;
use crate::{Outcome, unsupported};
use models::graph::ValueId;

/// Adds an operator to the graph and answers with its outputs, as real numbers or already as the file stores them.
pub(super) type Rule = fn(&mut Call<'_, '_>) -> Outcome<Vec<ValueId>>;

/// Number of operators that are not TFLite's own.
const CUSTOM: i32 = 32;

/// The rule of an operator.
pub(super) fn rule(operator: &Operator<'_>) -> Outcome<Rule> {
    match find(operator.code) {
        Some((_, _, rule)) => Ok(*rule),
        None if operator.code == CUSTOM => unsupported("operators outside of TFLite's own set are not known"),
        None => match REFUSED.iter().find(|(code, _, _)| *code == operator.code) {
            Some((_, _, reason)) => unsupported(*reason),
            None => unsupported(format!("there is no rule for operator {}", operator.code)),
        },
    }
}

/// The name of an operator.
pub(super) fn name<'a>(operator: &'a Operator<'_>) -> &'a str {
    if operator.code == CUSTOM {
        return &operator.custom;
    }
    let refused = || REFUSED.iter().find(|(code, _, _)| *code == operator.code).map(|(_, name, _)| *name);
    find(operator.code).map(|(_, name, _)| *name).or_else(refused).unwrap_or("unknown")
}

fn find(code: i32) -> Option<&'static (i32, &'static str, Rule)> {
    let found = RULES.binary_search_by_key(&code, |(code, _, _)| *code).ok()?;
    Some(&RULES[found])
}

/// By number.
const RULES: &[(i32, &str, Rule)] = &[
    (0, "ADD", pointwise::add),
    (1, "AVERAGE_POOL_2D", window::average_pool),
    (2, "CONCATENATION", movement::concat),
    (3, "CONV_2D", window::conv),
    (4, "DEPTHWISE_CONV_2D", window::depthwise_conv),
    (5, "DEPTH_TO_SPACE", movement::depth_to_space),
    (6, "DEQUANTIZE", pointwise::identity),
    (8, "FLOOR", pointwise::floor),
    (9, "FULLY_CONNECTED", contraction::fully_connected),
    (11, "L2_NORMALIZATION", reduce::l2_normalise),
    (13, "LOCAL_RESPONSE_NORMALIZATION", reduce::local_response),
    (14, "LOGISTIC", pointwise::sigmoid),
    (17, "MAX_POOL_2D", window::max_pool),
    (18, "MUL", pointwise::mul),
    (19, "RELU", pointwise::relu),
    (20, "RELU_N1_TO_1", pointwise::relu1),
    (21, "RELU6", pointwise::relu6),
    (22, "RESHAPE", movement::reshape),
    (23, "RESIZE_BILINEAR", resize::bilinear),
    (25, "SOFTMAX", reduce::softmax),
    (26, "SPACE_TO_DEPTH", movement::space_to_depth),
    (28, "TANH", pointwise::tanh),
    (34, "PAD", movement::pad),
    (36, "GATHER", movement::gather),
    (39, "TRANSPOSE", movement::transpose),
    (40, "MEAN", reduce::mean),
    (41, "SUB", pointwise::sub),
    (42, "DIV", pointwise::div),
    (43, "SQUEEZE", movement::squeeze),
    (45, "STRIDED_SLICE", movement::strided_slice),
    (47, "EXP", pointwise::exp),
    (48, "TOPK_V2", reduce::top_k),
    (49, "SPLIT", movement::split),
    (50, "LOG_SOFTMAX", reduce::log_softmax),
    (53, "CAST", pointwise::cast),
    (54, "PRELU", pointwise::p_relu),
    (55, "MAXIMUM", pointwise::maximum),
    (56, "ARG_MAX", reduce::arg_max),
    (57, "MINIMUM", pointwise::minimum),
    (58, "LESS", pointwise::less),
    (59, "NEG", pointwise::neg),
    (60, "PADV2", movement::pad),
    (61, "GREATER", pointwise::greater),
    (62, "GREATER_EQUAL", pointwise::greater_equal),
    (63, "LESS_EQUAL", pointwise::less_equal),
    (64, "SELECT", pointwise::select),
    (65, "SLICE", movement::slice),
    (66, "SIN", pointwise::sin),
    (67, "TRANSPOSE_CONV", window::transpose_conv),
    (69, "TILE", movement::tile),
    (70, "EXPAND_DIMS", movement::expand_dims),
    (71, "EQUAL", pointwise::equal),
    (72, "NOT_EQUAL", pointwise::not_equal),
    (73, "LOG", pointwise::log),
    (74, "SUM", reduce::sum),
    (75, "SQRT", pointwise::sqrt),
    (76, "RSQRT", pointwise::rsqrt),
    (77, "SHAPE", movement::shape),
    (78, "POW", pointwise::pow),
    (79, "ARG_MIN", reduce::arg_min),
    (81, "REDUCE_PROD", reduce::prod),
    (82, "REDUCE_MAX", reduce::max),
    (83, "PACK", movement::pack),
    (84, "LOGICAL_OR", pointwise::or),
    (85, "ONE_HOT", movement::one_hot),
    (86, "LOGICAL_AND", pointwise::and),
    (87, "LOGICAL_NOT", pointwise::not),
    (88, "UNPACK", movement::unpack),
    (89, "REDUCE_MIN", reduce::min),
    (90, "FLOOR_DIV", pointwise::floor_div),
    (92, "SQUARE", pointwise::square),
    (93, "ZEROS_LIKE", movement::zeros_like),
    (94, "FILL", movement::fill),
    (95, "FLOOR_MOD", pointwise::floor_mod),
    (97, "RESIZE_NEAREST_NEIGHBOR", resize::nearest),
    (98, "LEAKY_RELU", pointwise::leaky_relu),
    (99, "SQUARED_DIFFERENCE", pointwise::squared_difference),
    (100, "MIRROR_PAD", movement::mirror_pad),
    (101, "ABS", pointwise::abs),
    (102, "SPLIT_V", movement::split_v),
    (104, "CEIL", pointwise::ceil),
    (105, "REVERSE_V2", movement::reverse),
    (106, "ADD_N", pointwise::add_n),
    (107, "GATHER_ND", movement::gather_nd),
    (108, "COS", pointwise::cos),
    (111, "ELU", pointwise::elu),
    (114, "QUANTIZE", pointwise::quantize),
    (116, "ROUND", pointwise::round),
    (117, "HARD_SWISH", pointwise::hard_swish),
    (123, "SELECT_V2", pointwise::select),
    (126, "BATCH_MATMUL", contraction::batch_mat_mul),
    (128, "CUMSUM", reduce::cum_sum),
    (130, "BROADCAST_TO", movement::broadcast_to),
    (150, "GELU", pointwise::gelu),
    (158, "SIGN", pointwise::sign),
];

/// Operators that are known, and why they have no rule.
const REFUSED: &[(i32, &str, &str)] = &[
    (15, "LSH_PROJECTION", "it looks up strings"),
    (16, "LSTM", "it keeps a state from run to run"),
    (24, "RNN", "it keeps a state from run to run"),
    (27, "SVDF", "it keeps a state from run to run"),
    (35, "UNIDIRECTIONAL_SEQUENCE_RNN", "it keeps a state from run to run"),
    (44, "UNIDIRECTIONAL_SEQUENCE_LSTM", "it keeps a state from run to run"),
    (46, "BIDIRECTIONAL_SEQUENCE_RNN", "it keeps a state from run to run"),
    (52, "BIDIRECTIONAL_SEQUENCE_LSTM", "it keeps a state from run to run"),
    (68, "SPARSE_TO_DENSE", "the shape of its result depends on data"),
    (103, "UNIQUE", "the shape of its result depends on data"),
    (109, "WHERE", "the shape of its result depends on data"),
    (118, "IF", "branches decided at run time"),
    (119, "WHILE", "a loop that ends at run time"),
    (120, "NON_MAX_SUPPRESSION_V4", "the shape of its result depends on data"),
    (121, "NON_MAX_SUPPRESSION_V5", "the shape of its result depends on data"),
    (129, "CALL_ONCE", "it keeps a state from run to run"),
];

#[cfg(test)]
mod tests {
    use super::RULES;

    #[test]
    fn rules_are_in_order() {
        assert!(RULES.is_sorted_by(|(a, ..), (b, ..)| a < b));
    }
}
