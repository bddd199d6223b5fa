//! Layer × cut → program.
//!
//! Tiles follow each other by batch, rows, channels and places; at each the threads take turns with what they load, multiply,
//! change and store. A thread's part of a buffer is written again only after a token said that it was read. Tokens have
//! neither prologue nor epilogue: who has to wait asks for the token, and the instruction that gives it is told then.

use crate::core::{Buffer, Core};
use crate::fit::{Misfit, Plan, plan};
use crate::instruction::{Alu, Instruction, Memory, MicroOp, Multiply, Pads, Steps, Tokens, encode};
use crate::knobs::Knobs;
use crate::layer::{Kind, Layer, Operand, Post};
use crate::layout::{operand_bytes, result_bytes};
use crate::program::{Program, Regions, Role};
use std::collections::HashMap;

/// The program of a layer by a cut.
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
    // Last, because how many there are is known at the end.
    let micro_ops = regions.add(core, Role::MicroOps, Buffer::MicroOps, u64::from(core.micro_ops) * 4);
    let writer = Writer {
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
        threads: vec![Thread::default(); plan.threads as usize],
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

/// The instructions whose tokens a thread will ask for, by place.
#[derive(Clone, Copy, Default)]
struct Thread {
    /// The last that read what it loaded.
    multiplied: Option<usize>,
    /// The last that wrote its sums.
    computed: usize,
    /// The last that read its sums.
    stored: Option<usize>,
}

/// A tile of the result: its first element of batch, block of channels, row and place.
#[derive(Clone, Copy)]
struct Tile {
    image: u32,
    block: u32,
    row: u32,
    place: u32,
}

struct Writer<'a> {
    core: &'a Core,
    layer: &'a Layer,
    knobs: &'a Knobs,
    plan: Plan,
    /// First elements of operands in memory.
    at: Vec<u32>,
    result: u32,
    micro_ops_at: u32,
    instructions: Vec<Instruction>,
    micro_ops: Vec<MicroOp>,
    /// Micro-operations that are on the core.
    sequences: HashMap<Vec<(u16, u16, u16)>, (u16, u16)>,
    threads: Vec<Thread>,
}

fn short(number: u32) -> u16 {
    u16::try_from(number).expect("what fits has small numbers")
}

