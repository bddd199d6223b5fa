//! Decoders with learned positions or without gated MLPs: GPT-2, GPT-Neo, GPT-NeoX, OPT, Phi.

use super::fields::Fields;
use super::net::{Bias, Net};
use super::rotary::Rotary;
use super::{check_divides, check_key_heads, read_activation};
use models::error::Result;
use models::graph::ValueId;
use models::operators::Attention;

/// Adds the output layer. Its weight is the embedding table `table` or, without one, a separate weight.
pub(super) fn output_layer(net: &mut Net, x: ValueId, scope: &str, table: Option<&str>, words: i64) -> Result<ValueId> {
    match table {
        Some(table) => {
            let weight = net.add_weight(&format!("{table}.weight"), &[words, net.last_extent(x)?])?;
            net.shared_dense(scope, x, weight, Bias::Without)
        }
        None => net.linear_layer(scope, x, words, Bias::Without),
    }
}

pub(super) fn build_gpt2(net: &mut Net, config: &Fields) -> Result<Vec<ValueId>> {
    let (width, heads) = (config.required_size("n_embd")?, config.required_count("n_head")?);
    check_divides(config, "n_head", heads, width)?;
    let inner = config.size_or("n_inner", 4 * width)?;
    let activation = read_activation(config, "activation_function", "gelu_new")?;
    let epsilon = config.positive_or("layer_norm_epsilon", 1e-5)?;
    let words = config.required_size("vocab_size")?;
    let cut = [heads, width / heads];
    let mut x = with_positions(net, ["wte", "wpe"], [words, config.required_size("n_positions")?, width], 0)?;
    for layer in 0..config.required_count("n_layer")? {
        let scope = format!("h.{layer}");
        let y = net.layer_norm(&format!("{scope}.ln_1"), x, epsilon)?;
        let own = format!("{scope}.attn");
        let all = net.linear_transposed(&format!("{own}.c_attn"), y, 3 * width)?;
        let [q, k, v] = net.split_parts(&own, all)?;
        let q = net.split_heads(&own, q, cut[0], cut[1])?;
        let k = net.split_heads(&own, k, cut[0], cut[1])?;
        let v = net.split_heads(&own, v, cut[0], cut[1])?;
        let [k, v] = net.extend_cache(layer, &own, k, v)?;
        let attended = net.add_attention(&own, [q, k, v], None, Attention::causal_with_width(cut[1]))?;
        let attended = net.linear_transposed(&format!("{own}.c_proj"), attended, width)?;
        x = net.add(&scope, attended, x)?;
        let y = net.layer_norm(&format!("{scope}.ln_2"), x, epsilon)?;
        let y = net.linear_transposed(&format!("{scope}.mlp.c_fc"), y, inner)?;
        let y = net.unary(&format!("{scope}.mlp"), activation, y)?;
        let y = net.linear_transposed(&format!("{scope}.mlp.c_proj"), y, width)?;
        x = net.add(&scope, y, x)?;
    }
    let x = net.layer_norm("ln_f", x, epsilon)?;
    Ok(vec![output_layer(net, x, "lm_head", Some("wte"), words)?])
}

fn with_positions(
    net: &mut Net,
    [words, places]: [&str; 2],
    [word_count, place_count, width]: [i64; 3],
    offset: i64,
) -> Result<ValueId> {
    let tokens = net.add_token_input("tokens", net.fresh_tokens())?;
    let x = net.embed_numbers(words, tokens, word_count, width)?;
    let places = net.position_rows(places, [place_count, width], net.past_tokens() + offset, net.fresh_tokens())?;
    net.add("embeddings", x, places)
}

