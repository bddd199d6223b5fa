//! Two dimensions out of many.

use super::prelude::*;

/// `[d0 … d(axis-1)]` and the rest become two dimensions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Flatten {
    pub axis: i64,
}

impl Operator for Flatten {
    fn facts(&self) -> Facts {
        Facts::new("flatten", Class::View, 1..=1).with_numbers_from(0).with_identity()
    }

    fn output(&self, inputs: &[&TensorType]) -> Rule<TensorType> {
        let (x, axis) = (inputs[0], self.axis);
        let Some(axis) = usize::try_from(axis).ok().filter(|&axis| axis <= x.rank()) else {
            return Err(format!("axis {axis} is above the rank {}", x.rank()));
        };
        let (outer, inner) = x.shape.split_at(axis);
        Ok(TensorType { dtype: x.dtype, shape: vec![joined(outer)?, joined(inner)?] })
    }

    fn count_axes_from_front(&mut self, rank: usize) {
        front(&mut self.axis, rank);
    }

    fn describe(&self, line: &mut String) {
        attribute(line, "axis", self.axis, true);
    }
}

/// The extent of several dimensions seen as one. A lone symbol among ones stays what it is.
fn joined(dims: &[Dim]) -> Rule<Dim> {
    let proper: Vec<&Dim> = dims.iter().filter(|dim| **dim != Dim::Known(1)).collect();
    match proper.as_slice() {
        [one] => Ok((*one).clone()),
        many => {
            let extents = many.iter().map(|dim| known(dim, "a joined extent")).collect::<Rule<Vec<i64>>>()?;
            Ok(Dim::Known(element_count(extents.into_iter())?))
        }
    }
}
