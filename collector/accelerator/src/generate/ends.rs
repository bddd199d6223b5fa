//! Post-processing of a tile's sums, and transfers of tiles.

use super::{LayerTile, ProgramWriter, memory_transfer, to_u16};
use crate::core::Buffer;
use crate::instruction::{Alu, AluOp, Instruction, Memory, MicroOp, Pads, Steps, Tokens};
use crate::knobs::Knobs;
use crate::layer::{Kind, Post};

impl ProgramWriter<'_> {
    pub(super) fn end_tile(&mut self, thread: usize, tile: LayerTile) {
        let mut operand = if self.layer.kind == Kind::Elementwise { 1 } else { 2 };
        let mut free = self.sums_of(thread) + to_u16(self.plan.tile + self.plan.fillers * self.knobs.tile_w);
        for post in self.layer.post.clone() {
            match post {
                Post::Immediate(op, number) => {
                    self.emit_alu(op, self.single_micro_op(thread, 0), self.plan.tile, 0, Some(number))
                }
                Post::PerChannel(op) => {
                    self.push_instruction(Instruction::Load(Memory {
                        tokens: Tokens::default(),
                        buffer: Buffer::Sums,
                        on_core: free,
                        in_memory: self.at[operand] + tile.block,
                        rows: 1,
                        columns: to_u16(self.knobs.tile_co),
                        stride: to_u16(self.knobs.tile_co),
                        pads: Pads::default(),
                    }));
                    let places = self.plan.tile / self.knobs.tile_co;
                    let channels = (0..self.knobs.tile_co).map(|co| MicroOp {
                        sum: self.sums_of(thread) + to_u16(co * places),
                        data: free + to_u16(co),
                        weight: 0,
                    });
                    self.emit_alu(op, channels.collect(), places, 0, None);
                    (operand, free) = (operand + 1, free + to_u16(self.knobs.tile_co));
                }
                Post::Tensor(op) => {
                    self.load_tile(tile, self.at[operand], free);
                    self.emit_alu(op, self.single_micro_op(thread, free), self.plan.tile, 1, None);
                    (operand, free) = (operand + 1, free + to_u16(self.plan.tile));
                }
            }
        }
        let computed = match self.layer.post.is_empty() {
            true => self.threads[thread].computed,
            false => self.instructions.len() - 1,
        };
        self.tokens_at(computed).push_next = true;
        let (first, last) = self.store_tile(thread, tile);
        self.tokens_at(first).pop_previous = true;
        self.threads[thread].stored = Some(last);
    }

    fn single_micro_op(&self, thread: usize, other: u16) -> Vec<MicroOp> {
        vec![MicroOp { sum: self.sums_of(thread), data: other, weight: 0 }]
    }

    fn emit_alu(&mut self, op: AluOp, micro_ops: Vec<MicroOp>, places: u32, step: u16, immediate: Option<i16>) {
        let (begin, end) = self.load_sequence(&micro_ops);
        self.push_instruction(Instruction::Alu(Alu {
            tokens: Tokens::default(),
            op,
            steps: Steps { begin, end, outer: 1, inner: to_u16(places) },
            sum: [0, 1],
            other: [0, step],
            immediate,
        }));
    }

    /// Returns a tile's transfers: first element on the core, first element in memory, rows, columns, row stride.
    fn tile_rectangles(&self, tile: LayerTile, at: u32, on_core: u16) -> Vec<(u16, u32, u32, u32, u32)> {
        let Knobs { tile_b, tile_h, tile_w, tile_co, .. } = *self.knobs;
        let ([height, width], [_, _, blocks]) = (self.layer.output_extents(), self.layer.block_counts(self.core));
        let places = tile_h * tile_w;
        let begin = |image: u32, co: u32| {
            at + (((tile.image + image) * blocks + tile.block + co) * height + tile.row) * width + tile.place
        };
        // Whole rows of adjacent channels have a constant distance.
        if tile_w == width && tile_b == 1 {
            return vec![(on_core, begin(0, 0), tile_co, places, height * width)];
        }
        let parts = (0..tile_co).flat_map(|co| (0..tile_b).map(move |image| (co, image)));
        parts
            .map(|(co, image)| {
                (on_core + to_u16((co * tile_b + image) * places), begin(image, co), tile_h, tile_w, width)
            })
            .collect()
    }

    pub(super) fn load_tile(&mut self, tile: LayerTile, at: u32, on_core: u16) {
        for (on_core, in_memory, rows, columns, stride) in self.tile_rectangles(tile, at, on_core) {
            self.push_instruction(Instruction::Load(memory_transfer(
                Buffer::Sums,
                (on_core, in_memory),
                [rows, columns, stride],
            )));
        }
    }

    fn store_tile(&mut self, thread: usize, tile: LayerTile) -> (usize, usize) {
        let first = self.instructions.len();
        for (on_core, in_memory, rows, columns, stride) in self.tile_rectangles(tile, self.result, self.sums_of(thread))
        {
            self.push_instruction(Instruction::Store(memory_transfer(
                Buffer::Results,
                (on_core, in_memory),
                [rows, columns, stride],
            )));
        }
        (first, self.instructions.len() - 1)
    }
}
