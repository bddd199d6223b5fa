//! Tests of findings on synthetic machines.

#[path = "../../../measure/src/host/example.rs"]
mod example;

use super::*;
use expect_test::expect;
use measure::counters::{Coverage, Refusal};

fn evidence() -> Evidence {
    let root = example::example_machine();
    let counter = |name, given: bool| Availability {
        name,
        unit: "count",
        description: "",
        given: given.then_some((Step::Perf, Coverage::ThreadUser)),
        refusals: vec![Refusal { event: name.into(), step: Step::Papi, errno: Some(-7), why: "no such event".into() }],
    };
    Evidence {
        worker: Err("no `bin/opcollect-worker`".into()),
        gpu: GpuFound {
            compiler: Ok(("13.5".into(), "lib/libnvrtc.so.13".into(), vec![75, 90])),
            has_half_precision: false,
            has_fragments: false,
            state: Err("there is no NVIDIA driver: libcuda.so.1: not found".into()),
            profiler: Err("there is no CUPTI: libcupti.so: not found".into()),
            device: Err("there is no NVIDIA driver: libcuda.so.1: not found".into()),
            counters: Err("there is no NVIDIA driver: libcuda.so.1: not found".into()),
            counters_restricted: None,
        },
        facts: Facts::read_from(root.path()),
        perf_event_paranoid: Some(3),
        papi: Err("no PAPI library".into()),
        counters: vec![counter("cycles", true), counter("instructions", false)],
        noise: Noise {
            elapsed_ns: 200_000_000,
            cpu_share: 0.7,
            lost_share: 0.3,
            gaps_per_second: 100.0,
            gap_max_ns: 4_000_000,
        },
        clock_precision_ns: 40,
        memory_limit: Some((1 << 30, "control group".into())),
        libraries: LIBRARIES.iter().map(|library| find_library(library, &[])).collect(),
        library_folders: vec!["lib".into()],
    }
}

