//! Attempts → records.

use super::attempt::{Attempt, Code, PlannedTask};
use super::config::Config;
use super::module::PlannedModule;
use bench::Build;
use bench::Workers;
use datasets::{Json, Key, Outcome, Record, RowError};
use job::space::Schedule;
use job::target::Target;
use job::{Artifact, BuildJob, Check, LibraryJob, Measured, ModuleJob, RunJob, RunReply};
use measure::counters::{CounterValue, Coverage};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use worker::Fault;

/// News of a campaign.
#[derive(Debug)]
pub enum Event<'a> {
    /// A build ended.
    Built,
    /// An attempt ended in this record.
    Recorded(&'a Record),
}

/// How many attempts ended in which way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Outcomes {
    /// Count by outcome.
    pub counts: BTreeMap<String, usize>,
    /// Why no worker can be started, which ended the campaign.
    pub broken: Option<String>,
    /// Attempts not made because the budget ended or a signal came.
    pub left: usize,
    /// Attempts that others make or have made meanwhile.
    pub elsewhere: usize,
    /// Time spent waiting for builders, in milliseconds.
    pub build_ms: u64,
    /// Time spent waiting for the runner, in milliseconds.
    pub run_ms: u64,
}

impl Outcomes {
    /// Attempts that ended in something else than a time.
    pub fn losses(&self) -> usize {
        self.counts.iter().filter(|(name, _)| name.as_str() != Outcome::Ok.name()).map(|(_, count)| count).sum()
    }
}

/// The number that the next try of each experiment has, or nothing where it is not ours to make.
pub type Tries = Vec<Option<i64>>;

/// Where records go and news is heard.
pub struct Outside<'a, E> {
    /// Takes every record as soon as it exists; an error ends the campaign.
    pub sink: &'a mut dyn FnMut(&Record) -> Result<(), E>,
    /// Hears news.
    pub listener: &'a mut dyn FnMut(Event<'_>),
    /// Asked between attempts whether to stop.
    pub should_stop: &'a dyn Fn() -> bool,
    /// Asked before a batch is begun.
    pub claim: &'a mut dyn FnMut(&[Key]) -> Result<Tries, E>,
}

/// The first try of each, all ours: for campaigns of one process.
pub fn claim_all<E>(keys: &[Key]) -> Result<Tries, E> {
    Ok(vec![Some(1); keys.len()])
}

/// Where built code comes from: first requested, then taken in the same order.
pub trait Artifacts {
    /// Says early what will be wanted.
    fn request(&mut self, job: BuildJob, workers: &mut Workers);
    /// What became of the next job. `goes_on` is asked now and then; when it says no, there is nothing.
    fn next(&mut self, workers: &mut Workers, goes_on: &mut dyn FnMut() -> bool) -> Option<Build>;
}

/// From builders, now.
pub struct BuildNow;

impl Artifacts for BuildNow {
    fn request(&mut self, job: BuildJob, workers: &mut Workers) {
        workers.builders().request(job);
    }

    fn next(&mut self, workers: &mut Workers, goes_on: &mut dyn FnMut() -> bool) -> Option<Build> {
        workers.builders().next(goes_on)
    }
}

/// What a campaign is about.
#[derive(Clone, Copy)]
pub struct Campaign<'a> {
    /// Its tasks.
    pub tasks: &'a [PlannedTask],
    /// Its models that are run as a whole.
    pub modules: &'a [PlannedModule],
    /// What code is made for.
    pub target: &'a Target,
    /// What was asked for.
    pub config: &'a Config,
}

/// Makes all attempts.
///
/// `attempts` of one task and schedule must be neighbours: they share a build. Builds are requested a batch ahead. Of a
/// batch, the runs that leave CPUs to builders come first, each as soon as its code is there; those that take all CPUs
/// come after them, with all builders at rest.
pub fn collect<E: From<RowError>>(
    attempts: &[Attempt],
    campaign: &Campaign<'_>,
    artifacts: &mut dyn Artifacts,
    workers: &mut Workers,
    outside: &mut Outside<'_, E>,
) -> Result<Outcomes, E> {
    let mut pass = Pass { campaign: *campaign, artifacts, workers, outside, start: Instant::now(), built: 0 };
    let mut outcomes = Outcomes::default();
    let ended = pass.all(attempts, &mut outcomes);
    pass.workers.builders().abandon();
    if let Err(End::Failed(error)) = ended {
        return Err(error);
    }
    outcomes.left = attempts.len() - outcomes.elsewhere - outcomes.counts.values().sum::<usize>();
    Ok(outcomes)
}

