//! Tests of programs that are run by the registers of a simulated bus. No test uses a board.

#[allow(dead_code)]
mod common;

use accelerator::{
    Bus, BusBlock, Core, CoreImage, HookedBus, Hooks, ImageError, LaunchError, Program, SimulatedBus, StreamError,
    check_places, default_knobs, external_result, generate_program, launch_program, layer_of, read_stream, registers,
    result_place,
};
use common::{random, values};
use models::Task;
use rand::RngExt;
use reference::Tensor;

const ADDRESS: u64 = 0x1000_0000;

struct RegisterLog {
    written: Vec<(BusBlock, u32, u32)>,
    ends: bool,
}

impl Hooks for RegisterLog {
    fn on_write(&mut self, block: BusBlock, register: u32, value: u32) -> bool {
        self.written.push((block, register, value));
        self.ends || block != BusBlock::Store
    }

    fn on_read(&mut self, block: BusBlock, register: u32) {
        assert_eq!((block, register), (BusBlock::Compute, registers::DONE));
    }
}

fn with_program(check: impl FnOnce(&Program, &[&[u8]], &[u8])) {
    let text = r#"conv(i8[1,16,5,5], const i8[32,16,3,3]) strides=[1,1] pads=[1,1,1,1] dilations=[1,1] groups=1 | binary(_, const i32[32,1,1]) function="shift_right" | clip(_) low=-128.0 high=127.0 | cast(_) to="i8""#;
    let (core, task) = (Core::find_published("1x16").unwrap(), Task::from_text(text).unwrap());
    let layer = layer_of(&task).unwrap();
    let program = generate_program(&core, &layer, &default_knobs(&core, &layer).unwrap()).unwrap();
    let inputs = values(&task, &mut random(1));
    let operands: Vec<&[u8]> = inputs.iter().map(Tensor::as_bytes).collect();
    check(&program, &operands, reference::evaluate_task(&task, &inputs).unwrap().as_bytes());
}

fn logged_bus(program: &Program) -> HookedBus<RegisterLog> {
    let bus = SimulatedBus::new(program.core, ADDRESS, 1 << 20);
    HookedBus { bus, hooks: RegisterLog { written: Vec::new(), ends: true } }
}

fn run(bus: &mut dyn Bus, program: &Program, image: &CoreImage) -> Result<(Vec<u8>, u64), LaunchError> {
    let begin = program.memory_bytes().next_multiple_of(4096);
    image.parts.iter().for_each(|(at, bytes)| bus.write_memory(*at, bytes));
    bus.write_memory(begin, &image.instructions);
    let count = u32::try_from(program.instructions.len()).unwrap();
    let address = u32::try_from(bus.memory_address() + begin).unwrap();
    let taken = launch_program(bus, address, count, 50_000)?;
    let (at, bytes) = result_place(program);
    Ok((external_result(program, &bus.read_memory(at, bytes)).unwrap(), taken))
}

#[test]
fn registers_are_written_in_order_and_every_result_is_correct() {
    with_program(|program, operands, wanted| {
        let image = CoreImage::new(program, operands, ADDRESS).unwrap();
        let mut bus = logged_bus(program);
        let (found, taken) = run(&mut bus, program, &image).unwrap();
        assert_eq!(found, wanted);
        assert!(taken > 0);
        let written = &bus.hooks.written;
        let controls: Vec<(BusBlock, u32)> =
            written.iter().filter(|w| w.1 == registers::CONTROL).map(|w| (w.0, w.2)).collect();
        let (once, again) = (registers::START, registers::RESTART);
        assert_eq!(
            controls,
            [(BusBlock::Fetch, once), (BusBlock::Load, again), (BusBlock::Compute, again), (BusBlock::Store, again)]
        );
        let first = written.iter().position(|w| w.1 == registers::CONTROL).unwrap();
        let bases = written[1..first].iter().filter(|w| w.0 != BusBlock::Fetch);
        assert_eq!(
            bases.map(|w| w.2).collect::<Vec<_>>(),
            [0; 5],
            "all base registers are zero before the first start"
        );
        assert_eq!(written[0], (BusBlock::Compute, registers::NOT_DONE, 0));
        assert_eq!(
            run(&mut bus, program, &image).unwrap().0,
            wanted,
            "the result of an earlier run is not taken for that of the next one"
        );
    });
}

