//! Encoder-decoder models with cross-attention: T5, BART, Whisper. A prefill graph contains one pass of the encoder and
//! one of the decoder. A decoding step contains only the decoder, with the encoder's keys and values as inputs.

use super::decoder::output_layer;
use super::fields::Fields;
use super::net::{Bias, Heads, Net};
use super::{Phase, check_divides, read_activation};
use models::error::Result;
use models::graph::{Const, ValueId};
use models::operators::{Attention, BiasAdd, Binary, BinaryOp, Conv, Gather, Op, UnaryOp};
use models::types::{DType, TensorType};

// --- BART and Whisper: the same blocks, normalised after or before ---

struct Half {
    scope: &'static str,
    layers: i64,
    heads: Heads,
    width: i64,
    inner: i64,
    activation: UnaryOp,
    is_norm_before: bool,
    /// Whether the key projection has a bias; in Whisper it has none.
    key_bias: Bias,
}

impl Half {
    fn from_config(config: &Fields, scope: &'static str, is_whisper: bool) -> Result<Half> {
        let width = config.required_size("d_model")?;
        let field = |name: &str| format!("{scope}_{name}");
        let heads = config.required_count(&field("attention_heads"))?;
        check_divides(config, &field("attention_heads"), heads, width)?;
        Ok(Half {
            scope,
            layers: config.required_count(&field("layers"))?,
            heads: Heads { count: heads, kept: heads, width: width / heads },
            width,
            inner: config.required_size(&field("ffn_dim"))?,
            activation: read_activation(config, "activation_function", "gelu")?,
            is_norm_before: is_whisper,
            key_bias: Bias::from(!is_whisper),
        })
    }

    fn head_shape(&self) -> [i64; 2] {
        [self.heads.count, self.heads.width]
    }
}

pub(super) fn build_bart(net: &mut Net, config: &Fields) -> Result<Vec<ValueId>> {
    let words = config.required_size("vocab_size")?;
    let (encoder, decoder) =
        (Half::from_config(config, "encoder", false)?, Half::from_config(config, "decoder", false)?);
    let scale = if config.flag_or("scale_embedding", false)? { (encoder.width as f64).sqrt() } else { 1.0 };
    // The first two positions are reserved for padding.
    let table = [config.required_size("max_position_embeddings")? + 2, encoder.width];
    let start = |net: &mut Net, half: &Half, name: &str, first: i64, count: i64| {
        let tokens = net.add_token_input(name, count)?;
        let mut x = net.embed_numbers("shared", tokens, words, half.width)?;
        if scale != 1.0 {
            x = net.scale_by(half.scope, x, scale)?;
        }
        let places = net.position_rows(&format!("{}.embed_positions", half.scope), table, first + 2, count)?;
        let sum = net.add(half.scope, x, places)?;
        net.layer_norm(&format!("{}.layernorm_embedding", half.scope), sum, EPSILON)
    };
    let source = net.prompt_length();
    let memory = match net.current_phase() {
        Phase::Prefill => {
            let x = start(net, &encoder, "tokens", 0, source)?;
            Some(build_encoder(net, &encoder, x)?)
        }
        Phase::Decode => None,
    };
    let (past, fresh) = (net.past_tokens(), net.fresh_tokens());
    let x = start(net, &decoder, "decoder_tokens", past, fresh)?;
    let x = build_decoder(net, &decoder, x, memory, source)?;
    Ok(vec![output_layer(net, x, "lm_head", Some("shared"), words)?])
}

