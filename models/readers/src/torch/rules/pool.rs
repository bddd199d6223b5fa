//! Import rules of pooling, with and without the positions of the maxima.

use super::movement::primary_input;
use super::{Call, Memory, Outputs, RuleOutput, numbers_of};
use crate::{Outcome, malformed, unsupported};
use models::graph::ValueId;
use models::operators::{
    AdaptivePool, ArgReduce, BinaryOp, Gather, GlobalPool, Identity, Op, Pool, PoolMode, ScatterElements, ScatterOp,
};
use models::types::{DType, TensorType};
use reference::Tensor;

/// Returns the number of spatial dimensions, which the name of the operator states.
pub(super) fn rank_of(call: &Call<'_, '_>) -> usize {
    match call.operator.trim_end_matches("_with_indices").trim_end_matches("_aa").chars().rev().nth(1) {
        Some('1') => 1,
        Some('3') => 3,
        _ => 2,
    }
}

/// Returns the input and its extents `[batch, channels, space…]`; refuses data without a batch dimension.
pub(super) fn batched_image(call: &Call<'_, '_>, rank: usize) -> Outcome<(ValueId, Vec<i64>)> {
    let x = primary_input(call)?;
    let extents = call.emit.extents(x)?;
    if extents.len() != rank + 2 {
        return unsupported(format!("an input of {} dimensions, without a batch dimension", extents.len()));
    }
    Ok((x, extents))
}

/// The input of a pool as `[batch, channels, space…]`.
struct Image {
    x: ValueId,
    extents: Vec<i64>,
    /// Whether the input had no batch dimension; the results then have none either.
    is_single: bool,
}

impl Image {
    fn parse_image(call: &mut Call<'_, '_>) -> Outcome<Image> {
        let rank = rank_of(call);
        let mut x = primary_input(call)?;
        let mut extents = call.emit.extents(x)?;
        let is_single = extents.len() == rank + 1;
        if is_single {
            extents.insert(0, 1);
            x = call.emit.reshape(x, &extents)?;
        }
        if extents.len() != rank + 2 {
            return malformed(format!("an input of {} dimensions does not fit the operator", extents.len()));
        }
        Ok(Image { x, extents, is_single })
    }

    fn finish_outputs(&self, call: &mut Call<'_, '_>, made: &[ValueId]) -> Outputs {
        let finish = |&id: &ValueId| {
            let mut extents = call.emit.extents(id)?;
            let id = if self.is_single { call.emit.reshape(id, &extents.split_off(1))? } else { id };
            Ok(RuleOutput { id, window: Memory::Own })
        };
        made.iter().map(finish).collect()
    }
}

/// Reads the window of a pool. A window that is wider than the padded data is clamped.
fn parse_pool(call: &Call<'_, '_>, mode: PoolMode, extents: &[i64]) -> Outcome<Pool> {
    let rank = extents.len();
    let mut kernel = call.spatial_list("kernel_size", rank, 1)?;
    let strides =
        if call.int_list("stride")?.is_empty() { kernel.clone() } else { call.spatial_list("stride", rank, 1)? };
    let pads = call.spatial_list("padding", rank, 0)?;
    let ceil = call.flag_argument("ceil_mode", false)?;
    if ceil {
        let widest = extents.iter().zip(&pads).map(|(&extent, &pad)| extent.saturating_add(pad.saturating_mul(2)));
        kernel.iter_mut().zip(widest).for_each(|(kernel, widest)| *kernel = (*kernel).min(widest));
    }
    Ok(Pool {
        mode,
        kernel,
        strides,
        pads: [pads.as_slice(), &pads].concat(),
        dilations: call.spatial_list("dilation", rank, 1)?,
        ceil,
        count_pad: mode == PoolMode::Average && call.flag_argument("count_include_pad", true)?,
    })
}

/// Emits a maximum over windows and, if something reads them, the positions of the maxima.
pub(super) fn max_pool(call: &mut Call<'_, '_>) -> Outputs {
    let image = Image::parse_image(call)?;
    let pool = parse_pool(call, PoolMode::Max, &image.extents[2..])?;
    let y = call.emit.push(Op::Pool(pool.clone()), &[image.x])?;
    if call.wanted < 2 {
        return image.finish_outputs(call, &[y]);
    }
    let counts = call.emit.extents(y)?[2..].to_vec();
    let windows = |axis: usize| window_positions(&pool, axis, image.extents[2 + axis], counts[axis]);
    let windows = (0..counts.len()).map(windows).collect::<Outcome<Vec<Windows>>>()?;
    let places = positions_of_maxima(call, &image, &windows)?;
    image.finish_outputs(call, &[y, places])
}

