//! Import rules, one per ONNX operator: each reads any version of the operator and emits the current form.

mod attention;
mod contraction;
pub(super) mod flex;
mod grid;
mod known;
mod logic;
mod lookup;
mod loss;
mod microsoft;
mod movement;
pub(super) mod narrow;
mod normalise;
mod pointwise;
mod quantise;
mod recurrent;
mod reduce;
pub(crate) mod resize;
mod shape;
mod signal;
mod state;
mod window;

use super::call::Call;
use crate::{Emit, Outcome};
use models::graph::ValueId;

/// An import rule: adds a node to the graph and returns its outputs, of which the last ones may be omitted.
pub(super) type Rule = fn(&mut Emit<'_>, &Call<'_>) -> Outcome<Vec<ValueId>>;

/// Returns the rule of an operator; the default domain is empty.
pub(super) fn find_rule(domain: &str, operator: &str) -> Option<Rule> {
    match domain {
        "" => look_up(RULES, operator),
        microsoft::DOMAIN => microsoft::find_rule(operator),
        _ => None,
    }
}

fn look_up(rules: &[(&str, Rule)], operator: &str) -> Option<Rule> {
    let found = rules.binary_search_by(|(name, _)| name.cmp(&operator)).ok()?;
    Some(rules[found].1)
}

/// Rules of the default domain, sorted by name for binary search.
const RULES: &[(&str, Rule)] = &[
    ("Abs", pointwise::abs),
    ("Acos", pointwise::acos),
    ("Acosh", pointwise::acosh),
    ("Add", pointwise::add),
    ("AffineGrid", grid::affine_grid),
    ("And", logic::and),
    ("ArgMax", reduce::arg_max),
    ("ArgMin", reduce::arg_min),
    ("Asin", pointwise::asin),
    ("Asinh", pointwise::asinh),
    ("Atan", pointwise::atan),
    ("Atanh", pointwise::atanh),
    ("Attention", attention::attention),
    ("AveragePool", window::average_pool),
    ("BatchNormalization", normalise::batch_norm),
    ("BitCast", known::bit_cast),
    ("BitShift", logic::bit_shift),
    ("BitwiseAnd", logic::bit_and),
    ("BitwiseNot", logic::bit_not),
    ("BitwiseOr", logic::bit_or),
    ("BitwiseXor", logic::bit_xor),
    ("BlackmanWindow", signal::blackman_window),
    ("Cast", pointwise::cast),
    ("CastLike", pointwise::cast_like),
    ("CausalConvWithState", state::causal_conv),
    ("Ceil", pointwise::ceil),
    ("Celu", pointwise::celu),
    ("CenterCropPad", movement::center_crop_pad),
    ("Clip", pointwise::clip),
    ("Col2Im", window::columns_to_image),
    ("Compress", known::compress),
    ("Concat", movement::concat),
    ("Constant", shape::constant),
    ("ConstantOfShape", shape::constant_of_shape),
    ("Conv", window::conv),
    ("ConvInteger", quantise::conv_integer),
    ("ConvTranspose", window::conv_transpose),
    ("Cos", pointwise::cos),
    ("Cosh", pointwise::cosh),
    ("CumProd", reduce::cum_prod),
    ("CumSum", reduce::cum_sum),
    ("DFT", signal::dft),
    ("DepthToSpace", movement::depth_to_space),
    ("DequantizeLinear", quantise::dequantize_linear),
    ("Div", pointwise::div),
    ("Dropout", pointwise::dropout),
    ("DynamicQuantizeLinear", quantise::dynamic_quantize),
    ("Einsum", contraction::einsum),
    ("Elu", pointwise::elu),
    ("Equal", logic::equal),
    ("Erf", pointwise::erf),
    ("Exp", pointwise::exp),
    ("Expand", movement::expand),
    ("EyeLike", lookup::eye_like),
    ("Flatten", movement::flatten),
    ("Floor", pointwise::floor),
    ("GRU", recurrent::gru_layer),
    ("Gather", lookup::gather),
    ("GatherElements", lookup::gather_elements),
    ("GatherND", lookup::gather_nd),
    ("Gelu", pointwise::gelu),
    ("Gemm", contraction::gemm),
    ("GlobalAveragePool", window::global_average_pool),
    ("GlobalLpPool", window::global_lp_pool),
    ("GlobalMaxPool", window::global_max_pool),
    ("Greater", logic::greater),
    ("GreaterOrEqual", logic::greater_or_equal),
    ("GridSample", grid::grid_sample),
    ("GroupNormalization", normalise::group_norm),
    ("HammingWindow", signal::hamming_window),
    ("HannWindow", signal::hann_window),
    ("HardSigmoid", pointwise::hard_sigmoid),
    ("HardSwish", pointwise::hard_swish),
    ("Hardmax", reduce::hard_max),
    ("Identity", pointwise::identity),
    ("InstanceNormalization", normalise::instance_norm),
    ("IsInf", logic::is_inf),
    ("IsNaN", logic::is_nan),
    ("LRN", normalise::lrn),
    ("LSTM", recurrent::lstm_layer),
    ("LayerNormalization", normalise::layer_norm),
    ("LeakyRelu", pointwise::leaky_relu),
    ("Less", logic::less),
    ("LessOrEqual", logic::less_or_equal),
    ("LinearAttention", state::linear_attention),
    ("Log", pointwise::log),
    ("LogSoftmax", normalise::log_softmax),
    ("LpNormalization", normalise::lp_norm),
    ("LpPool", window::lp_pool),
    ("MatMul", contraction::mat_mul),
    ("MatMulInteger", quantise::mat_mul_integer),
    ("Max", pointwise::max_inputs),
    ("MaxPool", window::max_pool),
    ("Mean", pointwise::mean_inputs),
    ("MeanVarianceNormalization", normalise::mean_variance_norm),
    ("MelWeightMatrix", signal::mel_weights),
    ("Min", pointwise::min_inputs),
    ("Mish", pointwise::mish),
    ("Mod", pointwise::modulo_op),
    ("Mul", pointwise::mul),
    ("Neg", pointwise::neg),
    ("NegativeLogLikelihoodLoss", loss::negative_log_likelihood),
    ("NonMaxSuppression", known::non_max_suppression),
    ("NonZero", known::non_zero),
    ("Not", logic::logical_not),
    ("OneHot", lookup::one_hot),
    ("Or", logic::or),
    ("PRelu", pointwise::p_relu),
    ("Pad", movement::pad),
    ("Pow", pointwise::pow),
    ("QLinearConv", quantise::linear_conv),
    ("QLinearMatMul", quantise::linear_mat_mul),
    ("QuantizeLinear", quantise::quantize_linear),
    ("RMSNormalization", normalise::rms_norm),
    ("RNN", recurrent::rnn_layer),
    ("Range", lookup::integer_range),
    ("Reciprocal", pointwise::reciprocal),
    ("ReduceL1", reduce::l1),
    ("ReduceL2", reduce::l2),
    ("ReduceLogSum", reduce::log_sum),
    ("ReduceLogSumExp", reduce::log_sum_exp),
    ("ReduceMax", reduce::max),
    ("ReduceMean", reduce::mean),
    ("ReduceMin", reduce::min),
    ("ReduceProd", reduce::prod),
    ("ReduceSum", reduce::sum),
    ("ReduceSumSquare", reduce::sum_square),
    ("Relu", pointwise::relu),
    ("Reshape", movement::reshape),
    ("Resize", resize::resize),
    ("ReverseSequence", state::reverse_sequence),
    ("RoiAlign", grid::roi_align),
    ("RotaryEmbedding", attention::rotary_embedding),
    ("Round", pointwise::round),
    ("STFT", signal::stft),
    ("Scatter", lookup::scatter_elements),
    ("ScatterElements", lookup::scatter_elements),
    ("ScatterND", lookup::scatter_nd),
    ("Selu", pointwise::selu),
    ("Shape", shape::shape),
    ("Shrink", pointwise::shrink),
    ("Sigmoid", pointwise::sigmoid),
    ("Sign", pointwise::sign),
    ("SimplifiedLayerNormalization", normalise::rms_norm),
    ("Sin", pointwise::sin),
    ("Sinh", pointwise::sinh),
    ("Size", shape::size),
    ("Slice", movement::slice),
    ("Softmax", normalise::softmax),
    ("SoftmaxCrossEntropyLoss", loss::cross_entropy),
    ("Softplus", pointwise::softplus),
    ("Softsign", pointwise::softsign),
    ("SpaceToDepth", movement::space_to_depth),
    ("Split", movement::split),
    ("Sqrt", pointwise::sqrt),
    ("Squeeze", movement::squeeze),
    ("Sub", pointwise::sub),
    ("Sum", pointwise::sum_all_inputs),
    ("SwiGLU", pointwise::swi_glu),
    ("Swish", pointwise::swish),
    ("Tan", pointwise::tan),
    ("Tanh", pointwise::tanh),
    ("TensorScatter", state::tensor_scatter),
    ("ThresholdedRelu", pointwise::thresholded_relu),
    ("Tile", movement::tile),
    ("TopK", reduce::top_k),
    ("Transpose", movement::transpose),
    ("Trilu", lookup::keep_triangle),
    ("Unique", known::unique),
    ("Unsqueeze", movement::unsqueeze),
    ("Upsample", resize::upsample),
    ("Where", logic::select_where),
    ("Xor", logic::xor),
];

