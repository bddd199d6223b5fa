//! Tests that every operator compiles for GPUs, within each architecture's limits, without a GPU. Nothing is launched.
//! `scripts/cuda-coverage` runs the same test and writes the table of the documentation.

// A test that is skipped says so aloud.
#![allow(clippy::print_stderr)]

mod common;
#[path = "common/every.rs"]
mod every;

use bench::Bench;
use bench::Build;
use common::device::{Outcome, build, expect_all};
use common::open;
use cuda::Image;
use cuda::cupti::{self, offsets};
use cuda::nvrtc::Nvrtc;
use cuda::profiler::{ParameterLayout, SUPPORT_LEVELS, USER_RANGES, USER_REPLAY, layouts};
use every::TASKS;
use job::BuildJob;
use job::device::{Architecture, Argument, Count, Launch, kernel_occupancy};
use job::space::{self, Knobs, Schedule, Space};
use measure::counters::gpu::GPU_NAMES;
use models::Op;
use reference::Rounding;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use targets::Target;

const OUT_VARIABLE: &str = "OPCOLLECT_COVERAGE_OUT";
const ARCHITECTURES_VARIABLE: &str = "OPCOLLECT_COVERAGE_ARCHITECTURES";

fn has_compiler() -> bool {
    match Nvrtc::open() {
        Ok(_) => true,
        Err(error) => {
            eprintln!("skipped: {error}");
            false
        }
    }
}

/// Tests that cut machine code is rejected: the driver gets no length, so it would read past the end of the bytes.
#[test]
fn machine_code_that_was_cut_is_no_image() {
    if !has_compiler() {
        return;
    }
    let nvrtc = Nvrtc::open().expect("it was there");
    let source = "extern \"C\" __global__ void f(float *x, int n) { if (threadIdx.x < n) x[threadIdx.x] += 1; }";
    let mut code =
        nvrtc.compile_source(source, Architecture::parse_name("sm_80").expect("a name")).expect("it compiles").cubin;
    assert!(Image::from_cubin(&code).is_ok());
    for length in 0..code.len() {
        assert!(Image::from_cubin(&code[..length]).is_err(), "{length} of {} bytes", code.len());
    }
    for place in 0..code.len() {
        let byte = code[place];
        for other in [0, 0x7f, 0xff] {
            code[place] = other;
            if let Ok(image) = Image::from_cubin(&code) {
                assert_eq!(image.as_bytes().len(), code.len());
            }
        }
        code[place] = byte;
    }
}

fn target(architectures: &[String]) -> Target {
    targets::parse_cuda(&targets::cuda_text(architectures)).expect("the architectures have names")
}

#[test]
fn every_operator_compiles() {
    if !has_compiler() {
        return;
    }
    let architectures = std::env::var(ARCHITECTURES_VARIABLE).unwrap_or_else(|_| "sm_75,sm_80,sm_90".to_owned());
    let architectures: Vec<String> = architectures.split(',').map(str::to_owned).collect();
    let target = target(&architectures);
    let default = |text: &&'static str| {
        let knobs = space::task_space(&common::task(text), &target.machine).default;
        (*text, Schedule::Template { knobs })
    };
    let tried: Vec<(&str, Schedule)> = TASKS.iter().map(default).collect();
    let outcomes = build(&mut common::workers(), &target, &tried);
    if let Some(out) = std::env::var_os(OUT_VARIABLE) {
        std::fs::write(out, table(&architectures, &outcomes)).expect("the table can be written");
    }
    expect_all(&tried, &outcomes);
    for code in outcomes.iter().flatten() {
        let made_for: Vec<String> = code.cubins.iter().map(|cubin| cubin.architecture.to_string()).collect();
        assert_eq!(made_for, architectures, "one file of machine code for each architecture");
    }
}

