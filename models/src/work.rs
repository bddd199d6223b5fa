//! How much there is to compute and to move, counted from shapes.
//!
//! The definitions, which the columns of a dataset repeat: a contraction counts two operations per multiply-add;
//! everything else counts one per addition, multiplication, division, comparison, selection, maximum or transcendental
//! function of an element. Transcendental functions are also counted apart, because they cost a target more or less than
//! one. Moving and casting count nothing. Numbers that exist once per channel or row (the inverse deviation of a
//! normalisation) are left out.
//!
//! Windows of convolutions and pools count every tap, also those that meet padding, as other programs count them. A
//! transposed convolution counts the taps that reach an element of its result, not those that its pads cut off. Attention
//! counts the pairs of a query and a place that `causal` and `window` leave: code skips whole tiles of all others. A mask
//! that is an operand hides nothing here, because its values are not known.

use crate::einsum::Equation;
use crate::error::{Error, Result};
use crate::graph::{Graph, ValueId};
use crate::infer::infer;
use crate::operator::{BinaryOp, Op, PoolMode, ReduceOp, ResizeMode, ScatterOp, UnaryOp};
use crate::pairs::{AttentionMask, transposed_pairs};
use crate::task::{Operand, Task};
use crate::types::TensorType;
use serde::{Deserialize, Serialize};

/// Work of one operator or task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// Arithmetic operations, with two per multiply-add and one per transcendental function.
    pub flops: u64,
    /// Multiply-adds of contractions.
    pub macs: u64,
    /// Transcendental functions.
    pub exps: u64,
    /// Bytes of the activations read, each tensor once; of a table that is looked into only what is found, of keys and
    /// values only the places that a query sees.
    pub bytes_in: u64,
    /// Bytes of the result.
    pub bytes_out: u64,
    /// Bytes of the constants read, counted alike.
    pub bytes_weights: u64,
}

/// Work of one operator. Inputs at the operator's weight positions count as weights.
pub fn work(op: &Op, inputs: &[&TensorType], output: &TensorType) -> Result<Work> {
    let mut work = arithmetic(op, inputs, output)?;
    for (index, ty) in inputs.iter().enumerate() {
        let bytes = if op.is_weight(index) { &mut work.bytes_weights } else { &mut work.bytes_in };
        *bytes = bytes.saturating_add(bytes_read(op, index, ty, output)?);
    }
    work.bytes_out = bytes_of(output)?;
    Ok(work)
}

impl Task {
    /// Work of the whole task: what lies between its steps is never stored.
    pub fn work(&self) -> Result<Work> {
        let mut sum = Work::default();
        for step in &self.steps {
            let inputs = step.inputs.iter().map(|operand| self.operand_type(*operand)).collect::<Result<Vec<_>>>()?;
            sum = sum.plus(arithmetic(&step.op, &inputs, &step.output)?);
        }
        for (index, parameter) in self.parameters.iter().enumerate() {
            let is_parameter = |operand: &Operand| *operand == Operand::Parameter(index);
            let anchor = self.steps.first().and_then(|step| Some((step, step.inputs.iter().position(is_parameter)?)));
            let read = match anchor {
                Some((step, input)) => bytes_read(&step.op, input, &parameter.ty, &step.output)?,
                None => bytes_of(&parameter.ty)?,
            };
            let bytes = if parameter.is_constant { &mut sum.bytes_weights } else { &mut sum.bytes_in };
            *bytes = bytes.saturating_add(read);
        }
        sum.bytes_out = self.steps.last().map_or(Ok(0), |step| bytes_of(&step.output))?;
        Ok(sum)
    }

    /// The type of a step's input.
    pub fn operand_type(&self, operand: Operand) -> Result<&TensorType> {
        let what = match operand {
            Operand::Parameter(index) => format!("parameter {index}"),
            Operand::Step(index) => format!("step {index}"),
        };
        self.type_if_any(operand)
            .ok_or_else(|| Error::Task { task: self.name(), reason: format!("there is no {what}") })
    }

    /// The same for tasks that may be broken; what says so needs their names, which need types.
    pub(crate) fn type_if_any(&self, operand: Operand) -> Option<&TensorType> {
        match operand {
            Operand::Parameter(index) => self.parameters.get(index).map(|parameter| &parameter.ty),
            Operand::Step(index) => self.steps.get(index).map(|step| &step.output),
        }
    }
}

