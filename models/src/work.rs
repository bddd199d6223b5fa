//! Counts arithmetic and memory traffic from shapes.
//!
//! Definitions, also used for the columns of a dataset: a contraction counts two operations per multiply-add;
//! everything else counts one per addition, multiplication, division, comparison, selection, maximum or transcendental
//! function of an element. Transcendental functions are also counted separately, because their cost differs between
//! targets. Data movement and casts count as zero operations. Operations on numbers that exist once per channel or row
//! (such as the inverse deviation of a normalisation) are not counted.
//!
//! Windows of convolutions and pools count every tap, including those on padding, as other tools do. A transposed
//! convolution counts the taps that contribute to an element of its result, not those removed by its pads. Attention
//! counts the pairs of query and key position that `causal` and `window` leave visible, because code skips whole tiles
//! of hidden ones. A mask operand does not reduce the count, because its values are unknown.

use crate::error::{Error, Result};
use crate::graph::{Graph, ValueId};
use crate::infer::infer_type;
use crate::operators::{Op, Work, bytes_of, elements};
use crate::task::{Operand, Task};
use crate::types::TensorType;

/// Returns the work of an operator. Inputs at its weight positions count as weights.
pub fn operator_work(op: &Op, inputs: &[&TensorType], output: &TensorType) -> Result<Work> {
    let mut work = arithmetic_work(op, inputs, output)?;
    for (index, ty) in inputs.iter().enumerate() {
        let bytes = if op.is_weight(index) { &mut work.bytes_weights } else { &mut work.bytes_in };
        *bytes = bytes.saturating_add(op.bytes_read(index, ty, output)?);
    }
    work.bytes_out = bytes_of(output)?;
    Ok(work)
}

impl Task {
    /// Returns the work of the task; intermediate results count no memory traffic.
    pub fn work(&self) -> Result<Work> {
        let mut sum = Work::default();
        for step in &self.steps {
            let inputs = step.inputs.iter().map(|operand| self.operand_type(*operand)).collect::<Result<Vec<_>>>()?;
            sum = sum.saturating_sum(arithmetic_work(&step.op, &inputs, &step.output)?);
        }
        for (index, parameter) in self.parameters.iter().enumerate() {
            let is_parameter = |operand: &Operand| *operand == Operand::Parameter(index);
            let anchor = self.steps.first().and_then(|step| Some((step, step.inputs.iter().position(is_parameter)?)));
            let read = match anchor {
                Some((step, input)) => step.op.bytes_read(input, &parameter.ty, &step.output)?,
                None => bytes_of(&parameter.ty)?,
            };
            let bytes = if parameter.is_constant { &mut sum.bytes_weights } else { &mut sum.bytes_in };
            *bytes = bytes.saturating_add(read);
        }
        sum.bytes_out = self.steps.last().map_or(Ok(0), |step| bytes_of(&step.output))?;
        Ok(sum)
    }

    /// Returns the type of a step's input.
    pub fn operand_type(&self, operand: Operand) -> Result<&TensorType> {
        self.type_if_any(operand).ok_or_else(|| {
            let what = match operand {
                Operand::Parameter(index) => format!("parameter {index}"),
                Operand::Step(index) => format!("step {index}"),
            };
            Error::Task { task: self.name(), reason: format!("there is no {what}") }
        })
    }

    /// Returns the type of a step's input, if it exists, also in tasks that were not checked.
    pub(crate) fn type_if_any(&self, operand: Operand) -> Option<&TensorType> {
        match operand {
            Operand::Parameter(index) => self.parameters.get(index).map(|parameter| &parameter.ty),
            Operand::Step(index) => self.steps.get(index).map(|step| &step.output),
        }
    }
}

impl Graph {
    /// Sums the work of all operators as if each ran alone, without fusion.
    pub fn work(&self) -> Result<Work> {
        self.check_default()?;
        let ty = |id: &ValueId| &self.values[id.0 as usize].ty;
        self.nodes.iter().try_fold(Work::default(), |sum, node| {
            let inputs: Vec<&TensorType> = node.inputs.iter().map(ty).collect();
            Ok(sum.saturating_sum(operator_work(&node.op, &inputs, ty(&node.outputs[0]))?))
        })
    }
}

