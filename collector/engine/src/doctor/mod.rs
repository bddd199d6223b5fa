//! Checks the machine before a long campaign. Each finding states what is available or missing, the consequence for
//! measurements, and the remedy. [`check_machine`] collects evidence, and [`judge_evidence`] is a pure function that
//! judges it.

mod gpu;

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use cuda::cupti::{Cupti, CuptiError};
use cuda::driver::{Device, DeviceFacts};
use cuda::nvml::Nvml;
use cuda::nvrtc::Nvrtc;
use cuda::profiler::Profiler;
use measure::counters::gpu::{GPU_NAMES, WantedMetric};
use measure::counters::{Availability, CounterRequest, Step, list_available, papi};
use measure::host::{Facts, Noise};
use measure::{Clock, HostClock};

use crate::machine;

/// Options of the checks of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DoctorRequest {
    /// Folders searched for native libraries, in this order.
    pub library_folders: Vec<PathBuf>,
    /// Counters that a collection would request.
    pub counters: CounterRequest,
}

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// The checked feature works without limitations.
    Ok,
    /// The checked feature works with restrictions.
    Limited,
    /// The checked feature does not work.
    Missing,
}

/// Result of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Subject of the check.
    pub topic: String,
    /// Severity of the finding.
    pub status: Status,
    /// Evidence that the check found.
    pub found: String,
    /// Consequence for measurements; empty if there is none.
    pub consequence: String,
    /// Recommended action; empty if there is none.
    pub advice: String,
}

/// Result of the search for a native library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LibraryFound {
    library: &'static LibraryState,
    /// Path of the library, or None if it was not found.
    pub path: Option<PathBuf>,
}

/// PAPI, as loaded on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PapiFound {
    /// Version and file name of the loaded library.
    pub version: String,
    /// Components of PAPI, each of which provides counters.
    pub components: Vec<papi::Component>,
}

/// Evidence about the GPU and its libraries.
#[derive(Debug, Clone)]
pub struct GpuFound {
    /// Version and file of NVIDIA's compiler library (NVRTC), and the compute capabilities that it knows, times ten.
    pub compiler: Result<(String, PathBuf, Vec<u32>), String>,
    /// Whether the compiler finds the headers for half precision.
    pub has_half_precision: bool,
    /// Whether the compiler finds the headers for tensor cores.
    pub has_fragments: bool,
    /// Success if the state of the device can be read, or the reason why not.
    pub state: Result<(), String>,
    /// Interface version of NVIDIA's profiling library (CUPTI), or None without a driver; an error if it is not loaded.
    pub profiler: Result<Option<u32>, String>,
    /// Facts about the first device that the driver lists.
    pub device: Result<DeviceFacts, String>,
    /// Counters of the range profiler, or the reason why there are none.
    pub counters: Result<GpuCounters, String>,
    /// Whether only administrators may read counters, if the driver reports that.
    pub counters_restricted: Option<bool>,
}

/// Counters that the range profiler supports on a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuCounters {
    /// Name of the device's chip.
    pub chip: String,
    /// Number of GPU counters known to this program that the chip supports.
    pub given: usize,
    /// GPU counters known to this program that the chip lacks.
    pub lacking: Vec<String>,
}

/// All evidence about a machine, from which the findings follow.
#[derive(Debug, Clone)]
pub struct Evidence {
    /// Path of the worker program, which compiles and runs code, or why there is none.
    pub worker: Result<PathBuf, String>,
    /// Evidence about the GPU and its libraries.
    pub gpu: GpuFound,
    /// Facts about the machine.
    pub facts: Facts,
    /// The kernel's permission setting for perf events.
    pub perf_event_paranoid: Option<i32>,
    /// PAPI, or the reason why it cannot be used.
    pub papi: Result<PapiFound, String>,
    /// Availability of every counter that this program knows by name.
    pub counters: Vec<Availability>,
    /// Interruptions of a busy-waiting thread, as a measure of the machine's noise.
    pub noise: Noise,
    /// Precision of the clock, in nanoseconds.
    pub clock_precision_ns: u64,
    /// Lowest memory limit of this process in bytes, and the origin of the limit.
    pub memory_limit: Option<(u64, String)>,
    /// Results of the search for native libraries.
    pub libraries: Vec<LibraryFound>,
    /// Folders that were searched for native libraries.
    pub library_folders: Vec<PathBuf>,
}

