//! Runs members concurrently: generated code and synthetic loads, each in a thread with its own pool and CPUs. Results
//! are compared after all members have run; a wrong result invalidates the times.

use crate::measuring::ready_this_thread;
use crate::runner::place_buffers;
use crate::tvm::kernel::{Kernel, KernelBuffer};
use anyhow::{Context, Result, ensure};
use job::prepared::PreparedTasks;
use job::{CoRunJob, Member, MemberReply, MemberWork, RaceJob, RaceLane, RunReply, TogetherJob, TogetherReply};
use measure::counters::{Backend, CounterRequest};
use measure::synthetic::Load;
use measure::{CoRunRounds, HostClock, MemberError, Placement, Race, RoundTimes, Shared};
use reference::Rounding;
use worker::RunnerProcess;

pub struct Runner {
    process: RunnerProcess,
    prepared: PreparedTasks,
}

enum Ready<'a> {
    Code { object: &'a [u8], buffers: Vec<KernelBuffer> },
    Synthetic(Load),
}

impl Runner {
    pub fn new(process: RunnerProcess) -> Runner {
        Runner { process, prepared: PreparedTasks::default() }
    }

    pub fn answer_job(&mut self, job: &TogetherJob) -> RunReply {
        let reply = match job {
            TogetherJob::CoRun(job) => self.run_members(job),
            TogetherJob::Race(job) => self.race_alternatives(job),
        };
        reply.unwrap_or_else(|error| RunReply::Failed(format!("{error:#}")))
    }

    fn run_members(&mut self, job: &CoRunJob) -> Result<RunReply> {
        ensure!(!job.members.is_empty(), "there are no operators to run");
        let ready = job
            .members
            .iter()
            .map(|member| self.prepare_member(job.seed, &member.what, job.cache_bytes))
            .collect::<Result<Vec<_>>>()?;
        let (process, rounds) = (self.process, CoRunRounds::new(job.members.len(), &job.rule, job.share_cores));
        let ended: Vec<(Ready<'_>, Result<Shared, String>)> = std::thread::scope(|scope| {
            let members: Vec<_> = ready
                .into_iter()
                .enumerate()
                .map(|(place, mut ready)| {
                    let (rounds, cpus) = (&rounds, &job.members[place].cpus);
                    scope.spawn(move || {
                        let shared = run_member(process, job, (place, cpus), &mut ready, rounds);
                        (ready, shared)
                    })
                })
                .collect();
            let panicked = |_| anyhow::anyhow!("the thread of a member panicked");
            members.into_iter().map(|member| member.join().map_err(panicked)).collect::<Result<Vec<_>>>()
        })?;
        let replies = job
            .members
            .iter()
            .zip(ended)
            .map(|(member, (ready, shared))| self.member_reply(job, member, ready, shared));
        Ok(RunReply::Together(TogetherReply::Members(replies.collect::<Result<_>>()?)))
    }

    fn prepare_member<'a>(&mut self, seed: u64, what: &'a MemberWork, cache_bytes: u64) -> Result<Ready<'a>> {
        match what {
            MemberWork::Synthetic(what) => Ok(Ready::Synthetic(Load::new(*what, cache_bytes))),
            MemberWork::Code { task, object, packings } => {
                let prepared = self.prepared.get_task(task, seed, true)?;
                let buffers = place_buffers(prepared, packings, Placement::default())?;
                buffers.last().context("the artifact has no output")?.poison()?;
                Ok(Ready::Code { object, buffers })
            }
        }
    }

    fn race_alternatives(&mut self, job: &RaceJob) -> Result<RunReply> {
        ensure!(job.ways.iter().all(|lanes| !lanes.is_empty()), "a variant has no operators to run");
        let mut ready: Vec<(usize, usize, Vec<Ready<'_>>)> = Vec::new();
        for (way, lanes) in job.ways.iter().enumerate() {
            for (place, lane) in lanes.iter().enumerate() {
                let codes =
                    lane.codes.iter().map(|what| self.prepare_member(job.seed, what, 0)).collect::<Result<Vec<_>>>()?;
                ready.push((way, place, codes));
            }
        }
        let lanes: Vec<usize> = job.ways.iter().map(Vec::len).collect();
        let (process, race) = (self.process, Race::new(&lanes));
        let ended = std::thread::scope(|scope| {
            let lanes = ready.into_iter().map(|(way, place, codes)| {
                let race = &race;
                let lane = &job.ways[way][place];
                let running = scope.spawn(move || {
                    let course = run_lane(process, lane, &codes, |run| race.run_lane((way, place), run, &job.rule));
                    // Results are read after all lanes have ended.
                    (course, codes)
                });
                (way, place, running)
            });
            let running: Vec<_> = lanes.collect();
            let joined = running.into_iter().map(|(way, place, lane)| {
                let (course, codes) = lane.join().map_err(|_| anyhow::anyhow!("the thread of a lane panicked"))?;
                Ok((
                    way,
                    place,
                    course.map_err(|why| anyhow::anyhow!(why))?,
                    codes.into_iter().map(Ready::into_buffers).collect::<Vec<_>>(),
                ))
            });
            joined.collect::<Result<Vec<_>>>()
        })?;
        let mut courses = Vec::with_capacity(job.ways.len());
        for (way, place, course, codes) in ended {
            for (what, buffers) in job.ways[way][place].codes.iter().zip(codes) {
                let (MemberWork::Code { task, .. }, Some(output)) = (what, buffers.last()) else { continue };
                let check =
                    self.prepared.get_task(task, job.seed, true)?.check_result(output.read()?, Rounding::None)?;
                ensure!(
                    check.is_right,
                    "the result of variant {way} differs from the reference by up to {:.3e}",
                    check.max_abs_error
                );
            }
            if place == 0 {
                courses.push(course);
            }
        }
        Ok(RunReply::Together(TogetherReply::Ways(courses)))
    }

    fn member_reply(
        &mut self,
        job: &CoRunJob,
        member: &Member,
        ready: Ready<'_>,
        shared: Result<Shared, String>,
    ) -> Result<MemberReply> {
        let shared = match shared {
            Ok(shared) => Box::new(shared),
            Err(why) => return Ok(MemberReply::Failed(why)),
        };
        let (MemberWork::Code { task, .. }, Ready::Code { buffers, .. }) = (&member.what, ready) else {
            return Ok(MemberReply::Shared(shared, None));
        };
        let output = buffers.last().context("the artifact has no output")?.read()?;
        let check = self.prepared.get_task(task, job.seed, true)?.check_result(output, Rounding::None)?;
        Ok(if check.is_right { MemberReply::Shared(shared, Some(check)) } else { MemberReply::WrongResult(check) })
    }
}

