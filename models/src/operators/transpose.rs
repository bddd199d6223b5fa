//! Permutation of dimensions.

use super::prelude::*;

/// Dimension `i` of the result is dimension `permutation[i]` of the input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Transpose {
    pub permutation: Vec<i64>,
}

impl Operator for Transpose {
    fn facts(&self) -> Facts {
        Facts::new("transpose", Class::Movement, 1..=1)
    }

    fn infer_output(&self, inputs: &[&TensorType]) -> Rule<TensorType> {
        let (x, permutation) = (inputs[0], &self.permutation);
        let mut seen = vec![false; x.rank()];
        let refused = || format!("permutation {permutation:?} must name each of {} dimensions once", x.rank());
        if permutation.len() != x.rank() {
            return Err(refused());
        }
        let mut shape = Vec::with_capacity(x.rank());
        for &axis in permutation {
            let axis = axis_of(axis, x)?;
            if std::mem::replace(&mut seen[axis], true) {
                return Err(refused());
            }
            shape.push(x.shape[axis].clone());
        }
        Ok(TensorType { dtype: x.dtype, shape })
    }

    fn count_axes_from_front(&mut self, rank: usize) {
        self.permutation.iter_mut().for_each(|axis| count_from_front(axis, rank));
    }

    fn changes_nothing(&self, _inputs: &[&TensorType], _output: &TensorType) -> bool {
        self.permutation.iter().zip(0..).all(|(&axis, index)| axis == index)
    }

    fn append_attributes(&self, line: &mut String) {
        append_attribute(line, "order", join_items(&self.permutation, ","), true);
    }
}
