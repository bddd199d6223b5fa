//! Reference implementation: computes every operator of a task from its definition in 64-bit floating point, and rounds
//! to its element type after each step. It shares no code with the measured implementations. Integers are exact: those of 64
//! bits, which 64-bit floats round above 2^53, are computed in 128 bits and wrap around.

#![forbid(unsafe_code)]

mod attention;
mod compare;
mod contraction;
mod index;
mod inputs;
mod integers;
mod movement;
mod pointwise;
mod quantised;
mod reduce;
mod resize;
mod tensor;
#[cfg(test)]
mod tests;
mod window;

pub use compare::{Comparison, Rounding, Tolerance, compare_tensors, default_tolerance, tolerance_when_rounded};
pub use inputs::{Draw, constant_tensor, drawn_inputs, graph_constants, graph_inputs, input_draws, random_inputs};
pub use pointwise::error_function;
pub use tensor::Tensor;

use models::error::{Error, Result};
use models::graph::{Graph, ValueId};
use models::infer::infer_type;
use models::operators::{Class, Op};
use models::task::{Operand, Task};
use models::types::{DType, TensorType};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tensor::Array;

pub fn evaluate_task(task: &Task, inputs: &[Tensor]) -> Result<Tensor> {
    task.check()?;
    if inputs.len() != task.parameters.len() {
        let reason = format!("expected {} input tensors, got {}", task.parameters.len(), inputs.len());
        return Err(Error::Task { task: task.name(), reason });
    }
    for (index, (parameter, input)) in task.parameters.iter().zip(inputs).enumerate() {
        if parameter.ty != *input.tensor_type() {
            let reason =
                format!("parameter {index} has type {}, but the tensor has type {}", parameter.ty, input.tensor_type());
            return Err(Error::Task { task: task.name(), reason });
        }
    }
    let parameters = inputs.iter().map(Array::from_tensor).collect::<Result<Vec<_>>>()?;
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
        before = Some(apply_operator(&step.op, &operands, &step.output)?);
    }
    before.expect("a checked task has a step").into_tensor()
}

pub fn evaluate_graph(graph: &Graph, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
    graph.check_default()?;
    evaluate_graph_with(graph, &graph_constants(graph)?, inputs)
}

pub fn evaluate_graph_with(graph: &Graph, constants: &[Option<Tensor>], inputs: &[Tensor]) -> Result<Vec<Tensor>> {
    evaluate_nodes(graph, constants, inputs, apply_operator)
}

/// Returns, for each output, the largest error that rounding of computed values explains: twice the largest change of
/// an element if the float results of all operators, and the terms of their sums, are changed by a few units of
/// roundoff. `expected` are the outputs of `evaluate_graph_with`. Outputs without floats have no such error.
pub fn rounding_errors(
    graph: &Graph,
    constants: &[Option<Tensor>],
    inputs: &[Tensor],
    expected: &[Tensor],
) -> Result<Vec<f64>> {
    let mut generator = ChaCha8Rng::seed_from_u64(0);
    let mut disturb = |array: &mut Array| {
        // Vectorised functions approximate to a few units, half precision is computed in 32 bits and then rounded.
        let dtype = array.tensor_type().dtype;
        let units = if matches!(dtype, DType::F16 | DType::BF16) { 1.0 } else { 8.0 };
        let unit = units * compare::dtype_roundoff(dtype);
        if unit > 0.0 {
            let mut factor = || if generator.next_u32() & 1 == 0 { 1.0 + unit } else { 1.0 - unit };
            array.data.iter_mut().for_each(|number| *number *= factor());
        }
    };
    let disturbed = evaluate_nodes(graph, constants, inputs, |op, operands, output| match op.class() {
        Class::Movement | Class::View => apply_operator(op, operands, output),
        class => {
            let mut own: Vec<Array> = Vec::new();
            // A pointwise operator rounds only its result.
            if class != Class::Pointwise {
                own.extend(operands.iter().map(|operand| (*operand).clone()));
                own.iter_mut().for_each(&mut disturb);
            }
            let changed: Vec<&Array> = own.iter().collect();
            let mut result = apply_operator(op, if changed.is_empty() { operands } else { &changed }, output)?;
            disturb(&mut result);
            result.round_all();
            Ok(result)
        }
    })?;
    let largest_change = |(disturbed, expected): (&Tensor, &Tensor)| {
        if !expected.tensor_type().dtype.is_float() {
            return 0.0;
        }
        let numbers = disturbed.to_numbers().into_iter().zip(expected.to_numbers());
        2.0 * numbers.map(|(a, b)| (a - b).abs()).filter(|change| change.is_finite()).fold(0.0, f64::max)
    };
    Ok(disturbed.iter().zip(expected).map(largest_change).collect())
}

