//! A quantised model on a core of a board's fabric, with the CPU taking the rest: what it answers, and who computes what.
//!
//! Layers that have a form of the core are computed from its instructions, bit by bit, and everything else as the reference
//! computes it. A layer's scales become shifts (`accelerator::fold_scales`), so the answer is that of the model as the core has it,
//! which is compared with the model as its file has it. Times of the core are cycles of a model, and nothing here adds them to
//! anything else.

use accelerator::{Machine, Program, Timed, check, fold_scales, generate, simulate};
use job::space::{core_knobs, space};
use models::{Call, Graph, Plan, Task, TensorType, ValueId};
use reference::Tensor;
use std::collections::HashMap;
use targets::{Fabric, Target};

/// Why a model has no answer there.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum MappedError {
    #[error("the core and the reference differ at `{0}`, which is a fault of this program")]
    Differs(String),
    #[error("at `{place}`: {why}")]
    Core { place: String, why: String },
    #[error(transparent)]
    Model(#[from] models::Error),
}

/// What became of a model.
pub struct Mapped {
    /// What it answers.
    pub outputs: Vec<Tensor>,
    /// Its calls in their order.
    pub calls: Vec<OnUnit>,
}

/// Who computes a call.
pub struct OnUnit {
    /// The task of the plan.
    pub task: usize,
    /// Where it stands in the model.
    pub scope: String,
    /// The core, with what its timing model says, or the CPU, with the reason.
    pub unit: Unit,
}

/// A part of a board that computes.
pub enum Unit {
    /// The core on the fabric.
    Core(Timed),
    /// The CPU beside it.
    Cpu(String),
}

/// Computes a graph that was cut into calls; `done` hears of each call.
pub fn compute(
    (graph, plan): (&Graph, &Plan),
    constants: &[Option<Tensor>],
    inputs: &[Tensor],
    on: &Core<'_>,
    done: &mut dyn FnMut(),
) -> Result<Mapped, MappedError> {
    let mut values = Values::of(graph, constants, inputs);
    let by_result: HashMap<ValueId, &Call> = plan.calls.iter().map(|call| (call.result, call)).collect();
    // What stands inside of a call is nobody else's.
    let mut inside = vec![false; graph.nodes.len()];
    plan.calls.iter().flat_map(|call| &call.nodes).for_each(|node| inside[*node] = true);
    let mut calls = Vec::with_capacity(plan.calls.len());
    for (place, node) in graph.nodes.iter().enumerate() {
        let result = node.outputs[0];
        let Some(call) = by_result.get(&result) else {
            if !inside[place] {
                values.evaluate(place)?;
            }
            continue;
        };
        let scope = call.nodes.first().map_or(String::new(), |node| graph.nodes[*node].origin.scope.clone());
        let task = &plan.tasks[call.task].task;
        let unit = match on.layer(task, call, &values, &scope)? {
            Ok((bytes, timed)) => {
                let ty = graph.values[result.0 as usize].ty.clone();
                values.set(result, Tensor::from_bytes(ty, bytes)?);
                Unit::Core(timed)
            }
            Err(why) => {
                let operands: Vec<Tensor> = call.arguments.iter().map(|id| values.get(*id).clone()).collect();
                values.set(result, reference::evaluate(task, &operands)?);
                Unit::Cpu(why)
            }
        };
        calls.push(OnUnit { task: call.task, scope, unit });
        done();
    }
    let outputs = graph.outputs.iter().map(|id| values.get(*id).clone()).collect();
    Ok(Mapped { outputs, calls })
}

/// A simulated core.
pub struct Core<'a> {
    /// Which.
    pub fabric: &'a Fabric,
    /// What spaces are made for.
    pub target: &'a Target,
    /// Which of its modules goes on where several can.
    pub seed: u64,
}

