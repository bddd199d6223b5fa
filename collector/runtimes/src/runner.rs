//! Runner of whole models in another runtime, like the runner of this project's own programs. A session is kept while
//! folder, inputs and CPUs stay the same. After each measurement the affinity of all threads is verified.

use crate::MODEL;
use crate::error::RuntimeError;
use crate::runtime::{Runtime, Session};
use anyhow::Result;
use job::kept::{JobCache, cache_key};
use job::{Measured, NetworkJob, RunReply};
use measure::counters::{Backend, CounterRequest, CounterSession};
use measure::{HostClock, affinity, measure_runs};
use worker::{RunnerProcess, peak_resident_bytes};

pub struct Runner<R: Runtime> {
    process: RunnerProcess,
    runtime: R,
    kept: JobCache<R::Session>,
}

impl<R: Runtime> Runner<R> {
    pub fn open(process: RunnerProcess) -> Result<Runner<R>, RuntimeError> {
        Ok(Runner { process, runtime: R::open()?, kept: JobCache::default() })
    }

    pub fn version(&self) -> String {
        self.runtime.version()
    }

    pub fn process_job(&mut self, job: &NetworkJob) -> RunReply {
        self.run_job(job).unwrap_or_else(|error| RunReply::Failed(format!("{error:#}")))
    }

    fn run_job(&mut self, job: &NetworkJob) -> Result<RunReply> {
        let model = job.program.join(MODEL);
        let key = cache_key(&[&model, &job.inputs], &job.cpus, job.placement);
        let is_counted = job.counters.backend != Backend::None;
        // Opened before the session creates its threads, so that their counts are included.
        let with_descendants = job.counters.with_descendants || job.cpus.len() > 1;
        let mut counters = CounterSession::open_counters(&CounterRequest { with_descendants, ..job.counters.clone() });
        let mut session = match self.kept.take_matching(&key).filter(|_| !is_counted) {
            Some(session) => session,
            None => {
                // Determines the CPUs that the library detects and new threads inherit. Also applies to threads
                // created when the library was loaded.
                affinity::pin_all(&job.cpus)?;
                let mut session = self.runtime.load(self.process, &model, &job.cpus)?;
                session.ports().write_inputs(&job.read_inputs()?)?;
                session
            }
        };
        affinity::pin_thread(R::caller_cpus(&job.cpus))?;
        session.ports().poison_outputs();
        let measurement =
            measure_runs(&mut |times| session.run(times), &job.method, &mut HostClock::new(), &mut counters)?;
        affinity::verify_pinning(&job.cpus)?;
        job.write_outputs(session.ports().read_outputs())?;
        if !is_counted {
            self.kept.store_value(key, session);
        }
        Ok(RunReply::Measured(Box::new(Measured::from_measurement(measurement, None, peak_resident_bytes()))))
    }
}
