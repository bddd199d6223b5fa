//! Concatenation of tensors.

use super::prelude::*;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Concat {
    pub axis: i64,
}

impl Operator for Concat {
    fn facts(&self) -> Facts {
        Facts::new("concat", Class::Movement, 1..=4096)
    }

    fn infer_output(&self, inputs: &[&TensorType]) -> Rule<TensorType> {
        let first = inputs[0];
        let axis = axis_of(self.axis, first)?;
        let mut joined: i64 = 0;
        for input in inputs {
            same_dtype(first, input)?;
            let agree = input.rank() == first.rank()
                && (0..first.rank()).all(|index| index == axis || input.shape[index] == first.shape[index]);
            if !agree {
                return Err(format!("{input} and {first} differ outside axis {axis}"));
            }
            if inputs.len() > 1 {
                let extent = known_extent(&input.shape[axis], "the joined extent")?;
                joined = joined.checked_add(extent).ok_or("the joined extent exceeds 64 bits")?;
            }
        }
        let mut output = first.clone();
        if inputs.len() > 1 {
            output.shape[axis] = Dim::Known(joined);
        }
        Ok(output)
    }

    fn count_axes_from_front(&mut self, rank: usize) {
        count_from_front(&mut self.axis, rank);
    }

    fn changes_nothing(&self, inputs: &[&TensorType], _output: &TensorType) -> bool {
        inputs.len() == 1
    }

    fn has_needed_numbers(&self, inputs: &[&TensorType]) -> bool {
        inputs.iter().all(|ty| is_number(ty, axis_index(self.axis)))
    }

    fn append_attributes(&self, line: &mut String) {
        append_attribute(line, "axis", self.axis, true);
    }
}
