//! Fixed tasks that tell how the machine fares: no code of theirs changes from night to night, so what moves them is the machine.

use datasets::Record;
use serde::Serialize;

/// What a sentinel tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Aspect {
    /// How fast one core computes.
    Arithmetic,
    /// How fast memory is.
    Bandwidth,
    /// How fast a core's caches are.
    Cache,
    /// How well several threads begin and end together.
    Threads,
}

/// All of them.
pub const ASPECTS: [Aspect; 4] = [Aspect::Arithmetic, Aspect::Bandwidth, Aspect::Cache, Aspect::Threads];

impl Aspect {
    /// The word for a reader.
    pub fn name(self) -> &'static str {
        match self {
            Aspect::Arithmetic => "arithmetic",
            Aspect::Bandwidth => "bandwidth",
            Aspect::Cache => "cache",
            Aspect::Threads => "threads",
        }
    }
}

/// One sentinel: an operator as `--modelsource simple` names it, and what it tests on one thread and on several.
#[derive(Clone, Copy, Debug)]
pub struct Sentinel {
    /// Its text; extents are odd enough that no network has them.
    pub name: &'static str,
    /// What it tests on one thread.
    pub alone: Aspect,
    /// What it tests on several.
    pub together: Aspect,
}

/// The sentinels: a product whose operands stay in caches, sums over 64 MiB and over 192 KiB, and a task so short that on several
/// threads it is mostly beginning and ending.
pub const SENTINELS: [Sentinel; 4] = [
    Sentinel { name: "matmul:m=251,n=257,k=263", alone: Aspect::Arithmetic, together: Aspect::Arithmetic },
    Sentinel { name: "relu:shape=8x1021x2053", alone: Aspect::Bandwidth, together: Aspect::Bandwidth },
    Sentinel { name: "relu:shape=3x8191", alone: Aspect::Cache, together: Aspect::Threads },
    Sentinel { name: "softmax:shape=61x509", alone: Aspect::Cache, together: Aspect::Threads },
];

/// What a record tests, where it is one of a sentinel.
pub fn aspect_of(record: &Record) -> Option<Aspect> {
    if record.model_source.as_deref() != Some("simple") {
        return None;
    }
    let name = record.model_name.as_deref()?;
    let sentinel = SENTINELS.iter().find(|sentinel| sentinel.name == name)?;
    Some(if record.threads.unwrap_or(1) > 1 { sentinel.together } else { sentinel.alone })
}