pub(super) fn build_whisper(net: &mut Net, config: &Fields) -> Result<Vec<ValueId>> {
    let words = config.required_size("vocab_size")?;
    let (encoder, decoder) = (Half::from_config(config, "encoder", true)?, Half::from_config(config, "decoder", true)?);
    let (width, places) = (encoder.width, config.required_size("max_source_positions")?);
    let memory = match net.current_phase() {
        Phase::Prefill => {
            let bands = config.required_size("num_mel_bins")?;
            let sound = net.add_input("features", DType::F32, &[net.batch_size(), bands, 2 * places])?;
            let x = sound_filter(net, "encoder.conv1", sound, width, 1)?;
            let x = sound_filter(net, "encoder.conv2", x, width, 2)?;
            let x = net.transpose("encoder", x, &[0, 2, 1])?;
            let table = net.position_rows("encoder.embed_positions", [places, width], 0, places)?;
            let x = net.add("encoder", x, table)?;
            let x = build_encoder(net, &encoder, x)?;
            Some(net.layer_norm("encoder.layer_norm", x, EPSILON)?)
        }
        Phase::Decode => None,
    };
    let tokens = net.add_token_input("decoder_tokens", net.fresh_tokens())?;
    let x = net.embed_numbers("decoder.embed_tokens", tokens, words, width)?;
    let table = [config.required_size("max_target_positions")?, width];
    let learned = net.position_rows("decoder.embed_positions", table, net.past_tokens(), net.fresh_tokens())?;
    let x = net.add("decoder", x, learned)?;
    let x = build_decoder(net, &decoder, x, memory, places)?;
    let x = net.layer_norm("decoder.layer_norm", x, EPSILON)?;
    Ok(vec![output_layer(net, x, "proj_out", Some("decoder.embed_tokens"), words)?])
}

const EPSILON: f64 = 1e-5;

fn sound_filter(net: &mut Net, scope: &str, x: ValueId, out: i64, stride: i64) -> Result<ValueId> {
    let weight = net.add_weight(&format!("{scope}.weight"), &[out, net.extents(x)?[1], 3])?;
    let bias = net.add_weight(&format!("{scope}.bias"), &[out])?;
    let op = Op::Conv(Conv { strides: vec![stride], pads: vec![1, 1], dilations: vec![1], groups: 1 });
    let y = net.push_op(scope, op, &[x, weight])?;
    let y = net.push_op(scope, Op::BiasAdd(BiasAdd { axis: 1 }), &[y, bias])?;
    net.unary(scope, UnaryOp::Gelu, y)
}

fn build_encoder(net: &mut Net, half: &Half, x: ValueId) -> Result<ValueId> {
    let mut x = x;
    for layer in 0..half.layers {
        let scope = format!("{}.layers.{layer}", half.scope);
        x = add_residual(net, half, &format!("{scope}.self_attn_layer_norm"), x, |net, y| {
            let own = format!("{scope}.self_attn");
            let q = net.project_heads(&format!("{own}.q_proj"), y, half.head_shape(), Bias::With)?;
            let [k, v] = keys_and_values(net, half, &own, y)?;
            let attended = net.add_attention(&own, [q, k, v], None, Attention::with_width(half.heads.width))?;
            net.linear_layer(&format!("{own}.out_proj"), attended, half.width, Bias::With)
        })?;
        x = add_mlp(net, half, &scope, x)?;
    }
    Ok(x)
}

fn build_decoder(net: &mut Net, half: &Half, x: ValueId, memory: Option<ValueId>, places: i64) -> Result<ValueId> {
    let mut x = x;
    for layer in 0..half.layers {
        let scope = format!("{}.layers.{layer}", half.scope);
        x = add_residual(net, half, &format!("{scope}.self_attn_layer_norm"), x, |net, y| {
            let own = format!("{scope}.self_attn");
            let q = net.project_heads(&format!("{own}.q_proj"), y, half.head_shape(), Bias::With)?;
            let [k, v] = keys_and_values(net, half, &own, y)?;
            let [k, v] = net.extend_cache(layer, &own, k, v)?;
            let attended = net.add_attention(&own, [q, k, v], None, Attention::causal_with_width(half.heads.width))?;
            net.linear_layer(&format!("{own}.out_proj"), attended, half.width, Bias::With)
        })?;
        x = add_residual(net, half, &format!("{scope}.encoder_attn_layer_norm"), x, |net, y| {
            let own = format!("{scope}.encoder_attn");
            let q = net.project_heads(&format!("{own}.q_proj"), y, half.head_shape(), Bias::With)?;
            let make = |net: &mut Net, memory: ValueId| keys_and_values(net, half, &own, memory);
            let [k, v] = net.encoder_cache(layer, half.heads, places, memory, make)?;
            let attended = net.add_attention(&own, [q, k, v], None, Attention::with_width(half.heads.width))?;
            net.linear_layer(&format!("{own}.out_proj"), attended, half.width, Bias::With)
        })?;
        x = add_mlp(net, half, &scope, x)?;
    }
    Ok(x)
}

