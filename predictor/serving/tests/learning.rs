//! Tests training on synthetic kernels: predictions, distances, intervals, the file, and physical limits.
#![allow(missing_docs)]

use serving::adaptation::adapt_learned;
use serving::device::find_device;
use serving::evaluate::{HoldOut, Plan, evaluate_plan};
use serving::features::{kernel_features, mix_hash, site_hash};
use serving::learned::Distance;
use serving::measurements::Measurement;
use serving::train::{TrainOptions, train_kernels};
use serving::{Decode, Dtype, Gemm, GpuFacts, Kernel, KernelTimes, Learned, Measurements, Scheme, Source, store};
use std::sync::LazyLock;

const SYSTEMS: [&str; 4] = ["a100_sxm", "h100_sxm", "h200_sxm", "b200_sxm"];

fn seconds(kernel: &Kernel, device: &GpuFacts) -> f64 {
    let facts = kernel_features(kernel, device, 0.0).expect("features");
    let wobble = 1.0 + 0.02 * ((kernel.kernel_work().bytes.ln() * 7.0).sin());
    facts.warm_seconds() * wobble * (1.3 + 0.1 * (10.0 - device.generation).max(0.0) / 2.0)
}

fn measurements() -> Measurements {
    let devices: Vec<&'static GpuFacts> = SYSTEMS.iter().map(|system| find_device(system).expect("a device")).collect();
    let mut all = Measurements { devices, frameworks: vec!["vllm".to_owned()], ..Measurements::default() };
    for device in 0..SYSTEMS.len() {
        for n in [512, 1024, 2048, 4096, 8192] {
            for k in [512, 1024, 2048, 4096, 8192] {
                for m in [1, 4, 16, 64, 128, 256, 512, 1024, 4096] {
                    let kernel = Kernel::Gemm(Gemm { m, n, k, scheme: Scheme::Bf16 });
                    all.rows.push(row(&all, kernel, device));
                }
            }
        }
    }
    all
}

fn row(all: &Measurements, kernel: Kernel, device: usize) -> Measurement {
    let seconds = seconds(&kernel, all.devices[device]);
    let limit = all.devices[device].power_limit_w;
    let power = Some((limit * (0.3 + 0.5 * kernel.kernel_work().flops / 1e12).min(0.9), limit));
    Measurement { kernel, device: device as u16, framework: 0, choice: 0, seconds, power }
}

fn options() -> TrainOptions {
    TrainOptions { rounds: 120, ..TrainOptions::default() }
}

static LEARNED: LazyLock<Learned> =
    LazyLock::new(|| train_kernels(&measurements(), &options()).expect("it is learned"));

fn kernel(text: &str) -> Kernel {
    text.parse().expect(text)
}

#[test]
fn answers_are_near_and_say_how_far_they_reach() {
    let h100 = find_device("h100_sxm").expect("a device");
    for (text, distance) in
        [("gemm:m=32,n=2048,k=4096", Distance::KnownSite), ("gemm:m=32,n=3072,k=1536", Distance::NewSite)]
    {
        let answer = LEARNED.predict_kernel(&kernel(text), h100).expect(text);
        let truth = seconds(&kernel(text), h100);
        assert_eq!((answer.distance, answer.time.source), (distance, Source::Learned), "{text}");
        assert!((answer.time.seconds / truth - 1.0).abs() < 0.08, "{text}: {} {truth}", answer.time.seconds);
        let widths: Vec<f64> = answer.intervals.iter().map(|(low, high)| high / low).collect();
        assert!(widths.is_sorted() && widths[2] < 1.5, "{widths:?}");
    }
}

