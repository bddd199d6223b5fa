//! Tests that plans and placements state lower bounds of times as such, and that predictions respect the roofline.
#![allow(missing_docs)]

use learn::predictor::Predictor;
use models::Graph;
use predictor::bundle;
use predictor::knee::{KneeOptions, find_knee};
use predictor::pages::{describe_knee, describe_plan, point_remark};
use predictor::planning::{KnownTimes, NetworkPlan};
use predictor::queries::{self, Operator, Setting};
use std::path::Path;

fn shipped() -> Predictor {
    read_published("cpu.opp")
}

fn read_published(name: &str) -> Predictor {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../datasets/published").join(name);
    bundle::read_bundle(&path).expect("the predictor ships")
}

fn plan(graph: &Graph, threads: usize) -> NetworkPlan {
    let times = KnownTimes::new(None, Some(shipped()), None).expect("a predictor is a source");
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

/// Winograd's algorithm needs fewer products than 3 × 3 convolutions have. Others must not be predicted like them.
#[test]
fn only_convolutions_that_may_skip_products_are_faster_than_the_roofline() {
    let predictor = shipped();
    let parse = |text: &str| queries::parse_operator(text, None).expect("an operator");
    let sizes = ["k=1", "k=3,p=1,s=2", "k=5,p=2", "k=7,p=3", "k=9,p=4", "k=11,p=5"];
    let mut operators: Vec<Operator> =
        sizes.iter().map(|kernel| parse(&format!("conv2d:ci=128,hw=28,co=128,{kernel}"))).collect();
    operators.extend(["dense:m=512,n=2048,k=2048", "matmul:m=1024,n=1024,k=1024"].map(parse));
    for threads in [1.0, 2.0] {
        let setting = Setting { threads: Some(threads), extrapolate: true, ..Setting::default() };
        for answer in queries::predict_operators(&predictor, &operators, &setting).expect("answers") {
            let prediction = &answer.prediction;
            assert!(prediction.time_ns > 0.9 * prediction.attainable_ns, "{answer:?}");
            assert!(prediction.low_ns > 0.4 * prediction.attainable_ns, "{answer:?}");
        }
        let skipping = [parse("conv2d:ci=128,hw=28,co=128,k=3,p=1")];
        let fast = queries::predict_operators(&predictor, &skipping, &setting).expect("an answer");
        assert!(fast[0].prediction.time_ns < 0.7 * fast[0].prediction.attainable_ns, "{fast:?}");
    }
}

/// The convolutions of the GPU tables have 3 × 3 kernels without stride. Others must not be predicted like them.
#[test]
fn other_kernels_on_gpus_are_no_faster_than_the_roofline() {
    let predictor = read_published("gpu.opp");
    let parse = |text: &str| queries::parse_operator(text, None).expect("an operator");
    let sizes = ["k=1", "k=3,p=1,s=2", "k=5,p=2", "k=7,p=3", "k=11,p=5"];
    let operators: Vec<Operator> =
        sizes.iter().map(|kernel| parse(&format!("conv2d:n=16,ci=256,hw=112,co=256,{kernel}"))).collect();
    for device in ["NVIDIA H100 80GB HBM3", "NVIDIA A100-PCIE-40GB", "Tesla V100-PCIE-32GB", "Tesla T4"] {
        let setting = Setting { device: Some(device.to_owned()), extrapolate: true, ..Setting::default() };
        for answer in queries::predict_operators(&predictor, &operators, &setting).expect("answers") {
            let prediction = &answer.prediction;
            assert!(prediction.time_ns >= 0.999 * prediction.attainable_ns, "{device}: {answer:?}");
            assert!(prediction.low_ns >= 0.3 * prediction.attainable_ns, "{device}: {answer:?}");
        }
    }
}

/// Trees answer thread counts above those of the training data like the largest one.
#[test]
fn a_knee_does_not_depend_on_unseen_thread_counts() {
    let predictor = shipped();
    let operator = queries::parse_operator("conv2d:ci=64,hw=56,co=64,k=3,p=1", None).expect("an operator");
    let find = |extrapolate, most_threads| {
        let setting = Setting { extrapolate, ..Setting::default() };
        let options = KneeOptions { most_threads, ..KneeOptions::default() };
        find_knee(&predictor, &operator, &setting, "threads", &options).expect("a curve")
    };
    let (seen, extended) = (find(false, None), find(true, Some(8)));
    assert_eq!((seen.curve.len(), extended.curve.len()), (2, 8));
    assert_eq!(extended.unseen, [3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
    assert_eq!((extended.knee, extended.turns_at, &extended.law), (seen.knee, seen.turns_at, &seen.law));
    assert!(extended.falls_to_the_end(), "{extended:?}");
    let text = describe_knee(&extended);
    assert!(text.contains("3 to 8 are outside of the training range; the knee does not depend on them."), "{text}");
    assert_eq!(point_remark(&extended, &extended.curve[4]), "outside of the training range");
}
