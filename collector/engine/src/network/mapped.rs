//! Runs a quantised model on a simulated FPGA accelerator, with the CPU computing the rest.
//!
//! Supported layers are computed by executing the accelerator's instructions, with bit-exact results, all else by the
//! reference. A layer's scales become shifts (`accelerator::fold_scales`), so the outputs are those of the model as the
//! accelerator represents it. Its times are cycles of a timing model and are never added to other times.

use accelerator::{
    FunctionalMachine, Program, TimedProgram, check_program, fold_scales, generate_program, simulate_program,
};
use job::space::{core_knobs, task_space};
use models::{Call, Graph, Plan, Task, TensorType, ValueId};
use reference::Tensor;
use std::collections::HashMap;
use targets::{Fabric, Target};

/// Reason why a model cannot be computed on the FPGA accelerator.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum MappedError {
    #[error("the core and the reference differ at `{0}`, which is a bug in this program")]
    Differs(String),
    #[error("at `{place}`: {why}")]
    Core { place: String, why: String },
    #[error(transparent)]
    Model(#[from] models::Error),
}

/// Result of a model whose supported layers ran on the FPGA accelerator.
pub struct MappedRun {
    /// Outputs of the model.
    pub outputs: Vec<Tensor>,
    /// Calls of the model in execution order.
    pub calls: Vec<MappedCall>,
}

/// A call of the model, with the unit that computes it.
pub struct MappedCall {
    /// Index of the task in the plan.
    pub task: usize,
    /// Name of the call in the model.
    pub scope: String,
    /// The accelerator with the times of its timing model, or the CPU with the reason.
    pub unit: ComputeUnit,
}

/// A computing unit of a board.
pub enum ComputeUnit {
    /// The FPGA accelerator.
    Core(TimedProgram),
    /// The board's CPU, with the reason why the accelerator does not compute the call.
    Cpu(String),
}

/// Computes all calls and remaining nodes of a graph. `done` is called after each call.
pub fn compute_graph(
    (graph, plan): (&Graph, &Plan),
    constants: &[Option<Tensor>],
    inputs: &[Tensor],
    on: &MappedCore<'_>,
    done: &mut dyn FnMut(),
) -> Result<MappedRun, MappedError> {
    let mut values = MappedValues::from_graph(graph, constants, inputs);
    let by_result: HashMap<ValueId, &Call> = plan.calls.iter().map(|call| (call.result, call)).collect();
    // Nodes inside a call are not computed separately.
    let mut inside = vec![false; graph.nodes.len()];
    plan.calls.iter().flat_map(|call| &call.nodes).for_each(|node| inside[*node] = true);
    let mut calls = Vec::with_capacity(plan.calls.len());
    for (place, node) in graph.nodes.iter().enumerate() {
        let result = node.outputs[0];
        let Some(call) = by_result.get(&result) else {
            if !inside[place] {
                values.evaluate_node(place)?;
            }
            continue;
        };
        let scope = call.nodes.first().map_or(String::new(), |node| graph.nodes[*node].origin.scope.clone());
        let task = &plan.tasks[call.task].task;
        let unit = match on.compute_layer(task, call, &values, &scope)? {
            Ok((bytes, timed)) => {
                let ty = graph.values[result.0 as usize].ty.clone();
                values.set(result, Tensor::from_bytes(ty, bytes)?);
                ComputeUnit::Core(timed)
            }
            Err(why) => {
                let operands: Vec<Tensor> = call.arguments.iter().map(|id| values.get(*id).clone()).collect();
                values.set(result, reference::evaluate_task(task, &operands)?);
                ComputeUnit::Cpu(why)
            }
        };
        calls.push(MappedCall { task: call.task, scope, unit });
        done();
    }
    let outputs = graph.outputs.iter().map(|id| values.get(*id).clone()).collect();
    Ok(MappedRun { outputs, calls })
}

/// A simulated FPGA accelerator.
pub struct MappedCore<'a> {
    /// Description of the accelerator and its board.
    pub fabric: &'a Fabric,
    /// Target that determines the schedule spaces.
    pub target: &'a Target,
    /// Seed of the random choice among accelerator modules that can proceed.
    pub seed: u64,
}

