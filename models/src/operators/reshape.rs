//! Change of shape without a change of the elements.

use super::prelude::*;

/// Gives the elements a new shape. One extent may be -1 (inferred); 0 keeps the input's extent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reshape {
    pub shape: Vec<i64>,
}

impl Operator for Reshape {
    fn facts(&self) -> Facts {
        Facts::new("reshape", Class::View, 1..=1).with_numbers_from(0).with_identity()
    }

    fn infer_output(&self, inputs: &[&TensorType]) -> Rule<TensorType> {
        let (x, shape) = (inputs[0], &self.shape);
        let mut kept = vec![false; x.rank()];
        let mut deduced = None;
        let mut output = Vec::with_capacity(shape.len());
        for (index, &extent) in shape.iter().enumerate() {
            output.push(match extent {
                0 => {
                    let dim = x.shape.get(index);
                    let dim = dim.ok_or_else(|| {
                        format!("extent 0 copies dimension {index}, but `x` has {} dimensions", x.rank())
                    })?;
                    kept[index] = true;
                    dim.clone()
                }
                -1 if deduced.replace(index).is_some() => return Err("more than one extent is -1".to_owned()),
                -1 => Dim::Known(1),
                extent if extent > 0 => Dim::Known(extent),
                extent => return Err(format!("extent {extent} is neither positive, 0 nor -1")),
            });
        }
        // Kept dimensions are on both sides and cancel; the others must have equally many elements.
        let rest: Vec<&Dim> = x.shape.iter().zip(&kept).filter(|(_, kept)| !**kept).map(|(dim, _)| dim).collect();
        let stated_count = element_count(shape.iter().filter(|&&extent| extent > 0).copied())?;
        let symbols: Vec<&Dim> = rest.iter().copied().filter(|dim| matches!(dim, Dim::Symbol(_))).collect();
        let numbers = element_count(rest.iter().filter_map(|dim| known_extent(dim, "an extent").ok()))?;
        // A kept extent of 0 makes both element counts 0.
        let keeps_zero = x.shape.iter().zip(&kept).any(|(dim, kept)| *kept && *dim == Dim::Known(0));
        match (deduced, symbols.as_slice()) {
            (Some(index), [symbol]) if numbers == stated_count => output[index] = (*symbol).clone(),
            (Some(index), []) if stated_count != 0 && numbers % stated_count == 0 => {
                output[index] = Dim::Known(numbers / stated_count)
            }
            (None, []) if numbers == stated_count || keeps_zero => {}
            (_, []) => return Err(format!("{x} cannot be reshaped to {shape:?}: the element counts differ")),
            (_, symbols) => {
                return Err(format!(
                    "shape {shape:?} does not determine dimension {}; bind it to a number",
                    symbols[0]
                ));
            }
        }
        Ok(TensorType { dtype: x.dtype, shape: output })
    }

    fn append_attributes(&self, line: &mut String) {
        append_attribute(line, "shape", join_items(&self.shape, "x"), true);
    }
}
