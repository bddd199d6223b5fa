//! Tests that networks and tasks survive a round trip through text.
#![allow(missing_docs)]

use models::fuse::{Fuse, distinct_tasks};
use models::{Graph, Task};
use passes::simplify_graph;

#[test]
fn every_model_reads_what_it_writes() {
    for entry in zoo::list_models() {
        for graph in [entry.build_graph(1).unwrap(), simplify_graph(&entry.build_graph(2).unwrap()).unwrap()] {
            assert_eq!(Graph::from_text(&graph.to_text()).unwrap(), graph, "{}", entry.name);
        }
    }
}

#[test]
fn every_task_of_the_zoo_reads_what_it_writes() {
    for entry in zoo::list_models() {
        let graph = entry.build_graph(1).unwrap();
        let fused = distinct_tasks(&simplify_graph(&graph).unwrap(), Fuse::Epilogue).unwrap();
        for task in distinct_tasks(&graph, Fuse::None).unwrap().into_iter().chain(fused).map(|one| one.task) {
            assert_eq!(Task::from_text(&task.to_text()).unwrap(), task);
        }
    }
}

#[test]
fn a_task_that_went_through_json_keeps_its_hash() {
    for name in ["mobilenet-v3-small", "convnext-tiny", "dcgan"] {
        for one in distinct_tasks(&zoo::build_model(name, 1).unwrap(), Fuse::Epilogue).unwrap() {
            let json = serde_json::to_string(&one.task).unwrap();
            assert_eq!(serde_json::from_str::<Task>(&json).unwrap().hash(), one.task.hash());
        }
    }
}
