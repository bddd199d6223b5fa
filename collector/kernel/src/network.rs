//! The runner of whole models: a program's folder in, times and outputs out.
//!
//! A program is loaded by the thread that measures it, and both are kept while folder, inputs and CPUs are the same: many
//! short rounds of one model load it once. Inputs come in a file and outputs go to one: they may be larger than what passes
//! between two processes at once.

use crate::measuring::ready_this_thread;
use crate::perf_map;
use crate::sampling::sampled;
use crate::tvm::network::{Calls, LoadedNetwork};
use crate::tvm::staged::Staging;
use crate::tvm::{launch, thread_counts, workspace};
use anyhow::{Context, Result};
use job::kept::JobCache;
use job::listing::CodeRequests;
use job::serving::Serving;
use job::{Measured, NetworkJob, Profiled, RunReply};
use measure::counters::{CounterRequest, CounterSession, Sampler, papi};
use measure::{HostClock, measure};
use profile::data::Track;
use profile::{Profile, session};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::AtomicI64;
use std::sync::mpsc::{Receiver, Sender};
use worker::{RunnerProcess, peak_resident_bytes};

/// Answers jobs; keeps what the next job of the same program can use.
pub struct Runner {
    process: RunnerProcess,
    kept: JobCache<Serving<Result<RunReply>>>,
}

impl Runner {
    /// A runner for this machine's CPUs.
    pub fn new(process: RunnerProcess) -> Runner {
        Runner { process, kept: JobCache::default() }
    }

    /// Does one job.
    pub fn answer(&mut self, job: &NetworkJob) -> RunReply {
        self.run(job).unwrap_or_else(|error| RunReply::Failed(format!("{error:#}")))
    }

    fn run(&mut self, job: &NetworkJob) -> Result<RunReply> {
        let process = self.process;
        let files: [&Path; 2] = [&executor::folder::description(&job.program), &job.inputs];
        if job.profile.is_some() {
            // Its code is loaded in another way, so it is for this job alone.
            return JobCache::default().ask(job, &files, move |jobs, answers| serve(process, jobs, answers), |_| false);
        }
        self.kept.ask(job, &files, move |jobs, answers| serve(process, jobs, answers), |_| true)
    }
}

/// Loads what the first job names, and measures that for it and for all that follow.
fn serve(process: RunnerProcess, jobs: &Receiver<NetworkJob>, answers: &Sender<Result<RunReply>>) -> Result<()> {
    let Ok(mut job) = jobs.recv() else { return Ok(()) };
    let content = executor::folder::read(&job.program)?;
    let watched = watched_calls(&job.counters);
    // Before the pool is made, so that its threads are looked at, too.
    let mut sampler = job.code.sampling.map(|sampling| Sampler::open(&job.cpus, sampling.hertz));
    let mut counters = ready_this_thread(&job.cpus, &job.counters)?;
    // Where there is a pool, what its threads do is seen, too. Code finds the hook when it is loaded.
    let hooked = if job.profile.is_some() && job.cpus.len() > 1 { launch::hook() } else { None };
    if hooked.is_some() {
        thread_counts::ask(&job.counters);
    }
    let has_workspace = job.profile.is_some() && workspace::hook();
    let stages = content.program.stages.clone();
    if !stages.is_empty() {
        // Calls side by side start their tasks on threads of a team.
        launch::hook().context("TVM's function that starts tasks is not to be found")?;
    }
    let network = LoadedNetwork::load(process, &content, job.placement)?;
    let is_told = job.code != CodeRequests::default();
    let functions = if is_told { network.functions(&content.codes) } else { Vec::new() };
    let perf_map = if job.code.has_perf_map {
        let first = |code| content.program.calls.iter().find(|call| call.code == code);
        let scope = |code| first(code).map(|call| call.scope.clone()).unwrap_or_default();
        Some(perf_map::write(&functions, scope).context("cannot write a map of names for `perf`")?)
    } else {
        None
    };
    // The network has its own copy of everything.
    drop(content);
    network.write_inputs(&job.read_inputs()?)?;
    let mut calls = network.calls();
    calls.watched = watched;
    calls.has_threads = hooked.is_some();
    calls.has_workspace = has_workspace;
    if !stages.is_empty() {
        calls.staging = Some(Staging::new(&job.cpus, &stages)?);
    }
    let mut clock = hooked.unwrap_or_default();
    loop {
        network.poison_outputs()?;
        calls.place(job.placement);
        let reply = match &job.profile {
            Some(plan) => {
                let mut profiled = profiled(&mut calls, plan, &mut clock, &mut counters)?;
                profiled.perf_map = perf_map.clone();
                match (&mut sampler, job.code.sampling) {
                    (Some(Ok(sampler)), Some(sampling)) => {
                        profiled.samples = Some(sampled(&mut calls, sampler, sampling, &functions)?);
                    }
                    (Some(Err(refusal)), _) => profiled.profile.refusals.push(session::refusal(refusal)),
                    _ => {}
                }
                RunReply::Profiled(Box::new(profiled))
            }
            None => measured(&mut calls, &job, &mut counters)?,
        };
        job.write_outputs(network.read_outputs()?)?;
        if answers.send(Ok(reply)).is_err() {
            return Ok(());
        }
        let Ok(next) = jobs.recv() else { return Ok(()) };
        job = next;
    }
}

/// Number of profiled calls, as a counter that PAPI can read.
fn watched_calls(request: &CounterRequest) -> Option<&'static AtomicI64> {
    static NUMBER: OnceLock<Option<&'static AtomicI64>> = OnceLock::new();
    const NAME: &str = "calls";
    let is_asked = request.events.iter().any(|event| event.starts_with("papi:sde:::opcollect::"));
    // What PAPI does not take is refused when it is opened, with the reason.
    if is_asked { *NUMBER.get_or_init(|| papi::export(NAME).ok()) } else { None }
}

/// Times of the whole.
fn measured(calls: &mut Calls<'_>, job: &NetworkJob, counters: &mut CounterSession) -> Result<RunReply> {
    let measurement = measure(&mut |times| calls.run(times), &job.method, &mut HostClock::new(), counters)?;
    /// Enough for a middle one that nothing disturbed.
    const LOOKS: usize = 11;
    let stages_ns = calls.stages_ns(LOOKS)?;
    let measured = Measured { stages_ns, ..Measured::new(measurement, None, peak_resident_bytes()) };
    Ok(RunReply::Measured(Box::new(measured)))
}

/// Times of the calls; the requester knows their names.
fn profiled(
    calls: &mut Calls<'_>,
    plan: &profile::Plan,
    clock: &mut HostClock,
    counters: &mut CounterSession,
) -> Result<Profiled> {
    let seen = session::watch(calls, plan, clock, counters)?;
    let process = u64::try_from(nix::unistd::getpid().as_raw())?;
    let mut tracks = vec![Track {
        name: "caller".to_owned(),
        process,
        id: u64::try_from(nix::unistd::gettid().as_raw())?,
        ..Track::default()
    }];
    for ((number, track), id) in seen.tracks.iter().skip(1).enumerate().zip(launch::threads()) {
        tracks.push(Track { name: format!("thread {number}"), process, id: u64::try_from(id)?, ..track.clone() });
    }
    let mut profile = Profile { tracks, ..seen };
    if calls.lost_tasks > 0 {
        profile.notes.push(format!("{} tasks of threads had no place and are not shown", calls.lost_tasks));
    }
    Ok(Profiled { profile, samples: None, perf_map: None, peak_memory_bytes: peak_resident_bytes() })
}
