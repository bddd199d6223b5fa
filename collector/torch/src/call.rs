//! The input of all operator families: one operator with its tensors.

use crate::inputs;
use crate::refusal::Result;
use models::{Op, Step, TensorType};
use tch::{Kind, Tensor};

pub struct Call<'a> {
    pub op: &'a Op,
    pub inputs: &'a [&'a Tensor],
    pub bias: Option<&'a Tensor>,
    /// Additional tensors of the anchor, see `operators::extra_tensors`.
    pub constants: &'a [Tensor],
    pub output: &'a TensorType,
    pub extents: Vec<i64>,
    pub kind: Kind,
}

impl<'a> Call<'a> {
    pub fn from_step(step: &'a Step, inputs: &'a [&'a Tensor]) -> Result<Call<'a>> {
        let output = &step.output;
        let (extents, kind) = (inputs::fixed_extents(output)?, inputs::torch_kind(output.dtype)?);
        Ok(Call { op: &step.op, inputs, bias: None, constants: &[], output, extents, kind })
    }

    pub fn first_input(&self) -> &'a Tensor {
        self.inputs[0]
    }
}