impl MappedCore<'_> {
    /// Computes a layer on the accelerator and its simulated times, or returns why the CPU must compute it.
    fn compute_layer(
        &self,
        task: &Task,
        call: &Call,
        values: &MappedValues<'_>,
        scope: &str,
    ) -> Result<Result<(Vec<u8>, TimedProgram), String>, MappedError> {
        let known = call.arguments.iter().map(|id| values.is_constant(*id).then(|| values.get(*id).to_numbers()));
        let folded = match fold_scales(task, &known.collect::<Vec<_>>()) {
            Ok(folded) => folded,
            Err(why) => return Ok(Err(why.to_string())),
        };
        let data = match task.steps[0].inputs.first() {
            Some(models::Operand::Parameter(place)) => values.get(call.arguments[*place]),
            _ => return Ok(Err("the input of the layer is not a parameter of its task".to_owned())),
        };
        let program = match self.generate_program(&folded.task) {
            Ok(program) => program,
            Err(why) => return Ok(Err(why)),
        };
        let failed = |why: String| MappedError::Core { place: scope.to_owned(), why };
        check_program(&program).map_err(|error| failed(error.to_string()))?;
        let operands: Vec<&[u8]> =
            std::iter::once(data.as_bytes()).chain(folded.constants.iter().map(Vec::as_slice)).collect();
        let computed = FunctionalMachine::compute_result(&program, &operands, self.seed)
            .map_err(|error| failed(error.to_string()))?;
        let types = folded.task.parameters.iter().map(|parameter| parameter.ty.clone());
        let tensors = types.zip(operands).map(|(ty, bytes): (TensorType, _)| Tensor::from_bytes(ty, bytes.to_vec()));
        let wanted = reference::evaluate_task(&folded.task, &tensors.collect::<Result<Vec<Tensor>, _>>()?)?;
        if wanted.as_bytes() != computed.0 {
            return Err(MappedError::Differs(scope.to_owned()));
        }
        let timed =
            simulate_program(&program, &self.fabric.timing_set().timing).map_err(|error| failed(error.to_string()))?;
        Ok(Ok((computed.0, timed)))
    }

    fn generate_program(&self, task: &Task) -> Result<Program, String> {
        let layer = accelerator::layer_of(task).map_err(|why| why.to_string())?;
        let knobs = core_knobs(&task_space(task, &self.target.machine).default);
        let knobs = knobs.ok_or_else(|| "no tiling fits the accelerator".to_owned())?;
        generate_program(&self.fabric.core(), &layer, &knobs)
            .map_err(|why| format!("the layer does not fit the accelerator: {why}"))
    }
}

struct MappedValues<'a> {
    graph: &'a Graph,
    known: Vec<Option<Tensor>>,
    is_constant: Vec<bool>,
}

impl<'a> MappedValues<'a> {
    fn from_graph(graph: &'a Graph, constants: &[Option<Tensor>], inputs: &[Tensor]) -> MappedValues<'a> {
        let mut known = constants.to_vec();
        let mut is_constant: Vec<bool> = known.iter().map(Option::is_some).collect();
        for (id, input) in graph.inputs.iter().zip(inputs) {
            known[id.0 as usize] = Some(input.clone());
        }
        for node in &graph.nodes {
            is_constant[node.outputs[0].0 as usize] = node.inputs.iter().all(|id| is_constant[id.0 as usize]);
        }
        MappedValues { graph, known, is_constant }
    }

    fn get(&self, id: ValueId) -> &Tensor {
        self.known[id.0 as usize].as_ref().expect("nodes are in topological order")
    }

    fn set(&mut self, id: ValueId, tensor: Tensor) {
        self.known[id.0 as usize] = Some(tensor);
    }

    fn is_constant(&self, id: ValueId) -> bool {
        self.is_constant[id.0 as usize]
    }

    /// Computes a node that belongs to no call: a view, or a value that depends only on constants.
    fn evaluate_node(&mut self, node: usize) -> Result<(), models::Error> {
        let node = &self.graph.nodes[node];
        let inputs: Vec<Tensor> = node.inputs.iter().map(|id| self.get(*id).clone()).collect();
        let output = reference::evaluate_operator(&node.op, &inputs)?;
        self.set(node.outputs[0], output);
        Ok(())
    }
}
