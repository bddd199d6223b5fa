//! How operands are stored for a point, and in what form its task is lowered.

use crate::axes::{BLOCK, FUNCTIONS, LAYOUT, PAD_AT, TILE_X, TILE_Y, WINDOWS, winograd_tile};
use crate::choices::{Bytes, CopyAt, Functions, LayoutKind, PadAt, SumOrder, Unit, Windows, YesNo};
use crate::contraction::{COPY_AT, ORDER, VECTORIZE};
use crate::dots::{BYTES, DOTS_X};
use crate::gpu::{UNIT, tensor};
use crate::knobs::Knobs;

/// How constant operands are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// As the task says.
    Plain,
    /// The output's channels (or columns) in blocks of this extent.
    Blocked {
        /// Extent of the innermost dimension.
        block: i64,
    },
    /// A convolution with four neighbours along the depth in one number, for instructions that multiply bytes.
    Dots {
        /// The columns of the result are computed up to a multiple of this.
        columns: i64,
        /// Whether data has a sign in products.
        is_signed: bool,
    },
    /// The same of a product of matrices, its columns in blocks.
    BlockedDots {
        /// Extent of the innermost dimension.
        block: i64,
        /// Whether data has a sign in products.
        is_signed: bool,
    },
    /// A convolution as a product of matrices: of its weights, and of its windows as columns.
    Columns {
        /// Zeros make the number of columns a multiple of this.
        multiple: i64,
    },
    /// A convolution by Winograd's products, the output's channels in blocks.
    Winograd {
        /// Extent of a tile of the result.
        tile: i64,
        /// Extent of the innermost dimension.
        block: i64,
    },
}

/// A convolution that sums the products at one place of a window after those at another. Where all that a tile reads is
/// padding there is nothing to sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByTaps {
    /// Rows and columns of a register tile, where the padded input is a copy: it needs no padding that no tile reads.
    pub tile: Option<[i64; 2]>,
}

impl Knobs {
    /// The layout the task must be lowered in.
    pub fn layout(&self) -> Layout {
        let block = BLOCK.or_one(self);
        if let Some(tile) = winograd_tile(self) {
            return Layout::Winograd { tile, block };
        }
        let is_signed = BYTES.is(self, Bytes::Signed);
        match (LAYOUT.of(self), DOTS_X.of(self)) {
            (Some(LayoutKind::Blocked), _) => Layout::Blocked { block },
            (Some(LayoutKind::Dots), Some(columns)) => Layout::Dots { columns, is_signed },
            (Some(LayoutKind::Dots), None) => Layout::BlockedDots { block, is_signed },
            _ if UNIT.is(self, Unit::Tensor) => Layout::Columns { multiple: tensor::columns(self) },
            _ => Layout::Plain,
        }
    }

    /// The columns of a convolution's sums are filled up to a multiple of this: to whole register tiles.
    pub fn columns(&self) -> i64 {
        match self.layout() {
            Layout::Plain | Layout::Blocked { .. } => TILE_X.or_one(self),
            Layout::BlockedDots { .. } | Layout::Dots { .. } | Layout::Columns { .. } | Layout::Winograd { .. } => 1,
        }
    }

    /// Whether the innermost loop becomes vectors.
    pub fn has_vectors(&self) -> bool {
        VECTORIZE.is(self, YesNo::Yes)
    }

    /// Whether and how products at one place of a window are summed after those at another.
    pub fn by_taps(&self) -> Option<ByTaps> {
        let is_copied = PAD_AT.is(self, PadAt::Root);
        let tile = is_copied.then(|| [TILE_Y.or_one(self), TILE_X.or_one(self)]);
        ORDER.is(self, SumOrder::KernelFirst).then_some(ByTaps { tile })
    }

    /// Whether a pool reduces the columns of windows before the rows of what these come to.
    pub fn columns_first(&self) -> bool {
        WINDOWS.is(self, Windows::ColumnsFirst)
    }

    /// Whether what tiles read is copied, so that it lies together.
    pub fn copies(&self) -> bool {
        COPY_AT.of(self).is_some_and(|at| at != CopyAt::No)
    }

    /// How exponentials and their kin are computed.
    pub fn functions(&self) -> Functions {
        FUNCTIONS.of(self).unwrap_or(Functions::Vector)
    }
}
