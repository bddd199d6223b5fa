//! The interface through which code is built and run: a caller submits [`BenchWork`] to a [`Bench`] and receives
//! [`Done`] in an order that the bench chooses. [`Workers`] use this machine, [`Boards`] and [`FabricBoard`] remote
//! devices, and a [`Simulator`] a model; [`Prebuilt`] and [`Remembering`] supply known builds.

mod boards;
mod breeder;
mod builders;
mod fabric;
mod prebuilt;
mod remembering;
mod simulator;
mod workers;

pub use boards::{Access, Boards, COLD_ON_ONE_THREAD, Device, DeviceLocation, Fleet, LinkError, Linker};
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

/// Identifier chosen by the caller, unique among the items in progress.
pub type Ticket = u64;

pub type Versions = BTreeMap<String, String>;

#[derive(Clone, Debug)]
pub enum BenchWork {
    Build(BuildJob),
    Run(RunJob, Duration),
    Library(LibraryJob, Duration),
    Network(NetworkJob, Duration),
    Together(TogetherJob, Duration),
}

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ability {
    Build,
    RunOnCpu,
    RunOnGpu,
    RunLibrary,
    RunOnnxRuntime,
    RunOpenVino,
}

pub trait Bench {
    /// Returns the versions of the libraries that provide a capability, or the reason why it is missing.
    fn capability(&mut self, of: Ability) -> Result<Versions, Fault>;

    fn submit(&mut self, ticket: Ticket, work: BenchWork);

    /// Waits for the next result. None if nothing is in progress, or if `goes_on`, called before work is started,
    /// returns false.
    fn next_result(&mut self, goes_on: &mut dyn FnMut() -> bool) -> Option<(Ticket, Done)>;

    fn abandon_all(&mut self);

    /// Returns the builds of jobs in their order. Calls `done` after each build. Nothing else may be in progress.
    fn build_jobs(&mut self, jobs: &[BuildJob], done: &mut dyn FnMut()) -> Vec<Build> {
        let mut done = || {
            done();
            true
        };
        self.build_while(jobs, &mut done)
    }

    /// Builds jobs while `goes_on`, called after each build, returns true. Abandoned jobs have no result.
    fn build_while(&mut self, jobs: &[BuildJob], goes_on: &mut dyn FnMut() -> bool) -> Vec<Build> {
        for (ticket, job) in (0..).zip(jobs) {
            self.submit(ticket, BenchWork::Build(job.clone()));
        }
        let mut builds = BTreeMap::new();
        while let Some((ticket, Done::Built(build))) = self.next_result(&mut || true) {
            builds.insert(ticket, build);
            if !goes_on() {
                self.abandon_all();
                break;
            }
        }
        builds.into_values().collect()
    }

    /// Runs a job and waits for the reply. Nothing else may be in progress.
    fn run_job(&mut self, job: &RunJob, deadline: Duration) -> Result<RunReply, Fault> {
        run_for_reply(self, BenchWork::Run(job.clone(), deadline))
    }

    /// Runs a library's operator and waits for the reply. Nothing else may be in progress.
    fn run_library(&mut self, job: &LibraryJob, deadline: Duration) -> Result<RunReply, Fault> {
        run_for_reply(self, BenchWork::Library(job.clone(), deadline))
    }

    /// Runs a whole model and waits for the reply. Nothing else may be in progress.
    fn run_network(&mut self, job: &NetworkJob, deadline: Duration) -> Result<RunReply, Fault> {
        run_for_reply(self, BenchWork::Network(job.clone(), deadline))
    }

    /// Runs a job of concurrent members and waits for its result. Nothing else may be in progress.
    fn run_together(&mut self, job: TogetherJob, deadline: Duration) -> Ran {
        run_single(self, BenchWork::Together(job, deadline))
    }
}

impl<B: Bench + ?Sized> Bench for &mut B {
    fn capability(&mut self, of: Ability) -> Result<Versions, Fault> {
        (**self).capability(of)
    }

    fn submit(&mut self, ticket: Ticket, work: BenchWork) {
        (**self).submit(ticket, work);
    }

    fn next_result(&mut self, goes_on: &mut dyn FnMut() -> bool) -> Option<(Ticket, Done)> {
        (**self).next_result(goes_on)
    }

    fn abandon_all(&mut self) {
        (**self).abandon_all();
    }
}

fn run_for_reply<B: Bench + ?Sized>(bench: &mut B, work: BenchWork) -> Result<RunReply, Fault> {
    run_single(bench, work).reply
}

fn run_single<B: Bench + ?Sized>(bench: &mut B, work: BenchWork) -> Ran {
    bench.submit(0, work);
    match bench.next_result(&mut || true) {
        Some((_, Done::Ran(ran))) => ran,
        other => unreachable!("expected one run in progress, got {other:?}"),
    }
}