pub(super) fn average_pool(call: &mut Call<'_, '_>) -> Outputs {
    let image = Image::parse_image(call)?;
    let mut pool = parse_pool(call, PoolMode::Average, &image.extents[2..])?;
    let y = match call.optional_int("divisor_override")? {
        None => call.emit.push(Op::Pool(pool), &[image.x])?,
        Some(0) => return malformed("`divisor_override` is zero"),
        Some(divisor) => {
            // In data padded to whole windows, every window has the same number of elements.
            let x = pad_to_windows(call, image.x, &mut pool)?;
            let count: i64 = pool.kernel.iter().product();
            let y = call.emit.push(Op::Pool(pool), &[x])?;
            call.emit.binary_with(BinaryOp::Mul, y, count as f64 / divisor as f64)?
        }
    };
    image.finish_outputs(call, &[y])
}

/// Pads the data with zeros until all windows lie inside, and changes the pool to one without pads.
fn pad_to_windows(call: &mut Call<'_, '_>, x: ValueId, pool: &mut Pool) -> Outcome<ValueId> {
    let ty = call.emit.ty(x)?;
    let counts = models::infer::infer_type(&Op::Pool(pool.clone()), &[&ty])?.extents().unwrap_or_default();
    let extents = call.emit.extents(x)?;
    let (rank, all) = (pool.kernel.len(), extents.len());
    let mut pads = vec![0; 2 * all];
    for axis in 0..rank {
        let before = pool.pads[axis];
        let reach = (counts[2 + axis] - 1).saturating_mul(pool.strides[axis]).saturating_add(pool.kernel[axis]);
        pads[2 + axis] = before;
        pads[all + 2 + axis] = (reach - before - extents[2 + axis]).max(0);
    }
    pool.pads.fill(0);
    pool.ceil = false;
    if pads.iter().all(|&pad| pad == 0) { Ok(x) } else { call.emit.pad(x, &pads, 0.0) }
}

fn adaptive_pool(call: &mut Call<'_, '_>, mode: PoolMode) -> Outputs {
    let image = Image::parse_image(call)?;
    let before = &image.extents[2..];
    let extents = call.spatial_list("output_size", before.len(), 1)?;
    let op = if extents.iter().all(|&extent| extent == 1) {
        Op::GlobalPool(GlobalPool { mode })
    } else if extents == before {
        Op::Identity(Identity {})
    } else {
        Op::AdaptivePool(AdaptivePool { mode, extents: extents.clone() })
    };
    let y = call.emit.push(op, &[image.x])?;
    if mode != PoolMode::Max || call.wanted < 2 {
        return image.finish_outputs(call, &[y]);
    }
    let windows = before.iter().zip(&extents).map(|(&old, &new)| adaptive_positions(old, new));
    let windows = windows.collect::<Outcome<Vec<Windows>>>()?;
    let places = positions_of_maxima(call, &image, &windows)?;
    image.finish_outputs(call, &[y, places])
}

pub(super) fn adaptive_average_pool(call: &mut Call<'_, '_>) -> Outputs {
    adaptive_pool(call, PoolMode::Average)
}

pub(super) fn adaptive_max_pool(call: &mut Call<'_, '_>) -> Outputs {
    adaptive_pool(call, PoolMode::Max)
}

/// The positions along one dimension that each window covers, as many for each window. A position outside of the data is
/// replaced by the first one inside.
struct Windows {
    counts: i64,
    width: i64,
    positions: Vec<i64>,
}

fn window_positions(pool: &Pool, axis: usize, extent: i64, counts: i64) -> Outcome<Windows> {
    let (width, stride, dilation) = (pool.kernel[axis], pool.strides[axis], pool.dilations[axis]);
    numbers_of(&[counts, width])?;
    let mut positions = Vec::new();
    for window in 0..counts {
        let own = (0..width).map(|tap| window * stride - pool.pads[axis] + tap * dilation);
        let own: Vec<i64> = own.collect();
        let is_inside = |place: &i64| (0..extent).contains(place);
        let Some(first) = own.iter().copied().find(is_inside) else {
            return unsupported("a window that covers only padding");
        };
        positions.extend(own.iter().map(|place| if is_inside(place) { *place } else { first }));
    }
    Ok(Windows { counts, width, positions })
}