/// Builds GPT-Neo. By default every other layer has windowed attention; scores are not scaled.
pub(super) fn gpt_neo(net: &mut Net, config: &Fields) -> Result<Vec<ValueId>> {
    let (width, heads) = (config.required_size("hidden_size")?, config.required_count("num_heads")?);
    check_divides(config, "num_heads", heads, width)?;
    let inner = config.size_or("intermediate_size", 4 * width)?;
    let activation = read_activation(config, "activation_function", "gelu_new")?;
    let epsilon = config.positive_or("layer_norm_epsilon", 1e-5)?;
    let (words, window) = (config.required_size("vocab_size")?, config.size_or("window_size", 256)?);
    let (head_width, is_local) = (width / heads, local_layers(config)?);
    let table = [words, config.required_size("max_position_embeddings")?, width];
    let mut x = with_positions(net, ["wte", "wpe"], table, 0)?;
    for layer in 0..config.required_count("num_layers")? {
        let scope = format!("h.{layer}");
        let y = net.layer_norm(&format!("{scope}.ln_1"), x, epsilon)?;
        let own = format!("{scope}.attn.attention");
        let q = net.project_heads(&format!("{own}.q_proj"), y, [heads, head_width], Bias::Without)?;
        let k = net.project_heads(&format!("{own}.k_proj"), y, [heads, head_width], Bias::Without)?;
        let v = net.project_heads(&format!("{own}.v_proj"), y, [heads, head_width], Bias::Without)?;
        let [k, v] = net.extend_cache(layer, &own, k, v)?;
        let window = is_local[usize::try_from(layer).unwrap_or(0) % is_local.len()].then_some(window);
        let attended =
            net.add_attention(&own, [q, k, v], None, Attention { causal: true, window, scale: 1.0, softcap: None })?;
        let attended = net.linear_layer(&format!("{own}.out_proj"), attended, width, Bias::With)?;
        x = net.add(&scope, attended, x)?;
        let y = net.layer_norm(&format!("{scope}.ln_2"), x, epsilon)?;
        let y = net.linear_layer(&format!("{scope}.mlp.c_fc"), y, inner, Bias::With)?;
        let y = net.unary(&format!("{scope}.mlp"), activation, y)?;
        let y = net.linear_layer(&format!("{scope}.mlp.c_proj"), y, width, Bias::With)?;
        x = net.add(&scope, y, x)?;
    }
    let x = net.layer_norm("ln_f", x, epsilon)?;
    Ok(vec![output_layer(net, x, "lm_head", Some("wte"), words)?])
}

/// Returns which layers have windowed attention: `[[["global", "local"], 6]]` are 12 layers; short lists repeat.
fn local_layers(config: &Fields) -> Result<Vec<bool>> {
    let Some(value) = config.find_field("attention_types") else { return Ok(vec![false, true]) };
    let malformed = || config.malformed_field("attention_types", "must have the form `[[[\"global\",\"local\"],6]]`");
    let mut layers = Vec::new();
    for entry in value.as_array().ok_or_else(malformed)? {
        let kinds = entry.get(0).and_then(|kinds| kinds.as_array()).ok_or_else(malformed)?;
        let times = entry.get(1).and_then(|times| times.as_u64()).ok_or_else(malformed)?;
        // Limits the list; no model has more layers.
        if layers.len() >= 1024 {
            break;
        }
        for _ in 0..times.min(1024) {
            for kind in kinds.iter().take(16) {
                layers.push(match kind.as_str() {
                    Some("global") => false,
                    Some("local") => true,
                    _ => return Err(malformed()),
                });
            }
        }
        layers.truncate(1024);
    }
    if layers.is_empty() { Err(malformed()) } else { Ok(layers) }
}

