//! Product with a matrix of weights.

use super::prelude::*;

/// `x[…, k]`, `w[n, k]` (the usual storage) gives `[…, n]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Dense {}

impl Operator for Dense {
    fn facts(&self) -> Facts {
        Facts::new("dense", Class::Contraction, 2..=2).with_weights(1..2)
    }

    fn infer_output(&self, inputs: &[&TensorType]) -> Rule<TensorType> {
        let (x, w) = (inputs[0], inputs[1]);
        same_dtype(x, w)?;
        check_numeric(x)?;
        let [n, k] = w.shape.as_slice() else {
            return Err(format!("`w` must have 2 dimensions (outputs, inputs), has {}", w.rank()));
        };
        let Some((last, leading)) = x.shape.split_last() else {
            return Err("`x` must have at least 1 dimension".to_owned());
        };
        if last != k {
            return Err(format!("the last dimension of `x` is {last}, `w` expects {k}"));
        }
        let mut shape = leading.to_vec();
        shape.push(n.clone());
        Ok(TensorType { dtype: accumulator_type(x.dtype), shape })
    }

    fn count_arithmetic(&self, inputs: &[&TensorType], output: &TensorType) -> Result<Work> {
        Ok(contraction_work(elements(output)?.saturating_mul(axis_extent(inputs[1], 1)?)))
    }

    fn summed_terms(&self, inputs: &[&TensorType]) -> i64 {
        known_product(inputs, 1, 1..2)
    }

    fn has_needed_numbers(&self, inputs: &[&TensorType]) -> bool {
        numbers_from(inputs[0], inputs[0].rank().saturating_sub(1)) && numbers_from(inputs[1], 0)
    }
}
