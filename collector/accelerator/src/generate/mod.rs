//! Code generation: compiles a layer and a tiling to a program.
//! Tiles are ordered by batch, rows, channels and columns. In each tile the virtual threads alternate between loads,
//! products, post-processing and stores. A thread's part of a buffer is overwritten only after a token confirms that it
//! was read. Tokens need no prologue or epilogue: the push is added to the earlier instruction at the time the pop is
//! generated.

mod ends;
mod sums;

use crate::core::{Buffer, Core};
use crate::fit::{Misfit, Plan, plan_buffers};
use crate::instruction::{Instruction, Memory, MicroOp, Multiply, Pads, Steps, Tokens, encode_instruction};
use crate::knobs::Knobs;
use crate::layer::{Kind, Layer, Operand};
use crate::layout::{operand_bytes, result_bytes};
use crate::program::{Program, Regions, Role};
use std::collections::HashMap;

pub fn generate_program(core: &Core, layer: &Layer, knobs: &Knobs) -> Result<Program, Misfit> {
    let plan = plan_buffers(core, layer, knobs)?;
    let mut regions = Regions::default();
    let mut at = Vec::new();
    for (place, operand) in layer.layer_operands().into_iter().enumerate() {
        let buffer = match operand {
            Operand::Weights => Buffer::Weights,
            Operand::Data if layer.kind != Kind::Elementwise => Buffer::Data,
            Operand::Data | Operand::PerChannel | Operand::Tensor => Buffer::Sums,
        };
        at.push(regions.append_region(core, Role::Operand(place), buffer, operand_bytes(core, layer, operand)));
    }
    let result = regions.append_region(core, Role::Result, Buffer::Results, result_bytes(core, layer));
    // Placed last, because the number of micro-operations is known only at the end.
    let micro_ops = regions.append_region(core, Role::MicroOps, Buffer::MicroOps, u64::from(core.micro_ops) * 4);
    let writer = ProgramWriter {
        core,
        layer,
        knobs,
        plan,
        at,
        result,
        micro_ops_at: micro_ops,
        instructions: Vec::new(),
        micro_ops: Vec::new(),
        sequences: HashMap::new(),
        threads: vec![VirtualThread::default(); plan.threads as usize],
    };
    let (instructions, micro_ops) = writer.write_program();
    if let Some(region) = regions.0.last_mut() {
        region.bytes = 4 * micro_ops.len() as u64;
    }
    Ok(Program {
        core: *core,
        layer: layer.clone(),
        instructions: instructions.iter().map(|instruction| encode_instruction(core, instruction)).collect(),
        micro_ops: micro_ops.iter().map(|micro_op| micro_op.encode(core)).collect(),
        regions: regions.0,
    })
}

/// Indices of the last instructions of a virtual thread that its later instructions must wait for.
#[derive(Clone, Copy, Default)]
struct VirtualThread {
    /// Last instruction that read the loaded data.
    multiplied: Option<usize>,
    /// Last instruction that wrote the sums.
    computed: usize,
    /// Last instruction that read the sums.
    stored: Option<usize>,
}

/// Position of a result tile: its first batch element, channel block, row and column.
#[derive(Clone, Copy)]
struct LayerTile {
    image: u32,
    block: u32,
    row: u32,
    place: u32,
}

struct ProgramWriter<'a> {
    core: &'a Core,
    layer: &'a Layer,
    knobs: &'a Knobs,
    plan: Plan,
    /// Index in memory of the first element of each operand.
    at: Vec<u32>,
    result: u32,
    micro_ops_at: u32,
    instructions: Vec<Instruction>,
    micro_ops: Vec<MicroOp>,
    sequences: HashMap<Vec<MicroOp>, (u16, u16)>,
    threads: Vec<VirtualThread>,
}

fn to_u16(number: u32) -> u16 {
    u16::try_from(number).expect("layers that fit have 16-bit indices")
}

