//! Rotary position embedding.

use super::prelude::*;

/// Inputs: `x[…, s, d], cos[…, s, r / 2], sin[…, s, r / 2]`, broadcast to the leading dimensions of `x`. Rotates pairs
/// of the first `rotary` elements: adjacent elements if `interleaved`, otherwise elements `rotary / 2` apart.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rope {
    pub rotary: i64,
    pub interleaved: bool,
}

impl Operator for Rope {
    fn facts(&self) -> Facts {
        Facts::new("rope", Class::Movement, 3..=3).with_weights(1..3)
    }

    fn infer_output(&self, inputs: &[&TensorType]) -> Rule<TensorType> {
        let (x, rotary) = (inputs[0], self.rotary);
        floating(x)?;
        let Some((last, leading)) = x.shape.split_last() else {
            return Err("`x` must have at least 1 dimension".to_owned());
        };
        let extent = known_extent(last, "the last extent of `x`")?;
        if rotary < 2 || rotary % 2 != 0 || rotary > extent {
            return Err(format!("the number of rotated elements, {rotary}, must be even and at most {extent}"));
        }
        let full = [leading, &[Dim::Known(rotary / 2)]].concat();
        for angle in &inputs[1..] {
            same_dtype(x, angle)?;
            let has_all = angle.shape.last() == full.last();
            if !has_all || broadcast_shapes(&angle.shape, &full)? != full {
                let full = TensorType { dtype: x.dtype, shape: full };
                return Err(format!("{angle} must have the last extent {} and broadcast to {full}", rotary / 2));
            }
        }
        Ok(x.clone())
    }

    fn count_arithmetic(&self, inputs: &[&TensorType], output: &TensorType) -> Result<Work> {
        let width = axis_extent(inputs[0], inputs[0].rank() - 1)?.max(1);
        Ok(flops_work((elements(output)? / width).saturating_mul(self.rotary.unsigned_abs()).saturating_mul(3)))
    }

    fn summed_terms(&self, _inputs: &[&TensorType]) -> i64 {
        2
    }

    fn has_needed_numbers(&self, inputs: &[&TensorType]) -> bool {
        numbers_from(inputs[0], inputs[0].rank().saturating_sub(1))
    }

    fn append_attributes(&self, line: &mut String) {
        append_attribute(line, "rotary", self.rotary, true);
        append_flag(line, "interleaved", self.interleaved);
    }
}
