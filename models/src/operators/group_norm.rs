//! Normalisation of groups of channels.

use super::prelude::*;

/// Inputs: `x[n, c, s…], scale[c], shift[c]`. Normalises over each group of channels and all spatial dimensions.
/// `groups == c` is instance normalisation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupNorm {
    pub groups: i64,
    pub epsilon: f64,
}

impl Operator for GroupNorm {
    fn facts(&self) -> Facts {
        Facts::new("group_norm", Class::Normalisation, 3..=3).with_weights(1..3).with_flops(8).with_numbers_from(1)
    }

    fn infer_output(&self, inputs: &[&TensorType]) -> Rule<TensorType> {
        let (x, groups) = (inputs[0], self.groups);
        finite_positive(self.epsilon, "epsilon")?;
        floating(x)?;
        let channels = x.shape.get(1).ok_or("`x` must have a batch and a channel dimension")?;
        let channels = known_extent(channels, "the channel count of `x`")?;
        if groups < 1 || channels % groups != 0 {
            return Err(format!("{groups} groups do not divide {channels} channels"));
        }
        check_vectors(x, 1, &inputs[1..])
    }

    fn summed_terms(&self, inputs: &[&TensorType]) -> i64 {
        known_product(inputs, 0, 1..usize::MAX) / self.groups.max(1)
    }

    fn concrete_kind(&self, inputs: &[&TensorType]) -> String {
        let is_single = inputs.first().is_some_and(|x| x.shape.get(1) == Some(&Dim::Known(self.groups)));
        if is_single { "instance_norm" } else { "group_norm" }.to_owned()
    }

    fn append_attributes(&self, line: &mut String) {
        append_attribute(line, "g", self.groups, true);
    }
}
