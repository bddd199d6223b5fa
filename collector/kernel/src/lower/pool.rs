//! Pooling over windows and over all of space.

use super::movement::{both, pad};
use super::pointwise::unary;
use super::products::with_leading;
use super::{Output, Part, Result, Writer};
use crate::tvm::TvmError;
use crate::tvm::expression::{Axis, Expression, Extent, Reduction, Tensor, axis, constant, index, lowest, reduce};
use models::{Op, PoolMode, UnaryOp};

type Element = std::result::Result<Expression, TvmError>;

struct Window {
    kernel: Vec<i64>,
    strides: Vec<i64>,
    /// Heads of the spatial dimensions.
    heads: Vec<i64>,
    /// Tails that count as input when `count_pad` is set.
    tails: Vec<i64>,
    dilations: Vec<i64>,
    count_pad: bool,
}

pub(super) fn lower(writer: &mut Writer, op: &Op, inputs: &[Tensor], output: &Output) -> Result<Tensor> {
    let data = &inputs[0];
    let spatial = data.extents.len() - 2;
    let (mode, window) = match op {
        Op::GlobalPool { mode } => {
            let all = writer.numbers(&data.extents[2..])?;
            let (zeros, ones) = (vec![0; spatial], vec![1; spatial]);
            let window = Window {
                kernel: all,
                strides: ones.clone(),
                heads: zeros.clone(),
                tails: zeros,
                dilations: ones,
                count_pad: false,
            };
            (*mode, window)
        }
        Op::Pool { mode, kernel, strides, pads, dilations, ceil: _, count_pad } => {
            let window = Window {
                kernel: kernel.clone(),
                strides: strides.clone(),
                heads: pads[..spatial].to_vec(),
                tails: pads[spatial..].to_vec(),
                dilations: dilations.clone(),
                count_pad: *count_pad,
            };
            (*mode, window)
        }
        Op::AdaptivePool { mode, .. } => return adaptive(writer, *mode, data, output),
        other => unreachable!("`{other:?}` is not a pool"),
    };
    pool(writer, mode, &window, data, output)
}

fn pool(writer: &mut Writer, mode: PoolMode, window: &Window, data: &Tensor, output: &Output) -> Result<Tensor> {
    let spatial = window.kernel.len();
    let (old, new) = (writer.numbers(&data.extents[2..])?, writer.numbers(&output.extents[2..])?);
    // Rounding up may let the last window reach past the padding.
    let reach: Vec<i64> = (0..spatial)
        .map(|d| {
            let last = (new[d] - 1) * window.strides[d] + (window.kernel[d] - 1) * window.dilations[d] + 1;
            (last - window.heads[d] - old[d]).max(0)
        })
        .collect();
    let is_padded = window.heads.iter().chain(&reach).any(|&extent| extent > 0);
    let (how, outside) = match mode {
        PoolMode::Max => (Reduction::Max, lowest(data.dtype)?),
        PoolMode::Average | PoolMode::Lp { .. } => (Reduction::Sum, constant(data.dtype, 0.0)?),
    };
    let padded = if is_padded {
        let name = output.name("pad_temp");
        pad(writer, (&name, Part::Pad), data, (&with_leading(&window.heads), &with_leading(&reach)), &outside)?
    } else {
        data.clone()
    };
    let taps = taps(window)?;
    let name = output.name(match mode {
        PoolMode::Max => "pool_max",
        PoolMode::Average | PoolMode::Lp { .. } => "pool_sum",
    });
    let reduced = writer.block(&name, Part::Anchor, output.like(), |i| {
        let mut at = vec![i[0].clone(), i[1].clone()];
        for d in 0..spatial {
            at.push(position(window, d, &i[d + 2], &taps[d])?);
        }
        reduce(how, output.dtype, &term(mode, &padded.at(&at)?)?, &taps)
    })?;
    match mode {
        PoolMode::Max => return Ok(reduced),
        PoolMode::Lp { order } => return root(writer, order, &reduced, output),
        PoolMode::Average => {}
    }
    let share = share(writer, window, is_padded, &old, output)?;
    writer.block(&output.name("pool_avg"), Part::Epilogue, output.like(), |i| match &share {
        Share::Same(count) => reduced.at(i)?.mul(&constant(output.dtype, 1.0 / *count as f64)?),
        Share::Counted(counts) => reduced.at(i)?.div(&counts.at(&i[2..])?),
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

fn taps(window: &Window) -> Result<Vec<Axis>> {
    let axes =
        window.kernel.iter().enumerate().map(|(d, &extent)| axis(&format!("r{d}"), &Extent::Known(extent), true));
    Ok(axes.collect::<std::result::Result<_, _>>()?)
}

/// Place of a tap in the padded input.
fn position(window: &Window, d: usize, place: &Expression, tap: &Axis) -> Element {
    place.mul(&index(window.strides[d])?)?.add(&tap.variable.mul(&index(window.dilations[d])?)?)
}

/// By how much a window's sum is divided.
enum Share {
    Same(i64),
    /// One count per output position.
    Counted(Tensor),
}

fn share(writer: &mut Writer, window: &Window, is_padded: bool, old: &[i64], output: &Output) -> Result<Share> {
    if !is_padded {
        return Ok(Share::Same(window.kernel.iter().product()));
    }
    let taps = taps(window)?;
    let counts = writer.block(&output.name("pool_count"), Part::Helper, (output.dtype, &output.extents[2..]), |i| {
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
    })?;
    Ok(Share::Counted(counts))
}