#[test]
fn hangs_and_stale_completion_are_errors() {
    with_program(|program, operands, _| {
        let image = CoreImage::new(program, operands, ADDRESS).unwrap();
        let mut bus = logged_bus(program);
        bus.hooks.ends = false;
        assert_eq!(run(&mut bus, program, &image), Err(LaunchError::TimedOut(50_000)));
        let mut endless = image.clone();
        let last = endless.instructions.len() - 16;
        endless.instructions[last..].fill(0);
        assert_eq!(run(&mut logged_bus(program), program, &endless), Err(LaunchError::TimedOut(50_000)));
        let elsewhere = CoreImage::new(program, operands, ADDRESS + 4096 * 1024).unwrap();
        assert_eq!(run(&mut logged_bus(program), program, &elsewhere), Err(LaunchError::TimedOut(50_000)));
        let error = CoreImage::new(program, &operands[1..], ADDRESS).unwrap_err();
        assert!(matches!(error, ImageError::Operands { wanted: 3, given: 2 }), "{error}");
        for address in [ADDRESS + 64, (1 << 32) - 4096, u64::MAX - 4095] {
            assert_eq!(CoreImage::new(program, operands, address), Err(ImageError::Address(address)));
        }
    });
}

#[test]
fn damaged_instructions_neither_panic_nor_change_other_memory() {
    with_program(|program, operands, _| {
        let image = CoreImage::new(program, operands, ADDRESS).unwrap();
        let own = ADDRESS..ADDRESS + program.memory_bytes();
        let mut random = random(7);
        let moves: Vec<usize> = (0..program.instructions.len())
            .filter(|place| matches!(image.instructions[16 * place] & 7, 0 | 1))
            .collect();
        let mut ended = 0;
        for _ in 0..400 {
            let mut damaged = image.clone();
            let (first, bit) = (16 * moves[random.random_range(0..moves.len())], random.random_range(3..128));
            damaged.instructions[first + bit / 8] ^= 1 << (bit % 8);
            let stream = read_stream(&program.core, &damaged.instructions);
            let is_own = |touched: std::ops::Range<u64>| own.start <= touched.start && touched.end <= own.end;
            let is_taken = stream.is_ok_and(|stream| check_places(&program.core, &stream, is_own).is_ok());
            let mut bus = logged_bus(program);
            bus.write_memory((1 << 20) - 64, &[7; 64]);
            ended += usize::from(run(&mut bus, program, &damaged).is_ok());
            assert!(!is_taken || bus.read_memory((1 << 20) - 64, 64) == [7; 64]);
        }
        assert!(ended > 0 && ended < 400, "some damaged programs end and some do not: {ended}");
    });
}

#[test]
fn instructions_cannot_access_foreign_memory() {
    with_program(|program, operands, _| {
        let core = &program.core;
        let image = CoreImage::new(program, operands, ADDRESS).unwrap();
        let stream = read_stream(core, &image.instructions).unwrap();
        let own = ADDRESS..ADDRESS + program.memory_bytes();
        let check = |stream: &[accelerator::Instruction], end: u64| {
            check_places(core, stream, |touched| own.start <= touched.start && touched.end <= end)
        };
        check(&stream, own.end).unwrap();
        let error = check(&stream, own.end - 1).unwrap_err();
        assert!(matches!(error, StreamError::Elsewhere { .. }), "{error}");
        assert_eq!(check(&stream[..stream.len() - 1], own.end), Err(StreamError::End));
        assert_eq!(check(&[], own.end), Err(StreamError::End));
        let twice: Vec<_> = stream.iter().chain(&stream).copied().collect();
        assert_eq!(check(&twice, own.end), Err(StreamError::End));
        assert!(matches!(read_stream(core, &[0xff; 16]), Err(StreamError::Decode { place: 0, .. })));
    });
}
