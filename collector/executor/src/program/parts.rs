//! Tensors that share the memory of other tensors. If all dimensions outside of the concatenation axis have extent 1,
//! each operand of a concatenation is a contiguous part of the result, and its producer writes directly into it. A
//! result may overwrite an operand that is not read later, if each element depends only on the operand's same element.

use super::ProgramValues;
use super::staged::StageSpan;
use crate::memory::ALIGNMENT_BYTES;
use models::operators::{Class, Concat};
use models::{Call, Op, Operand, Plan, Task, ValueId};
use std::collections::{HashMap, HashSet};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writing {
    /// Results never overwrite operands, because GPU code may compute an element repeatedly.
    Apart,
    /// Element-wise results overwrite an operand that is read for the last time.
    InPlace,
}

#[derive(Default)]
pub(super) struct ResultParts {
    /// For each tensor that is part of another: the containing tensor, and the offset in it.
    wholes: HashMap<ValueId, (ValueId, u64)>,
    /// Concatenations that need no call, because their operands are written directly into the result.
    done: HashSet<usize>,
}

impl ResultParts {
    /// Finds tensors that can be stored within others. `spans`: calls that may run concurrently with each call.
    pub(super) fn find_nesting(
        values: &ProgramValues,
        plan: &Plan,
        spans: &[StageSpan],
        writing: Writing,
    ) -> ResultParts {
        let outputs: HashSet<ValueId> = values.graph.outputs.iter().map(|id| values.root_value(*id)).collect();
        let mut parts = ResultParts::nest_concatenations(values, plan, &outputs);
        if writing == Writing::InPlace {
            parts.overwrite_operands(values, plan, spans, &outputs);
        }
        parts
    }

    fn nest_concatenations(values: &ProgramValues, plan: &Plan, outputs: &HashSet<ValueId>) -> ResultParts {
        let mut parts = ResultParts::default();
        let mut made: HashSet<ValueId> = HashSet::new();
        for (place, call) in plan.calls.iter().enumerate() {
            let whole = values.root_value(call.result);
            let is_free = |part: &ValueId| {
                made.contains(part) && !outputs.contains(part) && !parts.wholes.contains_key(part) && *part != whole
            };
            let found = concat_offsets(values, plan, call).filter(|stretches| {
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

    /// Lets results overwrite operands that have no later or concurrent reader.
    fn overwrite_operands(
        &mut self,
        values: &ProgramValues,
        plan: &Plan,
        spans: &[StageSpan],
        outputs: &HashSet<ValueId>,
    ) {
        let mut readers: HashMap<ValueId, Vec<usize>> = HashMap::new();
        for (place, call) in plan.calls.iter().enumerate() {
            for id in &call.arguments {
                readers.entry(values.root_value(*id)).or_default().push(place);
            }
        }
        let mut made: HashSet<ValueId> = HashSet::new();
        for (place, call) in plan.calls.iter().enumerate() {
            let result = values.root_value(call.result);
            let is_free = |operand: &ValueId| {
                let is_last = |&reader: &usize| reader == place || spans[reader].last < spans[place].first;
                made.contains(operand)
                    && !outputs.contains(operand)
                    && !self.wholes.contains_key(operand)
                    && readers[operand].iter().all(is_last)
                    && readers[operand].iter().filter(|reader| **reader == place).count() == 1
            };
            let mut operands = overwritable_parameters(&plan.tasks[call.task].task)
                .map(|index| values.root_value(call.arguments[index]));
            let has_place = outputs.contains(&result) || self.wholes.contains_key(&result) || self.is_done(place);
            if let Some(operand) = operands.find(|operand| !has_place && is_free(operand)) {
                self.wholes.insert(operand, (result, 0));
            }
            made.insert(result);
        }
    }

    pub(super) fn outermost_tensor(&self, mut id: ValueId) -> (ValueId, u64) {
        let mut offset = 0;
        while let Some((whole, within)) = self.wholes.get(&id) {
            (id, offset) = (*whole, offset + within);
        }
        (id, offset)
    }

    pub(super) fn is_done(&self, call: usize) -> bool {
        self.done.contains(&call)
    }
}

/// Returns a concatenation's operands and their offsets, if each is one aligned contiguous part of the result.
fn concat_offsets(values: &ProgramValues, plan: &Plan, call: &Call) -> Option<Vec<(ValueId, u64)>> {
    let [step] = &plan.tasks[call.task].task.steps[..] else { return None };
    let Op::Concat(Concat { axis }) = step.op else { return None };
    let extents = values.extents_of(call.result);
    let rank = i64::try_from(extents.len()).ok()?;
    let outside = usize::try_from(axis.rem_euclid(rank.max(1))).ok()?;
    if extents[..outside].iter().any(|&extent| extent != 1) {
        return None;
    }
    let mut offset = 0;
    let mut found = Vec::with_capacity(step.inputs.len());
    // An operand that occurs twice is a single parameter.
    for operand in &step.inputs {
        let Operand::Parameter(index) = operand else { return None };
        let id = call.arguments.get(*index)?;
        if offset % ALIGNMENT_BYTES != 0 || values.is_constant[id.0 as usize] {
            return None;
        }
        found.push((values.root_value(*id), offset));
        offset += values.type_of(*id).size_bytes()?;
    }
    Some(found)
}

/// Returns the parameters that the result may overwrite: each element depends only on the element at the same index.
fn overwritable_parameters(task: &Task) -> impl Iterator<Item = usize> + '_ {
    let result = &task.steps[task.steps.len() - 1].output;
    let looks_around = |step: &models::Step| step.op.class() != Class::Pointwise || step.output.shape != result.shape;
    let first = task.steps.iter().rposition(looks_around).map_or(0, |last| last + 1);
    task.parameters.iter().enumerate().filter_map(move |(index, parameter)| {
        let uses = |steps: &[models::Step]| {
            let inputs = steps.iter().flat_map(|step| &step.inputs);
            inputs.filter(|input| **input == Operand::Parameter(index)).count()
        };
        let is_alike =
            parameter.ty.shape == result.shape && parameter.ty.dtype.size_bytes() == result.dtype.size_bytes();
        (is_alike && !parameter.is_constant && uses(&task.steps[first..]) == 1 && uses(&task.steps[..first]) == 0)
            .then_some(index)
    })
}
