//! A convolution of 3 × 3 filters by Winograd's products, see [`schedules::transforms`].
//!
//! The padded input has its channels innermost. Windows overlap by two places; each is transformed along its rows, then
//! along its columns. The anchor is one product of matrices for each number of a transformed window. Its sums are
//! transformed back, along rows and columns, and a last block puts them into the task's order.

use super::movement::padded_at;
use super::products::with_leading;
use super::{LowerError, Output, Part, Result, Writer, known};
use crate::tvm::TvmError;
use crate::tvm::expression::{Axis, Expression, Reduction, Tensor, axis, constant, index, reduce};
use models::DType;
use schedules::tiles::count;
use schedules::transforms::{KERNEL, reached, transforms};

type Element = std::result::Result<Expression, TvmError>;

/// Filters move in steps of one over one group; `pads` are all heads, then all tails.
pub(super) fn conv(
    writer: &mut Writer,
    pads: &[i64],
    (data, weight): (&Tensor, &Tensor),
    (tile, block): (i64, i64),
    output: &Output,
) -> Result<Tensor> {
    let is_small = writer.kernel == [KERNEL as i64; 2] && data.dtype == DType::F32;
    let transforms = transforms(tile).filter(|_| is_small).ok_or_else(unsupported)?;
    let form = WinogradForm { dtype: data.dtype, output };
    let window = transforms.window_extent();
    let [images, sources] = [writer.number(&data.extents[0])?, writer.number(&data.extents[1])?];
    let extents = writer.numbers(&output.extents)?;
    let blocks = count(extents[1], block);
    let tiles = [extents[2], extents[3]].map(|places| (places + tile - 1) / tile);
    let reached = tiles.map(|tiles| reached(tiles * tile));

    let padded = form.padded(writer, data, pads, &[images, reached[0], reached[1], sources])?;
    let like = known(&[window, images, tiles[0], reached[1], sources]);
    let rows = writer.block(&output.name("winograd_rows"), Part::Helper, (data.dtype, &like), |i| {
        let read = |at: i64| padded.at(&[i[1].clone(), moved(&i[2], tile, at)?, i[3].clone(), i[4].clone()]);
        form.chosen(transforms.window, &i[0], read)
    })?;
    let like = known(&[window, window, images, tiles[0], tiles[1], sources]);
    let windows = writer.block(&output.name("winograd_windows"), Part::Windows, (data.dtype, &like), |i| {
        let read =
            |at: i64| rows.at(&[i[0].clone(), i[2].clone(), i[3].clone(), moved(&i[4], tile, at)?, i[5].clone()]);
        form.chosen(transforms.window, &i[1], read)
    })?;
    let channel: Axis = axis("rc", &data.extents[1], true)?;
    let like = known(&[window, window, blocks, images, tiles[0], tiles[1], block]);
    let products = writer.block(&output.name("conv_winograd"), Part::Anchor, (output.dtype, &like), |i| {
        let at = |places: &[usize]| places.iter().map(|&place| i[place].clone()).collect::<Vec<_>>();
        let left = windows.at(&[at(&[0, 1, 3, 4, 5]), vec![channel.variable.clone()]].concat())?;
        let right = weight.at(&[at(&[0, 1, 2]), vec![channel.variable.clone()], at(&[6])].concat())?;
        reduce(Reduction::Sum, output.dtype, &left.mul(&right)?, std::slice::from_ref(&channel))
    })?;
    let like = known(&[tile, window, blocks, images, tiles[0], tiles[1], block]);
    let back = writer.block(&output.name("winograd_back"), Part::Helper, (output.dtype, &like), |i| {
        let read = |at: i64| products.at(&[&[index(at)?], &i[1..]].concat());
        form.chosen(transforms.result, &i[0], read)
    })?;
    let like = known(&[images, blocks, tiles[0], tile, tiles[1], tile, block]);
    let tiled = writer.block(&output.name("winograd_tiles"), Part::Helper, (output.dtype, &like), |i| {
        let read = |at: i64| {
            let places = [1, 0, 2, 4, 6].map(|place| i[place].clone());
            back.at(&[&[i[3].clone(), index(at)?], &places[..]].concat())
        };
        form.chosen(transforms.result, &i[5], read)
    })?;
    writer.block(&output.name("unblock"), Part::Epilogue, output.like(), |i| {
        let (tile, block) = (index(tile)?, index(block)?);
        let split = |place: &Expression, by: &Expression| Ok([place.floor_div(by)?, place.floor_mod(by)?]);
        let ([outer, lane], [y, dy], [x, dx]) = (split(&i[1], &block)?, split(&i[2], &tile)?, split(&i[3], &tile)?);
        tiled.at(&[i[0].clone(), outer, y, dy, x, dx, lane])
    })
}

/// That this is no convolution for Winograd's products.
pub(super) fn unsupported() -> LowerError {
    let why = "Winograd's products are for filters of 3 x 3 in steps of one, of one group of 32-bit floats".to_owned();
    LowerError::Unsupported { operator: "conv".to_owned(), why }
}

struct WinogradForm<'a> {
    dtype: DType,
    output: &'a Output,
}

impl WinogradForm<'_> {
    /// The input with its channels last, surrounded by zeros as far as windows reach.
    fn padded(&self, writer: &mut Writer, data: &Tensor, pads: &[i64], extents: &[i64]) -> Result<Tensor> {
        let own = writer.numbers(&data.extents)?;
        let zero = constant(self.dtype, 0.0)?;
        let heads = with_leading(&pads[..2]);
        let tails = with_leading(&[0, 1].map(|d| (extents[1 + d] - pads[d] - own[2 + d]).max(0)));
        writer.block(&self.output.name("pad_temp"), Part::Pad, (self.dtype, &known(extents)), |i| {
            let at = [i[0].clone(), i[3].clone(), i[1].clone(), i[2].clone()];
            padded_at(data, (&heads, &tails), &at, &zero)
        })
    }

    /// One row of a matrix times what is read: the row that an index says, which is a number once its loop is written out.
    fn chosen(&self, matrix: &[&[f64]], row: &Expression, read: impl Fn(i64) -> Element) -> Element {
        let (last, others) = matrix.split_last().expect("a matrix has rows");
        let mut chosen = self.sum(last, &read)?;
        for (place, factors) in others.iter().enumerate().rev() {
            chosen = row.equal(&index(place as i64)?)?.select(&self.sum(factors, &read)?, &chosen)?;
        }
        Ok(chosen)
    }

    /// Factors times what is read; no product by one or zero.
    fn sum(&self, factors: &[f64], read: &impl Fn(i64) -> Element) -> Element {
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

/// A place within the window of a tile.
fn moved(tile: &Expression, extent: i64, by: i64) -> Element {
    tile.mul(&index(extent)?)?.add(&index(by)?)
}
