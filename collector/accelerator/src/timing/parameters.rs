//! The numbers of the timing model, in sets with a name and a provenance.

use serde::{Deserialize, Serialize};

/// Costs in cycles of the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timing {
    /// Of each instruction.
    pub instruction: u64,
    /// Of each row that is read.
    pub row: u64,
    /// Of each row that is written.
    pub store_row: u64,
    /// From asking for the first burst of a row to its first beat.
    pub burst: u64,
    /// The same of the bursts that follow it.
    pub next_burst: u64,
    /// Beats of a burst, one cycle each.
    pub burst_beats: u64,
    /// Bytes of a beat.
    pub beat_bytes: u64,
    /// Whether the port is held from asking to the last beat; else it is held for the beats alone.
    pub is_one_at_a_time: bool,
    /// Whether rows without anything between them are read as one.
    pub joins_rows: bool,
    /// Of each zero that is put around a rectangle.
    pub pad: u64,
    /// From the begin of products to the first step.
    pub multiply_fill: u64,
    /// Of each product.
    pub multiply_step: u64,
    /// From the begin of changes to the first step.
    pub alu_fill: u64,
    /// Of each change of a sum.
    pub alu_step: u64,
    /// Of the host for each instruction it writes, in nanoseconds.
    pub host_instruction_ns: u64,
    /// Of the host for each call, in nanoseconds.
    pub host_call_ns: u64,
}

/// Costs with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimingSet {
    /// Its name, as records have it.
    pub name: &'static str,
    /// Raised with every change.
    pub version: u32,
    /// Where the numbers are from.
    pub provenance: &'static str,
    /// Whether times of such hardware were compared with it.
    pub is_calibrated: bool,
    /// The numbers.
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

/// All sets.
pub fn timing_sets() -> &'static [TimingSet] {
    &[
        TimingSet {
            name: "pynq-hls-100",
            version: 1,
            provenance: "fitted to every other of 42 published times of convolutions on PYNQ boards, 2019",
            is_calibrated: true,
            timing: HLS,
        },
        TimingSet {
            name: "rtl-64",
            version: 1,
            provenance: "the published description of the simulator of the hardware's description; costs of rows and instructions set by hand to its published cycles",
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
            provenance: "the numbers of `pynq-hls-100` with a port of 128 bits; nobody published a time to compare with",
            is_calibrated: false,
            timing: Timing { beat_bytes: 16, ..HLS },
        },
    ]
}

impl TimingSet {
    /// The set of a name.
    pub fn named(name: &str) -> Option<&'static TimingSet> {
        timing_sets().iter().find(|set| set.name == name)
    }

    /// Its name and version, as records have them.
    pub fn label(&self) -> String {
        format!("{}@{}", self.name, self.version)
    }
}
