//! One measurement of a host's peaks, as its file has it.

use serde::{Deserialize, Serialize};

/// The format this program writes, and the newest it reads. Version 1 has no levels and kinds; its rates are of scalar loops over
/// working sets that the last-level cache held.
const VERSION: u32 = 2;

/// What a host did at one time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeaksMeasured {
    /// Version of this file's format.
    pub version: u32,
    /// Name of the host.
    pub host: String,
    /// Class of hosts whose times may be compared.
    pub host_class: String,
    /// Version of the program that measured.
    pub program_version: String,
    /// When, in microseconds since 1970.
    pub taken_at_us: i64,
    /// Operations.
    pub compute: Vec<ComputeRate>,
    /// Bytes.
    pub memory: Vec<MemoryRate>,
}

/// A rate of multiply-adds on 32-bit floats.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ComputeRate {
    /// Threads at work.
    pub threads: u32,
    /// Operations per second.
    pub flops_per_second: f64,
}

/// A rate of streaming.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryRate {
    /// Threads at work.
    pub threads: u32,
    /// Bytes that were moved again and again, by all threads together.
    pub working_set_bytes: u64,
    /// The level that holds them: `L1`, `L2`, `L3` or `DRAM`; absent in version 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<String>,
    /// The kind of stream: `read`, `write`, `copy` or `triad`; absent in version 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Bytes per second.
    pub bytes_per_second: f64,
}

impl PeaksMeasured {
    /// A measurement without rates.
    pub fn new(host: &str, host_class: &str, program_version: &str, taken_at_us: i64) -> PeaksMeasured {
        PeaksMeasured {
            version: VERSION,
            host: host.to_owned(),
            host_class: host_class.to_owned(),
            program_version: program_version.to_owned(),
            taken_at_us,
            compute: Vec::new(),
            memory: Vec::new(),
        }
    }

    /// Whether the file has the format that this program writes.
    pub fn is_current(&self) -> bool {
        self.version == VERSION
    }

    /// Whether this program reads it and every number in it is usable.
    pub(crate) fn is_sound(&self) -> bool {
        let rates = self.compute.iter().map(|rate| (rate.threads, rate.flops_per_second));
        let rates = rates.chain(self.memory.iter().map(|rate| (rate.threads, rate.bytes_per_second)));
        self.version <= VERSION
            && rates.into_iter().all(|(threads, rate)| threads > 0 && rate.is_finite() && rate > 0.0)
    }
}
