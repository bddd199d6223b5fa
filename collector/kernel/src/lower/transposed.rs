//! Lowers transposed convolutions. Plain: a convolution of the input with zeros inserted between its elements. Blocked:
//! result positions are grouped by *phase*, their remainder modulo the stride; each phase is a convolution of the
//! original input with every `stride`-th tap, and a last block interleaves the phases.

use super::movement::{padded_at, padded_extents};
use super::products::{ConvShape, NO_ZEROS, multiply_elements, source_channel, unblock_result, with_leading};
use super::{Output, Part, Result, Writer, known_sizes};
use crate::tvm::expression::{
    Axis, Expression, Extent, Reduction, Tensor, constant, index_constant, loop_axis, reduce_axes,
};
use job::space::Layout;
use schedules::tiles;

pub(super) fn convolve_transposed(
    writer: &mut Writer,
    shape: &ConvShape,
    output_pads: &[i64],
    (data, weight): (&Tensor, &Tensor),
    output: &Output,
) -> Result<Tensor> {
    // A packed weight has additional dimensions for blocks.
    match writer.layout {
        Layout::Blocked { block } if weight.extents.len() > shape.window.strides.len() + 2 => {
            by_phases(writer, shape, block, (data, weight), output)
        }
        _ => spread_out(writer, shape, output_pads, (data, weight), output),
    }
}

/// Convolves phase by phase: output `stride * j + g` reads input `j + (g + head) / stride - t` via tap `(g + head) %
/// stride + stride * t`.
fn by_phases(
    writer: &mut Writer,
    shape: &ConvShape,
    block: i64,
    (data, weight): (&Tensor, &Tensor),
    output: &Output,
) -> Result<Tensor> {
    let (spatial, strides) = (shape.window.strides.len(), shape.window.strides);
    let (places, sources) = (writer.known_extents(&output.extents[2..])?, writer.known_extents(&data.extents[2..])?);
    let taps = writer.known_extents(&weight.extents[2 + spatial..][..spatial])?;
    let rounds: Vec<i64> =
        places.iter().zip(strides).map(|(&extent, &stride)| tiles::tile_count(extent, stride)).collect();
    let shift = |d: usize, phase: i64| (phase + shape.window.pads[d]) / strides[d];
    let heads: Vec<i64> = taps.iter().map(|taps| taps - 1).collect();
    let tails: Vec<i64> =
        (0..spatial).map(|d| (rounds[d] - 1 + shift(d, strides[d] - 1) - (sources[d] - 1)).max(0)).collect();
    let (heads, tails) = (with_leading(&heads), with_leading(&tails));
    let zero = constant(data.dtype, 0.0)?;
    let extents = padded_extents(writer, data, (&heads, &tails))?;
    let padded = writer.add_block(&output.block_name("pad_temp"), Part::Pad, (data.dtype, &extents), |i| {
        padded_at(data, (&heads, &tails), i, &zero)
    })?;
    let channel = loop_axis("rc", &data.extents[1], true)?;
    let taps = taps.iter().enumerate().map(|(d, &extent)| loop_axis(&format!("r{d}"), &Extent::Known(extent), true));
    let taps = taps.collect::<std::result::Result<Vec<_>, _>>()?;
    let axes: Vec<Axis> = [&channel].into_iter().chain(&taps).cloned().collect();
    let blocks = tiles::tile_count(writer.known_extent(&output.extents[1])?, block);
    let inner = known_sizes(&[strides, &rounds, &[block]].concat());
    let extents: Vec<Extent> = [output.extents[0].clone(), Extent::Known(blocks)].into_iter().chain(inner).collect();
    let sums = writer.add_block(&output.block_name("conv_transpose"), Part::Anchor, (output.dtype, &extents), |i| {
        let (phases, rounds) = (&i[2..2 + spatial], &i[2 + spatial..2 + 2 * spatial]);
        let mut at = vec![i[0].clone(), channel.variable.clone()];
        for d in 0..spatial {
            let shift =
                phases[d].add(&index_constant(shape.window.pads[d])?)?.floor_div(&index_constant(strides[d])?)?;
            at.push(rounds[d].add(&shift)?.sub(&taps[d].variable)?.add(&index_constant(heads[2 + d])?)?);
        }
        let mut weight_at = vec![i[1].clone()];
        weight_at.extend_from_slice(phases);
        weight_at.push(channel.variable.clone());
        weight_at.extend(taps.iter().map(|tap| tap.variable.clone()));
        weight_at.push(i[2 + 2 * spatial].clone());
        let product = multiply_elements((&padded, &at), (weight, &weight_at), NO_ZEROS, output.dtype)?;
        reduce_axes(Reduction::Sum, output.dtype, &product, &axes)
    })?;
    let apart = [&output.extents[..2], &known_sizes(&[strides, &rounds].concat())].concat();
    let result = unblock_result(writer, &sums, 1, block, output, &apart)?;
    writer.padded = Some(apart);
    Ok(result)
}

