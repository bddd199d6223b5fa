//! BERT-style encoders: normalisation after each residual sum, learned position embeddings.

use super::fields::Fields;
use super::net::{Bias, Net};
use super::read_activation;
use models::error::Result;
use models::graph::ValueId;
use models::operators::{Attention, UnaryOp};

struct BertShape {
    width: i64,
    /// Width of the embeddings; a separate layer maps it to `width` if they differ.
    embedding: i64,
    layers: i64,
    heads: i64,
    inner: i64,
    activation: UnaryOp,
    epsilon: f64,
}

impl BertShape {
    fn from_config(config: &Fields) -> Result<BertShape> {
        let (width, heads) = (config.required_size("hidden_size")?, config.required_count("num_attention_heads")?);
        super::check_divides(config, "num_attention_heads", heads, width)?;
        Ok(BertShape {
            width,
            embedding: config.size_or("embedding_size", width)?,
            layers: config.required_count("num_hidden_layers")?,
            heads,
            inner: config.required_size("intermediate_size")?,
            activation: read_activation(config, "hidden_act", "gelu")?,
            epsilon: config.positive_or("layer_norm_eps", 1e-12)?,
        })
    }

    fn head_width(&self) -> i64 {
        self.width / self.heads
    }
}

pub(super) fn build_bert(net: &mut Net, config: &Fields) -> Result<Vec<ValueId>> {
    build_encoder(net, config, 0, true)
}

/// Builds RoBERTa, whose position numbers start after the padding token's number.
pub(super) fn build_roberta(net: &mut Net, config: &Fields) -> Result<Vec<ValueId>> {
    let padding = config.find_field("pad_token_id").and_then(serde_json::Value::as_i64).unwrap_or(1);
    build_encoder(net, config, padding.clamp(0, 1 << 20) + 1, true)
}

pub(super) fn build_electra(net: &mut Net, config: &Fields) -> Result<Vec<ValueId>> {
    build_encoder(net, config, 0, false)
}

fn build_encoder(net: &mut Net, config: &Fields, first_position: i64, has_pooler: bool) -> Result<Vec<ValueId>> {
    let shape = BertShape::from_config(config)?;
    let mut x = add_embeddings(net, config, &shape, first_position)?;
    if shape.embedding != shape.width {
        x = net.linear_layer("embeddings_project", x, shape.width, Bias::With)?;
    }
    for layer in 0..shape.layers {
        x = encoder_block(net, &shape, &format!("encoder.layer.{layer}"), x)?;
    }
    if !has_pooler {
        return Ok(vec![x]);
    }
    let first = net.first_position("pooler", x)?;
    let pooled = net.linear_layer("pooler.dense", first, shape.width, Bias::With)?;
    Ok(vec![x, net.unary("pooler.activation", UnaryOp::Tanh, pooled)?])
}

fn add_embeddings(net: &mut Net, config: &Fields, shape: &BertShape, first_position: i64) -> Result<ValueId> {
    let (places, width) = (net.prompt_length(), shape.embedding);
    let tokens = net.add_token_input("tokens", places)?;
    let words = net.embed_numbers("embeddings.word_embeddings", tokens, config.required_size("vocab_size")?, width)?;
    let kinds = config.size_or("type_vocab_size", 2)?;
    let kind = if kinds > 1 {
        let numbers = net.add_token_input("token_types", places)?;
        net.embed_numbers("embeddings.token_type_embeddings", numbers, kinds, width)?
    } else {
        net.add_weight("embeddings.token_type_embeddings.weight", &[kinds, width])?
    };
    let table = [config.required_size("max_position_embeddings")?, width];
    let positions = net.position_rows("embeddings.position_embeddings", table, first_position, places)?;
    let sum = net.add("embeddings", words, kind)?;
    let sum = net.add("embeddings", sum, positions)?;
    net.layer_norm("embeddings.LayerNorm", sum, shape.epsilon)
}

fn encoder_block(net: &mut Net, shape: &BertShape, scope: &str, x: ValueId) -> Result<ValueId> {
    let heads = [shape.heads, shape.head_width()];
    let own = format!("{scope}.attention.self");
    let q = net.project_heads(&format!("{own}.query"), x, heads, Bias::With)?;
    let k = net.project_heads(&format!("{own}.key"), x, heads, Bias::With)?;
    let v = net.project_heads(&format!("{own}.value"), x, heads, Bias::With)?;
    let attended = net.add_attention(&own, [q, k, v], None, Attention::with_width(shape.head_width()))?;
    let attended = net.linear_layer(&format!("{scope}.attention.output.dense"), attended, shape.width, Bias::With)?;
    let sum = net.add(&format!("{scope}.attention.output"), attended, x)?;
    let x = net.layer_norm(&format!("{scope}.attention.output.LayerNorm"), sum, shape.epsilon)?;
    let inner = net.linear_layer(&format!("{scope}.intermediate.dense"), x, shape.inner, Bias::With)?;
    let inner = net.unary(&format!("{scope}.intermediate"), shape.activation, inner)?;
    let outer = net.linear_layer(&format!("{scope}.output.dense"), inner, shape.width, Bias::With)?;
    let sum = net.add(&format!("{scope}.output"), outer, x)?;
    net.layer_norm(&format!("{scope}.output.LayerNorm"), sum, shape.epsilon)
}