/// Builds GPT-NeoX. Queries, keys and values are interleaved by head; by default attention and MLP are parallel.
pub(super) fn gpt_neox(net: &mut Net, config: &Fields) -> Result<Vec<ValueId>> {
    let (width, heads) = (config.required_size("hidden_size")?, config.required_count("num_attention_heads")?);
    check_divides(config, "num_attention_heads", heads, width)?;
    let (inner, head_width) = (config.required_size("intermediate_size")?, width / heads);
    let activation = read_activation(config, "hidden_act", "gelu")?;
    let epsilon = config.positive_or("layer_norm_eps", 1e-5)?;
    let (words, bias) = (config.required_size("vocab_size")?, Bias::from(config.flag_or("attention_bias", true)?));
    let is_parallel = config.flag_or("use_parallel_residual", true)?;
    let rotary = Rotary::from_config(config, head_width, "rotary_pct", 0.25)?;
    let tokens = net.add_token_input("tokens", net.fresh_tokens())?;
    let mut x = net.embed_numbers("embed_in", tokens, words, width)?;
    for layer in 0..config.required_count("num_hidden_layers")? {
        let scope = format!("layers.{layer}");
        let y = net.layer_norm(&format!("{scope}.input_layernorm"), x, epsilon)?;
        let own = format!("{scope}.attention");
        let all = net.linear_layer(&format!("{own}.query_key_value"), y, 3 * width, bias)?;
        let all = net.split_heads(&own, all, heads, 3 * head_width)?;
        let [q, k, v] = net.split_parts(&own, all)?;
        let (q, k) = (rotary.rotate_heads(net, &own, q)?, rotary.rotate_heads(net, &own, k)?);
        let [k, v] = net.extend_cache(layer, &own, k, v)?;
        let attended = net.add_attention(&own, [q, k, v], None, Attention::causal_with_width(head_width))?;
        let attended = net.linear_layer(&format!("{own}.dense"), attended, width, bias)?;
        let after = net.add(&scope, attended, x)?;
        let source = if is_parallel { x } else { after };
        let y = net.layer_norm(&format!("{scope}.post_attention_layernorm"), source, epsilon)?;
        let y = net.linear_layer(&format!("{scope}.mlp.dense_h_to_4h"), y, inner, Bias::With)?;
        let y = net.unary(&format!("{scope}.mlp"), activation, y)?;
        let y = net.linear_layer(&format!("{scope}.mlp.dense_4h_to_h"), y, width, Bias::With)?;
        x = net.add(&scope, y, after)?;
    }
    let x = net.layer_norm("final_layer_norm", x, epsilon)?;
    let table = config.flag_or("tie_word_embeddings", false)?.then_some("embed_in");
    Ok(vec![output_layer(net, x, "embed_out", table, words)?])
}

/// Builds Phi. Attention and MLP are parallel and share one normalisation.
pub(super) fn build_phi(net: &mut Net, config: &Fields) -> Result<Vec<ValueId>> {
    let (width, heads) = (config.required_size("hidden_size")?, config.required_count("num_attention_heads")?);
    check_divides(config, "num_attention_heads", heads, width)?;
    let kept = config.count_or("num_key_value_heads", heads)?;
    check_key_heads(config, kept, heads)?;
    let (inner, head_width) = (config.required_size("intermediate_size")?, width / heads);
    if config.flag_or("qk_layernorm", false)? {
        return Err(config.unsupported_field("qk_layernorm", "normalised queries and keys"));
    }
    let activation = read_activation(config, "hidden_act", "gelu_new")?;
    let epsilon = config.positive_or("layer_norm_eps", 1e-5)?;
    let words = config.required_size("vocab_size")?;
    let rotary = Rotary::from_config(config, head_width, "partial_rotary_factor", 0.5)?;
    let tokens = net.add_token_input("tokens", net.fresh_tokens())?;
    let mut x = net.embed_numbers("embed_tokens", tokens, words, width)?;
    for layer in 0..config.required_count("num_hidden_layers")? {
        let scope = format!("layers.{layer}");
        let y = net.layer_norm(&format!("{scope}.input_layernorm"), x, epsilon)?;
        let own = format!("{scope}.self_attn");
        let q = net.project_heads(&format!("{own}.q_proj"), y, [heads, head_width], Bias::With)?;
        let k = net.project_heads(&format!("{own}.k_proj"), y, [kept, head_width], Bias::With)?;
        let v = net.project_heads(&format!("{own}.v_proj"), y, [kept, head_width], Bias::With)?;
        let (q, k) = (rotary.rotate_heads(net, &own, q)?, rotary.rotate_heads(net, &own, k)?);
        let [k, v] = net.extend_cache(layer, &own, k, v)?;
        let attended = net.add_attention(&own, [q, k, v], None, Attention::causal_with_width(head_width))?;
        let attended = net.linear_layer(&format!("{own}.dense"), attended, width, Bias::With)?;
        let after = net.add(&scope, attended, x)?;
        let y = net.linear_layer(&format!("{scope}.mlp.fc1"), y, inner, Bias::With)?;
        let y = net.unary(&format!("{scope}.mlp"), activation, y)?;
        let y = net.linear_layer(&format!("{scope}.mlp.fc2"), y, width, Bias::With)?;
        x = net.add(&scope, y, after)?;
    }
    let x = net.layer_norm("final_layernorm", x, epsilon)?;
    Ok(vec![net.linear_layer("lm_head", x, words, Bias::With)?])
}