impl Graph {
    /// The sum over all operators, as if each were run on its own.
    pub fn work(&self) -> Result<Work> {
        self.check()?;
        let ty = |id: &ValueId| &self.values[id.0 as usize].ty;
        self.nodes.iter().try_fold(Work::default(), |sum, node| {
            let inputs: Vec<&TensorType> = node.inputs.iter().map(ty).collect();
            Ok(sum.plus(work(&node.op, &inputs, ty(&node.outputs[0]))?))
        })
    }
}

impl Work {
    /// Bytes moved, of activations, results and constants.
    pub fn bytes(&self) -> u64 {
        self.bytes_in.saturating_add(self.bytes_out).saturating_add(self.bytes_weights)
    }

    fn plus(self, other: Work) -> Work {
        Work {
            flops: self.flops.saturating_add(other.flops),
            macs: self.macs.saturating_add(other.macs),
            exps: self.exps.saturating_add(other.exps),
            bytes_in: self.bytes_in.saturating_add(other.bytes_in),
            bytes_out: self.bytes_out.saturating_add(other.bytes_out),
            bytes_weights: self.bytes_weights.saturating_add(other.bytes_weights),
        }
    }
}

/// The part that does not depend on where tensors live. Sums saturate: checked graphs cannot reach the end.
#[expect(clippy::too_many_lines, reason = "one arm for each operator")]
fn arithmetic(op: &Op, inputs: &[&TensorType], output: &TensorType) -> Result<Work> {
    infer(op, inputs)?;
    let out = elements(output)?;
    let x = inputs.first().map_or(Ok(0), |ty| elements(ty))?;
    let pointwise = |flops: u64| Work { flops: out.saturating_mul(flops), ..Work::default() };
    let contraction = |macs: u64| Work { macs, flops: macs.saturating_mul(2), ..Work::default() };
    Ok(match op {
        Op::Conv { .. } | Op::QConv { .. } => {
            // Each output element sums over one filter.
            let filter = elements(inputs[1])?.checked_div(extent(inputs[1], 0)?).unwrap_or(0);
            contraction(out.saturating_mul(filter))
        }
        Op::ConvTranspose { strides, pads, dilations, .. } => {
            let channels = [extent(inputs[0], 0)?, extent(inputs[0], 1)?, extent(inputs[1], 1)?];
            let mut macs = product(&channels);
            for (axis, stride) in strides.iter().enumerate() {
                let (outputs, kernel) = (extent(output, axis + 2)?, extent(inputs[1], axis + 2)?);
                let [stride, head, dilation] = [*stride, pads[axis], dilations[axis]].map(i64::unsigned_abs);
                macs = macs.saturating_mul(transposed_pairs(outputs, kernel, stride, head, dilation));
            }
            contraction(macs)
        }
        Op::MatMul { transpose_a, .. } => {
            let from_end = if *transpose_a { 2 } else { 1 };
            contraction(out.saturating_mul(extent(inputs[0], inputs[0].rank() - from_end)?))
        }
        Op::QMatMul { .. } => contraction(out.saturating_mul(extent(inputs[0], inputs[0].rank() - 1)?)),
        Op::Einsum { equation } => einsum(equation, inputs, x)?,
        Op::Attention { softcap, .. } => {
            let heads = product(&[extent(inputs[0], 0)?, extent(inputs[0], 1)?]);
            let mask = attention_mask(op, extent(inputs[0], 2)?, extent(inputs[1], 2)?);
            let scores = heads.saturating_mul(mask.map_or(0, |mask| mask.pairs()));
            let macs = scores.saturating_mul(extent(inputs[0], 3)?.saturating_add(extent(inputs[2], 3)?));
            // Scale, maximum, subtraction, exponential, sum, division; addition of a mask; two scalings around a tangent.
            let (each, exps) = if softcap.is_some() { (9, 2) } else { (6, 1) };
            let each = each + u64::from(inputs.len() == 4);
            let flops = macs.saturating_mul(2).saturating_add(scores.saturating_mul(each));
            Work { macs, flops, exps: scores.saturating_mul(exps), ..Work::default() }
        }
        Op::Dense | Op::QDense { .. } => contraction(out.saturating_mul(extent(inputs[1], 1)?)),
        Op::BatchNorm { .. } => pointwise(4),
        Op::ScaleShift { .. } => pointwise(2),
        // Mean: 1. Variance: subtraction, square, sum. Result: subtraction, division, scale, shift.
        Op::LayerNorm { .. } => pointwise(8),
        // Square, sum; division, scale.
        Op::RmsNorm { .. } => pointwise(4),
        Op::GroupNorm { .. } => pointwise(8),
        Op::MeanVarianceNorm { .. } => pointwise(6),
        Op::LpNorm { .. } => pointwise(3),
        // A square, the sum of the neighbours, scale, addition, power, division.
        Op::Lrn { size, .. } => Work { exps: out, ..pointwise(size.unsigned_abs().saturating_add(4)) },
        // Maximum, subtraction, exponential, sum, division; the logarithm instead of the division is once per row.
        Op::Softmax { .. } => Work { exps: out, ..pointwise(5) },
        Op::Pool { mode, kernel, .. } => {
            let window = kernel.iter().fold(1u64, |product, &k| product.saturating_mul(k.unsigned_abs()));
            pointwise(match mode {
                PoolMode::Max => window.saturating_sub(1),
                PoolMode::Average => window,
                PoolMode::Lp { .. } => window.saturating_mul(2).saturating_add(1),
            })
        }
        Op::GlobalPool { mode: PoolMode::Max } => Work { flops: x.saturating_sub(out), ..Work::default() },
        Op::GlobalPool { mode: PoolMode::Average } => Work { flops: x, ..Work::default() },
        Op::GlobalPool { mode: PoolMode::Lp { .. } } => {
            Work { flops: x.saturating_mul(2).saturating_add(out), ..Work::default() }
        }
        Op::AdaptivePool { mode, .. } => {
            let reads = adaptive_reads(inputs[0], output)?;
            let flops = match mode {
                PoolMode::Max => reads.saturating_sub(out),
                PoolMode::Average => reads,
                PoolMode::Lp { .. } => reads.saturating_mul(2).saturating_add(out),
            };
            Work { flops, ..Work::default() }
        }
        Op::Reduce { function, .. } => match function {
            ReduceOp::Sum | ReduceOp::Max | ReduceOp::Min | ReduceOp::Prod => Work { flops: x, ..Work::default() },
            ReduceOp::Mean => Work { flops: x.saturating_add(out), ..Work::default() },
            ReduceOp::L1 | ReduceOp::L2 | ReduceOp::SumSquare => Work { flops: x.saturating_mul(2), ..Work::default() },
            ReduceOp::LogSum => Work { flops: x.saturating_add(out), exps: out, ..Work::default() },
            // Maximum, subtraction, exponential, sum.
            ReduceOp::LogSumExp => Work { flops: x.saturating_mul(4), exps: x.saturating_add(out), ..Work::default() },
        },
        Op::ArgReduce { .. } => Work { flops: x, ..Work::default() },
        // A comparison with each level of a heap that holds the best so far.
        Op::ArgTop { count, .. } => {
            let levels = u64::from(u64::BITS - count.unsigned_abs().leading_zeros());
            Work { flops: x.saturating_mul(levels), ..Work::default() }
        }
        Op::CumSum { .. } => pointwise(1),
        Op::Compare { .. } | Op::Where => pointwise(1),
        // Comparison, multiplication, selection.
        Op::PRelu => pointwise(3),
        // Scale, rounding, zero point, both bounds.
        Op::Quantize { .. } | Op::Requantize { .. } => pointwise(5),
        Op::Dequantize { .. } => pointwise(2),
        // Two products and their sum.
        Op::Rope { rotary, .. } => {
            let width = extent(inputs[0], inputs[0].rank() - 1)?.max(1);
            Work { flops: (out / width).saturating_mul(rotary.unsigned_abs()).saturating_mul(3), ..Work::default() }
        }
        Op::ScatterElements { combine, .. } | Op::ScatterNd { combine } => match combine {
            ScatterOp::Replace => Work::default(),
            ScatterOp::Add | ScatterOp::Mul | ScatterOp::Max | ScatterOp::Min => {
                Work { flops: elements(inputs[2])?, ..Work::default() }
            }
        },
        Op::Unary { function } => {
            let (flops, exps) = unary(*function);
            Work { exps: out.saturating_mul(exps), ..pointwise(flops) }
        }
        Op::Clip { .. } => pointwise(2),
        Op::Binary { function: BinaryOp::Pow } => Work { exps: out, ..pointwise(1) },
        Op::BiasAdd { .. } | Op::Binary { .. } => pointwise(1),
        Op::Resize { mode: ResizeMode::Linear | ResizeMode::LinearAligned, extents } => {
            // A blend of two is a difference, a product and a sum; the corners of a cell are blended pairwise.
            pointwise(3 * ((1u64 << extents.len().min(3)) - 1))
        }
        Op::Cast { .. }
        | Op::Reshape { .. }
        | Op::Flatten { .. }
        | Op::Transpose { .. }
        | Op::Concat { .. }
        | Op::Pad { .. }
        | Op::Slice { .. }
        | Op::Resize { mode: ResizeMode::Nearest, .. }
        | Op::BorderPad { .. }
        | Op::Expand { .. }
        | Op::Tile { .. }
        | Op::Gather { .. }
        | Op::GatherElements { .. }
        | Op::GatherNd { .. }
        | Op::OneHot { .. }
        | Op::Trilu { .. }
        | Op::Identity => Work::default(),
    })
}