pub(super) fn refusal_reason(domain: &str, operator: &str) -> String {
    let reason = match domain {
        "" => standard_reason(operator),
        "com.microsoft.nchwc" => {
            "the operator depends on the memory layout of one CPU; save the file with ONNX Runtime's optimisation level `ORT_ENABLE_EXTENDED`"
        }
        microsoft::DOMAIN => {
            "this version has no rule for this operator of ONNX Runtime; use the model before optimisation by ONNX Runtime"
        }
        _ => {
            return format!(
                "operators of the domain `{}` are unknown; export the model with this operator as a function of standard operators",
                crate::escape_name(domain)
            );
        }
    };
    reason.to_owned()
}

fn standard_reason(operator: &str) -> &'static str {
    match operator {
        "RandomNormal" | "RandomNormalLike" | "RandomUniform" | "RandomUniformLike" | "Bernoulli" | "Multinomial" => {
            "the result is random"
        }
        _ => "this version has no rule for this operator",
    }
}

#[cfg(test)]
mod tests {
    use super::{RULES, microsoft};

    #[test]
    fn rules_are_in_order() {
        assert!(RULES.is_sorted_by(|a, b| a.0 < b.0));
        assert!(microsoft::RULES.is_sorted_by(|a, b| a.0 < b.0));
    }
}
