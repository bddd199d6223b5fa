//! The runner of whole models through a runtime: a folder with a model's file in, times and outputs out.
//!
//! It does what the runner of our own programs does. A session is kept while folder, inputs and CPUs are the same, so that
//! a model is loaded once for many short rounds. That no thread which computes may run elsewhere than on the job's CPUs is
//! looked at after each measurement, whatever the library was asked for.

use crate::MODEL;
use crate::error::RuntimeError;
use crate::runtime::{Runtime, Session};
use anyhow::Result;
use job::kept::{Kept, stamps};
use job::{Measured, NetworkJob, RunReply};
use measure::affinity::{AffinityError, ThreadMask};
use measure::counters::{Backend, CounterRequest, CounterSession};
use measure::{HostClock, affinity, measure};
use worker::{RunnerProcess, peak_resident_bytes};

/// Answers jobs; keeps what the next job of the same model can use.
pub struct Runner<R: Runtime> {
    process: RunnerProcess,
    runtime: R,
    kept: Kept<R::Session>,
    /// Threads that the library made as it was opened, before a job said its CPUs: they wait, and compute nothing.
    waiting: Vec<i32>,
}

impl<R: Runtime> Runner<R> {
    /// A runner with the library opened.
    pub fn open(process: RunnerProcess) -> Result<Runner<R>, RuntimeError> {
        let runtime = R::open()?;
        // Where the system does not tell, the check after a measurement says so.
        let threads = affinity::threads().unwrap_or_default();
        let own = i32::try_from(std::process::id()).unwrap_or_default();
        let waiting = threads.into_iter().map(|thread| thread.tid).filter(|tid| *tid != own).collect();
        Ok(Runner { process, runtime, kept: Kept::default(), waiting })
    }

    /// The library's version.
    pub fn version(&self) -> String {
        self.runtime.version()
    }

    /// Does one job.
    pub fn answer(&mut self, job: &NetworkJob) -> RunReply {
        self.run(job).unwrap_or_else(|error| RunReply::Failed(format!("{error:#}")))
    }

    fn run(&mut self, job: &NetworkJob) -> Result<RunReply> {
        let model = job.program.join(MODEL);
        let stamps = stamps(&[&model, &job.inputs], &job.cpus);
        let is_counted = job.counters.backend != Backend::None;
        // Before a session makes its threads, so that they are counted too.
        let with_descendants = job.counters.with_descendants || job.cpus.len() > 1;
        let mut counters = CounterSession::open(&CounterRequest { with_descendants, ..job.counters.clone() });
        let mut session = match self.kept.take(&stamps).filter(|_| !is_counted) {
            Some(session) => session,
            None => {
                // What the library finds it may use, and what its threads inherit.
                affinity::pin(&job.cpus)?;
                let mut session = self.runtime.load(self.process, &model, &job.cpus)?;
                session.ports().write_inputs(&job.read_inputs()?)?;
                session
            }
        };
        affinity::pin(R::caller_cpus(&job.cpus))?;
        session.ports().poison_outputs();
        let measurement = measure(&mut |times| session.run(times), &job.method, &mut HostClock::new(), &mut counters)?;
        self.check_threads(&job.cpus)?;
        job.write_outputs(session.ports().read_outputs())?;
        if !is_counted {
            self.kept.put(stamps, session);
        }
        Ok(RunReply::Measured(Box::new(Measured::new(measurement, None, peak_resident_bytes()))))
    }

    /// Refuses threads that compute and may run on other CPUs than these.
    fn check_threads(&self, cpus: &[usize]) -> Result<(), AffinityError> {
        let threads = affinity::threads()?;
        let is_outside = |thread: &ThreadMask| thread.cpus.iter().any(|cpu| !cpus.contains(cpu));
        match threads.into_iter().find(|thread| !self.waiting.contains(&thread.tid) && is_outside(thread)) {
            Some(thread) => Err(AffinityError::Outside { wanted: cpus.to_vec(), thread }),
            None => Ok(()),
        }
    }
}
