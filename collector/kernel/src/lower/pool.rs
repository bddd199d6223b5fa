//! Pooling over windows and over all of space.

use super::movement::{both, pad, padded_at};
use super::pointwise::unary;
use super::products::with_leading;
use super::{Output, Part, Result, Writer};
use crate::tvm::TvmError;
use crate::tvm::expression::{Axis, Expression, Extent, Reduction, Tensor, axis, constant, index, lowest, reduce};
use models::operators::{AdaptivePool, GlobalPool};
use models::{Op, PoolMode, UnaryOp};
use schedules::pools::PoolWindow;

type Element = std::result::Result<Expression, TvmError>;

pub(super) fn lower(writer: &mut Writer, op: &Op, inputs: &[Tensor], output: &Output) -> Result<Option<Tensor>> {
    let data = &inputs[0];
    match op {
        Op::GlobalPool(GlobalPool { mode }) => {
            let kernel = writer.numbers(&data.extents[2..])?;
            let (zeros, ones) = (vec![0; kernel.len()], vec![1; kernel.len()]);
            let window = PoolWindow {
                kernel,
                strides: ones.clone(),
                heads: zeros.clone(),
                tails: zeros,
                dilations: ones,
                count_pad: false,
            };
            pool(writer, *mode, &window, data, output)
        }
        Op::Pool(attributes) => pool(writer, attributes.mode, &PoolWindow::of(attributes), data, output),
        Op::AdaptivePool(AdaptivePool { mode, .. }) => adaptive(writer, *mode, data, output),
        _ => return Ok(None),
    }
    .map(Some)
}

fn pool(writer: &mut Writer, mode: PoolMode, window: &PoolWindow, data: &Tensor, output: &Output) -> Result<Tensor> {
    let spatial = window.kernel.len();
    let (old, new) = (writer.numbers(&data.extents[2..])?, writer.numbers(&output.extents[2..])?);
    let reach: Vec<i64> = (0..spatial).map(|d| window.reach(d, old[d], new[d])).collect();
    let is_padded = window.heads.iter().chain(&reach).any(|&extent| extent > 0);
    let (how, outside) = match mode {
        PoolMode::Max => (Reduction::Max, lowest(data.dtype)?),
        PoolMode::Average | PoolMode::Lp { .. } => (Reduction::Sum, constant(data.dtype, 0.0)?),
    };
    let taps = taps(window)?;
    let name = output.name(match mode {
        PoolMode::Max => "pool_max",
        PoolMode::Average | PoolMode::Lp { .. } => "pool_sum",
    });
    let divisor = if mode == PoolMode::Average { window.divisor(&old, &new) } else { None };
    let share = divisor.map(|count| constant(output.dtype, 1.0 / count as f64)).transpose()?;
    let reduced = if writer.columns_first {
        let columns = columns(writer, (mode, how), window, (data, &old, &reach), (output, &new))?;
        let last = spatial - 1;
        let (mut heads, mut tails) = (vec![0; spatial + 2], vec![0; spatial + 2]);
        (heads[last + 2], tails[last + 2]) = (window.heads[last], reach[last]);
        writer.block(&name, Part::Anchor, output.like(), |i| {
            let mut at = i.to_vec();
            at[last + 2] = position(window, last, &i[last + 2], &taps[last])?;
            let sum = padded_at(&columns, (&heads, &tails), &at, &outside)?;
            // A product and a sum are one instruction.
            let part = share.as_ref().map_or(Ok(sum.clone()), |share| sum.mul(share))?;
            reduce(how, output.dtype, &part, &taps[last..])
        })?
    } else {
        let padded = if is_padded {
            let name = output.name("pad_temp");
            pad(writer, (&name, Part::Pad), data, (&with_leading(&window.heads), &with_leading(&reach)), &outside)?
        } else {
            data.clone()
        };
        writer.block(&name, Part::Anchor, output.like(), |i| {
            let mut at = vec![i[0].clone(), i[1].clone()];
            for d in 0..spatial {
                at.push(position(window, d, &i[d + 2], &taps[d])?);
            }
            reduce(how, output.dtype, &term(mode, &padded.at(&at)?)?, &taps)
        })?
    };
    match mode {
        PoolMode::Max => return Ok(reduced),
        PoolMode::Lp { order } => return root(writer, order, &reduced, output),
        PoolMode::Average if share.is_some() && writer.columns_first => return Ok(reduced),
        PoolMode::Average => {}
    }
    let name = output.name("pool_avg");
    match share {
        Some(share) => writer.block(&name, Part::Epilogue, output.like(), |i| reduced.at(i)?.mul(&share)),
        None => {
            let counts = counts(writer, window, &old, output)?;
            writer.block(&name, Part::Epilogue, output.like(), |i| reduced.at(i)?.div(&counts.at(&i[2..])?))
        }
    }
}

/// What the columns of windows come to, for every row of results and every column of the input: neighbouring windows share them, and
/// neighbours of a row lie side by side whatever the windows' steps are.
fn columns(
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
    let outside = if how == Reduction::Max { lowest(data.dtype)? } else { constant(data.dtype, 0.0)? };
    // Where every window has a place of the input, the nearest of these stands for what lies outside: no test is needed.
    let is_near = |d: usize| {
        let last_begins = (new[d] - 1) * window.strides[d] - window.heads[d];
        window.dilations[d] == 1 && window.heads[d] < window.kernel[d] && last_begins < old[d]
    };
    let has_nearest = how == Reduction::Max && (0..last).all(is_near);
    let taps = taps(window)?;
    writer.block(&output.name("pool_columns"), Part::Columns, (output.dtype, &extents), |i| {
        let mut at = i.to_vec();
        for d in 0..last {
            at[d + 2] = position(window, d, &i[d + 2], &taps[d])?;
        }
        let x = if has_nearest {
            for d in 0..last {
                if window.heads[d] > 0 {
                    at[d + 2] = at[d + 2].sub(&index(window.heads[d])?)?.max(&index(0)?)?;
                }
                if reach[d] > 0 {
                    at[d + 2] = at[d + 2].min(&index(old[d] - 1)?)?;
                }
            }
            data.at(&at)?
        } else {
            padded_at(data, (&heads, &tails), &at, &outside)?
        };
        reduce(how, output.dtype, &term(mode, &x)?, &taps[..last])
    })
}

