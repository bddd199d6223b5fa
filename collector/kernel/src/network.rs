//! The runner of whole models: a program's folder in, times and outputs out.
//!
//! Inputs come in a file and outputs go to one: they may be larger than what passes between two processes at once.

use crate::measuring::on_fresh_thread;
use crate::tvm::network::Network;
use anyhow::{Context, Result};
use job::{Measured, NetworkJob, RunReply};
use measure::counters::CounterSession;
use measure::{HostClock, measure};
use std::fs;
use worker::{RunnerProcess, peak_resident_bytes};

/// Does one job.
pub fn answer(process: RunnerProcess, job: &NetworkJob) -> RunReply {
    let measured = on_fresh_thread(&job.cpus, &job.counters, |counters| run(process, job, counters));
    measured.unwrap_or_else(|error| RunReply::Failed(format!("{error:#}")))
}

fn run(process: RunnerProcess, job: &NetworkJob, counters: &mut CounterSession) -> Result<RunReply> {
    let content = executor::folder::read(&job.program)?;
    let network = Network::load(process, &content)?;
    // The network has its own copy of everything.
    drop(content);
    let inputs = fs::read(&job.inputs).with_context(|| format!("cannot read `{}`", job.inputs.display()))?;
    network.write_inputs(&inputs)?;
    network.poison_outputs()?;
    let calls = network.calls();
    let mut run = |times: u32| calls.run(times);
    let measurement = measure(&mut run, &job.method, &mut HostClock::new(), counters)?;
    fs::write(&job.outputs, network.read_outputs()?)
        .with_context(|| format!("cannot write `{}`", job.outputs.display()))?;
    Ok(RunReply::Measured(Box::new(Measured {
        measurement,
        check: None,
        peak_memory_bytes: peak_resident_bytes(),
        tvm_seconds: Vec::new(),
        is_runner_spent: false,
    })))
}