/// One way through all attempts.
struct Pass<'a, 'b, E> {
    campaign: Campaign<'a>,
    artifacts: &'a mut dyn Artifacts,
    workers: &'a mut Workers,
    outside: &'a mut Outside<'b, E>,
    start: Instant,
    /// Builds the listener has heard of.
    built: u64,
}

/// An attempt that is ours to make.
#[derive(Clone, Copy)]
struct Try<'a> {
    attempt: &'a Attempt,
    /// Which try of its experiment it is, from 1.
    number: i64,
}

/// Why a campaign ended before its last attempt.
enum End<E> {
    /// It was stopped, or no worker can be started.
    Stopped,
    /// A record could not be made or kept.
    Failed(E),
}

impl<E: From<RowError>> Pass<'_, '_, E> {
    fn all(&mut self, attempts: &[Attempt], outcomes: &mut Outcomes) -> Result<(), End<E>> {
        let groups: Vec<&[Attempt]> =
            attempts.chunk_by(|left, right| left.family == right.family && left.code == right.code).collect();
        let mut batches = groups.chunks(self.campaign.config.limits.build_batch);
        let mut next = self.begin(batches.next(), outcomes)?;
        while let Some(batch) = next {
            next = self.begin(batches.next(), outcomes)?;
            self.batch(&batch, outcomes)?;
        }
        Ok(())
    }

    /// Claims what of a batch is ours, and requests its code.
    fn begin<'t>(
        &mut self,
        batch: Option<&[&'t [Attempt]]>,
        outcomes: &mut Outcomes,
    ) -> Result<Option<Vec<Vec<Try<'t>>>>, End<E>> {
        let Some(groups) = batch else { return Ok(None) };
        let keys: Vec<Key> = groups.iter().flat_map(|group| group.iter().map(|attempt| attempt.key)).collect();
        let mut numbers = (self.outside.claim)(&keys).map_err(End::Failed)?.into_iter();
        let mut ours = Vec::with_capacity(groups.len());
        for group in groups {
            let tries = group.iter().map(|attempt| Some(Try { attempt, number: numbers.next().flatten()? }));
            let tries: Vec<Option<Try<'t>>> = tries.collect();
            outcomes.elsewhere += tries.iter().filter(|one| one.is_none()).count();
            ours.push(tries.into_iter().flatten().collect());
        }
        ours.retain(|group: &Vec<Try<'_>>| !group.is_empty());
        let jobs =
            ours.iter().filter_map(|group| build_job(group[0].attempt, self.campaign.tasks, self.campaign.target));
        for job in jobs {
            self.artifacts.request(job, self.workers);
        }
        Ok(Some(ours))
    }

