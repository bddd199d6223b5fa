//! Limits elements to a range.

use super::prelude::*;

/// `min(max(x, low), high)`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Clip {
    pub low: f64,
    pub high: f64,
}

impl Operator for Clip {
    fn facts(&self) -> Facts {
        Facts::new("clip", Class::Pointwise, 1..=1).with_flops(2)
    }

    fn infer_output(&self, inputs: &[&TensorType]) -> Rule<TensorType> {
        let Clip { low, high } = self;
        if !(low.is_finite() && high.is_finite() && low <= high) {
            return Err(format!(
                "bounds {low} and {high} must be finite and in order; for an open side give the largest number \
                 of the element type"
            ));
        }
        numeric(inputs[0])
    }

    fn epilogue_label(&self) -> &'static str {
        if self.is_relu6() { "relu6" } else { "clip" }
    }

    fn label_suffix(&self) -> String {
        if self.is_relu6() { String::new() } else { format!("({},{})", self.low, self.high) }
    }
}

impl Clip {
    fn is_relu6(&self) -> bool {
        matches!(self, Clip { low: 0.0, high: 6.0 })
    }
}
