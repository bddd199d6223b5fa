//! A graph that was cut into calls becomes a program: calls of built code on tensors that have places.
//!
//! Views take no call and no memory: a value that is another one in another shape lies where that one lies. What is
//! computed from constants alone is computed once, here, and stored as the code that reads it wants it. Inputs and
//! outputs lie outside of the memory that intermediate tensors share, because they belong to whoever calls.

mod alive;
mod parts;
mod staged;

pub use alive::lifetimes;
pub use parts::Writing;

use crate::memory::{Lifetime, layout};
use alive::alive;
use job::Packing;
use models::operators::Class;
use models::stages::Stage;
use models::{DType, Graph, Plan, StagePlan, TensorType, ValueId};
use parts::Parts;
use reference::Tensor;
use serde::{Deserialize, Serialize};
use staged::{Span, Staged, in_turns};
use std::collections::HashMap;

/// Everything about running a model but its numbers and its code.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Program {
    /// Name of the model.
    pub name: String,
    /// The calls, in their order.
    pub calls: Vec<Call>,
    /// Tensors given at every run.
    pub inputs: Vec<Port>,
    /// Tensors answered with.
    pub outputs: Vec<Port>,
    /// Tensors that are the same at every run, as they are stored.
    pub constants: Vec<Constant>,
    /// How many codes there are.
    pub codes: usize,
    /// Memory of intermediate tensors.
    pub activation_bytes: u64,
    /// What of it lives at once at the fullest call: no placement takes less.
    pub least_activation_bytes: u64,
    /// Which calls run side by side; none where all run one after the other.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<Stage>,
}

impl Program {
    /// How its calls write.
    pub fn writing(&self) -> Writing {
        let is_in_place = |call: &Call| match call.arguments.split_last() {
            Some((result, operands)) => operands.iter().any(|operand| operand.place == result.place),
            None => false,
        };
        if self.calls.iter().any(is_in_place) { Writing::InPlace } else { Writing::Apart }
    }
}

/// One call of built code.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// Which code.
    pub code: usize,
    /// Its operands; the last is its result.
    pub arguments: Vec<Argument>,
    /// Where it stands in the model.
    pub scope: String,
}

/// A tensor as one call sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Argument {
    /// Where its elements are.
    pub place: Place,
    /// Element type.
    pub dtype: DType,
    /// Extents, as stored.
    pub extents: Vec<i64>,
}

/// Where the elements of a tensor are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// At this offset of the memory of intermediate tensors.
    Activation(u64),
    /// The input of that index.
    Input(usize),
    /// The output of that index.
    Output(usize),
    /// The constant of that index.
    Constant(usize),
}

/// A tensor at the model's border.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Port {
    /// Its name in the model.
    pub name: String,
    /// Element type and shape.
    pub ty: TensorType,
    /// For an output that no call writes: where its elements are instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub same_as: Option<Place>,
}

/// A tensor that is the same at every run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Constant {
    /// The value of the graph.
    pub value: ValueId,
    /// Its type there.
    pub ty: TensorType,
    /// How it is stored.
    pub packing: Packing,
}

/// Why a graph is no program.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum ProgramError {
    #[error("`{name}` is {ty}: a model runs when all its sizes are numbers; give them with `--shape` or `--tokens`")]
    Symbolic { name: String, ty: String },
    #[error("the code of task {task} takes {found} operands, the task has {wanted}")]
    Operands { task: usize, found: usize, wanted: usize },
    #[error(transparent)]
    Model(#[from] models::Error),
}

type Result<T> = std::result::Result<T, ProgramError>;

/// The program of a graph that was cut into calls, whose tasks' codes want their operands, and last their result, stored so.
pub fn program(graph: &Graph, plan: &Plan, packings: &[Vec<Packing>], writing: Writing) -> Result<Program> {
    Ok(made(graph, plan, packings, &in_turns(plan), writing)?.0)
}

/// The same with calls side by side, as a plan that was checked says.
pub fn staged(
    graph: &Graph,
    plan: &Plan,
    packings: &[Vec<Packing>],
    stages: &StagePlan,
    writing: Writing,
) -> Result<Program> {
    let staged = Staged::of(plan, stages);
    let (program, place_of) = made(graph, &staged.plan, packings, &staged.spans, writing)?;
    Ok(Program { stages: staged.stages(&place_of), ..program })
}

