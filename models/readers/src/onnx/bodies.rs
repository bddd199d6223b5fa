//! Operators with subgraphs: branches, loops, and attention with functions that modify its scores. A branch with a
//! constant condition replaces its node. A loop is unrolled if its trip count and, before each iteration, its condition
//! are known. All other branches and loops are refused or, on request, skipped; one iteration is then added.

use super::call::Call;
use super::import::{Importer, has_bodies, node_label, normalise_domain};
use super::messages;
use super::rules::flex;
use super::scope::{Scope, Slot};
use super::sequence::{Slots, input_slot, join_tensors, sequence_slot};
use super::stated::stated_type;
use crate::limits::{MAX_DEPTH, MAX_ITERATIONS};
use crate::{Emit, Failure, Outcome, Refusal, malformed, unsupported};
use models::graph::{Const, ValueId};
use models::types::{DType, TensorType};
use std::collections::HashMap;

type Slotted = Result<Vec<Slot>, Failure>;

fn graph_of<'a>(call: &Call<'a>, name: &str) -> Outcome<&'a messages::Graph> {
    call.graph_attribute(name).map_or_else(|| malformed(format!("attribute `{name}` is missing")), Ok)
}

fn require_tensor(slot: &Slot) -> Outcome<ValueId> {
    match slot {
        Slot::Value(id) => Ok(*id),
        _ => unsupported("a result of the subgraph is skipped or not a tensor"),
    }
}

fn stack_results(emit: &mut Emit<'_>, parts: &[ValueId], axis: i64, info: &messages::ValueInfo) -> Outcome<ValueId> {
    if !parts.is_empty() {
        return join_tensors(emit, parts, axis, true);
    }
    let stated = stated_type(info).ok().and_then(|ty| Some((ty.dtype, ty.extents()?)));
    let Some((dtype, mut extents)) = stated else {
        return unsupported("there are no iterations, and the subgraph does not state the shape of the result");
    };
    let axis = emit.resolve_axis(axis, extents.len() + 1)?;
    extents.insert(axis, 0);
    emit.add_constant(TensorType::new(dtype, &extents), Const::Small(Vec::new()))
}

fn take_part(emit: &mut Emit<'_>, x: ValueId, axis: usize, place: i64) -> Outcome<ValueId> {
    let mut extents = emit.extents(x)?;
    let part = emit.slice(x, axis, place, place + 1)?;
    extents.remove(axis);
    emit.reshape(part, &extents)
}

struct ScanAxes {
    inputs: Vec<(usize, bool)>,
    outputs: Vec<(i64, bool)>,
    iterations: i64,
}

impl ScanAxes {
    fn parse_axes(emit: &Emit<'_>, call: &Call<'_>, scanned: &[ValueId], outputs: usize) -> Outcome<ScanAxes> {
        let list = |name: &str, count: usize| match call.int_list(name) {
            Some(list) if list.len() != count => {
                malformed(format!("`{name}` has {} entries, must have {count}", list.len()))
            }
            Some(list) => Ok(list),
            None => Ok(vec![0; count]),
        };
        let directions = if call.opset < 9 { "directions" } else { "scan_input_directions" };
        let axes = list("scan_input_axes", scanned.len())?;
        let mut axes_of_inputs = Vec::new();
        let mut iterations: Option<i64> = None;
        for ((&id, axis), direction) in scanned.iter().zip(axes).zip(list(directions, scanned.len())?) {
            let extents = emit.extents(id)?;
            let axis = emit.resolve_axis(axis, extents.len())?;
            if *iterations.get_or_insert(extents[axis]) != extents[axis] {
                return malformed("the scan inputs have different lengths along their scan axes");
            }
            axes_of_inputs.push((axis, direction != 0));
        }
        let axes = list("scan_output_axes", outputs)?.into_iter();
        let outputs =
            axes.zip(list("scan_output_directions", outputs)?).map(|(axis, direction)| (axis, direction != 0));
        Ok(ScanAxes { inputs: axes_of_inputs, outputs: outputs.collect(), iterations: iterations.unwrap_or(0) })
    }

