//! Normalisation by mean and variance.

use super::prelude::*;

/// Computes `(x - mean) / (sqrt(variance) + epsilon)` over the given dimensions, in ascending order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeanVarianceNorm {
    pub axes: Vec<i64>,
    pub epsilon: f64,
}

impl Operator for MeanVarianceNorm {
    fn facts(&self) -> Facts {
        Facts::new("mean_variance_norm", Class::Normalisation, 1..=1).with_flops(6)
    }

    fn infer_output(&self, inputs: &[&TensorType]) -> Rule<TensorType> {
        finite_positive(self.epsilon, "epsilon")?;
        ascending_axes(inputs[0], &self.axes)?;
        floating(inputs[0])
    }

    fn summed_terms(&self, inputs: &[&TensorType]) -> i64 {
        along_all(inputs, &self.axes)
    }

    fn count_axes_from_front(&mut self, rank: usize) {
        self.axes.iter_mut().for_each(|axis| count_from_front(axis, rank));
        self.axes.sort_unstable();
    }

    fn has_needed_numbers(&self, inputs: &[&TensorType]) -> bool {
        self.axes.iter().all(|&axis| is_number(inputs[0], axis_index(axis)))
    }

    fn append_attributes(&self, line: &mut String) {
        append_attribute(line, "axes", join_items(&self.axes, "x"), true);
    }
}
