//! Storage formats of operands for a schedule, and the computation that the task is lowered to.

use crate::axes::{BLOCK, FUNCTIONS, LAYOUT, PAD_AT, TILE_X, TILE_Y, WINDOWS, winograd_tile};
use crate::choices::{Bytes, CopyAt, Functions, LayoutKind, PadAt, SumOrder, Unit, Windows, YesNo};
use crate::contraction::{COPY_AT, ORDER, VECTORIZE};
use crate::dots::{BYTES, DOTS_X};
use crate::gpu::{UNIT, tensor};
use crate::knobs::Knobs;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Same layout as in the task.
    Plain,
    /// Blocks of output channels (or of a product's columns).
    Blocked { block: i64 },
    /// Convolution with four bytes along the depth in one number, for 8-bit dot-product instructions.
    Dots {
        /// The columns of the result are padded to a multiple of this number.
        columns: i64,
        is_signed: bool,
    },
    /// Matrix product with groups of four bytes as in `Dots`, and columns in blocks.
    BlockedDots { block: i64, is_signed: bool },
    /// Convolution as a product of a weight matrix and a matrix of windows (implicit GEMM).
    Columns {
        /// The columns are padded with zeros to a multiple of this number.
        multiple: i64,
    },
    /// Winograd's algorithm, with output channels in blocks.
    Winograd { tile: i64, block: i64 },
}

/// Computes a convolution tap by tap; for each tile, taps that read only padding are skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByTaps {
    /// Rows and columns of a register tile if padded input is copied: the copy needs only the padding that tiles read.
    pub tile: Option<[i64; 2]>,
}

impl Knobs {
    pub fn layout(&self) -> Layout {
        let block = BLOCK.or_one(self);
        if let Some(tile) = winograd_tile(self) {
            return Layout::Winograd { tile, block };
        }
        let is_signed = BYTES.is_set_to(self, Bytes::Signed);
        match (LAYOUT.setting_in(self), DOTS_X.setting_in(self)) {
            (Some(LayoutKind::Blocked), _) => Layout::Blocked { block },
            (Some(LayoutKind::Dots), Some(columns)) => Layout::Dots { columns, is_signed },
            (Some(LayoutKind::Dots), None) => Layout::BlockedDots { block, is_signed },
            _ if UNIT.is_set_to(self, Unit::Tensor) => Layout::Columns { multiple: tensor::block_columns(self) },
            _ => Layout::Plain,
        }
    }

    /// Returns the register tile's width; the columns of a convolution are padded to a multiple of this width.
    pub fn column_multiple(&self) -> i64 {
        match self.layout() {
            Layout::Plain | Layout::Blocked { .. } => TILE_X.or_one(self),
            Layout::BlockedDots { .. } | Layout::Dots { .. } | Layout::Columns { .. } | Layout::Winograd { .. } => 1,
        }
    }

    pub fn has_vectors(&self) -> bool {
        VECTORIZE.is_set_to(self, YesNo::Yes)
    }

    pub fn by_taps(&self) -> Option<ByTaps> {
        let is_copied = PAD_AT.is_set_to(self, PadAt::Root);
        let tile = is_copied.then(|| [TILE_Y.or_one(self), TILE_X.or_one(self)]);
        ORDER.is_set_to(self, SumOrder::KernelFirst).then_some(ByTaps { tile })
    }

    pub fn columns_first(&self) -> bool {
        WINDOWS.is_set_to(self, Windows::ColumnsFirst)
    }

    pub fn copies_operand(&self) -> bool {
        COPY_AT.setting_in(self).is_some_and(|at| at != CopyAt::No)
    }

    pub fn functions(&self) -> Functions {
        FUNCTIONS.setting_in(self).unwrap_or(Functions::Vector)
    }
}