pub(super) fn merge_phases(writer: &mut Writer, apart: &Tensor, strides: &[i64], extents: &[Extent]) -> Result<Tensor> {
    writer.add_block("together", Part::Cut, (apart.dtype, extents), |i| {
        let mut at = i[..2].to_vec();
        for (place, &stride) in i[2..].iter().zip(strides) {
            at.push(place.floor_mod(&index_constant(stride)?)?);
        }
        for (place, &stride) in i[2..].iter().zip(strides) {
            at.push(place.floor_div(&index_constant(stride)?)?);
        }
        apart.element_at(&at)
    })
}

fn spread_out(
    writer: &mut Writer,
    shape: &ConvShape,
    output_pads: &[i64],
    (data, weight): (&Tensor, &Tensor),
    output: &Output,
) -> Result<Tensor> {
    let spatial = shape.window.strides.len();
    let kernel = writer.known_extents(&weight.extents[2..])?;
    let spread_over = writer.known_extents(&data.extents[2..])?;
    let reach = |d: usize| shape.window.dilations[d] * (kernel[d] - 1);
    let heads: Vec<i64> = (0..spatial).map(|d| reach(d) - shape.window.pads[d]).collect();
    let mut extents = data.extents.clone();
    for d in 0..spatial {
        let tail = reach(d) - shape.window.pads[spatial + d] + output_pads[d];
        extents[d + 2] = Extent::Known((spread_over[d] - 1) * shape.window.strides[d] + 1 + heads[d] + tail);
    }
    let zero = constant(data.dtype, 0.0)?;
    let spread = writer.add_block(&output.block_name("spread"), Part::Pad, (data.dtype, &extents), |i| {
        let mut at = i[..2].to_vec();
        let mut inside: Option<Expression> = None;
        for d in 0..spatial {
            let (stride, old) = (index_constant(shape.window.strides[d])?, index_constant(spread_over[d])?);
            let place = i[d + 2].sub(&index_constant(heads[d])?)?;
            let source = place.floor_div(&stride)?;
            let is_input = place.floor_mod(&stride)?.equal(&index_constant(0)?)?;
            let within = source.at_least(&index_constant(0)?)?.and(&source.less(&old)?)?;
            inside = Some(super::movement::join_conditions(inside, within.and(&is_input)?)?);
            at.push(source);
        }
        inside.expect("there is at least one spatial dimension").if_then_else(&data.element_at(&at)?, &zero)
    })?;
    let per_group = writer.known_extent(&data.extents[1])? / shape.window.groups;
    let outputs_per_group = writer.known_extent(&output.extents[1])? / shape.window.groups;
    let channel_axis = loop_axis("rc", &Extent::Known(per_group), true)?;
    let kernel_axes = kernel
        .iter()
        .enumerate()
        .map(|(d, &extent)| loop_axis(&format!("r{d}"), &Extent::Known(extent), true))
        .collect::<std::result::Result<Vec<_>, _>>()?;
    let axes: Vec<Axis> = [&channel_axis].into_iter().chain(&kernel_axes).cloned().collect();
    writer.add_block(&output.block_name("conv_transpose"), Part::Anchor, output.element_type(), |i| {
        let source = source_channel(&i[1], Some(&channel_axis), shape.window.groups, per_group, outputs_per_group)?;
        let within =
            if shape.window.groups == 1 { i[1].clone() } else { i[1].floor_mod(&index_constant(outputs_per_group)?)? };
        let mut at = vec![i[0].clone(), source.clone()];
        let mut weight_at = vec![source, within];
        for d in 0..spatial {
            let tap = &kernel_axes[d].variable;
            at.push(i[d + 2].add(&tap.mul(&index_constant(shape.window.dilations[d])?)?)?);
            weight_at.push(index_constant(kernel[d] - 1)?.sub(tap)?);
        }
        reduce_axes(
            Reduction::Sum,
            output.dtype,
            &multiply_elements((&spread, &at), (weight, &weight_at), NO_ZEROS, output.dtype)?,
            &axes,
        )
    })
}
