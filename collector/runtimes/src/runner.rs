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
use measure::counters::{Backend, CounterRequest, CounterSession};
use measure::{HostClock, affinity, measure};
use worker::{RunnerProcess, peak_resident_bytes};

/// Answers jobs; keeps what the next job of the same model can use.
pub struct Runner<R: Runtime> {
    process: RunnerProcess,
    runtime: R,
    kept: Kept<R::Session>,
}

impl<R: Runtime> Runner<R> {
    /// A runner with the library opened.
    pub fn open(process: RunnerProcess) -> Result<Runner<R>, RuntimeError> {
        Ok(Runner { process, runtime: R::open()?, kept: Kept::default() })
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
        let stamps = stamps(&[&model, &job.inputs], &job.cpus, job.placement);
        let is_counted = job.counters.backend != Backend::None;
        // Before a session makes its threads, so that they are counted too.
        let with_descendants = job.counters.with_descendants || job.cpus.len() > 1;
        let mut counters = CounterSession::open(&CounterRequest { with_descendants, ..job.counters.clone() });
        let mut session = match self.kept.take(&stamps).filter(|_| !is_counted) {
            Some(session) => session,
            None => {
                // What the library finds it may use, and what its threads inherit, from those that it made as it was
                // opened, too.
                affinity::pin_all(&job.cpus)?;
                let mut session = self.runtime.load(self.process, &model, &job.cpus)?;
                session.ports().write_inputs(&job.read_inputs()?)?;
                session
            }
        };
        affinity::pin(R::caller_cpus(&job.cpus))?;
        session.ports().poison_outputs();
        let measurement = measure(&mut |times| session.run(times), &job.method, &mut HostClock::new(), &mut counters)?;
        affinity::verify(&job.cpus)?;
        job.write_outputs(session.ports().read_outputs())?;
        if !is_counted {
            self.kept.put(stamps, session);
        }
        Ok(RunReply::Measured(Box::new(Measured::new(measurement, None, peak_resident_bytes()))))
    }
}
