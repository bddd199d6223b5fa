//! The interface through which code is built and run.
//!
//! A caller submits [`BenchWork`] to a [`Bench`] and receives [`Done`] in an order that the bench chooses. [`Workers`] use
//! this machine, [`Boards`] use remote devices. [`Prebuilt`] and [`Remembering`] wrap another bench and supply known
//! builds. A [`Simulator`] models a core of a board; a [`FabricBoard`] runs on such a core.

mod boards;
mod breeder;
mod builders;
mod fabric;
mod prebuilt;
mod remembering;
mod simulator;
mod workers;

pub use boards::{Access, At, Boards, COLD_ON_ONE_THREAD, Device, Fleet, LinkError, Linker};
pub use breeder::Breeder;
pub use builders::Build;
pub use fabric::{FabricBoard, NoCore};
pub use prebuilt::Prebuilt;
pub use remembering::Remembering;
pub use simulator::Simulator;
pub use workers::{WorkerLimits, Workers, library_program, set_worker_program, worker_program};

use job::{BuildJob, LibraryJob, NetworkJob, RunJob, RunReply, TogetherJob};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};
use worker::Fault;

/// The caller's identifier of a work item, unique among those in progress.
pub type Ticket = u64;

/// Library versions and processor or device names by key.
pub type Versions = BTreeMap<String, String>;

/// A work item; runs have a deadline.
#[derive(Clone, Debug)]
pub enum BenchWork {
    Build(BuildJob),
    Run(RunJob, Duration),
    Library(LibraryJob, Duration),
    Network(NetworkJob, Duration),
    Together(TogetherJob, Duration),
}

/// The result of a work item.
#[derive(Debug)]
pub enum Done {
    Built(Build),
    Ran(Ran),
}

#[derive(Debug)]
pub struct Ran {
    pub began: SystemTime,
    pub reply: Result<RunReply, Fault>,
}

/// A capability that a bench may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ability {
    Build,
    RunOnCpu,
    RunOnGpu,
    RunLibrary,
    RunOnnxRuntime,
    RunOpenVino,
}

/// A place where code is built and run.
pub trait Bench {
    /// Returns the versions for a capability, or why it is missing.
    fn capability(&mut self, of: Ability) -> Result<Versions, Fault>;

    fn submit(&mut self, ticket: Ticket, work: BenchWork);

    /// Waits for the next result. Calls `goes_on` before starting anything. Returns None if `goes_on` returns false or
    /// nothing is in progress.
    fn next(&mut self, goes_on: &mut dyn FnMut() -> bool) -> Option<(Ticket, Done)>;

    /// Abandons all submitted work.
    fn abandon(&mut self);

    /// Builds all jobs and returns the results in order; nothing else may be in progress. Calls `done` after each
    /// build.
    fn build(&mut self, jobs: &[BuildJob], done: &mut dyn FnMut()) -> Vec<Build> {
        let mut done = || {
            done();
            true
        };
        self.build_while(jobs, &mut done)
    }

    /// Builds jobs until `goes_on`, which is called after each build, returns false. The remaining jobs are abandoned,
    /// so there may be fewer results than jobs.
    fn build_while(&mut self, jobs: &[BuildJob], goes_on: &mut dyn FnMut() -> bool) -> Vec<Build> {
        for (ticket, job) in (0..).zip(jobs) {
            self.submit(ticket, BenchWork::Build(job.clone()));
        }
        let mut builds = BTreeMap::new();
        while let Some((ticket, Done::Built(build))) = self.next(&mut || true) {
            builds.insert(ticket, build);
            if !goes_on() {
                self.abandon();
                break;
            }
        }
        builds.into_values().collect()
    }

    /// Runs compiled code; nothing else may be in progress.
    fn run(&mut self, job: &RunJob, deadline: Duration) -> Result<RunReply, Fault> {
        only(self, BenchWork::Run(job.clone(), deadline))
    }

    /// Runs an operator through a library; nothing else may be in progress.
    fn run_library(&mut self, job: &LibraryJob, deadline: Duration) -> Result<RunReply, Fault> {
        only(self, BenchWork::Library(job.clone(), deadline))
    }

    /// Runs a whole model; nothing else may be in progress.
    fn run_network(&mut self, job: &NetworkJob, deadline: Duration) -> Result<RunReply, Fault> {
        only(self, BenchWork::Network(job.clone(), deadline))
    }

    /// Runs several operators concurrently; nothing else may be in progress.
    fn run_together(&mut self, job: TogetherJob, deadline: Duration) -> Ran {
        ran(self, BenchWork::Together(job, deadline))
    }
}

impl<B: Bench + ?Sized> Bench for &mut B {
    fn capability(&mut self, of: Ability) -> Result<Versions, Fault> {
        (**self).capability(of)
    }

    fn submit(&mut self, ticket: Ticket, work: BenchWork) {
        (**self).submit(ticket, work);
    }

    fn next(&mut self, goes_on: &mut dyn FnMut() -> bool) -> Option<(Ticket, Done)> {
        (**self).next(goes_on)
    }

    fn abandon(&mut self) {
        (**self).abandon();
    }
}

fn only<At: Bench + ?Sized>(bench: &mut At, work: BenchWork) -> Result<RunReply, Fault> {
    ran(bench, work).reply
}

fn ran<At: Bench + ?Sized>(bench: &mut At, work: BenchWork) -> Ran {
    bench.submit(0, work);
    match bench.next(&mut || true) {
        Some((_, Done::Ran(ran))) => ran,
        other => unreachable!("one run was in hand, and there is {other:?}"),
    }
}
