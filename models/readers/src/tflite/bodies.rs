//! Operators with subgraphs. A branch with a constant condition replaces its operator. A loop is unrolled if its
//! condition is known before each iteration. All other branches and loops are refused or, on request, skipped.

use super::import::{TENSORS_PER_NODE, TfliteImporter, TfliteSlot, check_count};
use super::rules::builtin_name;
use super::schema::Operator;
use crate::limits::{MAX_DEPTH, MAX_ITERATIONS};
use crate::{Failure, Outcome, Refusal, malformed};
use models::graph::ValueId;
use models::names::shorten_text;

type Results = Result<Vec<ValueId>, Failure>;

impl<'a> TfliteImporter<'a> {
    /// Imports an operator that has subgraphs; returns None for other operators.
    pub(super) fn with_bodies(&mut self, operator: &'a Operator<'a>, inputs: &[Option<ValueId>]) -> Option<Results> {
        let import = match builtin_name(operator.code) {
            Some("IF") => TfliteImporter::inline_branch,
            Some("WHILE") => TfliteImporter::unroll_loop,
            _ => return None,
        };
        let place = format!("{}/", self.operator_label(operator));
        let outer = std::mem::replace(&mut self.scope.place, place);
        let results = import(self, operator, inputs);
        self.scope.place = outer;
        Some(results.and_then(|results| check_count(operator, results.len()).map(|()| results).map_err(Failure::Node)))
    }

    /// Imports the operators of a subgraph and returns its outputs.
    fn inline_graph(&mut self, number: usize, inputs: &[ValueId]) -> Results {
        if self.scope.depth >= MAX_DEPTH {
            return Err(Refusal::Malformed(format!("subgraphs are nested deeper than {MAX_DEPTH} levels")).into());
        }
        let Some(graph) = self.model.graphs.get(number) else {
            return Err(Refusal::Malformed(format!("subgraph {number} does not exist")).into());
        };
        if graph.inputs.len() != inputs.len() {
            let reason = format!("subgraph {number} has {} inputs, but {} are given", graph.inputs.len(), inputs.len());
            return Err(Refusal::Malformed(reason).into());
        }
        let tensors = graph.tensors.len() + graph.inputs.len() + graph.outputs.len();
        self.count_nodes(1 + tensors / TENSORS_PER_NODE)?;
        let mut inner = self.open_scope(number)?;
        inner.depth += 1;
        let outer = std::mem::replace(&mut self.scope, inner);
        let outputs = self.import_body(inputs);
        self.scope = outer;
        outputs
    }

    fn import_body(&mut self, inputs: &[ValueId]) -> Results {
        let graph = self.scope.graph;
        for (&index, &id) in graph.inputs.iter().zip(inputs) {
            let (slot, tensor) = self.find_tensor(index)?;
            let (stated, found) = (tensor.dtype(), self.emit.dtype(id)?);
            if stated.as_ref().is_ok_and(|stated| *stated != found) {
                let reason =
                    format!("input `{}` of the subgraph does not have the type {found}", shorten_text(&tensor.name));
                return Err(Refusal::Malformed(reason).into());
            }
            self.scope.slots[slot] = TfliteSlot::Value(id);
        }
        self.import_operators()?;
        let output = |&index: &i32| {
            let (slot, tensor) = self.find_tensor(index)?;
            match self.scope.slots[slot] {
                TfliteSlot::Value(id) => Ok(id),
                TfliteSlot::Skipped => Err(Refusal::Unsupported(format!(
                    "result `{}` of the subgraph is skipped",
                    shorten_text(&tensor.name)
                ))
                .into()),
                TfliteSlot::Unmade => Err(Refusal::Malformed(format!(
                    "the subgraph does not produce its output `{}`",
                    shorten_text(&tensor.name)
                ))
                .into()),
            }
        };
        graph.outputs.iter().map(output).collect()
    }

    /// Inlines a branch of `IF`: `condition, inputs… -> outputs…`.
    fn inline_branch(&mut self, operator: &'a Operator<'a>, inputs: &[Option<ValueId>]) -> Results {
        let given = require_inputs(inputs)?;
        let Some((&condition, given)) = given.split_first() else {
            return Err(Refusal::Malformed("the condition is missing".to_owned()).into());
        };
        let branch = match self.emit.known_scalar(condition, "condition")? {
            Some(0.0) => subgraph_number(operator, 1)?,
            Some(_) => subgraph_number(operator, 0)?,
            None => return Err(Refusal::Unsupported("the condition is computed at run time".to_owned()).into()),
        };
        self.inline_graph(branch, given)
    }

    /// Unrolls `WHILE`: `states… -> states…`.
    fn unroll_loop(&mut self, operator: &'a Operator<'a>, inputs: &[Option<ValueId>]) -> Results {
        let (condition, body) = (subgraph_number(operator, 0)?, subgraph_number(operator, 1)?);
        let mut states = require_inputs(inputs)?;
        for _ in 0..=MAX_ITERATIONS {
            let [goes_on] = self.inline_graph(condition, &states)?[..] else {
                return Err(Refusal::Malformed("the condition of the loop must have one output".to_owned()).into());
            };
            match self.emit.known_scalar(goes_on, "condition")? {
                Some(0.0) => return Ok(states),
                Some(_) => {}
                None => {
                    let reason = "the loop condition depends on data at run time";
                    return Err(Refusal::Unsupported(reason.to_owned()).into());
                }
            }
            let next = self.inline_graph(body, &states)?;
            if next.len() != states.len() {
                let reason = format!("the loop has {} states, but its body has {} outputs", states.len(), next.len());
                return Err(Refusal::Malformed(reason).into());
            }
            states = next;
        }
        Err(Refusal::Unsupported(format!("the loop has more than {MAX_ITERATIONS} iterations")).into())
    }
}

fn require_inputs(inputs: &[Option<ValueId>]) -> Outcome<Vec<ValueId>> {
    match inputs.iter().copied().collect() {
        Some(inputs) => Ok(inputs),
        None => malformed("an input is missing"),
    }
}

/// Returns the number of a subgraph that an attribute of the operator names.
fn subgraph_number(operator: &Operator<'_>, field: usize) -> Outcome<usize> {
    let number = match operator.options {
        Some(table) => table.i32(field, 0).map_err(Refusal::Malformed)?,
        None => 0,
    };
    usize::try_from(number).or_else(|_| malformed(format!("subgraph {number} does not exist")))
}