impl Core<'_> {
    /// A layer's result and its times; the reason where it is the CPU's.
    fn layer(
        &self,
        task: &Task,
        call: &Call,
        values: &Values<'_>,
        scope: &str,
    ) -> Result<Result<(Vec<u8>, Timed), String>, MappedError> {
        let known = call.arguments.iter().map(|id| values.is_constant(*id).then(|| values.get(*id).numbers()));
        let folded = match fold_scales(task, &known.collect::<Vec<_>>()) {
            Ok(folded) => folded,
            Err(why) => return Ok(Err(why.to_string())),
        };
        let data = match task.steps[0].inputs.first() {
            Some(models::Operand::Parameter(place)) => values.get(call.arguments[*place]),
            _ => return Ok(Err("it reads something that is no parameter".to_owned())),
        };
        let program = match self.program(&folded.task) {
            Ok(program) => program,
            Err(why) => return Ok(Err(why)),
        };
        let failed = |why: String| MappedError::Core { place: scope.to_owned(), why };
        check(&program).map_err(|error| failed(error.to_string()))?;
        let operands: Vec<&[u8]> =
            std::iter::once(data.bytes()).chain(folded.constants.iter().map(Vec::as_slice)).collect();
        let computed = Machine::compute(&program, &operands, self.seed).map_err(|error| failed(error.to_string()))?;
        let types = folded.task.parameters.iter().map(|parameter| parameter.ty.clone());
        let tensors = types.zip(operands).map(|(ty, bytes): (TensorType, _)| Tensor::from_bytes(ty, bytes.to_vec()));
        let wanted = reference::evaluate(&folded.task, &tensors.collect::<Result<Vec<Tensor>, _>>()?)?;
        if wanted.bytes() != computed.0 {
            return Err(MappedError::Differs(scope.to_owned()));
        }
        let timed = simulate(&program, &self.fabric.timing().timing).map_err(|error| failed(error.to_string()))?;
        Ok(Ok((computed.0, timed)))
    }

    fn program(&self, task: &Task) -> Result<Program, String> {
        let layer = accelerator::layer_of(task).map_err(|why| why.to_string())?;
        let knobs = core_knobs(&space(task, &self.target.machine).default);
        let knobs = knobs.ok_or_else(|| "no cut of it fits the core".to_owned())?;
        generate(&self.fabric.core(), &layer, &knobs).map_err(|why| format!("it does not fit: {why}"))
    }
}

/// The values of a graph as they become known.
struct Values<'a> {
    graph: &'a Graph,
    known: Vec<Option<Tensor>>,
    is_constant: Vec<bool>,
}

impl<'a> Values<'a> {
    fn of(graph: &'a Graph, constants: &[Option<Tensor>], inputs: &[Tensor]) -> Values<'a> {
        let mut known = constants.to_vec();
        let mut is_constant: Vec<bool> = known.iter().map(Option::is_some).collect();
        for (id, input) in graph.inputs.iter().zip(inputs) {
            known[id.0 as usize] = Some(input.clone());
        }
        for node in &graph.nodes {
            is_constant[node.outputs[0].0 as usize] = node.inputs.iter().all(|id| is_constant[id.0 as usize]);
        }
        Values { graph, known, is_constant }
    }

    fn get(&self, id: ValueId) -> &Tensor {
        self.known[id.0 as usize].as_ref().expect("a graph's nodes stand in an order in which they can be computed")
    }

    fn set(&mut self, id: ValueId, tensor: Tensor) {
        self.known[id.0 as usize] = Some(tensor);
    }

    fn is_constant(&self, id: ValueId) -> bool {
        self.is_constant[id.0 as usize]
    }

    /// A node that is no call: a view, or something that follows from constants.
    fn evaluate(&mut self, node: usize) -> Result<(), models::Error> {
        let node = &self.graph.nodes[node];
        let inputs: Vec<Tensor> = node.inputs.iter().map(|id| self.get(*id).clone()).collect();
        let output = reference::evaluate_operator(&node.op, &inputs)?;
        self.set(node.outputs[0], output);
        Ok(())
    }
}