/// A program, and the place in it of each call of the plan that has something to do. `spans` says from which call to which each
/// runs beside others.
fn made(
    graph: &Graph,
    plan: &Plan,
    packings: &[Vec<Packing>],
    spans: &[Span],
    writing: Writing,
) -> Result<(Program, Vec<Option<usize>>)> {
    let values = Values::of(graph)?;
    let parts = Parts::of(&values, plan, spans, writing);
    let (activations, memory) = activations(&values, &parts, plan, spans);
    let mut writer = Writer { values: &values, parts: &parts, constants: Vec::new(), places: HashMap::new() };
    writer.places.extend(activations);
    for (index, id) in graph.inputs.iter().enumerate() {
        writer.places.entry(values.root(*id)).or_insert(Place::Input(index));
    }
    // A value that is answered with is written where it is wanted; when it is wanted twice, it is copied.
    let made: HashMap<ValueId, usize> =
        plan.calls.iter().enumerate().map(|(place, call)| (values.root(call.result), place)).collect();
    for (index, id) in graph.outputs.iter().enumerate() {
        if made.contains_key(&values.root(*id)) {
            writer.places.entry(values.root(*id)).or_insert(Place::Output(index));
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
            arguments.push(writer.argument(*id, *packing)?);
        }
        arguments.push(writer.argument(call.result, *result)?);
        let scope = call.nodes.first().map_or(String::new(), |node| graph.nodes[*node].origin.scope.clone());
        calls.push(Call { code: call.task, arguments, scope });
    }
    let port = |id: &ValueId, same_as| {
        let value = &graph.values[id.0 as usize];
        Port { name: value.name.clone(), ty: value.ty.clone(), same_as }
    };
    let inputs = graph.inputs.iter().map(|id| port(id, None)).collect();
    let mut outputs = Vec::with_capacity(graph.outputs.len());
    for (index, id) in graph.outputs.iter().enumerate() {
        let place = writer.argument(*id, Packing::Plain)?.place;
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

/// The values of a graph seen through its views.
struct Values<'a> {
    graph: &'a Graph,
    roots: Vec<ValueId>,
    is_constant: Vec<bool>,
}

impl<'a> Values<'a> {
    fn of(graph: &'a Graph) -> Result<Values<'a>> {
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
        Ok(Values { graph, roots, is_constant })
    }

    fn root(&self, id: ValueId) -> ValueId {
        self.roots[id.0 as usize]
    }

    fn ty(&self, id: ValueId) -> &TensorType {
        &self.graph.values[id.0 as usize].ty
    }

    fn extents(&self, id: ValueId) -> Vec<i64> {
        self.ty(id).extents().expect("all sizes are numbers")
    }
}

/// Places of what calls make and other calls read, and the memory they take: all, and the least.
fn activations(values: &Values, parts: &Parts, plan: &Plan, spans: &[Span]) -> (Vec<(ValueId, Place)>, (u64, u64)) {
    let lifetimes = alive(values, parts, plan, spans);
    let only: Vec<Lifetime> = lifetimes.iter().map(|(_, lifetime)| *lifetime).collect();
    let found = layout(&only);
    let places = lifetimes.iter().zip(&found.offsets).map(|((id, _), offset)| (*id, Place::Activation(*offset)));
    (places.collect(), (found.bytes, found.least_bytes))
}

/// What a program is made of so far.
struct Writer<'a> {
    values: &'a Values<'a>,
    parts: &'a Parts,
    constants: Vec<Constant>,
    places: HashMap<ValueId, Place>,
}

impl Writer<'_> {
    fn argument(&mut self, id: ValueId, packing: Packing) -> Result<Argument> {
        let (ty, extents) = (self.values.ty(id).clone(), self.values.extents(id));
        let is_constant = self.values.is_constant[id.0 as usize];
        let (whole, offset) = self.parts.whole(self.values.root(id));
        let place = match self.places.get(&whole) {
            Some(Place::Activation(start)) if !is_constant => Place::Activation(start + offset),
            Some(place) if !is_constant => *place,
            _ => Place::Constant(self.constant(Constant { value: id, ty: ty.clone(), packing })),
        };
        Ok(Argument { place, dtype: packing.dtype(ty.dtype), extents: packing.extents(&extents) })
    }

    fn constant(&mut self, wanted: Constant) -> usize {
        let known = self.constants.iter().position(|one| one.value == wanted.value && one.packing == wanted.packing);
        known.unwrap_or_else(|| {
            self.constants.push(wanted);
            self.constants.len() - 1
        })
    }
}

/// The numbers that a graph's constants are and become, each computed when it is first asked for.
pub struct Numbers<'a> {
    /// The graph.
    pub graph: &'a Graph,
    constants: &'a [Option<Tensor>],
    /// What follows from constants.
    computed: HashMap<ValueId, Tensor>,
    /// The node that makes each value.
    makers: HashMap<ValueId, usize>,
}

impl<'a> Numbers<'a> {
    /// Those of a graph with these constants (`reference::constants`).
    pub fn of(graph: &'a Graph, constants: &'a [Option<Tensor>]) -> Numbers<'a> {
        let makers = graph.nodes.iter().enumerate().map(|(place, node)| (node.outputs[0], place)).collect();
        Numbers { graph, constants, computed: HashMap::new(), makers }
    }

    /// The bytes of a constant as it is stored.
    pub fn stored(&mut self, constant: &Constant) -> Result<Vec<u8>> {
        let extents = constant.ty.extents().expect("all sizes are numbers");
        let element_bytes = usize::try_from(constant.ty.dtype.bytes()).expect("an element is small");
        if constant.ty.elements() == Some(0) {
            return Ok(Vec::new());
        }
        let tensor = self.tensor(constant.value)?;
        Ok(constant.packing.pack(&extents, element_bytes, tensor.bytes()))
    }

    fn tensor(&mut self, id: ValueId) -> Result<&Tensor> {
        let mut wanted = vec![id];
        while let Some(&next) = wanted.last() {
            if self.known(next).is_some() {
                wanted.pop();
                continue;
            }
            let node = &self.graph.nodes[self.makers[&next]];
            let missing: Vec<ValueId> = node.inputs.iter().copied().filter(|&id| self.known(id).is_none()).collect();
            if missing.is_empty() {
                let inputs: Vec<Tensor> =
                    node.inputs.iter().map(|&id| self.known(id).expect("just looked for").clone()).collect();
                self.computed.insert(next, reference::evaluate_operator(&node.op, &inputs)?);
            } else {
                wanted.extend(missing);
            }
        }
        Ok(self.known(id).expect("just computed"))
    }

    fn known(&self, id: ValueId) -> Option<&Tensor> {
        self.constants[id.0 as usize].as_ref().or_else(|| self.computed.get(&id))
    }
}

#[cfg(test)]
mod tests;