#[derive(Debug, PartialEq, Eq)]
struct LibraryState {
    topic: &'static str,
    /// Alternative file names, one of which suffices.
    files: &'static [&'static str],
    is_required: bool,
    consequence: &'static str,
    advice: &'static str,
}

const INSTALL: &str = "install the pinned wheels of requirements.txt, or set their folder";

const LIBRARIES: &[LibraryState] = &[
    LibraryState {
        topic: "TVM interface",
        files: &["libtvm_ffi.so"],
        is_required: true,
        consequence: "nothing can be compiled or run",
        advice: INSTALL,
    },
    LibraryState {
        topic: "TVM runtime",
        files: &["libtvm_runtime.so"],
        is_required: true,
        consequence: "nothing can be run",
        advice: INSTALL,
    },
    LibraryState {
        topic: "TVM compiler",
        files: &["libtvm_compiler.so", "libtvm.so"],
        is_required: true,
        consequence: "nothing can be compiled; artifacts built elsewhere can be run",
        advice: INSTALL,
    },
    LibraryState {
        topic: "TVM runtime extras",
        files: &["libtvm_runtime_extra.so"],
        is_required: false,
        consequence: "remote devices cannot fill their own inputs, and operators that sort fail",
        advice: INSTALL,
    },
];

const WORKER: &str = "worker program";

/// Returns whether something is missing without which nothing can be compiled or run.
pub fn lacks_requirement(findings: &[Finding]) -> bool {
    let is_required =
        |topic: &str| topic == WORKER || LIBRARIES.iter().any(|library| library.is_required && library.topic == topic);
    findings.iter().any(|finding| finding.status == Status::Missing && is_required(&finding.topic))
}

/// Checks this machine. Most of the time is spent on measuring noise.
pub fn check_machine(request: &DoctorRequest) -> Vec<Finding> {
    judge_evidence(&collect_evidence(request))
}

fn collect_evidence(request: &DoctorRequest) -> Evidence {
    let mut clock = HostClock::new();
    let papi = papi::open_library()
        .map(|papi| PapiFound { version: papi.version_text(), components: papi.list_components() })
        .map_err(|error| error.to_string());
    Evidence {
        worker: machine::find_worker(),
        gpu: find_gpu(),
        facts: Facts::read_facts(),
        perf_event_paranoid: read_number(Path::new("/proc/sys/kernel/perf_event_paranoid")),
        papi,
        counters: list_available(&request.counters),
        noise: Noise::probe_noise(&mut clock, Duration::from_millis(200)),
        clock_precision_ns: clock.precision_ns(),
        memory_limit: measure::host::memory::memory_limit(),
        libraries: LIBRARIES.iter().map(|library| find_library(library, &request.library_folders)).collect(),
        library_folders: request.library_folders.clone(),
    }
}

fn find_gpu() -> GpuFound {
    let nvrtc = Nvrtc::open().map_err(|error| error.to_string());
    let parameters = fs::read_to_string("/proc/driver/nvidia/params").ok();
    let restricted = parameters.as_deref().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("RmProfilingAdminOnly:"))?;
        Some(line.trim() != "0")
    });
    let device = Device::open();
    let state = device.as_ref().map_err(ToString::to_string).and_then(|device| {
        let bus = device.pci_bus_id().map_err(|error| error.to_string())?;
        Nvml::open_device(&bus).map(drop).map_err(|error| error.to_string())
    });
    let profiler = Cupti::open();
    let counters = match (&device, &profiler) {
        (Ok(device), Ok(cupti)) => find_counters(cupti, device).map_err(|error| error.to_string()),
        (Err(error), _) => Err(error.to_string()),
        (_, Err(error)) => Err(error.to_string()),
    };
    GpuFound {
        has_half_precision: nvrtc.as_ref().is_ok_and(|nvrtc| nvrtc.include_folder().is_some()),
        has_fragments: nvrtc.as_ref().is_ok_and(Nvrtc::has_fragments),
        state,
        profiler: profiler.map(|cupti| cupti.interface_version()).map_err(|error| error.to_string()),
        counters,
        compiler: nvrtc
            .map(|nvrtc| (nvrtc.version_text(), nvrtc.library_path().to_owned(), nvrtc.known_capabilities().to_vec())),
        device: device.and_then(|device| device.read_facts()).map_err(|error| error.to_string()),
        counters_restricted: restricted,
    }
}

