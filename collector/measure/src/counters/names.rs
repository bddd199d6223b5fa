//! Stable names of CPU counters, which records contain, and their names at each source. Hardware counters are in groups
//! of four, so that both parts of a ratio are counted in the same batches.

use super::sys;

use super::gpu;
use super::usage::{Usage, UsageParts};

#[derive(Debug)]
pub struct CounterName {
    pub name: &'static str,
    /// Unit of the counter: `count`, `ns` or `microjoule`.
    pub unit: &'static str,
    pub description: &'static str,
    /// Names of the event in PAPI, tried in order; empty if PAPI is not used for this counter.
    pub papi: &'static [&'static str],
    pub perf: Option<PerfEvent>,
    pub usage: Option<UsageFigure>,
    /// Name prefix of the power-cap zones that are summed.
    pub powercap: Option<&'static str>,
}

#[derive(Debug, Clone, Copy)]
pub struct UsageFigure {
    pub field: &'static str,
    pub is_of_thread: bool,
    pub(super) read: fn(&Usage) -> u64,
    pub(super) parts: UsageParts,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PerfEvent {
    pub kind: u32,
    pub config: u64,
}

impl PerfEvent {
    /// Returns whether the kernel counts the event in software, without a counter register.
    pub fn is_software(self) -> bool {
        self.kind == sys::PERF_TYPE_SOFTWARE
    }

    /// Returns whether the event occurs in kernel mode, where a user-mode counter misses the event.
    pub fn occurs_in_kernel(self) -> bool {
        let of_kernel = [sys::PERF_COUNT_SW_CONTEXT_SWITCHES, sys::PERF_COUNT_SW_CPU_MIGRATIONS];
        self.is_software() && of_kernel.iter().any(|&config| u64::from(config) == self.config)
    }

    pub fn raw_event(config: u64) -> Self {
        Self { kind: sys::PERF_TYPE_RAW, config }
    }
}

const fn hardware_event(config: sys::perf_hw_id) -> Option<PerfEvent> {
    Some(PerfEvent { kind: sys::PERF_TYPE_HARDWARE, config: config as u64 })
}

const fn software_event(config: sys::perf_sw_ids) -> Option<PerfEvent> {
    Some(PerfEvent { kind: sys::PERF_TYPE_SOFTWARE, config: config as u64 })
}

const fn cache_reads(cache: sys::perf_hw_cache_id, result: sys::perf_hw_cache_op_result_id) -> Option<PerfEvent> {
    let operation = sys::PERF_COUNT_HW_CACHE_OP_READ as u64;
    Some(PerfEvent { kind: sys::PERF_TYPE_HW_CACHE, config: cache as u64 | operation << 8 | (result as u64) << 16 })
}

const ALL: sys::perf_hw_cache_op_result_id = sys::PERF_COUNT_HW_CACHE_RESULT_ACCESS;
const MISSED: sys::perf_hw_cache_op_result_id = sys::PERF_COUNT_HW_CACHE_RESULT_MISS;

const fn papi_counter(
    name: &'static str,
    description: &'static str,
    papi: &'static [&'static str],
    perf: Option<PerfEvent>,
) -> CounterName {
    CounterName { name, unit: "count", description, papi, perf, usage: None, powercap: None }
}

const fn usage_counter(
    name: &'static str,
    unit: &'static str,
    description: &'static str,
    parts: UsageParts,
    read: fn(&Usage) -> u64,
) -> CounterName {
    let usage = Some(UsageFigure { field: name, is_of_thread: false, read, parts });
    CounterName { name, unit, description, papi: &[], perf: None, usage, powercap: None }
}

const fn energy_counter(name: &'static str, description: &'static str, zone: &'static str) -> CounterName {
    let unit = "microjoule";
    CounterName { name, unit, description, papi: &[], perf: None, usage: None, powercap: Some(zone) }
}

const CLOCK: UsageParts = UsageParts { thread_clock: false, process_clock: true, events: false };
const EVENTS: UsageParts = UsageParts { thread_clock: false, process_clock: false, events: true };