#[test]
fn every_problem_has_a_consequence_and_advice() {
    let lines: Vec<String> = judge_evidence(&evidence())
        .into_iter()
        .map(|one| format!("{:?} {}: {} | {} | {}\n", one.status, one.topic, one.found, one.consequence, one.advice))
        .collect();
    expect![[r#"
        Missing worker program: no `bin/opcollect-worker` | nothing can be compiled or run | the worker program must lie in the same folder as `opcollect`: the wheel contains both, and `scripts/opcollect` builds both
        Missing TVM interface: no libtvm_ffi.so in: lib | nothing can be compiled or run | install the pinned wheels of requirements.txt, or set their folder
        Missing TVM runtime: no libtvm_runtime.so in: lib | nothing can be run | install the pinned wheels of requirements.txt, or set their folder
        Missing TVM compiler: no libtvm_compiler.so or libtvm.so in: lib | nothing can be compiled; artifacts built elsewhere can be run | install the pinned wheels of requirements.txt, or set their folder
        Limited TVM runtime extras: no libtvm_runtime_extra.so in: lib | remote devices cannot fill their own inputs, and operators that sort fail | install the pinned wheels of requirements.txt, or set their folder
        Limited CUDA compiler (NVRTC): 13.5 in lib/libnvrtc.so.13, for sm_75 to sm_90 | kernels of half precision cannot be compiled: `cuda_fp16.h` is missing | install the wheel nvidia-cuda-runtime of the same release
        Limited GPU: there is no NVIDIA driver: libcuda.so.1: not found | artifacts for GPUs can be built and checked here, and run on another machine | install the NVIDIA driver (580 or newer for CUDA 13) on a machine with an NVIDIA GPU, and run the folder of artifacts there
        Limited GPU state (NVML): there is no NVIDIA driver: libcuda.so.1: not found | records will lack GPU clocks | install libnvidia-ml, which is part of the NVIDIA driver
        Limited GPU profiler (CUPTI): there is no CUPTI: libcupti.so: not found | hardware counters and the times of single kernels are unavailable | install the wheel `nvidia-cuda-cupti` of the driver's major release next to NVRTC's, or set `OPCOLLECT_CUPTI` to a `libcupti.so`
        Limited GPU counters: there is no NVIDIA driver: libcuda.so.1: not found | hardware counters of kernels are unavailable; times are not affected | install the NVIDIA driver (580 or newer for CUDA 13) on a machine with an NVIDIA GPU, and run the folder of artifacts there
        Ok processors: 3 of 4 processors are available to this process |  | 
        Limited memory: 15.6 GiB, limited by control group to 1.0 GiB | large operators and parallel builders may be killed | raise the limit, or use one builder
        Limited noise: interruptions take 30.0 % of the time: 100 per second, the longest 4.00 ms | measurements take longer and reach less precision | stop other work; on a shared host, compare minima rather than medians
        Ok timer: precise to 40 ns |  | 
        Limited clock governor: powersave | the clock may change while measuring; such measurements carry a warning | as root: `cpupower frequency-set -g performance`
        Ok clock boost: off |  | 
        Limited SMT: on: two threads share the units of a core | the other thread of a core affects times | measure on one thread per core, or as root: `echo off > /sys/devices/system/cpu/smt/control`
        Ok core isolation: processors [3] are isolated |  | 
        Ok virtual machine: no |  | 
        Limited hardware counters: cycles, but not all: no such event | records have times, faults and processor time, but no hardware counters | use a machine or virtual machine that exposes hardware counters
        Ok perf events: kernel.perf_event_paranoid is 3 |  | 
        Limited PAPI: no PAPI library | floating-point counters are unavailable; other counters use perf events | install PAPI 6.0 or later (Debian: libpapi7.0, libsde1)
    "#]].assert_eq(&lines.concat());
}

fn with_gpu(counters: Result<GpuCounters, &str>, driver_cuda: &str, capability: u32, restricted: bool) -> String {
    let facts = DeviceFacts {
        name: "emulated GPU".into(),
        capability,
        multiprocessors: 132,
        memory_bytes: 80 << 30,
        l2_bytes: 50 << 20,
        driver_cuda: driver_cuda.into(),
    };
    let gpu = GpuFound {
        device: Ok(facts),
        profiler: Ok(Some(130_500)),
        counters: counters.map_err(str::to_owned),
        counters_restricted: Some(restricted),
        ..evidence().gpu
    };
    let lines = [gpu::gpu_device(&gpu), gpu::gpu_counters(&gpu)]
        .map(|one| format!("{:?} {}: {} | {} | {}\n", one.status, one.topic, one.found, one.consequence, one.advice));
    lines.concat()
}

#[test]
fn a_gpu_is_judged_by_its_driver_compiler_and_permissions() {
    let all = GpuCounters { chip: "GH100".into(), given: 14, lacking: Vec::new() };
    let some = GpuCounters { given: 12, lacking: vec!["gpu_dram_percent".into()], ..all.clone() };
    let refused = "`cuptiRangeProfilerEnable` of CUPTI failed with 35: CUPTI_ERROR_INSUFFICIENT_PRIVILEGES";
    expect![[r#"
        Ok GPU: emulated GPU (sm_90), 132 multiprocessors, 80 GiB, driver for CUDA 13.0 |  | 
        Ok GPU counters: 14 of 14 on the chip GH100 |  | 
    "#]]
    .assert_eq(&with_gpu(Ok(all), "13.0", 90, true));
    expect![[r#"
        Limited GPU: emulated GPU (sm_90), 132 multiprocessors, 80 GiB, driver for CUDA 12.4 | the driver rejects code of the newer NVRTC | install a driver for NVRTC's release of CUDA, or name an older `libnvrtc.so` in `OPCOLLECT_NVRTC`
        Limited GPU counters: 12 of 13 on the chip GH100 | the chip lacks some counters | remove gpu_dram_percent from the requested counters
    "#]]
    .assert_eq(&with_gpu(Ok(some), "12.4", 90, false));
    expect![[r#"
        Limited GPU: emulated GPU (sm_70), 132 multiprocessors, 80 GiB, driver for CUDA 13.0 | NVRTC does not support this architecture | set `OPCOLLECT_NVRTC` to the `libnvrtc.so` of a release that supports it, or give `--arch` an earlier architecture of the same family
        Limited GPU counters: for administrators only (RmProfilingAdminOnly): `cuptiRangeProfilerEnable` of CUPTI failed with 35: CUPTI_ERROR_INSUFFICIENT_PRIVILEGES | hardware counters of kernels are unavailable; times are not affected | load NVIDIA's kernel module with NVreg_RestrictProfilingToAdminUsers=0 (a line `options nvidia NVreg_RestrictProfilingToAdminUsers=0` in a file of /etc/modprobe.d, then restart), or run as root
    "#]]
    .assert_eq(&with_gpu(Err(refused), "13.0", 70, true));
}

#[test]
fn only_what_every_command_needs_is_required() {
    let all = judge_evidence(&evidence());
    let is_other = |finding: &&Finding| finding.topic != WORKER && !finding.topic.starts_with("TVM ");
    let others: Vec<Finding> = all.iter().filter(is_other).cloned().collect();
    assert!(lacks_requirement(&all) && !lacks_requirement(&others));
    let counters = Finding { status: Status::Missing, ..others.last().expect("findings").clone() };
    assert!(!lacks_requirement(&[counters]));
    assert!(lacks_requirement(&all[..1]), "the worker program is required");
}

#[test]
fn a_library_is_found_in_the_first_folder_that_has_it() {
    let folder = tempfile::tempdir().expect("folder");
    fs::write(folder.path().join("libtvm.so"), "").expect("file");
    let found = find_library(&LIBRARIES[2], &["nowhere".into(), folder.path().into()]);
    assert_eq!(found.path, Some(folder.path().join("libtvm.so")));
    assert_eq!(library_finding(&found, &[]).status, Status::Ok);
}

#[test]
fn this_machine_is_judged() {
    let findings = check_machine(&DoctorRequest::default());
    assert_eq!(findings.len(), LIBRARIES.len() + 18);
    for one in findings {
        assert!(one.status == Status::Ok || (!one.consequence.is_empty() && !one.advice.is_empty()), "{one:?}");
        assert!(!one.found.is_empty(), "{one:?}");
    }
}