/// Evaluates a graph; `apply` computes each operator from its operands and the type of its result.
fn evaluate_nodes(
    graph: &Graph,
    constants: &[Option<Tensor>],
    inputs: &[Tensor],
    mut apply: impl FnMut(&Op, &[&Array], &TensorType) -> Result<Array>,
) -> Result<Vec<Tensor>> {
    graph.check_default()?;
    let given: Vec<&TensorType> = inputs.iter().map(Tensor::tensor_type).collect();
    let wanted: Vec<&TensorType> = graph.inputs.iter().map(|id| &graph.values[id.0 as usize].ty).collect();
    if given != wanted {
        let reason = format!("expected inputs of types {wanted:?}, got {given:?}");
        return Err(Error::Graph { graph: graph.name.clone(), place: "inputs".to_owned(), reason });
    }
    let mut values: Vec<Option<Array>> = constants
        .iter()
        .map(|constant| constant.as_ref().map(Array::from_tensor).transpose())
        .collect::<Result<_>>()?;
    for (id, input) in graph.inputs.iter().zip(inputs) {
        values[id.0 as usize] = Some(Array::from_tensor(input)?);
    }
    for node in &graph.nodes {
        let operands: Vec<&Array> = node.inputs.iter().map(|id| made_value(&values, *id)).collect();
        if let Some(reason) = index::find_outside(&node.op, &operands) {
            return Err(Error::Graph { graph: graph.name.clone(), place: node.origin.source_op.clone(), reason });
        }
        let output = node.outputs[0].0 as usize;
        let result = apply(&node.op, &operands, &graph.values[output].ty)?;
        values[output] = Some(result);
    }
    graph.outputs.iter().map(|id| made_value(&values, *id).clone().into_tensor()).collect()
}

pub fn evaluate_operator(op: &Op, inputs: &[Tensor]) -> Result<Tensor> {
    let types: Vec<&TensorType> = inputs.iter().map(Tensor::tensor_type).collect();
    let output = infer_type(op, &types)?;
    let arrays = inputs.iter().map(Array::from_tensor).collect::<Result<Vec<_>>>()?;
    apply_operator(op, &arrays.iter().collect::<Vec<_>>(), &output)?.into_tensor()
}

fn made_value(values: &[Option<Array>], id: ValueId) -> &Array {
    values[id.0 as usize].as_ref().expect("a checked graph makes a value before it is used")
}

/// A group of operators: computes an operator and returns true, or returns false if it belongs to another group.
type Family = fn(&Op, &[&Array], &mut Array) -> bool;

const FAMILIES: &[Family] = &[
    attention::compute_attention,
    contraction::compute_contraction,
    index::compute_indexing,
    movement::compute_movement,
    pointwise::compute_pointwise,
    quantised::compute_quantised,
    reduce::compute_reduction,
    window::compute_pool,
];

/// Computes an operator in 64-bit floating point; returns false if it has no reference computation.
fn compute_numbers(op: &Op, inputs: &[&Array], y: &mut Array) -> bool {
    FAMILIES.iter().any(|compute| compute(op, inputs, y))
}

fn apply_operator(op: &Op, inputs: &[&Array], output: &TensorType) -> Result<Array> {
    let mut y = Array::zeros(output)?;
    // Other dimensions of an empty output can be very large, and loops over them would do nothing.
    if y.data.is_empty() {
        return Ok(y);
    }
    if !integers::compute_integers(op, inputs, &mut y) && !compute_numbers(op, inputs, &mut y) {
        let reason = format!("`{}` has no reference computation", op.name());
        return Err(Error::Tensor { ty: output.to_string(), reason });
    }
    y.round_all();
    Ok(y)
}
