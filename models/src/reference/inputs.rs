//! Tensors to try a task with: the same for the same seed, on every machine and in every version.
//!
//! Floats lie in [-1, 1), integers are small; where an operator needs a positive number (a variance, a divisor, the
//! argument of a logarithm) the values lie in [0.5, 1.5).

use super::tensor::{Array, Tensor, elements};
use crate::error::{Error, Result};
use crate::graph::{Const, Graph, ValueId};
use crate::operator::{BinaryOp, Op, UnaryOp};
use crate::task::{Operand, Task};
use crate::types::{DType, TensorType};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::io::{Read, Seek, SeekFrom};

/// One tensor per parameter of a task.
pub fn random_inputs(task: &Task, seed: u64) -> Result<Vec<Tensor>> {
    (0..)
        .zip(&task.parameters)
        .map(|(stream, parameter)| {
            let index = Operand::Parameter(stream);
            let mut reads = task.steps.iter().flat_map(|step| {
                step.inputs.iter().enumerate().filter(|(_, operand)| **operand == index).map(|(at, _)| (&step.op, at))
            });
            let is_positive = reads.any(|(op, at)| needs_positive(op, at));
            random(&parameter.ty, is_positive, seed, stream as u64)
        })
        .collect()
}

/// The constants of a graph; nothing where a value is made at run time.
pub(super) fn constants(graph: &Graph) -> Result<Vec<Option<Array>>> {
    let tensor = |id: ValueId, ty: &TensorType, data: &Const| match data {
        Const::Random { seed } => {
            let mut reads = graph.nodes.iter().flat_map(|node| {
                node.inputs.iter().enumerate().filter(|(_, read)| **read == id).map(|(at, _)| (&node.op, at))
            });
            random(ty, reads.any(|(op, at)| needs_positive(op, at)), *seed, 0)
        }
        data => constant(ty, data),
    };
    (0..)
        .zip(&graph.values)
        .map(|(id, value)| match &value.data {
            Some(data) => Ok(Some(Array::of(&tensor(ValueId(id), &value.ty, data)?)?)),
            None => Ok(None),
        })
        .collect()
}

/// The contents of one constant.
pub fn constant(ty: &TensorType, data: &Const) -> Result<Tensor> {
    match data {
        Const::Random { seed } => random(ty, false, *seed, 0),
        Const::Fill(number) => Tensor::from_numbers(ty.clone(), &vec![*number; elements(ty)?]),
        Const::Small(numbers) => Tensor::from_numbers(ty.clone(), numbers),
        Const::Bytes(contents) => Tensor::from_bytes(ty.clone(), contents.bytes().to_vec()),
        Const::File { path, offset, length } => {
            elements(ty)?;
            let unreadable = |error: std::io::Error| Error::Unreadable {
                file: path.display().to_string(),
                reason: format!("{error} (looking for {length} bytes at offset {offset})"),
            };
            let mut file = std::fs::File::open(path).map_err(unreadable)?;
            file.seek(SeekFrom::Start(*offset)).map_err(unreadable)?;
            let mut bytes = Vec::new();
            file.take(*length).read_to_end(&mut bytes).map_err(unreadable)?;
            Tensor::from_bytes(ty.clone(), bytes)
        }
        Const::Computed(computed) => {
            let inputs = computed.inputs.iter().map(|(ty, data)| constant(ty, data)).collect::<Result<Vec<_>>>()?;
            super::evaluate_operator(&computed.op, &inputs)
        }
    }
}

fn needs_positive(op: &Op, input: usize) -> bool {
    match op {
        Op::BatchNorm { .. } => input == 4,
        Op::Binary { function: BinaryOp::Div } => input == 1,
        Op::Unary { function: UnaryOp::Log | UnaryOp::Sqrt } => true,
        _ => false,
    }
}

fn random(ty: &TensorType, is_positive: bool, seed: u64, stream: u64) -> Result<Tensor> {
    let mut generator = ChaCha8Rng::seed_from_u64(seed);
    generator.set_stream(stream);
    let mut number = || {
        // The upper bits as a number in [0, 1) that every element type down to 32 bits holds exactly.
        let unit = f64::from(generator.next_u32() >> 8) / f64::from(1 << 24);
        match ty.dtype {
            DType::Bool => f64::from(u8::from(unit < 0.5)),
            dtype if dtype.is_float() && is_positive => 0.5 + unit,
            dtype if dtype.is_float() => 2.0 * unit - 1.0,
            DType::U8 | DType::U16 | DType::U32 | DType::U64 => {
                (16.0 * unit).floor() + f64::from(u8::from(is_positive))
            }
            _ if is_positive => (8.0 * unit).floor() + 1.0,
            _ => (16.0 * unit).floor() - 8.0,
        }
    };
    let numbers: Vec<f64> = (0..elements(ty)?).map(|_| number()).collect();
    Tensor::from_numbers(ty.clone(), &numbers)
}
