//! Flips arbitrary bits in the instructions of a core's program, then decodes, checks, executes and times the program.
//! A program that passes the check must execute. Any file is a useful seed.

use accelerator::{
    Core, FunctionalMachine, Program, check_program, decode_instruction, default_knobs, encode_instruction,
    generate_program, layer_of, simulate_program,
};
use models::Task;
use std::sync::OnceLock;

const LAYER: &str = r#"conv(i8[1,16,4,4], const i8[32,16,3,3]) strides=[1,1] pads=[1,1,1,1] dilations=[1,1] groups=1 | clip(_) low=-128.0 high=127.0 | cast(_) to="i8""#;

fn program() -> &'static Program {
    static PROGRAM: OnceLock<Program> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let core = Core::find_published("1x16").expect("a published core");
        let layer = layer_of(&Task::from_text(LAYER).expect("a task")).expect("a layer of the core");
        let knobs = default_knobs(&core, &layer).expect("a tiling that fits");
        generate_program(&core, &layer, &knobs).expect("a program")
    })
}

/// Length of an edit: the index of an instruction, which half of it, and the bits to flip.
const EDIT_BYTES: usize = 11;

pub fn run(bytes: &[u8]) {
    let mut wrong = program().clone();
    let (edits, _) = bytes.as_chunks::<EDIT_BYTES>();
    for [low, high, half, bits @ ..] in edits {
        let place = usize::from(u16::from_le_bytes([*low, *high])) % wrong.instructions.len();
        wrong.instructions[place][usize::from(half & 1)] ^= u64::from_le_bytes(*bits);
        let halves = wrong.instructions[place];
        if let Ok(instruction) = decode_instruction(&wrong.core, halves) {
            assert_eq!(encode_instruction(&wrong.core, &instruction), halves);
        }
    }
    if check_program(&wrong).is_ok() {
        FunctionalMachine::new(&wrong).expect("a checked program is read").run(1).expect("a checked program runs");
        simulate_program(&wrong, &accelerator::timing_sets()[0].timing).expect("a checked program ends");
    }
}
