//! Event-driven timing simulation: the lane that can advance at the earliest cycle executes its next step.

use super::{ModuleSpan, TimedProgram, Timing, TimingError, TimingLane};
use crate::check::{Module, is_empty, module_of_instruction, queues_of, step_count, tokens_of_instruction};
use crate::instruction::{AluOp, Instruction};
use crate::program::Program;
use std::collections::VecDeque;

const INSTRUCTION_BYTES: u64 = 16;
const QUEUE: usize = 512;

#[derive(Default)]
pub(super) struct ModuleProgress {
    pub(super) now: u64,
    work: Option<ModuleWork>,
    queue: VecDeque<(usize, u64)>,
}

struct ModuleWork {
    place: usize,
    begin: u64,
    waited: u64,
    /// Bytes of each row, number of remaining rows, and remaining bytes of the current row.
    row: u64,
    rows: u64,
    left: u64,
    /// Cycles that follow the last burst of the instruction.
    extra_cycles: u64,
    /// Latency in cycles before each row.
    row_start: u64,
}

pub(super) struct Clock<'a> {
    program: &'a Program,
    timing: &'a Timing,
    instructions: &'a [Instruction],
    pub(super) lanes: [ModuleProgress; 4],
    /// Cycles at which the tokens of each queue become available.
    tokens: [VecDeque<u64>; 4],
    fetched: usize,
    port_free: u64,
    timed: TimedProgram,
}

