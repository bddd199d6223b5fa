//! Round trips of instructions through their encoding, and field positions of the hardware.

use accelerator::{
    Alu, AluOp, Buffer, Core, DecodeError, Instruction, Memory, MicroOp, Multiply, Pads, Steps, Tokens,
    decode_instruction, encode_instruction,
};
use proptest::prelude::*;

fn core() -> Core {
    Core::find_published("1x16").unwrap()
}

#[test]
fn fields_have_the_positions_of_the_hardware() {
    let tokens = Tokens { pop_next: true, push_next: true, ..Tokens::default() };
    let load = Instruction::Load(Memory {
        tokens,
        buffer: Buffer::Data,
        on_core: 5,
        in_memory: 7,
        rows: 3,
        columns: 4,
        stride: 9,
        pads: Pads { top: 1, bottom: 2, left: 3, right: 4 },
    });
    // Opcode 0, bits 4 and 6, buffer 2 from bit 7, 5 from bit 10, 7 from bit 26.
    let low = 1 << 4 | 1 << 6 | 2 << 7 | 5 << 10 | 7 << 26;
    let high = 3 | 4 << 16 | 9 << 32 | 1 << 48 | 2 << 52 | 3 << 56 | 4 << 60;
    assert_eq!(encode_instruction(&core(), &load), [low, high]);
    let steps = Steps { begin: 1, end: 2, outer: 3, inner: 4 };
    let (sum, data, weight, tokens) = ([5, 6], [7, 8], [9, 10], Tokens::default());
    let multiply = Instruction::Multiply(Multiply { tokens, is_reset: true, steps, sum, data, weight });
    let low = 2 | 1 << 7 | 1 << 8 | 2 << 21 | 3 << 35 | 4 << 49;
    let high = 5 | 6 << 11 | 7 << 22 | 8 << 33 | 9 << 44 | 10 << 54;
    assert_eq!(encode_instruction(&core(), &multiply), [low, high]);
    let alu = Alu { tokens, op: AluOp::ShiftRight, steps, sum, other: [7, 8], immediate: Some(-1) };
    let low = 4 | 1 << 8 | 2 << 21 | 3 << 35 | 4 << 49;
    let high = 5 | 6 << 11 | 7 << 22 | 8 << 33 | 3 << 44 | 1 << 47 | 0xFFFF << 48;
    assert_eq!(encode_instruction(&core(), &Instruction::Alu(alu)), [low, high]);
    assert_eq!(encode_instruction(&core(), &Instruction::Finish), [3, 0]);
    assert_eq!(MicroOp { sum: 1, data: 2, weight: 3 }.encode(&core()), 1 | 2 << 11 | 3 << 22);
}

#[test]
fn invalid_instructions_are_rejected() {
    let refused = |low: u64, high: u64| decode_instruction(&core(), [low, high]).unwrap_err();
    assert_eq!(refused(7, 0), DecodeError::Operation(7));
    assert_eq!(refused(5 << 7, 0), DecodeError::Memory(5));
    assert_eq!(refused(1 << 58, 0), DecodeError::Rest);
    assert_eq!(refused(3, 1), DecodeError::Rest);
    assert_eq!(refused(3 | 1 << 3, 0), DecodeError::Rest);
    // No published bitstream supports multiplication of sums.
    assert_eq!(refused(4, 4 << 44), DecodeError::Alu(4));
    assert_eq!(refused(4, 1 << 50), DecodeError::Rest);
}

proptest! {
    #[test]
    fn instructions_survive_a_round_trip(low: u64, high: u64, name in prop::sample::select(&Core::NAMES[..]), shallow: bool) {
        let core = Core::find_published(name).unwrap();
        let core = if shallow { Core { micro_ops: 2048, ..core } } else { core };
        if let Ok(instruction) = decode_instruction(&core, [low, high]) {
            prop_assert_eq!(encode_instruction(&core, &instruction), [low, high]);
        }
        let bits = (low >> 32) as u32;
        prop_assert_eq!(MicroOp::decode(&core, bits).encode(&core), bits);
    }

    #[test]
    fn loads_survive_a_round_trip(on_core: u16, in_memory: u32, rows: u16, columns: u16, pad in 0u8..16, buffer in 0usize..5, bits in 0u8..16) {
        let tokens = Tokens {
            pop_previous: bits & 1 != 0,
            pop_next: bits & 2 != 0,
            push_previous: bits & 4 != 0,
            push_next: bits & 8 != 0,
        };
        let pads = Pads { top: pad, bottom: 15 - pad, left: pad / 2, right: 1 };
        let buffer = Buffer::ALL[buffer];
        let memory = Memory { tokens, buffer, on_core, in_memory, rows, columns, stride: rows, pads };
        for instruction in [Instruction::Load(memory), Instruction::Store(memory)] {
            prop_assert_eq!(decode_instruction(&core(), encode_instruction(&core(), &instruction)), Ok(instruction));
        }
    }
}
