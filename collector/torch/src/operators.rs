//! Tasks as sequences of PyTorch's operators.
//!
//! An operator of ours is the call that does the same, or a short sequence of calls where there is no such one. A bias
//! after a contraction goes into its call, and what follows a contraction is computed in place where PyTorch can, as its
//! users do. Whatever a step gives has memory of its own: a view would move nothing and its time would say nothing.

use crate::call::Call;
use crate::refusal::{Refusal, Result};
use crate::{contraction, movement, normalise, pointwise, reduce, window};
use models::operators::{Attention, BiasAdd};
use models::{Op, Operand, Step, Task};
use tch::Tensor;

/// What PyTorch's forms of a task need beside its parameters; made once, outside of any timing.
pub fn constants(task: &Task) -> Result<Vec<Tensor>> {
    match &task.steps[0].op {
        Op::Attention(Attention { causal, window, .. }) => contraction::attention_mask(task, *causal, *window),
        _ => Ok(Vec::new()),
    }
}

/// Computes a task once.
pub fn run(task: &Task, parameters: &[Tensor], constants: &[Tensor]) -> Result<Tensor> {
    let bias = joining_bias(task).map(|index| &parameters[index]);
    let anchor = &task.steps[0];
    let operands: Vec<&Tensor> = operands(anchor, parameters, None);
    let mut value = apply(&Call { bias, constants, ..Call::of(anchor, &operands)? })?;
    for step in &task.steps[1 + usize::from(bias.is_some())..] {
        value = follow(task, step, value, parameters)?;
    }
    Ok(value)
}

fn operands<'a>(step: &Step, parameters: &'a [Tensor], before: Option<&'a Tensor>) -> Vec<&'a Tensor> {
    let operand = |operand: &Operand| match operand {
        Operand::Parameter(index) => &parameters[*index],
        Operand::Step(_) => before.expect("a checked task reads only the step before"),
    };
    step.inputs.iter().map(operand).collect()
}

/// The parameter that is added as a bias right after a contraction whose call takes one.
fn joining_bias(task: &Task) -> Option<usize> {
    let [anchor, step, ..] = task.steps.as_slice() else { return None };
    let channel = match &anchor.op {
        Op::Conv(_) => 1,
        Op::ConvTranspose(_) if anchor.op.window().is_some_and(|window| window.even_pads().is_some()) => 1,
        Op::Dense(_) => i64::try_from(anchor.output.rank()).ok()? - 1,
        _ => return None,
    };
    match (&step.op, step.inputs.as_slice()) {
        (Op::BiasAdd(BiasAdd { axis }), [Operand::Step(_), Operand::Parameter(index)])
            if *axis == channel && anchor.output.dtype.is_float() =>
        {
            Some(*index)
        }
        _ => None,
    }
}

/// A step after the anchor: in place where PyTorch can.
fn follow(task: &Task, step: &Step, mut value: Tensor, parameters: &[Tensor]) -> Result<Tensor> {
    let keeps_type = step
        .inputs
        .iter()
        .any(|input| matches!(input, Operand::Step(_)) && task.operand_type(*input).is_ok_and(|ty| *ty == step.output));
    if keeps_type && pointwise::in_place(step, &mut value, parameters)? {
        return Ok(value);
    }
    let operands = operands(step, parameters, Some(&value));
    apply(&Call::of(step, &operands)?)
}

/// Computes an operator, if its family knows it.
type Family = fn(&Call<'_>) -> Result<Option<Tensor>>;

const FAMILIES: &[Family] = &[
    contraction::compute,
    movement::compute,
    normalise::compute,
    pointwise::compute,
    reduce::compute,
    window::compute,
];

/// One operator.
fn apply(call: &Call<'_>) -> Result<Tensor> {
    for compute in FAMILIES {
        if let Some(result) = compute(call)? {
            return Ok(result);
        }
    }
    Err(Refusal::unsupported(format!("`{}`: no family of PyTorch's operators has it", call.op.name())))
}
