//! Product of matrices.

use super::prelude::*;

/// `a[…, m, k] · b[…, k, n]`, leading dimensions broadcast.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MatMul {
    pub transpose_a: bool,
    pub transpose_b: bool,
}

impl Operator for MatMul {
    fn facts(&self) -> Facts {
        Facts::new("mat_mul", Class::Contraction, 2..=2)
    }

    fn infer_output(&self, inputs: &[&TensorType]) -> Rule<TensorType> {
        let (a, b) = (inputs[0], inputs[1]);
        same_dtype(a, b)?;
        check_numeric(a)?;
        for (name, ty) in [("a", a), ("b", b)] {
            if ty.rank() < 2 {
                return Err(format!("`{name}` must have at least 2 dimensions, has {}; reshape it first", ty.rank()));
            }
        }
        let (a_batch, a_matrix) = a.shape.split_at(a.rank() - 2);
        let (b_batch, b_matrix) = b.shape.split_at(b.rank() - 2);
        let (m, k) = if self.transpose_a { (&a_matrix[1], &a_matrix[0]) } else { (&a_matrix[0], &a_matrix[1]) };
        let (k_of_b, n) = if self.transpose_b { (&b_matrix[1], &b_matrix[0]) } else { (&b_matrix[0], &b_matrix[1]) };
        if k != k_of_b {
            return Err(format!("the summed extent is {k} in `a`, but {k_of_b} in `b`"));
        }
        let mut shape = broadcast_shapes(a_batch, b_batch)?;
        shape.extend([m.clone(), n.clone()]);
        Ok(TensorType { dtype: accumulator_type(a.dtype), shape })
    }

    fn count_arithmetic(&self, inputs: &[&TensorType], output: &TensorType) -> Result<Work> {
        let summed = axis_extent(inputs[0], inputs[0].rank() - self.summed_from_end())?;
        Ok(contraction_work(elements(output)?.saturating_mul(summed)))
    }

    fn summed_terms(&self, inputs: &[&TensorType]) -> i64 {
        let summed = inputs.first().map_or(0, |a| a.rank().saturating_sub(self.summed_from_end()));
        known_product(inputs, 0, summed..summed + 1)
    }

    fn concrete_kind(&self, _inputs: &[&TensorType]) -> String {
        "matmul".to_owned()
    }

    fn append_attributes(&self, line: &mut String) {
        append_flag(line, "ta", self.transpose_a);
        append_flag(line, "tb", self.transpose_b);
    }
}

impl MatMul {
    fn summed_from_end(&self) -> usize {
        if self.transpose_a { 2 } else { 1 }
    }
}
