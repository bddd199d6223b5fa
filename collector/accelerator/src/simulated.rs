//! Simulated board: memory, and a bit-exact core that responds to its registers.
//! The clock advances whenever it is read. It carries no information about speed and only makes waits end.

use crate::bus::{Bus, BusBlock, registers};
use crate::core::Core;
use crate::functional::{Place, execute_instructions};
use crate::stream::{INSTRUCTION_BYTES, read_stream};
use std::collections::BTreeMap;

/// Step limit of a program. Programs with more steps never finish, as if they hang.
const STEPS_MAX: u64 = 1 << 30;
/// Time in nanoseconds by which the clock advances per read.
const READ_NS: u64 = 1000;

pub struct SimulatedBus {
    core: Core,
    memory: Vec<u8>,
    address: u64,
    values: BTreeMap<(BusBlock, u32), u32>,
    is_done: bool,
    now_ns: u64,
    runs: u64,
}

impl SimulatedBus {
    pub fn new(core: Core, address: u64, bytes: usize) -> SimulatedBus {
        let (values, memory) = (BTreeMap::new(), vec![0; bytes]);
        SimulatedBus { core, memory, address, values, is_done: false, now_ns: 0, runs: 0 }
    }

    fn register_value(&self, block: BusBlock, register: u32) -> u32 {
        self.values.get(&(block, register)).copied().unwrap_or(0)
    }

    fn is_started(&self) -> bool {
        BusBlock::ALL.into_iter().all(|block| self.register_value(block, registers::CONTROL) & registers::START != 0)
    }

    /// Runs the program that the registers select. `None` if it does not finish (deadlock, access outside memory).
    fn run_program(&mut self) -> Option<()> {
        let count = u64::from(self.register_value(BusBlock::Fetch, registers::COUNT));
        let at = u64::from(self.register_value(BusBlock::Fetch, registers::INSTRUCTIONS)).checked_sub(self.address)?;
        let place = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let bytes = self.memory.get(place(at)..place(at + count * INSTRUCTION_BYTES))?;
        let instructions = read_stream(&self.core, bytes).ok()?;
        let memory = Place { bytes: &mut self.memory, origin: self.address };
        self.runs += 1;
        execute_instructions(&self.core, &instructions, memory, self.runs, STEPS_MAX).ok().map(|_| ())
    }
}

impl Bus for SimulatedBus {
    fn write_register(&mut self, block: BusBlock, register: u32, value: u32) {
        self.values.insert((block, register), value);
        if (block, register) == (BusBlock::Compute, registers::NOT_DONE) {
            self.is_done = value & 1 == 1;
        }
        if register == registers::CONTROL && self.is_started() {
            self.is_done = self.run_program().is_some();
            // The fetch block starts once; the other blocks restart automatically.
            self.values.remove(&(BusBlock::Fetch, registers::CONTROL));
        }
    }

    fn read_register(&mut self, block: BusBlock, register: u32) -> u32 {
        match (block, register) {
            (BusBlock::Compute, registers::DONE) => u32::from(self.is_done),
            _ => self.register_value(block, register),
        }
    }

    fn memory_bytes(&self) -> u64 {
        self.memory.len() as u64
    }

    fn memory_address(&self) -> u64 {
        self.address
    }

    fn write_memory(&mut self, at: u64, bytes: &[u8]) {
        let at = usize::try_from(at).expect("the address was checked to lie in memory");
        self.memory[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn read_memory(&mut self, at: u64, count: u64) -> Vec<u8> {
        let place = |number: u64| usize::try_from(number).expect("the address was checked to lie in memory");
        self.memory[place(at)..place(at + count)].to_vec()
    }

    fn now_ns(&mut self) -> u64 {
        self.now_ns += READ_NS;
        self.now_ns
    }

    fn load_core(&mut self, core: &Core, _: Option<&str>) -> Result<(), String> {
        (self.core, self.is_done) = (*core, false);
        self.values.clear();
        Ok(())
    }
}
