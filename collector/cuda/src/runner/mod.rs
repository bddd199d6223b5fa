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

/// Executes jobs and caches the data of the last task.
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

    pub fn answer_job(&mut self, job: &RunJob) -> RunReply {
        self.run_job(job).unwrap_or_else(|error| RunReply::Failed(format!("{error:#}")))
    }

    pub fn answer_network(&mut self, job: &NetworkJob) -> RunReply {
        network::run_program(&self.gpu, job).unwrap_or_else(|error| RunReply::Failed(format!("{error:#}")))
    }

    fn run_job(&mut self, job: &RunJob) -> Result<RunReply> {
        let code = job.device.as_ref().context("this runner is for a GPU, but the code is for a CPU")?;
        let prepared = self.prepared.get_task(&job.task, job.seed, job.is_checked)?;
        device::run_device(&self.gpu, code, job, prepared)
    }
}
