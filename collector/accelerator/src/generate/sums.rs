//! Code for loading data and weights, and for multiplying them.

use super::{LayerTile, ProgramWriter, to_u16};
use crate::core::Buffer;
use crate::fit::Plan;
use crate::instruction::{Instruction, Memory, MicroOp, Multiply, Pads, Steps, Tokens};
use crate::knobs::Knobs;
use crate::layer::{Kind, Layer};

impl ProgramWriter<'_> {
    pub(super) fn load_data(&mut self, thread: usize, tile: LayerTile, depth: u32) {
        let Layer { height, width, strides, pads: [top, left, ..], .. } = *self.layer;
        let Plan { under: [rows, columns], data_blocks, .. } = self.plan;
        let blocks = self.layer.block_counts(self.core)[1];
        let (first_row, first_column) = (tile.row * strides[0], tile.place * strides[1]);
        // Splits a range into the parts before, inside and after the image.
        let cut = |first: u32, count: u32, pad: u32, extent: u32| {
            let before = pad.saturating_sub(first).min(count);
            let begin = (first + before).saturating_sub(pad);
            let inside = (count - before).min(extent.saturating_sub(begin));
            (begin, before, inside, count - before - inside)
        };
        let (row, above, inside_rows, below) = cut(first_row, rows, top, height);
        let (column, before, inside_columns, behind) = cut(first_column, columns, left, width);
        let byte = |pad: u32| u8::try_from(pad).expect("at most 15 zeros on a side");
        let depth = if self.layer.kind == Kind::Depthwise { tile.block } else { depth };
        for image in 0..self.knobs.tile_b {
            for block in 0..data_blocks {
                let plane = (tile.image + image) * blocks + depth + block;
                let on_core = self.data_of(thread) + to_u16((image * data_blocks + block) * rows * columns);
                self.push_instruction(Instruction::Load(Memory {
                    tokens: Tokens::default(),
                    buffer: Buffer::Data,
                    on_core,
                    in_memory: self.at[0] + (plane * height + row) * width + column,
                    rows: to_u16(inside_rows),
                    columns: to_u16(inside_columns),
                    stride: to_u16(width),
                    pads: Pads { top: byte(above), bottom: byte(below), left: byte(before), right: byte(behind) },
                }));
            }
        }
    }

    pub(super) fn load_weights(&mut self, thread: usize, tile: LayerTile, depth: u32) -> usize {
        let taps = self.layer.kernel[0] * self.layer.kernel[1];
        let stride = self.layer.summed_blocks(self.core) * taps;
        self.push_instruction(Instruction::Load(Memory {
            tokens: Tokens::default(),
            buffer: Buffer::Weights,
            on_core: self.weights_of(thread),
            in_memory: self.at[1] + tile.block * stride + depth * taps,
            rows: to_u16(self.knobs.tile_co),
            columns: to_u16(self.knobs.tile_ci * taps),
            stride: to_u16(stride),
            pads: Pads::default(),
        }))
    }

    /// Multiplies the loaded data and weights of a tile. Returns the indices of the first and the last instruction.
    pub(super) fn multiply_tile(&mut self, thread: usize) -> (usize, usize) {
        let Knobs { tile_w, tile_ci, .. } = *self.knobs;
        let [kernel_rows, kernel_columns] = self.layer.kernel;
        let stride = to_u16(self.layer.strides[1]);
        let windows: Vec<(u32, u32)> = (0..tile_ci).flat_map(|ci| (0..kernel_rows).map(move |row| (ci, row))).collect();
        let groups: Vec<Vec<MicroOp>> =
            windows.iter().map(|&(ci, row)| self.window_products(thread, ci, row)).collect();
        // Wide tiles need one instruction for all window rows, with columns of the image outside and columns of the
        // window inside. Narrow tiles iterate over image columns innermost, which needs one instruction per window row.
        let (groups, outer, inner, sum, data, weight) = match self.plan.is_narrow {
            false => (vec![groups.concat()], tile_w, kernel_columns, [1, 0], [stride, 1], [0, 1]),
            true => (groups, kernel_columns, tile_w, [0, 1], [1, stride], [1, 0]),
        };
        let mut pushed = Vec::new();
        for group in groups {
            let (begin, end) = self.load_sequence(&group);
            pushed.push(self.push_instruction(Instruction::Multiply(Multiply {
                tokens: Tokens::default(),
                is_reset: false,
                steps: Steps { begin, end, outer: to_u16(outer), inner: to_u16(inner) },
                sum,
                data,
                weight,
            })));
        }
        (pushed[0], pushed[pushed.len() - 1])
    }

    /// Returns the micro-operations of one window row and one channel block of data, for all rows of a tile.
    fn window_products(&self, thread: usize, ci: u32, kernel_row: u32) -> Vec<MicroOp> {
        let Knobs { tile_b, tile_h, tile_w, tile_ci, tile_co, .. } = *self.knobs;
        let Plan { under: [rows, columns], data_blocks, fillers, tile, .. } = self.plan;
        let [kernel_rows, kernel_columns] = self.layer.kernel;
        let mut products = Vec::new();
        for co in 0..tile_co {
            let block = if self.layer.kind == Kind::Depthwise { co } else { ci };
            let weight = ((co * tile_ci + ci) * kernel_rows + kernel_row) * kernel_columns;
            for image in 0..tile_b {
                for row in 0..tile_h {
                    let sum = ((co * tile_b + image) * tile_h + row) * tile_w;
                    let data_row = row * self.layer.strides[0] + kernel_row;
                    let data = ((image * data_blocks + block) * rows + data_row) * columns;
                    products.push(MicroOp {
                        sum: self.sums_of(thread) + to_u16(sum),
                        data: self.data_of(thread) + to_u16(data),
                        weight: self.weights_of(thread) + to_u16(weight),
                    });
                }
            }
        }
        for filler in 0..fillers {
            let sum = self.sums_of(thread) + to_u16(tile + filler * tile_w);
            products.push(MicroOp { sum, ..products[0] });
        }
        products
    }
}
