//! Execution order that the tokens of a program guarantee, and the resulting check of its buffer accesses.

use super::{Module, each_step, is_empty, on_core, queues_of, step_count, tokens_of_instruction};
use crate::core::{Buffer, Core};
use crate::instruction::{Instruction, Memory, MicroOp, Steps, Tokens};
use crate::program::{Program, Role};
use std::collections::VecDeque;

/// Limit of tokens in a queue, because the hardware counts them in 8 bits.
const MOST_TOKENS: usize = 254;

/// Number of instructions of each module that are guaranteed to have ended.
type LoadedState = [usize; 3];

/// Last write and read of a buffer element, each as the number of instructions its module has ended after it.
#[derive(Clone, Copy, Default)]
struct Used {
    written: usize,
    read: usize,
}

pub(super) struct Run<'a> {
    program: &'a Program,
    pub(super) tokens: [VecDeque<LoadedState>; 4],
    known: [LoadedState; 3],
    data: Vec<Used>,
    weights: Vec<Used>,
    sums: Vec<Used>,
    micro_ops: Vec<Option<MicroOp>>,
}

impl<'a> Run<'a> {
    pub(super) fn new(program: &'a Program) -> Run<'a> {
        let Core { data, weights, sums, micro_ops, .. } = program.core;
        let of = |elements: u32| vec![Used::default(); elements as usize];
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
            let token = self.tokens[queue].pop_front().expect("it is ready");
            let known = &mut self.known[module as usize];
            (0..3).for_each(|other| known[other] = known[other].max(token[other]));
        }
        let ended = self.known[module as usize][module as usize] + 1;
        self.record_accesses(instruction, ended)?;
        self.known[module as usize][module as usize] = ended;
        for queue in gives {
            self.tokens[queue].push_back(self.known[module as usize]);
            if self.tokens[queue].len() > MOST_TOKENS {
                return Err(format!("more than {MOST_TOKENS} tokens wait for one module"));
            }
        }
        Ok(())
    }

    /// Records an instruction's buffer accesses. Rejects any whose earlier conflicting access may not have ended.
    fn record_accesses(&mut self, instruction: &Instruction, ended: usize) -> Result<(), String> {
        let [loads, computes, stores] = [Module::Load, Module::Compute, Module::Store].map(|module| module as usize);
        match instruction {
            Instruction::Load(memory) | Instruction::Store(memory) if is_empty(memory) => Ok(()),
            Instruction::Load(memory) => {
                let first = usize::from(memory.on_core);
                let range = first..first + usize::try_from(on_core(memory)).expect("it is on the core");
                let known = self.known[loads][computes];
                match memory.buffer {
                    Buffer::Data => record_write(&mut self.data[range], ended, known, "data that may be in use"),
                    Buffer::Weights => {
                        record_write(&mut self.weights[range], ended, known, "weights that may be in use")
                    }
                    Buffer::Sums | Buffer::Results => {
                        let known = self.known[computes][stores];
                        record_write(&mut self.sums[range], ended, known, "sums that may still be stored")
                    }
                    Buffer::MicroOps => self.load_micro_ops(memory, first),
                }
            }
            Instruction::Store(memory) => {
                let first = usize::from(memory.on_core);
                let range = first..first + usize::try_from(on_core(memory)).expect("it is on the core");
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
                        let sums = sums.get_mut(sum..=sum).ok_or("it leaves the sums")?;
                        record_write(sums, ended, known_stores, "sums that may still be stored")?;
                        if is_reset {
                            return Ok(());
                        }
                        if recent.contains(&sum) {
                            return Err(format!("sum {sum} comes again within {distance} steps"));
                        }
                        recent.push_back(sum);
                        if recent.len() >= distance {
                            recent.pop_front();
                        }
                        let data = data.get_mut(at..=at).ok_or("it leaves the data")?;
                        record_read(data, ended, known_loads, "data whose load may not have finished")?;
                        let weights = weights.get_mut(weight..=weight).ok_or("it leaves the weights")?;
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
                        Some(sums) => record_write(sums, ended, known, "sums that may still be stored"),
                        None => Err("it leaves the sums".to_owned()),
                    };
                    wrong = wrong.take().or(result.err());
                });
                wrong.map_or(Ok(()), Err)
            }
            Instruction::Finish => Ok(()),
        }
    }

    fn load_micro_ops(&mut self, memory: &Memory, first: usize) -> Result<(), String> {
        let region = self.program.find_region(Role::MicroOps).ok_or("the program has no micro-operations")?;
        let from =
            usize::try_from(u64::from(memory.in_memory) - region.begin / 4).map_err(|error| error.to_string())?;
        for row in 0..usize::from(memory.rows) {
            for column in 0..usize::from(memory.columns) {
                let bits = self.program.micro_ops.get(from + row * usize::from(memory.stride) + column);
                let bits = bits.ok_or("the program has fewer micro-operations")?;
                self.micro_ops[first + row * usize::from(memory.columns) + column] =
                    Some(MicroOp::decode(&self.program.core, *bits));
            }
        }
        Ok(())
    }

    /// Returns the micro-operations that an instruction executes; fails if they have not been loaded.
    fn loaded_sequence(&self, steps: Steps) -> Result<Vec<MicroOp>, String> {
        let range = self.micro_ops.get(usize::from(steps.begin)..usize::from(steps.end));
        let loaded = range.and_then(|ops| ops.iter().copied().collect::<Option<Vec<MicroOp>>>());
        let loaded = loaded.ok_or("it uses micro-operations that were not loaded")?;
        // A loop with more steps repeats indices, which no generator produces.
        if step_count(steps) > 1 << 24 {
            return Err(format!("it has {} steps", step_count(steps)));
        }
        Ok(loaded)
    }
}

/// Records a write by the `ended`-th instruction of a module. Rejects the write if an element has a reader later than
/// `known`, the last reader that is guaranteed to have ended.
fn record_write(elements: &mut [Used], ended: usize, known: usize, what: &str) -> Result<(), String> {
    if elements.iter().any(|element| element.read > known) {
        return Err(format!("it writes {what}"));
    }
    elements.iter_mut().for_each(|element| element.written = ended);
    Ok(())
}

fn record_read(elements: &mut [Used], ended: usize, known: usize, what: &str) -> Result<(), String> {
    if elements.iter().any(|element| element.written > known) {
        return Err(format!("it reads {what}"));
    }
    elements.iter_mut().for_each(|element| element.read = ended);
    Ok(())
}
