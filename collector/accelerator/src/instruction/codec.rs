//! Encoding and decoding of 128-bit instructions.
//! Fields are packed from the lowest bit and never cross the boundary between the two halves. Index widths depend on
//! the core. Decoding is the exact inverse of encoding: unused bits that are set are an error.

use super::{Alu, AluOp, DecodeError, Instruction, Memory, MicroOp, Multiply, Pads, Steps, Tokens};
use crate::core::{Buffer, Core};

const LOAD: u64 = 0;
const STORE: u64 = 1;
const MULTIPLY: u64 = 2;
const FINISH: u64 = 3;
const ALU: u64 = 4;

struct BitWriter(u64, u32);

impl BitWriter {
    fn put_bits(&mut self, width: u32, value: u64) {
        assert!(width == 64 || value >> width == 0, "{value} does not fit into {width} bits");
        self.0 |= value << self.1;
        self.1 += width;
    }
}

struct BitReader(u64);

impl BitReader {
    fn take_bits(&mut self, width: u32) -> u64 {
        let value = self.0 & ((1 << width) - 1);
        self.0 >>= width;
        value
    }

    fn take_u16(&mut self, width: u32) -> u16 {
        u16::try_from(self.take_bits(width)).expect("fields of at most 16 bits")
    }

    fn take_u8(&mut self, width: u32) -> u8 {
        u8::try_from(self.take_bits(width)).expect("fields of at most 8 bits")
    }

    fn take_bool(&mut self) -> bool {
        self.take_bits(1) == 1
    }

    fn check_end(self) -> Result<(), DecodeError> {
        if self.0 == 0 { Ok(()) } else { Err(DecodeError::Rest) }
    }
}

/// Encodes an instruction for a core. Its fields must fit; programs are checked before encoding.
pub fn encode_instruction(core: &Core, instruction: &Instruction) -> [u64; 2] {
    let [micro_op, sum, data, weight] = core.index_bits();
    let (mut low, mut high) = (BitWriter(0, 0), BitWriter(0, 0));
    let head = |low: &mut BitWriter, operation: u64, tokens: Tokens| {
        low.put_bits(3, operation);
        for bit in [tokens.pop_previous, tokens.pop_next, tokens.push_previous, tokens.push_next] {
            low.put_bits(1, u64::from(bit));
        }
    };
    let steps = |low: &mut BitWriter, steps: Steps| {
        low.put_bits(micro_op, steps.begin.into());
        low.put_bits(micro_op + 1, steps.end.into());
        low.put_bits(14, steps.outer.into());
        low.put_bits(14, steps.inner.into());
    };
    match instruction {
        Instruction::Load(memory) | Instruction::Store(memory) => {
            let operation = if matches!(instruction, Instruction::Load(_)) { LOAD } else { STORE };
            head(&mut low, operation, memory.tokens);
            low.put_bits(3, memory.buffer as u64);
            low.put_bits(16, memory.on_core.into());
            low.put_bits(32, memory.in_memory.into());
            let Pads { top, bottom, left, right } = memory.pads;
            for value in [memory.rows, memory.columns, memory.stride] {
                high.put_bits(16, value.into());
            }
            for value in [top, bottom, left, right] {
                high.put_bits(4, value.into());
            }
        }
        Instruction::Multiply(multiply) => {
            head(&mut low, MULTIPLY, multiply.tokens);
            low.put_bits(1, multiply.is_reset.into());
            steps(&mut low, multiply.steps);
            for (width, factors) in [(sum, multiply.sum), (data, multiply.data), (weight, multiply.weight)] {
                factors.into_iter().for_each(|factor| high.put_bits(width, factor.into()));
            }
        }
        Instruction::Alu(alu) => {
            head(&mut low, ALU, alu.tokens);
            low.put_bits(1, 0);
            steps(&mut low, alu.steps);
            for factors in [alu.sum, alu.other] {
                factors.into_iter().for_each(|factor| high.put_bits(sum, factor.into()));
            }
            high.put_bits(3, alu.op as u64);
            high.put_bits(1, alu.immediate.is_some().into());
            high.put_bits(16, u64::from(alu.immediate.unwrap_or(0).cast_unsigned()));
        }
        Instruction::Finish => head(&mut low, FINISH, Tokens::default()),
    }
    [low.0, high.0]
}

