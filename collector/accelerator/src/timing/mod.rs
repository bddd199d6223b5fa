//! How many cycles a program takes: four lanes beside each other, tokens between them, one port to memory.
//!
//! Fetching reads instructions in bursts and puts them into queues; loading, computing and storing take them from there when
//! their tokens have come. Whoever reads or writes memory does so burst by burst, and all bursts share the port: of those
//! that wait, the one that asked first goes first. Only whole numbers are added, so the same program takes the same cycles
//! on every machine. What is not modelled: refresh, other masters, and whatever a host does to the same memory.

mod clock;
mod parameters;

pub use parameters::{Timing, TimingSet, timing_sets};

use crate::instruction::{DecodeError, Instruction, decode};
use crate::program::Program;
use clock::Clock;

/// Cycles beyond which nothing is simulated.
const MOST_CYCLES: u64 = 1 << 50;

/// What works beside the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Lane {
    Load,
    Compute,
    Store,
    Fetch,
}

impl Lane {
    /// All of them, in the order in which they get the port when they ask at once.
    pub const ALL: [Lane; 4] = [Lane::Load, Lane::Compute, Lane::Store, Lane::Fetch];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Lane::Load => "load",
            Lane::Compute => "compute",
            Lane::Store => "store",
            Lane::Fetch => "fetch",
        }
    }
}

/// When an instruction was at work, in cycles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Which instruction.
    pub place: usize,
    /// Who did it.
    pub lane: Lane,
    /// When it began, its tokens there.
    pub begin: u64,
    /// When it ended.
    pub end: u64,
    /// Cycles of that in which it waited for the port.
    pub waited: u64,
}

/// What a program takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timed {
    /// Cycles from the first instruction to the last.
    pub cycles: u64,
    /// Cycles in which each lane was at work.
    pub busy: [u64; 4],
    /// Cycles of those in which it waited for the port.
    pub waited: [u64; 4],
    /// Cycles in which the port moved something.
    pub port: u64,
    /// Bytes that it moved.
    pub bytes: u64,
    /// Instructions.
    pub instructions: u64,
}

/// What a program waits for most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Bound {
    Load,
    Compute,
    Store,
}

impl Timed {
    /// The lane that was at work longest.
    pub fn bound(&self) -> Bound {
        let [load, compute, store, _] = self.busy;
        match () {
            () if compute >= load && compute >= store => Bound::Compute,
            () if load >= store => Bound::Load,
            () => Bound::Store,
        }
    }
}

impl Bound {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Bound::Load => "load",
            Bound::Compute => "compute",
            Bound::Store => "store",
        }
    }
}

/// Why a program takes no time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum TimingError {
    #[error("instruction {place}: {why}")]
    Decode { place: usize, why: DecodeError },
    #[error("the modules wait for each other for ever")]
    Standstill,
    #[error("it takes more than {MOST_CYCLES} cycles")]
    Endless,
}

/// The cycles of a program.
pub fn simulate(program: &Program, timing: &Timing) -> Result<Timed, TimingError> {
    simulate_with(program, timing, &mut |_| ())
}

/// The cycles of a program; `seen` hears of every instruction as it ends.
pub fn simulate_with(program: &Program, timing: &Timing, seen: &mut dyn FnMut(Span)) -> Result<Timed, TimingError> {
    let decoded = program.instructions.iter().enumerate();
    let decoded =
        decoded.map(|(place, bits)| decode(&program.core, *bits).map_err(|why| TimingError::Decode { place, why }));
    let instructions = decoded.collect::<Result<Vec<Instruction>, TimingError>>()?;
    let mut clock = Clock::new(program, timing, &instructions);
    while let Some(lane) = clock.earliest() {
        clock.step(lane, seen);
        if clock.lanes[lane as usize].now > MOST_CYCLES {
            return Err(TimingError::Endless);
        }
    }
    clock.end()
}
