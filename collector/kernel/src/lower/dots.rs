//! Lowers products of bytes to products of quads: four adjacent bytes along the depth, packed into a 32-bit integer.
//! For convolutions, a first block packs the data, padded with its zero point, and converts bytes to the signedness
//! that the instructions require. The weight is stored with the sum of each row, for the contribution of the data's
//! zero point. Columns may be padded to whole tiles; a last block then selects the valid columns.

use super::products::{ConvShape, split_digits};
use super::{Element, Indices, Output, Part, Result, Writer, known_sizes};
use crate::tvm::TvmError;
use crate::tvm::dots::{Pair, sum_pairs};
use crate::tvm::expression::{
    Axis, Expression, Extent, Reduction, Tensor, constant, index_constant, loop_axis, reduce_axes,
};
use job::space::dots::{QUAD, is_flat};
use models::{DType, Op};
use schedules::tiles::{filled_extent, tile_count};

pub(super) struct DotTile {
    pub(super) columns: i64,
    pub(super) is_signed: bool,
}

/// Mask that flips the sign bit of all four bytes of a quad.
const SIGNS: i64 = 0x8080_8080_u32.cast_signed() as i64;

/// Lowers a convolution of bytes whose weight has no zero point.
pub(super) fn convolve_bytes(
    writer: &mut Writer,
    op: &Op,
    convolution: &ConvShape<'_>,
    tile: &DotTile,
    (data, weight): (&Tensor, &Tensor),
    output: &Output,
) -> Result<Tensor> {
    let kernel = writer.kernel.clone();
    let extents = spatial_extents(writer, &output.extents)?;
    let depth = writer.known_extent(&data.extents[1])? / convolution.window.groups;
    let is_flat = is_flat(op, &kernel);
    let mut places = extents.clone();
    if is_flat {
        places = vec![1; kernel.len()];
        places[kernel.len() - 1] = extents.iter().product();
    }
    let columns = places[places.len() - 1];
    let padded = filled_extent(columns, tile.columns);
    let shape = DotShape { places: &places, kernel: &kernel, depth, padded, convolution, is_signed: tile.is_signed };
    let quads = match (is_flat, depth) {
        (true, _) => shape.flat_quads(writer, data, &output.block_name("quads"))?,
        (false, 1) => shape.quads_of_columns(writer, data, output)?,
        (false, _) => shape.quads_of_depth(writer, data, output)?,
    };
    let mut wide = places.clone();
    wide[kernel.len() - 1] = padded;
    let whole = with_channels(&output.extents[0], output.extents[1].clone(), &wide);
    let axes = shape.reduction_axes()?;
    let channels = writer.known_extent(&output.extents[1])?;
    let sums = writer.add_block(&output.block_name("dots"), Part::Anchor, (output.dtype, &whole), |i| {
        let pair = Pair { data: &quads.element_at(&shape.quad_index(i, &axes, channels)?)?, is_signed: tile.is_signed };
        sum_pairs(&pair, &stored_quad(weight, &i[1], &shape.weight_row(&axes)?)?, &axes)
    })?;
    let zero = constant(DType::I32, shape.shifted_zero(data.dtype) as f64)?;
    let less_zero = |element: Expression, channel: &Expression| -> Element {
        element.sub(&zero.mul(&stored_quad(weight, channel, &index_constant(0)?)?)?)
    };
    if padded == columns {
        return writer.add_block(&output.block_name("less_zero"), Part::Epilogue, output.element_type(), |i| {
            less_zero(sums.element_at(&index_in_sums(&wide, i, &extents)?)?, &i[1])
        });
    }
    let result = writer.add_block(&output.block_name("less_zero"), Part::Epilogue, (output.dtype, &whole), |i| {
        less_zero(sums.element_at(i)?, &i[1])
    })?;
    writer.padded = Some(whole);
    Ok(result)
}

pub(super) fn cut_columns(writer: &mut Writer, padded: &Tensor, extents: &[Extent]) -> Result<Tensor> {
    let (numbers, wide) = (spatial_extents(writer, extents)?, spatial_extents(writer, &padded.extents)?);
    writer.add_block("cut", Part::Cut, (padded.dtype, extents), |i| {
        padded.element_at(&index_in_sums(&wide, i, &numbers)?)
    })
}