pub fn decode_instruction(core: &Core, [low, high]: [u64; 2]) -> Result<Instruction, DecodeError> {
    let [micro_op, sum, data, weight] = core.index_bits();
    let (mut low, mut high) = (BitReader(low), BitReader(high));
    let operation = low.take_bits(3);
    let tokens = Tokens {
        pop_previous: low.take_bool(),
        pop_next: low.take_bool(),
        push_previous: low.take_bool(),
        push_next: low.take_bool(),
    };
    let steps = |low: &mut BitReader| Steps {
        begin: low.take_u16(micro_op),
        end: low.take_u16(micro_op + 1),
        outer: low.take_u16(14),
        inner: low.take_u16(14),
    };
    let instruction = match operation {
        LOAD | STORE => {
            let number = low.take_bits(3);
            let index = usize::try_from(number).expect("three bits");
            let buffer = *Buffer::ALL.get(index).ok_or(DecodeError::Memory(number))?;
            let (on_core, in_memory) = (low.take_u16(16), low.take_bits(32));
            let in_memory = u32::try_from(in_memory).expect("32 bits");
            let (rows, columns, stride) = (high.take_u16(16), high.take_u16(16), high.take_u16(16));
            let (top, bottom, left, right) = (high.take_u8(4), high.take_u8(4), high.take_u8(4), high.take_u8(4));
            let pads = Pads { top, bottom, left, right };
            let memory = Memory { tokens, buffer, on_core, in_memory, rows, columns, stride, pads };
            if operation == LOAD { Instruction::Load(memory) } else { Instruction::Store(memory) }
        }
        MULTIPLY => {
            let (is_reset, steps) = (low.take_bool(), steps(&mut low));
            let mut factors = |width: u32| [high.take_u16(width), high.take_u16(width)];
            let (sum, data, weight) = (factors(sum), factors(data), factors(weight));
            Instruction::Multiply(Multiply { tokens, is_reset, steps, sum, data, weight })
        }
        ALU => {
            if low.take_bool() {
                return Err(DecodeError::Rest);
            }
            let steps = steps(&mut low);
            let (sum, other) = ([high.take_u16(sum), high.take_u16(sum)], [high.take_u16(sum), high.take_u16(sum)]);
            let op = match high.take_bits(3) {
                0 => AluOp::Min,
                1 => AluOp::Max,
                2 => AluOp::Add,
                3 => AluOp::ShiftRight,
                number => return Err(DecodeError::Alu(number)),
            };
            let (is_immediate, number) = (high.take_bool(), high.take_u16(16).cast_signed());
            if !is_immediate && number != 0 {
                return Err(DecodeError::Rest);
            }
            let immediate = is_immediate.then_some(number);
            Instruction::Alu(Alu { tokens, op, steps, sum, other, immediate })
        }
        FINISH if tokens == Tokens::default() => Instruction::Finish,
        FINISH => return Err(DecodeError::Rest),
        other => return Err(DecodeError::Operation(other)),
    };
    low.check_end()?;
    high.check_end()?;
    Ok(instruction)
}

impl MicroOp {
    pub fn encode(self, core: &Core) -> u32 {
        let [_, sum, data, weight] = core.index_bits();
        let mut writer = BitWriter(0, 0);
        for (width, value) in [(sum, self.sum), (data, self.data), (weight, self.weight)] {
            writer.put_bits(width, value.into());
        }
        u32::try_from(writer.0).expect("a checked core's micro-operations have 32 bits")
    }

    pub fn decode(core: &Core, bits: u32) -> MicroOp {
        let [_, sum, data, weight] = core.index_bits();
        let mut reader = BitReader(bits.into());
        MicroOp { sum: reader.take_u16(sum), data: reader.take_u16(data), weight: reader.take_u16(weight) }
    }
}
