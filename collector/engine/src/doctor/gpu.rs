//! Findings about a GPU: its compiler, its state and its counters.

use super::{Finding, GpuCounters, GpuFound, Status, new_finding};
use cuda::{cupti, driver, nvrtc};
use job::device::is_too_new;

pub(super) fn gpu_compiler(gpu: &GpuFound) -> Finding {
    let topic = "CUDA compiler (NVRTC)";
    match &gpu.compiler {
        Ok((version, path, known)) => {
            let newest = known.iter().max().copied().unwrap_or(0);
            let oldest = known.iter().min().copied().unwrap_or(0);
            let found = format!("{version} in {}, for sm_{oldest} to sm_{newest}", path.display());
            let (status, consequence, advice) = match (gpu.has_half_precision, gpu.has_fragments) {
                (true, true) => (Status::Ok, "", ""),
                (true, false) => (
                    Status::Limited,
                    "kernels for tensor cores cannot be compiled: `crt/mma.h` is missing",
                    "install the wheel nvidia-cuda-crt of the same release",
                ),
                (false, _) => (
                    Status::Limited,
                    "kernels of half precision cannot be compiled: `cuda_fp16.h` is missing",
                    "install the wheel nvidia-cuda-runtime of the same release",
                ),
            };
            new_finding(topic, status, found, consequence, advice)
        }
        Err(why) => {
            new_finding(topic, Status::Limited, why.clone(), "nothing can be compiled for GPUs", nvrtc::SETUP_HINT)
        }
    }
}

pub(super) fn gpu_device(gpu: &GpuFound) -> Finding {
    let topic = "GPU";
    let facts = match &gpu.device {
        Ok(facts) => facts,
        Err(why) => {
            let consequence = "artifacts for GPUs can be built and checked here, and run on another machine";
            return new_finding(topic, Status::Limited, why.clone(), consequence, driver::HINT);
        }
    };
    let gib = facts.memory_bytes as f64 / f64::from(1 << 30);
    let found = format!(
        "{} (sm_{}), {} multiprocessors, {gib:.0} GiB, driver for CUDA {}",
        facts.name, facts.capability, facts.multiprocessors, facts.driver_cuda
    );
    let (status, consequence, advice) = match &gpu.compiler {
        Ok((version, ..)) if is_too_new(version, &facts.driver_cuda) => (
            Status::Limited,
            "the driver rejects code of the newer NVRTC",
            "install a driver for NVRTC's release of CUDA, or name an older `libnvrtc.so` in `OPCOLLECT_NVRTC`",
        ),
        Ok((_, _, known)) if !known.contains(&facts.capability) => (
            Status::Limited,
            "NVRTC does not support this architecture",
            "set `OPCOLLECT_NVRTC` to the `libnvrtc.so` of a release that supports it, or give `--arch` an \
             earlier architecture of the same family",
        ),
        _ => (Status::Ok, "", ""),
    };
    new_finding(topic, status, found, consequence, advice)
}

pub(super) fn gpu_state(gpu: &GpuFound) -> Finding {
    let topic = "GPU state (NVML)";
    match &gpu.state {
        Ok(()) => new_finding(topic, Status::Ok, "clocks, power, temperature and throttle reasons".to_owned(), "", ""),
        Err(why) => new_finding(
            topic,
            Status::Limited,
            why.clone(),
            "records will lack GPU clocks",
            "install libnvidia-ml, which is part of the NVIDIA driver",
        ),
    }
}

pub(super) fn gpu_profiler(gpu: &GpuFound) -> Finding {
    let topic = "GPU profiler (CUPTI)";
    let consequence = "hardware counters and the times of single kernels are unavailable";
    match &gpu.profiler {
        Ok(Some(version)) => new_finding(topic, Status::Ok, format!("interface {version}"), "", ""),
        Ok(None) => {
            new_finding(topic, Status::Limited, "CUPTI finds no NVIDIA driver".to_owned(), consequence, driver::HINT)
        }
        Err(why) => new_finding(topic, Status::Limited, why.clone(), consequence, cupti::SETUP_HINT),
    }
}

pub(super) fn gpu_counters(gpu: &GpuFound) -> Finding {
    let topic = "GPU counters";
    let consequence = "hardware counters of kernels are unavailable; times are not affected";
    let why = match &gpu.counters {
        Ok(GpuCounters { chip, given, lacking }) => {
            let found = format!("{given} of {} on the chip {chip}", given + lacking.len());
            let (status, advice) = match lacking.as_slice() {
                [] => (Status::Ok, String::new()),
                lacking => (Status::Limited, format!("remove {} from the requested counters", lacking.join(", "))),
            };
            return new_finding(topic, status, found, "the chip lacks some counters", &advice);
        }
        Err(why) => why,
    };
    const STOP_OTHERS: &str = "stop other profilers, such as DCGM's, because only one can use a device; run on the \
                               whole device, not on a MIG partition";
    let (found, advice) = match gpu.counters_restricted {
        Some(true) => (format!("for administrators only (RmProfilingAdminOnly): {why}"), cupti::PERMISSION_HINT),
        _ if gpu.device.is_err() => (why.clone(), driver::HINT),
        _ if gpu.profiler.is_err() => (why.clone(), cupti::SETUP_HINT),
        _ => (why.clone(), STOP_OTHERS),
    };
    new_finding(topic, Status::Limited, found, consequence, advice)
}
