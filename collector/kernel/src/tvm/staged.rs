//! A program's stages on a team of threads: groups of calls side by side, each on cores of its own.
//!
//! All that a run needs is there before it: who leads what, and where each group says how it went.

use super::call::TvmError;
use super::team::{Crew, Team};
use models::stages::Stage;
use std::sync::Mutex;

/// Why stages cannot be run.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum StagingError {
    #[error("the plan needs {wanted} cores, and {found} are given")]
    Cores { wanted: usize, found: usize },
    #[error("cannot start the threads of a plan: {0}")]
    Threads(#[from] std::io::Error),
}

/// Stages that are ready to be run.
pub struct Staging {
    team: Team,
    stages: Vec<ReadyStage>,
}

struct ReadyStage {
    crews: Vec<Crew>,
    calls: Vec<Vec<usize>>,
    failures: Vec<Mutex<Option<TvmError>>>,
}

impl Staging {
    /// Threads for these stages, one on each of these CPUs; the thread that calls is the first of them.
    pub fn new(cpus: &[usize], stages: &[Stage]) -> Result<Staging, StagingError> {
        let cores = stages.iter().flat_map(|stage| &stage.groups).flat_map(|group| &group.cores);
        let wanted = cores.max().map_or(0, |core| core + 1);
        if wanted > cpus.len() {
            return Err(StagingError::Cores { wanted, found: cpus.len() });
        }
        let mut layers = 1;
        let ready = |stage: &Stage| {
            // Groups that share a core have seats in layers of their own.
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
            }
        };
        let stages: Vec<ReadyStage> = stages.iter().map(ready).collect();
        Ok(Staging { team: Team::new(cpus, layers)?, stages })
    }

    /// Runs all stages once, each call by this function.
    pub(super) fn run<F>(&self, run_one: &F) -> Result<(), TvmError>
    where
        F: Fn(usize) -> Result<(), TvmError> + Sync,
    {
        for stage in &self.stages {
            self.team.side_by_side(&stage.crews, &|group| {
                if let Some(error) = stage.calls[group].iter().find_map(|&call| run_one(call).err()) {
                    *stage.failures[group].lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(error);
                }
            });
            let failure = |slot: &Mutex<Option<TvmError>>| slot.lock().ok()?.take();
            if let Some(error) = stage.failures.iter().find_map(failure) {
                return Err(error);
            }
        }
        Ok(())
    }
}