    fn batch(&mut self, batch: &[Vec<Try<'_>>], outcomes: &mut Outcomes) -> Result<(), End<E>> {
        let mut wide = Vec::new();
        for group in batch {
            let build = match group[0].attempt.code {
                Code::Compiled { .. } => Some(self.build(outcomes)?),
                Code::Library | Code::Module(_) => None,
            };
            let (beside, alone): (Vec<Try<'_>>, Vec<Try<'_>>) =
                group.iter().partition(|one| self.workers.can_build_beside(&one.attempt.cpus));
            for one in beside {
                self.attempt(one, build.as_ref(), outcomes)?;
            }
            wide.push((build, alone));
        }
        for (build, tries) in wide {
            for one in tries {
                self.attempt(one, build.as_ref(), outcomes)?;
            }
        }
        Ok(())
    }

    /// The next group's code.
    fn build(&mut self, outcomes: &mut Outcomes) -> Result<Build, End<E>> {
        let waiting = Instant::now();
        let is_over = || is_over(self.outside, &self.start, self.campaign.config);
        let build = self.artifacts.next(self.workers, &mut || !is_over());
        outcomes.build_ms += elapsed_ms(waiting);
        self.announce_builds();
        build.ok_or(End::Stopped)
    }

    fn attempt(&mut self, one: Try<'_>, build: Option<&Build>, outcomes: &mut Outcomes) -> Result<(), End<E>> {
        let Campaign { tasks, config, .. } = self.campaign;
        if is_over(self.outside, &self.start, config) {
            return Err(End::Stopped);
        }
        let running = Instant::now();
        let conclusion = match build {
            Some(build) => conclude(one, build, tasks, config, self.workers),
            None => conclude_library(one, tasks, config, self.workers),
        };
        outcomes.run_ms += elapsed_ms(running);
        self.announce_builds();
        let record = match conclusion.map_err(|error| End::Failed(error.into()))? {
            Conclusion::Record(record) => record,
            Conclusion::NoWorker(why) => {
                outcomes.broken = Some(why);
                return Err(End::Stopped);
            }
        };
        (self.outside.sink)(&record).map_err(End::Failed)?;
        *outcomes.counts.entry(record.outcome.name().to_owned()).or_default() += 1;
        (self.outside.listener)(Event::Recorded(&record));
        Ok(())
    }

    fn announce_builds(&mut self) {
        while self.built < self.workers.builders().ended_count() {
            self.built += 1;
            (self.outside.listener)(Event::Built);
        }
    }
}

fn is_over<E>(outside: &Outside<'_, E>, start: &Instant, config: &Config) -> bool {
    (outside.should_stop)() || config.budget_seconds.is_some_and(|budget| start.elapsed().as_secs_f64() > budget)
}

fn elapsed_ms(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// The job that builds an attempt's schedule; nothing where a library computes its task.
pub fn build_job(attempt: &Attempt, tasks: &[PlannedTask], target: &Target) -> Option<BuildJob> {
    let Code::Compiled { schedule, .. } = &attempt.code else { return None };
    Some(BuildJob {
        task: tasks[attempt.task].compiled_json().to_owned(),
        target: target.text.clone(),
        schedule: schedule.to_json(),
        wants_trace: matches!(**schedule, Schedule::MetaSchedule { .. }),
    })
}

/// What became of an attempt.
enum Conclusion {
    /// Its record.
    Record(Box<Record>),
    /// The attempt was not made: no worker can be started, which no record of it would explain.
    NoWorker(String),
}

/// Runs what was built and makes the record of what happened.
fn conclude(
    one: Try<'_>,
    build: &Build,
    tasks: &[PlannedTask],
    config: &Config,
    workers: &mut Workers,
) -> Result<Conclusion, RowError> {
    let (attempt, mut record) = (one.attempt, begin(one)?);
    match build {
        Build::Built(artifact) => {
            if let Code::Compiled { schedule, .. } = &attempt.code {
                describe_artifact(&mut record, schedule, artifact)?;
            }
            let job = run_job(attempt, tasks, config).of(artifact);
            let reply = workers.run(&job, job.deadline(flops(attempt, tasks), slack(config)));
            return describe_reply(record, reply);
        }
        Build::Failed(why) => fail(&mut record, Outcome::BuildFailed, why.clone()),
        Build::Rejected(why) => fail(&mut record, Outcome::Skipped, why.clone()),
        Build::Fault(Fault::CannotStart { why }) => return Ok(Conclusion::NoWorker(why.clone())),
        Build::Fault(fault) => fail(&mut record, fault_outcome(fault, Outcome::BuildFailed), format!("build: {fault}")),
    }
    Ok(Conclusion::Record(record))
}

/// Runs a library and makes the record of what happened.
fn conclude_library(
    one: Try<'_>,
    tasks: &[PlannedTask],
    config: &Config,
    workers: &mut Workers,
) -> Result<Conclusion, RowError> {
    let (attempt, record) = (one.attempt, begin(one)?);
    let (job, deadline) = match &attempt.code {
        Code::Module(module) => {
            let job = module_job(attempt, module, config);
            let deadline = job.deadline(slack(config));
            (LibraryJob::Module(job), deadline)
        }
        Code::Compiled { .. } | Code::Library => {
            let job = run_job(attempt, tasks, config);
            let deadline = job.deadline(flops(attempt, tasks), slack(config));
            (LibraryJob::Task(job), deadline)
        }
    };
    let reply = workers.run_library(&job, deadline);
    describe_reply(record, reply)
}

/// The record of an attempt that begins now.
fn begin(one: Try<'_>) -> Result<Box<Record>, RowError> {
    let mut record = Box::new(one.attempt.record()?);
    record.attempt = one.number;
    record.started_at_us = now_us();
    Ok(record)
}

/// Finishes a record with what became of the run.
fn describe_reply(mut record: Box<Record>, reply: Result<RunReply, Fault>) -> Result<Conclusion, RowError> {
    match reply {
        Ok(RunReply::Measured(measured)) => describe_measured(&mut record, &measured)?,
        Ok(RunReply::WrongResult(check)) => {
            describe_check(&mut record, &check);
            let why = format!(
                "differs from the reference by up to {:.3e} (relative {:.3e})",
                check.max_abs_error, check.max_rel_error
            );
            fail(&mut record, Outcome::WrongResult, why);
        }
        Ok(RunReply::Failed(why)) => fail(&mut record, Outcome::RunFailed, why),
        Ok(RunReply::Unsupported(why)) => fail(&mut record, Outcome::Skipped, format!("unsupported: {why}")),
        Err(Fault::CannotStart { why }) => return Ok(Conclusion::NoWorker(why)),
        Err(fault) => fail(&mut record, fault_outcome(&fault, Outcome::RunFailed), format!("run: {fault}")),
    }
    Ok(Conclusion::Record(record))
}

/// The run of an attempt, without code.
fn run_job(attempt: &Attempt, tasks: &[PlannedTask], config: &Config) -> RunJob {
    let job = RunJob::new(tasks[attempt.task].json.clone(), attempt.cpus.clone(), attempt.method.clone());
    RunJob { seed: config.seed, counters: config.counters.clone(), ..job }
}

fn module_job(attempt: &Attempt, module: &PlannedModule, config: &Config) -> ModuleJob {
    ModuleJob {
        path: module.path.clone(),
        hash: module.hash.clone(),
        inputs: module.inputs.iter().map(ToString::to_string).collect(),
        seed: config.seed,
        cpus: attempt.cpus.clone(),
        method: attempt.method.clone(),
        counters: config.counters.clone(),
    }
}

/// What a run may take beyond what its rule and its work explain.
fn slack(config: &Config) -> Duration {
    Duration::from_secs_f64(config.limits.run_seconds)
}

/// Operations of an attempt's task.
fn flops(attempt: &Attempt, tasks: &[PlannedTask]) -> u64 {
    tasks[attempt.task].task.work().map_or(0, |work| work.flops)
}

fn fault_outcome(fault: &Fault, other: Outcome) -> Outcome {
    match fault {
        Fault::Crashed { .. } | Fault::Exited { .. } => Outcome::Crashed,
        Fault::TimedOut { .. } => Outcome::TimedOut,
        Fault::Corrupt { .. } | Fault::HandlerFailed { .. } | Fault::CannotStart { .. } | Fault::Unsendable { .. } => {
            other
        }
    }
}

fn fail(record: &mut Record, outcome: Outcome, why: String) {
    record.outcome = outcome;
    record.reason = Some(if why.is_empty() { "no reason was given".to_owned() } else { why });
}

fn describe_artifact(record: &mut Record, schedule: &Schedule, artifact: &Artifact) -> Result<(), RowError> {
    record.code_bytes = i64::try_from(artifact.code_bytes).ok();
    record.build_ms = Some(artifact.schedule_ms + artifact.lower_ms + artifact.codegen_ms);
    let mut features = BTreeMap::from([
        ("schedule_ms", artifact.schedule_ms),
        ("lower_ms", artifact.lower_ms),
        ("codegen_ms", artifact.codegen_ms),
    ]);
    // All architectures have the same launches; the first one's figures stand for the kind of code.
    let cubin = artifact.device.as_ref().and_then(|code| code.cubins.first());
    features.extend(cubin.map(|cubin| cubin.features()).into_iter().flatten());
    features.extend(artifact.features.iter().map(|(name, value)| (name.as_str(), *value)));
    record.features = Some(Json::new(&features)?);
    if let (Schedule::MetaSchedule { space, seed, .. }, Some(trace)) = (schedule, &artifact.trace) {
        let trace = Json::parse(trace)?.to()?;
        let drawn = Schedule::MetaSchedule { space: *space, seed: *seed, trace: Some(trace) };
        record.schedule = Some(Json::parse(&drawn.to_json())?);
    }
    Ok(())
}

fn describe_check(record: &mut Record, check: &Check) {
    record.max_abs_error = Some(check.max_abs_error).filter(|error| error.is_finite());
    record.max_rel_error = Some(check.max_rel_error).filter(|error| error.is_finite());
}

/// What a record keeps of a counter beside its value.
#[derive(Serialize)]
struct CounterOrigin<'a> {
    source: &'static str,
    native: &'a str,
    unit: &'a str,
    coverage: Coverage,
    runs: u64,
    running_share: f64,
}

impl<'a> From<&'a CounterValue> for CounterOrigin<'a> {
    fn from(value: &'a CounterValue) -> Self {
        let CounterValue { step, native, unit, coverage, runs, running_ratio, .. } = value;
        let (source, running_share) = (step.name(), *running_ratio);
        CounterOrigin { source, native, unit, coverage: *coverage, runs: *runs, running_share }
    }
}

