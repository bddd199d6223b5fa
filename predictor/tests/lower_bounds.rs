//! Tests that plans and placements state lower bounds of times as such.
#![allow(missing_docs)]

use models::Graph;
use predictor::bundle;
use predictor::pages::describe_plan;
use predictor::planning::{KnownTimes, NetworkPlan};
use std::path::Path;

fn plan(graph: &Graph, threads: usize) -> NetworkPlan {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../datasets/published/cpu.opp");
    let predictor = bundle::read_bundle(&path).expect("the predictor ships");
    let times = KnownTimes::new(None, Some(predictor), None).expect("a predictor is a source");
    times.plan_network(graph, threads, 1_000.0).expect("a plan")
}

#[test]
fn operators_without_training_data_make_the_plan_a_lower_bound() {
    let graph = zoo::simple::build_operator("conv3d:ci=16,hw=28,co=16,k=3,p=1").expect("an operator");
    let found = plan(&graph, 2);
    assert!(found.is_lower_bound() && found.lower_bounds == [0], "{found:?}");
    assert!(found.promise.high_ns.is_nan(), "{:?}", found.promise);
    assert!(found.alternatives[0].intervals_ns.iter().all(|(low, high)| low.is_finite() && high.is_nan()));
    let headline = describe_plan(&found, &[], None).headline;
    assert!(headline.contains("≥ ") && headline.ends_with("a lower bound"), "{headline}");

    let graph = zoo::simple::build_operator("conv2d:ci=64,hw=56,co=64,k=3,p=1").expect("an operator");
    let found = plan(&graph, 2);
    assert!(found.lower_bounds.is_empty() && found.promise.high_ns > found.promise.time_ns, "{found:?}");
}
