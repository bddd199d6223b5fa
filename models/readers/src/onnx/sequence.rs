//! Sequences of tensors with known length, and optional values. They exist only during import, not in the graph.

use super::call::Call;
use super::scope::Slot;
use crate::{Emit, Outcome, malformed, unsupported};
use models::graph::ValueId;
use models::types::DType;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Inputs of a node that are not tensors, by position.
pub(super) type Slots = BTreeMap<usize, Slot>;

const MAX_PARTS: i64 = 4096;

pub(super) fn is_known(operator: &str) -> bool {
    matches!(
        operator,
        "Optional"
            | "OptionalHasElement"
            | "OptionalGetElement"
            | "SequenceConstruct"
            | "SequenceEmpty"
            | "SequenceAt"
            | "SequenceLength"
            | "SequenceInsert"
            | "SequenceErase"
            | "SplitToSequence"
            | "ConcatFromSequence"
    )
}

/// Evaluates an operator on sequences, or returns None for other operators.
pub(super) fn sequence_results(emit: &mut Emit<'_>, call: &Call<'_>, slots: &Slots) -> Option<Outcome<Vec<Slot>>> {
    let operator = call.node.op_type.as_str();
    if operator == "Identity" {
        return slots.get(&0).map(|slot| Ok(vec![slot.clone()]));
    }
    is_known(operator).then(|| {
        let slot = if operator.starts_with("Optional") {
            optional_result(emit, call, slots)
        } else {
            sequence_result(emit, call, slots)
        };
        slot.map(|slot| vec![slot])
    })
}

pub(super) fn input_slot(call: &Call<'_>, slots: &Slots, index: usize) -> Option<Slot> {
    slots.get(&index).cloned().or_else(|| call.optional_input(index).map(Slot::Value))
}

/// Evaluates an operator on optional values. An optional value is represented by its content.
fn optional_result(emit: &mut Emit<'_>, call: &Call<'_>, slots: &Slots) -> Outcome<Slot> {
    let held = input_slot(call, slots, 0).filter(|slot| !matches!(slot, Slot::Absent));
    match call.node.op_type.as_str() {
        "Optional" => Ok(held.unwrap_or(Slot::Absent)),
        "OptionalHasElement" => Ok(Slot::Value(emit.add_scalar(DType::Bool, f64::from(u8::from(held.is_some())))?)),
        _ => held.map_or_else(|| malformed("the optional value that the operator reads is absent"), Ok),
    }
}

pub(super) fn sequence_slot(parts: Vec<ValueId>) -> Outcome<Slot> {
    if parts.len() as i64 > MAX_PARTS {
        return unsupported(format!("a sequence of more than {MAX_PARTS} tensors"));
    }
    Ok(Slot::Sequence(Rc::new(parts)))
}

fn sequence_result(emit: &mut Emit<'_>, call: &Call<'_>, slots: &Slots) -> Outcome<Slot> {
    match call.node.op_type.as_str() {
        "SequenceEmpty" => return sequence_slot(Vec::new()),
        "SequenceConstruct" => return sequence_slot(call.all_inputs()?),
        "SplitToSequence" => return sequence_slot(split_to_sequence(emit, call)?),
        _ => {}
    }
    let Some(Slot::Sequence(parts)) = slots.get(&0) else { return malformed("the first input is not a sequence") };
    match call.node.op_type.as_str() {
        "SequenceLength" => Ok(Slot::Value(emit.add_scalar(DType::I64, parts.len() as f64)?)),
        "SequenceAt" => {
            let index = sequence_position(emit, call, 1, parts.len())?;
            parts
                .get(index)
                .map_or_else(|| malformed(format!("tensor {index} does not exist")), |id| Ok(Slot::Value(*id)))
        }
        "SequenceInsert" => {
            let mut parts = parts.to_vec();
            let index = if call.optional_input(2).is_some() {
                sequence_position(emit, call, 2, parts.len())?
            } else {
                parts.len()
            };
            if index > parts.len() {
                return malformed(format!("position {index} is outside of the sequence"));
            }
            parts.insert(index, call.input(1)?);
            sequence_slot(parts)
        }
        "SequenceErase" => {
            let mut parts = parts.to_vec();
            let last = parts.len().saturating_sub(1);
            let index =
                if call.optional_input(1).is_some() { sequence_position(emit, call, 1, parts.len())? } else { last };
            if index >= parts.len() {
                return malformed(format!("tensor {index} does not exist"));
            }
            parts.remove(index);
            sequence_slot(parts)
        }
        _ => concat_sequence(emit, call, parts).map(Slot::Value),
    }
}

