//! Vision transformers (ViT, DeiT, CLIP), and the text encoder of CLIP.

use super::fields::Fields;
use super::net::{Bias, Net};
use super::{check_divides, read_activation};
use models::error::Result;
use models::graph::{Const, ValueId};
use models::operators::{ArgReduce, Attention, BiasAdd, Cast, Compare, CompareOp, Conv, Expand, GatherNd, Op, UnaryOp};
use models::types::{DType, TensorType};

struct VisionNames {
    before: &'static str,
    after: &'static str,
    query: &'static str,
    key: &'static str,
    value: &'static str,
    output: &'static str,
    inner: &'static str,
    outer: &'static str,
}

const VIT: VisionNames = VisionNames {
    before: "layernorm_before",
    after: "layernorm_after",
    query: "attention.attention.query",
    key: "attention.attention.key",
    value: "attention.attention.value",
    output: "attention.output.dense",
    inner: "intermediate.dense",
    outer: "output.dense",
};

const CLIP: VisionNames = VisionNames {
    before: "layer_norm1",
    after: "layer_norm2",
    query: "self_attn.q_proj",
    key: "self_attn.k_proj",
    value: "self_attn.v_proj",
    output: "self_attn.out_proj",
    inner: "mlp.fc1",
    outer: "mlp.fc2",
};

struct VisionShape {
    names: &'static VisionNames,
    blocks: &'static str,
    width: i64,
    layers: i64,
    heads: i64,
    inner: i64,
    bias: Bias,
    activation: UnaryOp,
    epsilon: f64,
    is_causal: bool,
}

impl VisionShape {
    fn from_config(config: &Fields, names: &'static VisionNames, blocks: &'static str) -> Result<VisionShape> {
        let is_clip = std::ptr::eq(names, &CLIP);
        let (width, heads) = (config.required_size("hidden_size")?, config.required_count("num_attention_heads")?);
        check_divides(config, "num_attention_heads", heads, width)?;
        Ok(VisionShape {
            names,
            blocks,
            width,
            layers: config.required_count("num_hidden_layers")?,
            heads,
            inner: config.required_size("intermediate_size")?,
            bias: Bias::from(is_clip || config.flag_or("qkv_bias", true)?),
            activation: read_activation(config, "hidden_act", if is_clip { "quick_gelu" } else { "gelu" })?,
            epsilon: config.positive_or("layer_norm_eps", if is_clip { 1e-5 } else { 1e-12 })?,
            is_causal: false,
        })
    }
}

fn build_encoder(net: &mut Net, shape: &VisionShape, x: ValueId) -> Result<ValueId> {
    let names = shape.names;
    let cut = [shape.heads, shape.width / shape.heads];
    let attention = if shape.is_causal { Attention::causal_with_width(cut[1]) } else { Attention::with_width(cut[1]) };
    let mut x = x;
    for layer in 0..shape.layers {
        let scope = format!("{}.{layer}", shape.blocks);
        let at = |name: &str| format!("{scope}.{name}");
        let y = net.layer_norm(&at(names.before), x, shape.epsilon)?;
        let q = net.project_heads(&at(names.query), y, cut, shape.bias)?;
        let k = net.project_heads(&at(names.key), y, cut, shape.bias)?;
        let v = net.project_heads(&at(names.value), y, cut, shape.bias)?;
        let attended = net.add_attention(&scope, [q, k, v], None, attention)?;
        let attended = net.linear_layer(&at(names.output), attended, shape.width, Bias::With)?;
        x = net.add(&scope, attended, x)?;
        let y = net.layer_norm(&at(names.after), x, shape.epsilon)?;
        let y = net.linear_layer(&at(names.inner), y, shape.inner, Bias::With)?;
        let y = net.unary(&scope, shape.activation, y)?;
        let y = net.linear_layer(&at(names.outer), y, shape.width, Bias::With)?;
        x = net.add(&scope, y, x)?;
    }
    Ok(x)
}

pub(super) fn build_vit(net: &mut Net, config: &Fields) -> Result<Vec<ValueId>> {
    build_classifier(net, config, &["embeddings.cls_token"])
}

pub(super) fn build_deit(net: &mut Net, config: &Fields) -> Result<Vec<ValueId>> {
    build_classifier(net, config, &["embeddings.cls_token", "embeddings.distillation_token"])
}

