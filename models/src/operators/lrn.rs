//! Local response normalisation.

use super::prelude::*;

/// Computes `x / (bias + alpha / size · sum x²)^beta`, with the sum over `size` neighbouring channels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lrn {
    pub size: i64,
    pub alpha: f64,
    pub beta: f64,
    pub bias: f64,
}

impl Operator for Lrn {
    fn facts(&self) -> Facts {
        Facts::new("lrn", Class::Normalisation, 1..=1).with_numbers_from(1)
    }

    fn infer_output(&self, inputs: &[&TensorType]) -> Rule<TensorType> {
        let (x, size) = (inputs[0], self.size);
        if x.rank() < 2 {
            return Err(format!("`x` has {} dimensions; batch and channel are needed", x.rank()));
        }
        let channels = known_extent(&x.shape[1], "the channel count of `x`")?;
        if !(1..=channels.saturating_mul(2).max(1)).contains(&size) {
            return Err(format!("{size} neighbours must be at least 1 and at most twice the {channels} channels"));
        }
        let numbers = [("alpha", self.alpha), ("beta", self.beta), ("bias", self.bias)];
        if let Some((name, number)) = numbers.iter().find(|(_, number)| !number.is_finite()) {
            return Err(format!("{name} {number} must be finite"));
        }
        floating(x)
    }

    /// Counts operations per element: one square, the sum of the neighbours, scale, addition, power, division.
    fn count_arithmetic(&self, _inputs: &[&TensorType], output: &TensorType) -> Result<Work> {
        Ok(Work { exps: elements(output)?, ..pointwise(output, self.size.unsigned_abs().saturating_add(4))? })
    }

    fn summed_terms(&self, _inputs: &[&TensorType]) -> i64 {
        self.size
    }

    fn append_attributes(&self, line: &mut String) {
        append_attribute(line, "size", self.size, true);
    }
}
