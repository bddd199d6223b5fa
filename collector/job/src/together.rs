//! Jobs that run several codes concurrently, and the results of each.

use crate::{Artifact, Check, Packing};
use measure::counters::CounterRequest;
use measure::synthetic::Synthetic;
use measure::{RoundTimes, Shared, Together};
use serde::{Deserialize, Serialize};
use std::time::Duration;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CoRunJob {
    pub members: Vec<Member>,
    pub seed: u64,
    pub rule: Together,
    pub counters: CounterRequest,
    /// Size of the largest cache, which synthetic loads of memory bandwidth must exceed.
    pub cache_bytes: u64,
    pub share_cores: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Member {
    pub what: MemberWork,
    pub cpus: Vec<usize>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum MemberWork {
    Code {
        task: String,
        object: Vec<u8>,
        /// Storage format of each parameter, followed by that of the result.
        packings: Vec<Packing>,
    },
    Synthetic(Synthetic),
}

/// Compares alternative ways to run codes in interleaved rounds. The lanes (threads) of an alternative start together.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RaceJob {
    pub ways: Vec<Vec<RaceLane>>,
    pub seed: u64,
    pub rule: Together,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RaceLane {
    /// Compiled code with its tasks; lanes contain no synthetic loads.
    pub codes: Vec<MemberWork>,
    pub cpus: Vec<usize>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum TogetherJob {
    CoRun(CoRunJob),
    Race(RaceJob),
}

impl TogetherJob {
    pub fn distinct_cpus(&self) -> Vec<usize> {
        let mut cpus: Vec<usize> = match self {
            TogetherJob::CoRun(job) => job.members.iter().flat_map(|member| &member.cpus).copied().collect(),
            TogetherJob::Race(job) => job.ways.iter().flatten().flat_map(|lane| &lane.cpus).copied().collect(),
        };
        cpus.sort_unstable();
        cpus.dedup();
        cpus
    }

    /// Returns the time for measuring, for reference computations of `flops` on a slow machine, and `slack`, summed.
    pub fn time_limit(&self, flops: u64, slack: Duration) -> Duration {
        let rule = match self {
            TogetherJob::CoRun(job) => &job.rule,
            TogetherJob::Race(job) => &job.rule,
        };
        let limit = Duration::from_nanos(rule.time_limit_ns.saturating_add(rule.phase_ns));
        limit + crate::reference_time(flops) + slack
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum TogetherReply {
    Members(Vec<MemberReply>),
    Ways(Vec<RoundTimes>),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum MemberReply {
    Shared(Box<Shared>, Option<Check>),
    WrongResult(Check),
    Failed(String),
}

impl MemberWork {
    pub fn built_code(task: &str, artifact: &Artifact) -> MemberWork {
        MemberWork::Code { task: task.to_owned(), object: artifact.object.clone(), packings: artifact.packings.clone() }
    }
}