/// Builds a ViT encoder with a pooler. `extra` names learned tokens that precede the patches.
fn build_classifier(net: &mut Net, config: &Fields, extra: &[&str]) -> Result<Vec<ValueId>> {
    let shape = VisionShape::from_config(config, &VIT, "encoder.layer")?;
    let (patches, count) = add_patches(net, config, "embeddings.patch_embeddings.projection", shape.width, Bias::With)?;
    let mut parts = Vec::new();
    for name in extra {
        let token = net.add_weight(name, &[1, 1, shape.width])?;
        parts.push(net.push_op("embeddings", Op::Expand(Expand { shape: vec![net.batch_size(), 1, 1] }), &[token])?);
    }
    parts.push(patches);
    let all = net.concat("embeddings", &parts, 1)?;
    let places = net.add_weight("embeddings.position_embeddings", &[1, count + extra.len() as i64, shape.width])?;
    let x = net.add("embeddings", all, places)?;
    let x = build_encoder(net, &shape, x)?;
    let x = net.layer_norm("layernorm", x, shape.epsilon)?;
    let first = net.first_position("pooler", x)?;
    let out = config.size_or("pooler_output_size", shape.width)?;
    let pooled = net.linear_layer("pooler.dense", first, out, Bias::With)?;
    let function = read_activation(config, "pooler_act", "tanh")?;
    Ok(vec![x, net.unary("pooler.activation", function, pooled)?])
}

/// Adds the patch embedding; returns it as `[batch, patches, width]`, with the number of patches.
pub(super) fn add_patches(
    net: &mut Net,
    config: &Fields,
    scope: &str,
    width: i64,
    bias: Bias,
) -> Result<(ValueId, i64)> {
    let (image, patch) = (config.size_or("image_size", 224)?, config.size_or("patch_size", 16)?);
    let channels = config.size_or("num_channels", 3)?;
    check_divides(config, "patch_size", patch, image)?;
    let pixels = net.add_input("pixels", DType::F32, &[net.batch_size(), channels, image, image])?;
    let weight = net.add_weight(&format!("{scope}.weight"), &[width, channels, patch, patch])?;
    let op = Op::Conv(Conv { strides: vec![patch; 2], pads: vec![0; 4], dilations: vec![1; 2], groups: 1 });
    let mut y = net.push_op(scope, op, &[pixels, weight])?;
    if bias == Bias::With {
        let bias = net.add_weight(&format!("{scope}.bias"), &[width])?;
        y = net.push_op(scope, Op::BiasAdd(BiasAdd { axis: 1 }), &[y, bias])?;
    }
    let count = (image / patch) * (image / patch);
    let flat = net.reshape(scope, y, &[0, width, count])?;
    Ok((net.transpose(scope, flat, &[0, 2, 1])?, count))
}

pub(super) fn clip_vision(net: &mut Net, config: &Fields) -> Result<Vec<ValueId>> {
    let shape = VisionShape::from_config(config, &CLIP, "encoder.layers")?;
    let (patches, count) = add_patches(net, config, "embeddings.patch_embedding", shape.width, Bias::Without)?;
    let token = net.add_weight("embeddings.class_embedding", &[shape.width])?;
    let token =
        net.push_op("embeddings", Op::Expand(Expand { shape: vec![net.batch_size(), 1, shape.width] }), &[token])?;
    let all = net.concat("embeddings", &[token, patches], 1)?;
    let places = net.add_weight("embeddings.position_embedding.weight", &[count + 1, shape.width])?;
    let x = net.add("embeddings", all, places)?;
    // The misspelling is part of the published weights.
    let x = net.layer_norm("pre_layrnorm", x, shape.epsilon)?;
    let x = build_encoder(net, &shape, x)?;
    let first = net.first_position("post_layernorm", x)?;
    Ok(vec![x, net.layer_norm("post_layernorm", first, shape.epsilon)?])
}

/// Builds CLIP's text encoder. Returns the last hidden states, and the state at each text's end token.
pub(super) fn clip_text(net: &mut Net, config: &Fields) -> Result<Vec<ValueId>> {
    let shape = VisionShape { is_causal: true, ..VisionShape::from_config(config, &CLIP, "encoder.layers")? };
    let tokens = net.add_token_input("tokens", net.prompt_length())?;
    let words =
        net.embed_numbers("embeddings.token_embedding", tokens, config.required_size("vocab_size")?, shape.width)?;
    let table = [config.size_or("max_position_embeddings", 77)?, shape.width];
    let places = net.position_rows("embeddings.position_embedding", table, 0, net.prompt_length())?;
    let x = net.add("embeddings", words, places)?;
    let x = build_encoder(net, &shape, x)?;
    let x = net.layer_norm("final_layer_norm", x, shape.epsilon)?;
    let end = match config.size_or("eos_token_id", 49_407)? {
        // Old configurations contain 2 but mean the largest token number of a text.
        2 => tokens,
        number => {
            let number = net.add_formula("end", || (TensorType::new(DType::I64, &[]), Const::Fill(number as f64)))?;
            let is_end =
                net.push_op("pooled", Op::Compare(Compare { function: CompareOp::Equal }), &[tokens, number])?;
            net.push_op("pooled", Op::Cast(Cast { to: DType::I32 }), &[is_end])?
        }
    };
    let first = Op::ArgReduce(ArgReduce { largest: true, axis: 1, keep: true, last: false });
    let place = net.push_op("pooled", first, &[end])?;
    Ok(vec![x, net.push_op("pooled", Op::GatherNd(GatherNd { batch: 1 }), &[x, place])?])
}