impl Ready<'_> {
    fn into_buffers(self) -> Vec<KernelBuffer> {
        match self {
            Ready::Code { buffers, .. } => buffers,
            Ready::Synthetic(_) => Vec::new(),
        }
    }
}

/// Runs one lane (thread) of a race. A lane whose setup fails still joins the common barriers, where other lanes wait.
fn run_lane(
    process: RunnerProcess,
    lane: &RaceLane,
    codes: &[Ready<'_>],
    measure: impl FnOnce(&mut dyn FnMut() -> Result<(), String>) -> Result<RoundTimes, String>,
) -> Result<RoundTimes, String> {
    let nothing = CounterRequest { backend: Backend::None, ..CounterRequest::default() };
    let load = |ready: &Ready<'_>| match ready {
        Ready::Code { object, .. } => {
            Kernel::load_object(process, object).map_err(|error| format!("cannot load the artifact: {error}"))
        }
        Ready::Synthetic(_) => Err("lanes run only compiled code, not synthetic loads".to_owned()),
    };
    let kernels = ready_this_thread(&lane.cpus, &nothing)
        .map_err(|error| format!("{error:#}"))
        .and_then(|_| codes.iter().map(load).collect::<Result<Vec<Kernel>, String>>());
    let arguments: Vec<Vec<&KernelBuffer>> = codes
        .iter()
        .map(|ready| if let Ready::Code { buffers, .. } = ready { buffers.iter().collect() } else { Vec::new() })
        .collect();
    measure(&mut || match &kernels {
        Ok(kernels) => kernels.iter().zip(&arguments).try_for_each(|(kernel, arguments)| {
            kernel.call_repeatedly(arguments, 1).map_err(|error| error.to_string())
        }),
        Err(why) => Err(why.clone()),
    })
}

fn run_member(
    process: RunnerProcess,
    job: &CoRunJob,
    (place, cpus): (usize, &[usize]),
    ready: &mut Ready<'_>,
    rounds: &CoRunRounds,
) -> Result<Shared, String> {
    let mut counters = ready_this_thread(cpus, &job.counters);
    let lacking = counters.as_ref().err().map(|error| format!("{error:#}"));
    let mut run: Box<dyn FnMut(u32) -> Result<(), String> + '_> = match (lacking, ready) {
        (Some(why), _) => Box::new(move |_| Err(why.clone())),
        (None, Ready::Synthetic(load)) => Box::new(|times| {
            load.run_times(times);
            Ok(())
        }),
        (None, Ready::Code { object, buffers }) => match Kernel::load_object(process, object) {
            Err(error) => {
                let why = format!("cannot load the artifact: {error}");
                Box::new(move |_| Err(why.clone()))
            }
            Ok(kernel) => Box::new(move |times| {
                let arguments: Vec<&KernelBuffer> = buffers.iter().collect();
                kernel.call_repeatedly(&arguments, times).map_err(|error| error.to_string())
            }),
        },
    };
    let (mut clock, mut alone_clock) = (HostClock::new(), HostClock::new());
    let clocks: (&mut dyn measure::Clock, &mut dyn measure::Clock) = (&mut clock, &mut alone_clock);
    let shared = match &mut counters {
        Ok(counters) => rounds.measure_member(place, &mut run, &job.rule, clocks, counters),
        Err(_) => rounds.measure_member(place, &mut run, &job.rule, clocks, &mut measure::counters::NoCounters),
    };
    shared.map_err(|error| match error {
        MemberError::Failed(why) => why,
        error @ MemberError::TimeLimit => error.to_string(),
    })
}
