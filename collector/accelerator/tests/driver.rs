//! The driver on a bus that computes what a core would, once its registers say so. No board was ever seen.

#[allow(dead_code)]
mod common;

use accelerator::{
    Block, Bus, Core, DriveError, Driver, Machine, Program, Role, default_knobs, generate, layer_of, registers,
};
use common::{random, values};
use models::Task;
use reference::Tensor;

const ADDRESS: u64 = 0x1000_0000;

/// What a core would do, and what was done to it.
struct Mock<'a> {
    program: &'a Program,
    memory: Vec<u8>,
    written: Vec<(Block, u32, u32)>,
    is_done: bool,
    /// Whether it ever ends.
    ends: bool,
    now: u64,
}

impl Bus for Mock<'_> {
    fn write(&mut self, block: Block, register: u32, value: u32) {
        self.written.push((block, register, value));
        if (block, register, value) == (Block::Store, registers::CONTROL, registers::RESTART) && self.ends {
            self.compute();
        }
    }

    fn read(&mut self, block: Block, register: u32) -> u32 {
        assert_eq!((block, register), (Block::Compute, registers::DONE));
        u32::from(self.is_done)
    }

    fn memory(&mut self) -> &mut [u8] {
        &mut self.memory
    }

    fn address(&self) -> u64 {
        ADDRESS
    }

    fn now_ns(&mut self) -> u64 {
        self.now += 1000;
        self.now
    }
}

impl Mock<'_> {
    /// Reads the instructions where the registers say that they are, with places in all of memory.
    fn compute(&mut self) {
        let value = |register: u32| {
            self.written.iter().find(|w| (w.0, w.1) == (Block::Fetch, register)).expect("it was written").2
        };
        let (count, at) = (value(registers::COUNT) as usize, u64::from(value(registers::INSTRUCTIONS)) - ADDRESS);
        let at = usize::try_from(at).unwrap();
        let (halves, _) = self.memory[at..at + 16 * count].as_chunks::<8>();
        let (pairs, _) = halves.as_chunks::<2>();
        let mut program = self.program.clone();
        program.instructions = pairs.iter().map(|pair| pair.map(u64::from_le_bytes)).collect();
        for region in &mut program.regions {
            region.begin += ADDRESS;
        }
        let mut machine = Machine::new(&program).unwrap();
        let range = |region: &accelerator::Region| {
            let begin = usize::try_from(region.begin - ADDRESS).unwrap();
            begin..begin + usize::try_from(region.bytes).unwrap()
        };
        for region in &program.regions {
            machine.write(region.role, &self.memory[range(region)]);
        }
        machine.run(5).unwrap();
        let result = program.region(Role::Result).unwrap();
        self.memory[range(result)].copy_from_slice(machine.read(Role::Result));
        self.is_done = true;
    }
}

fn with_program(check: impl FnOnce(&Program, &[&[u8]], &[u8])) {
    let text = r#"conv(i8[1,16,5,5], const i8[32,16,3,3]) strides=[1,1] pads=[1,1,1,1] dilations=[1,1] groups=1 | binary(_, const i32[32,1,1]) function="shift_right" | clip(_) low=-128.0 high=127.0 | cast(_) to="i8""#;
    let (core, task) = (Core::named("1x16").unwrap(), Task::from_text(text).unwrap());
    let layer = layer_of(&task).unwrap();
    let program = generate(&core, &layer, &default_knobs(&core, &layer).unwrap()).unwrap();
    let inputs = values(&task, &mut random(1));
    let operands: Vec<&[u8]> = inputs.iter().map(Tensor::bytes).collect();
    check(&program, &operands, reference::evaluate(&task, &inputs).unwrap().bytes());
}

fn mock(program: &Program, bytes: usize) -> Mock<'_> {
    Mock { program, memory: vec![0; bytes], written: Vec::new(), is_done: false, ends: true, now: 0 }
}

#[test]
fn registers_are_written_in_order_and_the_result_is_right() {
    with_program(|program, operands, wanted| {
        let mut bus = mock(program, 1 << 20);
        let (result, taken) = Driver::new(&mut bus, 1_000_000).run(program, operands).unwrap();
        assert_eq!(result, wanted);
        assert!(taken > 0);
        let controls: Vec<(Block, u32)> =
            bus.written.iter().filter(|w| w.1 == registers::CONTROL).map(|w| (w.0, w.2)).collect();
        let (once, again) = (registers::START, registers::RESTART);
        assert_eq!(
            controls,
            [(Block::Fetch, once), (Block::Load, again), (Block::Compute, again), (Block::Store, again)]
        );
        let first = bus.written.iter().position(|w| w.1 == registers::CONTROL).unwrap();
        let bases = bus.written[..first].iter().filter(|w| w.0 != Block::Fetch);
        assert_eq!(bases.map(|w| w.2).collect::<Vec<_>>(), [0; 5], "all bases are zero before anything begins");
    });
}

#[test]
fn a_core_that_hangs_lies_or_lacks_memory_is_an_error() {
    with_program(|program, operands, _| {
        let mut bus = mock(program, 1 << 20);
        bus.ends = false;
        assert_eq!(Driver::new(&mut bus, 50_000).run(program, operands), Err(DriveError::TimedOut(50_000)));
        let mut bus = mock(program, 1 << 20);
        bus.is_done = true;
        assert_eq!(Driver::new(&mut bus, 50_000).run(program, operands), Err(DriveError::StaleDone));
        assert!(bus.written.is_empty());
        let mut bus = mock(program, 4096);
        let error = Driver::new(&mut bus, 50_000).run(program, operands).unwrap_err();
        assert!(matches!(error, DriveError::Memory { has: 4096, .. }), "{error}");
        let error = Driver::new(&mut bus, 50_000).run(program, &operands[1..]).unwrap_err();
        assert!(matches!(error, DriveError::Operands { wanted: 3, given: 2 }), "{error}");
    });
}
