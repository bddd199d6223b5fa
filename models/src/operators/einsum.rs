//! Sums of products in Einstein's notation.

use super::prelude::*;
use crate::einsum::Equation;
use crate::error::Error;

/// Sums products of one to eight operands in Einstein notation, such as `bhqd,bhkd->bhqk`. Letters absent from the
/// result are summed; `...` are leading broadcast dimensions. Without `->` the result consists of the letters that
/// occur exactly once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Einsum {
    pub equation: String,
}

impl Operator for Einsum {
    fn facts(&self) -> Facts {
        Facts::new("einsum", Class::Contraction, 1..=8).with_numbers_from(0)
    }

    fn infer_output(&self, inputs: &[&TensorType]) -> Rule<TensorType> {
        for input in inputs {
            same_dtype(inputs[0], input)?;
        }
        check_numeric(inputs[0])?;
        let equation = Equation::read_equation(&self.equation, inputs)?;
        let shape = equation.output.iter().map(|&letter| equation.extents[letter].clone()).collect();
        Ok(TensorType { dtype: accumulator_type(inputs[0].dtype), shape })
    }

    /// Counts multiply-adds for products of several operands, and additions for the sum of one operand.
    fn count_arithmetic(&self, inputs: &[&TensorType], _output: &TensorType) -> Result<Work> {
        let Ok(equation) = Equation::read_equation(&self.equation, inputs) else {
            unreachable!("the shape rule has read it")
        };
        if inputs.len() == 1 {
            return Ok(if equation.summed.is_empty() { Work::default() } else { flops_work(elements(inputs[0])?) });
        }
        let all = TensorType { dtype: inputs[0].dtype, shape: equation.extents };
        let extents = all.extents().ok_or_else(|| Error::Symbolic { ty: all.to_string(), what: "work" })?;
        let terms = saturating_product(&extents.iter().map(|extent| extent.unsigned_abs()).collect::<Vec<_>>());
        Ok(contraction_work(terms.saturating_mul(inputs.len() as u64 - 1)))
    }

    fn summed_terms(&self, inputs: &[&TensorType]) -> i64 {
        Equation::read_equation(&self.equation, inputs).map_or(1, |equation| {
            equation.summed.iter().fold(1, |product: i64, &letter| match equation.extents[letter] {
                Dim::Known(extent) => product.saturating_mul(extent),
                Dim::Symbol(_) => product,
            })
        })
    }

    fn append_attributes(&self, line: &mut String) {
        append_flag(line, &self.equation, true);
    }
}
