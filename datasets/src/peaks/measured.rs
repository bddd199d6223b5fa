//! One measurement of a host's peak rates, as stored in its file.

use serde::{Deserialize, Serialize};

/// Newest format version. Version 1 lacks `level` and `kind`, and measured scalar loops in the last-level cache.
const VERSION: u32 = 2;

/// The measured peak rates of a host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeaksMeasured {
    /// Version of the file format.
    pub version: u32,
    /// Name of the host.
    pub host: String,
    /// Class of hosts with comparable times.
    pub host_class: String,
    /// Version of the measuring program.
    pub program_version: String,
    /// Time of the measurement, in microseconds since 1970.
    pub taken_at_us: i64,
    /// Arithmetic rates.
    pub compute: Vec<ComputeRate>,
    /// Memory bandwidths.
    pub memory: Vec<MemoryRate>,
}

/// A rate of 32-bit floating-point multiply-adds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ComputeRate {
    /// Number of threads.
    pub threads: u32,
    /// Operations per second.
    pub flops_per_second: f64,
}

/// A bandwidth of streaming loops.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryRate {
    /// Number of threads.
    pub threads: u32,
    /// Size of the working set over all threads.
    pub working_set_bytes: u64,
    /// Level that holds the working set: `L1`, `L2`, `L3` or `DRAM`; absent in version 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<String>,
    /// The kind of stream: `read`, `write`, `copy` or `triad`; absent in version 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Bytes per second.
    pub bytes_per_second: f64,
}

impl PeaksMeasured {
    /// Creates a measurement without rates.
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

    /// Returns whether the file has the current format version.
    pub fn is_current(&self) -> bool {
        self.version == VERSION
    }

    pub(crate) fn is_sound(&self) -> bool {
        let rates = self.compute.iter().map(|rate| (rate.threads, rate.flops_per_second));
        let rates = rates.chain(self.memory.iter().map(|rate| (rate.threads, rate.bytes_per_second)));
        self.version <= VERSION
            && rates.into_iter().all(|(threads, rate)| threads > 0 && rate.is_finite() && rate > 0.0)
    }
}