/// All CPU counters. The kernel's accounting counts page faults and switches, because perf software events miss some.
pub const NAMES: &[CounterName] = &[
    papi_counter(
        "cycles",
        "processor cycles",
        &["PAPI_TOT_CYC", "perf::CYCLES"],
        hardware_event(sys::PERF_COUNT_HW_CPU_CYCLES),
    ),
    papi_counter(
        "instructions",
        "instructions completed",
        &["PAPI_TOT_INS", "perf::INSTRUCTIONS"],
        hardware_event(sys::PERF_COUNT_HW_INSTRUCTIONS),
    ),
    papi_counter(
        "branch_misses",
        "mispredicted branches",
        &["PAPI_BR_MSP", "perf::BRANCH-MISSES"],
        hardware_event(sys::PERF_COUNT_HW_BRANCH_MISSES),
    ),
    papi_counter(
        "cache_misses",
        "last-level cache misses, by the event that the kernel selects for this processor",
        &["perf::CACHE-MISSES", "PAPI_L3_TCM"],
        hardware_event(sys::PERF_COUNT_HW_CACHE_MISSES),
    ),
    papi_counter(
        "l1d_loads",
        "loads from the first-level data cache",
        &["perf::L1-DCACHE-LOADS"],
        cache_reads(sys::PERF_COUNT_HW_CACHE_L1D, ALL),
    ),
    papi_counter(
        "l1d_load_misses",
        "loads that missed the first-level data cache",
        &["perf::L1-DCACHE-LOAD-MISSES", "PAPI_L1_LDM"],
        cache_reads(sys::PERF_COUNT_HW_CACHE_L1D, MISSED),
    ),
    papi_counter(
        "llc_loads",
        "loads from the last-level cache",
        &["perf::LLC-LOADS"],
        cache_reads(sys::PERF_COUNT_HW_CACHE_LL, ALL),
    ),
    papi_counter(
        "llc_load_misses",
        "loads that missed the last-level cache and went to memory",
        &["perf::LLC-LOAD-MISSES", "PAPI_L3_LDM"],
        cache_reads(sys::PERF_COUNT_HW_CACHE_LL, MISSED),
    ),
    papi_counter(
        "stalled_cycles_frontend",
        "cycles in which the front end delivered no instruction",
        &["perf::STALLED-CYCLES-FRONTEND"],
        hardware_event(sys::PERF_COUNT_HW_STALLED_CYCLES_FRONTEND),
    ),
    papi_counter(
        "stalled_cycles_backend",
        "cycles in which no instruction could be executed",
        &["perf::STALLED-CYCLES-BACKEND"],
        hardware_event(sys::PERF_COUNT_HW_STALLED_CYCLES_BACKEND),
    ),
    papi_counter(
        "dtlb_load_misses",
        "loads that missed the translation lookaside buffer",
        &["perf::DTLB-LOAD-MISSES", "PAPI_TLB_DM"],
        cache_reads(sys::PERF_COUNT_HW_CACHE_DTLB, MISSED),
    ),
    papi_counter(
        "branches",
        "branches completed",
        &["PAPI_BR_INS", "perf::BRANCHES"],
        hardware_event(sys::PERF_COUNT_HW_BRANCH_INSTRUCTIONS),
    ),
    papi_counter(
        "cache_references",
        "last-level cache accesses, by the event that the kernel selects for this processor",
        &["perf::CACHE-REFERENCES"],
        hardware_event(sys::PERF_COUNT_HW_CACHE_REFERENCES),
    ),
    papi_counter(
        "reference_cycles",
        "cycles at the processor's nominal clock",
        &["PAPI_REF_CYC", "perf::REF-CYCLES"],
        hardware_event(sys::PERF_COUNT_HW_REF_CPU_CYCLES),
    ),
    papi_counter("fp_operations", "floating-point operations", &["PAPI_FP_OPS"], None),
    papi_counter("fp_operations_single", "floating-point operations in single precision", &["PAPI_SP_OPS"], None),
    papi_counter("fp_operations_double", "floating-point operations in double precision", &["PAPI_DP_OPS"], None),
    papi_counter("vector_instructions", "vector instructions", &["PAPI_VEC_INS"], None),
    papi_counter(
        "cpu_migrations",
        "migrations of the thread to another processor",
        &[],
        software_event(sys::PERF_COUNT_SW_CPU_MIGRATIONS),
    ),
    CounterName {
        name: CPU_TIME,
        unit: "ns",
        description: "processor time of the opening thread (and its descendants, where the request includes them)",
        papi: &["perf::TASK-CLOCK"],
        perf: software_event(sys::PERF_COUNT_SW_TASK_CLOCK),
        usage: Some(UsageFigure {
            field: CPU_TIME,
            is_of_thread: true,
            read: |usage| usage.thread_cpu_ns,
            parts: UsageParts { thread_clock: true, process_clock: false, events: false },
        }),
        powercap: None,
    },
    usage_counter("process_cpu_ns", "ns", "processor time of all threads", CLOCK, |usage| usage.process_cpu_ns),
    usage_counter("minor_faults", "count", "page faults served from memory", EVENTS, |usage| usage.minor_faults),
    usage_counter("major_faults", "count", "page faults that read from a disk", EVENTS, |usage| usage.major_faults),
    usage_counter("voluntary_switches", "count", "times a thread waited", EVENTS, |usage| usage.voluntary_switches),
    usage_counter("involuntary_switches", "count", "involuntary context switches", EVENTS, |usage| {
        usage.involuntary_switches
    }),
    energy_counter(PACKAGE_ENERGY, "energy of the processor's packages, of all processes", "package"),
    energy_counter(DRAM_ENERGY, "energy of the memory, of all processes", "dram"),
];

