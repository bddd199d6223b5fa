//! The input of all operator families: one operator with its tensors.

use crate::inputs;
use crate::refusal::Result;
use models::{Op, Step, TensorType};
use tch::{Kind, Tensor};

pub struct Call<'a> {
    pub op: &'a Op,
    pub inputs: &'a [&'a Tensor],
    /// Bias that is fused into the call of a contraction.
    pub bias: Option<&'a Tensor>,
    /// Result of `contraction::constants` for the anchor.
    pub constants: &'a [Tensor],
    pub output: &'a TensorType,
    pub extents: Vec<i64>,
    pub kind: Kind,
}

impl<'a> Call<'a> {
    /// Creates the call of a step with the operands `inputs`.
    pub fn of(step: &'a Step, inputs: &'a [&'a Tensor]) -> Result<Call<'a>> {
        let output = &step.output;
        let (extents, kind) = (inputs::extents(output)?, inputs::kind(output.dtype)?);
        Ok(Call { op: &step.op, inputs, bias: None, constants: &[], output, extents, kind })
    }

    pub fn x(&self) -> &'a Tensor {
        self.inputs[0]
    }
}
