//! Executes tasks and times them as compiled code is timed. The result of the last run is compared with the reference
//! computation. Each job runs on a new thread that is pinned to the job's CPUs, because the threads of the library's
//! pool belong to the calling thread and inherit its affinity. Memory that the library allocates and frees in each run
//! is part of the time.

use crate::inputs;
use crate::module;
use crate::network::Networks;
use crate::operators;
use crate::refusal::{self, Refusal};
use crate::timing::LibraryTiming;
use anyhow::Result;
use job::prepared::{PreparedTask, PreparedTasks};
use job::{LibraryJob, Measured, RunJob, RunReply};
use reference::Rounding;
use tch::Tensor;
use worker::peak_resident_bytes;

#[derive(Default)]
pub struct Library {
    prepared: PreparedTasks,
    networks: Networks,
}

impl Library {
    pub fn answer_job(&mut self, job: &LibraryJob) -> RunReply {
        let reply = match job {
            LibraryJob::Task(job) => self.run_task(job),
            LibraryJob::Module(job) => run_on_new_thread(|| module::run_module(job)),
            LibraryJob::Network(job) => self.networks.answer_job(job),
        };
        reply.unwrap_or_else(|error| RunReply::Failed(format!("{error:#}")))
    }

    fn run_task(&mut self, job: &RunJob) -> Result<RunReply> {
        let prepared = self.prepared.get_task(&job.task, job.seed, job.is_checked)?;
        run_on_new_thread(|| task_on_this_thread(job, prepared))
    }
}

fn run_on_new_thread(run: impl FnOnce() -> Result<RunReply> + Send) -> Result<RunReply> {
    std::thread::scope(|scope| scope.spawn(run).join().map_err(|_| anyhow::anyhow!("the measuring thread panicked"))?)
}

fn task_on_this_thread(job: &RunJob, prepared: &PreparedTask) -> Result<RunReply> {
    let _without_gradients = tch::no_grad_guard();
    let mut timing = LibraryTiming::open_session(&job.cpus, &job.counters)?;
    let tensors = prepared.inputs.iter().map(inputs::to_torch).collect::<refusal::Result<Vec<Tensor>>>();
    let measured = tensors.and_then(|tensors| {
        let constants = operators::extra_tensors(&prepared.task)?;
        timing.time_runs(&job.method, || operators::run_task(&prepared.task, &tensors, &constants))
    });
    let (measurement, result) = match measured {
        Ok(measured) => measured,
        Err(Refusal::Unsupported(why)) => return Ok(RunReply::Unsupported(why)),
        Err(Refusal::Failed(why)) => return Ok(RunReply::Failed(why)),
    };
    let bytes = inputs::checked_bytes(&result, prepared.output_type())
        .map_err(|refusal| anyhow::anyhow!(refusal.to_string()))?;
    let check = if job.is_checked { Some(prepared.check_result(bytes, Rounding::None)?) } else { None };
    if let Some(check) = check.filter(|check| !check.is_right) {
        return Ok(RunReply::WrongResult(check));
    }
    Ok(RunReply::Measured(Box::new(Measured::from_measurement(measurement, check, peak_resident_bytes()))))
}
