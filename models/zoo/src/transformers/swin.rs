//! Swin: attention within windows of an image, alternately shifted, with patches merged between stages.

use super::fields::Fields;
use super::net::{Bias, Net};
use super::vision::add_patches;
use super::{check_divides, read_activation};
use models::error::Result;
use models::graph::{Const, ValueId};
use models::operators::{Attention, Compare, CompareOp, Expand, Gather, Op, Reduce, ReduceOp, UnaryOp, Where};
use models::types::{DType, TensorType};

const MAX_SIDE: i64 = 1 << 10;
const MAX_WINDOW: i64 = 32;

struct SwinStage {
    side: i64,
    width: i64,
    heads: i64,
    window: i64,
    inner: i64,
    bias: Bias,
    activation: UnaryOp,
    epsilon: f64,
}

pub(super) fn build_swin(net: &mut Net, config: &Fields) -> Result<Vec<ValueId>> {
    let (depths, heads) = (config.required_counts("depths")?, config.required_counts("num_heads")?);
    if depths.len() != heads.len() {
        return Err(config
            .malformed_field("num_heads", format!("has {} entries, but `depths` has {}", heads.len(), depths.len())));
    }
    if config.flag_or("use_absolute_embeddings", false)? {
        return Err(config.unsupported_field("use_absolute_embeddings", "absolute position embeddings"));
    }
    let mut width = config.required_size("embed_dim")?;
    let window = config.size_or("window_size", 7)?;
    let ratio = config.positive_or("mlp_ratio", 4.0)?.min(64.0);
    let epsilon = config.positive_or("layer_norm_eps", 1e-5)?;
    let (x, count) = add_patches(net, config, "embeddings.patch_embeddings.projection", width, Bias::With)?;
    let mut x = net.layer_norm("embeddings.norm", x, epsilon)?;
    let mut side = (count as f64).sqrt() as i64;
    // Masks and distances are listed for each pair of positions in a window.
    if side > MAX_SIDE || window > MAX_WINDOW {
        let reason =
            format!("{side} patches per side in windows of {window} exceed the limits of {MAX_SIDE} and {MAX_WINDOW}");
        return Err(config.unsupported_field("window_size", reason));
    }
    let last = depths.len() - 1;
    for (index, (depth, heads)) in depths.into_iter().zip(heads).enumerate() {
        check_divides(config, "num_heads", heads, width)?;
        let stage = SwinStage {
            side,
            width,
            heads,
            window: window.min(side),
            inner: (ratio * width as f64) as i64,
            bias: Bias::from(config.flag_or("qkv_bias", true)?),
            activation: read_activation(config, "hidden_act", "gelu")?,
            epsilon,
        };
        if side % stage.window != 0 {
            let reason = format!(
                "{side} patches per side of stage {index} are not a multiple of the window extent {}",
                stage.window
            );
            return Err(config.unsupported_field("window_size", reason));
        }
        for block in 0..depth {
            // A single window cannot be shifted.
            let shift = if block % 2 == 1 && stage.window < side { stage.window / 2 } else { 0 };
            x = block_of(net, &stage, &format!("encoder.layers.{index}.blocks.{block}"), x, shift)?;
        }
        if index < last {
            if side % 2 != 0 {
                let reason = format!("{side} patches per side of stage {index} are odd and cannot be merged in pairs");
                return Err(config.unsupported_field("depths", reason));
            }
            x = merge_patches(net, &stage, &format!("encoder.layers.{index}.downsample"), x)?;
            (side, width) = (side / 2, 2 * width);
        }
    }
    let x = net.layer_norm("layernorm", x, epsilon)?;
    let mean = Op::Reduce(Reduce { function: ReduceOp::Mean, axes: vec![1], keep: false });
    Ok(vec![x, net.push_op("pooler", mean, &[x])?])
}

fn block_of(net: &mut Net, stage: &SwinStage, scope: &str, x: ValueId, shift: i64) -> Result<ValueId> {
    let SwinStage { side, width, .. } = *stage;
    let y = net.layer_norm(&format!("{scope}.layernorm_before"), x, stage.epsilon)?;
    let y = net.reshape(scope, y, &[0, side, side, width])?;
    let y = roll_axes(net, scope, y, shift)?;
    let y = split_windows(net, stage, scope, y)?;
    let y = window_attention(net, stage, scope, y, shift)?;
    let y = join_windows(net, stage, scope, y)?;
    let y = roll_axes(net, scope, y, -shift)?;
    let y = net.reshape(scope, y, &[0, side * side, width])?;
    let x = net.add(scope, y, x)?;
    let y = net.layer_norm(&format!("{scope}.layernorm_after"), x, stage.epsilon)?;
    let y = net.linear_layer(&format!("{scope}.intermediate.dense"), y, stage.inner, Bias::With)?;
    let y = net.unary(scope, stage.activation, y)?;
    let y = net.linear_layer(&format!("{scope}.output.dense"), y, width, Bias::With)?;
    net.add(scope, y, x)
}

fn roll_axes(net: &mut Net, scope: &str, x: ValueId, shift: i64) -> Result<ValueId> {
    if shift == 0 {
        return Ok(x);
    }
    let mut x = x;
    for axis in [1, 2] {
        let side = net.extents(x)?[axis];
        let (axis, cut) = (axis as i64, shift.rem_euclid(side));
        let first = net.slice(scope, x, axis, 0, cut)?;
        let rest = net.slice(scope, x, axis, cut, side)?;
        x = net.concat(scope, &[rest, first], axis)?;
    }
    Ok(x)
}