/// What an element adds to its window.
fn term(mode: PoolMode, x: &Expression) -> Element {
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

/// The norm of a sum of powers.
fn root(writer: &mut Writer, order: i64, sums: &Tensor, output: &Output) -> Result<Tensor> {
    if order == 1 {
        return Ok(sums.clone());
    }
    writer.block(&output.name("pool_root"), Part::Epilogue, output.like(), |i| match order {
        2 => unary(UnaryOp::Sqrt, &sums.at(i)?, output.dtype),
        _ => {
            let wide = super::pointwise::wide(output.dtype);
            let power = constant(wide, 1.0 / order as f64)?;
            sums.at(i)?.cast(wide)?.function_with("tirx.pow", &power, wide)?.cast(output.dtype)
        }
    })
}

/// Windows that differ in size by at most two: the largest is walked, and what lies outside of the own is left out.
fn adaptive(writer: &mut Writer, mode: PoolMode, data: &Tensor, output: &Output) -> Result<Tensor> {
    let (old, new) = (writer.numbers(&data.extents[2..])?, writer.numbers(&output.extents[2..])?);
    let ends = |d: usize, place: &Expression| -> std::result::Result<[Expression; 2], TvmError> {
        let (old, divisor) = (index(old[d])?, index(new[d])?);
        let first = place.mul(&old)?.floor_div(&divisor)?;
        let end = place.add(&index(1)?)?.mul(&old)?.add(&index(new[d] - 1)?)?.floor_div(&divisor)?;
        Ok([first, end])
    };
    let mut taps = Vec::new();
    for (d, (&old, &new)) in old.iter().zip(&new).enumerate() {
        let largest = (0..new).map(|place| ((place + 1) * old + new - 1) / new - place * old / new).max();
        taps.push(axis(&format!("r{}", d + 2), &Extent::Known(largest.unwrap_or(1)), true)?);
    }
    let (how, outside) = match mode {
        PoolMode::Max => (Reduction::Max, lowest(data.dtype)?),
        PoolMode::Average | PoolMode::Lp { .. } => (Reduction::Sum, constant(data.dtype, 0.0)?),
    };
    let reduced = writer.block(&output.name("pool_adaptive"), Part::Anchor, output.like(), |i| {
        let mut at = i[..2].to_vec();
        let mut inside: Option<Expression> = None;
        for (d, tap) in taps.iter().enumerate() {
            let [first, end] = ends(d, &i[d + 2])?;
            let place = first.add(&tap.variable)?;
            inside = Some(both(inside, place.less(&end)?)?);
            at.push(place);
        }
        let inside = inside.expect("a pool has at least one spatial dimension");
        let x = term(mode, &data.at(&at)?)?;
        reduce(how, output.dtype, &inside.if_then_else(&x, &outside)?, &taps)
    })?;
    match mode {
        PoolMode::Max => Ok(reduced),
        PoolMode::Lp { order } => root(writer, order, &reduced, output),
        PoolMode::Average => writer.block(&output.name("pool_avg"), Part::Epilogue, output.like(), |i| {
            let mut count: Option<Expression> = None;
            for (d, place) in i[2..].iter().enumerate() {
                let [first, end] = ends(d, place)?;
                let length = end.sub(&first)?;
                count = Some(match count {
                    None => length,
                    Some(count) => count.mul(&length)?,
                });
            }
            reduced.at(i)?.div(&count.expect("a pool has at least one spatial dimension").cast(output.dtype)?)
        }),
    }
}

fn taps(window: &PoolWindow) -> Result<Vec<Axis>> {
    let axes =
        window.kernel.iter().enumerate().map(|(d, &extent)| axis(&format!("r{d}"), &Extent::Known(extent), true));
    Ok(axes.collect::<std::result::Result<_, _>>()?)
}

/// Place of a tap in the padded input.
fn position(window: &PoolWindow, d: usize, place: &Expression, tap: &Axis) -> Element {
    place.mul(&index(window.strides[d])?)?.add(&tap.variable.mul(&index(window.dilations[d])?)?)
}

/// How many places of each window count.
fn counts(writer: &mut Writer, window: &PoolWindow, old: &[i64], output: &Output) -> Result<Tensor> {
    let taps = taps(window)?;
    writer.block(&output.name("pool_count"), Part::Helper, (output.dtype, &output.extents[2..]), |i| {
        let mut inside: Option<Expression> = None;
        for (d, tap) in taps.iter().enumerate() {
            let at = position(window, d, &i[d], tap)?;
            let (first, last) = if window.count_pad {
                (0, window.heads[d] + old[d] + window.tails[d])
            } else {
                (window.heads[d], window.heads[d] + old[d])
            };
            inside = Some(both(inside, at.at_least(&index(first)?)?.and(&at.less(&index(last)?)?)?)?);
        }
        let inside = inside.expect("a pool has at least one spatial dimension");
        let one = inside.select(&constant(output.dtype, 1.0)?, &constant(output.dtype, 0.0)?)?;
        reduce(Reduction::Sum, output.dtype, &one, &taps)
    })
}
