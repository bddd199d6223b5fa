//! One rule per operator of the format: reads any version of it and emits today's form.

mod contraction;
mod movement;
mod normalise;
mod pointwise;
mod shape;
mod window;

use super::call::{Call, Outcome};
use super::emit::Emit;
use crate::graph::ValueId;

/// Adds a node to the graph and answers with its outputs; trailing ones may be left out.
pub(super) type Rule = fn(&mut Emit<'_>, &Call<'_>) -> Outcome<Vec<ValueId>>;

/// The rule of an operator of the default domain.
pub(super) fn rule(operator: &str) -> Option<Rule> {
    let found = RULES.binary_search_by(|(name, _)| name.cmp(&operator)).ok()?;
    Some(RULES[found].1)
}

/// In alphabetical order.
const RULES: &[(&str, Rule)] = &[
    ("Abs", pointwise::abs),
    ("Add", pointwise::add),
    ("AveragePool", window::average_pool),
    ("BatchNormalization", normalise::batch_norm),
    ("Cast", pointwise::cast),
    ("CastLike", pointwise::cast_like),
    ("Clip", pointwise::clip),
    ("Concat", movement::concat),
    ("Constant", shape::constant),
    ("ConstantOfShape", shape::constant_of_shape),
    ("Conv", window::conv),
    ("ConvTranspose", window::conv_transpose),
    ("DepthToSpace", movement::depth_to_space),
    ("Div", pointwise::div),
    ("Dropout", pointwise::dropout),
    ("Exp", pointwise::exp),
    ("Flatten", movement::flatten),
    ("Gelu", pointwise::gelu),
    ("Gemm", contraction::gemm),
    ("GlobalAveragePool", window::global_average_pool),
    ("GlobalMaxPool", window::global_max_pool),
    ("GroupNormalization", normalise::group_norm),
    ("HardSigmoid", pointwise::hard_sigmoid),
    ("HardSwish", pointwise::hard_swish),
    ("Identity", pointwise::identity),
    ("InstanceNormalization", normalise::instance_norm),
    ("LayerNormalization", normalise::layer_norm),
    ("LeakyRelu", pointwise::leaky_relu),
    ("Log", pointwise::log),
    ("LogSoftmax", normalise::log_softmax),
    ("MatMul", contraction::mat_mul),
    ("Max", pointwise::max),
    ("MaxPool", window::max_pool),
    ("Mean", pointwise::mean),
    ("Min", pointwise::min),
    ("Mul", pointwise::mul),
    ("Neg", pointwise::neg),
    ("Pad", movement::pad),
    ("Reciprocal", pointwise::reciprocal),
    ("Relu", pointwise::relu),
    ("Reshape", movement::reshape),
    ("Shape", shape::shape),
    ("Sigmoid", pointwise::sigmoid),
    ("Size", shape::size),
    ("Slice", movement::slice),
    ("Softmax", normalise::softmax),
    ("Softsign", pointwise::softsign),
    ("SpaceToDepth", movement::space_to_depth),
    ("Split", movement::split),
    ("Sqrt", pointwise::sqrt),
    ("Squeeze", movement::squeeze),
    ("Sub", pointwise::sub),
    ("Sum", pointwise::sum),
    ("Swish", pointwise::swish),
    ("Tanh", pointwise::tanh),
    ("Transpose", movement::transpose),
    ("Unsqueeze", movement::unsqueeze),
];

/// Why an operator has no rule.
pub(super) fn reason(operator: &str) -> &'static str {
    if operator.starts_with("Sequence") || operator.contains("Sequence") && operator != "ReverseSequence" {
        return "sequences of tensors have no fixed types";
    }
    match operator {
        "Loop" | "Scan" => "a loop has no fixed number of operators",
        "NonMaxSuppression" | "NonZero" | "Unique" | "Compress" => "the shape of its result depends on data",
        "RandomNormal" | "RandomNormalLike" | "RandomUniform" | "RandomUniformLike" | "Bernoulli" | "Multinomial" => {
            "its result is random"
        }
        _ => "this version has no rule for this operator",
    }
}

#[cfg(test)]
mod tests {
    use super::RULES;

    #[test]
    fn rules_are_in_order() {
        assert!(RULES.is_sorted_by(|a, b| a.0 < b.0));
    }
}
