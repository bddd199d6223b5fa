//! Runs the stages of a program on a team of threads: groups of calls run concurrently, each on its own cores.

use super::call::TvmError;
use super::team::{Crew, Team};
use models::stages::Stage;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum StagingError {
    #[error("the plan needs {wanted} cores, but the run has {found}")]
    Cores { wanted: usize, found: usize },
    #[error("cannot start the threads of a plan: {0}")]
    Threads(#[from] std::io::Error),
}

pub struct Staging {
    team: Team,
    stages: Vec<ReadyStage>,
}

struct ReadyStage {
    crews: Vec<Crew>,
    calls: Vec<Vec<usize>>,
    failures: Vec<Mutex<Option<TvmError>>>,
    /// Start and end of each group in the last profiled run, in nanoseconds.
    measured_ns: Vec<(AtomicU64, AtomicU64)>,
}

impl Staging {
    /// Starts the threads of the stages: one per CPU, more if groups share cores. The calling thread is the first.
    pub fn new(cpus: &[usize], stages: &[Stage]) -> Result<Staging, StagingError> {
        let cores = stages.iter().flat_map(|stage| &stage.groups).flat_map(|group| &group.cores);
        let wanted = cores.max().map_or(0, |core| core + 1);
        if wanted > cpus.len() {
            return Err(StagingError::Cores { wanted, found: cpus.len() });
        }
        let mut layers = 1;
        let ready = |stage: &Stage| {
            // Groups that share a core get seats in different layers.
            let mut taken = vec![0; cpus.len()];
            let crew = |group: &models::stages::Group| {
                let layer = group.cores.iter().map(|&core| taken[core]).max().unwrap_or(0);
                group.cores.iter().for_each(|&core| taken[core] = layer + 1);
                layers = layers.max(layer + 1);
                Crew::new(group.cores.iter().map(|core| layer * cpus.len() + core).collect())
            };
            ReadyStage {
                crews: stage.groups.iter().map(crew).collect(),
                calls: stage.groups.iter().map(|group| group.calls.clone()).collect(),
                failures: stage.groups.iter().map(|_| Mutex::new(None)).collect(),
                measured_ns: stage.groups.iter().map(|_| <(AtomicU64, AtomicU64)>::default()).collect(),
            }
        };
        let stages: Vec<ReadyStage> = stages.iter().map(ready).collect();
        Ok(Staging { team: Team::new(cpus, layers)?, stages })
    }

    /// Runs all stages once, `run_one` for each call; records times of groups relative to `beginning`, if given.
    pub(super) fn run_stages<F>(&self, run_one: &F, beginning: Option<Instant>) -> Result<(), TvmError>
    where
        F: Fn(usize) -> Result<(), TvmError> + Sync,
    {
        let now_ns = |since: Instant| u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
        for stage in &self.stages {
            self.team.side_by_side(&stage.crews, &|group| {
                if let Some(since) = beginning {
                    stage.measured_ns[group].0.store(now_ns(since), Ordering::Relaxed);
                }
                if let Some(error) = stage.calls[group].iter().find_map(|&call| run_one(call).err()) {
                    *stage.failures[group].lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(error);
                }
                if let Some(since) = beginning {
                    stage.measured_ns[group].1.store(now_ns(since), Ordering::Relaxed);
                }
            });
            let failure = |slot: &Mutex<Option<TvmError>>| slot.lock().ok()?.take();
            if let Some(error) = stage.failures.iter().find_map(failure) {
                return Err(error);
            }
        }
        Ok(())
    }

    pub(super) fn measured_ns(&self) -> Vec<Vec<(f64, f64)>> {
        let of = |(begin, end): &(AtomicU64, AtomicU64)| {
            (begin.load(Ordering::Relaxed) as f64, end.load(Ordering::Relaxed) as f64)
        };
        self.stages.iter().map(|stage| stage.measured_ns.iter().map(of).collect()).collect()
    }
}