/// Products of several operands count as multiply-adds, a sum of one operand as additions.
fn einsum(equation: &str, inputs: &[&TensorType], x: u64) -> Result<Work> {
    let Ok(equation) = Equation::read(equation, inputs) else { unreachable!("the shape rule has read it") };
    if inputs.len() == 1 {
        return Ok(Work { flops: if equation.summed.is_empty() { 0 } else { x }, ..Work::default() });
    }
    let all = TensorType { dtype: inputs[0].dtype, shape: equation.extents };
    let extents = all.extents().ok_or_else(|| Error::Symbolic { ty: all.to_string(), what: "work" })?;
    let terms = product(&extents.iter().map(|extent| extent.unsigned_abs()).collect::<Vec<_>>());
    let macs = terms.saturating_mul(inputs.len() as u64 - 1);
    Ok(Work { macs, flops: macs.saturating_mul(2), ..Work::default() })
}

/// How many elements the windows of an adaptive pool read: along each axis all, and those on a border twice.
fn adaptive_reads(x: &TensorType, y: &TensorType) -> Result<u64> {
    let mut reads = extent(x, 0)?.saturating_mul(extent(x, 1)?);
    for axis in 2..x.rank() {
        let (old, new) = (extent(x, axis)?, extent(y, axis)?);
        let (mut divisor, mut rest) = (old, new);
        while rest != 0 {
            (divisor, rest) = (rest, divisor % rest);
        }
        reads = reads.saturating_mul(old + new - divisor);
    }
    Ok(reads)
}

