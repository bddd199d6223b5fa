//! Lowers convolutions of 3 × 3 filters by Winograd's algorithm, see [`schedules::transforms`]. Windows of the padded
//! input, channels innermost, are transformed along rows, then columns. The anchor is one matrix product per element of
//! a transformed window. Its sums are transformed back, and a last block restores the task's order.

use super::movement::padded_at;
use super::products::with_leading;
use super::{Element, LowerError, Output, Part, Result, Writer, known_sizes};
use crate::tvm::expression::{Axis, Expression, Reduction, Tensor, constant, index_constant, loop_axis, reduce_axes};
use models::DType;
use schedules::tiles::tile_count;
use schedules::transforms::{KERNEL, reached_positions, tile_transforms};

/// Lowers convolutions of stride 1 and one group. `pads` holds all leading padding, then all trailing padding.
pub(super) fn convolve_winograd(
    writer: &mut Writer,
    pads: &[i64],
    (data, weight): (&Tensor, &Tensor),
    (tile, block): (i64, i64),
    output: &Output,
) -> Result<Tensor> {
    let is_small = writer.kernel == [KERNEL as i64; 2] && data.dtype == DType::F32;
    let transforms = tile_transforms(tile).filter(|_| is_small).ok_or_else(unsupported_error)?;
    let form = WinogradForm { dtype: data.dtype, output };
    let window = transforms.window_extent();
    let [images, sources] = [writer.known_extent(&data.extents[0])?, writer.known_extent(&data.extents[1])?];
    let extents = writer.known_extents(&output.extents)?;
    let blocks = tile_count(extents[1], block);
    let tiles = [extents[2], extents[3]].map(|places| tile_count(places, tile));
    let reached = tiles.map(|tiles| reached_positions(tiles * tile));

    let padded = form.pad_channels_last(writer, data, pads, &[images, reached[0], reached[1], sources])?;
    let like = known_sizes(&[window, images, tiles[0], reached[1], sources]);
    let rows = writer.add_block(&output.block_name("winograd_rows"), Part::Helper, (data.dtype, &like), |i| {
        let read =
            |at: i64| padded.element_at(&[i[1].clone(), window_position(&i[2], tile, at)?, i[3].clone(), i[4].clone()]);
        form.multiply_row(transforms.window, &i[0], read)
    })?;
    let like = known_sizes(&[window, window, images, tiles[0], tiles[1], sources]);
    let windows =
        writer.add_block(&output.block_name("winograd_windows"), Part::Windows, (data.dtype, &like), |i| {
            let read = |at: i64| {
                rows.element_at(&[
                    i[0].clone(),
                    i[2].clone(),
                    i[3].clone(),
                    window_position(&i[4], tile, at)?,
                    i[5].clone(),
                ])
            };
            form.multiply_row(transforms.window, &i[1], read)
        })?;
    let channel: Axis = loop_axis("rc", &data.extents[1], true)?;
    let like = known_sizes(&[window, window, blocks, images, tiles[0], tiles[1], block]);
    let products = writer.add_block(&output.block_name("conv_winograd"), Part::Anchor, (output.dtype, &like), |i| {
        let at = |places: &[usize]| places.iter().map(|&place| i[place].clone()).collect::<Vec<_>>();
        let left = windows.element_at(&[at(&[0, 1, 3, 4, 5]), vec![channel.variable.clone()]].concat())?;
        let right = weight.element_at(&[at(&[0, 1, 2]), vec![channel.variable.clone()], at(&[6])].concat())?;
        reduce_axes(Reduction::Sum, output.dtype, &left.mul(&right)?, std::slice::from_ref(&channel))
    })?;
    let like = known_sizes(&[tile, window, blocks, images, tiles[0], tiles[1], block]);
    let back = writer.add_block(&output.block_name("winograd_back"), Part::Helper, (output.dtype, &like), |i| {
        let read = |at: i64| products.element_at(&[&[index_constant(at)?], &i[1..]].concat());
        form.multiply_row(transforms.result, &i[0], read)
    })?;
    let like = known_sizes(&[images, blocks, tiles[0], tile, tiles[1], tile, block]);
    let tiled = writer.add_block(&output.block_name("winograd_tiles"), Part::Helper, (output.dtype, &like), |i| {
        let read = |at: i64| {
            let places = [1, 0, 2, 4, 6].map(|place| i[place].clone());
            back.element_at(&[&[i[3].clone(), index_constant(at)?], &places[..]].concat())
        };
        form.multiply_row(transforms.result, &i[5], read)
    })?;
    writer.add_block(&output.block_name("unblock"), Part::Epilogue, output.element_type(), |i| {
        let (tile, block) = (index_constant(tile)?, index_constant(block)?);
        let split = |place: &Expression, by: &Expression| Ok([place.floor_div(by)?, place.floor_mod(by)?]);
        let ([outer, lane], [y, dy], [x, dx]) = (split(&i[1], &block)?, split(&i[2], &tile)?, split(&i[3], &tile)?);
        tiled.element_at(&[i[0].clone(), outer, y, dy, x, dx, lane])
    })
}

