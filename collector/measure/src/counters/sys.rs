//! Perf event numbers of the kernel, equal on all architectures; the bindings crate lacks them for 32-bit ARM.

#[cfg(not(target_arch = "arm"))]
pub use perf_event_open_sys::bindings::*;

#[cfg(target_arch = "arm")]
pub use of_arm::*;

#[cfg(target_arch = "arm")]
#[allow(non_camel_case_types)]
mod of_arm {
    pub type perf_hw_id = u32;
    pub type perf_sw_ids = u32;
    pub type perf_hw_cache_id = u32;
    pub type perf_hw_cache_op_result_id = u32;
    pub const PERF_COUNT_HW_CPU_CYCLES: perf_hw_id = 0;
    pub const PERF_COUNT_HW_INSTRUCTIONS: perf_hw_id = 1;
    pub const PERF_COUNT_HW_CACHE_REFERENCES: perf_hw_id = 2;
    pub const PERF_COUNT_HW_CACHE_MISSES: perf_hw_id = 3;
    pub const PERF_COUNT_HW_BRANCH_INSTRUCTIONS: perf_hw_id = 4;
    pub const PERF_COUNT_HW_BRANCH_MISSES: perf_hw_id = 5;
    pub const PERF_COUNT_HW_STALLED_CYCLES_FRONTEND: perf_hw_id = 7;
    pub const PERF_COUNT_HW_STALLED_CYCLES_BACKEND: perf_hw_id = 8;
    pub const PERF_COUNT_HW_REF_CPU_CYCLES: perf_hw_id = 9;
    pub const PERF_COUNT_HW_CACHE_L1D: perf_hw_cache_id = 0;
    pub const PERF_COUNT_HW_CACHE_LL: perf_hw_cache_id = 2;
    pub const PERF_COUNT_HW_CACHE_DTLB: perf_hw_cache_id = 3;
    pub const PERF_COUNT_HW_CACHE_OP_READ: perf_hw_cache_id = 0;
    pub const PERF_COUNT_HW_CACHE_RESULT_ACCESS: perf_hw_cache_op_result_id = 0;
    pub const PERF_COUNT_HW_CACHE_RESULT_MISS: perf_hw_cache_op_result_id = 1;
    pub const PERF_COUNT_SW_TASK_CLOCK: perf_sw_ids = 1;
    pub const PERF_COUNT_SW_CONTEXT_SWITCHES: perf_sw_ids = 3;
    pub const PERF_COUNT_SW_CPU_MIGRATIONS: perf_sw_ids = 4;
    pub const PERF_TYPE_HARDWARE: u32 = 0;
    pub const PERF_TYPE_SOFTWARE: u32 = 1;
    pub const PERF_TYPE_HW_CACHE: u32 = 3;
    pub const PERF_TYPE_RAW: u32 = 4;
}