    fn slice_inputs(&self, emit: &mut Emit<'_>, scanned: &[ValueId], iteration: i64) -> Outcome<Vec<Slot>> {
        let cuts = scanned.iter().zip(&self.inputs);
        cuts.map(|(&id, &(axis, is_reversed))| {
            let place = if is_reversed { self.iterations - 1 - iteration } else { iteration };
            take_part(emit, id, axis, place).map(Slot::Value)
        })
        .collect()
    }
}

impl<'a> Importer<'a> {
    pub(super) fn with_bodies(&mut self, call: &Call<'a>, slots: &Slots, scope: &mut Scope<'a>) -> Option<Slotted> {
        let operator = call.node.op_type.as_str();
        if !has_bodies(normalise_domain(&call.node.domain), operator) {
            return None;
        }
        if operator == "If" {
            return Some(self.inline_branch(call, scope));
        }
        let place = format!("{}/", node_label(call.node, scope));
        let outer = std::mem::replace(&mut scope.place, place);
        let results = match operator {
            "Loop" => self.unroll_loop(call, slots, scope),
            "Scan" => self.unroll_scan(call, scope),
            "SequenceMap" => self.map_sequence(call, slots, scope),
            _ => self.flex_attention(call, scope),
        };
        scope.place = outer;
        Some(results)
    }

    fn inline_body(&mut self, graph: &'a messages::Graph, inputs: Vec<Slot>, scope: &mut Scope<'a>) -> Slotted {
        if scope.depth >= MAX_DEPTH {
            return Err(Refusal::Malformed(format!("subgraphs are nested deeper than {MAX_DEPTH} levels")).into());
        }
        if graph.input.len() != inputs.len() {
            let reason = format!("the subgraph has {} inputs, but {} are given", graph.input.len(), inputs.len());
            return Err(Refusal::Malformed(reason).into());
        }
        self.count_nodes(1 + graph.initializer.len()).map_err(Failure::Inside)?;
        let names = graph.input.iter().map(|info| info.name.as_str()).zip(inputs);
        scope.names.push(names.collect::<HashMap<_, _>>());
        scope.depth += 1;
        let done = self.add_constants(graph, scope).and_then(|()| self.import_nodes(&graph.node, scope));
        let outputs: Option<Vec<Slot>> = graph.output.iter().map(|info| scope.find_name(&info.name)).collect();
        scope.names.pop();
        scope.depth -= 1;
        done.map_err(Failure::Inside)?;
        outputs.ok_or_else(|| Refusal::Malformed("the subgraph does not produce all of its outputs".to_owned()).into())
    }

