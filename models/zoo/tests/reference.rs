//! Tests that plans of networks compute what their graphs compute.
#![allow(missing_docs)]

use models::{Class, Fuse, Graph, Task, TensorType, plan_calls};
use passes::simplify_graph;
use reference::{Tensor, evaluate_graph, evaluate_task, graph_constants, random_inputs};

#[test]
fn running_the_tasks_of_a_plan_is_running_the_graph() {
    for name in ["mlp", "lstm", "gru", "dqn"] {
        let graph = simplify_graph(&zoo::build_model(name, 2).unwrap()).unwrap();
        let inputs: Vec<Tensor> = graph.inputs.iter().map(|id| random(&graph.values[id.0 as usize].ty)).collect();
        let expected = evaluate_graph(&graph, &inputs).unwrap();
        for fuse in [Fuse::None, Fuse::Epilogue] {
            assert_eq!(run_plan(&graph, fuse, &inputs), expected, "{name} {fuse:?}");
        }
    }
}

fn random(ty: &TensorType) -> Tensor {
    let task = Task::from_text(&format!("identity({ty})")).unwrap();
    random_inputs(&task, 11).unwrap().remove(0)
}

fn run_plan(graph: &Graph, fuse: Fuse, inputs: &[Tensor]) -> Vec<Tensor> {
    let plan = plan_calls(graph, fuse).unwrap();
    let mut values: Vec<Option<Tensor>> = graph_constants(graph).unwrap();
    for (id, input) in graph.inputs.iter().zip(inputs) {
        values[id.0 as usize] = Some(input.clone());
    }
    for call in &plan.calls {
        for node in graph.nodes.iter().filter(|node| node.op.class() == Class::View) {
            let seen = values[node.inputs[0].0 as usize].as_ref();
            let ty = graph.values[node.outputs[0].0 as usize].ty.clone();
            values[node.outputs[0].0 as usize] =
                seen.map(|tensor| Tensor::from_bytes(ty, tensor.as_bytes().to_vec()).unwrap());
        }
        let arguments: Vec<Tensor> =
            call.arguments.iter().map(|id| values[id.0 as usize].clone().expect("made before")).collect();
        values[call.result.0 as usize] = Some(evaluate_task(&plan.tasks[call.task].task, &arguments).unwrap());
    }
    graph.outputs.iter().map(|id| values[id.0 as usize].clone().expect("an output is made")).collect()
}