impl ProgramWriter<'_> {
    fn write_program(mut self) -> (Vec<Instruction>, Vec<MicroOp>) {
        let Knobs { tile_b, tile_h, tile_w, tile_ci, tile_co, oc_threads, h_threads } = *self.knobs;
        let ([height, width], [batches, _, blocks]) = (self.layer.output_extents(), self.layer.block_counts(self.core));
        let depths = self.layer.summed_blocks(self.core);
        for image in (0..batches).step_by(tile_b as usize) {
            for row in (0..height).step_by((tile_h * h_threads) as usize) {
                for block in (0..blocks).step_by((tile_co * oc_threads) as usize) {
                    for place in (0..width).step_by(tile_w as usize) {
                        let tiles: Vec<LayerTile> = (0..oc_threads)
                            .flat_map(|oc| (0..h_threads).map(move |h| (oc, h)))
                            .map(|(oc, h)| LayerTile {
                                image,
                                block: block + oc * tile_co,
                                row: row + h * tile_h,
                                place,
                            })
                            .collect();
                        (0..tiles.len()).for_each(|thread| self.begin_tile(thread, tiles[thread]));
                        for depth in (0..depths).step_by(tile_ci as usize) {
                            (0..tiles.len()).for_each(|thread| self.sum_products(thread, tiles[thread], depth));
                        }
                        (0..tiles.len()).for_each(|thread| self.end_tile(thread, tiles[thread]));
                    }
                }
            }
        }
        self.finish_program();
        (self.instructions, self.micro_ops)
    }

    /// Initialises the sums with zero, or with the data in element-wise layers.
    fn begin_tile(&mut self, thread: usize, tile: LayerTile) {
        let first = match self.layer.kind {
            Kind::Elementwise => {
                let first = self.instructions.len();
                self.load_tile(tile, self.at[0], self.sums_of(thread));
                self.threads[thread].computed = self.instructions.len() - 1;
                first
            }
            Kind::Convolution | Kind::Depthwise => {
                let (begin, end) = self.load_sequence(&[MicroOp { sum: self.sums_of(thread), ..MicroOp::default() }]);
                self.push_instruction(Instruction::Multiply(Multiply {
                    tokens: Tokens::default(),
                    is_reset: true,
                    steps: Steps { begin, end, outer: 1, inner: to_u16(self.plan.tile) },
                    sum: [0, 1],
                    data: [0, 0],
                    weight: [0, 0],
                }))
            }
        };
        if let Some(stored) = self.threads[thread].stored {
            self.tokens_at(stored).push_previous = true;
            self.tokens_at(first).pop_next = true;
        }
    }

    fn sum_products(&mut self, thread: usize, tile: LayerTile, depth: u32) {
        let first = self.instructions.len();
        self.load_data(thread, tile, depth);
        let last = self.load_weights(thread, tile, depth);
        if let Some(multiplied) = self.threads[thread].multiplied {
            self.tokens_at(multiplied).push_previous = true;
            self.tokens_at(first).pop_next = true;
        }
        self.tokens_at(last).push_next = true;
        let (first, last) = self.multiply_tile(thread);
        self.tokens_at(first).pop_previous = true;
        self.threads[thread].multiplied = Some(last);
        self.threads[thread].computed = last;
    }

    fn finish_program(&mut self) {
        let last = self.instructions.len() - 1;
        self.tokens_at(last).push_previous = true;
        let mut waits = memory_transfer(Buffer::MicroOps, (0, 0), [0, 0, 0]);
        waits.tokens.pop_next = true;
        self.push_instruction(Instruction::Load(waits));
        self.push_instruction(Instruction::Finish);
    }

    /// Loads a sequence of micro-operations onto the core unless it is already there. Returns its range of indices.
    fn load_sequence(&mut self, micro_ops: &[MicroOp]) -> (u16, u16) {
        if let Some(&range) = self.sequences.get(micro_ops) {
            return range;
        }
        let first = u32::try_from(self.micro_ops.len()).expect("the micro-operations fit on the core");
        let count = u32::try_from(micro_ops.len()).expect("the micro-operations fit on the core");
        self.micro_ops.extend(micro_ops);
        let place = (to_u16(first), self.micro_ops_at + first);
        self.push_instruction(Instruction::Load(memory_transfer(Buffer::MicroOps, place, [1, count, count])));
        let range = (to_u16(first), to_u16(first + count));
        self.sequences.insert(micro_ops.to_vec(), range);
        range
    }

    fn push_instruction(&mut self, instruction: Instruction) -> usize {
        self.instructions.push(instruction);
        self.instructions.len() - 1
    }

    fn tokens_at(&mut self, place: usize) -> &mut Tokens {
        match &mut self.instructions[place] {
            Instruction::Load(memory) | Instruction::Store(memory) => &mut memory.tokens,
            Instruction::Multiply(multiply) => &mut multiply.tokens,
            Instruction::Alu(alu) => &mut alu.tokens,
            Instruction::Finish => unreachable!("no module waits for `finish`"),
        }
    }

    fn sums_of(&self, thread: usize) -> u16 {
        thread_offset(thread, self.plan.sums)
    }

    fn data_of(&self, thread: usize) -> u16 {
        thread_offset(thread, self.plan.data)
    }

    fn weights_of(&self, thread: usize) -> u16 {
        thread_offset(thread, self.plan.weights)
    }
}

fn thread_offset(thread: usize, elements: u32) -> u16 {
    to_u16(u32::try_from(thread).expect("at most four threads") * elements)
}

fn memory_transfer(buffer: Buffer, (on_core, in_memory): (u16, u32), [rows, columns, stride]: [u32; 3]) -> Memory {
    Memory {
        tokens: Tokens::default(),
        buffer,
        on_core,
        in_memory,
        rows: to_u16(rows),
        columns: to_u16(columns),
        stride: to_u16(stride),
        pads: Pads::default(),
    }
}
