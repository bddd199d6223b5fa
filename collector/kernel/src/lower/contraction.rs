//! Lowers convolutions of any spatial rank, and matrix products, in one of three forms. Plain: one reduction in the
//! task's dimension order, with the block names of TVM's operator library, so that traces tuned on its definitions can
//! be replayed. Blocked: the channel (or column) dimension is split, `acc[…, o / block, …, o % block]`, so that one
//! vector holds a block of channels. Columns: a convolution as a product of the weight and a matrix of windows, for
//! tensor cores. In the last two forms, a last block restores the task's order.

use super::movement::{padded_at, padded_extents};
use super::pointwise::{narrow_sums, wide_type};
use super::products::{
    ConvShape, NO_ZEROS, Zeros, multiply_elements, source_channel, split_digits, unblock_result, with_leading,
};
use super::{Element, Indices, LowerError, Output, Part, ReachedInput, Result, Writer, dots, known_sizes, transposed};
use crate::tvm::expression::{
    Axis, Expression, Extent, Reduction, Tensor, constant, index_constant, loop_axis, reduce_axes,
};
use job::space::{ByTaps, Layout};
use models::einsum::Equation;
use models::operators::{ConvTranspose, ConvWindow, Einsum, MatMul, QConv, QDense, QMatMul};
use models::{Class, Op, TensorType};
use schedules::tiles;

pub(super) fn lower_contraction(
    writer: &mut Writer,
    op: &Op,
    inputs: &[Tensor],
    output: &Output,
) -> Result<Option<Tensor>> {
    let wide = Output { dtype: wide_type(output.dtype), extents: output.extents.clone(), place: output.place };
    if wide.dtype == output.dtype {
        return sums_of(writer, op, inputs, output);
    }
    let widened = widen_scalars(writer, op, inputs, &wide)?;
    let Some(sums) = sums_of(writer, op, &widened, &wide)? else { return Ok(None) };
    narrow_sums(writer, sums, output).map(Some)
}

/// Converts those operands once on CPUs whose elements a tile multiplies by vectors: a conversion of one element takes
/// as long as a multiplication of a vector. Vectors are converted when they are read.
fn widen_scalars(writer: &mut Writer, op: &Op, inputs: &[Tensor], output: &Output) -> Result<Vec<Tensor>> {
    let mut widened = inputs.to_vec();
    if op.class() != Class::Contraction || writer.is_device {
        return Ok(widened);
    }
    // Vectors are columns of the second operand, or columns of the data in the plain form of a convolution.
    let is_plain_conv = matches!(op, Op::Conv(_) | Op::ConvTranspose(_)) && writer.layout == Layout::Plain;
    let names = [("wide_data", true), ("wide_weight", is_plain_conv)];
    for (operand, (name, _)) in names.iter().enumerate().filter(|(_, (_, is_widened))| *is_widened) {
        let own = &inputs[operand];
        // A scalar has no loops to schedule.
        if own.extents.is_empty() {
            continue;
        }
        widened[operand] =
            writer.add_block(&output.block_name(name), Part::Helper, (output.dtype, &own.extents), |i| {
                own.element_at(i)?.cast(output.dtype)
            })?;
    }
    Ok(widened)
}

