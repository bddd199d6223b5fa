//! Tests the shipped GPU predictor on a network, on devices of different size and generation.
#![allow(missing_docs)]

use predictor::answers::{Conditions, NetworkAnswer, predict_network};
use predictor::bundle;
use predictor::queries::{ModelSource, NetworkQuestion, Run, Setting};
use std::path::Path;

fn resnet(device: &str) -> NetworkAnswer {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../datasets/published/gpu.opp");
    let predictor = bundle::read_bundle(&path).expect("the predictor ships");
    let setting = Setting { device: Some(device.to_owned()), extrapolate: true, ..Setting::default() };
    let conditions = Conditions::new(&predictor, setting).expect("the device is described");
    let question =
        NetworkQuestion { source: ModelSource::Local, name: "resnet-18", batch: 1, tokens: 128, options: None };
    predict_network(&conditions, &question, &Run::default()).expect("an answer")
}

#[test]
fn a_newer_and_larger_device_is_not_slower_and_intervals_end() {
    const H100: &str = "NVIDIA H100 80GB HBM3";
    const V100: &str = "Tesla V100-PCIE-32GB";
    let totals: Vec<(&str, f64)> = [H100, "NVIDIA A100-PCIE-40GB", V100, "Tesla T4", "NVIDIA L4", "Tesla P4"]
        .map(|device| {
            let total = resnet(device).total;
            assert!(total.low_ns <= total.time_ns && total.time_ns <= total.high_ns, "{device}: {total:?}");
            (device, total.time_ns)
        })
        .to_vec();
    let of = |device: &str| totals.iter().find(|(name, _)| *name == device).map_or(0.0, |(_, time_ns)| *time_ns);
    assert!(of(H100) <= of("NVIDIA A100-PCIE-40GB") && of("NVIDIA A100-PCIE-40GB") <= of(V100), "{totals:?}");
    assert!(
        of(H100) <= of("Tesla T4") && of("NVIDIA L4") <= of("Tesla T4") && of("Tesla T4") <= of("Tesla P4"),
        "{totals:?}"
    );
}
