//! Tests variations of the tasks of networks.
#![allow(missing_docs)]

use models::{Fuse, distinct_tasks, vary_task};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use zoo::simple;

fn drawn(text: &str) -> Vec<String> {
    let task = distinct_tasks(&simple::build_operator(text).unwrap(), Fuse::Epilogue).unwrap().remove(0).task;
    let mut random = ChaCha8Rng::seed_from_u64(0);
    (0..20).filter_map(|_| vary_task(&task, &mut random)).map(|task| task.describe()).collect()
}

#[test]
fn nearly_every_task_of_networks_has_others_like_it() {
    for name in ["resnet-18", "resnext-50-32x4d", "mobilenet-v3-large", "densenet-121", "yolov8-nano", "dcgan", "lstm"]
    {
        let graph = passes::simplify_graph(&zoo::build_model(name, 1).unwrap()).unwrap();
        let found = distinct_tasks(&graph, Fuse::Epilogue).unwrap();
        let mut random = ChaCha8Rng::seed_from_u64(1);
        let without: Vec<String> = found
            .iter()
            .filter(|found| vary_task(&found.task, &mut random).is_none())
            .map(|found| found.task.describe())
            .collect();
        assert!(without.len() * 20 <= found.len(), "{name}: {without:?}");
    }
}

#[test]
fn what_belongs_together_stays_together() {
    let plain = drawn("conv2d:ci=64,hw=56,co=64,k=3,p=1");
    assert_eq!(plain.len(), 20);
    assert!(plain.iter().all(|one| one.contains(",3,3] p=1")), "the window stays: {plain:?}");
    let distinct: std::collections::BTreeSet<&String> = plain.iter().collect();
    assert!(distinct.len() > 10, "{plain:?}");
}

#[test]
fn the_same_seed_draws_the_same() {
    assert_eq!(drawn("dense:m=4,k=512,n=256"), drawn("dense:m=4,k=512,n=256"));
}
