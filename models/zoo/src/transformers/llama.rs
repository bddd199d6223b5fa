//! Llama-style decoders: RMS norms, rotary positions, grouped-query attention, gated MLPs.

use super::decoder::output_layer;
use super::fields::Fields;
use super::net::{Bias, Net};
use super::rotary::Rotary;
use super::{check_divides, check_key_heads, read_activation};
use models::error::Result;
use models::graph::ValueId;
use models::operators::{Attention, Op, RmsNorm, UnaryOp};

#[derive(Clone, Copy, Default)]
struct Habits {
    /// Whether queries, keys and values have biases, independent of `attention_bias`.
    has_qkv_bias: bool,
    has_head_norms: bool,
    /// Whether norm weights are stored minus one, and embeddings are scaled by the square root of the width.
    is_gemma: bool,
    /// Whether projections of the same input are stored as one matrix.
    is_packed: bool,
    /// Whether attention is limited to the configured window.
    has_window: bool,
}

pub(super) fn build_llama(net: &mut Net, config: &Fields) -> Result<Vec<ValueId>> {
    build_decoder(net, config, Habits::default())
}

pub(super) fn build_mistral(net: &mut Net, config: &Fields) -> Result<Vec<ValueId>> {
    build_decoder(net, config, Habits { has_window: true, ..Habits::default() })
}

pub(super) fn build_qwen2(net: &mut Net, config: &Fields) -> Result<Vec<ValueId>> {
    check_no_window(config)?;
    build_decoder(net, config, Habits { has_qkv_bias: true, ..Habits::default() })
}

pub(super) fn build_qwen3(net: &mut Net, config: &Fields) -> Result<Vec<ValueId>> {
    check_no_window(config)?;
    build_decoder(net, config, Habits { has_head_norms: true, ..Habits::default() })
}

pub(super) fn build_gemma(net: &mut Net, config: &Fields) -> Result<Vec<ValueId>> {
    build_decoder(net, config, Habits { is_gemma: true, ..Habits::default() })
}

pub(super) fn build_phi3(net: &mut Net, config: &Fields) -> Result<Vec<ValueId>> {
    build_decoder(net, config, Habits { is_packed: true, has_window: true, ..Habits::default() })
}

/// Rejects a configuration with windowed attention in some layers, which published models do not enable.
fn check_no_window(config: &Fields) -> Result<()> {
    if config.flag_or("use_sliding_window", false)? {
        return Err(config.unsupported_field("use_sliding_window", "sliding windows in only some layers"));
    }
    Ok(())
}

struct LlamaShape {
    width: i64,
    inner: i64,
    heads: i64,
    /// Number of key and value heads.
    kept: i64,
    head: i64,
    activation: UnaryOp,
    epsilon: f64,
    attention_bias: Bias,
    output_bias: Bias,
    inner_bias: Bias,
    attention: Attention,
    rotary: Rotary,
    habits: Habits,
}

impl LlamaShape {
    fn from_config(config: &Fields, habits: Habits) -> Result<LlamaShape> {
        let (width, heads) = (config.required_size("hidden_size")?, config.required_count("num_attention_heads")?);
        let head = match config.optional_size("head_dim")? {
            Some(head) => head,
            None => {
                check_divides(config, "num_attention_heads", heads, width)?;
                width / heads
            }
        };
        let kept = config.count_or("num_key_value_heads", heads)?;
        check_key_heads(config, kept, heads)?;
        let bias = config.flag_or("attention_bias", false)?;
        let activation_default = if habits.is_gemma { "gelu_pytorch_tanh" } else { "silu" };
        let window = if habits.has_window { config.optional_size("sliding_window")? } else { None };
        Ok(LlamaShape {
            width,
            inner: config.required_size("intermediate_size")?,
            heads,
            kept,
            head,
            activation: read_activation(config, "hidden_act", activation_default)?,
            epsilon: config.positive_or("rms_norm_eps", 1e-6)?,
            attention_bias: Bias::from(bias || habits.has_qkv_bias),
            output_bias: Bias::from(bias),
            inner_bias: Bias::from(config.flag_or("mlp_bias", false)?),
            attention: Attention { window, ..Attention::causal_with_width(head) },
            rotary: Rotary::from_config(config, head, "partial_rotary_factor", 1.0)?,
            habits,
        })
    }
}

