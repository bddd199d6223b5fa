//! Pooling over all spatial dimensions.

use super::pool::PoolMode;
use super::prelude::*;

/// Pools over all spatial dimensions, which remain with extent 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GlobalPool {
    pub mode: PoolMode,
}

impl Operator for GlobalPool {
    fn facts(&self) -> Facts {
        Facts::new("global_pool", Class::Pool, 1..=1).with_numbers_from(2)
    }

    fn infer_output(&self, inputs: &[&TensorType]) -> Rule<TensorType> {
        let x = inputs[0];
        self.mode.check_dtype(x)?;
        if x.rank() < 3 {
            return Err(format!("`x` has {} dimensions; batch, channel and at least one more are needed", x.rank()));
        }
        let mut shape = x.shape[..2].to_vec();
        shape.resize(x.rank(), Dim::Known(1));
        Ok(TensorType { dtype: x.dtype, shape })
    }

    fn count_arithmetic(&self, inputs: &[&TensorType], output: &TensorType) -> Result<Work> {
        Ok(self.mode.reduce_work(elements(inputs[0])?, elements(output)?))
    }

    fn summed_terms(&self, inputs: &[&TensorType]) -> i64 {
        if self.mode == PoolMode::Max { 1 } else { known_product(inputs, 0, 2..usize::MAX) }
    }

    fn concrete_kind(&self, _inputs: &[&TensorType]) -> String {
        format!("global_{}_pool", self.mode.name())
    }
}
