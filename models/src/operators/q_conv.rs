//! Convolution of quantised tensors.

use super::conv;
use super::prelude::*;
use super::quantised::{as_plain, describe_zeros};
use super::window::ConvWindow;

/// `Conv` of `(x - x_zero)` and `(w - w_zero)`: 8-bit operands, summed in `i32`; pads contain the zero point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QConv {
    pub strides: Vec<i64>,
    pub pads: Vec<i64>,
    pub dilations: Vec<i64>,
    pub groups: i64,
    pub x_zero: i64,
    pub w_zero: i64,
}

impl Operator for QConv {
    fn facts(&self) -> Facts {
        Facts::new("q_conv", Class::Contraction, 2..=2).with_weights(1..2)
    }

    fn infer_output(&self, inputs: &[&TensorType]) -> Rule<TensorType> {
        let [x, w] = as_plain([(inputs[0], self.x_zero), (inputs[1], self.w_zero)])?;
        conv::infer_conv(&x, &w, &self.own_window())
    }

    fn count_arithmetic(&self, inputs: &[&TensorType], output: &TensorType) -> Result<Work> {
        conv::conv_work(inputs, output)
    }

    fn summed_terms(&self, inputs: &[&TensorType]) -> i64 {
        known_product(inputs, 1, 1..usize::MAX)
    }

    fn window(&self) -> Option<ConvWindow<'_>> {
        Some(self.own_window())
    }

    fn has_needed_numbers(&self, inputs: &[&TensorType]) -> bool {
        numbers_from(inputs[0], 1) && numbers_from(inputs[1], 0)
    }

    fn concrete_kind(&self, inputs: &[&TensorType]) -> String {
        format!("q_{}", conv::conv_kind(self.strides.len(), self.groups, inputs))
    }

    fn append_attributes(&self, line: &mut String) {
        self.own_window().describe_window(line);
        append_attribute(line, "g", self.groups, self.groups != 1);
        describe_zeros(line, [self.x_zero, self.w_zero]);
    }
}

impl QConv {
    fn own_window(&self) -> ConvWindow<'_> {
        let QConv { strides, pads, dilations, groups, .. } = self;
        ConvWindow { kernel: &[], strides, pads, dilations, groups: *groups, is_transposed: false }
    }
}
