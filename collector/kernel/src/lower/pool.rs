//! Lowers pooling over windows, and global pooling.

use super::movement::{join_conditions, pad_tensor, padded_at};
use super::pointwise::{apply_unary, convert, narrow_sums, wide_type};
use super::products::with_leading;
use super::{Element, Output, Part, Result, Writer};
use crate::tvm::TvmError;
use crate::tvm::expression::{
    Axis, Expression, Extent, Reduction, Tensor, constant, index_constant, loop_axis, lowest_number, reduce_axes,
};
use models::operators::{AdaptivePool, GlobalPool};
use models::{DType, Op, PoolMode, UnaryOp};
use schedules::pools::PoolWindow;

pub(super) fn lower_pool(writer: &mut Writer, op: &Op, inputs: &[Tensor], output: &Output) -> Result<Option<Tensor>> {
    let data = &inputs[0];
    match op {
        Op::GlobalPool(GlobalPool { mode }) => {
            let kernel = writer.known_extents(&data.extents[2..])?;
            let (zeros, ones) = (vec![0; kernel.len()], vec![1; kernel.len()]);
            let window = PoolWindow {
                kernel,
                strides: ones.clone(),
                heads: zeros.clone(),
                tails: zeros,
                dilations: ones,
                count_pad: false,
            };
            pool_windows(writer, *mode, &window, data, output)
        }
        Op::Pool(attributes) => pool_windows(writer, attributes.mode, &PoolWindow::from_pool(attributes), data, output),
        Op::AdaptivePool(AdaptivePool { mode, .. }) => pool_adaptive(writer, *mode, data, output),
        _ => return Ok(None),
    }
    .map(Some)
}

fn pool_windows(
    writer: &mut Writer,
    mode: PoolMode,
    window: &PoolWindow,
    data: &Tensor,
    output: &Output,
) -> Result<Tensor> {
    let spatial = window.kernel.len();
    let (old, new) = (writer.known_extents(&data.extents[2..])?, writer.known_extents(&output.extents[2..])?);
    let reach: Vec<i64> = (0..spatial).map(|d| window.end_overhang(d, old[d], new[d])).collect();
    let is_padded = window.heads.iter().chain(&reach).any(|&extent| extent > 0);
    let how = if mode == PoolMode::Max { Reduction::Max } else { Reduction::Sum };
    let (dtype, outside) = (sum_type(mode, output), outside_number(how, data.dtype)?);
    let taps = window_taps(window)?;
    let name = output.block_name(match mode {
        PoolMode::Max => "pool_max",
        PoolMode::Average | PoolMode::Lp { .. } => "pool_sum",
    });
    let divisor = if mode == PoolMode::Average { window.window_divisor(&old, &new) } else { None };
    let share = divisor.map(|count| constant(dtype, 1.0 / count as f64)).transpose()?;
    let like = (dtype, &output.extents[..]);
    let reduced = if writer.columns_first {
        let outside = outside_number(how, dtype)?;
        let columns = reduce_columns(writer, (mode, how), window, (data, &old, &reach), (output, &new))?;
        let last = spatial - 1;
        let (mut heads, mut tails) = (vec![0; spatial + 2], vec![0; spatial + 2]);
        (heads[last + 2], tails[last + 2]) = (window.heads[last], reach[last]);
        writer.add_block(&name, Part::Anchor, like, |i| {
            let mut at = i.to_vec();
            at[last + 2] = tap_position(window, last, &i[last + 2], &taps[last])?;
            let sum = padded_at(&columns, (&heads, &tails), &at, &outside)?;
            // A multiplication and an addition are fused into one instruction.
            let part = share.as_ref().map_or(Ok(sum.clone()), |share| sum.mul(share))?;
            reduce_axes(how, dtype, &part, &taps[last..])
        })?
    } else {
        let padded = if is_padded {
            let name = output.block_name("pad_temp");
            pad_tensor(
                writer,
                (&name, Part::Pad),
                data,
                (&with_leading(&window.heads), &with_leading(&reach)),
                &outside,
            )?
        } else {
            data.clone()
        };
        writer.add_block(&name, Part::Anchor, like, |i| {
            let mut at = vec![i[0].clone(), i[1].clone()];
            for d in 0..spatial {
                at.push(tap_position(window, d, &i[d + 2], &taps[d])?);
            }
            let x = convert(padded.element_at(&at)?, data.dtype, dtype)?;
            reduce_axes(how, dtype, &pool_term(mode, &x)?, &taps)
        })?
    };
    match mode {
        PoolMode::Max => return Ok(reduced),
        PoolMode::Lp { order } => return norm_root(writer, order, &reduced, output),
        PoolMode::Average if share.is_some() && writer.columns_first => return narrow_sums(writer, reduced, output),
        PoolMode::Average => {}
    }
    let name = output.block_name("pool_avg");
    match share {
        Some(share) => writer.add_block(&name, Part::Epilogue, output.element_type(), |i| {
            convert(reduced.element_at(i)?.mul(&share)?, dtype, output.dtype)
        }),
        None => {
            let counts = count_positions(writer, window, &old, (dtype, output))?;
            writer.add_block(&name, Part::Epilogue, output.element_type(), |i| {
                convert(reduced.element_at(i)?.div(&counts.element_at(&i[2..])?)?, dtype, output.dtype)
            })
        }
    }
}