fn spatial_extents(writer: &Writer, extents: &[Extent]) -> Result<Vec<i64>> {
    writer.known_extents(&extents[2..])
}

fn with_channels(images: &Extent, channels: Extent, rest: &[i64]) -> Vec<Extent> {
    [images.clone(), channels].into_iter().chain(known_sizes(rest)).collect()
}

/// Returns the index in the tensor of sums, whose spatial dimensions may be flattened, of the result element `at`.
fn index_in_sums(wide: &[i64], at: &[Expression], extents: &[i64]) -> Indices {
    let last = wide.len() - 1;
    if wide[..last] == extents[..last] {
        return Ok(at.to_vec());
    }
    let mut column = at[2].clone();
    for (place, &extent) in at[3..].iter().zip(&extents[1..]) {
        column = column.mul(&index_constant(extent)?)?.add(place)?;
    }
    let mut place = at[..2].to_vec();
    place.extend((0..last).map(|_| index_constant(0)).collect::<std::result::Result<Vec<_>, _>>()?);
    place.push(column);
    Ok(place)
}

/// Lowers a product of bytes: data quads are broadcast, lanes are columns of a block of the packed weight.
pub(super) fn multiply_bytes(
    writer: &mut Writer,
    [x_zero, w_zero]: [i64; 2],
    (block, is_signed): (i64, bool),
    (data, weight): (&Tensor, &Tensor),
    output: &Output,
) -> Result<Tensor> {
    let last = data.extents.len() - 1;
    let depth = writer.known_extent(&data.extents[last])?;
    let mut extents = data.extents.clone();
    extents[last] = Extent::Known(tile_count(depth, QUAD));
    let quads = writer.add_block(&output.block_name("quads"), Part::Quads, (DType::I32, &extents), |i| {
        let quad = pack_quad(|byte| {
            let mut at = i.to_vec();
            at[last] = at[last].mul(&index_constant(QUAD)?)?.add(&index_constant(byte)?)?;
            let element = data.element_at(&at)?;
            if depth % QUAD == 0 {
                return Ok(element);
            }
            at[last].less(&index_constant(depth)?)?.if_then_else(&element, &constant(data.dtype, 0.0)?)
        })?;
        convert_sign(quad, data.dtype, is_signed)
    })?;
    let step = loop_axis("k", &extents[last], true)?;
    let mut blocked = output.extents.clone();
    blocked[last] = weight.extents[0].clone();
    blocked.push(Extent::Known(block));
    let sums = writer.add_block(&output.block_name("dots"), Part::Anchor, (output.dtype, &blocked), |i| {
        let mut at = i[..last].to_vec();
        at.push(step.variable.clone());
        let pair = Pair { data: &quads.element_at(&at)?, is_signed };
        let row = [i[last].clone(), step.variable.add(&index_constant(1)?)?, i[last + 1].clone()];
        sum_pairs(&pair, &weight.element_at(&row)?, std::slice::from_ref(&step))
    })?;
    let number = |number: i64| constant(DType::I32, number as f64);
    // The correction for the weight's zero point depends on the sum of each data row.
    let step = loop_axis("b", &data.extents[last], true)?;
    let rows = (w_zero != 0).then(|| {
        writer.add_block(&output.block_name("rows"), Part::Helper, (DType::I32, &data.extents[..last]), |i| {
            let mut at = i.to_vec();
            at.push(step.variable.clone());
            reduce_axes(
                Reduction::Sum,
                DType::I32,
                &data.element_at(&at)?.cast(DType::I32)?,
                std::slice::from_ref(&step),
            )
        })
    });
    let rows = rows.transpose()?;
    let zero = number(x_zero + sign_shift(data.dtype, is_signed))?;
    writer.add_block(&output.block_name("less_zero"), Part::Epilogue, output.element_type(), |i| {
        let (outer, lane) = (i[last].floor_div(&index_constant(block)?)?, i[last].floor_mod(&index_constant(block)?)?);
        let at = i[..last].iter().cloned().chain([outer.clone(), lane.clone()]).collect::<Vec<_>>();
        let sum = sums.element_at(&at)?.sub(&zero.mul(&weight.element_at(&[outer, index_constant(0)?, lane])?)?)?;
        match &rows {
            None => Ok(sum),
            Some(rows) => {
                let row = rows.element_at(&i[..last])?.sub(&number(depth * x_zero)?)?;
                sum.sub(&row.mul(&number(w_zero)?)?)
            }
        }
    })
}