fn sums_of(writer: &mut Writer, op: &Op, inputs: &[Tensor], output: &Output) -> Result<Option<Tensor>> {
    let shape = |zeros: Zeros| ConvShape { window: op.window().expect("a convolution has a window"), zeros };
    match op {
        Op::Conv(_) => convolve_input(writer, &shape(NO_ZEROS), &inputs[0], &inputs[1], output),
        Op::QConv(QConv { x_zero, w_zero, .. }) => {
            let shape = shape([*x_zero, *w_zero]);
            match writer.layout {
                Layout::Dots { columns, is_signed } => {
                    let tile = dots::DotTile { columns, is_signed };
                    dots::convolve_bytes(writer, op, &shape, &tile, (&inputs[0], &inputs[1]), output)
                }
                _ => convolve_input(writer, &shape, &inputs[0], &inputs[1], output),
            }
        }
        Op::ConvTranspose(ConvTranspose { output_pads, .. }) => {
            transposed::convolve_transposed(writer, &shape(NO_ZEROS), output_pads, (&inputs[0], &inputs[1]), output)
        }
        Op::MatMul(MatMul { transpose_a, transpose_b }) => {
            multiply_matrices(writer, (*transpose_a, *transpose_b), &inputs[0], &inputs[1], NO_ZEROS, output)
        }
        Op::QMatMul(QMatMul { a_zero, b_zero }) => {
            multiply_matrices(writer, (false, false), &inputs[0], &inputs[1], [*a_zero, *b_zero], output)
        }
        Op::Dense(_) => multiply_dense(writer, &inputs[0], &inputs[1], NO_ZEROS, output),
        Op::QDense(QDense { x_zero, w_zero }) => match writer.layout {
            Layout::BlockedDots { block, is_signed } => {
                dots::multiply_bytes(writer, [*x_zero, *w_zero], (block, is_signed), (&inputs[0], &inputs[1]), output)
            }
            _ => multiply_dense(writer, &inputs[0], &inputs[1], [*x_zero, *w_zero], output),
        },
        Op::Einsum(Einsum { equation }) => sum_einsum(writer, equation, inputs, output),
        _ => return Ok(None),
    }
    .map(Some)
}

