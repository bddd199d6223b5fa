//! The runner of whole models: a program's folder in, times and outputs out.
//!
//! As with single operators, each job gets a fresh thread, because TVM's pool belongs to the thread that calls. Inputs
//! come in a file and outputs go to one: they may be larger than what passes between two processes at once.

use crate::tvm::network::Network;
use crate::tvm::pool;
use anyhow::{Context, Result, ensure};
use job::{Measured, NetworkJob, RunReply};
use measure::counters::{CounterRequest, CounterSession};
use measure::{HostClock, affinity, measure};
use std::fs;
use worker::{RunnerProcess, peak_resident_bytes};

/// Does one job.
pub fn answer(process: RunnerProcess, job: &NetworkJob) -> RunReply {
    let answer = std::thread::scope(|scope| {
        let measuring = scope.spawn(move || run(process, job));
        measuring.join().map_err(|_| anyhow::anyhow!("the measuring thread panicked"))
    });
    answer.and_then(|answer| answer).unwrap_or_else(|error| RunReply::Failed(format!("{error:#}")))
}

fn run(process: RunnerProcess, job: &NetworkJob) -> Result<RunReply> {
    let content = executor::folder::read(&job.program)?;
    // Before the pool is made, so that its threads are counted too.
    let with_descendants = job.counters.with_descendants || job.cpus.len() > 1;
    let mut counters = CounterSession::open(&CounterRequest { with_descendants, ..job.counters.clone() });
    let threads = pool::configure(&job.cpus)?;
    ensure!(threads == job.cpus.len(), "asked for {} threads, the pool has {threads}", job.cpus.len());
    affinity::pin(&job.cpus[..1])?;
    let network = Network::load(process, &content)?;
    // The network has its own copy of everything.
    drop(content);
    let inputs = fs::read(&job.inputs).with_context(|| format!("cannot read `{}`", job.inputs.display()))?;
    network.write_inputs(&inputs)?;
    network.poison_outputs()?;
    let calls = network.calls();
    let mut run = |times: u32| calls.run(times);
    let measurement = measure(&mut run, &job.method, &mut HostClock::new(), &mut counters)?;
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
