//! A task: an operator, its fused epilogue, shapes and element types; the unit that is compiled.
//!
//! A task is a straight line of steps. The first is the anchor; each later one is elementwise or broadcast over
//! the anchor's output and uses the step before it. Names and places are not part of a task, so equal work in two
//! models is one task with one hash.

use crate::operator::Op;
use crate::types::TensorType;
use serde::{Deserialize, Serialize};

/// The unit that is compiled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// Tensors given from outside, in argument order: the anchor's, then the epilogue's.
    pub parameters: Vec<Parameter>,
    /// The anchor, then the epilogue.
    pub steps: Vec<Step>,
}

/// A tensor given from outside.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Parameter {
    /// Element type and shape.
    pub ty: TensorType,
    /// Whether it is a constant of the model (weight, bias) rather than an activation.
    pub is_constant: bool,
}

/// One operator of a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// The operator.
    pub op: Op,
    /// Its inputs.
    pub inputs: Vec<Operand>,
    /// Type of its one output.
    pub output: TensorType,
}

/// Where a step's input comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operand {
    /// The parameter of that index.
    Parameter(usize),
    /// The output of that earlier step.
    Step(usize),
}

/// A task of one model with the places it stands in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskUse {
    /// The task.
    pub task: Task,
    /// Scopes of its anchors, one per occurrence, in graph order; the length is the count.
    pub places: Vec<String>,
}
