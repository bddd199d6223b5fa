//! Execution order that the tokens of a program guarantee, and the resulting check of its buffer accesses.

use super::{Module, each_step, is_empty, on_core, queues_of, step_count, tokens_of_instruction};
use crate::core::{Buffer, Core};
use crate::instruction::{Instruction, Memory, MicroOp, Steps, Tokens};
use crate::program::{Program, Role};
use std::collections::VecDeque;

/// Limit of tokens in a queue, because the hardware counts them in 8 bits.
const TOKENS_MAX: usize = 254;

/// Number of instructions of each module that are guaranteed to have ended.
type EndedCounts = [usize; 3];

/// A buffer element's last write and read, each as the number of instructions that its module has executed by then.
#[derive(Clone, Copy, Default)]
struct ElementAccess {
    written: usize,
    read: usize,
}

pub(super) struct Run<'a> {
    program: &'a Program,
    pub(super) tokens: [VecDeque<EndedCounts>; 4],
    known: [EndedCounts; 3],
    data: Vec<ElementAccess>,
    weights: Vec<ElementAccess>,
    sums: Vec<ElementAccess>,
    micro_ops: Vec<Option<MicroOp>>,
}

impl<'a> Run<'a> {
    pub(super) fn new(program: &'a Program) -> Run<'a> {
        let Core { data, weights, sums, micro_ops, .. } = program.core;
        let of = |elements: u32| vec![ElementAccess::default(); elements as usize];
        Run {
            program,
            tokens: Default::default(),
            known: Default::default(),
            data: of(data),
            weights: of(weights),
            sums: of(sums),
            micro_ops: vec![None; micro_ops as usize],
        }
    }

    pub(super) fn is_ready(&self, module: Module, tokens: Tokens) -> bool {
        queues_of(module, tokens).0.into_iter().all(|queue| !self.tokens[queue].is_empty())
    }

    pub(super) fn step_module(&mut self, module: Module, instruction: &Instruction) -> Result<(), String> {
        let (takes, gives) = queues_of(module, tokens_of_instruction(instruction));
        for queue in takes {
            let token = self.tokens[queue].pop_front().expect("a ready instruction has its tokens");
            let known = &mut self.known[module as usize];
            (0..3).for_each(|other| known[other] = known[other].max(token[other]));
        }
        let ended = self.known[module as usize][module as usize] + 1;
        self.record_accesses(instruction, ended)?;
        self.known[module as usize][module as usize] = ended;
        for queue in gives {
            self.tokens[queue].push_back(self.known[module as usize]);
            if self.tokens[queue].len() > TOKENS_MAX {
                return Err(format!("more than {TOKENS_MAX} tokens are queued for one module"));
            }
        }
        Ok(())
    }

    /// Records an instruction's buffer accesses. Rejects the instruction if a conflicting access may not have ended.
    fn record_accesses(&mut self, instruction: &Instruction, ended: usize) -> Result<(), String> {
        let [loads, computes, stores] = [Module::Load, Module::Compute, Module::Store].map(|module| module as usize);
        match instruction {
            Instruction::Load(memory) | Instruction::Store(memory) if is_empty(memory) => Ok(()),
            Instruction::Load(memory) => {
                let first = usize::from(memory.on_core);
                let range = first
                    ..first + usize::try_from(on_core(memory)).expect("the transfer was checked to fit on the core");
                let known = self.known[loads][computes];
                match memory.buffer {
                    Buffer::Data => {
                        record_write(&mut self.data[range], ended, known, "data that another instruction may still use")
                    }
                    Buffer::Weights => record_write(
                        &mut self.weights[range],
                        ended,
                        known,
                        "weights that another instruction may still use",
                    ),
                    Buffer::Sums | Buffer::Results => {
                        let known = self.known[computes][stores];
                        record_write(&mut self.sums[range], ended, known, "sums that a store may still read")
                    }
                    Buffer::MicroOps => self.load_micro_ops(memory, first),
                }
            }
            Instruction::Store(memory) => {
                let first = usize::from(memory.on_core);
                let range = first
                    ..first + usize::try_from(on_core(memory)).expect("the transfer was checked to fit on the core");
                let known = self.known[stores][computes];
                record_read(&mut self.sums[range], ended, known, "sums whose computation may not have finished")
            }
            Instruction::Multiply(multiply) => {
                let factors = [multiply.sum, multiply.data, multiply.weight];
                let ops = self.loaded_sequence(multiply.steps)?;
                let (known_loads, known_stores) = (self.known[computes][loads], self.known[computes][stores]);
                let (distance, is_reset) = (self.program.core.distance as usize, multiply.is_reset);
                let Run { data, weights, sums, .. } = self;
                let mut recent: VecDeque<usize> = VecDeque::new();
                let mut wrong = None;
                each_step(multiply.steps, &ops, factors, |sum, at, weight| {
                    let mut step = || {
                        let sums = sums.get_mut(sum..=sum).ok_or("the instruction exceeds the sum buffer")?;
                        record_write(sums, ended, known_stores, "sums that a store may still read")?;
                        if is_reset {
                            return Ok(());
                        }
                        if recent.contains(&sum) {
                            return Err(format!("sum {sum} is updated again within {distance} steps"));
                        }
                        recent.push_back(sum);
                        if recent.len() >= distance {
                            recent.pop_front();
                        }
                        let data = data.get_mut(at..=at).ok_or("the instruction exceeds the data buffer")?;
                        record_read(data, ended, known_loads, "data whose load may not have finished")?;
                        let weights =
                            weights.get_mut(weight..=weight).ok_or("the instruction exceeds the weight buffer")?;
                        record_read(weights, ended, known_loads, "weights whose load may not have finished")
                    };
                    if wrong.is_none() {
                        wrong = step().err();
                    }
                });
                wrong.map_or(Ok(()), Err)
            }
            Instruction::Alu(alu) => {
                let ops = self.loaded_sequence(alu.steps)?;
                let known = self.known[computes][stores];
                let sums = &mut self.sums;
                let mut wrong = None;
                each_step(alu.steps, &ops, [alu.sum, alu.other, [0, 0]], |sum, other, _| {
                    let is_inside = alu.immediate.is_some() || other < sums.len();
                    let result = match sums.get_mut(sum..=sum).filter(|_| is_inside) {
                        Some(sums) => record_write(sums, ended, known, "sums that a store may still read"),
                        None => Err("the instruction exceeds the sum buffer".to_owned()),
                    };
                    wrong = wrong.take().or(result.err());
                });
                wrong.map_or(Ok(()), Err)
            }
            Instruction::Finish => Ok(()),
        }
    }

    fn load_micro_ops(&mut self, memory: &Memory, first: usize) -> Result<(), String> {
        let region =
            self.program.find_region(Role::MicroOps).ok_or("the program has no memory region for micro-operations")?;
        let from =
            usize::try_from(u64::from(memory.in_memory) - region.begin / 4).map_err(|error| error.to_string())?;
        for row in 0..usize::from(memory.rows) {
            for column in 0..usize::from(memory.columns) {
                let bits = self.program.micro_ops.get(from + row * usize::from(memory.stride) + column);
                let bits = bits.ok_or("the load exceeds the program's micro-operations")?;
                self.micro_ops[first + row * usize::from(memory.columns) + column] =
                    Some(MicroOp::decode(&self.program.core, *bits));
            }
        }
        Ok(())
    }

    fn loaded_sequence(&self, steps: Steps) -> Result<Vec<MicroOp>, String> {
        let range = self.micro_ops.get(usize::from(steps.begin)..usize::from(steps.end));
        let loaded = range.and_then(|ops| ops.iter().copied().collect::<Option<Vec<MicroOp>>>());
        let loaded = loaded.ok_or("the instruction uses micro-operations that were not loaded")?;
        // A loop with more steps repeats indices, which no generator produces.
        if step_count(steps) > 1 << 24 {
            return Err(format!("the instruction has {} steps, more than 2^24", step_count(steps)));
        }
        Ok(loaded)
    }
}

/// Records a write by a module's `ended`-th instruction. Rejects it if the last reader of an element may be running.
fn record_write(elements: &mut [ElementAccess], ended: usize, known: usize, what: &str) -> Result<(), String> {
    if elements.iter().any(|element| element.read > known) {
        return Err(format!("the instruction overwrites {what}"));
    }
    elements.iter_mut().for_each(|element| element.written = ended);
    Ok(())
}

fn record_read(elements: &mut [ElementAccess], ended: usize, known: usize, what: &str) -> Result<(), String> {
    if elements.iter().any(|element| element.written > known) {
        return Err(format!("the instruction reads {what}"));
    }
    elements.iter_mut().for_each(|element| element.read = ended);
    Ok(())
}