/// Counter of the processor time of a thread.
pub const CPU_TIME: &str = "thread_cpu_ns";
pub const PACKAGE_ENERGY: &str = "package_energy_microjoules";
pub const DRAM_ENERGY: &str = "dram_energy_microjoules";

/// Counters that are counted by default: three groups of hardware counters, two accounting fields and energy.
pub const DEFAULT: &[&str] = &[
    "cycles",
    "instructions",
    "branch_misses",
    "cache_misses",
    "l1d_loads",
    "l1d_load_misses",
    "llc_loads",
    "llc_load_misses",
    "stalled_cycles_frontend",
    "stalled_cycles_backend",
    "dtlb_load_misses",
    CPU_TIME,
    "minor_faults",
    PACKAGE_ENERGY,
    DRAM_ENERGY,
];

pub fn find_counter(name: &str) -> Option<&'static CounterName> {
    NAMES.iter().find(|counter| counter.name == name)
}

pub fn check_events(events: &[String]) -> Result<(), String> {
    match events.iter().find(|name| !is_known(name)) {
        None => Ok(()),
        Some(name) if name.starts_with("PAPI_") || name.contains("::") => {
            Err(format!("there is no counter `{name}`; write a PAPI event as `papi:{name}`"))
        }
        Some(name) if name == "none" => Err("`none` disables counters; omit it or the other names".to_owned()),
        Some(name) if name.starts_with("perf:") => {
            Err(format!("`{name}` is not a raw perf event; write `perf:r` followed by hexadecimal digits"))
        }
        Some(name) => {
            let known = NAMES.iter().map(|counter| counter.name);
            let of_gpu = gpu::GPU_NAMES.iter().map(|counter| counter.name);
            let hint = models::names::name_hint(name, known.chain(of_gpu));
            let native = "write a native event as `papi:NAME`, `perf:rHEX` or `cupti:METRIC`";
            Err(format!("there is no counter `{name}` ({native}); {hint}"))
        }
    }
}

fn is_known(name: &str) -> bool {
    let of_source = |prefix: &str| name.strip_prefix(prefix).filter(|rest| !rest.is_empty());
    let is_raw = |digits: &str| u64::from_str_radix(digits, 16).is_ok();
    find_counter(name).is_some()
        || gpu::find_counter(name).is_some()
        || of_source("papi:").is_some()
        || of_source(gpu::METRIC_PREFIX).is_some()
        || of_source("perf:r").is_some_and(is_raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_nobody_knows_is_refused_with_the_nearest() {
        let told = |name: &str| check_events(&["cycles".to_owned(), name.to_owned()]).expect_err("it is unknown");
        assert!(told("foo").starts_with("there is no counter `foo` ("), "{}", told("foo"));
        assert_eq!(told("none"), "`none` disables counters; omit it or the other names");
        assert!(told("cycle").contains("did you mean `cycles`?"), "{}", told("cycle"));
        assert!(told("gpu_power_watt").contains("did you mean `gpu_power_watts`"), "{}", told("gpu_power_watt"));
        assert!(told("PAPI_TOT_CYC").ends_with("`papi:PAPI_TOT_CYC`"), "{}", told("PAPI_TOT_CYC"));
        assert!(told("perf::CYCLES").ends_with("`papi:perf::CYCLES`"), "{}", told("perf::CYCLES"));
        assert!(told("perf:x1").contains("`perf:r` followed by hexadecimal digits"), "{}", told("perf:x1"));
        assert!(told("papi:").starts_with("there is no counter `papi:`"), "{}", told("papi:"));
        let known = ["papi:PAPI_TOT_CYC", "perf:r1a8", "cupti:sm__cycles_active.avg", "gpu_kernel_ns"];
        check_events(&known.map(str::to_owned)).expect("each is well written");
        let usual: Vec<String> = DEFAULT.iter().map(ToString::to_string).collect();
        check_events(&usual).expect("the default is known");
    }

    #[test]
    fn names_are_unique_and_the_defaults_exist() {
        for (place, counter) in NAMES.iter().enumerate() {
            assert!(NAMES[..place].iter().all(|other| other.name != counter.name), "{} twice", counter.name);
            let has_own = counter.perf.is_some() || counter.usage.is_some() || counter.powercap.is_some();
            let has_source = !counter.papi.is_empty() || has_own;
            assert!(has_source, "{} comes from nowhere", counter.name);
        }
        for name in DEFAULT {
            assert!(find_counter(name).is_some(), "{name}");
        }
    }
}