fn product(extents: &[u64]) -> u64 {
    extents.iter().fold(1, |product, extent| product.saturating_mul(*extent))
}

/// Operations and transcendental functions of one element.
fn unary(function: UnaryOp) -> (u64, u64) {
    match function {
        UnaryOp::Relu
        | UnaryOp::Neg
        | UnaryOp::Abs
        | UnaryOp::Sqrt
        | UnaryOp::Reciprocal
        | UnaryOp::Square
        | UnaryOp::Floor
        | UnaryOp::Ceil
        | UnaryOp::Round
        | UnaryOp::Trunc
        | UnaryOp::IsNan
        | UnaryOp::IsInf { .. }
        | UnaryOp::Not
        | UnaryOp::BitNot => (1, 0),
        UnaryOp::Exp
        | UnaryOp::Log
        | UnaryOp::Tanh
        | UnaryOp::Sin
        | UnaryOp::Cos
        | UnaryOp::Tan
        | UnaryOp::Asin
        | UnaryOp::Acos
        | UnaryOp::Atan
        | UnaryOp::Sinh
        | UnaryOp::Cosh
        | UnaryOp::Asinh
        | UnaryOp::Acosh
        | UnaryOp::Atanh
        | UnaryOp::Erf
        | UnaryOp::Exp2
        | UnaryOp::Expm1
        | UnaryOp::Log2
        | UnaryOp::Log10
        | UnaryOp::Log1p => (1, 1),
        // Two of comparison, selection, root, division, absolute value.
        UnaryOp::Rsqrt | UnaryOp::Sign | UnaryOp::ThresholdedRelu { .. } => (2, 0),
        // Comparison, multiplication, selection.
        UnaryOp::LeakyRelu { .. } | UnaryOp::Softsign => (3, 0),
        // Multiplication, addition, maximum, minimum.
        UnaryOp::HardSigmoid | UnaryOp::HardSigmoidOf { .. } => (4, 0),
        // Two comparisons, two additions, two selections.
        UnaryOp::Shrink { .. } => (6, 0),
        UnaryOp::HardSwish => (5, 0),
        // Exponential, subtraction, multiplication, comparison, selection; a division or a scaling more.
        UnaryOp::Elu { .. } => (5, 1),
        UnaryOp::Selu | UnaryOp::Celu { .. } => (6, 1),
        // Negation, exponential, addition, division.
        UnaryOp::Sigmoid => (4, 1),
        UnaryOp::Silu => (5, 1),
        UnaryOp::Swish { .. } => (6, 1),
        // Exponential, addition, logarithm; then tangent and multiplication.
        UnaryOp::Softplus => (3, 2),
        UnaryOp::Mish => (5, 3),
        // Scaling, error function, addition, two multiplications.
        UnaryOp::Gelu => (5, 1),
        // A cube and its sum, scaling, tangent, addition, two multiplications.
        UnaryOp::GeluTanh => (9, 1),
    }
}

