//! Block-quantised weights: packed numbers of a few bits, with one scale per block of a row.

use super::fused::add_last_bias;
use crate::onnx::call::Call;
use crate::{Emit, Outcome, malformed, unsupported};
use models::graph::ValueId;
use models::operators::{BinaryOp, Dense, Gather, Op};
use models::types::DType;

type Outputs = Outcome<Vec<ValueId>>;

/// Multiplies `A` by the transposed weight; inputs: `A, B[n, blocks, bytes], scales, zero points, group index, bias`.
pub(super) fn mat_mul(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let (a, packed, scales) = (call.input(0)?, call.input(1)?, call.input(2)?);
    if call.optional_input(4).is_some() {
        return unsupported("a group index, which reorders columns");
    }
    let [columns, rows] = ["N", "K"].map(|name| call.int_attribute(name, 0));
    let blocks = Blocks::parse_blocks(call, 4)?;
    let count = rows / blocks.size + i64::from(rows % blocks.size != 0);
    let padded = count.checked_mul(blocks.size).filter(|_| columns > 0 && rows > 0);
    let Some(padded) = padded else { return malformed(format!("the weight shape {columns} x {rows} is invalid")) };
    let bytes = blocks.packed_bytes(padded)?;
    let flat = emit.reshape(packed, &[columns, bytes])?;
    let numbers = unpack_bits(emit, flat, blocks.bits)?;
    let dtype = emit.dtype(scales)?;
    let zero = match call.optional_input(3) {
        Some(zeros) if emit.dtype(zeros)? == DType::U8 => {
            let zeros = emit.reshape(zeros, &[columns, blocks.packed_bytes(count)?])?;
            let zeros = unpack_bits(emit, zeros, blocks.bits)?;
            let zeros = emit.slice(zeros, 1, 0, count)?;
            Some(emit.cast(zeros, dtype)?)
        }
        Some(zeros) => Some(zeros),
        None => None,
    };
    let weight = blocks.dequantise_blocks(emit, numbers, [columns, count], scales, zero)?;
    let weight = emit.slice(weight, 1, 0, rows)?;
    let weight = emit.cast(weight, emit.dtype(a)?)?;
    let y = emit.push(Op::Dense(Dense {}), &[a, weight])?;
    Ok(vec![add_last_bias(emit, y, call.optional_input(5))?])
}

/// Looks up table rows and dequantises them; inputs: `data, indices, scales, zero points`.
pub(super) fn gather_blocks(emit: &mut Emit<'_>, call: &Call<'_>) -> Outputs {
    let (data, indices, scales) = (call.input(0)?, call.input(1)?, call.input(2)?);
    let rank = emit.rank(data)?;
    let axis = emit.resolve_axis(call.int_attribute("gather_axis", 0), rank)?;
    if axis != 0 || rank != 2 || emit.resolve_axis(call.int_attribute("quantize_axis", 1), rank)? != 1 {
        return unsupported("blocks that are not along the rows of a matrix");
    }
    let blocks = Blocks::parse_blocks(call, 4)?;
    let mut look_up = |table: ValueId| emit.push(Op::Gather(Gather { axis: 0 }), &[table, indices]);
    let (rows, scales) = (look_up(data)?, look_up(scales)?);
    let zeros = call.optional_input(3).map(look_up).transpose()?;
    let is_packed = emit.dtype(rows)? == DType::U8 && emit.narrow_range(data).is_none();
    let extents = emit.extents(rows)?;
    let outer: i64 = extents[..extents.len() - 1].iter().product();
    let bytes = extents[extents.len() - 1];
    let count = emit.extents(scales)?.last().copied().unwrap_or(0);
    let mut numbers = emit.reshape(rows, &[outer, bytes])?;
    if is_packed {
        numbers = unpack_bits(emit, numbers, blocks.bits)?;
    }
    let width = emit.extents(numbers)?[1];
    if count.checked_mul(blocks.size) != Some(width) {
        return unsupported(format!("rows of {width} numbers in {count} blocks of {}", blocks.size));
    }
    let dtype = emit.dtype(scales)?;
    let zero = match zeros {
        Some(zeros) => {
            let bytes = emit.extents(zeros)?.last().copied().unwrap_or(0);
            let mut zeros = emit.reshape(zeros, &[outer, bytes])?;
            if is_packed {
                zeros = unpack_bits(emit, zeros, blocks.bits)?;
                zeros = emit.slice(zeros, 1, 0, count)?;
            }
            Some(emit.cast(zeros, dtype)?)
        }
        None if is_packed => None,
        None => Some(emit.add_scalar(dtype, 0.0)?),
    };
    let y = blocks.dequantise_blocks(emit, numbers, [outer, count], scales, zero)?;
    let mut shape = extents;
    *shape.last_mut().unwrap_or(&mut 0) = width;
    Ok(vec![emit.reshape(y, &shape)?])
}

