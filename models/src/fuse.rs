//! Partitions a graph into tasks.
//!
//! A group starts at a contraction, a pool, a reduction or a normalisation. It is extended by the next pointwise
//! operator as long as this operator is the only reader of the previous value and keeps its shape; other inputs of the
//! group become parameters. The remaining pointwise and movement operators start groups of their own. Views are free
//! and belong to no group. Neither do operators without output elements, nor operators on constants only, which run
//! once and not per run.

use crate::choice;
use crate::error::Result;
use crate::graph::{Graph, ValueId};
use crate::operators::{Class, Op};
use crate::task::{Operand, Parameter, Step, Task, TaskUse};
use std::collections::HashMap;

/// Maximum number of operators of a group.
const MAX_STEPS: usize = 64;

/// Maximum number of functions of a group whose code reads the operand several times. Each of them repeats the code of
/// the operators before it, so that the time of a build grows exponentially with their number.
const MAX_REPEATS: usize = 4;

choice! {
    /// Whether pointwise operators join the operator before them.
    #[derive(Default)]
    pub enum Fuse {
        /// Pointwise operators join the preceding operator
        #[default]
        Epilogue = "epilogue",
        /// Each operator is a separate task
        None = "none",
    }
}

/// A graph as a sequence of task calls.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The distinct tasks, in the order of their first call.
    pub tasks: Vec<TaskUse>,
    /// The calls, in an order in which they can run.
    pub calls: Vec<Call>,
}

/// One call of a task in the graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Index into the plan's tasks.
    pub task: usize,
    /// Values of the graph for the task's parameters.
    pub arguments: Vec<ValueId>,
    /// Value of the graph for the task's result.
    pub result: ValueId,
    /// Indices of the graph's nodes that the task computes; the main operator comes first.
    pub nodes: Vec<usize>,
}

/// Operators that a partner library computes as one task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Indices of nodes in the order of the graph.
    pub nodes: Vec<usize>,
    /// Name of the partner.
    pub partner: &'static str,
}

/// Returns the distinct tasks of a graph, each with the scopes where it occurs, in the order of their first call.
pub fn distinct_tasks(graph: &Graph, fuse: Fuse) -> Result<Vec<TaskUse>> {
    Ok(plan_calls(graph, fuse)?.tasks)
}

/// Partitions a graph into calls of tasks.
pub fn plan_calls(graph: &Graph, fuse: Fuse) -> Result<Plan> {
    plan_with(graph, fuse, &[])
}

/// Like `plan_calls`, but partner libraries compute the claimed operators. Ignores claims that form no valid task.
pub fn plan_with(graph: &Graph, fuse: Fuse, claims: &[Claim]) -> Result<Plan> {
    graph.check_default()?;
    let cut = Cut::from_graph(graph);
    let mut plan = Plan { tasks: vec![], calls: vec![] };
    let groups = cut.group_nodes(fuse, claims);
    // A single task equals no other, so its hash, which takes long, is not needed.
    let is_single = groups.len() == 1;
    let mut index_of: HashMap<(Option<String>, Option<&str>), usize> = HashMap::new();
    for (nodes, partner) in groups {
        let (task, arguments) = cut.build_task(&nodes);
        task.check()?;
        let hash = (!is_single).then(|| task.hash());
        let index = *index_of.entry((hash, partner)).or_insert(plan.tasks.len());
        if index == plan.tasks.len() {
            plan.tasks.push(TaskUse { task, places: vec![], partner: partner.map(str::to_owned) });
        }
        plan.tasks[index].places.push(graph.nodes[nodes[0]].origin.scope.clone());
        let result = cut.output_of(nodes[nodes.len() - 1]);
        plan.calls.push(Call { task: index, arguments, result, nodes });
    }
    Ok(plan)
}

struct Cut<'a> {
    graph: &'a Graph,
    /// For each value, the indices of the nodes that read it, once per read.
    readers: Vec<Vec<usize>>,
    is_output: Vec<bool>,
    /// For each value, whether it is the same in all runs, because it depends on constants only.
    is_constant: Vec<bool>,
}

impl<'a> Cut<'a> {
    fn from_graph(graph: &'a Graph) -> Cut<'a> {
        let mut readers = vec![vec![]; graph.values.len()];
        let mut is_constant: Vec<bool> = graph.values.iter().map(|value| value.data.is_some()).collect();
        for (index, node) in graph.nodes.iter().enumerate() {
            node.inputs.iter().for_each(|id| readers[id.0 as usize].push(index));
            is_constant[node.outputs[0].0 as usize] = node.inputs.iter().all(|id| is_constant[id.0 as usize]);
        }
        let mut is_output = vec![false; graph.values.len()];
        graph.outputs.iter().for_each(|id| is_output[id.0 as usize] = true);
        Cut { graph, readers, is_output, is_constant }
    }

    /// Returns the nodes of each task, with the partner that claimed them if any, in an executable order.
    fn group_nodes<'c>(&self, fuse: Fuse, claims: &'c [Claim]) -> Vec<(Vec<usize>, Option<&'c str>)> {
        let mut is_taken: Vec<bool> = (0..self.graph.nodes.len())
            .map(|node| {
                let is_view = self.graph.nodes[node].op.class() == Class::View;
                is_view || self.is_constant_node(node) || self.is_empty(node)
            })
            .collect();
        let mut groups = Vec::new();
        for claim in claims {
            if self.is_chain(&claim.nodes, &is_taken) {
                claim.nodes.iter().for_each(|&node| is_taken[node] = true);
                groups.push((claim.nodes.clone(), Some(claim.partner)));
            }
        }
        for starts in [Cut::is_anchor as fn(Class) -> bool, |_| true] {
            for start in 0..self.graph.nodes.len() {
                if is_taken[start] || !starts(self.graph.nodes[start].op.class()) {
                    continue;
                }
                let mut group = vec![start];
                is_taken[start] = true;
                while let Some(next) = self.find_follower(&group, fuse).filter(|&next| !is_taken[next]) {
                    is_taken[next] = true;
                    group.push(next);
                }
                groups.push((group, None));
            }
        }
        // All inputs of a group are available when its last node can run, so groups are sorted by their last node.
        groups.sort_by_key(|(group, _)| group[group.len() - 1]);
        groups
    }