pub(super) fn build_opt(net: &mut Net, config: &Fields) -> Result<Vec<ValueId>> {
    let (width, heads) = (config.required_size("hidden_size")?, config.required_count("num_attention_heads")?);
    check_divides(config, "num_attention_heads", heads, width)?;
    let (inner, words) = (config.required_size("ffn_dim")?, config.required_size("vocab_size")?);
    let embedding = config.size_or("word_embed_proj_dim", width)?;
    let activation = read_activation(config, "activation_function", "relu")?;
    let (is_before, bias) =
        (config.flag_or("do_layer_norm_before", true)?, config.flag_or("enable_bias", true)?.into());
    let has_last_norm = is_before && !config.flag_or("_remove_final_layer_norm", false)?;
    let (cut, epsilon) = ([heads, width / heads], 1e-5);
    let tokens = net.add_token_input("tokens", net.fresh_tokens())?;
    let mut x = net.embed_numbers("decoder.embed_tokens", tokens, words, embedding)?;
    if embedding != width {
        x = net.linear_layer("decoder.project_in", x, width, Bias::Without)?;
    }
    // The first two positions are reserved for padding.
    let table = [config.required_size("max_position_embeddings")? + 2, width];
    let places = net.position_rows("decoder.embed_positions", table, net.past_tokens() + 2, net.fresh_tokens())?;
    x = net.add("decoder", x, places)?;
    for layer in 0..config.required_count("num_hidden_layers")? {
        let scope = format!("decoder.layers.{layer}");
        let norm = |net: &mut Net, name: &str, x: ValueId, is_here: bool| {
            if is_here { net.layer_norm(&format!("{scope}.{name}"), x, epsilon) } else { Ok(x) }
        };
        let y = norm(net, "self_attn_layer_norm", x, is_before)?;
        let own = format!("{scope}.self_attn");
        let q = net.project_heads(&format!("{own}.q_proj"), y, cut, bias)?;
        let k = net.project_heads(&format!("{own}.k_proj"), y, cut, bias)?;
        let v = net.project_heads(&format!("{own}.v_proj"), y, cut, bias)?;
        let [k, v] = net.extend_cache(layer, &own, k, v)?;
        let attended = net.add_attention(&own, [q, k, v], None, Attention::causal_with_width(cut[1]))?;
        let attended = net.linear_layer(&format!("{own}.out_proj"), attended, width, bias)?;
        let sum = net.add(&scope, attended, x)?;
        x = norm(net, "self_attn_layer_norm", sum, !is_before)?;
        let y = norm(net, "final_layer_norm", x, is_before)?;
        let y = net.linear_layer(&format!("{scope}.fc1"), y, inner, bias)?;
        let y = net.unary(&scope, activation, y)?;
        let y = net.linear_layer(&format!("{scope}.fc2"), y, width, bias)?;
        let sum = net.add(&scope, y, x)?;
        x = norm(net, "final_layer_norm", sum, !is_before)?;
    }
    if has_last_norm {
        x = net.layer_norm("decoder.final_layer_norm", x, epsilon)?;
    }
    if embedding != width {
        x = net.linear_layer("decoder.project_out", x, embedding, Bias::Without)?;
    }
    Ok(vec![output_layer(net, x, "lm_head", Some("decoder.embed_tokens"), words)?])
}
