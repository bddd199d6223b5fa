//! The runner for GPUs, which needs only the driver and no TVM.

mod counter_report;
mod device;
mod gpu;
mod launch_costs;
mod network;
mod operators;
mod order;
mod profiling;
mod watch;

pub use gpu::Gpu;

use crate::driver::DriverError;
use anyhow::{Context, Result};
use job::prepared::PreparedTasks;
use job::{NetworkJob, RunJob, RunReply};
use worker::RunnerProcess;

/// Executes run jobs, and keeps the data that the next job of the same task can reuse.
pub struct Runner {
    gpu: Gpu,
    prepared: PreparedTasks,
}

impl Runner {
    pub fn open(process: RunnerProcess) -> Result<Runner, DriverError> {
        Ok(Runner { gpu: Gpu::open(process)?, prepared: PreparedTasks::default() })
    }

    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// Runs the job of a task.
    pub fn answer(&mut self, job: &RunJob) -> RunReply {
        self.run(job).unwrap_or_else(|error| RunReply::Failed(format!("{error:#}")))
    }

    /// Runs the job of a whole model.
    pub fn answer_network(&mut self, job: &NetworkJob) -> RunReply {
        network::run(&self.gpu, job).unwrap_or_else(|error| RunReply::Failed(format!("{error:#}")))
    }

    fn run(&mut self, job: &RunJob) -> Result<RunReply> {
        let code = job.device.as_ref().context("this runner has a GPU, and the code is for a CPU")?;
        let prepared = self.prepared.get(&job.task, job.seed, job.is_checked)?;
        device::run(&self.gpu, code, job, prepared)
    }
}
