//! Bit-exact functional simulation of a program. A seed selects the order in which modules advance, as far as tokens
//! allow. A missing token therefore causes a wrong result or a deadlock for some seeds.

mod steps;

use crate::check::{Module, is_empty, module_of_instruction, on_core, queues_of, step_count, tokens_of_instruction};
use crate::core::{Buffer, Core};
use crate::instruction::{DecodeError, Instruction, Memory, MicroOp, Pads, Steps, decode_instruction};
use crate::layout::{LayoutError, pack_operand, unpack_result};
use crate::program::{Program, Role};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::VecDeque;

const STEPS_MAX: u64 = 1 << 33;
const BYTES_MAX: u64 = 1 << 31;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum FunctionalError {
    #[error("instruction {place}: {why}")]
    Decode { place: usize, why: DecodeError },
    #[error("instruction {place} accesses {what} out of bounds")]
    Leaves { place: usize, what: &'static str },
    #[error("deadlock: all modules wait for a token, the first one at instruction {0}")]
    Standstill(usize),
    #[error("the program does not end with a `finish` instruction")]
    Endless,
    #[error("the program has more than {STEPS_MAX} steps or {BYTES_MAX} bytes of memory")]
    Large,
    #[error("the program takes {wanted} operands, got {given}")]
    Operands { wanted: usize, given: usize },
    #[error(transparent)]
    Layout(#[from] LayoutError),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub instructions: u64,
    pub products: u64,
    pub resets: u64,
    pub changes: u64,
    pub bytes: [u64; 5],
}

pub struct FunctionalMachine<'a> {
    program: &'a Program,
    instructions: Vec<Instruction>,
    memory: Vec<u8>,
}

impl<'a> FunctionalMachine<'a> {
    pub fn new(program: &'a Program) -> Result<FunctionalMachine<'a>, FunctionalError> {
        let core = &program.core;
        let decoded = program.instructions.iter().enumerate();
        let decoded = decoded
            .map(|(place, bits)| decode_instruction(core, *bits).map_err(|why| FunctionalError::Decode { place, why }));
        let bytes = program.memory_bytes();
        if bytes > BYTES_MAX {
            return Err(FunctionalError::Large);
        }
        let mut machine = FunctionalMachine {
            program,
            instructions: decoded.collect::<Result<_, FunctionalError>>()?,
            memory: vec![0; usize::try_from(bytes).expect("the size was checked against the limit")],
        };
        machine.write_region(Role::MicroOps, &program.micro_op_bytes());
        Ok(machine)
    }

    /// Runs a program and returns its result. Operands and result have the layout used outside of the accelerator.
    pub fn compute_result(
        program: &Program,
        operands: &[&[u8]],
        seed: u64,
    ) -> Result<(Vec<u8>, Totals), FunctionalError> {
        let wanted = program.layer.layer_operands();
        if wanted.len() != operands.len() {
            return Err(FunctionalError::Operands { wanted: wanted.len(), given: operands.len() });
        }
        let mut machine = FunctionalMachine::new(program)?;
        for (place, (operand, bytes)) in wanted.into_iter().zip(operands).enumerate() {
            let packed = pack_operand(&program.core, &program.layer, operand, bytes)?;
            machine.write_region(Role::Operand(place), &packed);
        }
        let totals = machine.run(seed)?;
        Ok((unpack_result(&program.core, &program.layer, machine.read_region(Role::Result))?, totals))
    }

    pub fn write_region(&mut self, role: Role, bytes: &[u8]) {
        let range = self.region_range(role);
        if let Some(memory) = self.memory.get_mut(range) {
            let length = memory.len().min(bytes.len());
            memory[..length].copy_from_slice(&bytes[..length]);
        }
    }

    pub fn read_region(&self, role: Role) -> &[u8] {
        self.memory.get(self.region_range(role)).unwrap_or_default()
    }

    fn region_range(&self, role: Role) -> std::ops::Range<usize> {
        let place = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        self.program.find_region(role).map_or(0..0, |region| place(region.begin)..place(region.begin + region.bytes))
    }

    pub fn run(&mut self, seed: u64) -> Result<Totals, FunctionalError> {
        let memory = Place { bytes: &mut self.memory, origin: 0 };
        execute_instructions(&self.program.core, &self.instructions, memory, seed, STEPS_MAX)
    }
}

pub(crate) struct Place<'m> {
    pub bytes: &'m mut [u8],
    pub origin: u64,
}

impl Place<'_> {
    /// Returns `count` elements of `element` bytes each, from element `first`, counted from address zero.
    fn element_slice(&mut self, first: u64, count: usize, element: usize) -> Option<&mut [u8]> {
        let begin = first.checked_mul(element as u64)?.checked_sub(self.origin)?;
        let begin = usize::try_from(begin).ok()?;
        self.bytes.get_mut(begin..begin.checked_add(count * element)?)
    }
}