fn build_decoder(net: &mut Net, config: &Fields, habits: Habits) -> Result<Vec<ValueId>> {
    let shape = LlamaShape::from_config(config, habits)?;
    let words = config.required_size("vocab_size")?;
    let tokens = net.add_token_input("tokens", net.fresh_tokens())?;
    let mut x = net.embed_numbers("embed_tokens", tokens, words, shape.width)?;
    if habits.is_gemma {
        x = net.scale_by("embed_tokens", x, (shape.width as f64).sqrt())?;
    }
    for layer in 0..config.required_count("num_hidden_layers")? {
        let scope = format!("layers.{layer}");
        let y = add_norm(net, &shape, &format!("{scope}.input_layernorm"), x)?;
        let attended = add_attention(net, &shape, layer, &format!("{scope}.self_attn"), y)?;
        x = net.add(&scope, attended, x)?;
        let y = add_norm(net, &shape, &format!("{scope}.post_attention_layernorm"), x)?;
        let y = gated_mlp(net, &shape, &format!("{scope}.mlp"), y)?;
        x = net.add(&scope, y, x)?;
    }
    let x = add_norm(net, &shape, "norm", x)?;
    let is_tied = config.flag_or("tie_word_embeddings", habits.is_gemma)?;
    Ok(vec![output_layer(net, x, "lm_head", is_tied.then_some("embed_tokens"), words)?])
}

fn add_norm(net: &mut Net, shape: &LlamaShape, scope: &str, x: ValueId) -> Result<ValueId> {
    if !shape.habits.is_gemma {
        return net.rms_norm(scope, x, shape.epsilon);
    }
    let weight = net.add_weight(&format!("{scope}.weight"), &[shape.width])?;
    let weight = net.shift_by(scope, weight, 1.0)?;
    net.push_op(scope, Op::RmsNorm(RmsNorm { axis: -1, epsilon: shape.epsilon }), &[x, weight])
}

fn add_attention(net: &mut Net, shape: &LlamaShape, layer: i64, scope: &str, x: ValueId) -> Result<ValueId> {
    let LlamaShape { heads, kept, head, .. } = *shape;
    let [q, k, v] = if shape.habits.is_packed {
        let (own, shared) = (heads * head, kept * head);
        let all = net.linear_layer(&format!("{scope}.qkv_proj"), x, own + 2 * shared, Bias::Without)?;
        let q = net.slice(scope, all, -1, 0, own)?;
        let k = net.slice(scope, all, -1, own, own + shared)?;
        let v = net.slice(scope, all, -1, own + shared, own + 2 * shared)?;
        let (q, k) = (net.split_heads(scope, q, heads, head)?, net.split_heads(scope, k, kept, head)?);
        [q, k, net.split_heads(scope, v, kept, head)?]
    } else {
        let bias = shape.attention_bias;
        let q = add_projection(net, shape, [scope, "q"], x, heads, bias)?;
        let k = add_projection(net, shape, [scope, "k"], x, kept, bias)?;
        [q, k, net.project_heads(&format!("{scope}.v_proj"), x, [kept, head], bias)?]
    };
    let (q, k) = (shape.rotary.rotate_heads(net, scope, q)?, shape.rotary.rotate_heads(net, scope, k)?);
    let [k, v] = net.extend_cache(layer, scope, k, v)?;
    let attended = net.add_attention(scope, [q, k, v], None, shape.attention)?;
    net.linear_layer(&format!("{scope}.o_proj"), attended, shape.width, shape.output_bias)
}

fn add_projection(
    net: &mut Net,
    shape: &LlamaShape,
    [scope, name]: [&str; 2],
    x: ValueId,
    heads: i64,
    bias: Bias,
) -> Result<ValueId> {
    let place = format!("{scope}.{name}_proj");
    if !shape.habits.has_head_norms {
        return net.project_heads(&place, x, [heads, shape.head], bias);
    }
    let y = net.linear_layer(&place, x, heads * shape.head, bias)?;
    let y = net.reshape(scope, y, &[0, 0, heads, shape.head])?;
    let y = net.rms_norm(&format!("{scope}.{name}_norm"), y, shape.epsilon)?;
    net.transpose(scope, y, &[0, 2, 1, 3])
}

fn gated_mlp(net: &mut Net, shape: &LlamaShape, scope: &str, x: ValueId) -> Result<ValueId> {
    let (gate, up) = if shape.habits.is_packed {
        let both = net.linear_layer(&format!("{scope}.gate_up_proj"), x, 2 * shape.inner, Bias::Without)?;
        let [gate, up] = net.split_parts(scope, both)?;
        (gate, up)
    } else {
        let gate = net.linear_layer(&format!("{scope}.gate_proj"), x, shape.inner, shape.inner_bias)?;
        (gate, net.linear_layer(&format!("{scope}.up_proj"), x, shape.inner, shape.inner_bias)?)
    };
    let gate = net.unary(scope, shape.activation, gate)?;
    let y = net.mul(scope, gate, up)?;
    net.linear_layer(&format!("{scope}.down_proj"), y, shape.width, shape.inner_bias)
}