fn describe_measured(record: &mut Record, measured: &Measured) -> Result<(), RowError> {
    let m = &measured.measurement;
    record.outcome = Outcome::Ok;
    record.n = i64::from(m.n);
    record.median_ns = Some(m.median_ns);
    record.mean_ns = Some(m.mean_ns);
    record.min_ns = Some(m.min_ns);
    record.p95_ns = Some(m.p95_ns);
    record.std_ns = m.std_ns;
    record.cv = m.cv;
    record.first_run_ns = Some(m.first_run_ns as f64);
    record.batch_size = Some(i64::from(m.batch_size));
    record.median_interval_ns = m.median_interval_ns.map(|(low, high)| (high - low) / 2.0);
    record.samples_ns = m.samples_ns.clone();
    record.cpu_time_ns = Some(m.cpu_time_ns);
    let counters: BTreeMap<&str, f64> = m.counters.iter().map(|c| (c.name.as_str(), c.per_run)).collect();
    let steps: std::collections::BTreeSet<&str> = m.counters.iter().map(|c| c.step.name()).collect();
    // A counter that one step refused and the next one gave is not refused.
    let refused = m.refusals.iter().filter(|refusal| !counters.contains_key(refusal.event.as_str()));
    let mut refused_by: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for refusal in refused {
        let why = format!("{}: {}", refusal.step.name(), refusal.why);
        refused_by.entry(&refusal.event).or_default().push(why);
    }
    let refused: BTreeMap<&str, String> = refused_by.into_iter().map(|(name, whys)| (name, whys.join("; "))).collect();
    let origins: BTreeMap<&str, CounterOrigin<'_>> = m.counters.iter().map(|c| (c.name.as_str(), c.into())).collect();
    record.counters = (!counters.is_empty()).then(|| Json::new(&counters)).transpose()?;
    record.counter_origins = (!origins.is_empty()).then(|| Json::new(&origins)).transpose()?;
    record.counters_refused = (!refused.is_empty()).then(|| Json::new(&refused)).transpose()?;
    record.counter_source = (!steps.is_empty()).then(|| steps.into_iter().collect::<Vec<_>>().join("+"));
    let warnings: Vec<String> = m.warnings.iter().map(ToString::to_string).collect();
    record.warnings = (!warnings.is_empty()).then(|| Json::new(&warnings)).transpose()?;
    record.peak_memory_bytes = i64::try_from(measured.peak_memory_bytes).ok();
    if let Some(check) = &measured.check {
        describe_check(record, check);
    }
    Ok(())
}

/// Microseconds since 1970.
pub fn now_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}
