//! Layers that an accelerator core executes: convolutions, matrix products and element-wise operations, with
//! post-processing of the sums.

use crate::core::Core;
use crate::instruction::AluOp;
use serde::{Deserialize, Serialize};

/// A layer. Its operands are the data, the weights if any, and the operands of post-processing in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    pub kind: Kind,
    pub tensors: Tensors,
    /// Number of images; for matrices, the number of adjacent rows that are treated as images.
    pub images: u32,
    pub channels_in: u32,
    pub height: u32,
    pub width: u32,
    pub channels_out: u32,
    pub kernel: [u32; 2],
    pub strides: [u32; 2],
    /// Padding at the top, left, bottom and right.
    pub pads: [u32; 4],
    /// Post-processing of the sums, applied before truncation to 8 bits.
    pub post: Vec<Post>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    Convolution,
    /// Each result sums over one channel of a window; the weights of all other channels are zero.
    Depthwise,
    /// No products: the data are 32-bit values that are directly post-processed.
    Elementwise,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tensors {
    Images,
    /// Matrices of `rows` rows, whose columns are channels. Adjacent rows become images at the same layer position.
    Matrix {
        rows: u32,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Post {
    Immediate(AluOp, i16),
    PerChannel(AluOp),
    Tensor(AluOp),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    Data,
    Weights,
    PerChannel,
    Tensor,
}

impl Layer {
    pub fn layer_operands(&self) -> Vec<Operand> {
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

    pub fn output_extents(&self) -> [u32; 2] {
        let [top, left, bottom, right] = self.pads;
        let places = |extent: u32, kernel: u32, stride: u32, pads: u32| {
            ((extent + pads).saturating_sub(kernel)) / stride.max(1) + 1
        };
        [
            places(self.height, self.kernel[0], self.strides[0], top + bottom),
            places(self.width, self.kernel[1], self.strides[1], left + right),
        ]
    }

    /// Returns the number of batch elements, input channel blocks and output channel blocks on a core.
    pub fn block_counts(&self, core: &Core) -> [u32; 3] {
        [
            self.images.div_ceil(core.batch),
            self.channels_in.div_ceil(core.block),
            self.channels_out.div_ceil(core.block),
        ]
    }

    /// Returns the number of input channel blocks that are summed into one output block.
    pub fn summed_blocks(&self, core: &Core) -> u32 {
        match self.kind {
            Kind::Convolution => self.block_counts(core)[1],
            Kind::Depthwise => 1,
            Kind::Elementwise => 0,
        }
    }
}