pub(super) fn unsupported_error() -> LowerError {
    let why = "Winograd's algorithm supports only 3 x 3 filters of stride 1, one group and 32-bit floats".to_owned();
    LowerError::Unsupported { operator: "conv".to_owned(), why }
}

struct WinogradForm<'a> {
    dtype: DType,
    output: &'a Output,
}

impl WinogradForm<'_> {
    /// Moves channels to the innermost dimension and pads with zeros, so that all windows are inside.
    fn pad_channels_last(&self, writer: &mut Writer, data: &Tensor, pads: &[i64], extents: &[i64]) -> Result<Tensor> {
        let own = writer.known_extents(&data.extents)?;
        let zero = constant(self.dtype, 0.0)?;
        let heads = with_leading(&pads[..2]);
        let tails = with_leading(&[0, 1].map(|d| (extents[1 + d] - pads[d] - own[2 + d]).max(0)));
        writer.add_block(&self.output.block_name("pad_temp"), Part::Pad, (self.dtype, &known_sizes(extents)), |i| {
            let at = [i[0].clone(), i[3].clone(), i[1].clone(), i[2].clone()];
            padded_at(data, (&heads, &tails), &at, &zero)
        })
    }

    /// Multiplies a matrix row by the vector that `read` returns. `row` is constant once its loop is unrolled.
    fn multiply_row(&self, matrix: &[&[f64]], row: &Expression, read: impl Fn(i64) -> Element) -> Element {
        let (last, others) = matrix.split_last().expect("a matrix has rows");
        let mut chosen = self.weighted_sum(last, &read)?;
        for (place, factors) in others.iter().enumerate().rev() {
            chosen = row.equal(&index_constant(place as i64)?)?.select(&self.weighted_sum(factors, &read)?, &chosen)?;
        }
        Ok(chosen)
    }

    /// Sums the products of factors and the values that `read` returns, without multiplications by zero or one.
    fn weighted_sum(&self, factors: &[f64], read: &impl Fn(i64) -> Element) -> Element {
        let mut sum: Option<Expression> = None;
        for (at, &factor) in (0..).zip(factors).filter(|(_, factor)| **factor != 0.0) {
            let number = read(at)?;
            let scaled = if factor.abs() == 1.0 { number } else { number.mul(&constant(self.dtype, factor.abs())?)? };
            sum = Some(match (sum, factor < 0.0) {
                (Some(sum), true) => sum.sub(&scaled)?,
                (Some(sum), false) => sum.add(&scaled)?,
                (None, true) => constant(self.dtype, 0.0)?.sub(&scaled)?,
                (None, false) => scaled,
            });
        }
        Ok(sum.expect("a row has a factor that is not zero"))
    }
}

fn window_position(tile: &Expression, extent: i64, by: i64) -> Element {
    tile.mul(&index_constant(extent)?)?.add(&index_constant(by)?)
}
