//! Static check of programs. On hardware, an incorrect program hangs or silently computes something else.
//! The check executes the three instruction queues without timing. Each kind of token has one producer and one
//! consumer, so the order of tokens does not depend on timing. For each instruction it is therefore known which
//! instructions of the other modules have ended. A write requires that the last reader of the element has ended, and a
//! read that the last writer has.

mod run;

use crate::core::Buffer;
use crate::instruction::{DecodeError, Instruction, Memory, MicroOp, Steps, Tokens, decode_instruction};
use crate::program::{Program, Role};
use run::Run;
use std::collections::VecDeque;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("instruction {place}: {why}")]
pub struct CheckError {
    pub place: usize,
    pub why: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Module {
    Load,
    Compute,
    Store,
}

pub fn check_program(program: &Program) -> Result<(), CheckError> {
    let core = &program.core;
    let fail = |place: usize, why: String| CheckError { place, why };
    core.check_encodable().map_err(|error| fail(0, error.to_string()))?;
    let decoded = program.instructions.iter().enumerate().map(|(place, bits)| {
        decode_instruction(core, *bits).map_err(|error: DecodeError| fail(place, error.to_string()))
    });
    let instructions = decoded.collect::<Result<Vec<Instruction>, CheckError>>()?;
    let Some((Instruction::Finish, body)) = instructions.split_last() else {
        return Err(fail(instructions.len(), "the program does not end with a `finish` instruction".to_owned()));
    };
    let mut queues: [VecDeque<usize>; 3] = Default::default();
    for (place, instruction) in body.iter().enumerate() {
        let module = module_of_instruction(instruction)
            .ok_or_else(|| fail(place, "a `finish` instruction occurs before the end of the program".to_owned()))?;
        check_alone(program, module, instruction).map_err(|why| fail(place, why))?;
        queues[module as usize].push_back(place);
    }
    let mut run = Run::new(program);
    loop {
        let ready = [Module::Load, Module::Compute, Module::Store].into_iter().find(|&module| {
            let next = queues[module as usize].front();
            next.is_some_and(|&place| run.is_ready(module, tokens_of_instruction(&body[place])))
        });
        let Some(module) = ready else { break };
        let place = queues[module as usize].pop_front().expect("a ready module has a queued instruction");
        run.step_module(module, &body[place]).map_err(|why| fail(place, why))?;
    }
    if let Some(&place) = queues.iter().filter_map(VecDeque::front).min() {
        return Err(fail(place, "the instruction waits for a token that no module sends".to_owned()));
    }
    match run.tokens.iter().map(VecDeque::len).sum::<usize>() {
        0 => Ok(()),
        left => Err(fail(
            body.len(),
            format!("{left} tokens remain in the queues after the program and would break the next one"),
        )),
    }
}

/// Returns the module that executes an instruction; `None` for `Finish`.
pub(crate) fn module_of_instruction(instruction: &Instruction) -> Option<Module> {
    match instruction {
        Instruction::Load(Memory { buffer: Buffer::Data | Buffer::Weights, .. }) => Some(Module::Load),
        Instruction::Load(_) | Instruction::Multiply(_) | Instruction::Alu(_) => Some(Module::Compute),
        Instruction::Store(_) => Some(Module::Store),
        Instruction::Finish => None,
    }
}

pub(crate) fn tokens_of_instruction(instruction: &Instruction) -> Tokens {
    match instruction {
        Instruction::Load(memory) | Instruction::Store(memory) => memory.tokens,
        Instruction::Multiply(multiply) => multiply.tokens,
        Instruction::Alu(alu) => alu.tokens,
        Instruction::Finish => Tokens::default(),
    }
}

/// Returns the token queues that an instruction pops from and those that it pushes to. Queue 0 leads from load to
/// compute, 1 from compute to load, 2 from compute to store, and 3 from store to compute.
pub(crate) fn queues_of(module: Module, tokens: Tokens) -> (Vec<usize>, Vec<usize>) {
    let (from_previous, from_next, to_previous, to_next) = match module {
        Module::Load => (None, Some(1), None, Some(0)),
        Module::Compute => (Some(0), Some(3), Some(1), Some(2)),
        Module::Store => (Some(2), None, Some(3), None),
    };
    let some = |wanted: [(bool, Option<usize>); 2]| wanted.into_iter().filter_map(|(is, queue)| queue.filter(|_| is));
    (
        some([(tokens.pop_previous, from_previous), (tokens.pop_next, from_next)]).collect(),
        some([(tokens.push_previous, to_previous), (tokens.push_next, to_next)]).collect(),
    )
}

fn check_alone(program: &Program, module: Module, instruction: &Instruction) -> Result<(), String> {
    let given = tokens_of_instruction(instruction);
    let is_wrong = match module {
        Module::Load => given.pop_previous || given.push_previous,
        Module::Compute => false,
        Module::Store => given.pop_next || given.push_next,
    };
    if is_wrong {
        return Err("the instruction waits for or signals a module that does not exist".to_owned());
    }
    match instruction {
        Instruction::Load(memory) => check_transfer(program, memory, true),
        Instruction::Store(memory) => check_transfer(program, memory, false),
        Instruction::Multiply(_) | Instruction::Alu(_) | Instruction::Finish => Ok(()),
    }
}

pub(crate) fn on_core(memory: &Memory) -> u64 {
    let rows = u64::from(memory.rows) + u64::from(memory.pads.top) + u64::from(memory.pads.bottom);
    rows * (u64::from(memory.columns) + u64::from(memory.pads.left) + u64::from(memory.pads.right))
}

pub(crate) fn is_empty(memory: &Memory) -> bool {
    memory.rows == 0 || memory.columns == 0
}

fn check_transfer(program: &Program, memory: &Memory, is_load: bool) -> Result<(), String> {
    if is_empty(memory) {
        return Ok(());
    }
    let (core, buffer) = (&program.core, memory.buffer);
    if is_load == (buffer == Buffer::Results) {
        let verb = if is_load { "loaded" } else { "stored" };
        return Err(format!("{} cannot be {verb}", buffer.name()));
    }
    let can_pad = is_load && matches!(buffer, Buffer::Data | Buffer::Sums);
    if !can_pad && memory.pads != crate::instruction::Pads::default() {
        return Err(format!("only loads of data and sums can be padded, not transfers of {}", buffer.name()));
    }
    let end = u64::from(memory.on_core) + on_core(memory);
    if end > u64::from(core.buffer_capacity(buffer)) {
        return Err(format!(
            "{} end at element {end}, but the buffer on the core has {} elements",
            buffer.name(),
            core.buffer_capacity(buffer)
        ));
    }
    let bytes = core.element_bytes(buffer);
    let first = u64::from(memory.in_memory) * bytes;
    let last =
        u64::from(memory.in_memory) + u64::from(memory.rows - 1) * u64::from(memory.stride) + u64::from(memory.columns);
    let is_inside = program.regions.iter().any(|region| {
        let is_own = region.buffer == buffer && (buffer != Buffer::Results || region.role == Role::Result);
        is_own && first >= region.begin && last * bytes <= region.begin + region.bytes
    });
    if is_inside {
        Ok(())
    } else {
        Err(format!("bytes {first} to {} of memory are not in the program's {} region", last * bytes, buffer.name()))
    }
}

pub(crate) fn each_step(
    steps: Steps,
    micro_ops: &[MicroOp],
    factors: [[u16; 2]; 3],
    mut visit: impl FnMut(usize, usize, usize),
) {
    for outer in 0..usize::from(steps.outer) {
        for inner in 0..usize::from(steps.inner) {
            let [sum, data, weight] =
                factors.map(|[of_outer, of_inner]| outer * usize::from(of_outer) + inner * usize::from(of_inner));
            for micro_op in micro_ops {
                visit(
                    usize::from(micro_op.sum) + sum,
                    usize::from(micro_op.data) + data,
                    usize::from(micro_op.weight) + weight,
                );
            }
        }
    }
}

pub(crate) fn step_count(steps: Steps) -> u64 {
    u64::from(steps.end.saturating_sub(steps.begin)) * u64::from(steps.outer) * u64::from(steps.inner)
}