#[test]
fn open_sizes_compile() {
    if !has_compiler() {
        return;
    }
    let target = target(&["sm_75".to_owned(), "sm_90".to_owned()]);
    let default = |text: &&'static str| {
        let space = space::task_space(&common::task(text), &target.machine);
        (*text, Schedule::Template { knobs: space.default })
    };
    let tasks = [open::PRODUCTS, open::ON_TENSOR_CORES, open::ATTENTION, open::ROWS].concat();
    let tried: Vec<(&str, Schedule)> = tasks.iter().map(default).collect();
    let outcomes = build(&mut common::workers(), &target, &tried);
    expect_all(&tried, &outcomes);
    for ((text, _), code) in tried.iter().zip(outcomes.iter().flatten()) {
        let is_open = |count: &Count| count.known_value().is_none();
        let has_open = |launch: &Launch| {
            let numbers = launch.arguments.iter().any(|argument| matches!(argument, Argument::Number(_)));
            numbers || launch.grid.iter().any(is_open)
        };
        assert!(code.launches.iter().any(has_open), "{text}: nothing is open in {:?}", code.launches);
        for bound in open::at_sizes(&common::task(text)) {
            let types = bound.parameters.iter().map(|parameter| &parameter.ty);
            let output = &bound.steps.last().expect("a task has a step").output;
            let extents: Vec<Vec<i64>> = types.chain([output]).map(|ty| ty.extents().expect("numbers")).collect();
            let launches = code.resolve_launches(&extents).unwrap_or_else(|why| panic!("{}: {why}", bound.to_text()));
            assert!(launches.launches.iter().all(|launch| launch.known_grid().is_some()), "{launches:?}");
        }
    }
}

