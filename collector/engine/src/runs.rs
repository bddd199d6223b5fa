//! Runs whole models on a bench, with a CPU per thread and a folder for inputs and outputs.

use crate::atomic_folder::TemporaryFolder;
use crate::campaign::Config;
use crate::failure::{Failure, format_chain};
use crate::network;
use crate::observer::Observer;
use crate::{Result, machine};
use bench::Bench;
use job::listing::CodeRequests;
use job::{Engine, Measured, NetworkJob, RunReply};
use measure::counters::CounterRequest;
use measure::{Measurement, Method, Plan};
use models::TensorType;
use nix::libc;
use reference::Tensor;
use std::fs;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use worker::Fault;

/// Sampling time of a whole model; longer than that of an operator.
const SAMPLING_TIME_NS: u64 = 2_000_000_000;

/// Name of a model's program: its folder, and the prefix of its outputs.
pub(crate) const PROGRAM: &str = "program";

/// Returns the method by which a whole model is measured.
pub fn model_method(config: &Config) -> Method {
    Method::Sample(Plan { time_budget_ns: SAMPLING_TIME_NS, ..config.measure.clone() })
}

pub(crate) fn reply_measurement(
    reply: std::result::Result<RunReply, Fault>,
) -> std::result::Result<Box<Measured>, String> {
    match reply {
        Ok(RunReply::Measured(measured)) => Ok(measured),
        Ok(RunReply::WrongResult(check)) => Err(format!("wrong result, differs by {:.3e}", check.max_abs_error)),
        Ok(RunReply::Failed(why) | RunReply::Unsupported(why)) => Err(why),
        Ok(RunReply::Profiled(_)) => Err("the runner returned a profile instead of a time".to_owned()),
        Ok(RunReply::Together(_)) => Err("the runner returned a co-run instead of a time".to_owned()),
        Ok(RunReply::Simulated(_)) => Err("the time was simulated, not measured".to_owned()),
        Err(fault) => Err(fault.to_string()),
    }
}

/// Resources for running whole models: bench, CPUs and a folder for inputs and outputs.
pub struct Runs {
    /// Checked configuration.
    pub config: Config,
    /// CPUs that the threads are pinned to, one thread per CPU.
    pub cpus: Vec<usize>,
    /// Bench that builds and runs the models.
    pub bench: Box<dyn Bench>,
    /// Receives notes and progress.
    pub observer: Rc<dyn Observer>,
    /// Id of the preceding campaign in records, if the runs follow one.
    pub run_id: Option<String>,
    /// Number of the signal that stops the runs, or 0.
    pub signal: Arc<AtomicUsize>,
    folder: TemporaryFolder,
}

/// Id and signal of a campaign, for runs that follow it.
#[derive(Clone, Debug)]
pub struct PrecedingCampaign {
    /// Id of the campaign in records.
    pub run_id: String,
    /// Number of the signal that ended the campaign, or 0.
    pub signal: Arc<AtomicUsize>,
}

impl Runs {
    /// Creates the resources for models that run on `threads` threads, or on all CPUs if that is None.
    pub fn new(config: Config, threads: Option<usize>, observer: Rc<dyn Observer>) -> Result<Runs> {
        let cpus = machine::select_cpus(threads, &machine::allowed_cpus()?, measure::host::OF_THIS_PROCESS)?;
        observer.receive_notes(&machine::shared_core_notes(&[cpus.len()], &cpus));
        let bench = Box::new(machine::create_workers(&config.limits)?);
        Runs::with_bench(config, cpus, bench, observer)
    }

    /// Creates the resources for models that run on a given bench, on CPUs of the bench's machine.
    pub fn with_bench(
        config: Config,
        cpus: Vec<usize>,
        bench: Box<dyn Bench>,
        observer: Rc<dyn Observer>,
    ) -> Result<Runs> {
        let folder = TemporaryFolder::create_in(&std::env::temp_dir(), "opcollect-model-");
        let folder = folder.map_err(Failure::environment)?;
        Ok(Runs { config, cpus, bench, observer, run_id: None, signal: Arc::default(), folder })
    }

    /// Returns the path of a file or folder with this name in the folder for inputs and outputs.
    pub fn join_path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Fails if a signal was received, so that no further work starts.
    pub fn check_signal(&self) -> Result<()> {
        match self.signal.load(Ordering::Relaxed) {
            0 => Ok(()),
            _ => Err(Failure::environment("a signal stopped the run before it started")),
        }
    }

    fn inputs_path(&self) -> PathBuf {
        self.join_path("inputs.bin")
    }