#[test]
fn formats_whose_layers_are_held_out_are_answered_by_other_devices() {
    let all = measurements();
    let mut formats = all.clone();
    // A100 has all layers in bf16 and int8; the others have one layer in int8, which seed 1 holds out.
    let layer = [512, 1024, 2048, 4096, 8192].into_iter().find_map(|n| {
        let kernel = kernel(&format!("gemm:m=1,n={n},k=512"));
        mix_hash([site_hash(&kernel), 1].into_iter()).is_multiple_of(5).then_some((n, 512))
    });
    let layer = layer.expect("a layer that is held out");
    formats.rows.retain_mut(|row| {
        let Kernel::Gemm(gemm) = &mut row.kernel else { return false };
        row.power = None;
        let is_one = (gemm.n, gemm.k) == layer;
        if row.device > 0 && is_one {
            gemm.scheme = Scheme::Int8;
        }
        true
    });
    let of_first: Vec<Measurement> = formats.rows.iter().filter(|row| row.device == 0).copied().collect();
    formats.rows.extend(of_first.into_iter().filter_map(|mut row| {
        let Kernel::Gemm(gemm) = &mut row.kernel else { return None };
        gemm.scheme = Scheme::Int8;
        (layer != (gemm.n, gemm.k)).then_some(row)
    }));
    let plan = Plan {
        hold_out: HoldOut::Site,
        seeds: vec![1],
        options: TrainOptions { calibrates: false, ..options() },
        operators: Vec::new(),
    };
    let evaluation = evaluate_plan(&formats, &plan).expect("it is evaluated");
    let is_other = |device: &str| device != find_device("a100_sxm").expect("a device").name;
    let of_others = |scores: &&serving::evaluate::Scores| scores.format == "int8" && is_other(&scores.device);
    let scores = evaluation.groups.iter().filter(of_others).collect::<Vec<_>>();
    assert_eq!(scores.len(), 3);
    for scores in scores {
        assert!(scores.methods["ours"].mape < scores.methods["roofline"].mape, "{:?}", scores.methods);
    }
}

#[test]
fn devices_that_were_not_learned_borrow_from_their_siblings() {
    let text = "gemm:m=64,n=4096,k=4096";
    // The shared cache of the last is larger than that of any learned device.
    for (system, distance, similar, tolerance) in [
        ("gb200", Distance::SiblingDevice, "NVIDIA B200", 0.25),
        ("h100_pcie", Distance::SiblingDevice, "NVIDIA H100 80GB HBM3", 0.25),
        ("l40s", Distance::NewGeneration, "NVIDIA A100-SXM4-80GB", 0.75),
    ] {
        let device = find_device(system).expect(system);
        let answer = LEARNED.predict_kernel(&kernel(text), device).expect(system);
        assert_eq!((answer.distance, answer.similar.as_deref()), (distance, Some(similar)), "{system}");
        let truth = seconds(&kernel(text), device);
        assert!((answer.time.seconds / truth - 1.0).abs() < tolerance, "{system}: {} {truth}", answer.time.seconds);
    }
    // Of another vendor, nothing lends its utilisation.
    let arc = LEARNED.predict_kernel(&kernel(text), find_device("b60").expect("a device")).expect("an answer");
    assert_eq!((arc.distance, arc.similar), (Distance::NewGeneration, None));
}

#[test]
fn nothing_learned_of_an_operator_is_a_bound() {
    let (context, window, cache_dtype) = (4096, None, Dtype::Bf16);
    let decode =
        Decode { batch: 8, context, heads: 32, kv_heads: 8, head_dim: 128, window, dtype: Dtype::Bf16, cache_dtype };
    let estimate =
        LEARNED.kernel_time(&Kernel::Decode(decode), find_device("h100_sxm").expect("a device")).expect("a bound");
    assert_eq!(estimate.source, Source::Bound);
}

#[test]
fn formats_that_no_device_was_measured_in_are_bounds() {
    for (text, format) in
        [("gemm:m=32,n=2048,k=4096,dtype=w4a16_mxfp4", "w4a16_mxfp4"), ("gemm:m=32,n=2048,k=4096,dtype=int8", "int8")]
    {
        let h100 = find_device("h100_sxm").expect("a device");
        let answer = LEARNED.predict_kernel(&kernel(text), h100).expect(text);
        assert_eq!((answer.distance, answer.held_out, answer.similar), (Distance::Bound, None, None), "{text}");
        let power = LEARNED.kernel_power(&kernel(text), h100).expect(text);
        assert_eq!(power.power, None, "{text}");
        assert_eq!(power.missing, Some(format!("not measured for `gemm` in {format}")));
    }
}

