//! Sequences of tensors whose length is known, and optional values: they are lists or nothing while the file is read, and no
//! operators of the graph.

use super::call::Call;
use super::scope::Slot;
use crate::{Emit, Outcome, malformed, unsupported};
use models::graph::ValueId;
use models::types::DType;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Inputs of a node that are no tensors, by place.
pub(super) type Slots = BTreeMap<usize, Slot>;

/// Sequences have at most this many tensors.
const MAX_PARTS: i64 = 4096;

/// Whether an operator makes or reads sequences or optional values.
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

/// What an operator on sequences makes; nothing where the operator is none.
pub(super) fn results(emit: &mut Emit<'_>, call: &Call<'_>, slots: &Slots) -> Option<Outcome<Vec<Slot>>> {
    let operator = call.node.op_type.as_str();
    if operator == "Identity" {
        return slots.get(&0).map(|slot| Ok(vec![slot.clone()]));
    }
    is_known(operator).then(|| {
        let slot =
            if operator.starts_with("Optional") { optional(emit, call, slots) } else { result(emit, call, slots) };
        slot.map(|slot| vec![slot])
    })
}

/// The tensor or what stands for one at an input of a node.
pub(super) fn slot(call: &Call<'_>, slots: &Slots, index: usize) -> Option<Slot> {
    slots.get(&index).cloned().or_else(|| call.optional(index).map(Slot::Value))
}

/// An optional value is what it holds.
fn optional(emit: &mut Emit<'_>, call: &Call<'_>, slots: &Slots) -> Outcome<Slot> {
    let held = slot(call, slots, 0).filter(|slot| !matches!(slot, Slot::Absent));
    match call.node.op_type.as_str() {
        "Optional" => Ok(held.unwrap_or(Slot::Absent)),
        "OptionalHasElement" => Ok(Slot::Value(emit.scalar(DType::Bool, f64::from(u8::from(held.is_some())))?)),
        _ => held.map_or_else(|| malformed("its input is an optional value that is not there"), Ok),
    }
}

/// A sequence of bounded length.
pub(super) fn sequence(parts: Vec<ValueId>) -> Outcome<Slot> {
    if parts.len() as i64 > MAX_PARTS {
        return unsupported(format!("a sequence of more than {MAX_PARTS} tensors"));
    }
    Ok(Slot::Sequence(Rc::new(parts)))
}

fn result(emit: &mut Emit<'_>, call: &Call<'_>, slots: &Slots) -> Outcome<Slot> {
    match call.node.op_type.as_str() {
        "SequenceEmpty" => return sequence(Vec::new()),
        "SequenceConstruct" => return sequence(call.all_inputs()?),
        "SplitToSequence" => return sequence(split(emit, call)?),
        _ => {}
    }
    let Some(Slot::Sequence(parts)) = slots.get(&0) else { return malformed("its first input is no sequence") };
    match call.node.op_type.as_str() {
        "SequenceLength" => Ok(Slot::Value(emit.scalar(DType::I64, parts.len() as f64)?)),
        "SequenceAt" => {
            let index = place(emit, call, 1, parts.len())?;
            parts.get(index).map_or_else(|| malformed(format!("there is no tensor {index}")), |id| Ok(Slot::Value(*id)))
        }
        "SequenceInsert" => {
            let mut parts = parts.to_vec();
            let index = if call.optional(2).is_some() { place(emit, call, 2, parts.len())? } else { parts.len() };
            if index > parts.len() {
                return malformed(format!("there is no place {index}"));
            }
            parts.insert(index, call.input(1)?);
            sequence(parts)
        }
        "SequenceErase" => {
            let mut parts = parts.to_vec();
            let last = parts.len().saturating_sub(1);
            let index = if call.optional(1).is_some() { place(emit, call, 1, parts.len())? } else { last };
            if index >= parts.len() {
                return malformed(format!("there is no tensor {index}"));
            }
            parts.remove(index);
            sequence(parts)
        }
        _ => concat(emit, call, parts).map(Slot::Value),
    }
}

/// A place in a sequence, counted from the front.
fn place(emit: &Emit<'_>, call: &Call<'_>, input: usize, length: usize) -> Outcome<usize> {
    let place = emit.known_number(call.input(input)?, "position")? as i64;
    let front = if place < 0 { place.saturating_add(length as i64) } else { place };
    usize::try_from(front).or_else(|_| malformed(format!("there is no place {place} among {length}")))
}

fn split(emit: &mut Emit<'_>, call: &Call<'_>) -> Outcome<Vec<ValueId>> {
    let x = call.input(0)?;
    let extents = emit.extents(x)?;
    let axis = emit.axis(call.int("axis", 0), extents.len())?;
    let extent = extents[axis];
    let (sizes, keeps) = match call.optional(1) {
        None => (vec![1; usize::try_from(extent.min(MAX_PARTS + 1)).unwrap_or(0)], call.int("keepdims", 1) != 0),
        Some(split) => {
            let is_one = emit.rank(split)? == 0;
            let known = emit.known_integers(split, "split")?;
            let sizes = match known[..] {
                [size] if is_one && size > 0 && extent / size <= MAX_PARTS => {
                    (0..extent).step_by(size as usize).map(|start| size.min(extent - start)).collect()
                }
                _ if is_one => return malformed(format!("parts of {known:?} of {extent}")),
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
        return malformed(format!("parts {sizes:?} do not add up to {extent}"));
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

fn concat(emit: &mut Emit<'_>, call: &Call<'_>, parts: &[ValueId]) -> Outcome<ValueId> {
    join(emit, parts, call.int("axis", 0), call.flag("new_axis"))
}

/// Tensors as one, joined along an axis of theirs or along a new one.
pub(super) fn join(emit: &mut Emit<'_>, parts: &[ValueId], axis: i64, is_new: bool) -> Outcome<ValueId> {
    let Some(&first) = parts.first() else { return unsupported("an empty sequence as one tensor") };
    let rank = emit.rank(first)? + usize::from(is_new);
    let axis = emit.axis(axis, rank)?;
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
    emit.concat(&joined, axis)
}
