//! Loops of programs. A `while_loop` is unrolled if its condition is known before each iteration; others are refused.

use super::call::Argument;
use super::import::{Importer, node_label};
use super::memory::Slot;
use super::schema::{Graph, Node, names_of};
use crate::{Failure, Outcome, Refusal, malformed, unsupported};
use models::check::GraphLimits;
use models::error::Result;
use models::graph::ValueId;
use models::names::shorten_text;

/// Maximum number of iterations of all loops of a program together.
const MAX_ITERATIONS: usize = 4096;

impl<'a> Importer<'a> {
    /// Unrolls a `while_loop`: `condition, body, states…, loop-invariant tensors… -> states…`.
    pub(super) fn import_loop(&mut self, node: &'a Node) -> Result<()> {
        let states = match self.unroll_loop(node) {
            Ok(states) => states,
            Err(Failure::Node(refusal)) => return self.refuse_node(node, refusal),
            Err(Failure::Inside(error)) => return Err(error),
        };
        let names: Vec<&str> = node.outputs.iter().flat_map(names_of).collect();
        if names.len() != states.len() {
            let reason = format!("the loop has {} states, but {} results", states.len(), names.len());
            return self.refuse_node(node, Refusal::Malformed(reason));
        }
        for (name, id) in names.into_iter().zip(states) {
            let cell = self.cells.add_cell(Slot::Value(id));
            self.bind_name(name, cell)?;
        }
        Ok(())
    }

    fn unroll_loop(&mut self, node: &'a Node) -> Result<Vec<ValueId>, Failure> {
        let [condition, body] = &node.parts[..] else {
            return Err(Refusal::Malformed("the loop has no condition or no body".to_owned()).into());
        };
        let mut states = self.carried_tensors(node, 2)?;
        let others = self.carried_tensors(node, 3)?;
        for iteration in 0.. {
            let prefix = format!("{}{}.{iteration}.", self.prefix, shorten_text(&node_label(node)));
            let inputs = [&states[..], &others[..]].concat();
            let goes_on = self.import_part(condition, &inputs, format!("{prefix}condition."))?;
            let [goes_on] = goes_on[..] else {
                return Err(Refusal::Malformed("the loop condition must produce a single tensor".to_owned()).into());
            };
            match self.emit.known_scalar(goes_on, "condition")? {
                Some(0.0) => break,
                Some(_) => {}
                None => return Err(self.list_iteration(body, &inputs, prefix)?),
            }
            self.iterations += 1;
            if self.iterations > MAX_ITERATIONS {
                let reason = format!("the loops of the program have more than {MAX_ITERATIONS} iterations");
                return Err(Refusal::Unsupported(reason).into());
            }
            let made = self.import_part(body, &inputs, prefix)?;
            let types = |ids: &[ValueId]| ids.iter().map(|&id| self.emit.ty(id)).collect::<Outcome<Vec<_>>>();
            if types(&made)? != types(&states)? {
                return Err(Refusal::Malformed("the loop body changes the types of the states".to_owned()).into());
            }
            states = made;
        }
        Ok(states)
    }

    fn carried_tensors(&self, node: &'a Node, index: usize) -> Outcome<Vec<ValueId>> {
        let Some(input) = node.inputs.get(index) else { return malformed(format!("argument {index} is missing")) };
        match self.parse_argument(&input.arg)? {
            Argument::Tensors(all) => {
                all.into_iter().collect::<Option<_>>().map_or_else(|| malformed("a tensor is missing"), Ok)
            }
            _ => unsupported("loop states that are Python numbers"),
        }
    }

    /// Refuses a loop with an unknown condition. If such nodes may be skipped, adds the operators of its body once.
    fn list_iteration(&mut self, body: &'a Graph, inputs: &[ValueId], prefix: String) -> Result<Failure, Failure> {
        let reason = "the loop condition depends on data at run time";
        if !self.options.skip_unsupported {
            let hint = "`--skip-unsupported` leaves the node out and lists the operators of one iteration";
            return Ok(Refusal::Unsupported(format!("{reason}; {hint}")).into());
        }
        let made = self.import_part(body, inputs, prefix)?;
        self.loose_ends.extend(made);
        Ok(Refusal::Unsupported(format!("{reason}; the operators of one iteration are listed")).into())
    }

    fn import_part(&mut self, part: &'a Graph, inputs: &[ValueId], prefix: String) -> Result<Vec<ValueId>, Failure> {
        let names: Vec<&str> = part.inputs.iter().flat_map(names_of).collect();
        if names.len() != inputs.len() {
            let reason = format!("the subprogram has {} inputs, but {} are given", names.len(), inputs.len());
            return Err(Refusal::Malformed(reason).into());
        }
        self.nodes += 1 + part.nodes.len();
        if self.nodes > GraphLimits::default().nodes {
            let reason = format!("the unrolled loops have too many nodes: {}", self.nodes);
            return Err(Refusal::Malformed(reason).into());
        }
        let graph = std::mem::replace(&mut self.graph, part);
        let prefix = std::mem::replace(&mut self.prefix, prefix);
        let names_outside = (std::mem::take(&mut self.cell_of), std::mem::take(&mut self.numbers));
        let made = self.import_nodes(part, &names, inputs);
        (self.graph, self.prefix) = (graph, prefix);
        (self.cell_of, self.numbers) = names_outside;
        made
    }

    fn import_nodes(
        &mut self,
        part: &'a Graph,
        names: &[&'a str],
        inputs: &[ValueId],
    ) -> Result<Vec<ValueId>, Failure> {
        for (name, &id) in names.iter().zip(inputs) {
            let cell = self.cells.add_cell(Slot::Value(id));
            self.bind_name(name, cell)?;
        }
        for node in &part.nodes {
            self.import_node(node)?;
        }
        let outputs = part.outputs.iter().flat_map(names_of).map(|name| {
            match self.cell_of.get(name).map(|&cell| self.cells.cell_slot(cell)) {
                Some(Slot::Value(id)) => Ok(id),
                Some(_) => unsupported("a result of the subprogram is skipped"),
                None => malformed(format!("the subprogram does not produce `{}`", shorten_text(name))),
            }
        });
        Ok(outputs.collect::<Outcome<_>>()?)
    }
}