/// Returns the offset that, added to each byte, gives the signedness that the dot products require.
fn sign_shift(dtype: DType, is_signed: bool) -> i64 {
    const SHIFT: i64 = 128;
    match (dtype, is_signed) {
        (DType::I8, false) => SHIFT,
        (DType::I8, true) | (_, false) => 0,
        (_, true) => -SHIFT,
    }
}

fn convert_sign(whole: Expression, dtype: DType, is_signed: bool) -> Element {
    if sign_shift(dtype, is_signed) == 0 { Ok(whole) } else { whole.bit_xor(&constant(DType::I32, SIGNS as f64)?) }
}

fn stored_quad(weight: &Tensor, row: &Expression, place: &Expression) -> Element {
    weight.element_at(&[row.clone(), place.clone(), index_constant(0)?])
}

/// Packs four bytes into one integer, little-endian.
fn pack_quad(mut byte: impl FnMut(i64) -> Element) -> Element {
    const BITS: i64 = 8;
    let mut whole: Option<Expression> = None;
    for place in 0..QUAD {
        let mut wide = byte(place)?.cast(DType::U8)?.cast(DType::I32)?;
        if place > 0 {
            wide = wide.shift_left(&constant(DType::I32, (BITS * place) as f64)?)?;
        }
        whole = Some(match whole {
            Some(whole) => whole.bit_or(&wide)?,
            None => wide,
        });
    }
    Ok(whole.expect("a quad has bytes"))
}

struct DotShape<'a> {
    places: &'a [i64],
    kernel: &'a [i64],
    depth: i64,
    /// Extent of the last spatial dimension, rounded up to whole tiles.
    padded: i64,
    convolution: &'a ConvShape<'a>,
    is_signed: bool,
}