impl<'a> Clock<'a> {
    pub(super) fn new(program: &'a Program, timing: &'a Timing, instructions: &'a [Instruction]) -> Clock<'a> {
        Clock {
            program,
            timing,
            instructions,
            lanes: Default::default(),
            tokens: Default::default(),
            fetched: 0,
            port_free: 0,
            timed: TimedProgram::default(),
        }
    }

    pub(super) fn earliest_lane(&self) -> Option<TimingLane> {
        let ready = TimingLane::ALL.into_iter().filter_map(|lane| Some((self.ready_cycle(lane)?, lane)));
        // Ties are resolved by the order of lanes.
        ready.min_by_key(|(when, lane)| (*when, *lane as usize)).map(|(_, lane)| lane)
    }

    /// Returns the cycle at which a lane can advance, or `None` as long as the lane waits for another one.
    fn ready_cycle(&self, lane: TimingLane) -> Option<u64> {
        let ModuleProgress { now, work, queue } = &self.lanes[lane as usize];
        if work.is_some() {
            return Some(*now);
        }
        let Some(module) = module_of(lane) else {
            let has_room = |module: Module| self.lanes[module as usize].queue.len() < QUEUE;
            let next = self.instructions.get(self.fetched)?;
            return module_room(next, has_room).then_some(*now);
        };
        let &(place, there) = queue.front()?;
        let (takes, _) = queues_of(module, tokens_of_instruction(&self.instructions[place]));
        let given = takes.into_iter().map(|queue| self.tokens[queue].front().copied());
        given.chain([Some(there), Some(*now)]).collect::<Option<Vec<u64>>>()?.into_iter().max()
    }

    pub(super) fn advance_lane(&mut self, lane: TimingLane, seen: &mut dyn FnMut(ModuleSpan)) {
        if lane == TimingLane::Fetch {
            return self.fetch_burst();
        }
        let when = self.ready_cycle(lane).unwrap_or(self.lanes[lane as usize].now);
        match self.lanes[lane as usize].work.take() {
            None => self.begin_instruction(lane, when),
            Some(work) if work.rows > 0 => self.advance_burst(lane, work),
            Some(work) => self.finish_instruction(lane, &work, seen),
        }
    }

    fn fetch_burst(&mut self) {
        let most = (self.timing.burst_beats * self.timing.beat_bytes / INSTRUCTION_BYTES).max(1);
        let first = self.fetched;
        while ((self.fetched - first) as u64) < most {
            let next = self.instructions.get(self.fetched);
            let has_room = |module: Module| self.lanes[module as usize].queue.len() < QUEUE;
            if !next.is_some_and(|next| module_room(next, has_room)) {
                break;
            }
            self.fetched += 1;
        }
        let now = self.lanes[TimingLane::Fetch as usize].now;
        let bytes = (self.fetched - first) as u64 * INSTRUCTION_BYTES;
        let (end, _) = self.transfer_burst(TimingLane::Fetch, (now, self.timing.burst), bytes);
        self.lanes[TimingLane::Fetch as usize].now = end;
        self.timed.busy[TimingLane::Fetch as usize] += end - now;
        self.timed.instructions += (self.fetched - first) as u64;
        for place in first..self.fetched {
            if let Some(module) = module_of_instruction(&self.instructions[place]) {
                self.lanes[module as usize].queue.push_back((place, end));
            }
        }
    }

    fn begin_instruction(&mut self, lane: TimingLane, when: u64) {
        let (place, _) =
            self.lanes[lane as usize].queue.pop_front().expect("a lane that can advance has an instruction");
        let instruction = &self.instructions[place];
        let module = module_of(lane).expect("the lane executes instructions");
        for queue in queues_of(module, tokens_of_instruction(instruction)).0 {
            self.tokens[queue].pop_front();
        }
        let Timing { instruction: start, .. } = *self.timing;
        let (rows, row, extra_cycles) = self.instruction_cost(instruction);
        let row_start = if lane == TimingLane::Store { self.timing.store_row } else { self.timing.row };
        let now = when + start + if rows > 0 { row_start } else { 0 };
        let progress = &mut self.lanes[lane as usize];
        progress.now = now;
        progress.work =
            Some(ModuleWork { place, begin: when, waited: 0, row, rows, left: row, extra_cycles, row_start });
    }

    /// Returns the number of rows, the bytes per row and the additional cycles of an instruction.
    fn instruction_cost(&self, instruction: &Instruction) -> (u64, u64, u64) {
        let timing = self.timing;
        match instruction {
            Instruction::Load(memory) | Instruction::Store(memory) if is_empty(memory) => (0, 0, 0),
            Instruction::Load(memory) | Instruction::Store(memory) => {
                let bytes = u64::from(memory.columns) * self.program.core.element_bytes(memory.buffer);
                let inside = u64::from(memory.rows) * u64::from(memory.columns);
                let zeros = crate::check::on_core(memory) - inside;
                // Contiguous rows are joined.
                let is_whole =
                    timing.joins_rows && memory.stride == memory.columns && memory.pads == Default::default();
                match is_whole {
                    true => (1, bytes * u64::from(memory.rows), 0),
                    false => (u64::from(memory.rows), bytes, zeros * timing.pad),
                }
            }
            Instruction::Multiply(multiply) => {
                let step = if multiply.is_reset { 1 } else { timing.multiply_step };
                (0, 0, timing.multiply_fill + step * step_count(multiply.steps))
            }
            Instruction::Alu(alu) => {
                let step = match alu.op {
                    AluOp::ShiftRight | AluOp::Add | AluOp::Min | AluOp::Max => timing.alu_step,
                };
                (0, 0, timing.alu_fill + step * step_count(alu.steps))
            }
            Instruction::Finish => (0, 0, 0),
        }
    }

    fn advance_burst(&mut self, lane: TimingLane, mut work: ModuleWork) {
        let now = self.lanes[lane as usize].now;
        let bytes = work.left.min(self.timing.burst_beats * self.timing.beat_bytes);
        let delay = if work.left == work.row { self.timing.burst } else { self.timing.next_burst };
        let (end, waited) = self.transfer_burst(lane, (now, delay), bytes);
        work.waited += waited;
        work.left -= bytes;
        let mut now = end;
        if work.left == 0 {
            work.rows -= 1;
            work.left = work.row;
            now += if work.rows > 0 { work.row_start } else { 0 };
        }
        let progress = &mut self.lanes[lane as usize];
        progress.now = now;
        progress.work = Some(work);
    }

    /// Simulates one burst of a lane. Returns the burst's end and the time that it waited for the memory port.
    fn transfer_burst(&mut self, lane: TimingLane, (now, delay): (u64, u64), bytes: u64) -> (u64, u64) {
        let timing = self.timing;
        let beats = bytes.div_ceil(timing.beat_bytes);
        // Memory that serves one burst at a time has latency only when it was idle.
        let is_hidden = timing.is_one_at_a_time && now < self.port_free;
        let asked = if timing.is_one_at_a_time { now } else { now + delay };
        let begin = asked.max(self.port_free);
        let held = if timing.is_one_at_a_time && !is_hidden { delay + beats } else { beats };
        self.port_free = begin + held;
        self.timed.port += held;
        self.timed.bytes += bytes;
        self.timed.waited[lane as usize] += begin - asked;
        (begin + held, begin - asked)
    }

    fn finish_instruction(&mut self, lane: TimingLane, work: &ModuleWork, seen: &mut dyn FnMut(ModuleSpan)) {
        let progress = &mut self.lanes[lane as usize];
        progress.now += work.extra_cycles;
        let end = progress.now;
        let module = module_of(lane).expect("the lane executes instructions");
        for queue in queues_of(module, tokens_of_instruction(&self.instructions[work.place])).1 {
            self.tokens[queue].push_back(end);
        }
        self.timed.busy[lane as usize] += end - work.begin;
        self.timed.cycles = self.timed.cycles.max(end);
        seen(ModuleSpan { place: work.place, lane, begin: work.begin, end, waited: work.waited });
    }

    pub(super) fn into_timed(self) -> Result<TimedProgram, TimingError> {
        let waits = self.lanes.iter().any(|lane| !lane.queue.is_empty() || lane.work.is_some());
        if waits || self.fetched < self.instructions.len() {
            return Err(TimingError::Standstill);
        }
        Ok(self.timed)
    }
}

fn module_of(lane: TimingLane) -> Option<Module> {
    match lane {
        TimingLane::Load => Some(Module::Load),
        TimingLane::Compute => Some(Module::Compute),
        TimingLane::Store => Some(Module::Store),
        TimingLane::Fetch => None,
    }
}

fn module_room(instruction: &Instruction, has_room: impl Fn(Module) -> bool) -> bool {
    module_of_instruction(instruction).is_none_or(has_room)
}