fn find_counters(cupti: &Cupti, device: &Device) -> Result<GpuCounters, CuptiError> {
    let profiler = Profiler::open(cupti, device)?;
    profiler.check_permission(device)?;
    let known = profiler.base_metrics()?;
    let names: Vec<String> = GPU_NAMES.iter().map(|counter| counter.name.to_owned()).collect();
    let (given, lacking): (Vec<_>, Vec<_>) =
        WantedMetric::requested_metrics(&names).into_iter().partition(|metric| metric.choose_metric(&known).is_some());
    let lacking = lacking.into_iter().map(|metric| metric.name).collect();
    Ok(GpuCounters { chip: profiler.chip_name(), given: given.len(), lacking })
}

fn read_number<T: std::str::FromStr>(path: &Path) -> Option<T> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn find_library(library: &'static LibraryState, folders: &[PathBuf]) -> LibraryFound {
    let candidates = folders.iter().flat_map(|folder| library.files.iter().map(move |file| folder.join(file)));
    LibraryFound { library, path: candidates.into_iter().find(|path| path.is_file()) }
}

/// Judges the evidence: returns one finding per topic, in the order of importance.
pub fn judge_evidence(evidence: &Evidence) -> Vec<Finding> {
    let mut findings = vec![worker_finding(&evidence.worker)];
    findings.extend(evidence.libraries.iter().map(|found| library_finding(found, &evidence.library_folders)));
    findings.extend([
        gpu::gpu_compiler(&evidence.gpu),
        gpu::gpu_device(&evidence.gpu),
        gpu::gpu_state(&evidence.gpu),
        gpu::gpu_profiler(&evidence.gpu),
        gpu::gpu_counters(&evidence.gpu),
        processor_finding(&evidence.facts),
        memory_finding(evidence),
        noise_finding(&evidence.noise),
        timer_finding(evidence.clock_precision_ns),
        governor_finding(&evidence.facts),
        boost_finding(&evidence.facts),
        smt_finding(&evidence.facts),
        isolation_finding(&evidence.facts),
        virtual_machine_finding(&evidence.facts),
        hardware_counters(evidence),
        perf_events(evidence),
        papi_finding(&evidence.papi),
    ]);
    findings
}

fn new_finding(topic: &str, status: Status, found: impl Into<String>, consequence: &str, advice: &str) -> Finding {
    let (topic, found) = (topic.to_string(), found.into());
    // A finding without problems needs no advice.
    let (consequence, advice) = if status == Status::Ok { ("", "") } else { (consequence, advice) };
    Finding { topic, status, found, consequence: consequence.into(), advice: advice.into() }
}

fn worker_finding(found: &Result<PathBuf, String>) -> Finding {
    let (status, found) = match found {
        Ok(path) => (Status::Ok, path.display().to_string()),
        Err(why) => (Status::Missing, why.clone()),
    };
    new_finding(WORKER, status, found, "nothing can be compiled or run", machine::WORKER_HINT)
}

fn library_finding(found: &LibraryFound, folders: &[PathBuf]) -> Finding {
    let LibraryState { topic, files, is_required, consequence, advice } = found.library;
    let (status, seen) = match &found.path {
        Some(path) => (Status::Ok, path.display().to_string()),
        None => {
            let folders: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
            let places = if folders.is_empty() { "no folder given".into() } else { folders.join(", ") };
            let status = if *is_required { Status::Missing } else { Status::Limited };
            (status, format!("no {} in: {places}", files.join(" or ")))
        }
    };
    new_finding(topic, status, seen, consequence, advice)
}