impl DotShape<'_> {
    fn shifted_zero(&self, dtype: DType) -> i64 {
        self.convolution.zeros[0] + sign_shift(dtype, self.is_signed)
    }

    fn last_dimension(&self) -> usize {
        self.kernel.len() - 1
    }

    /// Returns whether a quad holds four adjacent columns of a row, because the depth is 1.
    fn has_columns(&self) -> bool {
        self.depth == 1
    }

    /// Returns the number of quads per kernel position, or per kernel row if quads are along rows.
    fn quad_count(&self) -> i64 {
        let along = if self.has_columns() { self.kernel[self.last_dimension()] } else { self.depth };
        tile_count(along, QUAD)
    }

    fn reduction_axes(&self) -> std::result::Result<Vec<Axis>, TvmError> {
        let taps = if self.has_columns() { self.last_dimension() } else { self.kernel.len() };
        let taps = self.kernel[..taps].iter().enumerate();
        let mut axes = taps
            .map(|(d, &extent)| loop_axis(&format!("r{d}"), &Extent::Known(extent), true))
            .collect::<std::result::Result<Vec<_>, _>>()?;
        axes.push(loop_axis("rc", &Extent::Known(self.quad_count()), true)?);
        Ok(axes)
    }

    fn weight_row(&self, axes: &[Axis]) -> Element {
        let mut row = index_constant(0)?;
        for (axis, extent) in axes.iter().zip(self.kernel.iter().copied()).take(axes.len() - 1) {
            row = row.mul(&index_constant(extent)?)?.add(&axis.variable)?;
        }
        row.mul(&index_constant(self.quad_count())?)?.add(&axes[axes.len() - 1].variable)?.add(&index_constant(1)?)
    }

    fn depth_quads(&self) -> Extent {
        Extent::Known(self.convolution.window.groups * self.quad_count())
    }

    fn column_stride(&self) -> i64 {
        self.convolution.window.strides[self.last_dimension()]
    }

    /// Returns the distance between the first and the last input column that an output column reads.
    fn tap_reach(&self) -> i64 {
        let taps = if self.has_columns() { self.quad_count() * QUAD } else { self.kernel[self.last_dimension()] };
        (taps - 1) * self.convolution.window.dilations[self.last_dimension()]
    }

    fn rows_at(&self, i: &[Expression], taps: &[Axis]) -> Indices {
        (0..self.last_dimension())
            .map(|d| {
                let tap = taps[d].variable.mul(&index_constant(self.convolution.window.dilations[d])?)?;
                i[2 + d].mul(&index_constant(self.convolution.window.strides[d])?)?.add(&tap)
            })
            .collect()
    }

    fn split_phase(&self, behind: &Expression, column: &Expression) -> std::result::Result<[Expression; 2], TvmError> {
        let stride = index_constant(self.column_stride())?;
        Ok([behind.floor_mod(&stride)?, column.add(&behind.floor_div(&stride)?)?])
    }

    fn quad_index(&self, i: &[Expression], axes: &[Axis], channels: i64) -> Indices {
        let (group, last) = (&axes[axes.len() - 1].variable, self.last_dimension());
        let per_group = channels / self.convolution.window.groups;
        let source = match (self.convolution.window.groups, per_group) {
            (1, _) => index_constant(0)?,
            (_, 1) => i[1].clone(),
            _ => i[1].floor_div(&index_constant(per_group)?)?,
        };
        let mut at = vec![i[0].clone()];
        if self.has_columns() {
            at.push(source);
            at.extend(self.rows_at(i, axes)?);
            at.extend([group.clone(), i[2 + last].clone()]);
            return Ok(at);
        }
        at.push(source.mul(&index_constant(self.quad_count())?)?.add(group)?);
        at.extend(self.rows_at(i, axes)?);
        let behind = axes[last].variable.mul(&index_constant(self.convolution.window.dilations[last])?)?;
        at.extend(self.split_phase(&behind, &i[2 + last])?);
        Ok(at)
    }

    /// Reads one byte of a quad along the depth, or zero beyond the last channel.
    fn byte_of_depth(
        &self,
        data: &Tensor,
        (image, group): (&Expression, &Expression),
        byte: i64,
        place: &[Expression],
    ) -> Element {
        let groups = index_constant(self.quad_count())?;
        let within = group.floor_mod(&groups)?.mul(&index_constant(QUAD)?)?.add(&index_constant(byte)?)?;
        let channel = group.floor_div(&groups)?.mul(&index_constant(self.depth)?)?.add(&within)?;
        let mut at = vec![image.clone(), channel];
        at.extend_from_slice(place);
        let element = data.element_at(&at)?;
        if self.depth % QUAD == 0 {
            return Ok(element);
        }
        within.less(&index_constant(self.depth)?)?.if_then_else(&element, &constant(data.dtype, 0.0)?)
    }

    /// Packs quads along the depth, with positions flattened into one row: `[n, depth / 4, 1…, column]`.
    fn flat_quads(&self, writer: &mut Writer, data: &Tensor, name: &str) -> Result<Tensor> {
        let read = spatial_extents(writer, &data.extents)?;
        let whole = self.places[self.last_dimension()];
        let rest = [&self.places[..self.last_dimension()], &[1, self.padded]].concat();
        let extents = with_channels(&data.extents[0], self.depth_quads(), &rest);
        writer.add_block(name, Part::Quads, (DType::I32, &extents), |i| {
            let column = &i[extents.len() - 1];
            let place = split_digits(column, &read)?;
            let quad = pack_quad(|byte| self.byte_of_depth(data, (&i[0], &i[1]), byte, &place))?;
            let quad = convert_sign(quad, data.dtype, self.is_signed)?;
            if self.padded == whole {
                return Ok(quad);
            }
            column.less(&index_constant(whole)?)?.if_then_else(&quad, &constant(DType::I32, 0.0)?)
        })
    }

    /// Packs quads along the depth: `[n, depth / 4, rows…, column % stride, column / stride]`.
    fn quads_of_depth(&self, writer: &mut Writer, data: &Tensor, output: &Output) -> Result<Tensor> {
        let bytes = self.padded_bytes(writer, data, output)?;
        let mut extents = bytes.extents.clone();
        extents[1] = self.depth_quads();
        writer.add_block(&output.block_name("quads"), Part::Quads, (DType::I32, &extents), |i| {
            let quad = pack_quad(|byte| self.byte_of_depth(&bytes, (&i[0], &i[1]), byte, &i[2..]))?;
            convert_sign(quad, data.dtype, self.is_signed)
        })
    }

    /// Packs quads along a row, for depth 1: `[n, channel, rows…, quad of kernel columns, column]`.
    fn quads_of_columns(&self, writer: &mut Writer, data: &Tensor, output: &Output) -> Result<Tensor> {
        let bytes = self.padded_bytes(writer, data, output)?;
        let rows = 2 + self.last_dimension();
        let mut extents = bytes.extents[..rows].to_vec();
        extents.extend(known_sizes(&[self.quad_count(), self.padded]));
        writer.add_block(&output.block_name("quads"), Part::Quads, (DType::I32, &extents), |i| {
            let quad = pack_quad(|byte| {
                let tap = i[rows].mul(&index_constant(QUAD)?)?.add(&index_constant(byte)?)?;
                let behind = tap.mul(&index_constant(self.convolution.window.dilations[self.last_dimension()])?)?;
                let mut at = i[..rows].to_vec();
                at.extend(self.split_phase(&behind, &i[rows + 1])?);
                bytes.element_at(&at)
            })?;
            convert_sign(quad, data.dtype, self.is_signed)
        })
    }

    /// Pads with the zero point and splits columns: `[n, channel, rows…, column % stride, column / stride]`.
    fn padded_bytes(&self, writer: &mut Writer, data: &Tensor, output: &Output) -> Result<Tensor> {
        let (stride, rows) = (self.column_stride(), 2 + self.last_dimension());
        let all = |rest: &[i64]| with_channels(&data.extents[0], data.extents[1].clone(), rest);
        let mut extents = Vec::new();
        for d in 0..self.last_dimension() {
            let reach = (self.kernel[d] - 1) * self.convolution.window.dilations[d] + 1;
            extents.push((self.places[d] - 1) * self.convolution.window.strides[d] + reach);
        }
        let phases = [stride.min(self.tap_reach() + 1), self.padded + self.tap_reach() / stride];
        if stride == 1 {
            extents.extend(phases);
            return self.surround_data(writer, data, &output.block_name("pad_temp"), &all(&extents), |i| {
                [&i[..rows], &i[rows + 1..]].concat()
            });
        }
        extents.push(phases[1] * stride);
        let bytes =
            self.surround_data(writer, data, &output.block_name("pad_temp"), &all(&extents), <[Expression]>::to_vec)?;
        extents.pop();
        extents.extend(phases);
        writer.add_block(&output.block_name("phases"), Part::Pad, (data.dtype, &all(&extents)), |i| {
            let mut at = i[..rows].to_vec();
            at.push(i[rows + 1].mul(&index_constant(stride)?)?.add(&i[rows])?);
            bytes.element_at(&at)
        })
    }

    /// Pads the data with its zero point; `place` maps an element of the result to its position in the data.
    fn surround_data(
        &self,
        writer: &mut Writer,
        data: &Tensor,
        name: &str,
        extents: &[Extent],
        place: impl Fn(&[Expression]) -> Vec<Expression>,
    ) -> Result<Tensor> {
        let (read, padded) = (spatial_extents(writer, &data.extents)?, spatial_extents(writer, extents)?);
        let zero = constant(data.dtype, self.convolution.zeros[0] as f64)?;
        writer.add_block(name, Part::Pad, (data.dtype, extents), |i| {
            let mut at = place(i);
            let mut inside: Option<Expression> = None;
            for (d, at) in at[2..].iter_mut().enumerate() {
                let head = self.convolution.window.pads[d];
                let extent = if d == self.last_dimension() { padded[padded.len() - 1] } else { padded[d] };
                *at = at.sub(&index_constant(head)?)?;
                if head > 0 {
                    inside =
                        Some(super::movement::join_conditions(inside, at.at_least(&index_constant(0)?)?.likely()?)?);
                }
                if extent - head > read[d] {
                    inside =
                        Some(super::movement::join_conditions(inside, at.less(&index_constant(read[d])?)?.likely()?)?);
                }
            }
            let element = data.element_at(&at)?;
            match inside {
                Some(inside) => inside.if_then_else(&element, &zero),
                None => Ok(element),
            }
        })
    }
}
