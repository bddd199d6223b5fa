//! Where code is built and run: one seam for every place.
//!
//! Whoever wants something built or run gives [`Work`] to a [`Bench`] and hears, in an order that the bench finds best,
//! what was [`Done`]. [`Workers`] are the bench of this machine: its CPUs, its GPU, its libraries. [`Boards`] run elsewhere what
//! was built here. [`Prebuilt`] stands in
//! front of another bench, answers the builds it knows and passes on the rest; [`Remembering`] knows what it built before.
//! A [`Simulator`] computes what a core on a board would, and says how long that would take; a [`FabricBoard`] runs on such a
//! core, where an agent serves one.

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

/// What work is called by the one who gives it; no two works in hand have the same.
pub type Ticket = u64;

/// Library name to version, and the names of processor or device: what a place says of itself.
pub type Versions = BTreeMap<String, String>;

/// Something to be done. What runs has a deadline.
#[derive(Clone, Debug)]
pub enum Work {
    /// Compile.
    Build(BuildJob),
    /// Run built code.
    Run(RunJob, Duration),
    /// Run something through a library.
    Library(LibraryJob, Duration),
    /// Run a whole model.
    Network(NetworkJob, Duration),
    /// Run several things at once.
    Together(TogetherJob, Duration),
}

/// What became of work.
#[derive(Debug)]
pub enum Done {
    /// Of a build.
    Built(Build),
    /// Of a run.
    Ran(Ran),
}

/// What became of a run.
#[derive(Debug)]
pub struct Ran {
    /// When it began.
    pub began: SystemTime,
    /// Its answer.
    pub reply: Result<RunReply, Fault>,
}

/// What a place may be able to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ability {
    /// Compile.
    Build,
    /// Run code for CPUs.
    RunOnCpu,
    /// Run code for a GPU.
    RunOnGpu,
    /// Run a library.
    RunLibrary,
    /// Run whole models through ONNX Runtime.
    RunOnnxRuntime,
    /// Run whole models through OpenVINO.
    RunOpenVino,
}

/// A place that builds and runs.
pub trait Bench {
    /// What the place says of itself where it does such work, or why it cannot.
    fn capability(&mut self, of: Ability) -> Result<Versions, Fault>;

    /// Takes work.
    fn submit(&mut self, ticket: Ticket, work: Work);

    /// Something that is done, after waiting for it. `goes_on` is asked before anything is begun; when it says no, and
    /// when nothing is in hand, there is nothing.
    fn next(&mut self, goes_on: &mut dyn FnMut() -> bool) -> Option<(Ticket, Done)>;

    /// Forgets all work in hand.
    fn abandon(&mut self);

    /// Builds all jobs, where nothing else is in hand; results in the order of the jobs. `done` hears of each as it ends.
    fn build(&mut self, jobs: &[BuildJob], done: &mut dyn FnMut()) -> Vec<Build> {
        let mut done = || {
            done();
            true
        };
        self.build_while(jobs, &mut done)
    }

    /// Builds jobs as `build` does, until `goes_on`, which is called after each build, returns false. The jobs in hand are then
    /// forgotten, and there are fewer results than jobs.
    fn build_while(&mut self, jobs: &[BuildJob], goes_on: &mut dyn FnMut() -> bool) -> Vec<Build> {
        for (ticket, job) in (0..).zip(jobs) {
            self.submit(ticket, Work::Build(job.clone()));
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

    /// Runs built code, where nothing else is in hand.
    fn run(&mut self, job: &RunJob, deadline: Duration) -> Result<RunReply, Fault> {
        only(self, Work::Run(job.clone(), deadline))
    }

    /// Runs something through a library, where nothing else is in hand.
    fn run_library(&mut self, job: &LibraryJob, deadline: Duration) -> Result<RunReply, Fault> {
        only(self, Work::Library(job.clone(), deadline))
    }

    /// Runs a whole model, where nothing else is in hand.
    fn run_network(&mut self, job: &NetworkJob, deadline: Duration) -> Result<RunReply, Fault> {
        only(self, Work::Network(job.clone(), deadline))
    }

    /// Runs several things at once, where nothing else is in hand; when it began, and what came of it.
    fn run_together(&mut self, job: TogetherJob, deadline: Duration) -> Ran {
        ran(self, Work::Together(job, deadline))
    }
}

impl<B: Bench + ?Sized> Bench for &mut B {
    fn capability(&mut self, of: Ability) -> Result<Versions, Fault> {
        (**self).capability(of)
    }

    fn submit(&mut self, ticket: Ticket, work: Work) {
        (**self).submit(ticket, work);
    }

    fn next(&mut self, goes_on: &mut dyn FnMut() -> bool) -> Option<(Ticket, Done)> {
        (**self).next(goes_on)
    }

    fn abandon(&mut self) {
        (**self).abandon();
    }
}

/// One run.
fn only<At: Bench + ?Sized>(bench: &mut At, work: Work) -> Result<RunReply, Fault> {
    ran(bench, work).reply
}

fn ran<At: Bench + ?Sized>(bench: &mut At, work: Work) -> Ran {
    bench.submit(0, work);
    match bench.next(&mut || true) {
        Some((_, Done::Ran(ran))) => ran,
        other => unreachable!("one run was in hand, and there is {other:?}"),
    }
}