/// Returns the type in which a pool computes: sums of half precision would lose small terms.
fn sum_type(mode: PoolMode, output: &Output) -> DType {
    if mode == PoolMode::Max { output.dtype } else { wide_type(output.dtype) }
}

/// Returns the number that stands for elements outside of the input.
fn outside_number(how: Reduction, dtype: DType) -> Element {
    if how == Reduction::Max { lowest_number(dtype) } else { constant(dtype, 0.0) }
}

/// Reduces each input column once per output row, then combines columns: windows share them, reads stay contiguous.
fn reduce_columns(
    writer: &mut Writer,
    (mode, how): (PoolMode, Reduction),
    window: &PoolWindow,
    (data, old, reach): (&Tensor, &[i64], &[i64]),
    (output, new): (&Output, &[i64]),
) -> Result<Tensor> {
    let last = window.kernel.len() - 1;
    let mut extents = output.extents.clone();
    extents[last + 2] = Extent::Known(old[last]);
    let (mut heads, mut tails) = (with_leading(&window.heads), with_leading(reach));
    (heads[last + 2], tails[last + 2]) = (0, 0);
    let (dtype, outside) = (sum_type(mode, output), outside_number(how, data.dtype)?);
    // If every window contains a position of the input, positions outside can be replaced by the nearest one inside,
    // so that no test is needed.
    let is_near = |d: usize| {
        let last_begins = (new[d] - 1) * window.strides[d] - window.heads[d];
        window.dilations[d] == 1 && window.heads[d] < window.kernel[d] && last_begins < old[d]
    };
    let has_nearest = how == Reduction::Max && (0..last).all(is_near);
    let taps = window_taps(window)?;
    writer.add_block(&output.block_name("pool_columns"), Part::Columns, (dtype, &extents), |i| {
        let mut at = i.to_vec();
        for d in 0..last {
            at[d + 2] = tap_position(window, d, &i[d + 2], &taps[d])?;
        }
        let x = if has_nearest {
            for d in 0..last {
                if window.heads[d] > 0 {
                    at[d + 2] = at[d + 2].sub(&index_constant(window.heads[d])?)?.max(&index_constant(0)?)?;
                }
                if reach[d] > 0 {
                    at[d + 2] = at[d + 2].min(&index_constant(old[d] - 1)?)?;
                }
            }
            data.element_at(&at)?
        } else {
            padded_at(data, (&heads, &tails), &at, &outside)?
        };
        reduce_axes(how, dtype, &pool_term(mode, &convert(x, data.dtype, dtype)?)?, &taps[..last])
    })
}

fn pool_term(mode: PoolMode, x: &Expression) -> Element {
    match mode {
        PoolMode::Max | PoolMode::Average => Ok(x.clone()),
        PoolMode::Lp { order: 1 } => x.abs(),
        PoolMode::Lp { order } => {
            let magnitude = x.abs()?;
            let mut power = magnitude.clone();
            for _ in 1..order {
                power = power.mul(&magnitude)?;
            }
            Ok(power)
        }
    }
}

fn norm_root(writer: &mut Writer, order: i64, sums: &Tensor, output: &Output) -> Result<Tensor> {
    if order == 1 {
        return narrow_sums(writer, sums.clone(), output);
    }
    writer.add_block(&output.block_name("pool_root"), Part::Epilogue, output.element_type(), |i| {
        let (dtype, sum) = (sums.dtype, sums.element_at(i)?);
        let root = match order {
            2 => apply_unary(UnaryOp::Sqrt, &sum, dtype)?,
            _ => sum.function_with("tirx.pow", &constant(dtype, 1.0 / order as f64)?, dtype)?,
        };
        convert(root, dtype, output.dtype)
    })
}

