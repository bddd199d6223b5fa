//! Several members at once: what they are, and what is answered of each.

use crate::{Artifact, Check, Packing};
use measure::counters::CounterRequest;
use measure::synthetic::Synthetic;
use measure::{Course, Shared, Together};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Run several things at once, each in a loop.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CoRunJob {
    /// What runs.
    pub members: Vec<Member>,
    /// Seed of the input values.
    pub seed: u64,
    /// How long to look.
    pub rule: Together,
    /// What to count of each member.
    pub counters: CounterRequest,
    /// The largest cache, which some partners must not fit in.
    pub cache_bytes: u64,
}

/// One of them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Member {
    /// What it is.
    pub what: What,
    /// One thread on each of these CPUs.
    pub cpus: Vec<usize>,
}

/// What runs beside others.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum What {
    /// Built code.
    Code {
        /// Its task, as JSON.
        task: String,
        /// The artifact's object file.
        object: Vec<u8>,
        /// How each parameter must be stored and, last, how the result is.
        packings: Vec<Packing>,
    },
    /// A partner that is no operator.
    Synthetic(Synthetic),
}

/// Ways to run some built code, one after the other in rounds: the lanes of a way begin together.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RaceJob {
    /// Lanes of each way.
    pub ways: Vec<Vec<Lane>>,
    /// Seed of the input values.
    pub seed: u64,
    /// How long to look.
    pub rule: Together,
}

/// Codes one after the other on the same CPUs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Lane {
    /// Built code with its tasks; nothing else runs in lanes.
    pub codes: Vec<What>,
    /// One thread on each of these CPUs.
    pub cpus: Vec<usize>,
}

/// What runs at once.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum TogetherJob {
    /// Each in a loop.
    CoRun(CoRunJob),
    /// Each once, in ways that take turns.
    Race(RaceJob),
}

impl TogetherJob {
    /// All CPUs it runs on.
    pub fn cpus(&self) -> Vec<usize> {
        let mut cpus: Vec<usize> = match self {
            TogetherJob::CoRun(job) => job.members.iter().flat_map(|member| &member.cpus).copied().collect(),
            TogetherJob::Race(job) => job.ways.iter().flatten().flat_map(|lane| &lane.cpus).copied().collect(),
        };
        cpus.sort_unstable();
        cpus.dedup();
        cpus
    }

    /// How long it may take: what its rule says, the first runs, and what slow reference computations of so many operations
    /// need.
    pub fn deadline(&self, flops: u64, slack: Duration) -> Duration {
        let rule = match self {
            TogetherJob::CoRun(job) => &job.rule,
            TogetherJob::Race(job) => &job.rule,
        };
        let limit = Duration::from_nanos(rule.time_limit_ns.saturating_add(rule.phase_ns));
        limit + crate::reference_time(flops) + slack
    }
}

/// What was seen of things that ran at once.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum TogetherReply {
    /// Of each member, in their order.
    Members(Vec<MemberReply>),
    /// Of each way.
    Ways(Vec<Course>),
}

/// What became of one member.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum MemberReply {
    /// Its times, with the comparison of its result where it has one.
    Shared(Box<Shared>, Option<Check>),
    /// It computes something else than its task says; no time is given.
    WrongResult(Check),
    /// It could not be loaded or run.
    Failed(String),
}

impl What {
    /// Built code of a task.
    pub fn code(task: &str, artifact: &Artifact) -> What {
        What::Code { task: task.to_owned(), object: artifact.object.clone(), packings: artifact.packings.clone() }
    }
}
