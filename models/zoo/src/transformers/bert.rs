//! BERT-style encoders: normalised after each residual sum, with learned positions.

use super::activation;
use super::fields::Fields;
use super::net::{Bias, Net};
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
    fn of(config: &Fields) -> Result<BertShape> {
        let (width, heads) = (config.size("hidden_size")?, config.count("num_attention_heads")?);
        super::check_divides(config, "num_attention_heads", heads, width)?;
        Ok(BertShape {
            width,
            embedding: config.size_or("embedding_size", width)?,
            layers: config.count("num_hidden_layers")?,
            heads,
            inner: config.size("intermediate_size")?,
            activation: activation(config, "hidden_act", "gelu")?,
            epsilon: config.positive_or("layer_norm_eps", 1e-12)?,
        })
    }

    fn head(&self) -> i64 {
        self.width / self.heads
    }
}

pub(super) fn bert(net: &mut Net, config: &Fields) -> Result<Vec<ValueId>> {
    encoder(net, config, 0, true)
}

/// Position numbers start after the padding token's number.
pub(super) fn roberta(net: &mut Net, config: &Fields) -> Result<Vec<ValueId>> {
    let padding = config.find("pad_token_id").and_then(serde_json::Value::as_i64).unwrap_or(1);
    encoder(net, config, padding.clamp(0, 1 << 20) + 1, true)
}

pub(super) fn electra(net: &mut Net, config: &Fields) -> Result<Vec<ValueId>> {
    encoder(net, config, 0, false)
}

fn encoder(net: &mut Net, config: &Fields, first_place: i64, has_pooler: bool) -> Result<Vec<ValueId>> {
    let shape = BertShape::of(config)?;
    let mut x = embeddings(net, config, &shape, first_place)?;
    if shape.embedding != shape.width {
        x = net.linear("embeddings_project", x, shape.width, Bias::With)?;
    }
    for layer in 0..shape.layers {
        x = block(net, &shape, &format!("encoder.layer.{layer}"), x)?;
    }
    if !has_pooler {
        return Ok(vec![x]);
    }
    let first = net.first_place("pooler", x)?;
    let pooled = net.linear("pooler.dense", first, shape.width, Bias::With)?;
    Ok(vec![x, net.unary("pooler.activation", UnaryOp::Tanh, pooled)?])
}

/// Sums and normalises word, token type and position embeddings.
fn embeddings(net: &mut Net, config: &Fields, shape: &BertShape, first_place: i64) -> Result<ValueId> {
    let (places, width) = (net.sequence(), shape.embedding);
    let tokens = net.tokens("tokens", places)?;
    let words = net.embed("embeddings.word_embeddings", tokens, config.size("vocab_size")?, width)?;
    let kinds = config.size_or("type_vocab_size", 2)?;
    let kind = if kinds > 1 {
        let numbers = net.tokens("token_types", places)?;
        net.embed("embeddings.token_type_embeddings", numbers, kinds, width)?
    } else {
        net.weight("embeddings.token_type_embeddings.weight", &[kinds, width])?
    };
    let table = [config.size("max_position_embeddings")?, width];
    let positions = net.positions("embeddings.position_embeddings", table, first_place, places)?;
    let sum = net.add("embeddings", words, kind)?;
    let sum = net.add("embeddings", sum, positions)?;
    net.layer_norm("embeddings.LayerNorm", sum, shape.epsilon)
}

fn block(net: &mut Net, shape: &BertShape, scope: &str, x: ValueId) -> Result<ValueId> {
    let heads = [shape.heads, shape.head()];
    let own = format!("{scope}.attention.self");
    let q = net.project(&format!("{own}.query"), x, heads, Bias::With)?;
    let k = net.project(&format!("{own}.key"), x, heads, Bias::With)?;
    let v = net.project(&format!("{own}.value"), x, heads, Bias::With)?;
    let seen = net.attend(&own, [q, k, v], None, Attention::of_width(shape.head()))?;
    let seen = net.linear(&format!("{scope}.attention.output.dense"), seen, shape.width, Bias::With)?;
    let sum = net.add(&format!("{scope}.attention.output"), seen, x)?;
    let x = net.layer_norm(&format!("{scope}.attention.output.LayerNorm"), sum, shape.epsilon)?;
    let inner = net.linear(&format!("{scope}.intermediate.dense"), x, shape.inner, Bias::With)?;
    let inner = net.unary(&format!("{scope}.intermediate"), shape.activation, inner)?;
    let outer = net.linear(&format!("{scope}.output.dense"), inner, shape.width, Bias::With)?;
    let sum = net.add(&format!("{scope}.output"), outer, x)?;
    net.layer_norm(&format!("{scope}.output.LayerNorm"), sum, shape.epsilon)
}

