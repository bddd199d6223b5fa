//! What is computed: a convolution, a product of matrices as one, or a walk over elements, and what becomes of each sum.

use crate::core::Core;
use crate::instruction::AluOp;
use serde::{Deserialize, Serialize};

/// A layer of bytes. Operands are its data, its weights where it has any, and what its steps after the sum read, in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    /// What is summed.
    pub kind: Kind,
    /// How operands and the result lie outside of the core.
    pub tensors: Tensors,
    /// Images; of matrices, rows side by side.
    pub images: u32,
    /// Channels of the data.
    pub channels_in: u32,
    /// Rows of an image.
    pub height: u32,
    /// Places of a row.
    pub width: u32,
    /// Channels of the result.
    pub channels_out: u32,
    /// Rows and columns of a window.
    pub kernel: [u32; 2],
    /// From one window to the next, down and along.
    pub strides: [u32; 2],
    /// Zeros above, to the left, below and to the right.
    pub pads: [u32; 4],
    /// What becomes of a sum before its lowest byte is the result.
    pub post: Vec<Post>,
}

/// What is summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// All channels of a window.
    Convolution,
    /// One channel of a window, by weights that are zero for all others.
    Depthwise,
    /// Nothing: sums of 32 bits are the data.
    Elementwise,
}

/// How tensors lie outside of the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tensors {
    /// Images, channels, rows, columns.
    Images,
    /// So many rows of channels. Neighbouring rows are images of one place.
    Matrix {
        /// Rows.
        rows: u32,
    },
}

/// What becomes of a sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Post {
    /// By a number.
    Immediate(AluOp, i16),
    /// By a number of its channel, 32 bits.
    PerChannel(AluOp),
    /// By a number of its own, 32 bits.
    Tensor(AluOp),
}

/// What an operand is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// Bytes, or sums where nothing is summed.
    Data,
    /// Bytes.
    Weights,
    /// A number for each channel.
    PerChannel,
    /// A number for each element of the result.
    Tensor,
}

impl Layer {
    /// Its operands in order.
    pub fn operands(&self) -> Vec<Operand> {
        let mut operands = vec![Operand::Data];
        if self.kind != Kind::Elementwise {
            operands.push(Operand::Weights);
        }
        operands.extend(self.post.iter().filter_map(|post| match post {
            Post::Immediate(..) => None,
            Post::PerChannel(_) => Some(Operand::PerChannel),
            Post::Tensor(_) => Some(Operand::Tensor),
        }));
        operands
    }

    /// Rows and places of the result.
    pub fn output(&self) -> [u32; 2] {
        let [top, left, bottom, right] = self.pads;
        let places = |extent: u32, kernel: u32, stride: u32, pads: u32| {
            ((extent + pads).saturating_sub(kernel)) / stride.max(1) + 1
        };
        [
            places(self.height, self.kernel[0], self.strides[0], top + bottom),
            places(self.width, self.kernel[1], self.strides[1], left + right),
        ]
    }

    /// Elements of batch, of channels of the data and of channels of the result, on a core.
    pub fn blocks(&self, core: &Core) -> [u32; 3] {
        [
            self.images.div_ceil(core.batch),
            self.channels_in.div_ceil(core.block),
            self.channels_out.div_ceil(core.block),
        ]
    }

    /// Blocks of channels that one block of the result sums.
    pub fn summed_blocks(&self, core: &Core) -> u32 {
        match self.kind {
            Kind::Convolution => self.blocks(core)[1],
            Kind::Depthwise => 1,
            Kind::Elementwise => 0,
        }
    }

    /// Multiply-adds that it asks for.
    pub fn macs(&self) -> u64 {
        let [rows, columns] = self.output().map(u64::from);
        let images = match self.tensors {
            Tensors::Images => u64::from(self.images),
            Tensors::Matrix { rows } => u64::from(rows).div_ceil(columns),
        };
        let depth = match self.kind {
            Kind::Convolution => u64::from(self.channels_in),
            Kind::Depthwise => 1,
            Kind::Elementwise => 0,
        };
        let taps = u64::from(self.kernel[0]) * u64::from(self.kernel[1]);
        images * u64::from(self.channels_out) * rows * columns * depth * taps
    }
}
