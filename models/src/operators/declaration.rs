//! The trait with which every operator declares its properties, with defaults for the common cases.

use super::counts::{Work, bytes_of, pointwise};
use super::window::ConvWindow;
use crate::error::Result;
use crate::shapes::{Rule, numbers_from};
use crate::types::TensorType;
use std::ops::{Range, RangeInclusive};

/// Classes of operators, by what passes may assume about them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Sums products over a dimension.
    Contraction,
    /// Scales each element by statistics of many elements, such as mean and variance.
    Normalisation,
    /// Reduces sliding windows of a tensor.
    Pool,
    /// Reduces whole dimensions, or all elements before each element (a scan).
    Reduction,
    /// Computes one element from one element of each input.
    Pointwise,
    /// Copies elements to other positions, or interpolates neighbours.
    Movement,
    /// Changes only the shape, not the elements or their order, so the cost is zero.
    View,
}

/// Shape-independent facts of an operator.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Name in text formats and messages.
    pub name: &'static str,
    pub class: Class,
    /// Allowed numbers of inputs.
    pub arity: RangeInclusive<usize>,
    /// Positions of those inputs that usually are weights, which are constants of the model.
    pub weights: Range<usize>,
    /// Operations per output element, for operators that do not override `count_arithmetic`.
    pub flops: u64,
    /// Code generation needs a number, not a symbol, for this dimension of each input and all later ones.
    pub numbers_from: usize,
    /// Whether the operator returns its first input unchanged if input and output types are equal.
    pub is_identity: bool,
    /// Number of functions of a fused group that a pointwise operator counts as, because its code reads the operand
    /// several times.
    pub repeats: usize,
}

impl Facts {
    /// Creates facts of an operator without weights and arithmetic, which code generation supports at symbolic sizes.
    pub(super) fn new(name: &'static str, class: Class, arity: RangeInclusive<usize>) -> Facts {
        Facts { name, class, arity, weights: 0..0, flops: 0, numbers_from: usize::MAX, is_identity: false, repeats: 0 }
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

    pub(super) fn with_repeats(self, repeats: usize) -> Facts {
        Facts { repeats, ..self }
    }

    pub(super) fn with_identity(self) -> Facts {
        Facts { is_identity: true, ..self }
    }
}

pub trait Operator {
    fn facts(&self) -> Facts;

    /// Returns the type of the output or an error; the inputs and their extents are checked beforehand.
    fn infer_output(&self, inputs: &[&TensorType]) -> Rule<TensorType>;

    /// Counts operations, multiply-adds and transcendental functions; by default `Facts::flops` per output element.
    fn count_arithmetic(&self, _inputs: &[&TensorType], output: &TensorType) -> Result<Work> {
        pointwise(output, self.facts().flops)
    }

    /// Returns the bytes read of one input; by default all of them.
    fn bytes_read(&self, _input: usize, ty: &TensorType, _output: &TensorType) -> Result<u64> {
        bytes_of(ty)
    }

    /// Returns the number of terms that each output element sums, which bounds the rounding error.
    fn summed_terms(&self, _inputs: &[&TensorType]) -> i64 {
        1
    }

    /// Replaces negative axes by non-negative ones, the only stored form. `rank` is that of the first input.
    fn count_axes_from_front(&mut self, _rank: usize) {}

    /// Returns the sliding window, or None if the operator has none or computes it from input and output extents.
    fn window(&self) -> Option<ConvWindow<'_>> {
        None
    }

    /// Returns whether the output equals the first input, so that a pass may drop the operator.
    fn changes_nothing(&self, inputs: &[&TensorType], output: &TensorType) -> bool {
        self.facts().is_identity && inputs[0] == output
    }

    /// Returns whether all dimensions that code generation needs are numbers, not symbols.
    fn has_needed_numbers(&self, inputs: &[&TensorType]) -> bool {
        inputs.iter().all(|input| numbers_from(input, self.facts().numbers_from))
    }

    /// Returns the operator's kind for these input types, such as `depthwise_conv2d` for one group per channel.
    fn concrete_kind(&self, _inputs: &[&TensorType]) -> String {
        self.name().to_owned()
    }

    /// Returns the operator's short name in the list of fused operators of a task.
    fn epilogue_label(&self) -> &'static str {
        self.name()
    }

    /// Returns the attributes that follow the epilogue label, such as `(0.1)`.
    fn label_suffix(&self) -> String {
        String::new()
    }

    fn append_attributes(&self, line: &mut String) {
        let numbers = self.label_suffix();
        if !numbers.is_empty() {
            line.push(' ');
            line.push_str(&numbers);
        }
    }

    fn name(&self) -> &'static str {
        self.facts().name
    }

    fn class(&self) -> Class {
        self.facts().class
    }

    fn arity(&self) -> RangeInclusive<usize> {
        self.facts().arity
    }

    fn repeats(&self) -> usize {
        self.facts().repeats
    }

    fn is_weight(&self, input: usize) -> bool {
        self.facts().weights.contains(&input)
    }
}