fn elements(ty: &TensorType) -> Result<u64> {
    ty.elements().ok_or_else(|| Error::Symbolic { ty: ty.to_string(), what: "work" })
}

/// Bytes read of one input: of a table that is looked into only what is found, of keys and values only what is seen.
fn bytes_read(op: &Op, input: usize, ty: &TensorType, output: &TensorType) -> Result<u64> {
    match op {
        Op::Gather { .. } | Op::GatherElements { .. } | Op::GatherNd { .. } if input == 0 => {
            Ok(bytes_of(ty)?.min(bytes_of(output)?))
        }
        Op::Attention { .. } if [1, 2].contains(&input) => {
            let places = extent(ty, 2)?;
            let seen = attention_mask(op, extent(output, 2)?, places).map_or(places, |mask| mask.seen_places());
            // Each place has the same number of bytes.
            Ok(bytes_of(ty)?.checked_div(places).unwrap_or(0).saturating_mul(seen))
        }
        _ => bytes_of(ty),
    }
}

/// The mask that the attributes of an attention make.
fn attention_mask(op: &Op, queries: u64, places: u64) -> Option<AttentionMask> {
    let Op::Attention { causal, window, .. } = op else { return None };
    Some(AttentionMask { queries, places, is_causal: *causal, window: *window })
}

fn bytes_of(ty: &TensorType) -> Result<u64> {
    ty.bytes().ok_or_else(|| Error::Symbolic { ty: ty.to_string(), what: "bytes" })
}

