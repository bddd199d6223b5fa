//! Concurrent members and their results.

use crate::{Artifact, Check, Packing};
use measure::counters::CounterRequest;
use measure::synthetic::Synthetic;
use measure::{Course, Shared, Together};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Runs several members concurrently, each in a loop.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CoRunJob {
    pub members: Vec<Member>,
    pub seed: u64,
    pub rule: Together,
    /// Counters to read for each member.
    pub counters: CounterRequest,
    /// Size of the largest cache, which some partners must exceed.
    pub cache_bytes: u64,
}

/// Member of a co-run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Member {
    pub what: What,
    pub cpus: Vec<usize>,
}

/// Code that runs concurrently.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum What {
    Code {
        task: String,
        /// Object file of the artifact.
        object: Vec<u8>,
        /// Packing of each parameter and, last, of the result.
        packings: Vec<Packing>,
    },
    Synthetic(Synthetic),
}

/// Alternatives of running built code, in interleaved rounds. The lanes of an alternative start together.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RaceJob {
    pub ways: Vec<Vec<RaceLane>>,
    pub seed: u64,
    pub rule: Together,
}

/// Sequence of codes on the same CPUs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RaceLane {
    /// Built code with its tasks; lanes contain no synthetic partners.
    pub codes: Vec<What>,
    pub cpus: Vec<usize>,
}

/// Concurrent job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum TogetherJob {
    /// Members that run in loops.
    CoRun(CoRunJob),
    /// Alternatives that run once per round.
    Race(RaceJob),
}

impl TogetherJob {
    pub fn cpus(&self) -> Vec<usize> {
        let mut cpus: Vec<usize> = match self {
            TogetherJob::CoRun(job) => job.members.iter().flat_map(|member| &member.cpus).copied().collect(),
            TogetherJob::Race(job) => job.ways.iter().flatten().flat_map(|lane| &lane.cpus).copied().collect(),
        };
        cpus.sort_unstable();
        cpus.dedup();
        cpus
    }

    /// Returns the time limit: that of the rule, the first runs, and slow reference computations of `flops` operations.
    pub fn deadline(&self, flops: u64, slack: Duration) -> Duration {
        let rule = match self {
            TogetherJob::CoRun(job) => &job.rule,
            TogetherJob::Race(job) => &job.rule,
        };
        let limit = Duration::from_nanos(rule.time_limit_ns.saturating_add(rule.phase_ns));
        limit + crate::reference_time(flops) + slack
    }
}

/// Results of concurrent code.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum TogetherReply {
    /// Results of the members, in their order.
    Members(Vec<MemberReply>),
    /// Times of each alternative.
    Ways(Vec<Course>),
}

/// Result of one member.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum MemberReply {
    /// Times, and the comparison of its result, if there is one.
    Shared(Box<Shared>, Option<Check>),
    /// Difference from the reference that exceeds the tolerance; no time is given.
    WrongResult(Check),
    /// Error when loading or running the code.
    Failed(String),
}

impl What {
    /// Returns the built code of a task.
    pub fn code(task: &str, artifact: &Artifact) -> What {
        What::Code { task: task.to_owned(), object: artifact.object.clone(), packings: artifact.packings.clone() }
    }
}
