//! Lowers a partitioned graph to a program: calls of compiled code on tensors with memory locations. Views need no call
//! and no memory. Values that depend only on constants are computed at lowering and stored in the layout that their
//! reader expects. Inputs and outputs belong to the caller.

mod alive;
mod parts;
mod staged;

pub use alive::program_lifetimes;
pub use parts::Writing;

use crate::memory::{Lifetime, place_tensors};
use alive::live_ranges;
use job::Packing;
use models::operators::Class;
use models::stages::Stage;
use models::{DType, Graph, Plan, StagePlan, TensorType, ValueId};
use parts::ResultParts;
use reference::Tensor;
use serde::{Deserialize, Serialize};
use staged::{StageSpan, Staged, sequential_spans};
use std::collections::{BTreeSet, HashMap};

/// Everything needed to run a model except constants and code.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Program {
    pub name: String,
    pub calls: Vec<Call>,
    pub inputs: Vec<ProgramPort>,
    pub outputs: Vec<ProgramPort>,
    pub constants: Vec<Constant>,
    pub codes: usize,
    pub activation_bytes: u64,
    /// Maximum total size of simultaneously live tensors, a lower bound of `activation_bytes`.
    pub least_activation_bytes: u64,
    /// Stages of concurrent calls; empty for sequential execution.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<Stage>,
}

impl Program {
    /// Returns the number of different codes that are called. Concatenations whose operands are placed in the result
    /// have code, but no call.
    pub fn called_codes(&self) -> usize {
        self.calls.iter().map(|call| call.code).collect::<BTreeSet<_>>().len()
    }

