//! Bit-exactness of all supported layers of networks with their default tiling.

#[allow(dead_code)]
mod common;

use accelerator::{Core, default_knobs, in_core_form, layer_of};
use common::{count_macs, is_exact, random, values};
use models::Task;
use models::fuse::{Fuse, distinct_tasks};

fn tasks_of(name: &str) -> Vec<Task> {
    let graph = passes::simplify_graph(&zoo::build_model(name, 1).unwrap()).unwrap();
    distinct_tasks(&graph, Fuse::Epilogue).unwrap().into_iter().map(|found| found.task).collect()
}

fn exact_layers(name: &str, most_macs: u64) -> (usize, Vec<String>) {
    let core = Core::find_published("1x16").unwrap();
    let (mut exact, mut left) = (0, Vec::new());
    for task in tasks_of(name) {
        let task = match in_core_form(&task) {
            Ok(task) => task,
            Err(why) => {
                left.push(format!("{}: {why}", task.name()));
                continue;
            }
        };
        let layer = layer_of(&task).unwrap();
        if count_macs(&layer) > most_macs {
            continue;
        }
        let knobs = default_knobs(&core, &layer).unwrap_or_else(|| panic!("nothing fits for {}", task.describe()));
        let inputs = values(&task, &mut random(7));
        is_exact(&core, &task, &knobs, &inputs, 1);
        exact += 1;
    }
    (exact, left)
}

#[test]
fn every_layer_of_resnet_18_is_exact() {
    let (exact, left) = exact_layers("resnet-18", u64::MAX);
    assert_eq!(exact, 16);
    assert_eq!(
        left,
        [
            "max_pool: the accelerator does not support `pool`",
            "global_average_pool: the accelerator does not support `global_pool`"
        ]
    );
}

#[test]
fn every_layer_of_mobilenet_is_exact() {
    // The largest layers resemble those of the previous network and would be slow.
    let (exact, left) = exact_layers("mobilenet-v2", 4_000_000);
    assert!(exact >= 8, "{exact} {left:?}");
}
