//! Sentinels: tasks whose code never changes, so that changes of their times result from changes of the machine.

use datasets::Record;
use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Aspect {
    Arithmetic,
    Bandwidth,
    Cache,
    /// Cost of starting and joining threads.
    Threads,
}

pub const ASPECTS: [Aspect; 4] = [Aspect::Arithmetic, Aspect::Bandwidth, Aspect::Cache, Aspect::Threads];

impl Aspect {
    pub fn name(self) -> &'static str {
        match self {
            Aspect::Arithmetic => "arithmetic",
            Aspect::Bandwidth => "bandwidth",
            Aspect::Cache => "cache",
            Aspect::Threads => "threads",
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Sentinel {
    /// Operator with sizes that occur in no network.
    pub name: &'static str,
    pub alone: Aspect,
    pub together: Aspect,
}

/// The sentinels: a matrix product whose data fits in the caches, element-wise operators on large and small tensors,
/// and a task so short that on several threads it measures the cost of starting and joining them.
pub const SENTINELS: [Sentinel; 4] = [
    Sentinel { name: "matmul:m=251,n=257,k=263", alone: Aspect::Arithmetic, together: Aspect::Arithmetic },
    Sentinel { name: "relu:shape=8x1021x2053", alone: Aspect::Bandwidth, together: Aspect::Bandwidth },
    Sentinel { name: "relu:shape=3x8191", alone: Aspect::Cache, together: Aspect::Threads },
    Sentinel { name: "softmax:shape=61x509", alone: Aspect::Cache, together: Aspect::Threads },
];

pub fn aspect_of(record: &Record) -> Option<Aspect> {
    if record.model_source.as_deref() != Some("simple") {
        return None;
    }
    let name = record.model_name.as_deref()?;
    let sentinel = SENTINELS.iter().find(|sentinel| sentinel.name == name)?;
    Some(if record.threads.unwrap_or(1) > 1 { sentinel.together } else { sentinel.alone })
}