fn adaptive_positions(old: i64, new: i64) -> Outcome<Windows> {
    numbers_of(&[old, new])?;
    if old < 1 || new < 1 {
        return unsupported("an empty tensor");
    }
    let ends = |window: i64| (window * old / new, ((window + 1) * old + new - 1) / new);
    let width = (0..new).map(|window| ends(window).1 - ends(window).0).max().unwrap_or(1);
    numbers_of(&[width, new])?;
    let of_window = |window: i64| {
        let (start, stop) = ends(window);
        (0..width).map(move |tap| if start + tap < stop { start + tap } else { start })
    };
    Ok(Windows { counts: new, width, positions: (0..new).flat_map(of_window).collect() })
}

/// Emits the position of the first maximum of each window, counted over all spatial dimensions of the data.
fn positions_of_maxima(call: &mut Call<'_, '_>, image: &Image, windows: &[Windows]) -> Outcome<ValueId> {
    let emit = &mut *call.emit;
    let (counts, widths): (Vec<i64>, Vec<i64>) = windows.iter().map(|one| (one.counts, one.width)).unzip();
    let taps = numbers_of(&widths)?;
    numbers_of(&[counts.as_slice(), &widths].concat())?;
    // `[batch, channels, window, tap, window, tap…]` becomes `[batch, channels, window…, tap…]`.
    let mut x = image.x;
    let mut shape = image.extents[..2].to_vec();
    for (axis, one) in windows.iter().enumerate() {
        let places = emit.add_integers(&one.positions)?;
        x = emit.push(Op::Gather(Gather { axis: axis as i64 + 2 }), &[x, places])?;
        shape.extend([one.counts, one.width]);
    }
    let x = emit.reshape(x, &shape)?;
    let rank = windows.len();
    let order: Vec<usize> =
        (0..2).chain((0..rank).map(|axis| 2 + 2 * axis)).chain((0..rank).map(|axis| 3 + 2 * axis)).collect();
    let x = emit.transpose(x, &order)?;
    let shape = [&image.extents[..2], &counts, &[taps]].concat();
    let x = emit.reshape(x, &shape)?;
    let axis = shape.len() as i64 - 1;
    let tap = emit.push(Op::ArgReduce(ArgReduce { largest: true, axis, keep: false, last: false }), &[x])?;
    // The position of a tap is looked up in a table of all taps of all windows.
    let (table, starts) = tap_table(windows, &image.extents[2..]);
    let table = emit.add_integers(&table)?;
    let starts = emit.constant_of(&Tensor::from_numbers(TensorType::new(DType::I64, &counts), &starts)?)?;
    let at = emit.binary(BinaryOp::Add, tap, starts)?;
    emit.push(Op::Gather(Gather { axis: 0 }), &[table, at])
}

/// Returns the position of each tap of each window in the data, and the index of each window's first tap.
fn tap_table(windows: &[Windows], extents: &[i64]) -> (Vec<i64>, Vec<f64>) {
    let mut table = vec![vec![0i64]];
    for (one, extent) in windows.iter().zip(extents) {
        let width = one.width as usize;
        let join = |taps: &Vec<i64>, own: &[i64]| -> Vec<i64> {
            taps.iter().flat_map(|before| own.iter().map(move |place| before * extent + place)).collect()
        };
        table = table.iter().flat_map(|taps| one.positions.chunks(width).map(move |own| join(taps, own))).collect();
    }
    let taps = table.first().map_or(0, Vec::len);
    let starts = (0..table.len()).map(|window| (window * taps) as f64).collect();
    (table.concat(), starts)
}

/// Writes the values to the positions that a max pool returned; all other elements are zero.
pub(super) fn max_unpool(call: &mut Call<'_, '_>) -> Outputs {
    let (x, places) = (call.tensor_argument("self")?, call.tensor_argument("indices")?);
    let size = call.int_list("output_size")?;
    let emit = &mut *call.emit;
    let (dtype, extents) = (emit.dtype(x)?, emit.extents(x)?);
    let Some(front) = extents.len().checked_sub(size.len()) else {
        return malformed(format!("the size {size:?} does not fit {} dimensions", extents.len()));
    };
    numbers_of(&size)?;
    let flat = |space: &[i64]| -> Vec<i64> { [&extents[..front], &[space.iter().product()]].concat() };
    let (given, made) = (flat(&extents[front..]), flat(&size));
    let (x, places) = (emit.reshape(x, &given)?, emit.reshape(places, &given)?);
    let zeros = emit.add_filled(dtype, &made, 0.0)?;
    let op = ScatterElements { axis: front as i64, combine: ScatterOp::Replace };
    let y = emit.push(Op::ScatterElements(op), &[zeros, places, x])?;
    super::own_output(emit.reshape(y, &[&extents[..front], &size].concat())?)
}
