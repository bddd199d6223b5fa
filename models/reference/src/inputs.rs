//! Random input tensors for tasks and graphs: the same for the same seed, on every machine and in every version.
//! Floats are in [-1, 1), integers are small. Where an operator needs a positive number (a variance, a divisor, the
//! argument of a logarithm), values are in [0.5, 1.5). Indices are below the extent that they index.

use super::index::is_index;
use super::tensor::{Tensor, element_count};
use models::error::{Error, Result};
use models::graph::{Const, Graph};
use models::operators::{
    Binary, BinaryOp, Gather, GatherElements, GatherNd, OneHot, Op, Reduce, ReduceOp, ScatterElements, Unary, UnaryOp,
};
use models::task::{Operand, Task};
use models::types::{DType, Dim, TensorType};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use std::io::{Read, Seek, SeekFrom};

pub fn random_inputs(task: &Task, seed: u64) -> Result<Vec<Tensor>> {
    (0..)
        .zip(&task.parameters)
        .map(|(stream, parameter)| {
            let index = Operand::Parameter(stream);
            let mut draw = Draw::Any;
            for step in &task.steps {
                let types =
                    step.inputs.iter().map(|operand| task.operand_type(*operand)).collect::<Result<Vec<_>>>()?;
                for (at, _) in step.inputs.iter().enumerate().filter(|(_, operand)| **operand == index) {
                    draw = draw.restrict_to(required_draw(&step.op, at, &types));
                }
            }
            random_tensor(&parameter.ty, draw, seed, stream as u64)
        })
        .collect()
}

/// Returns one random tensor per graph input, with values that all its readers accept.
pub fn graph_inputs(graph: &Graph, seed: u64) -> Result<Vec<Tensor>> {
    let types = graph.inputs.iter().map(|id| &graph.values[id.0 as usize].ty);
    drawn_inputs(types.zip(input_draws(graph)), seed)
}

pub fn input_draws(graph: &Graph) -> Vec<Draw> {
    let draws = value_draws(graph);
    graph.inputs.iter().map(|id| draws[id.0 as usize]).collect()
}

/// Returns one random tensor per type and range; equals `graph_inputs` for the types and ranges of a graph's inputs.
pub fn drawn_inputs<'a>(wanted: impl Iterator<Item = (&'a TensorType, Draw)>, seed: u64) -> Result<Vec<Tensor>> {
    (0..).zip(wanted).map(|(stream, (ty, draw))| random_tensor(ty, draw, seed, stream)).collect()
}

fn value_draws(graph: &Graph) -> Vec<Draw> {
    let mut draws = vec![Draw::Any; graph.values.len()];
    for node in &graph.nodes {
        let types: Vec<&TensorType> = node.inputs.iter().map(|id| &graph.values[id.0 as usize].ty).collect();
        for (at, id) in node.inputs.iter().enumerate() {
            let draw = &mut draws[id.0 as usize];
            *draw = draw.restrict_to(required_draw(&node.op, at, &types));
        }
    }
    draws
}

/// Returns the contents of each value that is a constant; None for values computed at run time.
pub fn graph_constants(graph: &Graph) -> Result<Vec<Option<Tensor>>> {
    let tensor = |ty: &TensorType, data: &Const, draw: Draw| match (data, draw) {
        (Const::Random { seed }, Draw::Any) => random_weight(ty, *seed),
        (Const::Random { seed }, draw) => random_tensor(ty, draw, *seed, 0),
        (data, _) => constant_tensor(ty, data),
    };
    let values = graph.values.iter().zip(value_draws(graph));
    values.map(|(value, draw)| value.data.as_ref().map(|data| tensor(&value.ty, data, draw)).transpose()).collect()
}

pub fn constant_tensor(ty: &TensorType, data: &Const) -> Result<Tensor> {
    match data {
        Const::Random { seed } => random_weight(ty, *seed),
        Const::Fill(number) => Tensor::from_numbers(ty.clone(), &vec![*number; element_count(ty)?]),
        Const::Small(numbers) => Tensor::from_numbers(ty.clone(), numbers),
        Const::Bytes(contents) => Tensor::from_bytes(ty.clone(), contents.as_bytes().to_vec()),
        Const::File { path, offset, length } => {
            element_count(ty)?;
            let unreadable = |error: std::io::Error| Error::Unreadable {
                file: path.display().to_string(),
                reason: format!("{error} (reading {length} bytes at offset {offset})"),
            };
            let mut file = std::fs::File::open(path).map_err(unreadable)?;
            file.seek(SeekFrom::Start(*offset)).map_err(unreadable)?;
            let mut bytes = Vec::new();
            file.take(*length).read_to_end(&mut bytes).map_err(unreadable)?;
            Tensor::from_bytes(ty.clone(), bytes)
        }
        Const::Computed(computed) => {
            let inputs =
                computed.inputs.iter().map(|(ty, data)| constant_tensor(ty, data)).collect::<Result<Vec<_>>>()?;
            super::evaluate_operator(&computed.op, &inputs)
        }
    }
}

