//! Operators of ONNX Runtime's own domain, which its optimiser and its quantisers write.

mod attention;
mod blocks;
mod dynamic;
mod fused;
mod group_query;
mod integers;
mod normalise;

use super::{Rule, look_up, pointwise, quantise};

/// The name of the domain.
pub(super) const DOMAIN: &str = "com.microsoft";

/// The rule of an operator of the domain.
pub(super) fn rule(operator: &str) -> Option<Rule> {
    look_up(RULES, operator)
}

/// In alphabetical order.
pub(super) const RULES: &[(&str, Rule)] = &[
    ("Attention", attention::attention),
    ("BiasGelu", fused::bias_gelu),
    ("DequantizeLinear", quantise::dequantize),
    ("DynamicQuantizeLSTM", dynamic::lstm),
    ("DynamicQuantizeMatMul", dynamic::mat_mul),
    ("EmbedLayerNormalization", normalise::embed),
    ("FastGelu", fused::fast_gelu),
    ("FusedConv", fused::conv),
    ("FusedGemm", fused::gemm),
    ("FusedMatMul", fused::mat_mul),
    ("GatherBlockQuantized", blocks::gather),
    ("Gelu", pointwise::gelu),
    ("GroupQueryAttention", group_query::attention),
    ("MatMulIntegerToFloat", dynamic::to_float),
    ("MatMulNBits", blocks::mat_mul),
    ("MultiHeadAttention", attention::multi_head),
    ("NhwcConv", fused::channels_last_conv),
    ("NhwcFusedConv", fused::channels_last_conv),
    ("QGemm", integers::gemm),
    ("QLinearAdd", integers::add),
    ("QLinearAveragePool", integers::average_pool),
    ("QLinearConcat", integers::concat),
    ("QLinearConv", integers::conv),
    ("QLinearGlobalAveragePool", integers::global_average_pool),
    ("QLinearLeakyRelu", integers::leaky_relu),
    ("QLinearMul", integers::mul),
    ("QLinearSigmoid", integers::sigmoid),
    ("QLinearSoftmax", integers::softmax),
    ("QLinearWhere", integers::choose),
    ("QuantizeLinear", quantise::quantize),
    ("QuickGelu", fused::quick_gelu),
    ("RotaryEmbedding", group_query::rotary),
    ("SkipLayerNormalization", normalise::skip_layer_norm),
    ("SkipSimplifiedLayerNormalization", normalise::skip_rms_norm),
    ("TransposeMatMul", fused::mat_mul),
];
