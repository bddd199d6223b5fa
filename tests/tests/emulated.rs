//! Correctness of GPU kernels and of the GPU runner on a machine without a GPU.
//!
//! The generated CUDA C is compiled for the CPU with a small header (`emulator/device.h`); driver, NVML and CUPTI are
//! emulated. NVIDIA's machine code, driver and speed are not tested here; `scripts/test-gpu` does that on a machine
//! with a GPU.

// Skipped tests print a message.
#![allow(clippy::print_stderr)]

#[path = "../../collector/kernel/tests/common/mod.rs"]
mod common;

use bench::{Bench, Build, Prebuilt, Workers};
use capture::writer::sink::Format;
use common::open;
use cuda::cupti;
use engine::doctor::{DoctorRequest, Status, check_machine};
use engine::network;
use executor::program::Numbers;
use job::device::{Argument, Count, DeviceCode};
use job::space::{self, Knobs, Schedule, Setting, Space};
use job::{Artifact, BuildJob, Engine, Measured, NetworkJob, RunJob, RunReply};
use measure::counters::{Backend, CounterRequest, Refusal, Step};
use measure::{Cache, Method, Plan, Warning};
use profile::averages::{self, Grouping, compute_averages};
use profile::data::{Operator, Pool};
use profile::summary::{self, GroupBy};
use profile::{Profile, SortBy, export, page};
use std::fs;
use std::path::Path;
use std::process::Command;
use targets::Target;
use tests::campaigns::{self, given};
use tests::emulator::{self, Behaviour, FOLDER_VARIABLE, SOURCES, compile};
use zoo::transformers;

const FAULT: &str = "fault";
const JOBS: &str = "jobs.json";
const MODEL: &str = "gpt2:n_layer=2,n_embd=32,n_head=4,vocab_size=50";
const GRAPH: &str = "graph.json";
const PROGRAM: &str = "program";
/// Path of the emulated CUPTI, if there are headers to compile it; the file is renamed for tests without CUPTI.
const PROFILER: &str = "libcupti.so";
const HIDDEN: &str = "libcupti.hidden";