/// Returns a random weight, smaller the more products are summed, so that activations keep their magnitude.
fn random_weight(ty: &TensorType, seed: u64) -> Result<Tensor> {
    let drawn = random_tensor(ty, Draw::Any, seed, 0)?;
    let summed: i64 = ty.extents().unwrap_or_default().iter().skip(1).product();
    if !ty.dtype.is_float() || ty.rank() < 2 || summed <= 6 {
        return Ok(drawn);
    }
    let bound = (6.0 / summed as f64).sqrt();
    let numbers: Vec<f64> = drawn.to_numbers().into_iter().map(|number| number * bound).collect();
    Tensor::from_numbers(ty.clone(), &numbers)
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Draw {
    Any,
    Positive,
    AboveOne,
    /// Whole numbers from zero up to this bound (exclusive).
    Below(i64),
    /// Indices of a dimension with this extent. Negative ones count from the end; none is drawn.
    Index(i64),
}

impl Draw {
    fn restrict_to(self, other: Draw) -> Draw {
        match (self, other) {
            (Draw::Index(a), Draw::Index(b)) => Draw::Index(a.min(b)),
            (Draw::Below(a), Draw::Below(b)) => Draw::Below(a.min(b)),
            (Draw::Index(extent), Draw::Below(bound)) | (Draw::Below(bound), Draw::Index(extent)) => {
                if bound < extent {
                    Draw::Below(bound)
                } else {
                    Draw::Index(extent)
                }
            }
            (Draw::Index(extent), _) | (_, Draw::Index(extent)) => Draw::Index(extent),
            (Draw::Below(bound), _) | (_, Draw::Below(bound)) => Draw::Below(bound),
            (Draw::AboveOne, _) | (_, Draw::AboveOne) => Draw::AboveOne,
            (Draw::Positive, _) | (_, Draw::Positive) => Draw::Positive,
            (Draw::Any, Draw::Any) => Draw::Any,
        }
    }

    /// Returns the first number that is no index of the dimension, and the extent of that dimension; None without a
    /// dimension.
    pub fn find_outside(self, tensor: &Tensor) -> Option<(f64, i64)> {
        let Draw::Index(extent) = self else { return None };
        let outside = tensor.to_numbers().into_iter().find(|number| !is_index(*number, extent as f64));
        outside.map(|number| (number, extent))
    }
}

fn required_draw(op: &Op, input: usize, types: &[&TensorType]) -> Draw {
    let extent = |axis: usize| match types[0].shape.get(axis) {
        Some(Dim::Known(extent)) => *extent,
        Some(Dim::Symbol(_)) | None => 1,
    };
    let smallest = |batch: usize| {
        let looked_up = types[1].shape.last().map_or(1, |last| if let Dim::Known(count) = last { *count } else { 1 });
        let axes = batch..batch + usize::try_from(looked_up).unwrap_or(0);
        Draw::Below(axes.map(extent).min().unwrap_or(1))
    };
    let index = |number: i64| usize::try_from(number).unwrap_or(0);
    match (op, input) {
        (Op::BatchNorm(_), 4) => Draw::Positive,
        (Op::Binary(Binary { function: BinaryOp::Div | BinaryOp::Mod | BinaryOp::Fmod | BinaryOp::FloorDiv }), 1) => {
            Draw::Positive
        }
        (Op::Binary(Binary { function: BinaryOp::Pow }), 0) => Draw::Positive,
        (Op::Binary(Binary { function: BinaryOp::ShiftLeft | BinaryOp::ShiftRight }), 1) => {
            Draw::Below(8 * i64::try_from(types[1].dtype.size_bytes()).unwrap_or(1))
        }
        (
            Op::Unary(Unary {
                function:
                    UnaryOp::Log | UnaryOp::Log2 | UnaryOp::Log10 | UnaryOp::Sqrt | UnaryOp::Rsqrt | UnaryOp::Reciprocal,
            }),
            _,
        ) => Draw::Positive,
        (Op::Unary(Unary { function: UnaryOp::Acosh }), _) => Draw::AboveOne,
        (Op::Reduce(Reduce { function: ReduceOp::LogSum, .. }), _) => Draw::Positive,
        (Op::Quantize(_) | Op::Dequantize(_) | Op::Requantize(_), 1) => Draw::Positive,
        (
            Op::Gather(Gather { axis })
            | Op::GatherElements(GatherElements { axis })
            | Op::ScatterElements(ScatterElements { axis, .. }),
            1,
        ) => Draw::Index(extent(index(*axis))),
        (Op::GatherNd(GatherNd { batch }), 1) => smallest(index(*batch)),
        (Op::ScatterNd(_), 1) => smallest(0),
        (Op::OneHot(OneHot { depth, .. }), _) => Draw::Below(*depth),
        _ => Draw::Any,
    }
}

fn random_tensor(ty: &TensorType, draw: Draw, seed: u64, stream: u64) -> Result<Tensor> {
    let mut generator = ChaCha8Rng::seed_from_u64(seed);
    generator.set_stream(stream);
    let mut number = || {
        // The upper bits as a number in [0, 1) that every element type down to 32 bits holds exactly.
        let unit = f64::from(generator.next_u32() >> 8) / f64::from(1 << 24);
        match (ty.dtype, draw) {
            (DType::Bool, _) => f64::from(u8::from(unit < 0.5)),
            (_, Draw::Below(bound) | Draw::Index(bound)) => (bound as f64 * unit).floor(),
            (dtype, Draw::Positive) if dtype.is_float() => 0.5 + unit,
            (dtype, Draw::AboveOne) if dtype.is_float() => 1.5 + unit,
            (dtype, _) if dtype.is_float() => 2.0 * unit - 1.0,
            (DType::U8 | DType::U16 | DType::U32 | DType::U64, draw) => {
                (16.0 * unit).floor() + f64::from(u8::from(draw != Draw::Any))
            }
            (_, Draw::Any) => (16.0 * unit).floor() - 8.0,
            (_, _) => (8.0 * unit).floor() + 1.0,
        }
    };
    let numbers: Vec<f64> = (0..element_count(ty)?).map(|_| number()).collect();
    Tensor::from_numbers(ty.clone(), &numbers)
}