pub(super) fn build_distilbert(net: &mut Net, config: &Fields) -> Result<Vec<ValueId>> {
    let (width, heads) = (config.required_size("dim")?, config.required_count("n_heads")?);
    super::check_divides(config, "n_heads", heads, width)?;
    let (inner, epsilon) = (config.required_size("hidden_dim")?, 1e-12);
    let activation = read_activation(config, "activation", "gelu")?;
    let tokens = net.add_token_input("tokens", net.prompt_length())?;
    let words = net.embed_numbers("embeddings.word_embeddings", tokens, config.required_size("vocab_size")?, width)?;
    let table = [config.required_size("max_position_embeddings")?, width];
    let positions = net.position_rows("embeddings.position_embeddings", table, 0, net.prompt_length())?;
    let sum = net.add("embeddings", words, positions)?;
    let mut x = net.layer_norm("embeddings.LayerNorm", sum, epsilon)?;
    for layer in 0..config.required_count("n_layers")? {
        let scope = format!("transformer.layer.{layer}");
        let cut = [heads, width / heads];
        let q = net.project_heads(&format!("{scope}.attention.q_lin"), x, cut, Bias::With)?;
        let k = net.project_heads(&format!("{scope}.attention.k_lin"), x, cut, Bias::With)?;
        let v = net.project_heads(&format!("{scope}.attention.v_lin"), x, cut, Bias::With)?;
        let attended =
            net.add_attention(&format!("{scope}.attention"), [q, k, v], None, Attention::with_width(width / heads))?;
        let attended = net.linear_layer(&format!("{scope}.attention.out_lin"), attended, width, Bias::With)?;
        let sum = net.add(&format!("{scope}.attention"), attended, x)?;
        x = net.layer_norm(&format!("{scope}.sa_layer_norm"), sum, epsilon)?;
        let y = net.linear_layer(&format!("{scope}.ffn.lin1"), x, inner, Bias::With)?;
        let y = net.unary(&format!("{scope}.ffn"), activation, y)?;
        let y = net.linear_layer(&format!("{scope}.ffn.lin2"), y, width, Bias::With)?;
        let sum = net.add(&format!("{scope}.ffn"), y, x)?;
        x = net.layer_norm(&format!("{scope}.output_layer_norm"), sum, epsilon)?;
    }
    Ok(vec![x])
}

/// Builds ALBERT, whose layers share their weights within a group.
pub(super) fn build_albert(net: &mut Net, config: &Fields) -> Result<Vec<ValueId>> {
    let mut shape = BertShape::from_config(config)?;
    shape.embedding = config.size_or("embedding_size", 128)?;
    shape.activation = read_activation(config, "hidden_act", "gelu_new")?;
    let mut x = add_embeddings(net, config, &shape, 0)?;
    x = net.linear_layer("encoder.embedding_hidden_mapping_in", x, shape.width, Bias::With)?;
    let (groups, inner) = (config.count_or("num_hidden_groups", 1)?, config.count_or("inner_group_num", 1)?);
    for layer in 0..shape.layers {
        let group = layer * groups / shape.layers;
        for index in 0..inner {
            let scope = format!("encoder.albert_layer_groups.{group}.albert_layers.{index}");
            x = albert_block(net, &shape, &scope, x)?;
        }
    }
    let first = net.first_position("pooler", x)?;
    let pooled = net.linear_layer("pooler", first, shape.width, Bias::With)?;
    Ok(vec![x, net.unary("pooler_activation", UnaryOp::Tanh, pooled)?])
}

fn albert_block(net: &mut Net, shape: &BertShape, scope: &str, x: ValueId) -> Result<ValueId> {
    let (heads, own) = ([shape.heads, shape.head_width()], format!("{scope}.attention"));
    let q = net.project_heads(&format!("{own}.query"), x, heads, Bias::With)?;
    let k = net.project_heads(&format!("{own}.key"), x, heads, Bias::With)?;
    let v = net.project_heads(&format!("{own}.value"), x, heads, Bias::With)?;
    let attended = net.add_attention(&own, [q, k, v], None, Attention::with_width(shape.head_width()))?;
    let attended = net.linear_layer(&format!("{own}.dense"), attended, shape.width, Bias::With)?;
    let sum = net.add(&own, attended, x)?;
    let x = net.layer_norm(&format!("{own}.LayerNorm"), sum, shape.epsilon)?;
    let inner = net.linear_layer(&format!("{scope}.ffn"), x, shape.inner, Bias::With)?;
    let inner = net.unary(scope, shape.activation, inner)?;
    let outer = net.linear_layer(&format!("{scope}.ffn_output"), inner, shape.width, Bias::With)?;
    let sum = net.add(scope, outer, x)?;
    net.layer_norm(&format!("{scope}.full_layer_layer_norm"), sum, shape.epsilon)
}