fn extent(ty: &TensorType, axis: usize) -> Result<u64> {
    let extent = ty.extents().and_then(|extents| extents.get(axis).copied());
    let extent = extent.and_then(|extent| u64::try_from(extent).ok());
    extent.ok_or_else(|| Error::Symbolic { ty: ty.to_string(), what: "work" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(op: &Op, inputs: &[TensorType], flops: u64, macs: u64, exps: u64) -> Work {
        let inputs: Vec<&TensorType> = inputs.iter().collect();
        let work = work(op, &inputs, &infer(op, &inputs).unwrap()).unwrap();
        assert_eq!((work.flops, work.macs, work.exps), (flops, macs, exps));
        work
    }

    #[test]
    fn contractions_count_two_per_multiply_add() {
        let first_of_resnet = Op::Conv { strides: vec![2, 2], pads: vec![3; 4], dilations: vec![1, 1], groups: 1 };
        let types = [TensorType::f32(&[1, 3, 224, 224]), TensorType::f32(&[64, 3, 7, 7])];
        let work = check(&first_of_resnet, &types, 236_027_904, 118_013_952, 0);
        assert_eq!((work.bytes_in, work.bytes_weights, work.bytes_out), (602_112, 37_632, 3_211_264));

        let depthwise = Op::Conv { strides: vec![1], pads: vec![1; 2], dilations: vec![1], groups: 8 };
        check(&depthwise, &[TensorType::f32(&[1, 8, 10]), TensorType::f32(&[8, 1, 3])], 480, 240, 0);

        let types = [TensorType::f32(&[2, 5, 3]), TensorType::f32(&[5, 7])];
        check(&Op::MatMul { transpose_a: true, transpose_b: false }, &types, 420, 210, 0);
        check(&Op::Dense, &[TensorType::f32(&[4, 5]), TensorType::f32(&[7, 5])], 280, 140, 0);
    }

    #[test]
    fn the_rest_counts_one_per_operation() {
        let x = [TensorType::f32(&[2, 8])];
        check(&Op::Softmax { axis: 1, log: false }, &x, 80, 0, 16);
        check(&Op::Unary { function: UnaryOp::Gelu }, &x, 80, 0, 16);
        check(&Op::Transpose { permutation: vec![1, 0] }, &x, 0, 0, 0);
        check(&Op::GlobalPool { mode: PoolMode::Average }, &[TensorType::f32(&[1, 2, 3, 3])], 18, 0, 0);
    }

    /// Four heads of three queries of eight numbers, five places, values of six numbers.
    #[track_caller]
    fn check_attention(op: (bool, Option<i64>), pairs: u64, places_read: u64) {
        let op = Op::Attention { causal: op.0, scale: 0.5, window: op.1, softcap: None };
        let types = ["f32[1,4,3,8]", "f32[1,2,5,8]", "f32[1,2,5,6]"].map(|ty| ty.parse().unwrap());
        // Each score is a sum of 8 products, is weighed in 6 sums, and has six operations of its own.
        let (scores, macs) = (4 * pairs, 4 * pairs * 14);
        let work = check(&op, &types, 2 * macs + 6 * scores, macs, scores);
        assert_eq!(work.bytes_in, 4 * (4 * 3 * 8 + 2 * places_read * (8 + 6)));
        let [q, k, v] = types;
        let task = format!("attention({q}, {k}, {v}) {}", op_attributes(&op));
        assert_eq!(Task::from_text(&task).unwrap().work().unwrap(), work, "alone and as a task");
    }

    fn op_attributes(op: &Op) -> String {
        let Op::Attention { causal, scale, window, .. } = op else { unreachable!() };
        let window = window.map_or("null".to_owned(), |window| window.to_string());
        format!("causal={causal} scale={scale} window={window} softcap=null")
    }

    /// The three queries stand at places 2, 3 and 4.
    #[test]
    fn attention_counts_the_pairs_that_are_seen() {
        check_attention((false, None), 15, 5);
        check_attention((true, None), 3 + 4 + 5, 5);
        check_attention((true, Some(2)), 2 + 2 + 2, 4);
        check_attention((true, Some(4)), 3 + 4 + 4, 5);
        check_attention((false, Some(2)), 4 + 3 + 2, 4);
    }

    #[test]
    fn transposed_convolutions_count_what_reaches_the_result() {
        let check = |kernel: i64, stride: i64, pad: i64, output_pad: i64, macs: u64| {
            let op = Op::ConvTranspose {
                strides: vec![stride],
                pads: vec![pad; 2],
                output_pads: vec![output_pad],
                dilations: vec![1],
                groups: 1,
            };
            check(&op, &[TensorType::f32(&[1, 3, 8]), TensorType::f32(&[3, 2, kernel])], 2 * macs, macs, 0);
        };
        // Every input over each tap, where nothing is cut off.
        check(4, 2, 1, 0, 3 * 2 * 8 * 4);
        check(3, 2, 1, 1, 3 * 2 * 8 * 3);
        check(2, 2, 0, 0, 3 * 2 * 8 * 2);
        // Six elements of three taps are left.
        check(3, 1, 2, 0, 3 * 2 * 6 * 3);
    }

    #[test]
    fn sums_and_look_ups() {
        let einsum = Op::Einsum { equation: "ij,kj->ik".to_owned() };
        check(&einsum, &[TensorType::f32(&[4, 5]), TensorType::f32(&[7, 5])], 280, 140, 0);
        let mean = Op::Reduce { function: ReduceOp::Mean, axes: vec![1], keep: false };
        check(&mean, &[TensorType::f32(&[2, 8])], 18, 0, 0);
        // Windows of 2, 2 and 2 of 4 elements: two elements are read twice.
        let adaptive = Op::AdaptivePool { mode: PoolMode::Average, extents: vec![3] };
        check(&adaptive, &[TensorType::f32(&[1, 1, 4])], 6, 0, 0);
        let work = check(&Op::Gather { axis: 0 }, &["f32[1000,8]", "i64[3]"].map(|ty| ty.parse().unwrap()), 0, 0, 0);
        assert_eq!((work.bytes_weights, work.bytes_in, work.bytes_out), (96, 24, 96));
    }

    #[test]
    fn a_symbol_cannot_be_counted() {
        let mut x = TensorType::f32(&[1, 8]);
        x.shape[0] = crate::types::Dim::Symbol("batch".to_owned());
        let op = Op::Unary { function: UnaryOp::Relu };
        let error = work(&op, &[&x], &x).unwrap_err().to_string();
        assert_eq!(
            error,
            "`f32[batch,8]` has a dimension without a number, so work cannot be counted; bind its symbols first"
        );
    }
}