    /// Refuses a node with unknown trip count or branch; if such nodes may be skipped, adds its subgraphs once.
    fn refuse_open(
        &mut self,
        reason: &str,
        bodies: Vec<(&'a messages::Graph, Vec<Slot>)>,
        scope: &mut Scope<'a>,
    ) -> Result<Failure, Failure> {
        let what = if bodies.len() > 1 { "of both branches" } else { "of one iteration" };
        if !self.options.skip_unsupported {
            let hint = format!("`--skip-unsupported` leaves the node out and lists the operators {what}");
            return Ok(Refusal::Unsupported(format!("{reason}; {hint}")).into());
        }
        for (graph, inputs) in bodies {
            let made = self.inline_body(graph, inputs, scope)?;
            self.loose_ends.extend(made.iter().filter_map(|slot| require_tensor(slot).ok()));
        }
        Ok(Refusal::Unsupported(format!("{reason}; the operators {what} are listed")).into())
    }

    fn inline_branch(&mut self, call: &Call<'a>, scope: &mut Scope<'a>) -> Slotted {
        let name = match self.emit.known_scalar(call.input(0)?, "condition")? {
            Some(0.0) => "else_branch",
            Some(_) => "then_branch",
            None => {
                let bodies =
                    vec![(graph_of(call, "then_branch")?, Vec::new()), (graph_of(call, "else_branch")?, Vec::new())];
                let reason = "the condition is computed at run time; `--bind NAME=VALUE` fixes an input that the condition depends on";
                return Err(self.refuse_open(reason, bodies, scope)?);
            }
        };
        let graph = graph_of(call, name)?;
        self.inline_body(graph, Vec::new(), scope)
    }

    /// Unrolls a `Loop`: `trip count, condition, states… -> states…, stacked results of all iterations…`.
    fn unroll_loop(&mut self, call: &Call<'a>, slots: &Slots, scope: &mut Scope<'a>) -> Slotted {
        let graph = graph_of(call, "body")?;
        let given = |index: usize| {
            input_slot(call, slots, index).map_or_else(|| malformed(format!("input {index} is missing")), Ok)
        };
        let mut states = (2..call.node.input.len()).map(given).collect::<Outcome<Vec<Slot>>>()?;
        let carried = states.len();
        let Some(infos) = graph.output.get(1 + carried..) else {
            return Err(
                Refusal::Malformed(format!("the subgraph has fewer outputs than the {} states", carried)).into()
            );
        };
        let mut condition = call.optional_input(1);
        if let Some(id) = condition
            && keeps_condition(graph)
            && self.emit.known_scalar(id, "condition")?.is_some_and(|holds| holds != 0.0)
        {
            // The condition holds in each iteration, so only the trip count ends the loop.
            condition = None;
        }
        let mut results = vec![Vec::new(); infos.len()];
        for iteration in 0.. {
            match self.loop_ends(call, condition, iteration)? {
                Ok(true) => break,
                Ok(false) => {}
                Err(reason) => {
                    let inputs = self.iteration_inputs(states, scope).map_err(Failure::Inside)?;
                    return Err(self.refuse_open(&reason, vec![(graph, inputs)], scope)?);
                }
            }
            let counter = self.emit.add_scalar(DType::I64, iteration as f64)?;
            let goes_on = condition.map_or_else(|| self.emit.add_scalar(DType::Bool, 1.0), Ok)?;
            let inputs = [Slot::Value(counter), Slot::Value(goes_on)].into_iter().chain(states).collect();
            let mut made = self.inline_body(graph, inputs, scope)?.into_iter();
            let next =
                made.next().map_or_else(|| malformed("the subgraph has no outputs"), |slot| require_tensor(&slot))?;
            condition = condition.map(|_| next);
            states = made.by_ref().take(carried).collect();
            for (list, slot) in results.iter_mut().zip(made) {
                list.push(require_tensor(&slot)?);
            }
        }
        for (parts, info) in results.iter().zip(infos) {
            states.push(Slot::Value(stack_results(&mut self.emit, parts, 0, info)?));
        }
        Ok(states)
    }

    /// Returns whether a loop ends before this iteration, or why that is unknown.
    fn loop_ends(&self, call: &Call<'a>, condition: Option<ValueId>, iteration: i64) -> Outcome<Result<bool, String>> {
        let most = match call.optional_input(0).map(|id| self.emit.known_scalar(id, "trip count")).transpose()? {
            None => i64::MAX,
            Some(Some(most)) => most as i64,
            Some(None) => {
                let reason = "the number of iterations depends on data at run time; `--bind NAME=VALUE` fixes an input that the number depends on";
                return Ok(Err(reason.to_owned()));
            }
        };
        if iteration >= most {
            return Ok(Ok(true));
        }
        match condition.map(|id| self.emit.known_scalar(id, "condition")).transpose()? {
            Some(None) => return Ok(Err("the loop condition depends on data at run time".to_owned())),
            Some(Some(0.0)) => return Ok(Ok(true)),
            _ => {}
        }
        if iteration < MAX_ITERATIONS && (condition.is_some() || most <= MAX_ITERATIONS) {
            return Ok(Ok(false));
        }
        let count = match (most, condition) {
            (i64::MAX, None) => "an infinite number of iterations".to_owned(),
            (i64::MAX, Some(_)) => format!("more than {MAX_ITERATIONS} iterations"),
            (_, None) => format!("{most} iterations"),
            // A later iteration may clear the condition.
            (_, Some(_)) => format!("up to {most} iterations"),
        };
        Ok(Err(format!("the loop has {count}, but at most {MAX_ITERATIONS} are unrolled")))
    }

    /// Returns the inputs of a loop body for one iteration; the iteration number and the condition become graph inputs.
    fn iteration_inputs(&mut self, states: Vec<Slot>, scope: &Scope<'a>) -> models::error::Result<Vec<Slot>> {
        let scalar = |dtype: DType| TensorType::new(dtype, &[]);
        let counter = self.emit.builder.add_input(&format!("{}turn", scope.place), scalar(DType::I64))?;
        let goes_on = self.emit.builder.add_input(&format!("{}condition", scope.place), scalar(DType::Bool))?;
        Ok([Slot::Value(counter), Slot::Value(goes_on)].into_iter().chain(states).collect())
    }

    /// Unrolls a `Scan`: `states…, tensors that are sliced… -> states…, stacked results of all iterations…`.
    fn unroll_scan(&mut self, call: &Call<'a>, scope: &mut Scope<'a>) -> Slotted {
        let graph = graph_of(call, "body")?;
        // Before version 9, the first input held sequence lengths, and every tensor had a batch dimension.
        let first = usize::from(call.opset < 9);
        if first == 1 && call.optional_input(0).is_some() {
            return Err(Refusal::Unsupported("sequences of different lengths".to_owned()).into());
        }
        let mut states = (first..call.node.input.len()).map(|index| call.input(index)).collect::<Outcome<Vec<_>>>()?;
        let cut = usize::try_from(call.int_attribute("num_scan_inputs", 0))
            .ok()
            .filter(|count| (1..=states.len()).contains(count));
        let Some(cut) = cut else {
            return Err(Refusal::Malformed("`num_scan_inputs` does not fit the number of inputs".to_owned()).into());
        };
        let scanned = states.split_off(states.len() - cut);
        if first == 0 {
            let results = self.scan_one(call, graph, (states, scanned), scope)?;
            return Ok(results.into_iter().map(Slot::Value).collect());
        }
        let batch = self.emit.extents(scanned[0])?.first().copied().unwrap_or(0);
        if !(1..=MAX_ITERATIONS).contains(&batch) {
            return Err(Refusal::Unsupported(format!("a batch size of {batch}; only 1 is supported")).into());
        }
        let mut results: Vec<Vec<ValueId>> = Vec::new();
        for sample in 0..batch {
            let mut of_sample = |ids: &[ValueId]| {
                ids.iter().map(|&id| part_of_batch(&mut self.emit, id, sample, batch)).collect::<Outcome<Vec<_>>>()
            };
            let inputs = (of_sample(&states)?, of_sample(&scanned)?);
            let made = self.scan_one(call, graph, inputs, scope)?;
            results.resize(made.len(), Vec::new());
            results.iter_mut().zip(made).for_each(|(list, id)| list.push(id));
        }
        let joined = results.iter().map(|parts| join_tensors(&mut self.emit, parts, 0, true).map(Slot::Value));
        Ok(joined.collect::<Outcome<Vec<_>>>()?)
    }

    fn scan_one(
        &mut self,
        call: &Call<'a>,
        graph: &'a messages::Graph,
        (mut states, scanned): (Vec<ValueId>, Vec<ValueId>),
        scope: &mut Scope<'a>,
    ) -> Result<Vec<ValueId>, Failure> {
        let carried = states.len();
        let Some(infos) = graph.output.get(carried..) else {
            return Err(Refusal::Malformed(format!("the subgraph has fewer outputs than the {carried} states")).into());
        };
        let axes = ScanAxes::parse_axes(&self.emit, call, &scanned, infos.len())?;
        let mut results = vec![Vec::new(); infos.len()];
        for iteration in 0..axes.iterations {
            let parts = axes.slice_inputs(&mut self.emit, &scanned, iteration)?;
            let inputs = states.iter().copied().map(Slot::Value).chain(parts).collect();
            if axes.iterations > MAX_ITERATIONS {
                let reason =
                    format!("the loop has {} iterations, but at most {MAX_ITERATIONS} are unrolled", axes.iterations);
                return Err(self.refuse_open(&reason, vec![(graph, inputs)], scope)?);
            }
            let made = self.inline_body(graph, inputs, scope)?;
            let made = made.iter().map(require_tensor).collect::<Outcome<Vec<_>>>()?;
            let (next, stacked) = made.split_at(carried);
            states = next.to_vec();
            results.iter_mut().zip(stacked).for_each(|(list, &id)| list.push(id));
        }
        for ((mut parts, info), &(axis, is_reversed)) in results.into_iter().zip(infos).zip(&axes.outputs) {
            if is_reversed {
                parts.reverse();
            }
            states.push(stack_results(&mut self.emit, &parts, axis, info)?);
        }
        Ok(states)
    }

    /// Applies a subgraph to each tensor of a sequence: `sequence, further sequences or tensors… -> sequences`.
    fn map_sequence(&mut self, call: &Call<'a>, slots: &Slots, scope: &mut Scope<'a>) -> Slotted {
        let graph = graph_of(call, "body")?;
        let Some(Slot::Sequence(first)) = slots.get(&0) else {
            return Err(Refusal::Malformed("the first input is not a sequence".to_owned()).into());
        };
        let mut results = vec![Vec::new(); graph.output.len()];
        for iteration in 0..first.len() {
            let body_input = |index: usize| match input_slot(call, slots, index) {
                Some(Slot::Sequence(parts)) => match parts.get(iteration) {
                    Some(&part) => Ok(Slot::Value(part)),
                    None => malformed(format!("input {index} has fewer tensors than the first input")),
                },
                Some(other) => Ok(other),
                None => malformed(format!("input {index} is missing")),
            };
            let inputs = (0..call.node.input.len()).map(body_input).collect::<Outcome<Vec<_>>>()?;
            for (list, slot) in results.iter_mut().zip(self.inline_body(graph, inputs, scope)?) {
                list.push(require_tensor(&slot)?);
            }
        }
        Ok(results.into_iter().map(sequence_slot).collect::<Outcome<Vec<_>>>()?)
    }

    fn flex_attention(&mut self, call: &Call<'a>, scope: &mut Scope<'a>) -> Slotted {
        let mut x = flex::scaled_scores(&mut self.emit, call)?;
        x = self.apply_modifier(call, "score_mod", x, scope)?;
        x = flex::softmax_scores(&mut self.emit, x)?;
        x = self.apply_modifier(call, "prob_mod", x, scope)?;
        Ok(vec![Slot::Value(flex::weigh_values(&mut self.emit, call, x)?)])
    }

    fn apply_modifier(
        &mut self,
        call: &Call<'a>,
        name: &str,
        x: ValueId,
        scope: &mut Scope<'a>,
    ) -> Result<ValueId, Failure> {
        if !call.has_attribute(name) {
            return Ok(x);
        }
        let made = self.inline_body(graph_of(call, name)?, vec![Slot::Value(x)], scope)?;
        match made.as_slice() {
            [slot] => {
                let y = require_tensor(slot)?;
                if self.emit.ty(y)? != self.emit.ty(x)? {
                    return Err(
                        Refusal::Malformed(format!("the subgraph `{name}` changes the type of its input")).into()
                    );
                }
                Ok(y)
            }
            _ => Err(Refusal::Malformed(format!("the subgraph `{name}` must have one output")).into()),
        }
    }
}

fn part_of_batch(emit: &mut Emit<'_>, x: ValueId, sample: i64, batch: i64) -> Outcome<ValueId> {
    match emit.extents(x)?.first() {
        Some(&extent) if extent == batch => take_part(emit, x, 0, sample),
        _ => malformed(format!("{} does not have the batch size {batch}", emit.ty(x)?)),
    }
}

/// Returns whether a loop body returns its condition unchanged. Subgraph inputs: `iteration, condition, states…`.
fn keeps_condition(body: &messages::Graph) -> bool {
    let (Some(condition), Some(result)) = (body.input.get(1), body.output.first()) else { return false };
    let mut name = &result.name;
    for _ in 0..=body.node.len() {
        if *name == condition.name {
            return true;
        }
        let source = body.node.iter().find(|node| node.output.first() == Some(name));
        match source.filter(|node| node.op_type == "Identity" && normalise_domain(&node.domain).is_empty()) {
            Some(node) if node.input.len() == 1 => name = &node.input[0],
            _ => return false,
        }
    }
    false
}
