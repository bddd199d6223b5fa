//! Sentinels: tasks whose code never changes, so that changes of their times are changes of the machine.

use datasets::Record;
use serde::Serialize;

/// Property of the machine that a sentinel tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Aspect {
    /// Speed of one core.
    Arithmetic,
    /// Speed of main memory.
    Bandwidth,
    /// Speed of a core's caches.
    Cache,
    /// Cost of starting and joining several threads.
    Threads,
}

pub const ASPECTS: [Aspect; 4] = [Aspect::Arithmetic, Aspect::Bandwidth, Aspect::Cache, Aspect::Threads];

impl Aspect {
    /// Returns the displayed name.
    pub fn name(self) -> &'static str {
        match self {
            Aspect::Arithmetic => "arithmetic",
            Aspect::Bandwidth => "bandwidth",
            Aspect::Cache => "cache",
            Aspect::Threads => "threads",
        }
    }
}

/// A sentinel: an operator of `--modelsource simple`, and the aspects it tests.
#[derive(Clone, Copy, Debug)]
pub struct Sentinel {
    /// Name of the operator. Its extents are chosen such that no network contains it.
    pub name: &'static str,
    /// Aspect tested by one thread.
    pub alone: Aspect,
    /// Aspect tested by several threads.
    pub together: Aspect,
}

/// Sentinels: a matrix product with operands in caches, element-wise operators on large and small tensors, and a task
/// that is so short that on several threads it mostly measures their start and end.
pub const SENTINELS: [Sentinel; 4] = [
    Sentinel { name: "matmul:m=251,n=257,k=263", alone: Aspect::Arithmetic, together: Aspect::Arithmetic },
    Sentinel { name: "relu:shape=8x1021x2053", alone: Aspect::Bandwidth, together: Aspect::Bandwidth },
    Sentinel { name: "relu:shape=3x8191", alone: Aspect::Cache, together: Aspect::Threads },
    Sentinel { name: "softmax:shape=61x509", alone: Aspect::Cache, together: Aspect::Threads },
];

/// Returns the aspect that a record tests, or `None` if the record is not of a sentinel.
pub fn aspect_of(record: &Record) -> Option<Aspect> {
    if record.model_source.as_deref() != Some("simple") {
        return None;
    }
    let name = record.model_name.as_deref()?;
    let sentinel = SENTINELS.iter().find(|sentinel| sentinel.name == name)?;
    Some(if record.threads.unwrap_or(1) > 1 { sentinel.together } else { sentinel.alone })
}
