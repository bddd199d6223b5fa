//! Code generation: compiles a layer and a tiling to a program.
//!
//! Tiles are ordered by batch, rows, channels and columns. In each tile the virtual threads alternate between loads,
//! products, post-processing and stores. A thread's part of a buffer is overwritten only after a token confirms that it
//! was read. Tokens need no prologue or epilogue: the push is added to the earlier instruction at the time the pop is
//! generated.

mod ends;
mod sums;

use crate::core::{Buffer, Core};
use crate::fit::{Misfit, Plan, plan};
use crate::instruction::{Instruction, Memory, MicroOp, Multiply, Pads, Steps, Tokens, encode};
use crate::knobs::Knobs;
use crate::layer::{Kind, Layer, Operand};
use crate::layout::{operand_bytes, result_bytes};
use crate::program::{Program, Regions, Role};
use std::collections::HashMap;

/// Generates the program of a layer with a tiling.
pub fn generate(core: &Core, layer: &Layer, knobs: &Knobs) -> Result<Program, Misfit> {
    let plan = plan(core, layer, knobs)?;
    let mut regions = Regions::default();
    let mut at = Vec::new();
    for (place, operand) in layer.operands().into_iter().enumerate() {
        let buffer = match operand {
            Operand::Weights => Buffer::Weights,
            Operand::Data if layer.kind != Kind::Elementwise => Buffer::Data,
            Operand::Data | Operand::PerChannel | Operand::Tensor => Buffer::Sums,
        };
        at.push(regions.add(core, Role::Operand(place), buffer, operand_bytes(core, layer, operand)));
    }
    let result = regions.add(core, Role::Result, Buffer::Results, result_bytes(core, layer));
    // Placed last, because the number of micro-operations is known only at the end.
    let micro_ops = regions.add(core, Role::MicroOps, Buffer::MicroOps, u64::from(core.micro_ops) * 4);
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
    let (instructions, micro_ops) = writer.write();
    if let Some(region) = regions.0.last_mut() {
        region.bytes = 4 * micro_ops.len() as u64;
    }
    Ok(Program {
        core: *core,
        layer: layer.clone(),
        instructions: instructions.iter().map(|instruction| encode(core, instruction)).collect(),
        micro_ops: micro_ops.iter().map(|micro_op| micro_op.encode(core)).collect(),
        regions: regions.0,
    })
}

/// Indices of the instructions that later ones of a virtual thread wait for.
#[derive(Clone, Copy, Default)]
struct VirtualThread {
    /// Last instruction that read the loaded data.
    multiplied: Option<usize>,
    /// Last instruction that wrote the sums.
    computed: usize,
    /// Last instruction that read the sums.
    stored: Option<usize>,
}

/// A tile of the result: first batch element, channel block, row and column.
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
    /// First elements of the operands in memory.
    at: Vec<u32>,
    result: u32,
    micro_ops_at: u32,
    instructions: Vec<Instruction>,
    micro_ops: Vec<MicroOp>,
    /// Ranges of micro-operations on the core.
    sequences: HashMap<Vec<MicroOp>, (u16, u16)>,
    threads: Vec<VirtualThread>,
}

fn short(number: u32) -> u16 {
    u16::try_from(number).expect("what fits has small numbers")
}