fn keys_and_values(net: &mut Net, half: &Half, scope: &str, x: ValueId) -> Result<[ValueId; 2]> {
    let k = net.project_heads(&format!("{scope}.k_proj"), x, half.head_shape(), half.key_bias)?;
    Ok([k, net.project_heads(&format!("{scope}.v_proj"), x, half.head_shape(), Bias::With)?])
}

fn add_mlp(net: &mut Net, half: &Half, scope: &str, x: ValueId) -> Result<ValueId> {
    add_residual(net, half, &format!("{scope}.final_layer_norm"), x, |net, y| {
        let y = net.linear_layer(&format!("{scope}.fc1"), y, half.inner, Bias::With)?;
        let y = net.unary(scope, half.activation, y)?;
        net.linear_layer(&format!("{scope}.fc2"), y, half.width, Bias::With)
    })
}

/// Adds a residual branch, with the normalisation before the branch or after the sum.
fn add_residual(
    net: &mut Net,
    half: &Half,
    norm: &str,
    x: ValueId,
    part: impl FnOnce(&mut Net, ValueId) -> Result<ValueId>,
) -> Result<ValueId> {
    let scope = norm.rsplit_once('.').map_or(norm, |(scope, _)| scope);
    let y = if half.is_norm_before { net.layer_norm(norm, x, EPSILON)? } else { x };
    let y = part(net, y)?;
    let sum = net.add(scope, y, x)?;
    if half.is_norm_before { Ok(sum) } else { net.layer_norm(norm, sum, EPSILON) }
}

// --- T5: scores have a bias by distance and no scale ---

struct Distances {
    width: i64,
    heads: Heads,
    inner: i64,
    activation: UnaryOp,
    is_gated: bool,
    epsilon: f64,
    buckets: i64,
    most: i64,
}

pub(super) fn build_t5(net: &mut Net, config: &Fields) -> Result<Vec<ValueId>> {
    let heads = config.required_count("num_heads")?;
    let (is_gated, function) = match config.text_or("feed_forward_proj", "relu")? {
        "gated-gelu" => (true, "gelu_new"),
        form => form.strip_prefix("gated-").map_or((false, form), |function| (true, function)),
    };
    let function = config.text_or("dense_act_fn", function)?;
    let shape = Distances {
        width: config.required_size("d_model")?,
        heads: Heads { count: heads, kept: heads, width: config.required_size("d_kv")? },
        inner: config.required_size("d_ff")?,
        activation: read_activation(config, "dense_act_fn", function)?,
        is_gated,
        epsilon: config.positive_or("layer_norm_epsilon", 1e-6)?,
        buckets: config.size_or("relative_attention_num_buckets", 32)?,
        most: config.size_or("relative_attention_max_distance", 128)?,
    };
    if shape.buckets < 4 || shape.most <= shape.buckets / 2 {
        let reason = format!(
            "{} must exceed half of the {} buckets, and there must be at least 4 buckets",
            shape.most, shape.buckets
        );
        return Err(config.malformed_field("relative_attention_max_distance", reason));
    }
    let (words, layers) = (config.required_size("vocab_size")?, config.required_count("num_layers")?);
    let later_layers = config.count_or("num_decoder_layers", layers)?;
    let source = net.prompt_length();
    let memory = match net.current_phase() {
        Phase::Prefill => {
            let tokens = net.add_token_input("tokens", source)?;
            let x = net.embed_numbers("shared", tokens, words, shape.width)?;
            Some(t5_half(net, &shape, "encoder", layers, x, None)?)
        }
        Phase::Decode => None,
    };
    let tokens = net.add_token_input("decoder_tokens", net.fresh_tokens())?;
    let x = net.embed_numbers("shared", tokens, words, shape.width)?;
    let mut x = t5_half(net, &shape, "decoder", later_layers, x, Some((memory, source)))?;
    let is_tied = config.flag_or("tie_word_embeddings", true)?;
    if config.flag_or("scale_decoder_outputs", is_tied)? {
        x = net.scale_by("lm_head", x, 1.0 / (shape.width as f64).sqrt())?;
    }
    Ok(vec![output_layer(net, x, "lm_head", is_tied.then_some("shared"), words)?])
}

