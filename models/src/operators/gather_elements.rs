//! Look-up of elements along an axis.

use super::lookup::{bytes_found, looked_up_axis};
use super::prelude::*;

/// Inputs: `x, indices` of equal rank. Output `[i, j, …]` is the element of `x` whose coordinate along `axis` is
/// `indices[i, j, …]`; the other coordinates are unchanged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GatherElements {
    pub axis: i64,
}

impl Operator for GatherElements {
    fn facts(&self) -> Facts {
        Facts::new("gather_elements", Class::Movement, 2..=2)
    }

    fn infer_output(&self, inputs: &[&TensorType]) -> Rule<TensorType> {
        let (x, at) = (inputs[0], inputs[1]);
        let axis = looked_up_axis(x, at, self.axis)?;
        if at.rank() != x.rank() {
            return Err(format!("the indices have {} dimensions, `x` has {}", at.rank(), x.rank()));
        }
        for (place, (old, new)) in x.shape.iter().zip(&at.shape).enumerate() {
            let fits = match (old, new) {
                (Dim::Known(old), Dim::Known(new)) => new <= old,
                (old, new) => old == new,
            };
            if place != axis && !fits {
                return Err(format!("the indices of type {at} are larger than {x} in dimension {place}"));
            }
        }
        Ok(TensorType { dtype: x.dtype, shape: at.shape.clone() })
    }

    fn bytes_read(&self, input: usize, ty: &TensorType, output: &TensorType) -> Result<u64> {
        bytes_found(input, ty, output)
    }

    fn count_axes_from_front(&mut self, rank: usize) {
        count_from_front(&mut self.axis, rank);
    }

    fn append_attributes(&self, line: &mut String) {
        append_attribute(line, "axis", self.axis, true);
    }
}
