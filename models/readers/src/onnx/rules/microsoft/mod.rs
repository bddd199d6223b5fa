//! Operators of the domain `com.microsoft`, which ONNX Runtime's optimiser and quantisers write.

mod attention;
mod blocks;
mod dynamic;
mod fused;
mod group_query;
mod integers;
mod normalise;

use super::{Rule, look_up, pointwise, quantise};

pub(super) const DOMAIN: &str = "com.microsoft";

pub(super) fn find_rule(operator: &str) -> Option<Rule> {
    look_up(RULES, operator)
}

pub(super) const RULES: &[(&str, Rule)] = &[
    ("Attention", attention::fused_attention),
    ("BiasGelu", fused::bias_gelu),
    ("DequantizeLinear", quantise::dequantize_linear),
    ("DynamicQuantizeLSTM", dynamic::quantised_lstm),
    ("DynamicQuantizeMatMul", dynamic::mat_mul),
    ("EmbedLayerNormalization", normalise::embed_layer_norm),
    ("FastGelu", fused::fast_gelu),
    ("FusedConv", fused::fused_conv),
    ("FusedGemm", fused::fused_gemm),
    ("FusedMatMul", fused::mat_mul),
    ("GatherBlockQuantized", blocks::gather_blocks),
    ("Gelu", pointwise::gelu),
    ("GroupQueryAttention", group_query::group_query_attention),
    ("MatMulIntegerToFloat", dynamic::to_float),
    ("MatMulNBits", blocks::mat_mul),
    ("MultiHeadAttention", attention::multi_head),
    ("NhwcConv", fused::channels_last_conv),
    ("NhwcFusedConv", fused::channels_last_conv),
    ("QGemm", integers::quantised_gemm),
    ("QLinearAdd", integers::add),
    ("QLinearAveragePool", integers::average_pool),
    ("QLinearConcat", integers::concat),
    ("QLinearConv", integers::quantised_conv),
    ("QLinearGlobalAveragePool", integers::global_average_pool),
    ("QLinearLeakyRelu", integers::leaky_relu),
    ("QLinearMul", integers::mul),
    ("QLinearSigmoid", integers::sigmoid),
    ("QLinearSoftmax", integers::softmax),
    ("QLinearWhere", integers::select_where),
    ("QuantizeLinear", quantise::quantize_linear),
    ("QuickGelu", fused::quick_gelu),
    ("RotaryEmbedding", group_query::rotary_embedding),
    ("SkipLayerNormalization", normalise::skip_layer_norm),
    ("SkipSimplifiedLayerNormalization", normalise::skip_rms_norm),
    ("TransposeMatMul", fused::mat_mul),
];