/// Executes instructions until the end of the program or until `most_steps` steps. Buffers start with zeros.
pub(crate) fn execute_instructions(
    core: &Core,
    instructions: &[Instruction],
    memory: Place<'_>,
    seed: u64,
    most_steps: u64,
) -> Result<Totals, FunctionalError> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut modules = Modules::new(core, memory, most_steps);
    let mut queues: [VecDeque<usize>; 3] = Default::default();
    let mut given = [0u32; 4];
    if !matches!(instructions.last(), Some(Instruction::Finish)) {
        return Err(FunctionalError::Endless);
    }
    for (place, instruction) in instructions.iter().enumerate() {
        if let Some(module) = module_of_instruction(instruction) {
            queues[module as usize].push_back(place);
        }
    }
    loop {
        let ready = [Module::Load, Module::Compute, Module::Store].map(|module| {
            let next = queues[module as usize].front();
            next.is_some_and(|&place| {
                let (takes, _) = queues_of(module, tokens_of_instruction(&instructions[place]));
                takes.into_iter().all(|queue| given[queue] > 0)
            })
        });
        let count = ready.iter().filter(|&&is| is).count();
        if count == 0 {
            break;
        }
        let chosen = random.random_range(0..count);
        let ready = [Module::Load, Module::Compute, Module::Store].into_iter().zip(ready);
        let module =
            ready.filter(|(_, is)| *is).nth(chosen).expect("the index is less than the number of ready modules").0;
        let place = queues[module as usize].pop_front().expect("a ready module has a queued instruction");
        let instruction = instructions[place];
        let (takes, gives) = queues_of(module, tokens_of_instruction(&instruction));
        takes.into_iter().for_each(|queue| given[queue] -= 1);
        modules.execute_step(&instruction).map_err(|what| match what {
            "" => FunctionalError::Large,
            what => FunctionalError::Leaves { place, what },
        })?;
        modules.totals.instructions += 1;
        gives.into_iter().for_each(|queue| given[queue] += 1);
    }
    match queues.iter().filter_map(VecDeque::front).min() {
        Some(&place) => Err(FunctionalError::Standstill(place)),
        None => Ok(modules.totals),
    }
}

struct Modules<'m> {
    core: Core,
    memory: Place<'m>,
    micro_ops: Vec<MicroOp>,
    data: Vec<i8>,
    weights: Vec<i8>,
    sums: Vec<i32>,
    totals: Totals,
    most_steps: u64,
}

impl<'m> Modules<'m> {
    fn new(core: &Core, memory: Place<'m>, most_steps: u64) -> Modules<'m> {
        let size = |buffer: Buffer, element: u64| {
            usize::try_from(u64::from(core.buffer_capacity(buffer)) * core.element_bytes(buffer) / element)
                .expect("a core's buffers fit into memory")
        };
        Modules {
            core: *core,
            memory,
            micro_ops: vec![MicroOp::default(); core.micro_ops as usize],
            data: vec![0; size(Buffer::Data, 1)],
            weights: vec![0; size(Buffer::Weights, 1)],
            sums: vec![0; size(Buffer::Sums, 4)],
            totals: Totals::default(),
            most_steps,
        }
    }

    /// Executes one instruction. On failure, returns the memory whose bounds were exceeded, or "" at the step limit.
    fn execute_step(&mut self, instruction: &Instruction) -> Result<(), &'static str> {
        match instruction {
            Instruction::Load(memory) | Instruction::Store(memory) if is_empty(memory) => Ok(()),
            Instruction::Load(memory) => self.load_buffer(memory),
            Instruction::Store(memory) => self.store_results(memory),
            Instruction::Multiply(multiply) => self.execute_multiply(multiply),
            Instruction::Alu(alu) => self.execute_alu(alu),
            Instruction::Finish => Ok(()),
        }
    }