/// Returns the arithmetic work, without bytes, after checking the types.
fn arithmetic_work(op: &Op, inputs: &[&TensorType], output: &TensorType) -> Result<Work> {
    infer_type(op, inputs)?;
    // Symbols are rejected even if there is nothing to count.
    elements(output)?;
    inputs.first().map_or(Ok(0), |ty| elements(ty))?;
    op.count_arithmetic(inputs, output)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operators::{
        AdaptivePool, Attention, Conv, ConvTranspose, Dense, Einsum, Gather, GlobalPool, MatMul, PoolMode, Reduce,
        ReduceOp, Softmax, Transpose, Unary, UnaryOp,
    };

    #[track_caller]
    fn check(op: &Op, inputs: &[TensorType], flops: u64, macs: u64, exps: u64) -> Work {
        let inputs: Vec<&TensorType> = inputs.iter().collect();
        let work = operator_work(op, &inputs, &infer_type(op, &inputs).unwrap()).unwrap();
        assert_eq!((work.flops, work.macs, work.exps), (flops, macs, exps));
        work
    }

    #[test]
    fn contractions_count_two_per_multiply_add() {
        let first_of_resnet =
            Op::Conv(Conv { strides: vec![2, 2], pads: vec![3; 4], dilations: vec![1, 1], groups: 1 });
        let types = [TensorType::f32(&[1, 3, 224, 224]), TensorType::f32(&[64, 3, 7, 7])];
        let work = check(&first_of_resnet, &types, 236_027_904, 118_013_952, 0);
        assert_eq!((work.bytes_in, work.bytes_weights, work.bytes_out), (602_112, 37_632, 3_211_264));

        let depthwise = Op::Conv(Conv { strides: vec![1], pads: vec![1; 2], dilations: vec![1], groups: 8 });
        check(&depthwise, &[TensorType::f32(&[1, 8, 10]), TensorType::f32(&[8, 1, 3])], 480, 240, 0);

        let types = [TensorType::f32(&[2, 5, 3]), TensorType::f32(&[5, 7])];
        check(&Op::MatMul(MatMul { transpose_a: true, transpose_b: false }), &types, 420, 210, 0);
        check(&Op::Dense(Dense {}), &[TensorType::f32(&[4, 5]), TensorType::f32(&[7, 5])], 280, 140, 0);
    }

    #[test]
    fn the_rest_counts_one_per_operation() {
        let x = [TensorType::f32(&[2, 8])];
        check(&Op::Softmax(Softmax { axis: 1, log: false }), &x, 80, 0, 16);
        check(&Op::Unary(Unary { function: UnaryOp::Gelu }), &x, 80, 0, 16);
        check(&Op::Transpose(Transpose { permutation: vec![1, 0] }), &x, 0, 0, 0);
        check(&Op::GlobalPool(GlobalPool { mode: PoolMode::Average }), &[TensorType::f32(&[1, 2, 3, 3])], 18, 0, 0);
    }

    /// Checks attention with four heads, three queries of width eight, five key positions, and values of width six.
    #[track_caller]
    fn check_attention(op: (bool, Option<i64>), pairs: u64, places_read: u64) {
        let op = Op::Attention(Attention { causal: op.0, scale: 0.5, window: op.1, softcap: None });
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
        let Op::Attention(Attention { causal, scale, window, .. }) = op else { unreachable!() };
        let window = window.map_or("null".to_owned(), |window| window.to_string());
        format!("causal={causal} scale={scale} window={window} softcap=null")
    }

    /// The three queries have positions 2, 3 and 4.
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
            let op = Op::ConvTranspose(ConvTranspose {
                strides: vec![stride],
                pads: vec![pad; 2],
                output_pads: vec![output_pad],
                dilations: vec![1],
                groups: 1,
            });
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
        let einsum = Op::Einsum(Einsum { equation: "ij,kj->ik".to_owned() });
        check(&einsum, &[TensorType::f32(&[4, 5]), TensorType::f32(&[7, 5])], 280, 140, 0);
        let mean = Op::Reduce(Reduce { function: ReduceOp::Mean, axes: vec![1], keep: false });
        check(&mean, &[TensorType::f32(&[2, 8])], 18, 0, 0);
        // Windows of 2, 2 and 2 of 4 elements: two elements are read twice.
        let adaptive = Op::AdaptivePool(AdaptivePool { mode: PoolMode::Average, extents: vec![3] });
        check(&adaptive, &[TensorType::f32(&[1, 1, 4])], 6, 0, 0);
        let work =
            check(&Op::Gather(Gather { axis: 0 }), &["f32[1000,8]", "i64[3]"].map(|ty| ty.parse().unwrap()), 0, 0, 0);
        assert_eq!((work.bytes_weights, work.bytes_in, work.bytes_out), (96, 24, 96));
    }

    #[test]
    fn a_symbol_cannot_be_counted() {
        let mut x = TensorType::f32(&[1, 8]);
        x.shape[0] = crate::types::Dim::Symbol("batch".to_owned());
        let op = Op::Unary(Unary { function: UnaryOp::Relu });
        let error = operator_work(&op, &[&x], &x).unwrap_err().to_string();
        assert_eq!(error, "`f32[batch,8]` has a symbolic dimension, so work cannot be counted; bind its symbols first");
    }
}
