//! Flattening to two dimensions.

use super::prelude::*;

/// Joins the dimensions before `axis` into one, and those from `axis` on into another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Flatten {
    pub axis: i64,
}

impl Operator for Flatten {
    fn facts(&self) -> Facts {
        Facts::new("flatten", Class::View, 1..=1).with_numbers_from(0).with_identity()
    }

    fn infer_output(&self, inputs: &[&TensorType]) -> Rule<TensorType> {
        let (x, axis) = (inputs[0], self.axis);
        let Some(axis) = usize::try_from(axis).ok().filter(|&axis| axis <= x.rank()) else {
            return Err(format!("axis {axis} exceeds the rank {}", x.rank()));
        };
        let (outer, inner) = x.shape.split_at(axis);
        Ok(TensorType { dtype: x.dtype, shape: vec![joined_extent(outer)?, joined_extent(inner)?] })
    }

    fn count_axes_from_front(&mut self, rank: usize) {
        count_from_front(&mut self.axis, rank);
    }

    fn append_attributes(&self, line: &mut String) {
        append_attribute(line, "axis", self.axis, true);
    }
}

/// Multiplies extents. If one extent is a symbol, all others must be 1, and the product is that symbol.
fn joined_extent(dims: &[Dim]) -> Rule<Dim> {
    let proper: Vec<&Dim> = dims.iter().filter(|dim| **dim != Dim::Known(1)).collect();
    match proper.as_slice() {
        [one] => Ok((*one).clone()),
        many => {
            let extents = many.iter().map(|dim| known_extent(dim, "a joined extent")).collect::<Rule<Vec<i64>>>()?;
            Ok(Dim::Known(element_count(extents.into_iter())?))
        }
    }
}