/// Builds T5's encoder or decoder; `encoder`: the encoder's result (None in decoding steps) and its positions.
fn t5_half(
    net: &mut Net,
    shape: &Distances,
    half: &str,
    layers: i64,
    x: ValueId,
    encoder: Option<(Option<ValueId>, i64)>,
) -> Result<ValueId> {
    let mut x = x;
    let mut bias = None;
    let head = Attention { causal: encoder.is_some(), window: None, scale: 1.0, softcap: None };
    let cut = [shape.heads.count, shape.heads.width];
    for layer in 0..layers {
        let block = format!("{half}.block.{layer}");
        let (scope, own) = (format!("{block}.layer.0"), format!("{block}.layer.0.SelfAttention"));
        let y = net.rms_norm(&format!("{scope}.layer_norm"), x, shape.epsilon)?;
        let q = net.project_heads(&format!("{own}.q"), y, cut, Bias::Without)?;
        let mut k = net.project_heads(&format!("{own}.k"), y, cut, Bias::Without)?;
        let mut v = net.project_heads(&format!("{own}.v"), y, cut, Bias::Without)?;
        if encoder.is_some() {
            [k, v] = net.extend_cache(layer, &own, k, v)?;
        }
        // The first layer's table serves all layers.
        let bias = match bias {
            Some(bias) => bias,
            None => *bias.insert(distance_bias(net, shape, &own, encoder.is_some())?),
        };
        let attended = net.add_attention(&own, [q, k, v], Some(bias), head)?;
        let attended = net.linear_layer(&format!("{own}.o"), attended, shape.width, Bias::Without)?;
        x = net.add(&scope, attended, x)?;
        let mut part = 1;
        if let Some((memory, places)) = encoder {
            let (scope, own) = (format!("{block}.layer.1"), format!("{block}.layer.1.EncDecAttention"));
            let y = net.rms_norm(&format!("{scope}.layer_norm"), x, shape.epsilon)?;
            let q = net.project_heads(&format!("{own}.q"), y, cut, Bias::Without)?;
            let make = |net: &mut Net, memory: ValueId| {
                let k = net.project_heads(&format!("{own}.k"), memory, cut, Bias::Without)?;
                Ok([k, net.project_heads(&format!("{own}.v"), memory, cut, Bias::Without)?])
            };
            let [k, v] = net.encoder_cache(layer, shape.heads, places, memory, make)?;
            let attended = net.add_attention(&own, [q, k, v], None, Attention { causal: false, ..head })?;
            let attended = net.linear_layer(&format!("{own}.o"), attended, shape.width, Bias::Without)?;
            x = net.add(&scope, attended, x)?;
            part = 2;
        }
        let scope = format!("{block}.layer.{part}");
        let y = net.rms_norm(&format!("{scope}.layer_norm"), x, shape.epsilon)?;
        let y = t5_inner(net, shape, &format!("{scope}.DenseReluDense"), y)?;
        x = net.add(&scope, y, x)?;
    }
    net.rms_norm(&format!("{half}.final_layer_norm"), x, shape.epsilon)
}