/// Reads a position in a sequence; a negative one counts from the end.
fn sequence_position(emit: &Emit<'_>, call: &Call<'_>, input: usize, length: usize) -> Outcome<usize> {
    let place = emit.require_number(call.input(input)?, "position")? as i64;
    let front = if place < 0 { place.saturating_add(length as i64) } else { place };
    usize::try_from(front).or_else(|_| malformed(format!("position {place} is outside of a sequence of {length}")))
}

fn split_to_sequence(emit: &mut Emit<'_>, call: &Call<'_>) -> Outcome<Vec<ValueId>> {
    let x = call.input(0)?;
    let extents = emit.extents(x)?;
    let axis = emit.resolve_axis(call.int_attribute("axis", 0), extents.len())?;
    let extent = extents[axis];
    let (sizes, keeps) = match call.optional_input(1) {
        None => {
            (vec![1; usize::try_from(extent.min(MAX_PARTS + 1)).unwrap_or(0)], call.int_attribute("keepdims", 1) != 0)
        }
        Some(split) => {
            let is_one = emit.rank(split)? == 0;
            let known = emit.require_integers(split, "split")?;
            let sizes = match known[..] {
                [size] if is_one && size > 0 && extent / size <= MAX_PARTS => {
                    (0..extent).step_by(size as usize).map(|start| size.min(extent - start)).collect()
                }
                _ if is_one => return malformed(format!("parts of {known:?} elements do not divide {extent}")),
                _ => known,
            };
            (sizes, true)
        }
    };
    if sizes.len() as i64 > MAX_PARTS {
        return unsupported(format!("a sequence of more than {MAX_PARTS} tensors"));
    }
    if sizes.iter().any(|&size| size < 0)
        || sizes.iter().try_fold(0i64, |sum, &size| sum.checked_add(size)) != Some(extent)
    {
        return malformed(format!("the parts {sizes:?} do not add up to {extent}"));
    }
    let mut parts = Vec::new();
    let mut start = 0;
    for size in sizes {
        let mut part = emit.slice(x, axis, start, start + size)?;
        if !keeps {
            let mut shape = extents.clone();
            shape.remove(axis);
            part = emit.reshape(part, &shape)?;
        }
        parts.push(part);
        start += size;
    }
    Ok(parts)
}

fn concat_sequence(emit: &mut Emit<'_>, call: &Call<'_>, parts: &[ValueId]) -> Outcome<ValueId> {
    join_tensors(emit, parts, call.int_attribute("axis", 0), call.flag_attribute("new_axis"))
}

pub(super) fn join_tensors(emit: &mut Emit<'_>, parts: &[ValueId], axis: i64, is_new: bool) -> Outcome<ValueId> {
    let Some(&first) = parts.first() else { return unsupported("concatenating an empty sequence") };
    let rank = emit.rank(first)? + usize::from(is_new);
    let axis = emit.resolve_axis(axis, rank)?;
    let mut joined = Vec::new();
    for &part in parts {
        joined.push(if is_new {
            let mut shape = emit.extents(part)?;
            shape.insert(axis, 1);
            emit.reshape(part, &shape)?
        } else {
            part
        });
    }
    emit.concat_parts(&joined, axis)
}