/// Reshapes `[batch, side, side, width]` to `[batch · windows, positions, width]`.
fn split_windows(net: &mut Net, stage: &SwinStage, scope: &str, x: ValueId) -> Result<ValueId> {
    let (count, window) = (stage.side / stage.window, stage.window);
    let cut = net.reshape(scope, x, &[0, count, window, count, window, stage.width])?;
    let transposed = net.transpose(scope, cut, &[0, 1, 3, 2, 4, 5])?;
    net.reshape(scope, transposed, &[-1, window * window, stage.width])
}

fn join_windows(net: &mut Net, stage: &SwinStage, scope: &str, x: ValueId) -> Result<ValueId> {
    let (count, window) = (stage.side / stage.window, stage.window);
    let cut = net.reshape(scope, x, &[net.batch_size(), count, count, window, window, stage.width])?;
    let transposed = net.transpose(scope, cut, &[0, 1, 3, 2, 4, 5])?;
    net.reshape(scope, transposed, &[0, stage.side, stage.side, stage.width])
}

fn window_attention(net: &mut Net, stage: &SwinStage, scope: &str, x: ValueId, shift: i64) -> Result<ValueId> {
    let SwinStage { width, heads, .. } = *stage;
    let cut = [heads, width / heads];
    let own = format!("{scope}.attention.self");
    let q = net.project_heads(&format!("{own}.query"), x, cut, stage.bias)?;
    let k = net.project_heads(&format!("{own}.key"), x, cut, stage.bias)?;
    let v = net.project_heads(&format!("{own}.value"), x, cut, stage.bias)?;
    let mut mask = distance_bias(net, stage, &own)?;
    if shift > 0 {
        let (count, places) = ((stage.side / stage.window) * (stage.side / stage.window), stage.window * stage.window);
        let name = format!("hidden.{}.{}.{shift}", stage.side, stage.window);
        let hidden = net.add_formula(&name, || shift_mask(stage, shift))?;
        let all = net.add(&own, hidden, mask)?;
        // One mask per window, equal for each image.
        let shape = vec![net.batch_size(), count, heads, places, places];
        let all = if net.batch_size() == 1 { all } else { net.push_op(&own, Op::Expand(Expand { shape }), &[all])? };
        mask = net.reshape(&own, all, &[net.batch_size() * count, heads, places, places])?;
    }
    let attended = net.add_attention(&own, [q, k, v], Some(mask), Attention::with_width(cut[1]))?;
    net.linear_layer(&format!("{scope}.attention.output.dense"), attended, width, Bias::With)
}

/// Adds the learned bias of each head by relative position, as `[1, heads, positions, positions]`.
fn distance_bias(net: &mut Net, stage: &SwinStage, scope: &str) -> Result<ValueId> {
    let (window, places) = (stage.window, stage.window * stage.window);
    let span = 2 * window - 1;
    let table = net.add_weight(&format!("{scope}.relative_position_bias_table"), &[span * span, stage.heads])?;
    let numbers = net.add_formula(&format!("distances.{window}"), || {
        let number = |(a, b): (i64, i64)| {
            ((a / window - b / window + window - 1) * span + a % window - b % window + window - 1) as f64
        };
        let all = (0..places).flat_map(|a| (0..places).map(move |b| (a, b))).map(number).collect();
        (TensorType::new(DType::I64, &[places * places]), Const::Small(all))
    })?;
    let rows = net.push_op(scope, Op::Gather(Gather { axis: 0 }), &[table, numbers])?;
    let rows = net.reshape(scope, rows, &[places, places, stage.heads])?;
    let transposed = net.transpose(scope, rows, &[2, 0, 1])?;
    net.reshape(scope, transposed, &[1, stage.heads, places, places])
}

/// Returns the mask, `[windows, 1, positions, positions]`, that hides positions not adjacent before the shift.
fn shift_mask(stage: &SwinStage, shift: i64) -> (TensorType, Const) {
    let (side, window) = (stage.side, stage.window);
    let (count, places) = (side / window, window * window);
    // The band of the original image that a row or column came from.
    let band = |at: i64| i64::from(at >= side - window) + i64::from(at >= side - shift);
    let region = |at: i64, place: i64| {
        let (row, column) = (at / count * window + place / window, at % count * window + place % window);
        3 * band(row) + band(column)
    };
    let all = (0..count * count).flat_map(|at| (0..places).map(move |place| (at, place)));
    let regions = Const::Small(all.map(|(at, place)| region(at, place) as f64).collect());
    let of_queries = TensorType::new(DType::I64, &[count * count, 1, places, 1]);
    let of_keys = TensorType::new(DType::I64, &[count * count, 1, 1, places]);
    let same = Const::from_operator(
        Op::Compare(Compare { function: CompareOp::Equal }),
        vec![(of_queries, regions.clone()), (of_keys, regions)],
    );
    let extents = [count * count, 1, places, places];
    let number = |number: f64| (TensorType::f32(&[]), Const::Fill(number));
    let same = (TensorType::new(DType::Bool, &extents), same);
    (TensorType::f32(&extents), Const::from_operator(Op::Where(Where {}), vec![same, number(0.0), number(-100.0)]))
}

/// Merges groups of 2x2 neighbouring patches into patches of twice the width.
fn merge_patches(net: &mut Net, stage: &SwinStage, scope: &str, x: ValueId) -> Result<ValueId> {
    let SwinStage { side, width, .. } = *stage;
    let half = side / 2;
    let cut = net.reshape(scope, x, &[0, half, 2, half, 2, width])?;
    // The column within a pair is the outer index.
    let transposed = net.transpose(scope, cut, &[0, 1, 3, 4, 2, 5])?;
    let joined = net.reshape(scope, transposed, &[0, half * half, 4 * width])?;
    let joined = net.layer_norm(&format!("{scope}.norm"), joined, stage.epsilon)?;
    net.linear_layer(&format!("{scope}.reduction"), joined, 2 * width, Bias::Without)
}