fn convolve_input(
    writer: &mut Writer,
    shape: &ConvShape,
    data: &Tensor,
    weight: &Tensor,
    output: &Output,
) -> Result<Tensor> {
    let ConvWindow { strides, pads, dilations, groups, .. } = shape.window;
    let spatial = strides.len();
    let is_packed = weight.extents.len() > strides.len() + 2;
    let (channels, sources) = (writer.known_extent(&output.extents[1])?, writer.known_extent(&data.extents[1])?);
    let outputs_per_group = channels / groups;
    if let Layout::Columns { multiple } = writer.layout {
        return conv_of_columns(writer, shape, (data, weight), multiple, output);
    }
    if let Layout::Winograd { tile, block } = writer.layout {
        let is_one = |numbers: &[i64]| numbers.iter().all(|&number| number == 1);
        if !is_one(strides) || !is_one(dilations) || groups != 1 || shape.zeros != NO_ZEROS {
            return Err(super::winograd::unsupported_error());
        }
        return super::winograd::convolve_winograd(writer, pads, (data, weight), (tile, block), output);
    }
    let block = block_of(writer, &Extent::Known(outputs_per_group), !is_packed || groups > 1)?;
    let is_depthwise = groups > 1 && groups == sources;
    let names = conv_names(spatial, is_depthwise, groups > 1, block.is_some());
    let by_taps = writer.by_taps.filter(|_| !is_depthwise);
    let is_by_taps = is_packed && by_taps.is_some();
    let kernel = weight.extents[if is_by_taps { 1 } else { 2 }..][..spatial].to_vec();
    let filled = fill_columns(writer, shape, data, &kernel[spatial - 1], output)?;
    let (pads, extents) = filled.as_ref().map_or((pads, &output.extents[..]), |(pads, all)| (pads, all));
    let is_padded = pads.iter().any(|&pad| pad > 0);
    let (pads, offsets) = match by_taps {
        Some(by_taps) => reached_by_taps(writer, shape, by_taps, data, pads)?,
        None => (pads.to_vec(), vec![0; spatial]),
    };
    let order = if is_depthwise && block.is_none() && strides[spatial - 1] == 2 && writer.has_vectors {
        // Even and odd columns are stored in separate rows, so that vectors of every second column are contiguous.
        SumOrder::Apart
    } else if is_by_taps && is_padded {
        SumOrder::Rows
    } else {
        SumOrder::Own
    };
    // The plain form always has a padding block, like TVM's definitions, whose block names it shares.
    let data = if block.is_none() || is_padded {
        pad_input(writer, &output.block_name(names.0), data, &pads, shape.zeros[0], order)?
    } else {
        data.clone()
    };
    let per_group = sources / groups;
    let channel_axis = (!is_depthwise).then(|| loop_axis("rc", &Extent::Known(per_group), true)).transpose()?;
    let kernel_axis = |(d, extent): (usize, &Extent)| loop_axis(&format!("r{d}"), extent, true);
    let kernel_axes = kernel.iter().enumerate().map(kernel_axis).collect::<std::result::Result<Vec<_>, _>>()?;
    let product =
        |batch: &Expression, channel: &Expression, place: &[Expression], lane: Option<&Expression>| -> Element {
            let whole = match (block, lane) {
                (Some(block), Some(lane)) => channel.mul(&index_constant(block)?)?.add(lane)?,
                _ => channel.clone(),
            };
            let source = source_channel(&whole, channel_axis.as_ref(), groups, per_group, outputs_per_group)?;
            let mut at = vec![batch.clone(), source];
            for d in 0..spatial {
                let tap = kernel_axes[d].variable.mul(&index_constant(dilations[d])?)?;
                if order == SumOrder::Apart && d == spatial - 1 {
                    let two = index_constant(2)?;
                    at.extend([tap.floor_mod(&two)?, place[d].add(&tap.floor_div(&two)?)?]);
                    continue;
                }
                let read = place[d].mul(&index_constant(strides[d])?)?.add(&tap)?;
                at.push(if offsets[d] == 0 { read } else { read.sub(&index_constant(offsets[d])?)? });
            }
            if order == SumOrder::Rows {
                at[1..=spatial].rotate_left(1);
            }
            // An unpacked weight has no lane dimension.
            let lane = lane.filter(|_| is_packed);
            let mut weight_at = vec![if is_packed { channel.clone() } else { whole.clone() }];
            weight_at.push(match &channel_axis {
                Some(axis) => axis.variable.clone(),
                None => index_constant(0)?,
            });
            weight_at.extend(kernel_axes.iter().map(|axis| axis.variable.clone()));
            if is_by_taps {
                weight_at[1..].rotate_left(1);
            }
            weight_at.extend(lane.cloned());
            multiply_elements((&data, &at), (weight, &weight_at), shape.zeros, output.dtype)
        };
    let axes: Vec<Axis> = channel_axis.iter().chain(&kernel_axes).cloned().collect();
    let anchor = output.block_name(names.1);
    let result = if let Some(block) = block {
        let blocked = blocked_extents(writer, extents, 1, block)?;
        let last = blocked.len() - 1;
        let accumulated = writer.add_block(&anchor, Part::Anchor, (output.dtype, &blocked), |i| {
            reduce_axes(Reduction::Sum, output.dtype, &product(&i[0], &i[1], &i[2..last], Some(&i[last]))?, &axes)
        })?;
        unblock_result(writer, &accumulated, 1, block, output, extents)?
    } else {
        writer.add_block(&anchor, Part::Anchor, (output.dtype, extents), |i| {
            reduce_axes(Reduction::Sum, output.dtype, &product(&i[0], &i[1], &i[2..], None)?, &axes)
        })?
    };
    match filled {
        None => Ok(result),
        Some(_) => {
            writer.add_block(&output.block_name("cut"), Part::Cut, output.element_type(), |i| result.element_at(i))
        }
    }
}

/// Returns padding and output extents enlarged to whole tiles of columns; None if the columns fill whole tiles already.
fn fill_columns(
    writer: &Writer,
    shape: &ConvShape,
    data: &Tensor,
    kernel: &Extent,
    output: &Output,
) -> Result<Option<(Vec<i64>, Vec<Extent>)>> {
    let last = output.extents.len() - 1;
    let Some(columns) = output.extents[last].known_number().filter(|_| writer.columns > 1) else { return Ok(None) };
    let filled = tiles::filled_extent(columns, writer.columns);
    if filled == columns {
        return Ok(None);
    }
    let (mut pads, mut extents) = (shape.window.pads.to_vec(), output.extents.clone());
    extents[last] = Extent::Known(filled);
    let spatial = shape.window.strides.len();
    let (head, tail) = (pads[spatial - 1], &mut pads[2 * spatial - 1]);
    let reach = (writer.known_extent(kernel)? - 1) * shape.window.dilations[spatial - 1];
    let wanted = (filled - 1) * shape.window.strides[spatial - 1] + reach + 1;
    *tail = (*tail).max(wanted - head - writer.known_extent(&data.extents[last])?);
    Ok(Some((pads, extents)))
}