    /// Writes the model inputs that later runs read.
    pub fn write_inputs(&self, inputs: &[Tensor]) -> Result<()> {
        let bytes: Vec<u8> = inputs.iter().flat_map(|tensor| tensor.as_bytes().iter().copied()).collect();
        fs::write(self.inputs_path(), bytes).map_err(Failure::environment)
    }

    /// Creates a job that runs a program. `name` distinguishes its output file from those of other programs.
    pub fn create_job(
        &self,
        engine: Engine,
        program: PathBuf,
        name: &str,
        method: Method,
        count: CounterRequest,
    ) -> NetworkJob {
        NetworkJob {
            engine,
            program,
            inputs: self.inputs_path(),
            outputs: self.join_path(&format!("{name}-outputs.bin")),
            cpus: self.cpus.clone(),
            placement: method.placement(self.config.seed, 0, 0),
            method,
            counters: count,
            profile: None,
            code: CodeRequests::default(),
        }
    }

    /// Runs a job and returns its times. Loading the program counts towards the time limit of the run.
    pub fn run_job(&mut self, job: &NetworkJob) -> Result<Measured> {
        self.check_signal()?;
        Runs::reply_times(self.run_visits(job))
    }

    /// Runs a job: once if it profiles, otherwise all visits (repetitions) of its method, each with another memory
    /// placement and the last in a fresh process. A signal stops the job after the current visit.
    pub fn run_visits(&mut self, job: &NetworkJob) -> std::result::Result<RunReply, Fault> {
        let deadline = job.time_limit(Duration::from_secs_f64(self.config.limits.run_seconds));
        let visits = if job.profile.is_some() { 1 } else { job.method.visit_count() };
        let mut measured: Vec<Measured> = Vec::new();
        for visit in 0..visits {
            let is_last = visit > 0 && visit + 1 == visits;
            let placement = match visits {
                1 => job.placement,
                _ => job.method.placement(self.config.seed, visit, u32::from(is_last)),
            };
            let job = NetworkJob { method: job.method.of_visit(), placement, ..job.clone() };
            match self.bench.run_network(&job, deadline)? {
                RunReply::Measured(one) => measured.push(*one),
                other => return Ok(other),
            }
            if self.check_signal().is_err() {
                break;
            }
        }
        let peak_memory_bytes = measured.iter().map(|one| one.peak_memory_bytes).max().unwrap_or(0);
        let Some(last) = measured.last().cloned() else { unreachable!("a method has at least one visit") };
        let all = measured.into_iter().map(|one| one.measurement).collect();
        let measurement = Measurement::of_visits(all).unwrap_or_else(|| last.measurement.clone());
        Ok(RunReply::Measured(Box::new(Measured { measurement, peak_memory_bytes, ..last })))
    }

    /// Returns the measurement in a runner's reply, or its failure as an error.
    pub fn reply_times(reply: std::result::Result<RunReply, Fault>) -> Result<Measured> {
        match reply {
            Ok(RunReply::Measured(measured)) => Ok(*measured),
            Ok(RunReply::Failed(why) | RunReply::Unsupported(why)) => {
                Err(Failure::environment(format!("the model did not run: {why}")))
            }
            Ok(other) => Err(Failure::environment(format!("the model did not run: {other:?}"))),
            Err(fault @ Fault::TimedOut { .. }) => Err(Failure::environment(format!("the model did not run: {fault}"))
                .with_hint("the time includes loading; raise `run_seconds` in `[limits]` of a `--config`")),
            // The processor stops a program at such a division.
            Err(Fault::Crashed { signal: libc::SIGFPE, .. }) => {
                Err(Failure::usage("the model did not run: it divides an integer by zero with these inputs")
                    .with_hint("give divisors other than zero with `--input`"))
            }
            Err(fault) => Err(Failure::environment(format!("the model did not run: {fault}"))),
        }
    }

    /// Returns the outputs of the last run of a job.
    pub fn read_outputs<'a>(
        &self,
        job: &NetworkJob,
        types: impl Iterator<Item = &'a TensorType> + Clone,
    ) -> Result<Vec<Tensor>> {
        let bytes = fs::read(&job.outputs).map_err(Failure::environment)?;
        network::parse_tensors(types, &bytes).map_err(|error| Failure::environment(format_chain(&error)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Kind;

    #[test]
    fn only_an_integer_divided_by_zero_is_a_mistake_of_the_caller() {
        let failure = |signal| {
            let stderr = String::new();
            Runs::reply_times(Err(Fault::Crashed { signal, stderr })).expect_err("a crash has no times")
        };
        let divided = failure(libc::SIGFPE);
        assert_eq!(divided.message(), "the model did not run: it divides an integer by zero with these inputs");
        assert_eq!((divided.kind(), divided.hint().is_some()), (Kind::Use, true));
        assert_eq!(failure(libc::SIGSEGV).kind(), Kind::Environment);
    }
}
