//! Tests the shipped GPU predictor on a network, on devices of different size and generation, and on kernels.
#![allow(missing_docs)]

use learn::predictor::Predictor;
use predictor::answers::{Conditions, NetworkAnswer, predict_network};
use predictor::knee::{KneeOptions, find_knee};
use predictor::pages::{curves_page, describe_knee};
use predictor::queries::{self, ModelSource, NetworkQuestion, Run, Setting};
use predictor::{bundle, kernels};
use serving::Kernel;
use serving::learned::Distance;
use serving::times::Estimate;
use std::path::Path;

fn shipped() -> Predictor {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../datasets/published/gpu.opp");
    bundle::read_bundle(&path).expect("the predictor ships")
}

fn resnet(device: &str, threads: Option<f64>) -> NetworkAnswer {
    let predictor = shipped();
    let setting = Setting { device: Some(device.to_owned()), threads, extrapolate: true, ..Setting::default() };
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
            let total = resnet(device, None).total;
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

/// An unseen GPU with the figures of a measured one, or better ones, is not slower.
#[test]
fn a_sibling_with_equal_figures_is_not_slower() {
    let predictor = shipped();
    for text in ["matmul:m=1024,n=1024,k=1024", "dense:m=4096,n=4096,k=4096", "relu:shape=67108864"] {
        let operators = [queries::parse_operator(text, None).expect("an operator")];
        let [known, sibling, larger] =
            ["NVIDIA A100-PCIE-40GB", "NVIDIA A100-SXM4-40GB", "NVIDIA A100 80GB PCIe"].map(|device| {
                let setting = Setting { device: Some(device.to_owned()), extrapolate: true, ..Setting::default() };
                queries::predict_operators(&predictor, &operators, &setting).expect("answers")[0].prediction.time_ns
            });
        assert!(sibling <= known && larger <= known, "{text}: {known} {sibling} {larger}");
    }
}

#[test]
fn a_new_device_is_predicted_with_all_of_its_units_or_marked() {
    let on = |threads| resnet("NVIDIA H100 80GB HBM3", threads);
    let (all, single) = (on(None), on(Some(1.0)));
    assert!(single.total.time_ns > 2.0 * all.total.time_ns, "{:?} {:?}", single.total, all.total);
    let predictor = shipped();
    let operators = [queries::parse_operator("matmul:m=512,n=1024,k=1024", None).expect("an operator")];
    let setting =
        Setting { device: Some("NVIDIA H100 80GB HBM3".to_owned()), threads: Some(1.0), ..Setting::default() };
    let error = queries::predict_operators(&predictor, &operators, &setting).expect_err("one unit").to_string();
    assert!(error.contains("threads: 1, training data only for all units, here 132"), "{error}");
}

/// A device is described by the predictor or by a mapping, without measurements in both cases.
#[test]
fn a_new_device_has_units_too() {
    let mut predictor = shipped();
    let described = predictor.about.devices["NVIDIA L4"].clone();
    predictor.about.devices.insert("New GPU".to_owned(), described);
    let words = ["NVIDIA L4", "Tesla T4", "New GPU"].map(|device| {
        let setting = Setting { device: Some(device.to_owned()), ..Setting::default() };
        queries::assumed_threads(&predictor, &setting).expect("it is described").word
    });
    assert_eq!(words, ["unit"; 3]);
}

#[test]
fn a_curve_over_the_units_of_a_gpu_is_an_extrapolation() {
    let predictor = shipped();
    for text in ["conv2d:ci=64,hw=56,co=64,k=3,p=1", "softmax:shape=64x1024"] {
        let operator = queries::parse_operator(text, None).expect("an operator");
        let find = |extrapolate| {
            let setting = Setting { device: Some("Tesla T4".to_owned()), extrapolate, ..Setting::default() };
            find_knee(&predictor, &operator, &setting, "threads", &KneeOptions::default())
        };
        let error = find(false).expect_err("only whole devices were measured").to_string();
        assert!(error.contains("all of its units only; --extrapolate"), "{error}");
        assert_eq!(find(true).expect("a curve").curve.len(), 40, "{text}");
    }
    let operator = queries::parse_operator("conv2d:ci=64,hw=56,co=64,k=3,p=1", None).expect("an operator");
    let setting = Setting { device: Some("Tesla V100-PCIE-32GB".to_owned()), extrapolate: true, ..Setting::default() };
    let options = KneeOptions { most_threads: Some(82), ..KneeOptions::default() };
    let knee = find_knee(&predictor, &operator, &setting, "threads", &options).expect("a curve");
    assert!(describe_knee(&knee).contains(" 1 to 79 and 81 to 82 are outside of the training range."), "{knee:?}");
    assert!(curves_page(&operator.text, "V100", &[knee], &[]).contains("class=\"law\""));
}

#[test]
fn kernels_far_from_the_training_data_have_wide_intervals_and_a_warning() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../datasets/published/gpu.opp");
    let learned = kernels::read_learned(&path).expect("the predictor ships");
    let device = kernels::find_device("h100_sxm").expect("a device");
    for (text, warning) in [
        (
            "attention_decode:batch=1,context=20000000,heads=8,kv_heads=1,head_dim=128",
            "context 20000000 is outside of the training data, ",
        ),
        ("attention_prefill:batch=1,new_tokens=128,past=1000000000,heads=8,kv_heads=1,head_dim=128", "past 1000000000"),
        (
            "attention_decode:batch=1,context=2000,heads=8,kv_heads=1,head_dim=7",
            "head_dim 7 is far from the layers in the training data",
        ),
        ("gemm:m=64,n=1,k=1", "n 1 is far from the layers in the training data; k 1 is far"),
        ("gemm:m=64,n=4096,k=4096", ""),
        ("gemm:m=77,n=4000,k=5000", ""),
        ("attention_decode:batch=3,context=5000,heads=8,kv_heads=1,head_dim=128", ""),
    ] {
        let kernel: Kernel = text.parse().expect(text);
        let answer = kernels::predict_kernel(&learned, &kernel, device, None).expect(text);
        let has_warning = answer.warnings.iter().any(|known| !warning.is_empty() && known.contains(warning));
        let (low, high) = (answer.answer.time.low, answer.answer.time.high);
        assert!(has_warning || (warning.is_empty() && answer.answer.outside.is_empty()), "{answer:?}");
        assert_eq!(high / low > 1.4, !warning.is_empty(), "{text}: {low} to {high}");
    }
}

