//! Pooling by sliding windows.

use super::prelude::*;
use super::window::ConvWindow;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PoolMode {
    Max,
    Average,
    /// `(sum |x|^order)^(1/order)`; the order is at least 1, and padding counts as zero.
    Lp {
        order: i64,
    },
}

impl PoolMode {
    pub(crate) fn name(self) -> &'static str {
        match self {
            PoolMode::Max => "max",
            PoolMode::Average => "average",
            PoolMode::Lp { .. } => "lp",
        }
    }

    pub(super) fn check_dtype(self, x: &TensorType) -> Rule<()> {
        const MAX_ORDER: i64 = 16;
        check_numeric(x)?;
        match self {
            PoolMode::Average if !x.dtype.is_float() => {
                Err(format!("an average needs a floating-point type, not {}", x.dtype))
            }
            PoolMode::Lp { .. } if !x.dtype.is_float() => {
                Err(format!("a norm needs a floating-point type, not {}", x.dtype))
            }
            PoolMode::Lp { order } if !(1..=MAX_ORDER).contains(&order) => {
                Err(format!("the order {order} must be 1 to {MAX_ORDER}"))
            }
            PoolMode::Average | PoolMode::Max | PoolMode::Lp { .. } => Ok(()),
        }
    }

    pub(super) fn reduce_work(self, reads: u64, results: u64) -> Work {
        flops_work(match self {
            PoolMode::Max => reads.saturating_sub(results),
            PoolMode::Average => reads,
            PoolMode::Lp { .. } => reads.saturating_mul(2).saturating_add(results),
        })
    }
}

/// Sliding-window pooling. An average divides by the number of window elements inside the data or, with `count_pad`,
/// inside data and pads. Elements beyond the pads, which `ceil` adds, do not count. Padding is never the maximum.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pool {
    pub mode: PoolMode,
    pub kernel: Vec<i64>,
    pub strides: Vec<i64>,
    pub pads: Vec<i64>,
    pub dilations: Vec<i64>,
    pub ceil: bool,
    pub count_pad: bool,
}

impl Operator for Pool {
    fn facts(&self) -> Facts {
        Facts::new("pool", Class::Pool, 1..=1).with_numbers_from(2)
    }

    fn infer_output(&self, inputs: &[&TensorType]) -> Rule<TensorType> {
        let x = inputs[0];
        self.mode.check_dtype(x)?;
        let window = self.own_window();
        let rank = window.spatial_rank(x)?;
        if self.kernel.len() != rank {
            return Err(format!("the kernel has {} extents, the strides {rank}", self.kernel.len()));
        }
        let mut shape = x.shape[..2].to_vec();
        for (axis, &extent) in self.kernel.iter().enumerate() {
            for side in [axis, axis + rank] {
                let pad = self.pads[side];
                // A window that covers only padding has no maximum.
                if pad >= extent {
                    return Err(format!("pad {pad} must be smaller than the kernel extent {extent}"));
                }
            }
            shape.push(Dim::Known(window.window_count(x, axis, extent, self.ceil)?));
        }
        Ok(TensorType { dtype: x.dtype, shape })
    }

    fn count_arithmetic(&self, _inputs: &[&TensorType], output: &TensorType) -> Result<Work> {
        let window = self.kernel.iter().fold(1u64, |product, &k| product.saturating_mul(k.unsigned_abs()));
        pointwise(output, self.mode.reduce_work(window, 1).flops)
    }

    fn summed_terms(&self, _inputs: &[&TensorType]) -> i64 {
        match self.mode {
            PoolMode::Max => 1,
            PoolMode::Average | PoolMode::Lp { .. } => {
                self.kernel.iter().fold(1, |product, &extent| product.saturating_mul(extent))
            }
        }
    }

    fn window(&self) -> Option<ConvWindow<'_>> {
        Some(self.own_window())
    }

    fn concrete_kind(&self, _inputs: &[&TensorType]) -> String {
        format!("{}_pool", self.mode.name())
    }

    fn append_attributes(&self, line: &mut String) {
        append_attribute(line, "k", format_list(&self.kernel), true);
        self.own_window().describe_window(line);
        append_flag(line, "ceil", self.ceil);
        append_flag(line, "count_pad", self.count_pad);
    }
}

impl Pool {
    fn own_window(&self) -> ConvWindow<'_> {
        let Pool { kernel, strides, pads, dilations, .. } = self;
        ConvWindow { kernel, strides, pads, dilations, groups: 1, is_transposed: false }
    }
}