/// Lowers adaptive pooling, whose window sizes differ by up to two: iterates over the largest size, masks the excess.
fn pool_adaptive(writer: &mut Writer, mode: PoolMode, data: &Tensor, output: &Output) -> Result<Tensor> {
    let (old, new) = (writer.known_extents(&data.extents[2..])?, writer.known_extents(&output.extents[2..])?);
    let ends = |d: usize, place: &Expression| -> std::result::Result<[Expression; 2], TvmError> {
        let (old, divisor) = (index_constant(old[d])?, index_constant(new[d])?);
        let first = place.mul(&old)?.floor_div(&divisor)?;
        let end = place.add(&index_constant(1)?)?.mul(&old)?.add(&index_constant(new[d] - 1)?)?.floor_div(&divisor)?;
        Ok([first, end])
    };
    let mut taps = Vec::new();
    for (d, (&old, &new)) in old.iter().zip(&new).enumerate() {
        let largest = (0..new).map(|place| ((place + 1) * old + new - 1) / new - place * old / new).max();
        taps.push(loop_axis(&format!("r{}", d + 2), &Extent::Known(largest.unwrap_or(1)), true)?);
    }
    let how = if mode == PoolMode::Max { Reduction::Max } else { Reduction::Sum };
    let dtype = sum_type(mode, output);
    let (outside, like) = (outside_number(how, dtype)?, (dtype, &output.extents[..]));
    let reduced = writer.add_block(&output.block_name("pool_adaptive"), Part::Anchor, like, |i| {
        let mut at = i[..2].to_vec();
        let mut inside: Option<Expression> = None;
        for (d, tap) in taps.iter().enumerate() {
            let [first, end] = ends(d, &i[d + 2])?;
            let place = first.add(&tap.variable)?;
            inside = Some(join_conditions(inside, place.less(&end)?)?);
            at.push(place);
        }
        let inside = inside.expect("a pool has at least one spatial dimension");
        let x = pool_term(mode, &convert(data.element_at(&at)?, data.dtype, dtype)?)?;
        reduce_axes(how, dtype, &inside.if_then_else(&x, &outside)?, &taps)
    })?;
    match mode {
        PoolMode::Max => Ok(reduced),
        PoolMode::Lp { order } => norm_root(writer, order, &reduced, output),
        PoolMode::Average => {
            writer.add_block(&output.block_name("pool_avg"), Part::Epilogue, output.element_type(), |i| {
                let mut count: Option<Expression> = None;
                for (d, place) in i[2..].iter().enumerate() {
                    let [first, end] = ends(d, place)?;
                    let length = end.sub(&first)?;
                    count = Some(match count {
                        None => length,
                        Some(count) => count.mul(&length)?,
                    });
                }
                let count = count.expect("a pool has at least one spatial dimension").cast(dtype)?;
                convert(reduced.element_at(i)?.div(&count)?, dtype, output.dtype)
            })
        }
    }
}

fn window_taps(window: &PoolWindow) -> Result<Vec<Axis>> {
    let axes =
        window.kernel.iter().enumerate().map(|(d, &extent)| loop_axis(&format!("r{d}"), &Extent::Known(extent), true));
    Ok(axes.collect::<std::result::Result<_, _>>()?)
}

fn tap_position(window: &PoolWindow, d: usize, place: &Expression, tap: &Axis) -> Element {
    place.mul(&index_constant(window.strides[d])?)?.add(&tap.variable.mul(&index_constant(window.dilations[d])?)?)
}

fn count_positions(
    writer: &mut Writer,
    window: &PoolWindow,
    old: &[i64],
    (dtype, output): (DType, &Output),
) -> Result<Tensor> {
    let taps = window_taps(window)?;
    writer.add_block(&output.block_name("pool_count"), Part::Helper, (dtype, &output.extents[2..]), |i| {
        let mut inside: Option<Expression> = None;
        for (d, tap) in taps.iter().enumerate() {
            let at = tap_position(window, d, &i[d], tap)?;
            let (first, last) = if window.count_pad {
                (0, window.heads[d] + old[d] + window.tails[d])
            } else {
                (window.heads[d], window.heads[d] + old[d])
            };
            inside = Some(join_conditions(
                inside,
                at.at_least(&index_constant(first)?)?.and(&at.less(&index_constant(last)?)?)?,
            )?);
        }
        let inside = inside.expect("a pool has at least one spatial dimension");
        let one = inside.select(&constant(dtype, 1.0)?, &constant(dtype, 0.0)?)?;
        reduce_axes(Reduction::Sum, dtype, &one, &taps)
    })
}