fn processor_finding(facts: &Facts) -> Finding {
    let allowed = facts.allowed_cpus.len();
    let found = format!("{allowed} of {} processors are available to this process", facts.logical_cpus);
    let status = if allowed > 1 { Status::Ok } else { Status::Limited };
    let consequence = "builds and measurements alternate, and only one thread can be measured";
    new_finding("processors", status, found, consequence, "give the process more processors")
}

/// Memory below which a problem is reported: the compiler needs some hundred MiB per builder.
const MEMORY_MIN_BYTES: u64 = 2 << 30;

fn memory_finding(evidence: &Evidence) -> Finding {
    let gib = |bytes: u64| format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30));
    let total = evidence.facts.memory_bytes.unwrap_or(0);
    let (bytes, found) = match &evidence.memory_limit {
        Some((limit, by)) if *limit < total => (*limit, format!("{}, limited by {by} to {}", gib(total), gib(*limit))),
        _ => (total, gib(total)),
    };
    let status = if bytes >= MEMORY_MIN_BYTES { Status::Ok } else { Status::Limited };
    let consequence = "large operators and parallel builders may be killed";
    new_finding("memory", status, found, consequence, "raise the limit, or use one builder")
}

fn noise_finding(noise: &Noise) -> Finding {
    let found = format!(
        "interruptions take {:.1} % of the time: {:.0} per second, the longest {:.2} ms",
        noise.lost_share * 100.0,
        noise.gaps_per_second,
        noise.gap_max_ns as f64 / 1e6
    );
    let is_quiet = noise.lost_share < 0.02 && noise.cpu_share > 0.95;
    let status = if is_quiet { Status::Ok } else { Status::Limited };
    let consequence = "measurements take longer and reach less precision";
    new_finding(
        "noise",
        status,
        found,
        consequence,
        "stop other work; on a shared host, compare minima rather than medians",
    )
}

fn timer_finding(precision_ns: u64) -> Finding {
    let status = if precision_ns <= 1_000 { Status::Ok } else { Status::Limited };
    let consequence = "short operators are run in long batches";
    let advice = "check that the kernel's clock source is the processor's own (tsc on x86)";
    new_finding("timer", status, format!("precise to {precision_ns} ns"), consequence, advice)
}

fn governor_finding(facts: &Facts) -> Finding {
    let consequence = "the clock may change while measuring; such measurements carry a warning";
    match facts.governor.as_deref() {
        Some("performance") => new_finding("clock governor", Status::Ok, "performance", "", ""),
        Some(other) => {
            let advice = "as root: `cpupower frequency-set -g performance`";
            new_finding("clock governor", Status::Limited, other, consequence, advice)
        }
        None => new_finding(
            "clock governor",
            Status::Limited,
            "unknown",
            consequence,
            "set it on the host; a guest cannot read it",
        ),
    }
}

fn boost_finding(facts: &Facts) -> Finding {
    let consequence = "the clock depends on temperature and active cores, which biases comparisons of thread counts";
    let advice = "as root: write 0 to cpufreq/boost, or 1 to intel_pstate/no_turbo, under /sys/devices/system/cpu";
    match facts.is_boost_on {
        Some(false) => new_finding("clock boost", Status::Ok, "off", "", ""),
        Some(true) => new_finding("clock boost", Status::Limited, "on", consequence, advice),
        None => new_finding(
            "clock boost",
            Status::Limited,
            "unknown",
            consequence,
            "set it on the host; a guest cannot read it",
        ),
    }
}

fn smt_finding(facts: &Facts) -> Finding {
    let (status, found) = match facts.is_smt_active {
        Some(true) => (Status::Limited, "on: two threads share the units of a core"),
        Some(false) => (Status::Ok, "off, according to the kernel"),
        None => (Status::Limited, "unknown"),
    };
    let advice = "measure on one thread per core, or as root: `echo off > /sys/devices/system/cpu/smt/control`";
    new_finding("SMT", status, found, "the other thread of a core affects times", advice)
}

