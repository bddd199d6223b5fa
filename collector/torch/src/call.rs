//! One operator as the families of operators see it.

use crate::inputs;
use crate::refusal::Result;
use models::{Op, Step, TensorType};
use tch::{Kind, Tensor};

/// One operator on tensors.
pub struct Call<'a> {
    pub op: &'a Op,
    pub inputs: &'a [&'a Tensor],
    /// A bias that goes into the call of a contraction.
    pub bias: Option<&'a Tensor>,
    /// What `contraction::constants` made for the anchor.
    pub constants: &'a [Tensor],
    pub output: &'a TensorType,
    pub extents: Vec<i64>,
    pub kind: Kind,
}

impl<'a> Call<'a> {
    /// A step whose operands are `inputs`.
    pub fn of(step: &'a Step, inputs: &'a [&'a Tensor]) -> Result<Call<'a>> {
        let output = &step.output;
        let (extents, kind) = (inputs::extents(output)?, inputs::kind(output.dtype)?);
        Ok(Call { op: &step.op, inputs, bias: None, constants: &[], output, extents, kind })
    }

    /// The first input.
    pub fn x(&self) -> &'a Tensor {
        self.inputs[0]
    }
}
