//! Named parameter sets of the timing model, with their provenance.

use serde::{Deserialize, Serialize};

/// Parameters of the timing model, in core cycles unless noted otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timing {
    pub instruction: u64,
    /// Latency before each row that is read.
    pub row: u64,
    pub store_row: u64,
    /// Latency of the first burst of each row.
    pub burst: u64,
    pub next_burst: u64,
    /// Number of transfers (beats) per burst, of one cycle each.
    pub burst_beats: u64,
    pub beat_bytes: u64,
    /// Whether the memory port is busy also during the latency of a burst.
    pub is_one_at_a_time: bool,
    pub joins_rows: bool,
    /// Cycles per element of padding.
    pub pad: u64,
    pub multiply_fill: u64,
    pub multiply_step: u64,
    pub alu_fill: u64,
    pub alu_step: u64,
    pub host_instruction_ns: u64,
    pub host_call_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimingSet {
    pub name: &'static str,
    pub version: u32,
    pub provenance: &'static str,
    /// Whether the parameters were validated with times measured on hardware.
    pub is_calibrated: bool,
    pub timing: Timing,
}

const HLS: Timing = Timing {
    instruction: 10,
    row: 2,
    store_row: 30,
    burst: 12,
    next_burst: 12,
    burst_beats: 16,
    beat_bytes: 8,
    is_one_at_a_time: false,
    joins_rows: false,
    pad: 4,
    multiply_fill: 10,
    multiply_step: 1,
    alu_fill: 10,
    alu_step: 2,
    host_instruction_ns: 150,
    host_call_ns: 150_000,
};

pub fn timing_sets() -> &'static [TimingSet] {
    &[
        TimingSet {
            name: "pynq-hls-100",
            version: 1,
            provenance: "fitted to every second of 42 published times of convolutions on PYNQ boards, 2019",
            is_calibrated: true,
            timing: HLS,
        },
        TimingSet {
            name: "rtl-64",
            version: 1,
            provenance: "published description of the RTL simulation; costs of rows and instructions set by hand to match its \
                 published cycles",
            is_calibrated: true,
            timing: Timing {
                instruction: 1,
                row: 1,
                store_row: 1,
                burst: 16,
                next_burst: 0,
                is_one_at_a_time: true,
                pad: 1,
                multiply_fill: 5,
                alu_fill: 5,
                alu_step: 1,
                host_instruction_ns: 0,
                host_call_ns: 0,
                ..HLS
            },
        },
        TimingSet {
            name: "ultra96-hls-333",
            version: 1,
            provenance: "the parameters of `pynq-hls-100` with a port of 128 bits; not compared with published times",
            is_calibrated: false,
            timing: Timing { beat_bytes: 16, ..HLS },
        },
    ]
}

impl TimingSet {
    pub fn find_set(name: &str) -> Option<&'static TimingSet> {
        timing_sets().iter().find(|set| set.name == name)
    }

    pub fn record_label(&self) -> String {
        format!("{}@{}", self.name, self.version)
    }
}