#[test]
fn every_operator_has_a_task() {
    // What serde says of an unknown operator names all that it knows.
    let unknown = serde_json::from_str::<Op>(r#"{"kind": "?"}"#).expect_err("no operator has this name").to_string();
    let operators: Vec<&str> = unknown.split('`').skip(3).step_by(2).collect();
    assert!(operators.len() > 50 && operators.contains(&"conv"), "{unknown}");
    let tried = TASKS.iter().map(|text| serde_json::to_value(&common::task(text).steps[0].op).expect("plain data"));
    let tried: Vec<String> = tried.map(|op| op["kind"].as_str().expect("its tag").to_owned()).collect();
    let missing: Vec<&str> =
        operators.into_iter().filter(|operator| !tried.iter().any(|tried| tried == operator)).collect();
    assert!(missing.is_empty(), "operators without a task: {missing:?}");
}

#[test]
fn products_compile_for_tensor_cores() {
    if !has_compiler() {
        return;
    }
    const POINTS: usize = 2;
    let tasks = [
        ("mat_mul(f16[128,64], f16[64,96]) transpose_a=false transpose_b=false", "sm_75"),
        ("mat_mul(f16[64,128], f16[96,64]) transpose_a=true transpose_b=true", "sm_80"),
        ("mat_mul(f16[3,32,64], f16[3,64,32]) transpose_a=false transpose_b=false", "sm_90"),
        (
            r#"dense(f16[2,64,64], const f16[64,64]) | bias_add(_, const f16[64]) axis=2 | unary(_) function="gelu""#,
            "sm_90",
        ),
        ("mat_mul(bf16[64,64], bf16[64,64]) transpose_a=false transpose_b=false", "sm_80"),
        ("q_mat_mul(i8[64,64], i8[64,64]) a_zero=0 b_zero=0", "sm_75"),
        ("q_dense(u8[64,64], const u8[64,64]) x_zero=0 w_zero=0", "sm_80"),
        (
            r#"conv(f16[1,64,14,14], const f16[64,64,3,3]) strides=[1,1] pads=[1,1,1,1] dilations=[1,1] groups=1 | bias_add(_, const f16[64]) axis=1 | unary(_) function="relu""#,
            "sm_75",
        ),
        ("conv(bf16[2,32,9,7], const bf16[32,32,1,1]) strides=[2,2] pads=[0,0,0,0] dilations=[1,1] groups=1", "sm_90"),
        (
            "q_conv(i8[1,32,7,7], const i8[32,32,3,3]) strides=[1,1] pads=[1,1,1,1] dilations=[1,1] groups=1 x_zero=0 w_zero=0",
            "sm_80",
        ),
    ];
    for (text, architecture) in tasks {
        let target = target(&[architecture.to_owned()]);
        let space = space::task_space(&common::task(text), &target.machine);
        assert_eq!(space.default.choice("unit"), Some("tensor"), "{text}");
        let points =
            space::sample_points(&space, 3, 64).into_iter().filter(|knobs| knobs.choice("unit") == Some("tensor"));
        let tried: Vec<(&str, Schedule)> =
            points.take(1 + POINTS).map(|knobs| (text, Schedule::Template { knobs })).collect();
        assert_eq!(tried.len(), 1 + POINTS, "{text}");
        let outcomes = build(&mut common::workers(), &target, &tried);
        expect_all(&tried, &outcomes);
        for code in outcomes.iter().flatten() {
            assert!(code.source.contains("nvcuda::wmma::mma_sync("), "{}", code.source);
        }
    }
}

fn on_tensor_cores(space: &Space, name: &str, setting: &str, count: usize) -> Vec<Knobs> {
    let points = space::sample_points(space, 3, 256).into_iter();
    let wanted = |knobs: &Knobs| knobs.choice("unit") == Some("tensor") && knobs.choice(name) == Some(setting);
    points.filter(wanted).take(count).collect()
}

#[test]
fn copies_in_the_background_compile() {
    if !has_compiler() {
        return;
    }
    let tasks = [
        ("mat_mul(f16[128,256], f16[256,128]) transpose_a=false transpose_b=false", "sm_80"),
        ("dense(bf16[128,256], const bf16[128,256])", "sm_90"),
        ("q_mat_mul(i8[128,256], i8[256,128]) a_zero=0 b_zero=0", "sm_90"),
    ];
    for (text, architecture) in tasks {
        let target = target(&[architecture.to_owned()]);
        let points = on_tensor_cores(&space::task_space(&common::task(text), &target.machine), "copy", "async", 2);
        assert_eq!(points.len(), 2, "{text}");
        let tried: Vec<(&str, Schedule)> =
            points.into_iter().map(|knobs| (text, Schedule::Template { knobs })).collect();
        let outcomes = build(&mut common::workers(), &target, &tried);
        expect_all(&tried, &outcomes);
        for code in outcomes.iter().flatten() {
            assert!(code.source.contains("copy_async_16("), "{}", code.source);
            assert!(code.source.contains("__pipeline_wait_prior("), "{}", code.source);
        }
    }
    let older = space::task_space(&common::task(tasks[0].0), &target(&["sm_75".to_owned()]).machine);
    assert!(older.axes.iter().all(|axis| axis.name != "copy"), "devices before sm_80 have no such copies");
}

#[test]
fn rounded_operands_compile_and_are_never_the_default() {
    if !has_compiler() {
        return;
    }
    let tasks = [
        ("matmul:m=128,n=128,k=128", "sm_80"),
        ("mat_mul(f32[128,64], f32[64,128]) transpose_a=true transpose_b=true", "sm_90"),
        ("dense:m=64,n=128,k=256,bias=1,act=relu", "sm_90"),
        ("conv2d:ci=64,hw=28,co=64,k=3,p=1", "sm_80"),
    ];
    for (text, architecture) in tasks {
        let target = target(&[architecture.to_owned()]);
        let space = space::task_space(&common::task(text), &target.machine);
        assert_eq!(space.default.choice("unit"), Some("threads"), "{text}");
        let points = on_tensor_cores(&space, "precision", "tf32", 2);
        assert_eq!(points.len(), 2, "{text}");
        for knobs in &points {
            let mut unasked = knobs.clone();
            unasked.0.remove("precision");
            assert!(!space.allows_point(&unasked), "{unasked:?}");
        }
        let tried: Vec<(&str, Schedule)> =
            points.into_iter().map(|knobs| (text, Schedule::Template { knobs })).collect();
        let outcomes = build(&mut common::workers(), &target, &tried);
        expect_all(&tried, &outcomes);
        for code in outcomes.iter().flatten() {
            assert_eq!(code.rounding, Rounding::Tf32);
            assert!(code.source.contains("nvcuda::wmma::__float_to_tf32("), "{}", code.source);
            // A lane's part of its fragments stays in registers.
            assert_eq!(code.cubins[0].kernels[0].stack_bytes, 0, "{:?}", code.cubins[0].kernels[0]);
        }
    }
    let older = space::task_space(&common::task(tasks[0].0), &target(&["sm_75".to_owned()]).machine);
    assert!(older.axes.iter().all(|axis| axis.name != "unit"), "devices before sm_80 have no tf32");
}

#[test]
fn convolutions_of_residual_networks_have_points_on_tensor_cores() {
    // Channels, rows and columns of the image, channels of the result, extent of the kernel, stride, padding.
    let layers = [
        [64, 56, 64, 1, 1, 0],
        [64, 56, 64, 3, 1, 1],
        [64, 56, 256, 1, 1, 0],
        [64, 56, 128, 3, 2, 1],
        [128, 28, 128, 3, 1, 1],
        [256, 28, 128, 1, 1, 0],
        [256, 14, 256, 3, 1, 1],
        [1024, 14, 256, 1, 1, 0],
        [256, 14, 512, 3, 2, 1],
        [512, 7, 512, 3, 1, 1],
        [512, 7, 2048, 1, 1, 0],
    ];
    let target = target(&["sm_75".to_owned()]);
    for images in [1, 32] {
        for [channels, side, results, kernel, stride, pad] in layers {
            let text = format!(
                "conv(f16[{images},{channels},{side},{side}], const f16[{results},{channels},{kernel},{kernel}]) \
                 strides=[{stride},{stride}] pads=[{pad},{pad},{pad},{pad}] dilations=[1,1] groups=1"
            );
            let space = space::task_space(&common::task(&text), &target.machine);
            assert_eq!(space.default.choice("unit"), Some("tensor"), "{text}");
            assert!(space.allows_point(&space.default), "{text}");
        }
    }
    let grouped = "conv(f16[1,64,14,14], const f16[64,32,3,3]) strides=[1,1] pads=[1,1,1,1] dilations=[1,1] groups=2";
    let space = space::task_space(&common::task(grouped), &target.machine);
    assert!(space.axes.iter().all(|axis| axis.name != "unit"), "only one group is a product of matrices");
}

#[test]
fn long_sums_of_few_elements_compile() {
    if !has_compiler() {
        return;
    }
    let target = target(&["sm_75".to_owned(), "sm_80".to_owned(), "sm_90".to_owned()]);
    let tasks = [
        ("dense:m=1,n=1000,k=512,bias=1", 1),
        ("matmul:m=4,n=64,k=4096", 2),
        ("conv2d:ci=512,hw=7,co=512,k=3,p=1,bias=1,act=relu", 2),
    ];
    let mut tried = Vec::new();
    let mut kernels = Vec::new();
    for (text, expected) in tasks {
        let space = space::task_space(&common::task(text), &target.machine);
        let points = space::sample_points(&space, 3, 256).into_iter();
        let is_split = |knobs: &Knobs| knobs.number("split_k").is_some_and(|parts| parts > 1);
        let knobs = if expected == 1 { Some(space.default.clone()) } else { points.into_iter().find(is_split) };
        let knobs = knobs.unwrap_or_else(|| panic!("{text}: no point splits the sum"));
        assert_eq!(knobs.choice("sum") == Some("block"), expected == 1, "{text}");
        tried.push((text, Schedule::Template { knobs }));
        kernels.push(expected);
    }
    let outcomes = build(&mut common::workers(), &target, &tried);
    expect_all(&tried, &outcomes);
    for (code, expected) in outcomes.iter().flatten().zip(kernels) {
        assert_eq!(code.launches.len(), expected);
    }
    // The image's own elements keep a device busy.
    let large = space::task_space(&common::task("matmul:m=1024,n=1024,k=4096"), &target.machine);
    assert!(large.axes.iter().all(|axis| axis.name != "split_k" && axis.name != "sum"));
}

fn table(architectures: &[String], outcomes: &[Outcome]) -> String {
    let built = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    let mut text = format!(
        "# CUDA coverage\n\nWritten by `scripts/cuda-coverage`; do not edit.\n\n{built} of {} tasks compile with their \
         default schedule for each of {} and stay within its limits. Nothing was launched.\n\nOf each task, over its \
         kernels: the most registers of a thread and the least occupancy, by architecture.\n\n| task | kernels | {} |\n\
         |---|---|{}\n",
        outcomes.len(),
        architectures.join(", "),
        architectures.join(" | "),
        "---|".repeat(architectures.len()),
    );
    for (task, outcome) in TASKS.iter().zip(outcomes) {
        let name = task.replace('|', "\\|");
        match outcome {
            Err(why) => writeln!(text, "| `{name}` | not built: {} |", why.lines().next().unwrap_or_default()),
            Ok(code) => {
                let figures: Vec<String> = code
                    .cubins
                    .iter()
                    .map(|cubin| {
                        let features: BTreeMap<&str, f64> = cubin.static_features().into_iter().collect();
                        format!("{} · {:.2}", features["registers_max"], features["occupancy_min"])
                    })
                    .collect();
                writeln!(text, "| `{name}` | {} | {} |", code.launches.len(), figures.join(" | "))
            }
        }
        .expect("a text takes any line");
    }
    text
}

#[test]
fn sampled_schedules_compile() {
    if !has_compiler() {
        return;
    }
    let target = target(&["sm_90".to_owned()]);
    let mut tried = Vec::new();
    for text in ["matmul:m=64,n=96,k=32", "conv2d:ci=16,hw=14,co=32,k=3,p=1", "softmax:shape=7x1000,axis=1"] {
        let space = space::task_space(&common::task(text), &target.machine);
        let points = space::sample_points(&space, 3, 6);
        tried.extend(points.into_iter().map(|knobs| (text, Schedule::Template { knobs })));
        tried.push((text, Schedule::MetaSchedule { space: 0, seed: 7, trace: None }));
    }
    let outcomes = build(&mut common::workers(), &target, &tried);
    expect_all(&tried, &outcomes);
}

#[test]
fn tvms_own_schedules_use_tensor_cores() {
    if !has_compiler() {
        return;
    }
    /// Index of the space with tensor cores; space 0 has none.
    const SPACE: usize = 1;
    let tasks = [
        ("mat_mul(f16[256,256], f16[256,256]) transpose_a=false transpose_b=false", "sm_75"),
        ("dense(bf16[128,256], const bf16[256,256])", "sm_80"),
        ("q_mat_mul(i8[128,256], i8[256,128]) a_zero=0 b_zero=0", "sm_80"),
        (
            r#"dense(f16[64,128], const f16[128,128]) | bias_add(_, const f16[128]) axis=1 | unary(_) function="relu""#,
            "sm_90",
        ),
    ];
    let mut workers = common::workers();
    for (text, architecture) in tasks {
        let target = target(&[architecture.to_owned()]);
        let mut make = |schedule: &Schedule| {
            let job = BuildJob { wants_trace: true, ..common::build_job(&common::task(text), &target, schedule) };
            match workers.build_jobs(&[job], &mut || {}).pop() {
                Some(Build::Built(artifact)) => {
                    let code = artifact.device.expect("code for a device");
                    (code.source, artifact.trace.expect("it was asked for"))
                }
                other => panic!("{text}: {other:?}"),
            }
        };
        let (source, trace) = make(&Schedule::MetaSchedule { space: SPACE, seed: 7, trace: None });
        assert!(source.contains("nvcuda::wmma::mma_sync("), "{source}");
        let trace = serde_json::from_str(&trace).expect("a trace is JSON");
        let drawn = Schedule::MetaSchedule { space: SPACE, seed: 7, trace: Some(trace) };
        assert_eq!(make(&drawn).0, source, "{text}");
    }
}

#[test]
fn figures_of_a_product_agree_with_its_code() {
    if !has_compiler() {
        return;
    }
    let target = target(&["sm_80".to_owned(), "sm_90".to_owned()]);
    let text = "matmul:m=64,n=64,k=64";
    let knobs = space::task_space(&common::task(text), &target.machine).default;
    let outcomes = build(&mut common::workers(), &target, &[(text, Schedule::Template { knobs })]);
    let code = outcomes[0].as_ref().expect("it is built");
    assert_eq!(code.cubins.len(), 2);
    let launch = &code.launches[0];
    for cubin in &code.cubins {
        let kernel = &cubin.kernels[0];
        assert!(kernel.code_bytes > 0 && kernel.registers > 0 && kernel.shared_bytes > 0, "{kernel:?}");
        assert_eq!(u64::from(kernel.block_threads), launch.block_threads());
        assert!(cubin.architecture >= Architecture::parse_name("sm_80").expect("a name"));
        assert_eq!(&cubin.bytes[..4], b"\x7fELF");
    }
    assert_eq!(launch.arguments.len(), 3, "two operands and the result: {launch:?}");
}

/// Compares the occupancy of many kernels with NVIDIA's calculator, a header in the wheel of the CUDA runtime.
#[test]
fn occupancy_agrees_with_nvidias_calculator() {
    const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/occupancy.c");
    let opened = Nvrtc::open();
    let Some(include) = opened.as_ref().ok().and_then(Nvrtc::include_folder) else {
        eprintln!("skipped: no headers of the CUDA runtime");
        return;
    };
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let calculator = folder.path().join("calculator");
    let mut compiler = Command::new("cc");
    let compiled = compiler.arg("-I").arg(include).arg(SOURCE).arg("-o").arg(&calculator).status();
    assert!(compiled.expect("there is a C compiler").success());
    let (mut questions, mut answers) = (String::new(), Vec::new());
    for name in ["sm_75", "sm_80", "sm_86", "sm_87", "sm_89", "sm_90", "sm_100", "sm_103", "sm_120"] {
        let architecture = Architecture::parse_name(name).expect("a name");
        let offered = architecture.multiprocessor();
        for threads in [32, 64, 96, 128, 192, 256, 384, 512, 768, 1024] {
            for registers in [16, 24, 32, 40, 64, 72, 96, 128, 168, 255] {
                for shared in [0, 100, 1024, 6336, 20_480, 49_152] {
                    let (kib, reserved) = (offered.shared_bytes >> 10, offered.reserved_shared_bytes);
                    let number = architecture.number;
                    writeln!(questions, "{number} {} {kib} {reserved} {threads} {registers} {shared}", offered.threads)
                        .expect("a text takes any line");
                    answers.push(kernel_occupancy(architecture, threads, registers, shared).blocks);
                }
            }
        }
    }
    let asked = folder.path().join("questions");
    std::fs::write(&asked, &questions).expect("the questions can be written");
    let asked = std::fs::File::open(&asked).expect("they were just written");
    let said = Command::new(&calculator).stdin(asked).output().expect("the calculator runs").stdout;
    let said = String::from_utf8(said).expect("it writes numbers");
    assert_eq!(said.lines().count(), answers.len());
    for ((question, answer), said) in questions.lines().zip(answers).zip(said.lines()) {
        assert_eq!(answer.to_string(), said, "{question}");
    }
}

fn cupti_headers() -> Option<PathBuf> {
    let include = cupti::candidate_paths().into_iter().find_map(|file| {
        let folder = file.parent()?.parent()?.join("include");
        folder.join("cupti.h").is_file().then_some(folder)
    });
    if include.is_none() {
        eprintln!("skipped: no CUPTI with headers");
    }
    include
}

fn said(source: &Path, include: Option<&Path>, arguments: &[&str]) -> String {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let program = folder.path().join("program");
    let mut compiler = Command::new("cc");
    if let Some(include) = include {
        compiler.arg("-I").arg(include);
    }
    let compiled = compiler.arg(source).arg("-o").arg(&program).arg("-ldl").status();
    assert!(compiled.expect("there is a C compiler").success());
    let done = Command::new(&program).args(arguments).output().expect("it runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).expect("it writes text")
}

#[test]
fn records_of_kernels_are_read_where_cupti_has_them() {
    const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cupti.c");
    let Some(include) = cupti_headers() else { return };
    // It needs no driver to be opened, and one to tell its version.
    let opened = cupti::Cupti::open().expect("it opens anywhere");
    assert!(opened.interface_version().is_none_or(|version| version > 0));
    let read = format!("{} {} {} {}\n", offsets::KIND, offsets::START, offsets::END, cupti::CONCURRENT_KERNEL);
    assert_eq!(said(Path::new(SOURCE), Some(&include), &[]), read);
}

#[test]
fn structures_of_the_profiler_are_as_nvidia_declares_them() {
    /// Structures that later releases of CUPTI extended by fields that this program does not use.
    const LONGER_NOW: [&str; 3] = [
        "CUpti_Profiler_DeviceSupported_Params",
        "CUpti_Profiler_Host_Initialize_Params",
        "CUpti_RangeProfiler_Enable_Params",
    ];
    let Some(include) = cupti_headers() else { return };
    let mut source = "#include <cuda.h>\n#include <cupti.h>\n#include <cupti_profiler_host.h>\n\
                      #include <cupti_range_profiler.h>\n#include <cupti_target.h>\n#include <stddef.h>\n\
                      #include <stdio.h>\nint main(void) {\n"
        .to_owned();
    let mut expected = String::new();
    let mut expect = |line: String, what: String| {
        writeln!(source, "  printf(\"%zu\\n\", (size_t)({what}));").expect("a text takes any line");
        writeln!(expected, "{line}").expect("a text takes any line");
    };
    for ParameterLayout { structure, size, fields } in layouts() {
        for (field, offset) in &fields {
            expect(offset.to_string(), format!("offsetof({structure}, {field})"));
        }
        let (last, offset) = fields.last().expect("each has its size");
        expect(size.to_string(), format!("{offset} + sizeof((({structure} *)0)->{last})"));
        let is_whole = !LONGER_NOW.contains(&structure);
        expect(u8::from(is_whole).to_string(), format!("{structure}_STRUCT_SIZE == {size}"));
    }
    for (number, name) in [(USER_RANGES, "CUPTI_UserRange"), (USER_REPLAY, "CUPTI_UserReplay")] {
        expect(number.to_string(), name.to_owned());
    }
    for (number, name) in SUPPORT_LEVELS {
        expect(number.to_string(), name.to_owned());
    }
    source.push_str("}\n");
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let file = folder.path().join("layouts.c");
    std::fs::write(&file, &source).expect("the source can be written");
    let said = said(&file, Some(&include), &[]);
    for ((asked, expected), said) in source.lines().skip(8).zip(expected.lines()).zip(said.lines()) {
        assert_eq!(expected, said, "{asked}");
    }
    assert_eq!(expected.lines().count(), said.lines().count());
}

#[test]
fn chips_have_a_metric_for_each_counter() {
    const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/metrics.c");
    /// Chips that share the host's memory, whose traffic the profiler does not count.
    const WITHOUT_MEMORY: [&str; 5] = ["GA10B", "GB10B", "GB10C", "GB20B", "GB20C"];
    let library = cupti::candidate_paths()
        .into_iter()
        .map(|file| file.with_file_name("libnvperf_host.so"))
        .find(|file| file.is_file());
    let Some(library) = library else {
        eprintln!("skipped: no CUPTI with its library of metrics");
        return;
    };
    let counters = || GPU_NAMES.iter().filter(|counter| !counter.metrics.is_empty());
    let mut arguments = vec![library.to_str().expect("a path in UTF-8"), "no_such__metric.sum"];
    arguments.extend(counters().flat_map(|counter| counter.metrics));
    let said = said(Path::new(SOURCE), None, &arguments);
    assert!(said.lines().count() > 20 && said.contains("GH100"), "{said}");
    for line in said.lines() {
        let mut words = line.split(' ');
        let chip = words.next().expect("a line begins with a chip");
        let mut has = words.map(|word| word == "1");
        assert_eq!(has.next(), Some(false), "{chip} has a metric that there is not");
        for counter in counters() {
            let found: Vec<bool> = has.by_ref().take(counter.metrics.len()).collect();
            let has_none = WITHOUT_MEMORY.contains(&chip) && counter.name.starts_with("gpu_dram_");
            assert_eq!(found.contains(&true), !has_none, "{chip}: {}", counter.name);
        }
    }
}
