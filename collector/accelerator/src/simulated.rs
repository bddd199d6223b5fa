//! A board that is not there: memory, and a core that computes what its registers say, bit by bit.
//!
//! Its clock counts how often somebody looked at it, so it says nothing of time; it only makes every wait end.

use crate::bus::{Block, Bus, registers};
use crate::core::Core;
use crate::functional::{Place, execute};
use crate::stream::{INSTRUCTION_BYTES, read_stream};
use std::collections::BTreeMap;

/// A program of more steps does not end here: a core would take ten seconds for them.
const MOST_STEPS: u64 = 1 << 30;
/// How far a look moves the clock.
const LOOK_NS: u64 = 1000;

/// A core beside its memory.
pub struct SimulatedBus {
    core: Core,
    memory: Vec<u8>,
    address: u64,
    values: BTreeMap<(Block, u32), u32>,
    is_done: bool,
    now_ns: u64,
    runs: u64,
}

impl SimulatedBus {
    /// So many bytes of memory that begin at an address.
    pub fn new(core: Core, address: u64, bytes: usize) -> SimulatedBus {
        let (values, memory) = (BTreeMap::new(), vec![0; bytes]);
        SimulatedBus { core, memory, address, values, is_done: false, now_ns: 0, runs: 0 }
    }

    fn value(&self, block: Block, register: u32) -> u32 {
        self.values.get(&(block, register)).copied().unwrap_or(0)
    }

    /// Whether every block was told to begin.
    fn is_started(&self) -> bool {
        Block::ALL.into_iter().all(|block| self.value(block, registers::CONTROL) & registers::START != 0)
    }

    /// Computes; a program that leaves memory or stands still is never done.
    fn compute(&mut self) -> Option<()> {
        let count = u64::from(self.value(Block::Fetch, registers::COUNT));
        let at = u64::from(self.value(Block::Fetch, registers::INSTRUCTIONS)).checked_sub(self.address)?;
        let place = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let bytes = self.memory.get(place(at)..place(at + count * INSTRUCTION_BYTES))?;
        let instructions = read_stream(&self.core, bytes).ok()?;
        let memory = Place { bytes: &mut self.memory, origin: self.address };
        self.runs += 1;
        execute(&self.core, &instructions, memory, self.runs, MOST_STEPS).ok().map(|_| ())
    }
}

impl Bus for SimulatedBus {
    fn write(&mut self, block: Block, register: u32, value: u32) {
        self.values.insert((block, register), value);
        if (block, register) == (Block::Compute, registers::NOT_DONE) {
            self.is_done = value & 1 == 1;
        }
        if register == registers::CONTROL && self.is_started() {
            self.is_done = self.compute().is_some();
            // A block that fetches begins once; the others begin again by themselves.
            self.values.remove(&(Block::Fetch, registers::CONTROL));
        }
    }

    fn read(&mut self, block: Block, register: u32) -> u32 {
        match (block, register) {
            (Block::Compute, registers::DONE) => u32::from(self.is_done),
            _ => self.value(block, register),
        }
    }

    fn bytes(&self) -> u64 {
        self.memory.len() as u64
    }

    fn address(&self) -> u64 {
        self.address
    }

    fn put(&mut self, at: u64, bytes: &[u8]) {
        let at = usize::try_from(at).expect("it is in memory");
        self.memory[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn get(&mut self, at: u64, count: u64) -> Vec<u8> {
        let place = |number: u64| usize::try_from(number).expect("it is in memory");
        self.memory[place(at)..place(at + count)].to_vec()
    }

    fn now_ns(&mut self) -> u64 {
        self.now_ns += LOOK_NS;
        self.now_ns
    }

    fn program(&mut self, core: &Core, _: Option<&str>) -> Result<(), String> {
        (self.core, self.is_done) = (*core, false);
        self.values.clear();
        Ok(())
    }
}