fn isolation_finding(facts: &Facts) -> Finding {
    let (status, found) = if facts.isolated_cpus.is_empty() {
        (Status::Limited, "no processor is isolated".to_string())
    } else {
        (Status::Ok, format!("processors {:?} are isolated", facts.isolated_cpus))
    };
    let advice = "for the quietest results boot with `isolcpus=` and `nohz_full=`, and pin the runner there";
    new_finding("core isolation", status, found, "the system schedules other work onto measured processors", advice)
}

fn virtual_machine_finding(facts: &Facts) -> Finding {
    match &facts.hypervisor {
        None => new_finding("virtual machine", Status::Ok, "no", "", ""),
        Some(name) => {
            let consequence =
                "other virtual machines may disturb measurements; cache sizes and clock policy are the host's";
            new_finding(
                "virtual machine",
                Status::Limited,
                format!("yes: {name}"),
                consequence,
                "prefer bare metal for final numbers",
            )
        }
    }
}

fn hardware_counters(evidence: &Evidence) -> Finding {
    let is_hardware = |counter: &&Availability| ["cycles", "instructions", "cache_misses"].contains(&counter.name);
    let hardware: Vec<&Availability> = evidence.counters.iter().filter(is_hardware).collect();
    let given: Vec<&str> = hardware.iter().filter(|one| one.given.is_some()).map(|one| one.name).collect();
    let status = match given.len() {
        0 => Status::Missing,
        some if some < hardware.len() => Status::Limited,
        _ => Status::Ok,
    };
    let why = hardware.iter().find_map(|one| one.given.is_none().then(|| one.refusals.last()).flatten());
    let found = match (given.is_empty(), why) {
        (true, Some(refusal)) => format!("none: {}", refusal.why),
        (false, Some(refusal)) => format!("{}, but not all: {}", given.join(", "), refusal.why),
        (_, None) => given.join(", "),
    };
    let consequence = "records have times, faults and processor time, but no hardware counters";
    new_finding(
        "hardware counters",
        status,
        found,
        consequence,
        "use a machine or virtual machine that exposes hardware counters",
    )
}

fn perf_events(evidence: &Evidence) -> Finding {
    let is_given = evidence.counters.iter().any(|one| one.given.is_some_and(|(step, _)| step == Step::Perf));
    let paranoid = evidence.perf_event_paranoid.map_or("unreadable".into(), |level| level.to_string());
    let found = format!("kernel.perf_event_paranoid is {paranoid}");
    // Level 2 lets a process count itself in user mode; level 1 and below also allow the kernel's
    // part.
    let status = match evidence.perf_event_paranoid {
        _ if is_given => Status::Ok,
        Some(level) if level <= 2 => Status::Limited,
        _ => Status::Missing,
    };
    let consequence = "only PAPI and the kernel's general statistics provide counters";
    new_finding(
        "perf events",
        status,
        found,
        consequence,
        "as root: `sysctl kernel.perf_event_paranoid=1`, or grant CAP_PERFMON",
    )
}

fn papi_finding(papi: &Result<PapiFound, String>) -> Finding {
    let consequence = "floating-point counters are unavailable; other counters use perf events";
    match papi {
        Err(why) => new_finding(
            "PAPI",
            Status::Limited,
            why,
            consequence,
            "install PAPI 6.0 or later (Debian: libpapi7.0, libsde1)",
        ),
        Ok(papi) => {
            let off = papi.components.iter().find(|part| part.name == "perf_event" && part.disabled.is_some());
            match off.and_then(|part| part.disabled.as_ref()) {
                None => new_finding("PAPI", Status::Ok, &papi.version, "", ""),
                Some(reason) => {
                    let found = format!("{}, but its processor counters are disabled: {reason}", papi.version);
                    let advice = "if the processor is newer than libpfm4, install a newer libpfm4";
                    new_finding("PAPI", Status::Limited, found, consequence, advice)
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
