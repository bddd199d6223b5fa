//! A task: an operator, its fused epilogue, shapes and element types; the unit that is compiled. The first step is the
//! anchor; each later one is elementwise or broadcast over the anchor's output and uses the previous step. Names and
//! scopes are not part of a task, so equal work in two models is one task with one hash.

mod check;
mod describe;
mod hash;

use crate::operators::Op;
use crate::types::TensorType;
use serde::{Deserialize, Serialize};

/// The unit that is compiled: a list of operators with their shapes and element types.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// Input tensors in argument order: the anchor's, then the epilogue's.
    pub parameters: Vec<Parameter>,
    /// The operators: the anchor first, then the fused epilogue.
    pub steps: Vec<Step>,
}

/// An input tensor of a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Parameter {
    /// Element type and shape.
    pub ty: TensorType,
    /// Whether the tensor is a constant of the model (weight, bias) rather than an activation.
    pub is_constant: bool,
}

/// One operator of a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// The operator with its attributes.
    pub op: Op,
    /// Sources of the operator's inputs, in the order that the operator defines.
    pub inputs: Vec<Operand>,
    /// Type of its one output.
    pub output: TensorType,
}

/// Source of a step's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operand {
    /// The parameter of the task with this index.
    Parameter(usize),
    /// The output of an earlier step, by the index of the step.
    Step(usize),
}

/// A task of one model with the scopes where it occurs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskUse {
    /// The task.
    pub task: Task,
    /// Scopes of the task's anchors, one per occurrence, in graph order; the length is the number of occurrences.
    pub places: Vec<String>,
    /// The library that computes the task instead of the compiler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partner: Option<String>,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::infer::infer_type;
    use crate::operators::{BiasAdd, Conv, Unary, UnaryOp};

    pub(crate) fn conv_bias_relu() -> Task {
        let conv = Op::Conv(Conv { strides: vec![2, 2], pads: vec![3; 4], dilations: vec![1, 1], groups: 1 });
        let mut task = single(conv, &["f32[1,3,224,224]", "f32[64,3,7,7]"]);
        let output = task.steps[0].output.clone();
        task.parameters[1].is_constant = true;
        task.parameters.push(Parameter { ty: TensorType::f32(&[64]), is_constant: true });
        task.steps.push(Step {
            op: Op::BiasAdd(BiasAdd { axis: 1 }),
            inputs: vec![Operand::Step(0), Operand::Parameter(2)],
            output: output.clone(),
        });
        let relu = Op::Unary(Unary { function: UnaryOp::Relu });
        task.steps.push(Step { op: relu, inputs: vec![Operand::Step(1)], output });
        task
    }

    pub(crate) fn single(op: Op, types: &[&str]) -> Task {
        let types: Vec<TensorType> = types.iter().map(|ty| ty.parse().expect("a type")).collect();
        let output = infer_type(&op, &types.iter().collect::<Vec<_>>()).expect("types that fit");
        let inputs = (0..types.len()).map(Operand::Parameter).collect();
        let parameters = types.into_iter().map(|ty| Parameter { ty, is_constant: false }).collect();
        Task { parameters, steps: vec![Step { op, inputs, output }] }
    }
}
