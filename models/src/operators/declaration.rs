//! What every operator declares of itself, with defaults for what most of them share.

use super::counts::{Work, bytes_of, pointwise};
use super::window::ConvWindow;
use crate::error::Result;
use crate::shapes::{Rule, numbers_from};
use crate::types::TensorType;
use std::ops::{Range, RangeInclusive};

/// What a pass may assume of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Sums products over a dimension.
    Contraction,
    /// Looks at many elements to scale each.
    Normalisation,
    /// Reduces windows.
    Pool,
    /// Reduces whole dimensions, or all that stands before each element.
    Reduction,
    /// Makes one element of one element of each input.
    Pointwise,
    /// Moves elements, or blends neighbours.
    Movement,
    /// The same elements in the same order, under another shape: free.
    View,
}

/// Facts that hold for an operator whatever its shapes are.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Name in texts.
    pub name: &'static str,
    /// What passes may assume.
    pub class: Class,
    /// Possible numbers of inputs.
    pub arity: RangeInclusive<usize>,
    /// Positions of the inputs that usually are constants of the model.
    pub weights: Range<usize>,
    /// Operations per element of the output; an operator that counts otherwise has a rule of its own.
    pub flops: u64,
    /// Generated code needs numbers for the dimensions of each input from this one on; other dimensions may be symbols.
    pub numbers_from: usize,
    /// Whether the operator gives its first input as it is wherever it keeps the type.
    pub is_identity: bool,
}

impl Facts {
    /// Facts of an operator without weights, which computes nothing and compiles for all sizes at once.
    pub(super) fn new(name: &'static str, class: Class, arity: RangeInclusive<usize>) -> Facts {
        Facts { name, class, arity, weights: 0..0, flops: 0, numbers_from: usize::MAX, is_identity: false }
    }

    pub(super) fn with_weights(self, weights: Range<usize>) -> Facts {
        Facts { weights, ..self }
    }

    pub(super) fn with_flops(self, flops: u64) -> Facts {
        Facts { flops, ..self }
    }

    pub(super) fn with_numbers_from(self, numbers_from: usize) -> Facts {
        Facts { numbers_from, ..self }
    }

    pub(super) fn with_identity(self) -> Facts {
        Facts { is_identity: true, ..self }
    }
}

/// One kind of operator.
pub trait Operator {
    /// Name, class, inputs, weights, and what else is the same for all shapes.
    fn facts(&self) -> Facts;

    /// The type of the output, or what is wrong with the inputs or the attributes. `models::infer` has checked the number of
    /// inputs and their extents.
    fn output(&self, inputs: &[&TensorType]) -> Rule<TensorType>;

    /// Operations, multiply-adds and transcendental functions; by default as many operations per element as the facts say.
    fn arithmetic(&self, _inputs: &[&TensorType], output: &TensorType) -> Result<Work> {
        pointwise(output, self.facts().flops)
    }

    /// Bytes read of one input; the default is all of them.
    fn bytes_read(&self, _input: usize, ty: &TensorType, _output: &TensorType) -> Result<u64> {
        bytes_of(ty)
    }

    /// How many terms each element of the result sums, which bounds its rounding errors.
    fn terms(&self, _inputs: &[&TensorType]) -> i64 {
        1
    }

    /// Counts negative axes from the front, the one form that is stored. The rank is that of the first input.
    fn count_axes_from_front(&mut self, _rank: usize) {}

    /// Returns the sliding window, or None for an operator without one, or a pool whose window follows from extents.
    fn window(&self) -> Option<ConvWindow<'_>> {
        None
    }

    /// Whether the output is the first input, so that a pass may drop the operator.
    fn changes_nothing(&self, inputs: &[&TensorType], output: &TensorType) -> bool {
        self.facts().is_identity && inputs[0] == output
    }

    /// Whether all dimensions for which generated code needs numbers have them.
    fn has_needed_numbers(&self, inputs: &[&TensorType]) -> bool {
        inputs.iter().all(|input| numbers_from(input, self.facts().numbers_from))
    }

    /// What the operator is once its shapes are known, such as `depthwise_conv2d`.
    fn kind(&self, _inputs: &[&TensorType]) -> String {
        self.name().to_owned()
    }

    /// Short name in the epilogue of a task.
    fn label(&self) -> &'static str {
        self.name()
    }

    /// The attributes that follow the label, such as `(0.1)`.
    fn numbers(&self) -> String {
        String::new()
    }

    /// Appends the attributes to the line that describes a task.
    fn describe(&self, line: &mut String) {
        let numbers = self.numbers();
        if !numbers.is_empty() {
            line.push(' ');
            line.push_str(&numbers);
        }
    }

    /// Name in texts.
    fn name(&self) -> &'static str {
        self.facts().name
    }

    /// What passes may assume.
    fn class(&self) -> Class {
        self.facts().class
    }

    /// Possible numbers of inputs.
    fn arity(&self) -> RangeInclusive<usize> {
        self.facts().arity
    }

    /// Whether an input at this position usually is a constant of the model.
    fn is_weight(&self, input: usize) -> bool {
        self.facts().weights.contains(&input)
    }
}
