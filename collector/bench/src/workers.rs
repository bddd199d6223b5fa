//! The builders and the runner of a campaign.

use crate::builders::{Build, Builders};
use job::{BuildJob, LibraryJob, RunJob, RunReply};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Duration;
use worker::{Fault, Limits, Recycle, Supervisor, WorkerSpec, wait_any};

/// The variable TVM reads once per process.
const SPIN_VARIABLE: &str = "TVM_THREAD_POOL_SPIN_COUNT";

/// Bounds of the workers.
#[derive(Clone, Debug)]
pub struct WorkerLimits {
    /// Builders at work at once.
    pub builders: usize,
    /// CPUs of the builders, one each; none leaves them where the system puts them.
    pub builder_cpus: Vec<usize>,
    /// Whether builders go on while a candidate runs on other CPUs than theirs.
    pub overlap: bool,
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
    /// An idle thread of a runner's pool asks this often for work before it sleeps.
    pub spin_count: u32,
}

/// The builders and the runner of a campaign.
pub struct Workers {
    builders: Builders,
    runner: Supervisor<RunJob, RunReply>,
    run: WorkerSpec,
    library: Supervisor<LibraryJob, RunReply>,
    overlap: bool,
    builder_cpus: Vec<usize>,
}

/// The worker program beside this one.
pub fn worker_program() -> std::io::Result<PathBuf> {
    Ok(std::env::current_exe()?.with_file_name("opcollect-worker"))
}

/// The program that computes tasks through PyTorch's library, beside the worker program where it was built.
pub fn library_program(worker: &Path) -> PathBuf {
    worker.with_file_name("opcollect-torch")
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
        run.environment.push((SPIN_VARIABLE.into(), limits.spin_count.to_string().into()));
        let mut library = WorkerSpec::new(library_program(program), &[]);
        (library.start_deadline, library.limits) = (run.start_deadline, run.limits.clone());
        library.recycle = run.recycle.clone();
        // Threads that wait for work would be charged to the next operator if they polled.
        library.environment.push(("OMP_WAIT_POLICY".into(), "PASSIVE".into()));
        Workers {
            library: Supervisor::new(library),
            builders: Builders::new(&build, limits.builders, &limits.builder_cpus, limits.build_deadline),
            runner: Supervisor::new(run.clone()),
            run,
            overlap: limits.overlap,
            builder_cpus: limits.builder_cpus.clone(),
        }
    }

    /// What a builder says about itself: versions of TVM and LLVM, name of the CPU.
    pub fn builder_versions(&mut self) -> Result<std::collections::BTreeMap<String, String>, Fault> {
        Ok(self.builders.versions()?.clone())
    }

    /// What the runner says about itself: version of TVM.
    pub fn runner_versions(&mut self) -> Result<std::collections::BTreeMap<String, String>, Fault> {
        Ok(self.runner.ready()?.versions.clone())
    }

    /// What the library's worker says about itself: version of PyTorch.
    pub fn library_versions(&mut self) -> Result<std::collections::BTreeMap<String, String>, Fault> {
        Ok(self.library.ready()?.versions.clone())
    }

    /// From now on jobs run on this machine's GPU.
    pub fn run_on_device(&mut self) {
        // The driver reserves far more memory than it uses, so a limit on it would say nothing.
        self.run.limits.memory_bytes = None;
        self.run.arguments = vec!["run-cuda".into()];
        self.runner = Supervisor::new(self.run.clone());
    }

    /// The queue of what is to be built.
    pub fn builders(&mut self) -> &mut Builders {
        &mut self.builders
    }

    /// Builds all jobs on all builders; results in the order of the jobs. `done` hears of each as it ends.
    pub fn build(&mut self, jobs: &[BuildJob], done: &mut dyn FnMut()) -> Vec<Build> {
        for job in jobs {
            self.builders.request(job.clone());
        }
        let mut heard = || {
            done();
            true
        };
        std::iter::from_fn(|| self.builders.next(&mut heard)).take(jobs.len()).collect()
    }

    /// Whether a builder may be at work while something runs on these CPUs.
    pub fn can_build_beside(&self, run_cpus: &[usize]) -> bool {
        self.overlap && self.builder_cpus.iter().any(|cpu| !run_cpus.contains(cpu))
    }

    /// Runs one job. No builder touches its CPUs meanwhile; others go on if that is allowed.
    ///
    /// A runner that may have been damaged is replaced: what wrote wrong numbers may have written elsewhere too, and a
    /// device stays in error after a failed launch.
    pub fn run(&mut self, job: &RunJob, deadline: Duration) -> Result<RunReply, Fault> {
        let may_build = self.can_build_beside(&job.cpus);
        let reply = run_beside(&mut self.runner, &mut self.builders, may_build.then_some(&job.cpus), job, deadline);
        match &reply {
            Ok(RunReply::WrongResult(_)) => self.recycle_runner(),
            Ok(RunReply::Failed(_)) if job.device.is_some() => self.recycle_runner(),
            Ok(RunReply::Measured(measured)) if measured.is_runner_spent => self.recycle_runner(),
            Ok(RunReply::Measured(_) | RunReply::Failed(_) | RunReply::Unsupported(_)) | Err(_) => {}
        }
        reply
    }

    /// The same for a job of a library.
    pub fn run_library(&mut self, job: &LibraryJob, deadline: Duration) -> Result<RunReply, Fault> {
        let cpus = match job {
            LibraryJob::Task(job) => &job.cpus,
            LibraryJob::Module(job) => &job.cpus,
        };
        let may_build = self.can_build_beside(cpus);
        let reply = run_beside(&mut self.library, &mut self.builders, may_build.then_some(cpus), job, deadline);
        if let Ok(RunReply::WrongResult(_)) = &reply {
            self.library.recycle();
        }
        reply
    }

    /// Ends the runner; the next job starts a fresh one.
    pub fn recycle_runner(&mut self) {
        self.runner.recycle();
    }
}

/// Runs one job while builders work on other CPUs than the job's, or rest where there are none.
fn run_beside<Job: Serialize>(
    runner: &mut Supervisor<Job, RunReply>,
    builders: &mut Builders,
    run_cpus: Option<&Vec<usize>>,
    job: &Job,
    deadline: Duration,
) -> Result<RunReply, Fault> {
    let Some(run_cpus) = run_cpus else {
        builders.leave_all();
        return runner.call(job, deadline);
    };
    builders.leave(run_cpus);
    runner.send(job, deadline)?;
    loop {
        builders.feed_beside(run_cpus);
        let mut waiting = builders.waiting();
        let place = waiting.len();
        waiting.push(runner.waiting());
        match wait_any(&waiting) {
            Some(builder) if builder < place => builders.receive(builder),
            Some(_) | None => return runner.receive(),
        }
    }
}
