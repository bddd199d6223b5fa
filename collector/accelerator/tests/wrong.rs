//! Tests that a removed token or a changed address is rejected or makes the result wrong.

#[allow(dead_code)]
mod common;

use accelerator::{
    Core, FunctionalMachine, Instruction, Program, check_program, decode_instruction, default_knobs,
    encode_instruction, generate_program, layer_of,
};
use common::{random, values};
use models::Task;
use reference::Tensor;

const LAYER: &str = r#"conv(i8[1,32,6,6], const i8[32,32,3,3]) strides=[1,1] pads=[1,1,1,1] dilations=[1,1] groups=1
    | bias_add(_, const i32[32]) axis=1 | binary(_, const i32[32,1,1]) function="shift_right"
    | clip(_) low=-128.0 high=127.0 | cast(_) to="i8""#;

fn is_noticed(program: &Program, operands: &[&[u8]], wanted: &[u8]) -> bool {
    check_program(program).is_err()
        || (0..4).any(
            |order| !matches!(FunctionalMachine::compute_result(program, operands, order), Ok((bytes, _)) if bytes == wanted),
        )
}

#[test]
fn every_damage_is_detected() {
    let core = Core::find_published("1x16").unwrap();
    let task = Task::from_text(&LAYER.replace('\n', " ")).unwrap();
    let layer = layer_of(&task).unwrap();
    let program = generate_program(&core, &layer, &default_knobs(&core, &layer).unwrap()).unwrap();
    let inputs = values(&task, &mut random(3));
    let operands: Vec<&[u8]> = inputs.iter().map(Tensor::as_bytes).collect();
    let wanted = reference::evaluate_task(&task, &inputs).unwrap();
    assert!(!is_noticed(&program, &operands, wanted.as_bytes()));
    let mut damaged = 0;
    for place in 0..program.instructions.len() {
        let mut changed = |bits: [u64; 2]| {
            if bits == program.instructions[place] {
                return;
            }
            let mut wrong = program.clone();
            wrong.instructions[place] = bits;
            damaged += 1;
            assert!(is_noticed(&wrong, &operands, wanted.as_bytes()), "instruction {place} as {bits:x?}");
        };
        let [low, high] = program.instructions[place];
        // Removes each token.
        (3..7).for_each(|bit| changed([low & !(1 << bit), high]));
        if let Ok(Instruction::Load(mut memory)) = decode_instruction(&core, [low, high])
            && memory.columns > 0
        {
            memory.in_memory += 1;
            changed(encode_instruction(&core, &Instruction::Load(memory)));
            memory.in_memory -= 1;
            memory.on_core += 1;
            changed(encode_instruction(&core, &Instruction::Load(memory)));
        }
        if let Ok(Instruction::Store(mut memory)) = decode_instruction(&core, [low, high]) {
            memory.in_memory += 1;
            changed(encode_instruction(&core, &Instruction::Store(memory)));
        }
    }
    assert!(damaged > 30, "{damaged}");
    let mut endless = program.clone();
    endless.instructions.pop();
    assert!(is_noticed(&endless, &operands, wanted.as_bytes()));
}

#[test]
fn a_wrong_stream_never_panics() {
    use rand::RngExt;
    let core = Core::find_published("4x8").unwrap();
    let task = Task::from_text(&LAYER.replace('\n', " ")).unwrap();
    let layer = layer_of(&task).unwrap();
    let program = generate_program(&core, &layer, &default_knobs(&core, &layer).unwrap()).unwrap();
    let timing = accelerator::timing_sets()[0].timing;
    let mut random = random(9);
    for _ in 0..300 {
        let mut wrong = program.clone();
        for _ in 0..random.random_range(1..4) {
            let place = random.random_range(0..wrong.instructions.len());
            wrong.instructions[place][random.random_range(0..2)] ^= 1 << random.random_range(0..64);
        }
        if check_program(&wrong).is_ok() {
            let machine = FunctionalMachine::new(&wrong).map(|mut machine| machine.run(1));
            assert!(matches!(machine, Ok(Ok(_))), "{machine:?}");
            assert!(accelerator::simulate_program(&wrong, &timing).is_ok());
        } else if let Ok(mut machine) = FunctionalMachine::new(&wrong) {
            let _ = machine.run(1);
        }
    }
}
