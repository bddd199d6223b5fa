//! Lifetimes of intermediate tensors: from the call that writes them to the last call that reads them.

use super::parts::{ResultParts, Writing};
use super::staged::{StageSpan, sequential_spans};
use super::{ProgramValues, Result};
use crate::memory::Lifetime;
use models::{Graph, Plan, ValueId};
use std::collections::HashMap;

/// Returns lifetimes as ranges of the plan's calls, extended over all calls that may run at the same time.
pub(super) fn live_ranges(
    values: &ProgramValues,
    parts: &ResultParts,
    plan: &Plan,
    spans: &[StageSpan],
) -> Vec<(ValueId, Lifetime)> {
    let mut lifetimes: Vec<(ValueId, Lifetime)> = Vec::new();
    let mut index_of: HashMap<ValueId, usize> = HashMap::new();
    let is_output: Vec<ValueId> = values.graph.outputs.iter().map(|id| values.root_value(*id)).collect();
    for (place, call) in plan.calls.iter().enumerate() {
        for id in call.arguments.iter().chain([&call.result]) {
            if let Some(index) = index_of.get(&parts.outermost_tensor(values.root_value(*id)).0) {
                lifetimes[*index].1.last = spans[place].last;
            }
        }
        let (made, _) = parts.outermost_tensor(values.root_value(call.result));
        if !is_output.contains(&made) && !index_of.contains_key(&made) {
            let bytes = values.type_of(made).size_bytes().expect("all dimensions are known");
            index_of.insert(made, lifetimes.len());
            lifetimes.push((made, Lifetime { bytes, first: spans[place].first, last: spans[place].last }));
        }
    }
    lifetimes
}

/// Returns lifetimes as ranges of the program's calls, which exclude calls of the plan that need no work.
pub fn program_lifetimes(graph: &Graph, plan: &Plan, writing: Writing) -> Result<Vec<Lifetime>> {
    let values = ProgramValues::from_graph(graph)?;
    let spans = sequential_spans(plan);
    let parts = ResultParts::find_nesting(&values, plan, &spans, writing);
    // A call without work writes nothing, and its operands live at least until the preceding call.
    let mut number = 0usize;
    let mut last_of = Vec::with_capacity(plan.calls.len());
    let mut first_of = Vec::with_capacity(plan.calls.len());
    for place in 0..plan.calls.len() {
        first_of.push(number);
        number += usize::from(!parts.is_done(place));
        last_of.push(number.saturating_sub(1));
    }
    let by_calls =
        |(_, one): (ValueId, Lifetime)| Lifetime { first: first_of[one.first], last: last_of[one.last], ..one };
    Ok(live_ranges(&values, &parts, plan, &spans).into_iter().map(by_calls).collect())
}