#[test]
fn energy_is_of_the_framework_whose_power_was_measured() {
    let mut all = measurements();
    // On two devices, power was measured with another framework, whose kernels take ten times as long.
    all.frameworks.push("other 1.0".to_owned());
    all.rows.iter_mut().for_each(|row| row.power = None);
    let other = measurements().rows.into_iter().filter(|row| row.device > 1);
    all.rows.extend(other.map(|row| Measurement { framework: 1, seconds: 10.0 * row.seconds, ..row }));
    let learned = train_kernels(&all, &options()).expect("it is learned");
    let (b200, text) = (find_device("b200_sxm").expect("a device"), "gemm:m=64,n=4096,k=4096");
    let truth = seconds(&kernel(text), b200);
    let answer = learned.predict_kernel(&kernel(text), b200).expect("an answer");
    assert_eq!(answer.framework.as_deref(), Some("vllm"));
    assert!((answer.time.seconds / truth - 1.0).abs() < 0.1, "{answer:?}");
    let power = learned.kernel_power(&kernel(text), b200).expect("watts").power.expect("they were learned");
    assert_eq!(power.framework.as_deref(), Some("other 1.0"));
    assert!((power.seconds / (10.0 * truth) - 1.0).abs() < 0.1, "{power:?} {truth}");
    // Times of whole models are those of the usual framework, to which these watts do not belong.
    assert_eq!(learned.kernel_watts(&kernel(text), b200), None);
    // Devices without power have times of the usual framework alone.
    for system in ["h100_sxm", "gb200"] {
        let power = learned.kernel_power(&kernel(text), find_device(system).expect(system)).expect(system);
        let missing = "measured with other 1.0 only, the time with vllm";
        assert_eq!((power.power, power.missing.as_deref()), (None, Some(missing)), "{system}");
    }
    let plan = Plan { hold_out: HoldOut::Site, seeds: vec![0], options: options(), operators: vec!["gemm".to_owned()] };
    let evaluation = evaluate_plan(&all, &plan).expect("scores");
    let energy = evaluation.operators.iter().find(|scores| scores.target == "energy").expect("scores of energy");
    assert!(energy.methods["ours"].mape < 15.0, "{energy:?}");
}

#[test]
fn corrections_keep_the_framework_of_their_measurements() {
    let l40s = find_device("l40s").expect("a device");
    let text = "gemm:m=64,n=4096,k=4096";
    for (framework, is_known) in [("vllm", true), ("other 1.0", false)] {
        let mut measured =
            Measurements { devices: vec![l40s], frameworks: vec![framework.to_owned()], ..Measurements::default() };
        for (m, n) in [16, 64, 256].into_iter().flat_map(|m| [1024, 2048, 4096].map(|n| (m, n))) {
            let kernel = Kernel::Gemm(Gemm { m, n, k: 4096, scheme: Scheme::Bf16 });
            measured.rows.push(Measurement { power: None, ..row(&measured, kernel, 0) });
        }
        let mut learned = train_kernels(&measurements(), &options()).expect("it is learned");
        let (changes, unused) = adapt_learned(&mut learned, &measured).expect("a correction");
        assert_eq!((changes.len(), unused.len()), (1, 0), "{changes:?} {unused:?}");
        let answer = learned.predict_kernel(&kernel(text), l40s).expect("an answer");
        assert_eq!((answer.distance, answer.framework.as_deref()), (Distance::Corrected, Some(framework)));
        // Power was learned with vLLM; it does not belong to the times of another framework.
        let power = learned.kernel_power(&kernel(text), l40s).expect("watts");
        assert_eq!((power.power.is_some(), power.missing.is_none()), (is_known, is_known), "{power:?}");
        assert_eq!(learned.kernel_watts(&kernel(text), l40s).is_some(), is_known);
    }
}