    fn load_buffer(&mut self, load: &Memory) -> Result<(), &'static str> {
        if u64::from(load.on_core) + on_core(load) > u64::from(self.core.buffer_capacity(load.buffer)) {
            return Err("the core's memory");
        }
        let element = usize::try_from(self.core.element_bytes(load.buffer)).expect("small");
        let Pads { top, bottom, left, right } = load.pads;
        let [rows, columns] = [load.rows, load.columns].map(usize::from);
        let width = columns + usize::from(left) + usize::from(right);
        let height = rows + usize::from(top) + usize::from(bottom);
        let mut bytes = vec![0; height * width * element];
        for row in 0..rows {
            let from = u64::from(load.in_memory) + row as u64 * u64::from(load.stride);
            let to = ((row + usize::from(top)) * width + usize::from(left)) * element;
            let source = self.memory.element_slice(from, columns, element).ok_or("memory")?;
            bytes[to..to + source.len()].copy_from_slice(source);
        }
        self.totals.bytes[load.buffer as usize] += (rows * columns * element) as u64;
        let first = usize::from(load.on_core) * element;
        let bytes_at = |size: usize| first / size..(first + bytes.len()) / size;
        match load.buffer {
            Buffer::Data | Buffer::Weights => {
                let target = if load.buffer == Buffer::Data { &mut self.data } else { &mut self.weights };
                let target = target.get_mut(bytes_at(1)).ok_or("the core's memory")?;
                target.iter_mut().zip(&bytes).for_each(|(to, from)| *to = from.cast_signed());
            }
            Buffer::Sums | Buffer::Results => {
                let target = self.sums.get_mut(bytes_at(4)).ok_or("the core's memory")?;
                let (numbers, _) = bytes.as_chunks::<4>();
                target.iter_mut().zip(numbers).for_each(|(to, from)| *to = i32::from_le_bytes(*from));
            }
            Buffer::MicroOps => {
                let target = self.micro_ops.get_mut(bytes_at(4)).ok_or("the core's memory")?;
                let (numbers, _) = bytes.as_chunks::<4>();
                let core = self.core;
                let ops = numbers.iter().map(|bits| MicroOp::decode(&core, u32::from_le_bytes(*bits)));
                target.iter_mut().zip(ops).for_each(|(to, from)| *to = from);
            }
        }
        Ok(())
    }

    fn store_results(&mut self, store: &Memory) -> Result<(), &'static str> {
        let element = usize::try_from(self.core.element_bytes(Buffer::Results)).expect("small");
        let columns = usize::from(store.columns) * element;
        for row in 0..usize::from(store.rows) {
            let from = usize::from(store.on_core) * element + row * columns;
            let to = u64::from(store.in_memory) + row as u64 * u64::from(store.stride);
            let sums = self.sums.get(from..from + columns).ok_or("the core's memory")?;
            let target = self.memory.element_slice(to, usize::from(store.columns), element).ok_or("memory")?;
            // Truncates to the lowest byte.
            target.iter_mut().zip(sums).for_each(|(to, sum)| *to = (*sum as i8).cast_unsigned());
        }
        self.totals.bytes[Buffer::Results as usize] += (usize::from(store.rows) * columns) as u64;
        Ok(())
    }

    fn step_sequence(&mut self, steps: Steps) -> Result<Vec<MicroOp>, &'static str> {
        let done = self.totals.products + self.totals.resets + self.totals.changes;
        if done.saturating_add(step_count(steps)) > self.most_steps {
            return Err("");
        }
        let range = usize::from(steps.begin)..usize::from(steps.end);
        Ok(self.micro_ops.get(range).ok_or("the micro-operations")?.to_vec())
    }
}
