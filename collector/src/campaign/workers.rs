//! The builders and the runner of a campaign.

use crate::job::run::SPIN_VARIABLE;
use crate::job::{Artifact, BuildJob, BuildReply, RunJob, RunReply};
use crate::worker::{Fault, Limits, Recycle, Supervisor, WorkerSpec, wait_any};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Bounds of the workers.
#[derive(Clone, Debug)]
pub struct WorkerLimits {
    /// Builders at work at once.
    pub builders: usize,
    /// A worker may take this long to start.
    pub start_deadline: Duration,
    /// A build may take this long.
    pub build_deadline: Duration,
    /// Memory of a builder.
    pub build_memory_bytes: u64,
    /// Memory of a runner.
    pub run_memory_bytes: u64,
    /// A runner is replaced after this many jobs.
    pub runner_jobs: u32,
}

/// The builders and the runner of a campaign.
pub struct Workers {
    builders: Vec<Supervisor<BuildJob, BuildReply>>,
    runner: Supervisor<RunJob, RunReply>,
    build_deadline: Duration,
}

/// What became of a build.
#[derive(Clone, Debug)]
pub enum Build {
    /// Built code.
    Built(Artifact),
    /// TVM refused.
    Failed(String),
    /// The space has no schedule at this draw.
    Rejected(String),
    /// The builder did not answer.
    Fault(Fault),
}

/// The worker program beside this one.
pub fn worker_program() -> std::io::Result<PathBuf> {
    Ok(std::env::current_exe()?.with_file_name("opcollect-worker"))
}

impl Workers {
    /// Workers of this program; none is started before it is needed.
    pub fn new(program: &Path, limits: &WorkerLimits) -> Workers {
        /// A builder that has grown beyond this is replaced.
        const BUILDER_RSS_BYTES: u64 = 1 << 30;
        let mut build = WorkerSpec::new(program, &["build"]);
        build.start_deadline = limits.start_deadline;
        build.limits = Limits { memory_bytes: Some(limits.build_memory_bytes), ..Limits::default() };
        build.recycle = Recycle { after_jobs: None, above_rss_bytes: Some(BUILDER_RSS_BYTES) };
        let mut run = WorkerSpec::new(program, &["run"]);
        run.start_deadline = limits.start_deadline;
        run.limits = Limits { memory_bytes: Some(limits.run_memory_bytes), ..Limits::default() };
        run.recycle = Recycle { after_jobs: Some(limits.runner_jobs), above_rss_bytes: None };
        // An idle pool thread that polls would be charged to the next operator.
        run.environment.push((SPIN_VARIABLE.into(), "0".into()));
        let builders = (0..limits.builders.max(1)).map(|_| Supervisor::new(build.clone())).collect();
        Workers { builders, runner: Supervisor::new(run), build_deadline: limits.build_deadline }
    }

    /// What a builder says about itself: versions of TVM and LLVM, name of the CPU.
    pub fn builder_versions(&mut self) -> Result<std::collections::BTreeMap<String, String>, Fault> {
        Ok(self.builders[0].ready()?.versions.clone())
    }

    /// What the runner says about itself: version of TVM.
    pub fn runner_versions(&mut self) -> Result<std::collections::BTreeMap<String, String>, Fault> {
        Ok(self.runner.ready()?.versions.clone())
    }

    /// Builds all jobs on all builders; results in the order of the jobs. `done` hears of each as it ends.
    pub fn build(&mut self, jobs: &[BuildJob], done: &mut dyn FnMut()) -> Vec<Build> {
        self.build_while(jobs, &mut || {
            done();
            true
        })
    }

    /// The same as long as `done` says to go on. When it does not, what is being built is given up, and the list ends
    /// before the first job without a result.
    pub fn build_while(&mut self, jobs: &[BuildJob], done: &mut dyn FnMut() -> bool) -> Vec<Build> {
        let mut results: Vec<Option<Build>> = (0..jobs.len()).map(|_| None).collect();
        let mut at_work: Vec<Option<usize>> = vec![None; self.builders.len()];
        let mut next = 0;
        let mut goes_on = true;
        while goes_on {
            for (builder, job) in self.builders.iter_mut().zip(&mut at_work).filter(|(_, job)| job.is_none()) {
                while goes_on && job.is_none() && next < jobs.len() {
                    match builder.send(&jobs[next], self.build_deadline) {
                        Ok(()) => *job = Some(next),
                        Err(fault) => {
                            results[next] = Some(Build::Fault(fault));
                            goes_on &= done();
                        }
                    }
                    next += 1;
                }
            }
            let waiting: Vec<_> = self.builders.iter().map(Supervisor::waiting).collect();
            let Some(ready) = wait_any(&waiting) else { break };
            let job = at_work[ready].take().expect("a waiting builder has a job");
            results[job] = Some(match self.builders[ready].receive() {
                Ok(BuildReply::Built(artifact)) => Build::Built(artifact),
                Ok(BuildReply::Failed(why)) => Build::Failed(why),
                Ok(BuildReply::Rejected(why)) => Build::Rejected(why),
                Err(fault) => Build::Fault(fault),
            });
            goes_on &= done();
        }
        for (builder, _) in self.builders.iter_mut().zip(&at_work).filter(|(_, job)| job.is_some()) {
            builder.recycle();
        }
        results.into_iter().map_while(|result| result).collect()
    }

    /// Runs one job.
    pub fn run(&mut self, job: &RunJob, deadline: Duration) -> Result<RunReply, Fault> {
        self.runner.call(job, deadline)
    }

    /// Ends the runner; the next job starts a fresh one.
    pub fn recycle_runner(&mut self) {
        self.runner.recycle();
    }
}