#[test]
fn answers_are_physical() {
    for system in ["h100_sxm", "b200_sxm", "gb300", "l4"] {
        let device = find_device(system).expect(system);
        let mut before = 0.0;
        for m in [1, 8, 64, 512, 4096, 32768, 262_144] {
            let gemm = Kernel::Gemm(Gemm { m, n: 4096, k: 4096, scheme: Scheme::Bf16 });
            let seconds = LEARNED.kernel_time(&gemm, device).expect(system).seconds;
            assert!(gemm.kernel_work().flops / seconds <= device.bf16_flops * 1.000_001, "{system} {m}");
            assert!(seconds >= before * 0.97, "{system}: {m} rows take {seconds} s, fewer {before} s");
            let fastest = gemm.kernel_work().flops / device.bf16_flops;
            let answer = LEARNED.predict_kernel(&gemm, device).expect(system);
            assert!(answer.intervals.iter().all(|(low, _)| *low >= fastest), "{system} {m}: {answer:?} {fastest}");
            before = seconds;
        }
    }
    let large = kernel("gemm:m=8192,n=8192,k=8192");
    let time = |system: &str| LEARNED.kernel_time(&large, find_device(system).expect(system)).expect(system).seconds;
    assert!(time("h100_sxm") <= time("h100_pcie") && time("gb200") <= time("b200_sxm") * 1.03);
}

#[test]
fn power_and_its_file_come_back_alike() {
    let again = store::from_bytes(&store::to_bytes(&LEARNED).expect("bytes")).expect("what was written");
    let (h100, text) = (find_device("h100_sxm").expect("a device"), "gemm:m=300,n=4096,k=1024");
    assert_eq!(again.predict_kernel(&kernel(text), h100), LEARNED.predict_kernel(&kernel(text), h100));
    let power = again.kernel_power(&kernel(text), h100).expect("watts").power.expect("they were learned");
    let watts = power.watts;
    assert!(watts.low < watts.watts && watts.watts < watts.high && watts.high < 2.0 * h100.power_limit_w, "{watts:?}");
    let mut bytes = store::to_bytes(&LEARNED).expect("bytes");
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    // Trees are checked when they are first asked; a header, at once.
    let damaged = store::from_bytes(&bytes).expect("the header is sound");
    let texts =
        ["a100_sxm", "gb200"].map(|system| damaged.kernel_power(&kernel(text), find_device(system).expect(system)));
    assert!(texts.iter().any(Result::is_err), "{texts:?}");
    bytes[20] ^= 1;
    assert!(store::from_bytes(&bytes).is_err());
    assert!(store::from_bytes(&bytes[..9]).is_err());
}

#[test]
fn power_on_new_devices_has_intervals_of_held_out_devices() {
    let mut all = measurements();
    let systems = all.devices.iter().map(|device| device.system.clone()).collect::<Vec<_>>();
    let has_power = |device: u16| ["h200_sxm", "b200_sxm"].contains(&systems[usize::from(device)].as_str());
    all.rows.iter_mut().filter(|row| !has_power(row.device)).for_each(|row| row.power = None);
    let rows_with_power = all.rows.iter().filter(|row| row.power.is_some()).count();
    let learned = train_kernels(&all, &options()).expect("it is learned");
    let stranger = &learned.power.transfers["gemm"].stranger;
    assert!(stranger.reaches.is_some());
    assert_eq!(stranger.held_out.map(|held_out| held_out.rows), Some(rows_with_power));
}

#[test]
fn protocols_score_all_methods_on_the_same_rows() {
    for (hold_out, least_coverage) in [(HoldOut::Site, 70.0), (HoldOut::Device, 50.0)] {
        let mut rows = measurements();
        rows.rows.iter_mut().for_each(|row| row.power = None);
        let plan = Plan { hold_out, seeds: vec![0], options: options(), operators: vec!["gemm".to_owned()] };
        let evaluation = evaluate_plan(&rows, &plan).expect("scores");
        let [scores] = &evaluation.operators[..] else { panic!("{:?}", evaluation.operators) };
        let ours = scores.methods["ours"];
        assert!(ours.mape < scores.methods["roofline"].mape && ours.mape < 12.0, "{scores:?}");
        assert!(scores.methods.values().all(|one| one.rows <= ours.rows), "{scores:?}");
        assert!(scores.coverage.is_sorted() && scores.coverage[3] > least_coverage, "{scores:?}");
    }
}
