//! What a task must answer, computed slowly and plainly.
//!
//! Shares no code with what is measured: every operator is written from its definition, in 64-bit floating point, and
//! rounded to its element type after each step. Integers are exact up to 2^53, far above any sum of narrow integers.
//! Padding is skipped by computing ranges, and inner loops run over contiguous rows, so the largest layer of a common
//! network takes well under a second in an optimised build.

mod compare;
mod contraction;
mod inputs;
mod movement;
mod pointwise;
mod resize;
mod tensor;
#[cfg(test)]
mod tests;
mod window;

pub use compare::{Comparison, Tolerance, compare, tolerance};
pub use inputs::{constant, random_inputs};
pub use tensor::Tensor;

use crate::error::{Error, Result};
use crate::graph::{Graph, ValueId};
use crate::infer::infer;
use crate::operator::Op;
use crate::task::{Operand, Task};
use crate::types::TensorType;
use tensor::Array;

/// The result of a task on these inputs, one per parameter.
pub fn evaluate(task: &Task, inputs: &[Tensor]) -> Result<Tensor> {
    task.check()?;
    if inputs.len() != task.parameters.len() {
        let reason = format!("takes {} tensors, got {}", task.parameters.len(), inputs.len());
        return Err(Error::Task { task: task.name(), reason });
    }
    for (index, (parameter, input)) in task.parameters.iter().zip(inputs).enumerate() {
        if parameter.ty != *input.ty() {
            let reason = format!("parameter {index} is {}, the tensor is {}", parameter.ty, input.ty());
            return Err(Error::Task { task: task.name(), reason });
        }
    }
    let parameters = inputs.iter().map(Array::of).collect::<Result<Vec<_>>>()?;
    let mut before: Option<Array> = None;
    for step in &task.steps {
        let operands: Vec<&Array> = step
            .inputs
            .iter()
            .map(|operand| match operand {
                Operand::Parameter(index) => &parameters[*index],
                Operand::Step(_) => before.as_ref().expect("a checked task reads only the step before"),
            })
            .collect();
        before = Some(apply(&step.op, &operands, &step.output)?);
    }
    before.expect("a checked task has a step").into_tensor()
}

/// The results of a whole graph; constants are drawn as `random_inputs` draws them.
pub fn evaluate_graph(graph: &Graph, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
    graph.check()?;
    let given: Vec<&TensorType> = inputs.iter().map(Tensor::ty).collect();
    let wanted: Vec<&TensorType> = graph.inputs.iter().map(|id| &graph.values[id.0 as usize].ty).collect();
    if given != wanted {
        let reason = format!("takes {wanted:?}, got {given:?}");
        return Err(Error::Graph { graph: graph.name.clone(), place: "inputs".to_owned(), reason });
    }
    let mut values: Vec<Option<Array>> = inputs::constants(graph)?;
    for (id, input) in graph.inputs.iter().zip(inputs) {
        values[id.0 as usize] = Some(Array::of(input)?);
    }
    for node in &graph.nodes {
        let operands: Vec<&Array> = node.inputs.iter().map(|id| made(&values, *id)).collect();
        let output = node.outputs[0].0 as usize;
        let result = apply(&node.op, &operands, &graph.values[output].ty)?;
        values[output] = Some(result);
    }
    graph.outputs.iter().map(|id| made(&values, *id).clone().into_tensor()).collect()
}

/// The result of one operator on these tensors.
pub fn evaluate_operator(op: &Op, inputs: &[Tensor]) -> Result<Tensor> {
    let types: Vec<&TensorType> = inputs.iter().map(Tensor::ty).collect();
    let output = infer(op, &types)?;
    let arrays = inputs.iter().map(Array::of).collect::<Result<Vec<_>>>()?;
    apply(op, &arrays.iter().collect::<Vec<_>>(), &output)?.into_tensor()
}

fn made(values: &[Option<Array>], id: ValueId) -> &Array {
    values[id.0 as usize].as_ref().expect("a checked graph makes a value before it is used")
}

/// One operator whose inputs fit it.
fn apply(op: &Op, inputs: &[&Array], output: &TensorType) -> Result<Array> {
    let x = inputs[0];
    let mut y = Array::zeros(output)?;
    match op {
        Op::Conv { strides, pads, dilations, groups } => {
            contraction::conv(x, inputs[1], &window::Window { strides, pads, dilations }, *groups, &mut y);
        }
        Op::ConvTranspose { strides, pads, dilations, groups, .. } => {
            contraction::conv_transpose(x, inputs[1], &window::Window { strides, pads, dilations }, *groups, &mut y);
        }
        Op::MatMul { transpose_a, transpose_b } => {
            contraction::mat_mul(x, inputs[1], *transpose_a, *transpose_b, &mut y);
        }
        Op::Dense => contraction::dense(x, inputs[1], &mut y),
        Op::BatchNorm { epsilon } => {
            let (scale, shift, mean, variance) = (inputs[1], inputs[2], inputs[3], inputs[4]);
            pointwise::per_channel(x, 1, &mut y, |x, c| {
                (x - mean.data[c]) / (variance.data[c] + epsilon).sqrt() * scale.data[c] + shift.data[c]
            });
        }
        Op::ScaleShift { axis } => {
            pointwise::per_channel(x, *axis, &mut y, |x, c| x * inputs[1].data[c] + inputs[2].data[c]);
        }
        Op::LayerNorm { axis, epsilon } => pointwise::layer_norm(x, inputs[1], inputs[2], *axis, *epsilon, &mut y),
        Op::Softmax { axis, log } => pointwise::softmax(x, *axis, *log, &mut y),
        Op::Pool { mode, kernel, strides, pads, dilations, count_pad, .. } => {
            window::pool(x, *mode, kernel, &window::Window { strides, pads, dilations }, *count_pad, &mut y);
        }
        Op::GlobalPool { mode } => window::global_pool(x, *mode, &mut y),
        Op::BiasAdd { axis } => pointwise::per_channel(x, *axis, &mut y, |x, c| x + inputs[1].data[c]),
        Op::Unary { function } => pointwise::map(x, &mut y, |x| pointwise::unary(*function, x)),
        Op::Clip { low, high } => pointwise::map(x, &mut y, |x| x.max(*low).min(*high)),
        Op::Binary { function } => {
            movement::broadcast(x, inputs[1], &mut y, |a, b| pointwise::binary(*function, a, b));
        }
        Op::Cast { .. } | Op::Reshape { .. } | Op::Flatten { .. } | Op::Identity => y.data.copy_from_slice(&x.data),
        Op::Transpose { permutation } => movement::transpose(x, permutation, &mut y),
        Op::Concat { axis } => movement::concat(inputs, *axis, &mut y),
        Op::Slice { axes, starts, steps, .. } => movement::slice(x, axes, starts, steps, &mut y),
        Op::Resize { mode, .. } => resize::resize(x, *mode, &mut y),
        Op::Pad { pads, value } => movement::pad(x, pads, *value, &mut y),
    }
    y.round();
    Ok(y)
}
