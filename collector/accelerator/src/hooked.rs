//! A simulated bus with hooks for tests, such as a core that hangs.

use crate::bus::{Bus, BusBlock};
use crate::core::Core;
use crate::simulated::SimulatedBus;

pub trait Hooks {
    /// Returns whether a register write reaches the bus.
    fn on_write(&mut self, _block: BusBlock, _register: u32, _value: u32) -> bool {
        true
    }

    fn on_read(&mut self, _block: BusBlock, _register: u32) {}

    fn on_get(&mut self, _bytes: &mut [u8]) {}
}

pub struct HookedBus<H> {
    pub bus: SimulatedBus,
    pub hooks: H,
}

impl<H: Hooks> Bus for HookedBus<H> {
    fn write_register(&mut self, block: BusBlock, register: u32, value: u32) {
        if self.hooks.on_write(block, register, value) {
            self.bus.write_register(block, register, value);
        }
    }

    fn read_register(&mut self, block: BusBlock, register: u32) -> u32 {
        self.hooks.on_read(block, register);
        self.bus.read_register(block, register)
    }

    fn memory_bytes(&self) -> u64 {
        self.bus.memory_bytes()
    }

    fn memory_address(&self) -> u64 {
        self.bus.memory_address()
    }

    fn write_memory(&mut self, at: u64, bytes: &[u8]) {
        self.bus.write_memory(at, bytes);
    }

    fn read_memory(&mut self, at: u64, count: u64) -> Vec<u8> {
        let mut bytes = self.bus.read_memory(at, count);
        self.hooks.on_get(&mut bytes);
        bytes
    }

    fn now_ns(&mut self) -> u64 {
        self.bus.now_ns()
    }

    fn load_core(&mut self, core: &Core, file: Option<&str>) -> Result<(), String> {
        self.bus.load_core(core, file)
    }
}