    pub fn writing_mode(&self) -> Writing {
        let is_in_place = |call: &Call| match call.arguments.split_last() {
            Some((result, operands)) => operands.iter().any(|operand| operand.place == result.place),
            None => false,
        };
        if self.calls.iter().any(is_in_place) { Writing::InPlace } else { Writing::Apart }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Call {
    pub code: usize,
    /// Tensors that are passed to the code; the last one is the result.
    pub arguments: Vec<CallArgument>,
    pub scope: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallArgument {
    pub place: Place,
    pub dtype: DType,
    /// Extents of the tensor in its stored layout.
    pub extents: Vec<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// Offset in the memory of intermediate tensors.
    Activation(u64),
    Input(usize),
    Output(usize),
    Constant(usize),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProgramPort {
    pub name: String,
    pub ty: TensorType,
    /// Location of the data of an output that no call writes, such as a constant; None if a call writes the output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub same_as: Option<Place>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Constant {
    pub value: ValueId,
    pub ty: TensorType,
    pub packing: Packing,
}

#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum ProgramError {
    #[error("the dimensions of `{name}` ({ty}) must be known to run a model; set them with `--shape` or `--tokens`")]
    Symbolic { name: String, ty: String },
    #[error("the code of task {task} takes {found} operands, but the task has {wanted}")]
    Operands { task: usize, found: usize, wanted: usize },
    #[error("the code stores a constant of {dtype} as {packing}")]
    Format { dtype: DType, packing: Packing },
    #[error(transparent)]
    Model(#[from] models::Error),
}

type Result<T> = std::result::Result<T, ProgramError>;

/// Lowers a partitioned graph to sequential calls; `packings` has, per task, the layouts of operands and result.
pub fn lower_sequential(graph: &Graph, plan: &Plan, packings: &[Vec<Packing>], writing: Writing) -> Result<Program> {
    Ok(lower_with_spans(graph, plan, packings, &sequential_spans(plan), writing)?.0)
}

pub fn lower_staged(
    graph: &Graph,
    plan: &Plan,
    packings: &[Vec<Packing>],
    stages: &StagePlan,
    writing: Writing,
) -> Result<Program> {
    let staged = Staged::from_plan(plan, stages);
    let (program, place_of) = lower_with_spans(graph, &staged.plan, packings, &staged.spans, writing)?;
    Ok(Program { stages: staged.program_stages(&place_of), ..program })
}

/// Lowers a graph; `spans` holds each call's concurrent calls. Also returns the index in the program of each planned
/// call, `None` for calls that need no work.
fn lower_with_spans(
    graph: &Graph,
    plan: &Plan,
    packings: &[Vec<Packing>],
    spans: &[StageSpan],
    writing: Writing,
) -> Result<(Program, Vec<Option<usize>>)> {
    let values = ProgramValues::from_graph(graph)?;
    let parts = ResultParts::find_nesting(&values, plan, spans, writing);
    let (activations, memory) = place_activations(&values, &parts, plan, spans);
    let mut writer = ProgramWriter { values: &values, parts: &parts, constants: Vec::new(), places: HashMap::new() };
    writer.places.extend(activations);
    for (index, id) in graph.inputs.iter().enumerate() {
        writer.places.entry(values.root_value(*id)).or_insert(Place::Input(index));
    }
    // A value that is an output is written directly to it. A second occurrence among the outputs is a copy.
    let made: HashMap<ValueId, usize> =
        plan.calls.iter().enumerate().map(|(place, call)| (values.root_value(call.result), place)).collect();
    for (index, id) in graph.outputs.iter().enumerate() {
        if made.contains_key(&values.root_value(*id)) {
            writer.places.entry(values.root_value(*id)).or_insert(Place::Output(index));
        }
    }
    let mut calls = Vec::with_capacity(plan.calls.len());
    let mut place_of = vec![None; plan.calls.len()];
    for (place, call) in plan.calls.iter().enumerate().filter(|(place, _)| !parts.is_done(*place)) {
        place_of[place] = Some(calls.len());
        let stored = &packings[call.task];
        let (found, wanted) = (stored.len(), call.arguments.len() + 1);
        let Some((result, stored)) = stored.split_last().filter(|_| found == wanted) else {
            return Err(ProgramError::Operands { task: call.task, found, wanted });
        };
        let mut arguments = Vec::with_capacity(call.arguments.len() + 1);
        for (id, packing) in call.arguments.iter().zip(stored) {
            arguments.push(writer.make_argument(*id, *packing)?);
        }
        arguments.push(writer.make_argument(call.result, *result)?);
        let scope = call.nodes.first().map_or(String::new(), |node| graph.nodes[*node].origin.scope.clone());
        calls.push(Call { code: call.task, arguments, scope });
    }
    let port = |id: &ValueId, same_as| {
        let value = &graph.values[id.0 as usize];
        ProgramPort { name: value.name.clone(), ty: value.ty.clone(), same_as }
    };
    let inputs = graph.inputs.iter().map(|id| port(id, None)).collect();
    let mut outputs = Vec::with_capacity(graph.outputs.len());
    for (index, id) in graph.outputs.iter().enumerate() {
        let place = writer.make_argument(*id, Packing::Plain)?.place;
        outputs.push(port(id, (place != Place::Output(index)).then_some(place)));
    }
    let program = Program {
        name: graph.name.clone(),
        calls,
        inputs,
        outputs,
        constants: writer.constants,
        codes: plan.tasks.len(),
        activation_bytes: memory.0,
        least_activation_bytes: memory.1,
        stages: Vec::new(),
    };
    Ok((program, place_of))
}

struct ProgramValues<'a> {
    graph: &'a Graph,
    roots: Vec<ValueId>,
    is_constant: Vec<bool>,
}

impl<'a> ProgramValues<'a> {
    fn from_graph(graph: &'a Graph) -> Result<ProgramValues<'a>> {
        for value in &graph.values {
            if value.ty.extents().is_none() {
                return Err(ProgramError::Symbolic { name: value.name.clone(), ty: value.ty.to_string() });
            }
        }
        let mut roots: Vec<ValueId> = (0..).map(ValueId).take(graph.values.len()).collect();
        let mut is_constant: Vec<bool> = graph.values.iter().map(|value| value.data.is_some()).collect();
        for node in &graph.nodes {
            let output = node.outputs[0].0 as usize;
            is_constant[output] = node.inputs.iter().all(|id| is_constant[id.0 as usize]);
            if node.op.class() == Class::View && !is_constant[output] {
                roots[output] = roots[node.inputs[0].0 as usize];
            }
        }
        Ok(ProgramValues { graph, roots, is_constant })
    }

    fn root_value(&self, id: ValueId) -> ValueId {
        self.roots[id.0 as usize]
    }

    fn type_of(&self, id: ValueId) -> &TensorType {
        &self.graph.values[id.0 as usize].ty
    }

    fn extents_of(&self, id: ValueId) -> Vec<i64> {
        self.type_of(id).extents().expect("all dimensions are known")
    }
}

/// Returns the memory locations of intermediate tensors, and the total memory with its lower bound, in bytes.
fn place_activations(
    values: &ProgramValues,
    parts: &ResultParts,
    plan: &Plan,
    spans: &[StageSpan],
) -> (Vec<(ValueId, Place)>, (u64, u64)) {
    let lifetimes = live_ranges(values, parts, plan, spans);
    let only: Vec<Lifetime> = lifetimes.iter().map(|(_, lifetime)| *lifetime).collect();
    let found = place_tensors(&only);
    let places = lifetimes.iter().zip(&found.offsets).map(|((id, _), offset)| (*id, Place::Activation(*offset)));
    (places.collect(), (found.bytes, found.least_bytes))
}

struct ProgramWriter<'a> {
    values: &'a ProgramValues<'a>,
    parts: &'a ResultParts,
    constants: Vec<Constant>,
    places: HashMap<ValueId, Place>,
}

impl ProgramWriter<'_> {
    fn make_argument(&mut self, id: ValueId, packing: Packing) -> Result<CallArgument> {
        let (ty, extents) = (self.values.type_of(id).clone(), self.values.extents_of(id));
        let is_constant = self.values.is_constant[id.0 as usize];
        let (whole, offset) = self.parts.outermost_tensor(self.values.root_value(id));
        let place = match self.places.get(&whole) {
            Some(Place::Activation(start)) if !is_constant => Place::Activation(start + offset),
            Some(place) if !is_constant => *place,
            _ => Place::Constant(self.intern_constant(Constant { value: id, ty: ty.clone(), packing })),
        };
        Ok(CallArgument { place, dtype: packing.stored_dtype(ty.dtype), extents: packing.stored_extents(&extents) })
    }

    fn intern_constant(&mut self, wanted: Constant) -> usize {
        let known = self.constants.iter().position(|one| one.value == wanted.value && one.packing == wanted.packing);
        known.unwrap_or_else(|| {
            self.constants.push(wanted);
            self.constants.len() - 1
        })
    }
}

/// Constants, and values computed from constants alone, each evaluated on demand.
pub struct Numbers<'a> {
    pub graph: &'a Graph,
    constants: &'a [Option<Tensor>],
    computed: HashMap<ValueId, Tensor>,
    makers: HashMap<ValueId, usize>,
}

impl<'a> Numbers<'a> {
    pub fn from_constants(graph: &'a Graph, constants: &'a [Option<Tensor>]) -> Numbers<'a> {
        let makers = graph.nodes.iter().enumerate().map(|(place, node)| (node.outputs[0], place)).collect();
        Numbers { graph, constants, computed: HashMap::new(), makers }
    }

