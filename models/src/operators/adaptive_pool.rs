//! Pooling to a requested output size.

use super::pool::PoolMode;
use super::prelude::*;
use super::window::MAX_ATTRIBUTE;

/// Pools to the given extents: output `i` of `n` reduces inputs `floor(i · old / n)` to `ceil((i + 1) · old / n)`,
/// exclusive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AdaptivePool {
    pub mode: PoolMode,
    pub extents: Vec<i64>,
}

impl Operator for AdaptivePool {
    fn facts(&self) -> Facts {
        Facts::new("adaptive_pool", Class::Pool, 1..=1).with_numbers_from(2)
    }

    fn infer_output(&self, inputs: &[&TensorType]) -> Rule<TensorType> {
        let (x, extents) = (inputs[0], &self.extents);
        self.mode.check_dtype(x)?;
        if !(1..=3).contains(&extents.len()) || x.rank() != extents.len() + 2 {
            return Err(format!("{} new extents do not fit {x}, whose first two dimensions are kept", extents.len()));
        }
        let mut output = x.clone();
        for (dim, &extent) in output.shape[2..].iter_mut().zip(extents) {
            let old = known_extent(dim, "a spatial extent of `x`")?;
            if !(1..=MAX_ATTRIBUTE).contains(&extent) || !(1..=MAX_ATTRIBUTE).contains(&old) {
                return Err(format!(
                    "cannot pool a dimension from {old} to {extent} elements; both must be 1 to {MAX_ATTRIBUTE}"
                ));
            }
            *dim = Dim::Known(extent);
        }
        Ok(output)
    }

    /// Counts operations over all windows; input elements where neighbouring windows overlap count twice.
    fn count_arithmetic(&self, inputs: &[&TensorType], output: &TensorType) -> Result<Work> {
        let x = inputs[0];
        let mut reads = axis_extent(x, 0)?.saturating_mul(axis_extent(x, 1)?);
        for axis in 2..x.rank() {
            let (old, new) = (axis_extent(x, axis)?, axis_extent(output, axis)?);
            let (mut divisor, mut rest) = (old, new);
            while rest != 0 {
                (divisor, rest) = (rest, divisor % rest);
            }
            reads = reads.saturating_mul(old + new - divisor);
        }
        Ok(self.mode.reduce_work(reads, elements(output)?))
    }

    fn summed_terms(&self, inputs: &[&TensorType]) -> i64 {
        known_product(inputs, 0, 2..usize::MAX)
    }

    fn concrete_kind(&self, _inputs: &[&TensorType]) -> String {
        format!("adaptive_{}_pool", self.mode.name())
    }

    fn append_attributes(&self, line: &mut String) {
        append_attribute(line, "to", join_items(&self.extents, "x"), true);
    }
}
