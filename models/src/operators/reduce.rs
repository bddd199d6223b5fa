//! Reduction of whole dimensions.

use super::prelude::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReduceOp {
    Sum,
    Mean,
    Max,
    Min,
    Prod,
    /// `sum |x|`
    L1,
    /// `sqrt(sum x²)`
    L2,
    /// `log(sum x)`
    LogSum,
    /// `log(sum exp(x))`, computed without overflow
    LogSumExp,
    /// `sum x²`
    SumSquare,
}

impl ReduceOp {
    pub fn name(self) -> &'static str {
        match self {
            ReduceOp::Sum => "reduce_sum",
            ReduceOp::Mean => "reduce_mean",
            ReduceOp::Max => "reduce_max",
            ReduceOp::Min => "reduce_min",
            ReduceOp::Prod => "reduce_prod",
            ReduceOp::L1 => "reduce_l1",
            ReduceOp::L2 => "reduce_l2",
            ReduceOp::LogSum => "reduce_log_sum",
            ReduceOp::LogSumExp => "reduce_log_sum_exp",
            ReduceOp::SumSquare => "reduce_sum_square",
        }
    }
}

/// Reduces the dimensions `axes`, which are in ascending order. With `keep`, reduced dimensions remain with extent 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reduce {
    pub function: ReduceOp,
    pub axes: Vec<i64>,
    pub keep: bool,
}

impl Operator for Reduce {
    fn facts(&self) -> Facts {
        Facts::new(self.function.name(), Class::Reduction, 1..=1)
    }

    fn infer_output(&self, inputs: &[&TensorType]) -> Rule<TensorType> {
        let x = inputs[0];
        match self.function {
            ReduceOp::Sum | ReduceOp::Max | ReduceOp::Min | ReduceOp::Prod | ReduceOp::L1 | ReduceOp::SumSquare => {
                check_numeric(x)?;
            }
            ReduceOp::Mean | ReduceOp::L2 | ReduceOp::LogSum | ReduceOp::LogSumExp => {
                floating(x)?;
            }
        }
        remove_axes(x, &ascending_axes(x, &self.axes)?, self.keep)
    }

    fn count_arithmetic(&self, inputs: &[&TensorType], output: &TensorType) -> Result<Work> {
        let (x, out) = (elements(inputs[0])?, elements(output)?);
        Ok(match self.function {
            ReduceOp::Sum | ReduceOp::Max | ReduceOp::Min | ReduceOp::Prod => flops_work(x),
            ReduceOp::Mean => flops_work(x.saturating_add(out)),
            ReduceOp::L1 | ReduceOp::L2 | ReduceOp::SumSquare => flops_work(x.saturating_mul(2)),
            ReduceOp::LogSum => Work { exps: out, ..flops_work(x.saturating_add(out)) },
            // Maximum, subtraction, exponential, sum.
            ReduceOp::LogSumExp => Work { exps: x.saturating_add(out), ..flops_work(x.saturating_mul(4)) },
        })
    }

    fn summed_terms(&self, inputs: &[&TensorType]) -> i64 {
        along_all(inputs, &self.axes)
    }

    fn count_axes_from_front(&mut self, rank: usize) {
        self.axes.iter_mut().for_each(|axis| count_from_front(axis, rank));
        self.axes.sort_unstable();
    }

    /// Also requires numbers for the reduced dimensions of a mean, which divides by their product.
    fn has_needed_numbers(&self, inputs: &[&TensorType]) -> bool {
        self.function != ReduceOp::Mean || self.axes.iter().all(|&axis| is_number(inputs[0], axis_index(axis)))
    }

    fn append_attributes(&self, line: &mut String) {
        append_attribute(line, "axes", join_items(&self.axes, "x"), true);
        append_flag(line, "keep", self.keep);
    }
}
