//! Compiling for a GPU on a machine without one: the folder is complete, and running it reports what is missing.
#![allow(missing_docs)]

use cuda::driver::Device;
use cuda::nvrtc::Nvrtc;
use tests::{Bench, run, skip};

fn has_compiler() -> bool {
    let opened = Nvrtc::open();
    if let Err(error) = &opened {
        skip(&error.to_string());
    }
    opened.is_ok()
}

const RELU: &str = "--modelsource simple --modelname relu:shape=16";

#[test]
fn a_folder_is_complete_and_waits_for_a_gpu() {
    if !has_compiler() {
        return;
    }
    let bench = Bench::new();
    let product = "--modelsource simple --modelname matmul:m=64,n=64,k=64 --schedules 2 --config quick.toml";
    run(bench.opcollect(&format!("build {product} --target cuda --arch sm_75,sm_90 --out made"))).expect(0);
    let plan = std::fs::read_to_string(bench.path("made/plan.json")).expect("the folder has a plan");
    let plan: serde_json::Value = serde_json::from_str(&plan).expect("the plan is JSON");
    let builds = plan["builds"].as_array().expect("a list of builds");
    assert_eq!(builds.len(), 2);
    for built in builds {
        let cubins = built["device"]["cubins"].as_array().expect("machine code");
        assert_eq!(cubins.len(), 2, "one file for each architecture");
        for cubin in cubins {
            let file = bench.path("made").join(cubin["file"].as_str().expect("a file's name"));
            let bytes = std::fs::read(&file).unwrap_or_else(|error| panic!("`{}`: {error}", file.display()));
            assert_eq!(&bytes[..4], b"\x7fELF");
            assert!(cubin["kernels"][0]["registers"].as_u64() > Some(0));
            assert!(cubin["kernels"][0]["occupancy"]["part"].as_f64() > Some(0.0));
        }
    }
    if Device::open().is_ok() {
        skip("there is a GPU, so nothing is refused");
        return;
    }
    let refused = run(bench.opcollect("run made --store data")).expect(3);
    assert!(refused.stderr.starts_with("error: nothing can run on a GPU here: there is no "), "{refused}");
    assert!(refused.stderr.contains("\nhint: install the NVIDIA driver"), "{refused}");
    assert!(!bench.path("data").exists(), "no store is left behind");
    let refused = run(bench.opcollect(&format!("{RELU} --target cuda --arch sm_90 --store data"))).expect(3);
    assert!(refused.stderr.starts_with("error: nothing can run on a GPU here: "), "{refused}");
    assert!(!bench.path("data").exists(), "no store is left behind");
}

#[test]
fn unknown_architectures_are_rejected() {
    if !has_compiler() {
        return;
    }
    let bench = Bench::new();
    let build = |rest: &str| bench.opcollect(&format!("build {RELU} --out made {rest}"));
    let unknown = run(build("--target cuda --arch sm_50")).expect(2);
    assert!(unknown.stderr.contains("does not support the architecture `sm_50`, only sm_"), "{unknown}");
    let misspelt = run(build("--target cuda --arch volta")).expect(2);
    assert!(misspelt.stderr.contains("write architectures like `sm_90`"), "{misspelt}");
    let misplaced = run(build("--arch sm_90")).expect(2);
    assert!(misplaced.stderr.contains("only the target `cuda` supports it"), "{misplaced}");
    let mut without = build("--target cuda --arch sm_90");
    without.env("OPCOLLECT_NVRTC", "/nowhere/libnvrtc.so");
    let missing = run(without).expect(3);
    assert!(missing.stderr.contains("\nhint: run `scripts/setup`"), "{missing}");
    assert!(!bench.path("made").exists());
}

#[test]
fn altered_machine_code_is_not_loaded() {
    if !has_compiler() {
        return;
    }
    let bench = Bench::new();
    run(bench.opcollect(&format!("build {RELU} --schedules 1 --target cuda --arch sm_90 --out made"))).expect(0);
    let made = bench.path("made");
    let code = made.read_dir().expect("a folder").map(|entry| entry.expect("an entry").path());
    let code = code.into_iter().find(|path| path.extension().is_some_and(|e| e == "cubin")).expect("machine code");
    let mut bytes = std::fs::read(&code).expect("it can be read");
    *bytes.last_mut().expect("it is not empty") ^= 1;
    std::fs::write(&code, bytes).expect("it can be written");
    let refused = run(bench.opcollect("run made --store data")).expect(2);
    assert!(refused.stderr.contains("the content of the file changed: its hash differs"), "{refused}");
}

/// Kernels for a Mali GPU are compiled; running them is rejected.
#[test]
fn kernels_for_mali_are_compiled_only() {
    let bench = Bench::new();
    let product = "--modelsource simple --modelname conv2d:ci=8,hw=14,co=8,k=3,p=1 --schedules 2 --config quick.toml";
    run(bench.opcollect(&format!("build {product} --target mali --out made"))).expect(0);
    let plan = std::fs::read_to_string(bench.path("made/plan.json")).expect("the folder has a plan");
    let plan: serde_json::Value = serde_json::from_str(&plan).expect("the plan is JSON");
    assert_eq!(plan["target"]["kind"], "opencl");
    for built in plan["builds"].as_array().expect("a list of builds") {
        assert_eq!(built["device"]["cubins"].as_array().map(Vec::len), Some(0), "a driver makes the machine code");
        let file = built["device"]["source"].as_str().expect("a file's name");
        assert!(file.ends_with(".cl"), "{file}");
        let source = std::fs::read_to_string(bench.path("made").join(file)).expect("the kernels");
        assert!(source.contains("__kernel void"), "{source}");
    }
    for command in [
        "run made --store data".to_owned(),
        format!("{RELU} --target mali --store data"),
        format!("model run {RELU} --target mali"),
    ] {
        let refused = run(bench.opcollect(&command)).expect(2);
        assert!(refused.stderr.starts_with("error: no Mali GPU is available"), "{command}: {refused}");
        assert!(!bench.path("data").exists(), "no store is left behind");
    }
    run(bench.opcollect(&format!("space {RELU} --target mali"))).expect(0);
}