/// Returns the padding that a sum tap by tap reads, and by how much the leading padding of each dimension shrinks.
/// Tiles entirely in the padding are skipped, so every other tile begins less than a tile before the input.
fn reached_by_taps(
    writer: &mut Writer,
    shape: &ConvShape,
    by_taps: ByTaps,
    data: &Tensor,
    pads: &[i64],
) -> Result<(Vec<i64>, Vec<i64>)> {
    let spatial = shape.window.strides.len();
    let (mut pads, mut offsets) = (pads.to_vec(), vec![0; spatial]);
    if pads.iter().all(|&pad| pad == 0) {
        return Ok((pads, offsets));
    }
    writer.window = Some(ReachedInput {
        strides: shape.window.strides.to_vec(),
        dilations: shape.window.dilations.to_vec(),
        heads: shape.window.pads[..spatial].to_vec(),
        extents: writer.known_extents(&data.extents[2..])?,
    });
    if let Some([rows, columns]) = by_taps.tile {
        for (d, stride) in shape.window.strides.iter().enumerate() {
            let tile = [columns, rows].get(spatial - 1 - d).copied().unwrap_or(1);
            let reached = (tile - 1) * stride;
            offsets[d] = (pads[d] - reached).max(0);
            pads[d] = pads[d].min(reached);
            pads[spatial + d] = pads[spatial + d].min(reached);
        }
    }
    Ok((pads, offsets))
}

fn conv_of_columns(
    writer: &mut Writer,
    shape: &ConvShape,
    (data, weight): (&Tensor, &Tensor),
    multiple: i64,
    output: &Output,
) -> Result<Tensor> {
    if shape.window.groups != 1 || shape.zeros != NO_ZEROS {
        let why = "only a convolution of one group without zero points can be computed as a matrix product".to_owned();
        return Err(LowerError::Unsupported { operator: "conv".to_owned(), why });
    }
    let kernel = writer.kernel.clone();
    let places = writer.known_extents(&output.extents[2..])?;
    let [images, channels] = [writer.known_extent(&output.extents[0])?, writer.known_extent(&output.extents[1])?];
    let taps: i64 = kernel.iter().product();
    let places_of_image: i64 = places.iter().product();
    let depth = writer.known_extent(&weight.extents[1])?;
    let columns = images * places_of_image;
    let padded = tiles::filled_extent(columns, multiple);
    let data = if shape.window.pads.iter().any(|&pad| pad > 0) {
        pad_input(writer, &output.block_name("pad_temp"), data, shape.window.pads, 0, SumOrder::Own)?
    } else {
        data.clone()
    };
    let windows = writer.add_block(
        &output.block_name("conv_windows"),
        Part::Windows,
        (data.dtype, &known_sizes(&[depth, padded])),
        |i| {
            let (taps, places_of_image) = (index_constant(taps)?, index_constant(places_of_image)?);
            let mut at = vec![i[1].floor_div(&places_of_image)?, i[0].floor_div(&taps)?];
            let place = split_digits(&i[1].floor_mod(&places_of_image)?, &places)?;
            let tap = split_digits(&i[0].floor_mod(&taps)?, &kernel)?;
            for (d, (place, tap)) in place.iter().zip(&tap).enumerate() {
                at.push(
                    place
                        .mul(&index_constant(shape.window.strides[d])?)?
                        .add(&tap.mul(&index_constant(shape.window.dilations[d])?)?)?,
                );
            }
            let element = data.element_at(&at)?;
            if padded == columns {
                return Ok(element);
            }
            i[1].less(&index_constant(columns)?)?.if_then_else(&element, &constant(data.dtype, 0.0)?)
        },
    )?;
    let step = loop_axis("k", &Extent::Known(depth), true)?;
    let sums = writer.add_block(
        &output.block_name("conv_columns"),
        Part::Anchor,
        (output.dtype, &known_sizes(&[channels, padded])),
        |i| {
            let (row, column) = ([i[0].clone(), step.variable.clone()], [step.variable.clone(), i[1].clone()]);
            let product = multiply_elements((weight, &row), (&windows, &column), NO_ZEROS, output.dtype)?;
            reduce_axes(Reduction::Sum, output.dtype, &product, std::slice::from_ref(&step))
        },
    )?;
    writer.add_block(&output.block_name("conv_places"), Part::Epilogue, output.element_type(), |i| {
        sums.element_at(&column_of(i, &places)?)
    })
}

