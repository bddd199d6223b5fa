//! Computes tasks as sequences of PyTorch's operators. A bias after a contraction is fused into its call, and later
//! steps are computed in place if PyTorch supports that, as its users do. Every result has memory of its own: a view
//! would move no data, so its time would be meaningless.

use crate::call::Call;
use crate::refusal::{Refusal, Result};
use crate::{contraction, movement, normalise, pointwise, reduce, window};
use models::operators::{Attention, BiasAdd};
use models::{Op, Operand, Step, Task};
use tch::Tensor;

/// Creates tensors, such as masks, that PyTorch needs for a task in addition to its inputs; runs before timing.
pub fn extra_tensors(task: &Task) -> Result<Vec<Tensor>> {
    match &task.steps[0].op {
        Op::Attention(Attention { causal, window, .. }) => contraction::attention_mask(task, *causal, *window),
        _ => Ok(Vec::new()),
    }
}

pub fn run_task(task: &Task, parameters: &[Tensor], constants: &[Tensor]) -> Result<Tensor> {
    let bias = joining_bias(task).map(|index| &parameters[index]);
    let anchor = &task.steps[0];
    let operands: Vec<&Tensor> = step_operands(anchor, parameters, None);
    let mut value = apply_operator(&Call { bias, constants, ..Call::from_step(anchor, &operands)? })?;
    for step in &task.steps[1 + usize::from(bias.is_some())..] {
        value = apply_follower(task, step, value, parameters)?;
    }
    Ok(value)
}

fn step_operands<'a>(step: &Step, parameters: &'a [Tensor], before: Option<&'a Tensor>) -> Vec<&'a Tensor> {
    let operand = |operand: &Operand| match operand {
        Operand::Parameter(index) => &parameters[*index],
        Operand::Step(_) => before.expect("a checked task reads only the preceding step"),
    };
    step.inputs.iter().map(operand).collect()
}

/// Returns the index of the bias that is added to a contraction, if PyTorch's call of the contraction can add it.
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

fn apply_follower(task: &Task, step: &Step, mut value: Tensor, parameters: &[Tensor]) -> Result<Tensor> {
    let keeps_type = step
        .inputs
        .iter()
        .any(|input| matches!(input, Operand::Step(_)) && task.operand_type(*input).is_ok_and(|ty| *ty == step.output));
    if keeps_type && pointwise::compute_in_place(step, &mut value, parameters)? {
        return Ok(value);
    }
    let operands = step_operands(step, parameters, Some(&value));
    apply_operator(&Call::from_step(step, &operands)?)
}

/// Computes an operator of one family; returns None if the operator belongs to another family.
type OperatorFamily = fn(&Call<'_>) -> Result<Option<Tensor>>;

const FAMILIES: &[OperatorFamily] = &[
    contraction::compute_contraction,
    movement::compute_movement,
    normalise::compute_normalisation,
    pointwise::compute_pointwise,
    reduce::compute_reduction,
    window::compute_window,
];

fn apply_operator(call: &Call<'_>) -> Result<Tensor> {
    for compute in FAMILIES {
        if let Some(result) = compute(call)? {
            return Ok(result);
        }
    }
    Err(Refusal::unsupported_operator(format!("`{}` is not supported by this version of PyTorch", call.op.name())))
}
