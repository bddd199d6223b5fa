//! Timing simulation of a program: four concurrent lanes, synchronised by tokens, with a shared memory port.
//! The fetch lane reads instructions in bursts into queues. The load, compute and store lanes execute them when their
//! tokens are available. All memory accesses are split into bursts that share the port in the order of their requests.
//! The arithmetic is integer, so results are identical on every machine. Not modelled: memory refresh, other bus
//! masters, and accesses of the host.

mod clock;
mod parameters;

pub use parameters::{Timing, TimingSet, timing_sets};

use crate::instruction::{DecodeError, Instruction, decode_instruction};
use crate::program::Program;
use clock::Clock;

const CYCLES_MAX: u64 = 1 << 50;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum TimingLane {
    Load,
    Compute,
    Store,
    Fetch,
}

impl TimingLane {
    /// All lanes, in the order of their priority at the memory port.
    pub const ALL: [TimingLane; 4] = [TimingLane::Load, TimingLane::Compute, TimingLane::Store, TimingLane::Fetch];

    pub fn name(self) -> &'static str {
        match self {
            TimingLane::Load => "load",
            TimingLane::Compute => "compute",
            TimingLane::Store => "store",
            TimingLane::Fetch => "fetch",
        }
    }
}

/// Execution of one instruction by a lane. Times are in cycles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModuleSpan {
    pub place: usize,
    pub lane: TimingLane,
    /// Cycle at which execution started, after the instruction's tokens were available.
    pub begin: u64,
    pub end: u64,
    /// Cycles spent waiting for the memory port.
    pub waited: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimedProgram {
    pub cycles: u64,
    pub busy: [u64; 4],
    /// Cycles that each lane spent waiting for the memory port, as part of its busy cycles.
    pub waited: [u64; 4],
    /// Cycles in which the memory port was busy.
    pub port: u64,
    pub bytes: u64,
    pub instructions: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Bound {
    Load,
    Compute,
    Store,
}

impl TimedProgram {
    pub fn busiest_lane(&self) -> Bound {
        let [load, compute, store, _] = self.busy;
        match () {
            () if compute >= load && compute >= store => Bound::Compute,
            () if load >= store => Bound::Load,
            () => Bound::Store,
        }
    }
}

impl Bound {
    pub fn name(self) -> &'static str {
        match self {
            Bound::Load => "load",
            Bound::Compute => "compute",
            Bound::Store => "store",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum TimingError {
    #[error("instruction {place}: {why}")]
    Decode { place: usize, why: DecodeError },
    #[error("deadlock: all modules wait for tokens")]
    Standstill,
    #[error("the program takes more than {CYCLES_MAX} cycles")]
    Endless,
}

pub fn simulate_program(program: &Program, timing: &Timing) -> Result<TimedProgram, TimingError> {
    simulate_with(program, timing, &mut |_| ())
}

pub fn simulate_with(
    program: &Program,
    timing: &Timing,
    seen: &mut dyn FnMut(ModuleSpan),
) -> Result<TimedProgram, TimingError> {
    let decoded = program.instructions.iter().enumerate();
    let decoded = decoded.map(|(place, bits)| {
        decode_instruction(&program.core, *bits).map_err(|why| TimingError::Decode { place, why })
    });
    let instructions = decoded.collect::<Result<Vec<Instruction>, TimingError>>()?;
    let mut clock = Clock::new(program, timing, &instructions);
    while let Some(lane) = clock.earliest_lane() {
        clock.advance_lane(lane, seen);
        if clock.lanes[lane as usize].now > CYCLES_MAX {
            return Err(TimingError::Endless);
        }
    }
    clock.into_timed()
}