impl ProgramWriter<'_> {
    fn write(mut self) -> (Vec<Instruction>, Vec<MicroOp>) {
        let Knobs { tile_b, tile_h, tile_w, tile_ci, tile_co, oc_threads, h_threads } = *self.knobs;
        let ([height, width], [batches, _, blocks]) = (self.layer.output(), self.layer.blocks(self.core));
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
                        (0..tiles.len()).for_each(|thread| self.begin(thread, tiles[thread]));
                        for depth in (0..depths).step_by(tile_ci as usize) {
                            (0..tiles.len()).for_each(|thread| self.sum(thread, tiles[thread], depth));
                        }
                        (0..tiles.len()).for_each(|thread| self.end(thread, tiles[thread]));
                    }
                }
            }
        }
        self.finish();
        (self.instructions, self.micro_ops)
    }

    /// Initialises the sums of a tile with zero, or with the data in element-wise layers.
    fn begin(&mut self, thread: usize, tile: LayerTile) {
        let first = match self.layer.kind {
            Kind::Elementwise => {
                let first = self.instructions.len();
                self.load_tile(tile, self.at[0], self.sums_of(thread));
                self.threads[thread].computed = self.instructions.len() - 1;
                first
            }
            Kind::Convolution | Kind::Depthwise => {
                let (begin, end) = self.sequence(&[MicroOp { sum: self.sums_of(thread), ..MicroOp::default() }]);
                self.push(Instruction::Multiply(Multiply {
                    tokens: Tokens::default(),
                    is_reset: true,
                    steps: Steps { begin, end, outer: 1, inner: short(self.plan.tile) },
                    sum: [0, 1],
                    data: [0, 0],
                    weight: [0, 0],
                }))
            }
        };
        if let Some(stored) = self.threads[thread].stored {
            self.tokens(stored).push_previous = true;
            self.tokens(first).pop_next = true;
        }
    }

    /// Loads some channels of data with their weights, and multiplies them.
    fn sum(&mut self, thread: usize, tile: LayerTile, depth: u32) {
        let first = self.instructions.len();
        self.load_data(thread, tile, depth);
        let last = self.load_weights(thread, tile, depth);
        if let Some(multiplied) = self.threads[thread].multiplied {
            self.tokens(multiplied).push_previous = true;
            self.tokens(first).pop_next = true;
        }
        self.tokens(last).push_next = true;
        let (first, last) = self.multiply(thread);
        self.tokens(first).pop_previous = true;
        self.threads[thread].multiplied = Some(last);
        self.threads[thread].computed = last;
    }

    /// Waits for the last result and ends the program.
    fn finish(&mut self) {
        let last = self.instructions.len() - 1;
        self.tokens(last).push_previous = true;
        let mut waits = memory(Buffer::MicroOps, (0, 0), [0, 0, 0]);
        waits.tokens.pop_next = true;
        self.push(Instruction::Load(waits));
        self.push(Instruction::Finish);
    }

    /// Returns the range of micro-operations on the core, and loads them if necessary.
    fn sequence(&mut self, micro_ops: &[MicroOp]) -> (u16, u16) {
        if let Some(&range) = self.sequences.get(micro_ops) {
            return range;
        }
        let first = u32::try_from(self.micro_ops.len()).expect("no more than fit on the core");
        let count = u32::try_from(micro_ops.len()).expect("no more than fit on the core");
        self.micro_ops.extend(micro_ops);
        let place = (short(first), self.micro_ops_at + first);
        self.push(Instruction::Load(memory(Buffer::MicroOps, place, [1, count, count])));
        let range = (short(first), short(first + count));
        self.sequences.insert(micro_ops.to_vec(), range);
        range
    }

    fn push(&mut self, instruction: Instruction) -> usize {
        self.instructions.push(instruction);
        self.instructions.len() - 1
    }

    fn tokens(&mut self, place: usize) -> &mut Tokens {
        match &mut self.instructions[place] {
            Instruction::Load(memory) | Instruction::Store(memory) => &mut memory.tokens,
            Instruction::Multiply(multiply) => &mut multiply.tokens,
            Instruction::Alu(alu) => &mut alu.tokens,
            Instruction::Finish => unreachable!("no module waits for the end"),
        }
    }

    fn sums_of(&self, thread: usize) -> u16 {
        of(thread, self.plan.sums)
    }

    fn data_of(&self, thread: usize) -> u16 {
        of(thread, self.plan.data)
    }

    fn weights_of(&self, thread: usize) -> u16 {
        of(thread, self.plan.weights)
    }
}

fn of(thread: usize, elements: u32) -> u16 {
    short(u32::try_from(thread).expect("at most four threads") * elements)
}

fn memory(buffer: Buffer, (on_core, in_memory): (u16, u32), [rows, columns, stride]: [u32; 3]) -> Memory {
    Memory {
        tokens: Tokens::default(),
        buffer,
        on_core,
        in_memory,
        rows: short(rows),
        columns: short(columns),
        stride: short(stride),
        pads: Pads::default(),
    }
}
