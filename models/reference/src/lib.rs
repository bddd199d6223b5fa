//! What a task must answer, computed slowly and plainly.
//!
//! Shares no code with what is measured: every operator is written from its definition, in 64-bit floating point, and
//! rounded to its element type after each step. Integers are exact up to 2^53, far above any sum of narrow integers.
//! Padding is skipped by computing ranges, and inner loops run over contiguous rows, so the largest layer of a common
//! network takes well under a second in an optimised build.

#![forbid(unsafe_code)]

mod attention;
mod compare;
mod contraction;
mod index;
mod inputs;
mod movement;
mod pointwise;
mod quantised;
mod reduce;
mod resize;
mod tensor;
#[cfg(test)]
mod tests;
mod window;

pub use compare::{Comparison, Rounding, Tolerance, compare, tolerance, tolerance_when_rounded};
pub use inputs::{Draw, constant, constants, drawn_inputs, graph_inputs, input_draws, random_inputs};
pub use pointwise::error_function;
pub use tensor::Tensor;

use models::einsum::Equation;
use models::error::{Error, Result};
use models::graph::{Graph, ValueId};
use models::infer::infer;
use models::operator::Op;
use models::task::{Operand, Task};
use models::types::TensorType;
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

/// The results of a whole graph.
pub fn evaluate_graph(graph: &Graph, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
    graph.check()?;
    evaluate_graph_with(graph, &constants(graph)?, inputs)
}

/// The results of a whole graph whose `constants` are at hand.
pub fn evaluate_graph_with(graph: &Graph, constants: &[Option<Tensor>], inputs: &[Tensor]) -> Result<Vec<Tensor>> {
    graph.check()?;
    let given: Vec<&TensorType> = inputs.iter().map(Tensor::ty).collect();
    let wanted: Vec<&TensorType> = graph.inputs.iter().map(|id| &graph.values[id.0 as usize].ty).collect();
    if given != wanted {
        let reason = format!("takes {wanted:?}, got {given:?}");
        return Err(Error::Graph { graph: graph.name.clone(), place: "inputs".to_owned(), reason });
    }
    let mut values: Vec<Option<Array>> =
        constants.iter().map(|constant| constant.as_ref().map(Array::of).transpose()).collect::<Result<_>>()?;
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
#[expect(clippy::too_many_lines, reason = "one arm for each operator")]
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
        Op::BorderPad { border, pads } => index::border_pad(x, *border, pads, &mut y),
        Op::Expand { .. } => movement::expand(x, &mut y),
        Op::Tile { .. } => index::tile(x, &mut y),
        Op::Gather { axis } => index::gather(x, inputs[1], *axis, &mut y),
        Op::GatherElements { axis } => index::gather_elements(x, inputs[1], *axis, &mut y),
        Op::GatherNd { batch } => index::gather_nd(x, inputs[1], *batch, &mut y),
        Op::ScatterElements { axis, combine } => {
            index::scatter_elements(x, inputs[1], inputs[2], *axis, *combine, &mut y);
        }
        Op::ScatterNd { combine } => index::scatter_nd(x, inputs[1], inputs[2], *combine, &mut y),
        Op::OneHot { axis, on, off, .. } => index::one_hot(x, *axis, *on, *off, &mut y),
        Op::Trilu { upper, diagonal } => index::trilu(x, *upper, *diagonal, &mut y),
        Op::Rope { rotary, interleaved } => {
            attention::rope(x, inputs[1], inputs[2], *rotary, *interleaved, &mut y);
        }
        Op::Compare { function } => {
            movement::broadcast(x, inputs[1], &mut y, |a, b| f64::from(u8::from(pointwise::compare(*function, a, b))));
        }
        Op::Where => movement::choose(inputs, &mut y),
        Op::PRelu => {
            movement::broadcast(x, inputs[1], &mut y, |x, slope| if x < 0.0 { x * slope } else { x });
        }
        Op::Quantize { to, axis } => quantised::quantize(inputs, *to, *axis, &mut y),
        Op::Dequantize { axis } => quantised::dequantize(inputs, *axis, &mut y),
        Op::Requantize { axis, zero, low, high, .. } => {
            quantised::requantize(x, inputs[1], *axis, [*zero, *low, *high], &mut y);
        }
        Op::Reduce { function, axes, .. } => reduce::reduce(x, *function, axes, &mut y),
        Op::ArgReduce { largest, axis, last, .. } => reduce::arg_reduce(x, *largest, *axis, *last, &mut y),
        Op::ArgTop { count, axis, largest } => reduce::arg_top(x, *count, *axis, *largest, &mut y),
        Op::CumSum { axis, exclusive, reverse } => reduce::cum_sum(x, *axis, *exclusive, *reverse, &mut y),
        Op::RmsNorm { epsilon, .. } => reduce::rms_norm(x, inputs[1], *epsilon, &mut y),
        Op::GroupNorm { groups, epsilon } => {
            reduce::group_norm(x, inputs[1], inputs[2], *groups, *epsilon, &mut y);
        }
        Op::MeanVarianceNorm { axes, epsilon } => reduce::mean_variance_norm(x, axes, *epsilon, &mut y),
        Op::LpNorm { axis, order } => reduce::lp_norm(x, *axis, *order, &mut y),
        Op::Lrn { size, alpha, beta, bias } => reduce::lrn(x, *size, *alpha, *beta, *bias, &mut y),
        Op::AdaptivePool { mode, .. } => window::adaptive_pool(x, *mode, &mut y),
        Op::Einsum { equation } => {
            let types: Vec<&TensorType> = inputs.iter().map(|input| input.ty()).collect();
            let equation = Equation::read(equation, &types).expect("a checked equation");
            attention::einsum(inputs, &equation, &mut y);
        }
        Op::Attention { causal, scale, window, softcap } => {
            let sight = attention::Sight { causal: *causal, scale: *scale, window: *window, softcap: *softcap };
            attention::attention(inputs, &sight, &mut y);
        }
        Op::QConv { strides, pads, dilations, groups, x_zero, w_zero } => {
            let (x, w) = (quantised::centred(x, *x_zero), quantised::centred(inputs[1], *w_zero));
            contraction::conv(&x, &w, &window::Window { strides, pads, dilations }, *groups, &mut y);
        }
        Op::QDense { x_zero, w_zero } => {
            contraction::dense(&quantised::centred(x, *x_zero), &quantised::centred(inputs[1], *w_zero), &mut y);
        }
        Op::QMatMul { a_zero, b_zero } => {
            let (a, b) = (quantised::centred(x, *a_zero), quantised::centred(inputs[1], *b_zero));
            contraction::mat_mul(&a, &b, false, false, &mut y);
        }
    }
    y.round();
    Ok(y)
}