/// Tasks, each with the number of schedules of its space to test, the default schedule first.
const TASKS: &[(&str, usize)] = &[
    ("matmul:m=64,n=96,k=32", 3),
    ("matmul:m=17,n=31,k=7", 2),
    ("dense:m=10,n=32,k=17,bias=1,act=gelu", 2),
    ("conv2d:ci=16,hw=14,co=32,k=3,p=1,bias=1,act=relu", 2),
    ("depthwise_conv2d:c=8,hw=14,k=5,s=2,p=2", 2),
    ("dense:m=1,n=12,k=320,bias=1", 2),
    ("dense(f16[1,128], const f16[16,128])", 2),
    ("conv2d:ci=96,hw=1,co=24,k=1,bias=1", 2),
    (
        r#"q_dense(i8[1,128], const i8[16,128]) x_zero=-5 w_zero=0 | bias_add(_, const i32[16]) axis=1 | requantize(_, const f32[]) to="i8" axis=0 zero=-3 low=-128 high=127"#,
        2,
    ),
    ("softmax:shape=3x1000,axis=1", 2),
    ("layer_norm:shape=3x4x128,axis=-1", 2),
    ("global_avg_pool:shape=1x5x9x9", 2),
    ("max_pool2d:c=2,hw=112,k=3,s=2,p=1", 6),
    ("mat_mul(f16[64,64], f16[64,96]) transpose_a=false transpose_b=false", 2),
    ("mat_mul(f16[32,64], f16[32,32]) transpose_a=true transpose_b=true", 2),
    ("mat_mul(f16[3,32,64], f16[3,64,32]) transpose_a=false transpose_b=false", 2),
    (r#"dense(f16[2,32,64], const f16[32,64]) | bias_add(_, const f16[32]) axis=2 | unary(_) function="relu""#, 2),
    ("mat_mul(bf16[32,64], bf16[64,32]) transpose_a=false transpose_b=false", 2),
    ("q_mat_mul(i8[32,64], i8[64,32]) a_zero=0 b_zero=0", 2),
    (CONV_F16, 4),
    ("conv(f16[2,32,7,7], const f16[16,32,1,1]) strides=[2,2] pads=[0,0,0,0] dilations=[1,1] groups=1", 2),
    ("conv(bf16[2,16,9,5], const bf16[16,16,3,2]) strides=[1,2] pads=[1,0,1,0] dilations=[2,1] groups=1", 2),
    ("conv(f16[1,16,40], const f16[16,16,4]) strides=[2] pads=[1,2] dilations=[1] groups=1", 2),
];

const CONV_F16: &str = r#"conv(f16[1,32,9,9], const f16[32,32,3,3]) strides=[1,1] pads=[1,1,1,1] dilations=[1,1] groups=1 | bias_add(_, const f16[32]) axis=1 | unary(_) function="relu""#;

const TF32: &str = "unit=tensor precision=tf32 warps_y=1 warps_x=1 fragments_y=2 fragments_x=1 fragments_r=2 ahead=1 \
                    copy=registers";

const TF32_CONV: &str =
    "unit=tensor precision=tf32 warps_y=1 warps_x=1 fragments_y=2 fragments_x=1 fragments_r=2 ahead=1";

/// Tasks with changes of the default schedule's knobs, which produce transformations that few schedules contain.
const POINTS: &[(&str, &str)] = &[
    ("dense:m=4,n=24,k=256,bias=1,act=relu", "split_k=4"),
    ("dense:m=4,n=24,k=256", "split_k=16 stage=global"),
    ("dense:m=4,n=24,k=256,bias=1,act=relu", "sum=block sum_threads=32 sum_elements=4 sum_fetch=4"),
    (
        "mat_mul(f16[2,4,256], f16[2,12,256]) transpose_a=false transpose_b=true",
        "sum=block sum_threads=32 sum_elements=2 sum_fetch=8",
    ),
    ("matmul:m=3,n=7,k=96", "sum=block sum_threads=64 sum_elements=1"),
    ("matmul:m=64,n=64,k=64", "stage=shared pad_rows=1 fetch=4 split_r=8"),
    ("dense:m=64,n=64,k=64,bias=1", "stage=shared pad_rows=1 fetch=2 split_r=8"),
    ("dense(f16[32,64], const f16[48,64])", "stage=shared pad_rows=1 fetch=2 split_r=8"),
    ("conv2d:ci=64,hw=4,co=8,k=3,p=1,bias=1", "split_k=4"),
    ("conv2d:ci=64,hw=4,co=8,k=3,p=1", "sum=block sum_threads=32 sum_elements=2"),
    ("dense(f16[2,96], const f16[12,96])", "split_k=2"),
    (r#"dense(f16[32,128], const f16[32,128]) | bias_add(_, const f16[32]) axis=1"#, "unit=tensor split_k=2"),
    ("mat_mul(f16[2,32,128], f16[2,128,32]) transpose_a=false transpose_b=false", "unit=tensor split_k=4 ahead=0"),
    (CONV_F16, "warps_y=1 warps_x=1 fragments_y=1 fragments_x=1 fragments_r=1 split_k=2 ahead=1"),
    (CONV_F16, "warps_x=2 warps_y=1 fragments_x=2 fragments_y=2 fragments_r=1 ahead=0"),
    (
        "mat_mul(f16[64,96], f16[64,96]) transpose_a=false transpose_b=true",
        "warps_y=2 warps_x=1 fragments_y=1 fragments_x=2 fragments_r=2 ahead=1 copy=async",
    ),
    (
        "mat_mul(f16[64,96], f16[96,64]) transpose_a=false transpose_b=false",
        "warps_y=2 warps_x=1 fragments_y=1 fragments_x=2 fragments_r=1 ahead=2 copy=async",
    ),
    (
        "q_dense(u8[64,64], const u8[64,64]) x_zero=0 w_zero=0",
        "warps_y=2 warps_x=1 fragments_y=1 fragments_x=2 fragments_r=2 ahead=1 copy=async",
    ),
    ("mat_mul(f32[32,64], f32[64,48]) transpose_a=false transpose_b=false", TF32),
    ("mat_mul(f32[64,32], f32[48,64]) transpose_a=true transpose_b=true", TF32),
    ("mat_mul(f32[3,32,64], f32[3,48,64]) transpose_a=false transpose_b=true", TF32),
    ("dense:m=32,n=48,k=64,bias=1,act=relu", TF32),
    ("conv2d:ci=16,hw=9,co=32,k=3,p=1,bias=1", TF32_CONV),
];

/// Tasks with the index of the space, among TVM's own, in which a schedule is sampled; space 1 is for tensor cores.
const DRAWN: &[(&str, usize)] = &[
    ("matmul:m=64,n=96,k=32", 0),
    ("mat_mul(f16[64,96], f16[96,64]) transpose_a=false transpose_b=false", 1),
    (r#"dense(f16[32,64], const f16[64,64]) | bias_add(_, const f16[64]) axis=1 | unary(_) function="relu""#, 1),
    ("q_mat_mul(i8[64,64], i8[64,64]) a_zero=0 b_zero=0", 1),
];

fn point(space: &Space, differences: &str) -> Knobs {
    let mut knobs = space.default.clone();
    for difference in differences.split(' ') {
        let (name, setting) = difference.split_once('=').expect("a name and a setting");
        let setting = setting.parse().map_or_else(|_| Setting::Choice(setting.to_owned()), Setting::Number);
        let axis = space.axes.iter().find(|axis| axis.name == name).unwrap_or_else(|| panic!("no axis `{name}`"));
        assert!(axis.settings.contains(&setting), "{difference}: {:?}", axis.settings);
        knobs.0.insert(name.to_owned(), setting);
    }
    assert!(space.allows_point(&knobs), "{differences}: {knobs:?}");
    knobs
}

/// The loader must know the driver's folder when a process starts, so the test starts itself again.
#[test]
fn kernels_give_the_right_results_on_an_emulated_device() {
    if let Some(folder) = std::env::var_os(FOLDER_VARIABLE) {
        return on_emulated_device(Path::new(&folder));
    }
    let Some(include) = emulator::include() else {
        eprintln!("skipped: no NVRTC with headers, or no g++");
        return;
    };
    let include = include.as_path();
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    compile(&Path::new(SOURCES).join("driver.cpp"), &folder.path().join("libcuda.so.1"), &[include]);
    compile(&Path::new(SOURCES).join("state.c"), &folder.path().join("libnvidia-ml.so.1"), &[]);
    if include.join("cupti_range_profiler.h").is_file() {
        compile(&Path::new(SOURCES).join("cupti.cpp"), &folder.path().join(HIDDEN), &[include]);
    } else {
        eprintln!("skipped: counters of kernels, since there are no headers of CUPTI");
    }
    let jobs = jobs(folder.path());
    let text = serde_json::to_string(&jobs).expect("jobs are plain data");
    fs::write(folder.path().join(JOBS), text).expect("the jobs can be written");
    let mut again = Command::new(std::env::current_exe().expect("the test program has a path"));
    again.args(["--exact", "kernels_give_the_right_results_on_an_emulated_device", "--nocapture"]);
    // NVIDIA's profiler does not support the emulated driver.
    again.env(cupti::FILE_VARIABLE, folder.path().join(PROFILER));
    let done = again.env("LD_LIBRARY_PATH", folder.path()).env(FOLDER_VARIABLE, folder.path()).output();
    let done = done.expect("it ran once");
    let said = [done.stdout, done.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
    assert!(done.status.success(), "{}\n{}", said[0], said[1]);
}

fn jobs(folder: &Path) -> Vec<(String, RunJob)> {
    let target = targets::parse_cuda(&targets::cuda_text(&["sm_80".to_owned()])).expect("the architecture has a name");
    let mut tried = Vec::new();
    let open = [open::PRODUCTS, open::ON_TENSOR_CORES, open::ATTENTION, open::ROWS].concat();
    for (text, points) in TASKS.iter().copied().chain(open.iter().map(|text| (*text, 2))) {
        let space = space::task_space(&common::task(text), &target.machine);
        let points = space::sample_points(&space, 5, points).into_iter();
        tried.extend(points.map(|knobs| (text, Schedule::Template { knobs })));
    }
    for (text, differences) in POINTS {
        let knobs = point(&space::task_space(&common::task(text), &target.machine), differences);
        tried.push((*text, Schedule::Template { knobs }));
    }
    for (text, space) in DRAWN {
        tried.push((*text, Schedule::MetaSchedule { space: *space, seed: 3, trace: None }));
    }
    tried.push(tried[0].clone());
    let codes = build(&mut common::workers(), &target, &tried);
    // Two libraries are compiled concurrently.
    let libraries = ["kernels.so", "more-kernels.so"].map(|name| folder.join(name));
    let mut sources = [(); 2].map(|()| "#include \"device.h\"\n".to_owned());
    let mut jobs = Vec::new();
    for (place, ((text, schedule), code)) in tried.iter().zip(codes).enumerate() {
        let label = format!("{text} {}", schedule.describe_knobs());
        let mut code = code.unwrap_or_else(|why| panic!("{label}: {why}"));
        // The driver makes kernels of this name fail.
        let name = if place + 1 == tried.len() { FAULT.to_owned() } else { format!("task{place}") };
        sources[place % 2].push_str(&take(&name, &libraries[place % 2], &mut code));
        for task in open::at_sizes(&common::task(text)) {
            let mut job = common::run_job(&task, Vec::new(), &[0]);
            job.device = Some(code.clone());
            jobs.push((format!("{label} as {}", task.to_text()), job));
        }
    }
    sources[0].push_str(&model(folder, &target, &libraries[0]));
    std::thread::scope(|threads| {
        for (library, source) in libraries.iter().zip(&sources) {
            let file = library.with_extension("cpp");
            fs::write(&file, source).expect("the kernels can be written");
            threads.spawn(move || compile(&file, library, &[Path::new(SOURCES)]));
        }
    });
    jobs
}

/// Converts code for NVIDIA's devices to code for the emulated device. Returns the source to compile.
fn take(place: &str, library: &Path, code: &mut DeviceCode) -> String {
    let mut source = emulated(place, &code.source);
    for launch in &code.launches {
        let name = in_place(place, &launch.kernel);
        let count = launch.arguments.len();
        source.push_str(&format!("extern \"C\" int {name}_arguments;\nint {name}_arguments = {count};\n"));
    }
    let rename = |name: &mut String| *name = in_place(place, name);
    code.launches.iter_mut().for_each(|launch| rename(&mut launch.kernel));
    code.cubins[0].kernels.iter_mut().for_each(|kernel| rename(&mut kernel.name));
    code.cubins[0].bytes = machine_code(library);
    source
}

/// Builds a whole model into a folder, with kernels for the emulated device. Returns the source to compile.
fn model(folder: &Path, target: &Target, library: &Path) -> String {
    let options = transformers::Options { batch: 2, sequence: 5, ..transformers::Options::default() };
    let graph = transformers::load_model(MODEL, &options).expect("a known family").graph;
    let graph = passes::simplify_graph(&graph).expect("a checked graph");
    let plan = models::plan_calls(&graph, models::Fuse::Epilogue).expect("a checked graph");
    let choose = |task: &models::Task| network::default_schedule(task, target);
    let mut workers = common::workers();
    let jobs: Vec<BuildJob> =
        plan.tasks.iter().map(|one| common::build_job(&one.task, target, &choose(&one.task))).collect();
    let (mut source, mut builds) = (String::new(), Vec::new());
    for (place, build) in workers.build_jobs(&jobs, &mut || {}).into_iter().enumerate() {
        let Build::Built(mut artifact) = build else { panic!("{}: {build:?}", plan.tasks[place].task.describe()) };
        let code = artifact.device.as_mut().expect("it is for a device");
        source.push_str(&take(&format!("model{place}"), library, code));
        builds.push(Build::Built(artifact));
    }
    let constants = reference::graph_constants(&graph).expect("small constants");
    let mut numbers = Numbers::from_constants(&graph, &constants);
    fs::create_dir(folder.join(PROGRAM)).expect("a new folder");
    let mut bench = Prebuilt::new(&mut workers, given(builds));
    let made = network::build_model(
        &mut numbers,
        (&plan, None),
        target,
        &choose,
        &mut bench,
        &mut || true,
        &folder.join(PROGRAM),
    );
    made.expect("a program");
    fs::write(folder.join(GRAPH), serde_json::to_vec(&graph).expect("plain data")).expect("it can be written");
    source
}

/// The launches of a whole model compute the reference's results, and invalid programs are rejected.
fn expect_model_runs(workers: &mut Workers, folder: &Path) {
    let graph: models::Graph =
        serde_json::from_slice(&fs::read(folder.join(GRAPH)).expect("it was written")).expect("plain data");
    let inputs = reference::graph_inputs(&graph, 0).expect("numbers");
    let wanted = reference::evaluate_graph(&graph, &inputs).expect("the reference computes it");
    let bytes: Vec<u8> = inputs.iter().flat_map(|input| input.as_bytes().iter().copied()).collect();
    let job = NetworkJob {
        engine: Engine::Cuda,
        program: folder.join(PROGRAM),
        inputs: folder.join("inputs.bin"),
        outputs: folder.join("outputs.bin"),
        cpus: vec![0],
        method: common::one_run(),
        placement: measure::Placement::default(),
        counters: CounterRequest { backend: Backend::None, ..CounterRequest::default() },
        profile: None,
        code: job::listing::CodeRequests::default(),
    };
    for _ in 0..2 {
        fs::write(&job.inputs, &bytes).expect("inputs can be written");
        match workers.run_network(&job, common::PATIENCE) {
            Ok(RunReply::Measured(measured)) => assert!(measured.measurement.median_ns > 0.0),
            other => panic!("{other:?}"),
        }
        let types = graph.outputs.iter().map(|id| &graph.values[id.0 as usize].ty);
        let found = network::parse_tensors(types, &fs::read(&job.outputs).expect("outputs")).expect("tensors");
        let compared = network::compare_outputs(network::error_tolerance(&graph), &found, &wanted);
        assert!(compared.is_right && compared.largest_output > 0.0, "{compared:?}");
        fs::write(&job.inputs, &bytes[1..]).expect("inputs can be written");
        match workers.run_network(&job, common::PATIENCE) {
            Ok(RunReply::Failed(why)) => assert!(why.contains("is shorter than the model's inputs"), "{why}"),
            other => panic!("{other:?}"),
        }
    }
    expect_model_is_profiled(workers, &job, &bytes, &graph);
    let code = folder.join(PROGRAM).join("code-0.o");
    let whole = fs::read(&code).expect("code");
    fs::write(&code, &whole[..whole.len() / 2]).expect("code can be cut");
    match workers.run_network(&job, common::PATIENCE) {
        Ok(RunReply::Failed(why)) => assert!(why.contains("was modified: its hash differs"), "{why}"),
        other => panic!("{other:?}"),
    }
}

/// Calls on the device appear in the same tables, traces and pages as those on a processor.
fn expect_model_is_profiled(workers: &mut Workers, job: &NetworkJob, inputs: &[u8], graph: &models::Graph) {
    let schedule = profile::ProfileSchedule { warmup: 1, active: 3, repeat: 1, ..profile::ProfileSchedule::default() };
    let events = ["cycles", "gpu_energy_millijoules"].map(str::to_owned).into();
    let counters = CounterRequest { backend: Backend::Auto, events, ..job.counters.clone() };
    let job = NetworkJob { profile: Some(profile::Plan::new(schedule, 60_000_000_000)), counters, ..job.clone() };
    fs::write(&job.inputs, inputs).expect("inputs can be written");
    let seen = match workers.run_network(&job, common::PATIENCE) {
        Ok(RunReply::Profiled(profiled)) => profiled.profile,
        other => panic!("{other:?}"),
    };
    let plan = models::plan_calls(graph, models::Fuse::Epilogue).expect("a checked graph");
    let operator = |task: &models::TaskUse| Operator { name: task.task.name(), ..Operator::default() };
    let operators = plan.calls.iter().map(|call| operator(&plan.tasks[call.task])).collect();
    let seen = Profile { operators, source: profile::data::Source::Emulated, ..seen };
    seen.check().expect("it fits together");
    let totals = summary::compute_totals(&seen);
    assert_eq!((totals.steps, seen.spans.len()), (3, 3 * plan.calls.len()));
    assert!(seen.tracks[0].is_device && totals.sum_ns > 0 && totals.sum_ns <= totals.total_ns, "{totals:?}");
    assert!(totals.profiler_slowdown.is_some_and(|ratio| ratio.median > 0.0), "{totals:?}");
    let rows = summary::summary_rows(&seen, GroupBy::Name, SortBy::default());
    assert_eq!(rows.iter().map(|row| row.self_total_ns).sum::<u64>(), totals.sum_ns);
    assert!(rows.iter().any(|row| row.name == "layer_norm" && row.calls == 3 * 5), "{rows:?}");
    assert!(seen.refusals.iter().any(|refusal| refusal.counter == "cycles"), "{:?}", seen.refusals);
    let is_told = seen.energy.iter().any(|energy| energy.domain == "gpu" && energy.millijoules > 0.0);
    let is_refused = seen.refusals.iter().any(|refusal| refusal.counter == "gpu_energy_millijoules");
    assert!(is_told != is_refused, "{:?} {:?}", seen.energy, seen.refusals);
    assert!(seen.memory.iter().all(|event| event.pool == Pool::Workspace), "{:?}", seen.memory);
    let torch = compute_averages(&seen, Grouping::default());
    assert_eq!((torch.self_cpu_time_total_ns, torch.self_device_time_total_ns), (0, totals.sum_ns));
    let tvm = averages::tvm::tvm_report(&seen);
    assert!(tvm.device_metrics.contains_key("cuda0"), "{:?}", tvm.device_metrics);
    for format in [Format::Chrome, Format::Perfetto] {
        let (written, bytes) = export::write_trace(&seen, format, Vec::new(), 1 << 30).expect("memory can be written");
        assert!(written.left_out == 0 && !bytes.is_empty());
    }
    assert!(page::render_page(&seen, GroupBy::InputShape).contains("layer_norm"));
}

/// Returns the emulated driver's machine code: an ELF file whose only section is the path of a library.
fn machine_code(library: &Path) -> Vec<u8> {
    const HEAD: usize = 64;
    let path = [library.as_os_str().as_encoded_bytes(), b"\0"].concat();
    let mut bytes = vec![0; 3 * HEAD];
    let mut put = |place: usize, value: &[u8]| bytes[place..place + value.len()].copy_from_slice(value);
    put(0, b"\x7fELF\x02\x01\x01");
    put(16, &[2, 0, 190, 0, 1]);
    // Offset of the section headers, then sizes and counts.
    put(40, &[HEAD as u8]);
    put(52, &[HEAD as u8, 0, 56, 0, 0, 0, HEAD as u8, 0, 2]);
    // The second section: its type, offset and length.
    put(2 * HEAD + 4, &[1]);
    put(2 * HEAD + 24, &[3 * HEAD as u8]);
    put(2 * HEAD + 32, &[u8::try_from(path.len()).expect("a short path")]);
    bytes.extend(path);
    bytes
}

/// The driver checks neither the length of code nor the number of arguments, so wrong code must not reach it.
fn expect_false_code_refused(workers: &mut Workers, job: &RunJob) {
    let whole = &job.device.as_ref().expect("device code").cubins[0].bytes;
    let mut failure = |change: &dyn Fn(&mut DeviceCode)| {
        let mut job = job.clone();
        change(job.device.as_mut().expect("device code"));
        match workers.run_job(&job, common::PATIENCE) {
            Ok(RunReply::Failed(why)) => why,
            other => panic!("{other:?}"),
        }
    };
    for length in [0, 1, 63, 64, 191, whole.len() - 1] {
        let why = failure(&|code| code.cubins[0].bytes.truncate(length));
        assert!(why.starts_with("not valid GPU machine code (cubin): "), "{length} bytes: {why}");
    }
    let why = failure(&|code| code.launches[0].arguments.truncate(1));
    assert!(why.contains("has parameters of [8, 8] bytes, but gets 1 arguments of up to 8 bytes"), "{why}");
    let why = failure(&|code| code.launches[0].arguments.push(Argument::Number(Count::Known(1))));
    assert!(why.contains("has parameters of [8, 8, 8] bytes, but gets 4 arguments of up to 8 bytes"), "{why}");
}

fn on_emulated_device(folder: &Path) {
    let text = fs::read_to_string(folder.join(JOBS)).expect("the jobs were written");
    let mut jobs: Vec<(String, RunJob)> = serde_json::from_str(&text).expect("the jobs are plain data");
    let mut workers = common::workers();
    let faulty = jobs.pop().expect("the faulty one is last").1;
    let expect_failure = |workers: &mut Workers, job: &RunJob, what: &str| {
        match workers.run_job(job, common::PATIENCE) {
            Ok(RunReply::Failed(why)) => assert!(why.contains(what), "{why}"),
            other => panic!("{other:?}"),
        }
        // As in a campaign, the runner is replaced after a failure, since the device can no longer be trusted.
        workers.recycle_runners();
    };
    expect_failure(&mut workers, &faulty, "CUDA_ERROR_ILLEGAL_ADDRESS");
    let greedy = RunJob { method: cold(1 << 30), ..jobs[0].1.clone() };
    expect_failure(&mut workers, &greedy, "CUDA_ERROR_OUT_OF_MEMORY");
    let all = CounterRequest {
        backend: Backend::Auto,
        events: vec!["gpu_kernel_ns".to_owned()],
        ..jobs[0].1.counters.clone()
    };
    expect_false_code_refused(&mut workers, &jobs[0].1);
    expect_model_runs(&mut workers, folder);
    expect_told(&mut workers, &RunJob { counters: all, method: cold(1 << 20), ..jobs[0].1.clone() });
    expect_old_driver_told(&mut workers, &jobs[0].1, folder);
    expect_campaign_goes_on(&mut workers, TASKS[0].0, [&jobs[0].1, &faulty, &jobs[0].1]);
    if folder.join(HIDDEN).is_file() {
        fs::rename(folder.join(HIDDEN), folder.join(PROFILER)).expect("a file can be renamed");
        workers.recycle_runners();
        expect_counted(&mut workers, &jobs[0].1);
        expect_counted_by_an_older_cupti(&mut workers, &jobs[1].1, folder);
        expect_no_impossible_share(&mut workers, &jobs[1].1, folder);
        expect_counted_over_many_runs(&mut workers, &jobs[1].1, folder);
        expect_counters_refused(&mut workers, &jobs[0].1, folder);
        expect_fault_costs_no_record(&mut workers, &jobs[0].1, folder);
        expect_doctor_sees_counters(folder);
    }
    let mut failures = Vec::new();
    for (label, job) in jobs {
        match workers.run_job(&job, common::PATIENCE) {
            Ok(RunReply::Measured(measured)) => assert!(measured.check.is_some(), "{label}"),
            other => failures.push(format!("{label}: {other:?}")),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn cold(flush_bytes: u64) -> Method {
    match common::one_run() {
        Method::Sample(plan) => Method::Sample(Plan { cache: Cache::Cold { flush_bytes }, ..plan }),
        Method::Evaluate(rule) => Method::Evaluate(rule),
    }
}

fn expect_told(workers: &mut Workers, job: &RunJob) {
    let measured = measured(workers, job);
    let measurement = &measured.measurement;
    assert_eq!(value(&measured, "gpu_sm_clock_mhz"), Some(1980.0), "{measurement:?}");
    assert_eq!(value(&measured, "gpu_sm_clock_min_mhz"), Some(1980.0));
    assert_eq!(value(&measured, "gpu_memory_clock_mhz"), Some(2619.0));
    assert_eq!(value(&measured, "gpu_power_watts"), Some(345.6));
    assert_eq!(value(&measured, "gpu_throttle_reasons"), Some(4.0), "being idle holds nothing back");
    assert_eq!(value(&measured, "gpu_memory_bytes"), Some(4.0 * (64 * 32 + 32 * 96 + 64 * 96) as f64));
    for name in ["gpu_launch_ns", "gpu_launch_host_ns", "gpu_graph_launch_ns", "gpu_rotated_ns"] {
        assert!(value(&measured, name).is_some_and(|time| time > 0.0), "{name}: {measurement:?}");
    }
    assert!(refusal(&measured, "gpu_temperature_celsius").why.contains("not available on the target device"));
    assert!(refusal(&measured, "gpu_kernel_ns").why.contains("there is no CUPTI"));
    assert!(measurement.warnings.contains(&Warning::ClocksHeldBack { by: "power cap".to_owned() }));
}

#[track_caller]
fn measured(workers: &mut Workers, job: &RunJob) -> Measured {
    match workers.run_job(job, common::PATIENCE) {
        Ok(RunReply::Measured(measured)) => *measured,
        other => panic!("{other:?}"),
    }
}

fn value(measured: &Measured, name: &str) -> Option<f64> {
    measured.measurement.counters.iter().find(|value| value.name == name).map(|value| value.per_run)
}

#[track_caller]
fn refusal<'a>(measured: &'a Measured, name: &str) -> &'a Refusal {
    let refusals = &measured.measurement.refusals;
    let found = refusals.iter().find(|refusal| refusal.event == name);
    found.unwrap_or_else(|| panic!("`{name}` is not among {refusals:?}"))
}

fn with_counters(job: &RunJob, names: &[&str]) -> RunJob {
    let events = names.iter().map(ToString::to_string).collect();
    RunJob { counters: CounterRequest { backend: Backend::Auto, events, ..job.counters.clone() }, ..job.clone() }
}

/// Hardware counts are per run and have the right names; missing counts have a reason.
fn expect_counted(workers: &mut Workers, job: &RunJob) {
    let names = [
        "gpu_kernel_ns",
        "gpu_energy_millijoules",
        "gpu_dram_read_bytes",
        "gpu_dram_write_bytes",
        "gpu_dram_percent",
        "gpu_l2_hit_percent",
        "gpu_sm_percent",
        "gpu_occupancy_percent",
        "cupti:sm__inst_executed.sum",
        "gpu_nonsense",
        "papi:cuda:::no_such_event",
    ];
    let kernels = job.device.as_ref().expect("the job is for a device").launches.len() as f64;
    for method in [common::one_run(), cold(1 << 20)] {
        let measured = measured(workers, &RunJob { method, ..with_counters(job, &names) });
        assert_eq!(value(&measured, "gpu_kernel_ns"), Some(1000.0 * kernels), "{measured:?}");
        assert_eq!(value(&measured, "gpu_dram_read_bytes"), Some(4096.0 * kernels), "{measured:?}");
        assert_eq!(value(&measured, "gpu_dram_write_bytes"), Some(1024.0 * kernels));
        assert_eq!(value(&measured, "cupti:sm__inst_executed.sum"), Some(100.0 * kernels));
        assert_eq!(value(&measured, "gpu_sm_percent"), Some(62.5));
        assert!(value(&measured, "gpu_energy_millijoules").is_some_and(|energy| energy > 0.0 && energy <= 500.0));
        let native = measured.measurement.counters.iter().find(|value| value.name == "gpu_dram_read_bytes");
        assert_eq!(native.map(|value| value.native.as_str()), Some("dram__bytes_op_read.sum"));
        assert!(refusal(&measured, "gpu_dram_percent").why.contains("the chip GH100 has no metric `gpu__dram_"));
        assert!(refusal(&measured, "gpu_l2_hit_percent").why.contains("there were no events to count"));
        let occupancy = refusal(&measured, "gpu_occupancy_percent");
        assert_eq!(occupancy.errno, Some(17), "{occupancy:?}");
        assert!(occupancy.why.contains("CUPTI_ERROR_INVALID_METRIC_NAME"), "{occupancy:?}");
        assert!(refusal(&measured, "gpu_nonsense").why.contains("there is no GPU counter of this name"));
        assert_eq!(refusal(&measured, "papi:cuda:::no_such_event").step, Step::Papi);
        assert!(!measured.is_runner_spent);
    }
}

/// Releases of CUPTI before 13.1 reject structures with later fields.
fn expect_counted_by_an_older_cupti(workers: &mut Workers, job: &RunJob, folder: &Path) {
    let _older = Behaviour::new(folder, "cupti-13.0");
    let measured = measured(workers, &with_counters(job, &["gpu_sm_percent"]));
    assert_eq!(value(&measured, "gpu_sm_percent"), Some(62.5), "{measured:?}");
}

/// A counter's share far above 100 % is discarded.
fn expect_no_impossible_share(workers: &mut Workers, job: &RunJob, folder: &Path) {
    let _disagreeing = Behaviour::new(folder, "passes-disagree");
    let measured = measured(workers, &with_counters(job, &["gpu_sm_percent"]));
    let refusal = refusal(&measured, "gpu_sm_percent");
    assert!(refusal.why.contains("is 198 %: values of different passes are inconsistent"), "{refusal:?}");
}

/// Short runs are counted in groups; counts are still per run.
fn expect_counted_over_many_runs(workers: &mut Workers, job: &RunJob, folder: &Path) {
    let _fixed = Behaviour::new(folder, "fixed-clock");
    let measured = measured(workers, &with_counters(job, &["gpu_dram_read_bytes", "gpu_sm_percent"]));
    let kernels = job.device.as_ref().expect("the job is for a device").launches.len() as f64;
    assert_eq!(value(&measured, "gpu_dram_read_bytes"), Some(4096.0 * kernels), "{measured:?}");
    assert_eq!(value(&measured, "gpu_sm_percent"), Some(62.5));
}

/// Counters that the user may not read do not affect the measurement.
fn expect_counters_refused(workers: &mut Workers, job: &RunJob, folder: &Path) {
    let _refusing = Behaviour::new(folder, "no-permission");
    let names = ["gpu_sm_percent", "gpu_dram_read_bytes", "gpu_kernel_ns", "gpu_energy_millijoules"];
    let measured = measured(workers, &with_counters(job, &names));
    for name in &names[..2] {
        let refusal = refusal(&measured, name);
        assert_eq!((refusal.errno, refusal.step), (Some(35), Step::Cupti), "{refusal:?}");
        assert!(refusal.why.contains("NVreg_RestrictProfilingToAdminUsers=0"), "{refusal:?}");
    }
    assert!(value(&measured, "gpu_kernel_ns").is_some() && value(&measured, "gpu_energy_millijoules").is_some());
    assert!(!measured.is_runner_spent);
}

/// A kernel that fails while its counters are read keeps its measured times, and the runner must be replaced.
fn expect_fault_costs_no_record(workers: &mut Workers, job: &RunJob, folder: &Path) {
    let behaviour = Behaviour::new(folder, "fault-in-range");
    let names = ["gpu_kernel_ns", "gpu_sm_percent", "gpu_energy_millijoules"];
    let measured = measured(workers, &with_counters(job, &names));
    assert!(measured.check.is_some_and(|check| check.is_right) && measured.measurement.median_ns > 0.0);
    assert!(value(&measured, "gpu_kernel_ns").is_some(), "the time was reported before the failure");
    assert!(refusal(&measured, "gpu_sm_percent").why.contains("CUDA_ERROR_ILLEGAL_ADDRESS"));
    assert!(refusal(&measured, "gpu_energy_millijoules").why.starts_with("not tried"));
    assert!(measured.is_runner_spent);
    drop(behaviour);
    workers.recycle_runners();
}

/// If the driver is too old for the code, the error states this, because the driver's own message does not.
fn expect_old_driver_told(workers: &mut Workers, job: &RunJob, folder: &Path) {
    let behaviour = Behaviour::new(folder, "old-driver");
    workers.recycle_runners();
    match workers.run_job(job, common::PATIENCE) {
        Ok(RunReply::Failed(why)) => {
            let reason = "the driver is too old: it supports CUDA 12.4, but the code was compiled with CUDA 13.";
            assert!(why.starts_with(reason) && why.contains("CUDA_ERROR_INVALID_IMAGE"), "{why}");
        }
        other => panic!("{other:?}"),
    }
    drop(behaviour);
    workers.recycle_runners();
}

/// A failed launch breaks the device for its process: it costs one record, and the next job uses a new process.
fn expect_campaign_goes_on(workers: &mut Workers, task: &str, jobs: [&RunJob; 3]) {
    let built = |job: &RunJob| {
        Build::Built(Box::new(Artifact {
            object: Vec::new(),
            instruction_sets: Vec::new(),
            device: job.device.clone(),
            code_bytes: 1,
            packings: job.packings.clone(),
            trace: None,
            listing: None,
            schedule_ms: 1.0,
            lower_ms: 1.0,
            codegen_ms: 1.0,
            features: Default::default(),
        }))
    };
    let target = targets::parse_cuda(&targets::cuda_text(&["sm_80".to_owned()])).expect("the architecture has a name");
    let config = campaigns::config(task, "metaschedule", jobs.len(), common::PATIENCE.as_secs_f64());
    let (outcomes, records) = campaigns::run(&config, &target, &mut Prebuilt::new(workers, given(jobs.map(built))));
    let text = campaigns::format_outcomes(&records);
    let lines: Vec<&str> = text.lines().collect();
    assert!(matches!(lines[..], ["ok: -", failed, "ok: -"] if failed.starts_with("run_failed: ")), "{text}");
    assert!(text.contains("CUDA_ERROR_ILLEGAL_ADDRESS"), "{text}");
    assert_eq!((outcomes.left, outcomes.broken), (0, None));
}

/// `doctor` reports whether counters can be read before any measurement starts.
fn expect_doctor_sees_counters(folder: &Path) {
    let counters = || {
        let findings = check_machine(&DoctorRequest::default());
        findings.into_iter().find(|finding| finding.topic == "GPU counters").expect("it is among the topics")
    };
    let seen = counters();
    assert!(seen.found.ends_with(" on the chip GH100") && seen.advice.contains("gpu_dram_percent"), "{seen:?}");
    let _refusing = Behaviour::new(folder, "no-permission");
    let refused = counters();
    assert_eq!(refused.status, Status::Limited);
    assert!(refused.found.contains("CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"), "{refused:?}");
}

fn build(workers: &mut Workers, target: &Target, tried: &[(&str, Schedule)]) -> Vec<Result<DeviceCode, String>> {
    let job = |(text, schedule): &(&str, Schedule)| common::build_job(&common::task(text), target, schedule);
    let jobs: Vec<BuildJob> = tried.iter().map(job).collect();
    let code = |build| match build {
        Build::Built(artifact) => artifact.device.ok_or_else(|| "code for a CPU".to_owned()),
        other => Err(format!("{other:?}")),
    };
    workers.build_jobs(&jobs, &mut || {}).into_iter().map(code).collect()
}

fn in_place(place: &str, text: &str) -> String {
    text.replace("main_kernel", &format!("{place}_kernel"))
}

fn emulated(place: &str, source: &str) -> String {
    let is_own = |line: &&str| !line.starts_with("typedef ") && !line.starts_with('#');
    let text: Vec<&str> = source.lines().filter(is_own).collect();
    // The only buffer whose size a launch determines is declared in the header.
    let text =
        text.join("\n").replace("extern __shared__", "// ").replace("__shared__ alignas(64)", "alignas(64) static");
    in_place(place, &format!("namespace {place} {{\nusing ::max, ::min;\n{text}\n}}\n"))
}
