//! The runner of whole models. A loaded program is kept while folder, inputs and CPUs are the same. Inputs and outputs
//! are passed in files, because they may exceed the size limit of messages between processes.

use crate::measuring::ready_this_thread;
use crate::perf_map;
use crate::sampling::sample_run;
use crate::tvm::network::{Calls, LoadedNetwork};
use crate::tvm::staged::Staging;
use crate::tvm::{launch, thread_counts, workspace};
use anyhow::{Context, Result};
use job::kept::JobCache;
use job::listing::CodeRequests;
use job::serving::Serving;
use job::{Measured, NetworkJob, Profiled, RunReply};
use measure::clock::wall_clock_start_ns;
use measure::counters::{CounterRequest, CounterSession, Sampler, papi};
use measure::{HostClock, measure_runs};
use profile::data::Track;
use profile::{Profile, session};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::AtomicI64;
use std::sync::mpsc::{Receiver, Sender};
use worker::{RunnerProcess, peak_resident_bytes};

pub struct Runner {
    process: RunnerProcess,
    kept: JobCache<Serving<Result<RunReply>>>,
}

impl Runner {
    pub fn new(process: RunnerProcess) -> Runner {
        Runner { process, kept: JobCache::default() }
    }

    pub fn answer_job(&mut self, job: &NetworkJob) -> RunReply {
        self.run_job(job).unwrap_or_else(|error| RunReply::Failed(format!("{error:#}")))
    }

    fn run_job(&mut self, job: &NetworkJob) -> Result<RunReply> {
        let process = self.process;
        let files: [&Path; 2] = [&executor::folder::description_path(&job.program), &job.inputs];
        if job.profile.is_some() {
            // Its code is loaded in another way, so it is for this job alone.
            return JobCache::default().serve_job(
                job,
                &files,
                move |jobs, answers| serve_program(process, jobs, answers),
                |_| false,
            );
        }
        self.kept.serve_job(job, &files, move |jobs, answers| serve_program(process, jobs, answers), |_| true)
    }
}

fn serve_program(
    process: RunnerProcess,
    jobs: &Receiver<NetworkJob>,
    answers: &Sender<Result<RunReply>>,
) -> Result<()> {
    let Ok(mut job) = jobs.recv() else { return Ok(()) };
    let content = executor::folder::read_program(&job.program)?;
    let watched = watched_calls(&job.counters);
    // Opened before the pool is created, so that the pool's threads are sampled, too.
    let mut sampler = job.code.sampling.map(|sampling| Sampler::open_sampler(&job.cpus, sampling.hertz));
    let mut counters = ready_this_thread(&job.cpus, &job.counters)?;
    // Tasks of pool threads are recorded, too. Code is bound to the hook when it is loaded.
    let hooked = if job.profile.is_some() && job.cpus.len() > 1 { launch::install_hook() } else { None };
    if hooked.is_some() {
        thread_counts::request_counters(&job.counters);
    }
    let has_workspace = job.profile.is_some() && workspace::install_hook();
    let stages = content.program.stages.clone();
    if !stages.is_empty() {
        // The hook runs the tasks of concurrent calls on the threads of a team.
        launch::install_hook().context("TVM's function that launches parallel tasks is missing")?;
    }
    let network = LoadedNetwork::load_content(process, &content, job.placement)?;
    let has_requests = job.code != CodeRequests::default();
    let functions = if has_requests { network.placed_functions(&content.codes) } else { Vec::new() };
    let perf_map = if job.code.has_perf_map {
        let first = |code| content.program.calls.iter().find(|call| call.code == code);
        let scope = |code| first(code).map(|call| call.scope.clone()).unwrap_or_default();
        Some(perf_map::write_symbols(&functions, scope).context("cannot write the symbol file for `perf`")?)
    } else {
        None
    };
    // The loaded network has its own copy of the content.
    drop(content);
    network.write_inputs(&job.read_inputs()?)?;
    let mut calls = network.prepare_calls();
    calls.watched = watched;
    calls.has_threads = hooked.is_some();
    calls.has_workspace = has_workspace;
    if !stages.is_empty() {
        calls.staging = Some(Staging::new(&job.cpus, &stages)?);
    }
    let mut clock = hooked.unwrap_or_default();
    loop {
        network.poison_outputs()?;
        calls.place_stack(job.placement);
        let reply = match &job.profile {
            Some(plan) => {
                let mut profiled = profile_calls(&mut calls, plan, &mut clock, &mut counters)?;
                profiled.perf_map = perf_map.clone();
                match (&mut sampler, job.code.sampling) {
                    (Some(Ok(sampler)), Some(sampling)) => {
                        profiled.samples = Some(sample_run(&mut calls, sampler, sampling, &functions)?);
                    }
                    (Some(Err(refusal)), _) => profiled.profile.refusals.push(session::to_refusal(refusal)),
                    _ => {}
                }
                RunReply::Profiled(Box::new(profiled))
            }
            None => measure_program(&mut calls, &job, &mut counters)?,
        };
        job.write_outputs(network.read_outputs()?)?;
        if answers.send(Ok(reply)).is_err() {
            return Ok(());
        }
        let Ok(next) = jobs.recv() else { return Ok(()) };
        job = next;
    }
}

/// Returns the counter of profiled calls, which PAPI can read as an event, if the job requests that event.
fn watched_calls(request: &CounterRequest) -> Option<&'static AtomicI64> {
    static NUMBER: OnceLock<Option<&'static AtomicI64>> = OnceLock::new();
    const NAME: &str = "calls";
    let is_requested = request.events.iter().any(|event| event.starts_with("papi:sde:::opcollect::"));
    // If the export fails, opening the event reports the reason.
    if is_requested { *NUMBER.get_or_init(|| papi::export_number(NAME).ok()) } else { None }
}

fn measure_program(calls: &mut Calls<'_>, job: &NetworkJob, counters: &mut CounterSession) -> Result<RunReply> {
    let measurement = measure_runs(&mut |times| calls.run_times(times), &job.method, &mut HostClock::new(), counters)?;
    /// Number of samples, enough for a median that single disturbances do not affect.
    const RUNS: usize = 11;
    let stages_ns = calls.stages_ns(RUNS)?;
    let measured = Measured { stages_ns, ..Measured::from_measurement(measurement, None, peak_resident_bytes()) };
    Ok(RunReply::Measured(Box::new(measured)))
}

fn profile_calls(
    calls: &mut Calls<'_>,
    plan: &profile::Plan,
    clock: &mut HostClock,
    counters: &mut CounterSession,
) -> Result<Profiled> {
    let seen = session::profile_model(calls, plan, clock, counters)?;
    let process = u64::try_from(nix::unistd::getpid().as_raw())?;
    let mut tracks = vec![Track {
        name: "caller".to_owned(),
        process,
        id: u64::try_from(nix::unistd::gettid().as_raw())?,
        ..Track::default()
    }];
    for ((number, track), id) in seen.tracks.iter().skip(1).enumerate().zip(launch::thread_ids()) {
        tracks.push(Track { name: format!("thread {number}"), process, id: u64::try_from(id)?, ..track.clone() });
    }
    let mut profile = Profile { tracks, wall_clock_start_ns: wall_clock_start_ns(clock), ..seen };
    if calls.lost_tasks > 0 {
        profile
            .notes
            .push(format!("{} parallel tasks did not fit the recording buffer and are not shown", calls.lost_tasks));
    }
    Ok(Profiled { profile, samples: None, perf_map: None, peak_memory_bytes: peak_resident_bytes() })
}
