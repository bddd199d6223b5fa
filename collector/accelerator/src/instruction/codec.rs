//! Encoding and decoding of 128-bit instructions.
//!
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
    fn put(&mut self, width: u32, value: u64) {
        assert!(width == 64 || value >> width == 0, "{value} does not fit into {width} bits");
        self.0 |= value << self.1;
        self.1 += width;
    }
}

struct BitReader(u64);

impl BitReader {
    fn take(&mut self, width: u32) -> u64 {
        let value = self.0 & ((1 << width) - 1);
        self.0 >>= width;
        value
    }

    fn short(&mut self, width: u32) -> u16 {
        u16::try_from(self.take(width)).expect("fields of at most 16 bits")
    }

    fn byte(&mut self, width: u32) -> u8 {
        u8::try_from(self.take(width)).expect("fields of at most 8 bits")
    }

    fn bit(&mut self) -> bool {
        self.take(1) == 1
    }

    fn end(self) -> Result<(), DecodeError> {
        if self.0 == 0 { Ok(()) } else { Err(DecodeError::Rest) }
    }
}

/// Encodes an instruction. Its fields fit, since programs are checked before.
pub fn encode(core: &Core, instruction: &Instruction) -> [u64; 2] {
    let [micro_op, sum, data, weight] = core.index_bits();
    let (mut low, mut high) = (BitWriter(0, 0), BitWriter(0, 0));
    let head = |low: &mut BitWriter, operation: u64, tokens: Tokens| {
        low.put(3, operation);
        for bit in [tokens.pop_previous, tokens.pop_next, tokens.push_previous, tokens.push_next] {
            low.put(1, u64::from(bit));
        }
    };
    let steps = |low: &mut BitWriter, steps: Steps| {
        low.put(micro_op, steps.begin.into());
        low.put(micro_op + 1, steps.end.into());
        low.put(14, steps.outer.into());
        low.put(14, steps.inner.into());
    };
    match instruction {
        Instruction::Load(memory) | Instruction::Store(memory) => {
            let operation = if matches!(instruction, Instruction::Load(_)) { LOAD } else { STORE };
            head(&mut low, operation, memory.tokens);
            low.put(3, memory.buffer as u64);
            low.put(16, memory.on_core.into());
            low.put(32, memory.in_memory.into());
            let Pads { top, bottom, left, right } = memory.pads;
            for value in [memory.rows, memory.columns, memory.stride] {
                high.put(16, value.into());
            }
            for value in [top, bottom, left, right] {
                high.put(4, value.into());
            }
        }
        Instruction::Multiply(multiply) => {
            head(&mut low, MULTIPLY, multiply.tokens);
            low.put(1, multiply.is_reset.into());
            steps(&mut low, multiply.steps);
            for (width, factors) in [(sum, multiply.sum), (data, multiply.data), (weight, multiply.weight)] {
                factors.into_iter().for_each(|factor| high.put(width, factor.into()));
            }
        }
        Instruction::Alu(alu) => {
            head(&mut low, ALU, alu.tokens);
            low.put(1, 0);
            steps(&mut low, alu.steps);
            for factors in [alu.sum, alu.other] {
                factors.into_iter().for_each(|factor| high.put(sum, factor.into()));
            }
            high.put(3, alu.op as u64);
            high.put(1, alu.immediate.is_some().into());
            high.put(16, u64::from(alu.immediate.unwrap_or(0).cast_unsigned()));
        }
        Instruction::Finish => head(&mut low, FINISH, Tokens::default()),
    }
    [low.0, high.0]
}

pub fn decode(core: &Core, [low, high]: [u64; 2]) -> Result<Instruction, DecodeError> {
    let [micro_op, sum, data, weight] = core.index_bits();
    let (mut low, mut high) = (BitReader(low), BitReader(high));
    let operation = low.take(3);
    let tokens =
        Tokens { pop_previous: low.bit(), pop_next: low.bit(), push_previous: low.bit(), push_next: low.bit() };
    let steps = |low: &mut BitReader| Steps {
        begin: low.short(micro_op),
        end: low.short(micro_op + 1),
        outer: low.short(14),
        inner: low.short(14),
    };
    let instruction = match operation {
        LOAD | STORE => {
            let number = low.take(3);
            let index = usize::try_from(number).expect("three bits");
            let buffer = *Buffer::ALL.get(index).ok_or(DecodeError::Memory(number))?;
            let (on_core, in_memory) = (low.short(16), low.take(32));
            let in_memory = u32::try_from(in_memory).expect("32 bits");
            let (rows, columns, stride) = (high.short(16), high.short(16), high.short(16));
            let (top, bottom, left, right) = (high.byte(4), high.byte(4), high.byte(4), high.byte(4));
            let pads = Pads { top, bottom, left, right };
            let memory = Memory { tokens, buffer, on_core, in_memory, rows, columns, stride, pads };
            if operation == LOAD { Instruction::Load(memory) } else { Instruction::Store(memory) }
        }
        MULTIPLY => {
            let (is_reset, steps) = (low.bit(), steps(&mut low));
            let mut factors = |width: u32| [high.short(width), high.short(width)];
            let (sum, data, weight) = (factors(sum), factors(data), factors(weight));
            Instruction::Multiply(Multiply { tokens, is_reset, steps, sum, data, weight })
        }
        ALU => {
            if low.bit() {
                return Err(DecodeError::Rest);
            }
            let steps = steps(&mut low);
            let (sum, other) = ([high.short(sum), high.short(sum)], [high.short(sum), high.short(sum)]);
            let op = match high.take(3) {
                0 => AluOp::Min,
                1 => AluOp::Max,
                2 => AluOp::Add,
                3 => AluOp::ShiftRight,
                number => return Err(DecodeError::Alu(number)),
            };
            let (is_immediate, number) = (high.bit(), high.short(16).cast_signed());
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
    low.end()?;
    high.end()?;
    Ok(instruction)
}

impl MicroOp {
    /// Encodes the micro-operation.
    pub fn encode(self, core: &Core) -> u32 {
        let [_, sum, data, weight] = core.index_bits();
        let mut writer = BitWriter(0, 0);
        for (width, value) in [(sum, self.sum), (data, self.data), (weight, self.weight)] {
            writer.put(width, value.into());
        }
        u32::try_from(writer.0).expect("a checked core's micro-operations have 32 bits")
    }

    /// Decodes a micro-operation.
    pub fn decode(core: &Core, bits: u32) -> MicroOp {
        let [_, sum, data, weight] = core.index_bits();
        let mut reader = BitReader(bits.into());
        MicroOp { sum: reader.short(sum), data: reader.short(data), weight: reader.short(weight) }
    }
}