fn t5_inner(net: &mut Net, shape: &Distances, scope: &str, x: ValueId) -> Result<ValueId> {
    let y = if shape.is_gated {
        let gate = net.linear_layer(&format!("{scope}.wi_0"), x, shape.inner, Bias::Without)?;
        let gate = net.unary(scope, shape.activation, gate)?;
        let up = net.linear_layer(&format!("{scope}.wi_1"), x, shape.inner, Bias::Without)?;
        net.mul(scope, gate, up)?
    } else {
        let y = net.linear_layer(&format!("{scope}.wi"), x, shape.inner, Bias::Without)?;
        net.unary(scope, shape.activation, y)?
    };
    net.linear_layer(&format!("{scope}.wo"), y, shape.width, Bias::Without)
}

/// Adds the learned bias of each head by distance between query and key, as `[1, heads, queries, keys]`.
fn distance_bias(net: &mut Net, shape: &Distances, scope: &str, is_decoder: bool) -> Result<ValueId> {
    let (first, queries) = if is_decoder { (net.past_tokens(), net.fresh_tokens()) } else { (0, net.prompt_length()) };
    let keys = first + queries;
    let table =
        net.add_weight(&format!("{scope}.relative_attention_bias.weight"), &[shape.buckets, shape.heads.count])?;
    let name = if is_decoder { "decoder.buckets" } else { "encoder.buckets" };
    let numbers = net.add_formula(name, || bucket_table(shape, [first, queries, keys], is_decoder))?;
    let rows = net.push_op(scope, Op::Gather(Gather { axis: 0 }), &[table, numbers])?;
    let transposed = net.transpose(scope, rows, &[2, 0, 1])?;
    net.reshape(scope, transposed, &[1, shape.heads.count, queries, keys])
}

/// Returns the bucket of each pair of query and key, as a formula that looks up the distance in a short list.
fn bucket_table(shape: &Distances, [first, queries, keys]: [i64; 3], is_decoder: bool) -> (TensorType, Const) {
    // Distances are `key - query`, from `-(first + queries - 1)` on.
    let lowest = -(first + queries - 1);
    let list: Vec<f64> = (lowest..keys).map(|distance| distance_bucket(shape, distance, !is_decoder) as f64).collect();
    let list = (TensorType::new(DType::I64, &[list.len() as i64]), Const::Small(list));
    let column = TensorType::new(DType::I64, &[queries, 1]);
    let row = TensorType::new(DType::I64, &[1, keys]);
    let places = (column, Const::range_along(DType::I64, &[queries, 1], 0, first + lowest));
    let distances = Const::from_operator(
        Op::Binary(Binary { function: BinaryOp::Sub }),
        vec![(row, Const::range_along(DType::I64, &[1, keys], 1, 0)), places],
    );
    let ty = TensorType::new(DType::I64, &[queries, keys]);
    (ty.clone(), Const::from_operator(Op::Gather(Gather { axis: 0 }), vec![list, (ty, distances)]))
}

/// Returns the bucket of a distance: one per near distance, then logarithmic; encoders use half per direction.
fn distance_bucket(shape: &Distances, distance: i64, is_two_sided: bool) -> i64 {
    let (count, side, distance) = if is_two_sided {
        let half = shape.buckets / 2;
        (half, if distance > 0 { half } else { 0 }, distance.abs())
    } else {
        (shape.buckets, 0, (-distance).max(0))
    };
    let near = count / 2;
    if distance < near || near < 1 {
        return side + distance.min(count - 1).max(0);
    }
    // Computed in 32 bits like the original, because rounding decides the bucket limits.
    let part = (distance as f32 / near as f32).ln() / (shape.most as f64 / near as f64).ln() as f32;
    let far = near.saturating_add((part * (count - near) as f32) as i64);
    side + far.clamp(0, count - 1)
}