    pub fn stored_bytes(&mut self, constant: &Constant) -> Result<Vec<u8>> {
        let extents = constant.ty.extents().expect("all dimensions are known");
        let element_bytes = usize::try_from(constant.ty.dtype.size_bytes()).expect("an element is small");
        if constant.ty.element_count() == Some(0) {
            return Ok(Vec::new());
        }
        let tensor = self.compute_tensor(constant.value)?;
        let packed = constant.packing.pack(&extents, element_bytes, tensor.as_bytes());
        packed.ok_or(ProgramError::Format { dtype: constant.ty.dtype, packing: constant.packing })
    }

    fn compute_tensor(&mut self, id: ValueId) -> Result<&Tensor> {
        let mut wanted = vec![id];
        while let Some(&next) = wanted.last() {
            if self.known_tensor(next).is_some() {
                wanted.pop();
                continue;
            }
            let node = &self.graph.nodes[self.makers[&next]];
            let missing: Vec<ValueId> =
                node.inputs.iter().copied().filter(|&id| self.known_tensor(id).is_none()).collect();
            if missing.is_empty() {
                let inputs: Vec<Tensor> = node
                    .inputs
                    .iter()
                    .map(|&id| self.known_tensor(id).expect("all inputs were computed").clone())
                    .collect();
                self.computed.insert(next, reference::evaluate_operator(&node.op, &inputs)?);
            } else {
                wanted.extend(missing);
            }
        }
        Ok(self.known_tensor(id).expect("the tensor was just computed"))
    }

    fn known_tensor(&self, id: ValueId) -> Option<&Tensor> {
        self.constants[id.0 as usize].as_ref().or_else(|| self.computed.get(&id))
    }
}

#[cfg(test)]
mod tests;