impl Writer<'_> {
    fn write(mut self) -> (Vec<Instruction>, Vec<MicroOp>) {
        let Knobs { tile_b, tile_h, tile_w, tile_ci, tile_co, oc_threads, h_threads } = *self.knobs;
        let ([height, width], [batches, _, blocks]) = (self.layer.output(), self.layer.blocks(self.core));
        let depths = self.layer.summed_blocks(self.core);
        for image in (0..batches).step_by(tile_b as usize) {
            for row in (0..height).step_by((tile_h * h_threads) as usize) {
                for block in (0..blocks).step_by((tile_co * oc_threads) as usize) {
                    for place in (0..width).step_by(tile_w as usize) {
                        let tiles: Vec<Tile> = (0..oc_threads)
                            .flat_map(|oc| (0..h_threads).map(move |h| (oc, h)))
                            .map(|(oc, h)| Tile { image, block: block + oc * tile_co, row: row + h * tile_h, place })
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

    /// Makes the sums of a tile zero, or what the data says where nothing is summed.
    fn begin(&mut self, thread: usize, tile: Tile) {
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

    /// Loads some channels of the data with their weights, and multiplies.
    fn sum(&mut self, thread: usize, tile: Tile, depth: u32) {
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

    fn load_data(&mut self, thread: usize, tile: Tile, depth: u32) {
        let Layer { height, width, strides, pads: [top, left, ..], .. } = *self.layer;
        let Plan { under: [rows, columns], data_blocks, .. } = self.plan;
        let blocks = self.layer.blocks(self.core)[1];
        let (first_row, first_column) = (tile.row * strides[0], tile.place * strides[1]);
        // What lies before the image, in it, and behind it.
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
                let on_core = self.data_of(thread) + short((image * data_blocks + block) * rows * columns);
                self.push(Instruction::Load(Memory {
                    tokens: Tokens::default(),
                    buffer: Buffer::Data,
                    on_core,
                    in_memory: self.at[0] + (plane * height + row) * width + column,
                    rows: short(inside_rows),
                    columns: short(inside_columns),
                    stride: short(width),
                    pads: Pads { top: byte(above), bottom: byte(below), left: byte(before), right: byte(behind) },
                }));
            }
        }
    }

    fn load_weights(&mut self, thread: usize, tile: Tile, depth: u32) -> usize {
        let taps = self.layer.kernel[0] * self.layer.kernel[1];
        let stride = self.layer.summed_blocks(self.core) * taps;
        self.push(Instruction::Load(Memory {
            tokens: Tokens::default(),
            buffer: Buffer::Weights,
            on_core: self.weights_of(thread),
            in_memory: self.at[1] + tile.block * stride + depth * taps,
            rows: short(self.knobs.tile_co),
            columns: short(self.knobs.tile_ci * taps),
            stride: short(stride),
            pads: Pads::default(),
        }))
    }

    /// The products of what a thread has loaded; says which instructions are the first and the last.
    fn multiply(&mut self, thread: usize) -> (usize, usize) {
        let Knobs { tile_w, tile_ci, .. } = *self.knobs;
        let [kernel_rows, kernel_columns] = self.layer.kernel;
        let stride = short(self.layer.strides[1]);
        let windows: Vec<(u32, u32)> = (0..tile_ci).flat_map(|ci| (0..kernel_rows).map(move |row| (ci, row))).collect();
        let groups: Vec<Vec<MicroOp>> = windows.iter().map(|&(ci, row)| self.products(thread, ci, row)).collect();
        // Wide tiles take all rows of windows in one instruction: place by place, column of the window by column. Of a
        // narrow one the places come innermost, which needs an instruction for each row of the window.
        let (groups, outer, inner, sum, data, weight) = match self.plan.is_narrow {
            false => (vec![groups.concat()], tile_w, kernel_columns, [1, 0], [stride, 1], [0, 1]),
            true => (groups, kernel_columns, tile_w, [0, 1], [1, stride], [1, 0]),
        };
        let mut pushed = Vec::new();
        for group in groups {
            let (begin, end) = self.sequence(&group);
            pushed.push(self.push(Instruction::Multiply(Multiply {
                tokens: Tokens::default(),
                is_reset: false,
                steps: Steps { begin, end, outer: short(outer), inner: short(inner) },
                sum,
                data,
                weight,
            })));
        }
        (pushed[0], pushed[pushed.len() - 1])
    }

    /// The products of one row of a window over one block of channels of the data, for all rows of a tile.
    fn products(&self, thread: usize, ci: u32, kernel_row: u32) -> Vec<MicroOp> {
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
                        sum: self.sums_of(thread) + short(sum),
                        data: self.data_of(thread) + short(data),
                        weight: self.weights_of(thread) + short(weight),
                    });
                }
            }
        }
        for filler in 0..fillers {
            let sum = self.sums_of(thread) + short(tile + filler * tile_w);
            products.push(MicroOp { sum, ..products[0] });
        }
        products
    }

    /// What becomes of the sums of a tile, and where they go.
    fn end(&mut self, thread: usize, tile: Tile) {
        let mut operand = if self.layer.kind == Kind::Elementwise { 1 } else { 2 };
        let mut free = self.sums_of(thread) + short(self.plan.tile + self.plan.fillers * self.knobs.tile_w);
        for post in self.layer.post.clone() {
            match post {
                Post::Immediate(op, number) => self.alu(op, self.one(thread, 0), self.plan.tile, 0, Some(number)),
                Post::PerChannel(op) => {
                    self.push(Instruction::Load(Memory {
                        tokens: Tokens::default(),
                        buffer: Buffer::Sums,
                        on_core: free,
                        in_memory: self.at[operand] + tile.block,
                        rows: 1,
                        columns: short(self.knobs.tile_co),
                        stride: short(self.knobs.tile_co),
                        pads: Pads::default(),
                    }));
                    let places = self.plan.tile / self.knobs.tile_co;
                    let channels = (0..self.knobs.tile_co).map(|co| MicroOp {
                        sum: self.sums_of(thread) + short(co * places),
                        data: free + short(co),
                        weight: 0,
                    });
                    self.alu(op, channels.collect(), places, 0, None);
                    (operand, free) = (operand + 1, free + short(self.knobs.tile_co));
                }
                Post::Tensor(op) => {
                    self.load_tile(tile, self.at[operand], free);
                    self.alu(op, self.one(thread, free), self.plan.tile, 1, None);
                    (operand, free) = (operand + 1, free + short(self.plan.tile));
                }
            }
        }
        let computed = match self.layer.post.is_empty() {
            true => self.threads[thread].computed,
            false => self.instructions.len() - 1,
        };
        self.tokens(computed).push_next = true;
        let (first, last) = self.store(thread, tile);
        self.tokens(first).pop_previous = true;
        self.threads[thread].stored = Some(last);
    }

    fn one(&self, thread: usize, other: u16) -> Vec<MicroOp> {
        vec![MicroOp { sum: self.sums_of(thread), data: other, weight: 0 }]
    }

    fn alu(&mut self, op: crate::AluOp, micro_ops: Vec<MicroOp>, places: u32, step: u16, immediate: Option<i16>) {
        let (begin, end) = self.sequence(&micro_ops);
        self.push(Instruction::Alu(Alu {
            tokens: Tokens::default(),
            op,
            steps: Steps { begin, end, outer: 1, inner: short(places) },
            sum: [0, 1],
            other: [0, step],
            immediate,
        }));
    }

    /// Rectangles of a tile: first element on the core and in memory, rows, columns, stride.
    fn rectangles(&self, tile: Tile, at: u32, on_core: u16) -> Vec<(u16, u32, u32, u32, u32)> {
        let Knobs { tile_b, tile_h, tile_w, tile_co, .. } = *self.knobs;
        let ([height, width], [_, _, blocks]) = (self.layer.output(), self.layer.blocks(self.core));
        let places = tile_h * tile_w;
        let begin = |image: u32, co: u32| {
            at + (((tile.image + image) * blocks + tile.block + co) * height + tile.row) * width + tile.place
        };
        // Whole rows of neighbouring channels lie a constant distance apart.
        if tile_w == width && tile_b == 1 {
            return vec![(on_core, begin(0, 0), tile_co, places, height * width)];
        }
        let parts = (0..tile_co).flat_map(|co| (0..tile_b).map(move |image| (co, image)));
        parts
            .map(|(co, image)| {
                (on_core + short((co * tile_b + image) * places), begin(image, co), tile_h, tile_w, width)
            })
            .collect()
    }

    /// Reads a tile of sums.
    fn load_tile(&mut self, tile: Tile, at: u32, on_core: u16) {
        for (on_core, in_memory, rows, columns, stride) in self.rectangles(tile, at, on_core) {
            self.push(Instruction::Load(memory(Buffer::Sums, (on_core, in_memory), [rows, columns, stride])));
        }
    }

    /// Writes a tile of results; says which instructions are the first and the last.
    fn store(&mut self, thread: usize, tile: Tile) -> (usize, usize) {
        let first = self.instructions.len();
        for (on_core, in_memory, rows, columns, stride) in self.rectangles(tile, self.result, self.sums_of(thread)) {
            self.push(Instruction::Store(memory(Buffer::Results, (on_core, in_memory), [rows, columns, stride])));
        }
        (first, self.instructions.len() - 1)
    }

    /// Waits for the last result, and ends.
    fn finish(&mut self) {
        let last = self.instructions.len() - 1;
        self.tokens(last).push_previous = true;
        let mut waits = memory(Buffer::MicroOps, (0, 0), [0, 0, 0]);
        waits.tokens.pop_next = true;
        self.push(Instruction::Load(waits));
        self.push(Instruction::Finish);
    }

    /// The range of these micro-operations on the core; they are loaded where they were not.
    fn sequence(&mut self, micro_ops: &[MicroOp]) -> (u16, u16) {
        let name: Vec<(u16, u16, u16)> = micro_ops.iter().map(|op| (op.sum, op.data, op.weight)).collect();
        if let Some(&range) = self.sequences.get(&name) {
            return range;
        }
        let first = u32::try_from(self.micro_ops.len()).expect("no more than fit on the core");
        let count = u32::try_from(micro_ops.len()).expect("no more than fit on the core");
        self.micro_ops.extend(micro_ops);
        let place = (short(first), self.micro_ops_at + first);
        self.push(Instruction::Load(memory(Buffer::MicroOps, place, [1, count, count])));
        let range = (short(first), short(first + count));
        self.sequences.insert(name, range);
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
            Instruction::Finish => unreachable!("nobody waits for the end"),
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

/// Where a thread's part of a buffer begins.
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