/// Returns the row (channel) and the column (flattened position) of a result element of a convolution in matrix form.
pub(crate) fn column_of(at: &[Expression], places: &[i64]) -> Indices {
    let mut column = at[0].clone();
    for (place, &extent) in at[2..].iter().zip(places) {
        column = column.mul(&index_constant(extent)?)?.add(place)?;
    }
    Ok(vec![at[1].clone(), column])
}

fn conv_names(spatial: usize, is_depthwise: bool, is_grouped: bool, is_blocked: bool) -> (&'static str, &'static str) {
    match (spatial, is_depthwise, is_grouped, is_blocked) {
        (_, _, _, true) => ("pad_temp", "conv_blocked"),
        (2, true, _, false) => ("PaddedInput", "DepthwiseConv2d"),
        (2, false, true, false) => ("pad_temp", "group_conv2d_nchw"),
        (2, false, false, false) => ("pad_temp", "conv2d_nchw"),
        (1, _, _, false) => ("pad_temp", "conv1d_ncw"),
        (_, _, _, false) => ("pad_temp", "conv3d_ncdhw"),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SumOrder {
    Own,
    /// In each row, the even columns come before the odd columns.
    Apart,
    /// The rows of all channels at one height are adjacent.
    Rows,
}

/// Pads the input with its zero point. `pads`: leading padding of all spatial dimensions, then trailing padding.
fn pad_input(
    writer: &mut Writer,
    name: &str,
    data: &Tensor,
    pads: &[i64],
    zero: i64,
    order: SumOrder,
) -> Result<Tensor> {
    let zero = constant(data.dtype, zero as f64)?;
    let (heads, tails) = pads.split_at(pads.len() / 2);
    let (heads, mut tails) = (with_leading(heads), with_leading(tails));
    let last = data.extents.len() - 1;
    let mut extents = padded_extents(writer, data, (&heads, &tails))?;
    match order {
        SumOrder::Own => {}
        SumOrder::Apart => {
            let columns = writer.known_extent(&extents[last])?;
            // An odd number of columns is padded by one column.
            tails[last] += columns % 2;
            extents[last] = Extent::Known(2);
            extents.push(Extent::Known((columns + 1) / 2));
        }
        SumOrder::Rows => extents[1..last].rotate_left(1),
    }
    writer.add_block(name, Part::Pad, (data.dtype, &extents), |i| {
        let mut at = i.to_vec();
        match order {
            SumOrder::Own => {}
            SumOrder::Apart => {
                let half = at.pop().expect("a row has two halves");
                at[last] = half.mul(&index_constant(2)?)?.add(&at[last])?;
            }
            SumOrder::Rows => at[1..last].rotate_right(1),
        }
        padded_at(data, (&heads, &tails), &at, &zero)
    })
}

fn multiply_dense(
    writer: &mut Writer,
    data: &Tensor,
    weight: &Tensor,
    zeros: Zeros,
    output: &Output,
) -> Result<Tensor> {
    let rank = output.extents.len();
    let block = block_of(writer, &output.extents[rank - 1], false)?;
    // Only a packed weight can be read as vectors of columns.
    let copy = match block.filter(|_| writer.copies && weight.extents.len() == 2) {
        Some(block) => Some(copy_panels(writer, weight, true, block, output)?),
        None => None,
    };
    let weight = copy.as_ref().unwrap_or(weight);
    let is_packed = weight.extents.len() == 3;
    let depth = loop_axis("k", &data.extents[rank - 1], true)?;
    let product = |rows: &[Expression], column: &[Expression]| -> Element {
        let mut at = rows.to_vec();
        at.push(depth.variable.clone());
        let mut weight_at = vec![column[0].clone(), depth.variable.clone()];
        weight_at.extend(column.get(1).cloned());
        multiply_elements((data, &at), (weight, &weight_at), zeros, output.dtype)
    };
    let axes = [depth.clone()];
    match block.filter(|_| is_packed) {
        None => writer.add_block(&output.block_name("T_matmul_NT"), Part::Anchor, output.element_type(), |i| {
            reduce_axes(Reduction::Sum, output.dtype, &product(&i[..rank - 1], &i[rank - 1..])?, &axes)
        }),
        Some(block) => {
            let blocked = blocked_extents(writer, &output.extents, rank - 1, block)?;
            let accumulated =
                writer.add_block(&output.block_name("dense_blocked"), Part::Anchor, (output.dtype, &blocked), |i| {
                    reduce_axes(Reduction::Sum, output.dtype, &product(&i[..rank - 1], &i[rank - 1..])?, &axes)
                })?;
            unblock_result(writer, &accumulated, rank - 1, block, output, &output.extents)
        }
    }
}

fn multiply_matrices(
    writer: &mut Writer,
    (transpose_a, transpose_b): (bool, bool),
    a: &Tensor,
    b: &Tensor,
    zeros: Zeros,
    output: &Output,
) -> Result<Tensor> {
    let rank = output.extents.len();
    let depth = loop_axis("k", &a.extents[a.extents.len() - if transpose_a { 2 } else { 1 }], true)?;
    let at = |tensor: &Tensor, place: &[Expression], row: &Expression, column: &Expression, transposed: bool| {
        let mut at = batch_indices(tensor, place)?;
        at.extend(if transposed { [column.clone(), row.clone()] } else { [row.clone(), column.clone()] });
        Ok(at)
    };
    let axes = [depth.clone()];
    let product = |place: &[Expression], column: &Expression| -> Element {
        let row = &place[rank - 2];
        let a_at = at(a, &place[..rank - 2], row, &depth.variable, transpose_a)?;
        let b_at = at(b, &place[..rank - 2], &depth.variable, column, transpose_b)?;
        multiply_elements((a, &a_at), (b, &b_at), zeros, output.dtype)
    };
    let block = block_of(writer, &output.extents[rank - 1], !writer.copies)?;
    let Some(block) = block else {
        let name = if rank == 2 { "T_matmul" } else { "T_batch_matmul" };
        return writer.add_block(&output.block_name(name), Part::Anchor, output.element_type(), |i| {
            reduce_axes(Reduction::Sum, output.dtype, &product(i, &i[rank - 1])?, &axes)
        });
    };
    let blocked = blocked_extents(writer, &output.extents, rank - 1, block)?;
    let copy = if writer.copies { Some(copy_panels(writer, b, transpose_b, block, output)?) } else { None };
    let accumulated =
        writer.add_block(&output.block_name("matmul_blocked"), Part::Anchor, (output.dtype, &blocked), |i| {
            if let Some(copy) = &copy {
                let a_at = at(a, &i[..rank - 2], &i[rank - 2], &depth.variable, transpose_a)?;
                let mut b_at = batch_indices(b, &i[..rank - 2])?;
                b_at.extend([i[rank - 1].clone(), depth.variable.clone(), i[rank].clone()]);
                return reduce_axes(
                    Reduction::Sum,
                    output.dtype,
                    &multiply_elements((a, &a_at), (copy, &b_at), zeros, output.dtype)?,
                    &axes,
                );
            }
            let column = i[rank - 1].mul(&index_constant(block)?)?.add(&i[rank])?;
            reduce_axes(Reduction::Sum, output.dtype, &product(i, &column)?, &axes)
        })?;
    unblock_result(writer, &accumulated, rank - 1, block, output, &output.extents)
}

fn batch_indices(tensor: &Tensor, place: &[Expression]) -> Indices {
    let batch = tensor.extents.len() - 2;
    let skipped = place.len() - batch;
    tensor.extents[..batch]
        .iter()
        .zip(&place[skipped..])
        .map(|(extent, variable)| if extent.is_always(1) { index_constant(0) } else { Ok(variable.clone()) })
        .collect()
}

/// Copies the second operand into panels. Each panel holds a block of columns over the whole depth, padded with zeros.
fn copy_panels(
    writer: &mut Writer,
    operand: &Tensor,
    is_transposed: bool,
    block: i64,
    output: &Output,
) -> Result<Tensor> {
    let columns = writer.known_extent(&output.extents[output.extents.len() - 1])?;
    let rank = operand.extents.len();
    let (batch, depth) = (rank - 2, operand.extents[rank - if is_transposed { 1 } else { 2 }].clone());
    let mut extents = operand.extents[..batch].to_vec();
    extents.extend([Extent::Known(tiles::tile_count(columns, block)), depth, Extent::Known(block)]);
    let zero = constant(operand.dtype, 0.0)?;
    writer.add_block(&output.block_name("panels"), Part::Copy, (operand.dtype, &extents), |i| {
        let column = i[batch].mul(&index_constant(block)?)?.add(&i[batch + 2])?;
        let mut at = i[..batch].to_vec();
        let row = i[batch + 1].clone();
        at.extend(if is_transposed { [column.clone(), row] } else { [row, column.clone()] });
        let element = operand.element_at(&at)?;
        match columns % block {
            0 => Ok(element),
            _ => column.less(&index_constant(columns)?)?.if_then_else(&element, &zero),
        }
    })
}

fn sum_einsum(writer: &mut Writer, equation: &str, inputs: &[Tensor], output: &Output) -> Result<Tensor> {
    let types = inputs.iter().map(|input| Ok(TensorType::new(input.dtype, &writer.known_extents(&input.extents)?)));
    let types = types.collect::<Result<Vec<TensorType>>>()?;
    let unsupported = |why: String| LowerError::Unsupported { operator: "einsum".to_owned(), why };
    let equation = Equation::read_equation(equation, &types.iter().collect::<Vec<_>>()).map_err(unsupported)?;
    let extents = TensorType { dtype: output.dtype, shape: equation.extents.clone() }.extents();
    let extents = known_sizes(&extents.expect("all extents are constant"));
    let axes = equation
        .summed
        .iter()
        .enumerate()
        .map(|(place, &letter)| loop_axis(&format!("r{place}"), &extents[letter], true))
        .collect::<std::result::Result<Vec<_>, _>>()?;
    writer.add_block(&output.block_name("einsum"), Part::Anchor, output.element_type(), |i| {
        let variable = |letter: usize| match equation.output.iter().position(|&used| used == letter) {
            Some(place) => i[place].clone(),
            None => {
                let place = equation.summed.iter().position(|&used| used == letter).expect("summed or kept");
                axes[place].variable.clone()
            }
        };
        let mut product: Option<Expression> = None;
        for (input, letters) in inputs.iter().zip(&equation.operands) {
            let places = letters.iter().zip(&input.extents);
            let at = places
                .map(|(&letter, extent)| if extent.is_always(1) { index_constant(0) } else { Ok(variable(letter)) })
                .collect::<std::result::Result<Vec<_>, _>>()?;
            let read = input.element_at(&at)?;
            let wide = if input.dtype == output.dtype { read } else { read.cast(output.dtype)? };
            product = Some(match product {
                None => wide,
                Some(product) => product.mul(&wide)?,
            });
        }
        let product = product.expect("an equation has at least one operand");
        if axes.is_empty() { Ok(product) } else { reduce_axes(Reduction::Sum, output.dtype, &product, &axes) }
    })
}

fn blocked_extents(writer: &Writer, extents: &[Extent], dimension: usize, block: i64) -> Result<Vec<Extent>> {
    let mut blocked = extents.to_vec();
    blocked[dimension] = Extent::Known(tiles::tile_count(writer.known_extent(&extents[dimension])?, block));
    blocked.push(Extent::Known(block));
    Ok(blocked)
}

/// Returns the block size of a blocked layout, else None. With `must_divide`, fails if it does not divide `extent`.
fn block_of(writer: &Writer, extent: &Extent, must_divide: bool) -> Result<Option<i64>> {
    let Layout::Blocked { block } = writer.layout else { return Ok(None) };
    let extent = writer.known_extent(extent)?;
    if block > 0 && (extent % block == 0 || !must_divide) {
        return Ok(Some(block));
    }
    Err(LowerError::Unsupported {
        operator: "contraction".to_owned(),
        why: format!("the block size {block} does not divide the extent {extent}"),
    })
}