pub(super) fn distilbert(net: &mut Net, config: &Fields) -> Result<Vec<ValueId>> {
    let (width, heads) = (config.size("dim")?, config.count("n_heads")?);
    super::check_divides(config, "n_heads", heads, width)?;
    let (inner, epsilon) = (config.size("hidden_dim")?, 1e-12);
    let activation = activation(config, "activation", "gelu")?;
    let tokens = net.tokens("tokens", net.sequence())?;
    let words = net.embed("embeddings.word_embeddings", tokens, config.size("vocab_size")?, width)?;
    let table = [config.size("max_position_embeddings")?, width];
    let positions = net.positions("embeddings.position_embeddings", table, 0, net.sequence())?;
    let sum = net.add("embeddings", words, positions)?;
    let mut x = net.layer_norm("embeddings.LayerNorm", sum, epsilon)?;
    for layer in 0..config.count("n_layers")? {
        let scope = format!("transformer.layer.{layer}");
        let cut = [heads, width / heads];
        let q = net.project(&format!("{scope}.attention.q_lin"), x, cut, Bias::With)?;
        let k = net.project(&format!("{scope}.attention.k_lin"), x, cut, Bias::With)?;
        let v = net.project(&format!("{scope}.attention.v_lin"), x, cut, Bias::With)?;
        let seen = net.attend(&format!("{scope}.attention"), [q, k, v], None, Attention::of_width(width / heads))?;
        let seen = net.linear(&format!("{scope}.attention.out_lin"), seen, width, Bias::With)?;
        let sum = net.add(&format!("{scope}.attention"), seen, x)?;
        x = net.layer_norm(&format!("{scope}.sa_layer_norm"), sum, epsilon)?;
        let y = net.linear(&format!("{scope}.ffn.lin1"), x, inner, Bias::With)?;
        let y = net.unary(&format!("{scope}.ffn"), activation, y)?;
        let y = net.linear(&format!("{scope}.ffn.lin2"), y, width, Bias::With)?;
        let sum = net.add(&format!("{scope}.ffn"), y, x)?;
        x = net.layer_norm(&format!("{scope}.output_layer_norm"), sum, epsilon)?;
    }
    Ok(vec![x])
}

/// The layers of a group share their weights.
pub(super) fn albert(net: &mut Net, config: &Fields) -> Result<Vec<ValueId>> {
    let mut shape = BertShape::of(config)?;
    shape.embedding = config.size_or("embedding_size", 128)?;
    shape.activation = activation(config, "hidden_act", "gelu_new")?;
    let mut x = embeddings(net, config, &shape, 0)?;
    x = net.linear("encoder.embedding_hidden_mapping_in", x, shape.width, Bias::With)?;
    let (groups, inner) = (config.count_or("num_hidden_groups", 1)?, config.count_or("inner_group_num", 1)?);
    for layer in 0..shape.layers {
        let group = layer * groups / shape.layers;
        for index in 0..inner {
            let scope = format!("encoder.albert_layer_groups.{group}.albert_layers.{index}");
            x = albert_block(net, &shape, &scope, x)?;
        }
    }
    let first = net.first_place("pooler", x)?;
    let pooled = net.linear("pooler", first, shape.width, Bias::With)?;
    Ok(vec![x, net.unary("pooler_activation", UnaryOp::Tanh, pooled)?])
}

fn albert_block(net: &mut Net, shape: &BertShape, scope: &str, x: ValueId) -> Result<ValueId> {
    let (heads, own) = ([shape.heads, shape.head()], format!("{scope}.attention"));
    let q = net.project(&format!("{own}.query"), x, heads, Bias::With)?;
    let k = net.project(&format!("{own}.key"), x, heads, Bias::With)?;
    let v = net.project(&format!("{own}.value"), x, heads, Bias::With)?;
    let seen = net.attend(&own, [q, k, v], None, Attention::of_width(shape.head()))?;
    let seen = net.linear(&format!("{own}.dense"), seen, shape.width, Bias::With)?;
    let sum = net.add(&own, seen, x)?;
    let x = net.layer_norm(&format!("{own}.LayerNorm"), sum, shape.epsilon)?;
    let inner = net.linear(&format!("{scope}.ffn"), x, shape.inner, Bias::With)?;
    let inner = net.unary(scope, shape.activation, inner)?;
    let outer = net.linear(&format!("{scope}.ffn_output"), inner, shape.width, Bias::With)?;
    let sum = net.add(scope, outer, x)?;
    net.layer_norm(&format!("{scope}.full_layer_layer_norm"), sum, shape.epsilon)
}