/// Packing of block-quantised numbers: bits per number, and numbers per block.
struct Blocks {
    bits: i64,
    size: i64,
}

impl Blocks {
    fn parse_blocks(call: &Call<'_>, usual: i64) -> Outcome<Blocks> {
        let (bits, size) = (call.int_attribute("bits", usual), call.int_attribute("block_size", 128));
        if !matches!(bits, 2 | 4 | 8) || size < 1 {
            return unsupported(format!("blocks of {size} numbers of {bits} bits"));
        }
        Ok(Blocks { bits, size })
    }

    fn packed_bytes(&self, numbers: i64) -> Outcome<i64> {
        match numbers.checked_mul(self.bits) {
            Some(bits) => Ok(bits / 8 + i64::from(bits % 8 != 0)),
            None => malformed(format!("the size of {numbers} packed numbers exceeds 64 bits")),
        }
    }

    /// Emits `(number - zero) · scale`, one zero and scale per block of a row; the default zero is 2^(bits - 1).
    fn dequantise_blocks(
        &self,
        emit: &mut Emit<'_>,
        numbers: ValueId,
        [rows, count]: [i64; 2],
        scales: ValueId,
        zero: Option<ValueId>,
    ) -> Outcome<ValueId> {
        let dtype = emit.dtype(scales)?;
        let numbers = emit.cast(numbers, dtype)?;
        let split = emit.reshape(numbers, &[rows, count, self.size])?;
        let zero = match zero {
            Some(zero) if emit.rank(zero)? == 0 => zero,
            Some(zero) => emit.reshape(zero, &[rows, count, 1])?,
            None => emit.add_scalar(dtype, f64::from(1i32 << (self.bits - 1)))?,
        };
        let scales = emit.reshape(scales, &[rows, count, 1])?;
        let centred = emit.binary(BinaryOp::Sub, split, zero)?;
        let real = emit.binary(BinaryOp::Mul, centred, scales)?;
        emit.reshape(real, &[rows, count * self.size])
    }
}

/// Unpacks the bytes of each row into numbers, lowest bits first.
pub(super) fn unpack_bits(emit: &mut Emit<'_>, bytes: ValueId, bits: i64) -> Outcome<ValueId> {
    let [rows, columns] = emit.extents(bytes)?[..] else { return malformed("packed bytes must have 2 dimensions") };
    let each = 8 / bits;
    if each == 1 {
        return Ok(bytes);
    }
    let mut parts = Vec::new();
    for place in 0..each {
        let mut part = bytes;
        if place > 0 {
            part = emit.binary_with(BinaryOp::ShiftRight, part, (place * bits) as f64)?;
        }
        if place + 1 < each {
            part = emit.binary_with(BinaryOp::BitAnd, part, ((1 << bits) - 1) as f64)?;
        }
        parts.push(emit.reshape(part, &[rows, columns, 1])?);
    }
    let all = emit.concat_parts(&parts, 2)?;
    emit.reshape(all, &[rows, columns * each])
}
