//! Tensors that are joined lie where the joined one lies.
//!
//! Where nothing is outside of the dimension along which tensors are joined, each of them is one stretch of the result. So
//! whoever makes them writes them there, and joining takes no call.

use super::Values;
use crate::memory::ALIGNMENT_BYTES;
use models::{Call, Op, Operand, Plan, ValueId};
use std::collections::{HashMap, HashSet};

/// What lies inside of what.
#[derive(Default)]
pub(super) struct Parts {
    /// The tensor that one is a part of, and where in it.
    wholes: HashMap<ValueId, (ValueId, u64)>,
    /// Calls that only join what lies together already.
    done: HashSet<usize>,
}

impl Parts {
    pub(super) fn of(values: &Values, plan: &Plan) -> Parts {
        let mut parts = Parts::default();
        let outputs: HashSet<ValueId> = values.graph.outputs.iter().map(|id| values.root(*id)).collect();
        let mut made: HashSet<ValueId> = HashSet::new();
        for (place, call) in plan.calls.iter().enumerate() {
            let whole = values.root(call.result);
            let is_free = |part: &ValueId| {
                made.contains(part) && !outputs.contains(part) && !parts.wholes.contains_key(part) && *part != whole
            };
            let found = stretches(values, plan, call).filter(|stretches| {
                let distinct: HashSet<ValueId> = stretches.iter().map(|(part, _)| *part).collect();
                !outputs.contains(&whole) && distinct.len() == stretches.len() && distinct.iter().all(is_free)
            });
            if let Some(stretches) = found {
                parts.wholes.extend(stretches.into_iter().map(|(part, offset)| (part, (whole, offset))));
                parts.done.insert(place);
            }
            made.insert(whole);
        }
        parts
    }

    /// The tensor that is no part of another one in which this one lies, and where.
    pub(super) fn whole(&self, mut id: ValueId) -> (ValueId, u64) {
        let mut offset = 0;
        while let Some((whole, within)) = self.wholes.get(&id) {
            (id, offset) = (*whole, offset + within);
        }
        (id, offset)
    }

    /// Whether a call of the plan has nothing to do.
    pub(super) fn is_done(&self, call: usize) -> bool {
        self.done.contains(&call)
    }
}

/// Where the operands of a call that only joins them lie in its result, if each is one aligned stretch of it.
fn stretches(values: &Values, plan: &Plan, call: &Call) -> Option<Vec<(ValueId, u64)>> {
    let [step] = &plan.tasks[call.task].task.steps[..] else { return None };
    let Op::Concat { axis } = step.op else { return None };
    let extents = values.extents(call.result);
    let rank = i64::try_from(extents.len()).ok()?;
    let outside = usize::try_from(axis.rem_euclid(rank.max(1))).ok()?;
    if extents[..outside].iter().any(|&extent| extent != 1) {
        return None;
    }
    let mut offset = 0;
    let mut found = Vec::with_capacity(step.inputs.len());
    // An operand that is given twice is one parameter.
    for operand in &step.inputs {
        let Operand::Parameter(index) = operand else { return None };
        let id = call.arguments.get(*index)?;
        if offset % ALIGNMENT_BYTES != 0 || values.is_constant[id.0 as usize] {
            return None;
        }
        found.push((values.root(*id), offset));
        offset += values.ty(*id).bytes()?;
    }
    Some(found)
}