#[test]
fn kernels_are_answered_by_what_was_measured() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../datasets/published/gpu.opp");
    let learned = kernels::read_learned(&path).expect("the predictor ships");
    let ask = |text: &str, device: &str| {
        let kernel: Kernel = text.parse().expect(text);
        kernels::predict_kernel(&learned, &kernel, kernels::find_device(device).expect(device), None).expect(text)
    };
    let heads = "heads=32,kv_heads=8,head_dim=128";
    for text in [
        &format!("attention_prefill:batch=1,new_tokens=4096,{heads},dtype=fp8"),
        &format!("attention_prefill:batch=1,new_tokens=4096,{heads},dtype=fp8,cache_dtype=bf16"),
        &format!("attention_decode:batch=8,context=4096,{heads},cache_dtype=int8"),
        "gemm:m=64,n=4096,k=4096,dtype=w4a16_mxfp4",
        "moe:tokens=64,hidden=4096,intermediate=1536,experts=128,top_k=8,dtype=int8",
    ] {
        let answer = ask(text, "h100_sxm");
        assert_eq!((answer.answer.distance, answer.answer.held_out), (Distance::Bound, None), "{text}");
        assert_eq!((answer.power, answer.joules), (None, None), "{text}");
    }
    let measured = ask(&format!("attention_prefill:batch=1,new_tokens=4096,{heads},cache_dtype=fp8"), "h100_sxm");
    assert_eq!(measured.answer.distance, Distance::KnownSite);

    // The only measured power of fp8 products is that of another framework than that of the times.
    let fp8 = ask("gemm:m=96,n=2560,k=256,dtype=fp8", "b200_sxm");
    let power = fp8.power.as_ref().expect("it was measured");
    assert_eq!(power.framework.as_deref(), Some("trtllm 1.3.0rc15"));
    assert_eq!(fp8.answer.framework.as_deref(), Some("vllm"));
    assert_eq!(fp8.joules, Some(power.watts.watts * power.seconds));
    // The table has 14.3 µs, 359 W and 5.1 mJ.
    assert!(fp8.joules.is_some_and(|joules| (joules / 5.1e-3 - 1.0).abs() < 0.15), "{fp8:?}");
    let elsewhere = ask("gemm:m=96,n=2560,k=256,dtype=fp8", "h100_sxm");
    assert_eq!(elsewhere.power_missing.as_deref(), Some("measured with trtllm 1.3.0rc15 only, the time with vllm"));

    // The board with 300 W was not measured, but the one with 400 W and otherwise equal products.
    let warned = ask("gemm:m=8192,n=8192,k=8192", "a100_pcie").warnings;
    assert!(warned[0].contains("scaled from NVIDIA A100-SXM4-80GB with 400 W; large products may"), "{warned:?}");
    assert!(ask("gemm:m=8192,n=8192,k=8192", "a100_sxm").warnings.is_empty());
    let warned = ask("gemm:m=1000000,n=1000000,k=8192", "a100_sxm").warnings;
    assert!(warned[0].contains("more than the 86 GB of the device's memory"), "{warned:?}");

    // A window that covers all keys is the same whatever its size, also between the contexts of the table.
    let windows = [100, 128, 4096].map(|window| {
        let text = format!("attention_decode:batch=64,context=100,heads=64,kv_heads=8,head_dim=64,window={window}");
        ask(&text, "h100_sxm").answer.time.seconds
    });
    assert!(windows.iter().all(|seconds| *seconds == windows[0]), "{windows:?}");

    // Contexts between those of the table were taken for layers with other numbers of heads.
    let decode = |context: u64| {
        let sizes = format!("batch=64,heads=32,kv_heads=8,head_dim=128,context={context},cache_dtype=fp8");
        ask(&format!("attention_decode:{sizes}"), "gb300").answer.time.seconds
    };
    let times = [1024, 1280, 1536, 1792, 2048, 3000, 4096].map(decode);
    assert!(times.is_sorted() && times[6] < 100e-6, "{times:?}");
    // The table has seven small layers of this format on this device, which show the time of the launch alone.
    let [block, plain] = ["fp8_block", "bf16"]
        .map(|format| ask(&format!("gemm:m=8192,n=8192,k=8192,dtype={format}"), "rtx_pro_6000_server").answer);
    assert!(block.time.seconds < 2.0 * plain.time.seconds && block.distance == Distance::NewGeneration, "{block:?}");
    // A sibling is known no better than the device whose answer it gets: no layer like this was measured in the format.
    let [measured, sibling] = ["b200_sxm", "b300_sxm"].map(|device| {
        ask("moe:tokens=64,hidden=4096,intermediate=14336,experts=8,top_k=2,dtype=w4a16_mxfp4", device).answer.time
    });
    let width = |time: &Estimate| time.high / time.low;
    assert!(width(&sibling) > 0.99 * width(&measured), "{measured:?} {sibling:?}");

    let gemm = ask("gemm:m=3000,n=1024,k=8192", "l40s");
    let fastest = gemm.flops / kernels::find_device("l40s").expect("a device").bf16_flops;
    assert!(gemm.answer.intervals.iter().all(|(low, _)| *low >= fastest), "{gemm:?}");
}

#[test]
fn prompts_are_scaled_from_the_device_with_the_same_rate_of_exponential_functions() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../datasets/published/gpu.opp");
    let learned = kernels::read_learned(&path).expect("the predictor ships");
    let text = "attention_prefill:batch=1,new_tokens=8192,heads=32,kv_heads=8,head_dim=128";
    let ask = |device: &str| {
        let device = kernels::find_device(device).expect(device);
        kernels::predict_kernel(&learned, &text.parse().expect(text), device, None).expect(text).answer
    };
    let [b200, gb200, b300, gb300] = ["b200_sxm", "gb200", "b300_sxm", "gb300"].map(ask);
    assert_eq!(gb200.similar.as_deref(), Some("NVIDIA B200"));
    assert_eq!(b300.similar.as_deref(), Some("NVIDIA GB300"));
    assert!(gb200.time.seconds > 0.9 * b200.time.seconds, "{gb200:?}");
    assert!(b300.time.seconds < 1.15 * gb300.time.seconds && b300.time.seconds < 0.9 * gb200.time.seconds, "{b300:?}");
}
