//! Shape rules: infer the output type of an operator from its input types. Attributes come from untrusted files:
//! extents are computed in 128 bits or with overflow checks, and errors name the invalid number. Symbolic dimensions
//! are allowed where a dimension is only passed on.

use crate::error::{Error, Result};
use crate::operators::Op;
use crate::shapes::{Rule, check_type};
use crate::types::TensorType;

/// Infers the type of an operator's output.
pub fn infer_type(op: &Op, inputs: &[&TensorType]) -> Result<TensorType> {
    check_inputs(op, inputs).and_then(|()| op.infer_output(inputs)).and_then(check_output).map_err(|reason| {
        Error::Infer {
            op: op.name(),
            inputs: inputs.iter().map(|ty| ty.to_string()).collect::<Vec<_>>().join(", "),
            reason,
        }
    })
}

fn check_inputs(op: &Op, inputs: &[&TensorType]) -> Rule<()> {
    let arity = op.arity();
    if !arity.contains(&inputs.len()) {
        return Err(match (arity.start(), arity.end()) {
            (low, high) if low == high => format!("takes {low} inputs, got {}", inputs.len()),
            (low, high) => format!("takes {low} to {high} inputs, got {}", inputs.len()),
        });
    }
    inputs.iter().try_for_each(|ty| check_type(ty))
}

fn check_output(ty: TensorType) -> Rule<TensorType> {
    check_type(&ty).map(|()| ty)
}

#[cfg(test)]
mod tests;