    /// Returns whether these nodes form a valid task (a chain of steps), and no other group contains any of them.
    fn is_chain(&self, nodes: &[usize], is_taken: &[bool]) -> bool {
        !nodes.is_empty() && !nodes.iter().any(|&node| is_taken[node]) && self.build_task(nodes).0.check().is_ok()
    }

    fn is_empty(&self, node: usize) -> bool {
        self.graph.values[self.output_of(node).0 as usize].ty.element_count() == Some(0)
    }

    fn is_anchor(class: Class) -> bool {
        match class {
            Class::Contraction | Class::Normalisation | Class::Pool | Class::Reduction => true,
            Class::Pointwise | Class::Movement | Class::View => false,
        }
    }

    fn find_follower(&self, group: &[usize], fuse: Fuse) -> Option<usize> {
        let last = group[group.len() - 1];
        if group.len() == MAX_STEPS {
            return None;
        }
        // A quantised layer ends with its quantisation, so that the task is the same whatever operator follows.
        if let Op::Quantize(_) | Op::Requantize(_) = self.graph.nodes[last].op {
            return None;
        }
        let value = self.output_of(last);
        let [next] = self.readers[value.0 as usize].as_slice() else { return None };
        let node = &self.graph.nodes[*next];
        let repeats: usize = group.iter().chain([next]).map(|&node| self.graph.nodes[node].op.repeats()).sum();
        let at = node.inputs.iter().position(|&id| id == value)?;
        let joins = fuse == Fuse::Epilogue
            && !self.is_output[value.0 as usize]
            && node.op.class() == Class::Pointwise
            && !node.op.is_weight(at)
            && repeats <= MAX_REPEATS
            && self.graph.value(node.outputs[0])?.ty.shape == self.graph.value(value)?.ty.shape;
        joins.then_some(*next)
    }

    fn output_of(&self, node: usize) -> ValueId {
        self.graph.nodes[node].outputs[0]
    }

    fn is_constant_node(&self, node: usize) -> bool {
        self.is_constant[self.output_of(node).0 as usize]
    }

    /// Returns the task of a group and its parameter values; a value read twice is one parameter.
    fn build_task(&self, nodes: &[usize]) -> (Task, Vec<ValueId>) {
        let mut arguments: Vec<ValueId> = Vec::new();
        let mut steps: Vec<Step> = Vec::new();
        for &index in nodes {
            let node = &self.graph.nodes[index];
            let inside = steps.len().checked_sub(1).map(|before| self.output_of(nodes[before]));
            let mut operand = |id: ValueId| {
                if Some(id) == inside {
                    return Operand::Step(steps.len() - 1);
                }
                let known = arguments.iter().position(|&argument| argument == id);
                Operand::Parameter(known.unwrap_or_else(|| {
                    arguments.push(id);
                    arguments.len() - 1
                }))
            };
            let inputs = node.inputs.iter().map(|&id| operand(id)).collect();
            let output = self.graph.values[node.outputs[0].0 as usize].ty.clone();
            steps.push(Step { op: node.op.clone(), inputs, output });
        }
        let parameters = arguments
            .iter()
            .map(|id| Parameter {
                ty: self.graph.values[id.0 as usize].ty.clone(),
                is_constant: self.is_constant[id.0 as usize],
            })
            .collect();
        (Task { parameters, steps }, arguments)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::GraphBuilder;
    use crate::operators::{Unary, UnaryOp};
    use crate::types::TensorType;

    fn group_lengths(functions: &[UnaryOp]) -> Vec<usize> {
        let mut builder = GraphBuilder::new("chain");
        let x = builder.add_input("x", TensorType::f32(&[4])).unwrap();
        let y = functions.iter().fold(x, |y, &function| builder.push(Op::Unary(Unary { function }), &[y]).unwrap());
        let plan = plan_calls(&builder.finish(&[y]).unwrap(), Fuse::Epilogue).unwrap();
        plan.calls.iter().map(|call| call.nodes.len()).collect()
    }

    #[test]
    fn long_chains_are_cut() {
        assert_eq!(group_lengths(&[UnaryOp::Gelu; 10]), [4, 4, 2]);
        assert_eq!(group_lengths(&[UnaryOp::Sinh; 3]), [1, 1, 1]);
        assert_eq!(group_lengths(&[UnaryOp::Relu; 130]), [64, 64, 2]);
        assert_eq!(group_lengths(&[UnaryOp::Gelu, UnaryOp::Relu].repeat(5)), [8, 2]);
    }
}
