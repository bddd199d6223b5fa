//! Execution of attempts, and conversion of their results to records.

use super::config::Config;
use super::module::PlannedModule;
use super::planned::{Attempt, Code, PlannedTask};
use super::source::Source;
use super::{jobs, record};
use bench::{Bench, BenchWork, Build, Done, Ran, Ticket};
use datasets::{CacheState, Json, Key, NoiseFloor, Outcome, Record, RowError};
use job::Artifact;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};
use targets::Target;
use worker::Fault;

/// A progress event of a campaign.
#[derive(Debug)]
pub enum CampaignEvent<'a> {
    /// A build has ended.
    Built,
    /// An attempt has ended with this record.
    Recorded(&'a Record),
    /// Progress message of the source of attempts.
    Progress(&'a str),
    /// All remaining attempts, of which there are this many, are claimed by other processes.
    Waiting(usize),
}

/// Counts of attempts by outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Outcomes {
    /// Number of attempts by outcome.
    pub counts: BTreeMap<String, usize>,
    /// Number of candidates that were built and then rejected by the cost model. They do not count as attempts.
    pub passed_over: usize,
    /// Reason why no worker can be started, which ended the campaign.
    pub broken: Option<String>,
    /// Number of visits, or trials of a search, not made because of the budget, a signal, or delays of other processes.
    pub left: usize,
    /// Number of attempts, included in `left`, that other processes have claimed.
    pub held: usize,
    /// Number of attempts that other processes have made, not included in `left`.
    pub elsewhere: usize,
    /// Time spent waiting for builds, in milliseconds.
    pub build_ms: u64,
    /// Time spent waiting for runs, in milliseconds.
    pub run_ms: u64,
}

impl Outcomes {
    /// Returns the counts by outcome as text.
    pub fn describe_counts(&self) -> String {
        let counts: Vec<String> = self.counts.iter().map(|(outcome, count)| format!("{count} {outcome}")).collect();
        if counts.is_empty() { "nothing new".to_owned() } else { counts.join(", ") }
    }

    /// Returns the number of attempts that ended in this process, and of those of other processes.
    pub fn ended(&self) -> usize {
        self.counts.values().sum::<usize>() + self.elsewhere
    }

    /// Adds the counts of later attempts to these counts.
    pub fn merge_with(mut self, next: Outcomes) -> Outcomes {
        next.counts.into_iter().for_each(|(name, count)| *self.counts.entry(name).or_default() += count);
        Outcomes {
            counts: self.counts,
            passed_over: self.passed_over + next.passed_over,
            broken: self.broken.or(next.broken),
            left: self.left + next.left,
            held: self.held + next.held,
            elsewhere: self.elsewhere + next.elsewhere,
            build_ms: self.build_ms + next.build_ms,
            run_ms: self.run_ms + next.run_ms,
        }
    }
}

/// Result of claiming a visit, which is one of the separate measurements of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimResult {
    /// This process has claimed the visit. Contains the number of this attempt at the experiment.
    Ours(i64),
    /// Another process has already made the visit.
    Made,
    /// Another process has claimed the visit, but may end before making it.
    Held,
}

/// Results of claiming several visits, in the order of the visits.
pub type ClaimResults = Vec<ClaimResult>;

impl ClaimResult {
    /// Returns the attempt number if this process has claimed the visit, else None.
    pub fn try_number(self) -> Option<i64> {
        if let ClaimResult::Ours(number) = self { Some(number) } else { None }
    }
}

/// Callbacks of a campaign: record sink, event listener, stop condition, and coordination with other processes.
pub struct CampaignCallbacks<'a, E> {
    /// Receives every record as soon as it is complete. An error ends the campaign.
    pub sink: &'a mut dyn FnMut(&Record) -> Result<(), E>,
    /// Receives progress events.
    pub listener: &'a mut dyn FnMut(CampaignEvent<'_>),
    /// Returns whether the campaign should stop; called between attempts.
    pub should_stop: &'a dyn Fn() -> bool,
    /// Claims the visits of a batch before the batch is started.
    pub claim: &'a mut dyn FnMut(&[Visit]) -> Result<ClaimResults, E>,
}

/// Claims all visits without coordination, for campaigns of a single process.
pub fn claim_all<E>(wanted: &[Visit]) -> Result<ClaimResults, E> {
    Ok(wanted.iter().map(|visit| ClaimResult::Ours(i64::from(visit.number) + 1)).collect())
}

/// A planned visit (one of the separate measurements of an experiment).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visit {
    /// Key of the experiment.
    pub key: Key,
    /// Number of the visit within its experiment, counted from 0.
    pub number: u32,
}

/// The tasks and settings of a campaign.
#[derive(Clone, Copy)]
pub struct Campaign<'a> {
    /// Tasks of all models.
    pub tasks: &'a [PlannedTask],
    /// Models that are run as whole programs.
    pub modules: &'a [PlannedModule],
    /// Target for which code is compiled.
    pub target: &'a Target,
    /// Configuration of the campaign, already validated.
    pub config: &'a Config,
}

/// Makes all attempts that a source proposes, with two batches in progress so that builds continue during runs.
pub fn collect_attempts<E: From<RowError>>(
    source: &mut dyn Source,
    campaign: &Campaign<'_>,
    bench: &mut dyn Bench,
    callbacks: &mut CampaignCallbacks<'_, E>,
) -> Result<Outcomes, E> {
    let start = Instant::now();
    let mut pass = Pass {
        campaign: *campaign,
        source,
        bench,
        callbacks,
        start,
        outcomes: Outcomes::default(),
        submitted: BTreeMap::new(),
        seen: EarlierVisits::default(),
        open: 0,
        open_visits: 0,
        newest: 0,
        tickets: 0,
        waiting_since: None,
    };
    let ended = pass.run_all();
    pass.bench.abandon_all();
    if let Err(AttemptEnd::Failed(error)) = ended {
        return Err(error);
    }
    let mut outcomes = pass.outcomes;
    outcomes.left += pass.source.attempts_left() + pass.open_visits;
    outcomes.held += pass.source.postponed_count();
    Ok(outcomes)
}

struct Pass<'a, 'b, E> {
    campaign: Campaign<'a>,
    source: &'a mut dyn Source,
    bench: &'a mut dyn Bench,
    callbacks: &'a mut CampaignCallbacks<'b, E>,
    start: Instant,
    outcomes: Outcomes,
    submitted: BTreeMap<Ticket, SubmittedJob>,
    seen: EarlierVisits,
    /// Number of this process's attempts that have no record yet.
    open: usize,
    /// Number of visits of these attempts, including their later visits.
    open_visits: usize,
    /// Number of this process's attempts in the newest batch.
    newest: usize,
    tickets: Ticket,
    /// Start of the current wait for other processes; None while this process does not wait.
    waiting_since: Option<Instant>,
}

const CLAIM_CHECK_INTERVAL: Duration = Duration::from_secs(2);
/// Longest wait without progress of other processes; claims of a process killed on another machine expire earlier.
const MAX_CLAIM_WAIT: Duration = Duration::from_secs(8 * 60);

enum SubmittedJob {
    /// A build that these attempts share.
    Build(Vec<ClaimedAttempt>),
    /// A run, with the columns of its record that are known before the run.
    Run(Box<ClaimedAttempt>, Box<Record>),
}

struct ClaimedAttempt {
    attempt: Attempt,
    /// Number of this attempt among all attempts at its experiment, from 1.
    number: i64,
}

enum AttemptEnd<E> {
    /// The campaign was stopped, or no worker could be started.
    Stopped,
    Failed(E),
}

impl<E: From<RowError>> Pass<'_, '_, E> {
    fn run_all(&mut self) -> Result<(), AttemptEnd<E>> {
        loop {
            self.fill_pipeline()?;
            if self.submitted.is_empty() {
                return Ok(());
            }
            let waiting = Instant::now();
            let (callbacks, start, config) = (&*self.callbacks, self.start, self.campaign.config);
            let done = self.bench.next_result(&mut || !is_over(callbacks, &start, config));
            let ms = u64::try_from(waiting.elapsed().as_millis()).unwrap_or(u64::MAX);
            let (ticket, done) = done.ok_or(AttemptEnd::Stopped)?;
            match (done, self.submitted.remove(&ticket)) {
                (Done::Built(build), Some(SubmittedJob::Build(tries))) => {
                    self.outcomes.build_ms += ms;
                    (self.callbacks.listener)(CampaignEvent::Built);
                    self.finish_build(build, tries)?;
                }
                (Done::Ran(ran), Some(SubmittedJob::Run(one, record))) => {
                    self.outcomes.run_ms += ms;
                    self.finish_run(ran, &one, *record)?;
                }
                _ => unreachable!("a bench replies once to each submitted job"),
            }
        }
    }

    /// Claims and submits batches of attempts until two batches are in progress.
    fn fill_pipeline(&mut self) -> Result<(), AttemptEnd<E>> {
        // A proposal may take long.
        while self.open <= self.newest && !is_over(self.callbacks, &self.start, self.campaign.config) {
            let proposed = self.source.propose(self.campaign.config.limits.build_batch);
            if proposed.is_empty() {
                return Ok(());
            }
            let is_postponed = self.begin_batch(proposed)?;
            match is_postponed && self.open == 0 {
                true => self.wait_for_others()?,
                false => self.waiting_since = None,
            }
        }
        Ok(())
    }

    fn wait_for_others(&mut self) -> Result<(), AttemptEnd<E>> {
        (self.callbacks.listener)(CampaignEvent::Waiting(self.source.postponed_count()));
        let begun = Instant::now();
        let since = *self.waiting_since.get_or_insert(begun);
        let is_over = |pass: &Self| is_over(pass.callbacks, &pass.start, pass.campaign.config);
        while begun.elapsed() < CLAIM_CHECK_INTERVAL && !is_over(self) {
            std::thread::sleep(Duration::from_millis(50));
        }
        if since.elapsed() > MAX_CLAIM_WAIT || is_over(self) { Err(AttemptEnd::Stopped) } else { Ok(()) }
    }

    /// Claims and submits a batch. Returns true if other processes hold all attempts and the source has postponed them.
    fn begin_batch(&mut self, proposed: Vec<Attempt>) -> Result<bool, AttemptEnd<E>> {
        let wanted = proposed.iter().map(|attempt| Visit { key: attempt.key, number: attempt.visit });
        let claims = (self.callbacks.claim)(&wanted.collect::<Vec<Visit>>()).map_err(AttemptEnd::Failed)?;
        let (mut ours, mut is_postponed): (Vec<ClaimedAttempt>, bool) = (Vec::new(), true);
        for (attempt, claim) in proposed.into_iter().zip(claims) {
            match claim {
                ClaimResult::Ours(number) => ours.push(ClaimedAttempt { attempt, number }),
                ClaimResult::Held if self.source.postpone(&attempt) => continue,
                ClaimResult::Made => {
                    self.outcomes.elsewhere += usize::from(attempt.is_first);
                    self.source.skip_attempt(&attempt);
                }
                // The other process may not finish it.
                ClaimResult::Held => {
                    self.outcomes.held += 1;
                    self.outcomes.left += 1;
                    self.source.skip_attempt(&attempt);
                }
            }
            is_postponed = false;
        }
        if !ours.is_empty() {
            self.newest = ours.len();
            self.open += ours.len();
            self.open_visits += ours.iter().map(|one| self.source.visits_of(&one.attempt)).sum::<usize>();
        }
        let mut groups: Vec<Vec<ClaimedAttempt>> = Vec::new();
        for one in ours {
            match groups.last_mut() {
                Some(group) if group[0].attempt.shares_build_with(&one.attempt) => group.push(one),
                _ => groups.push(vec![one]),
            }
        }
        groups.into_iter().try_for_each(|group| self.submit_group(group))?;
        Ok(is_postponed)
    }

    /// Submits the build that a group of attempts shares, or its runs if there is nothing to build.
    fn submit_group(&mut self, group: Vec<ClaimedAttempt>) -> Result<(), AttemptEnd<E>> {
        match jobs::build_job(&group[0].attempt, self.campaign.tasks, self.campaign.target) {
            Some(job) => self.submit_job(BenchWork::Build(job), SubmittedJob::Build(group)),
            None => {
                for one in group {
                    let record = begin_record(&one).map_err(wrap_row_error)?;
                    self.submit_run(one, record, None);
                }
            }
        }
        Ok(())
    }

    /// Runs a built artifact, unless the source rejects the candidate on the basis of the artifact.
    fn run_accepted(&mut self, one: ClaimedAttempt, artifact: &Artifact) -> Result<(), AttemptEnd<E>> {
        let mut record = begin_record(&one).map_err(wrap_row_error)?;
        if let Code::Compiled { schedule, .. } = &one.attempt.code {
            record::describe_artifact(&mut record, schedule, artifact).map_err(wrap_row_error)?;
        }
        match self.source.reject_candidate(&one.attempt, &record) {
            None => self.submit_run(one, record, Some(artifact)),
            Some(why) => {
                record.started_at_us = record::now_us();
                record::mark_failed(&mut record, Outcome::PassedOver, why);
                self.emit_record(&one, &record)?;
            }
        }
        Ok(())
    }

    fn submit_run(&mut self, one: ClaimedAttempt, record: Record, artifact: Option<&Artifact>) {
        let Campaign { tasks, config, .. } = self.campaign;
        let work = jobs::run_job((&one.attempt, one.number), artifact, tasks, config);
        self.submit_job(work, SubmittedJob::Run(Box::new(one), Box::new(record)));
    }

    fn submit_job(&mut self, work: BenchWork, what: SubmittedJob) {
        self.submitted.insert(self.tickets, what);
        self.bench.submit(self.tickets, work);
        self.tickets += 1;
    }

    fn finish_build(&mut self, build: Build, tries: Vec<ClaimedAttempt>) -> Result<(), AttemptEnd<E>> {
        let (outcome, why) = match build {
            Build::Built(artifact) => return tries.into_iter().try_for_each(|one| self.run_accepted(one, &artifact)),
            Build::Failed(why) => (Outcome::BuildFailed, why),
            Build::Rejected(why) => (Outcome::Skipped, why),
            Build::Fault(Fault::CannotStart { why }) => return Err(self.end_broken(why)),
            Build::Fault(fault) => (record::fault_outcome(&fault, Outcome::BuildFailed), format!("build: {fault}")),
        };
        for one in tries {
            let mut record = begin_record(&one).map_err(wrap_row_error)?;
            record.started_at_us = record::now_us();
            record::mark_failed(&mut record, outcome, why.clone());
            self.emit_record(&one, &record)?;
        }
        Ok(())
    }

    fn finish_run(&mut self, ran: Ran, one: &ClaimedAttempt, mut record: Record) -> Result<(), AttemptEnd<E>> {
        if let Err(Fault::CannotStart { why }) = ran.reply {
            return Err(self.end_broken(why));
        }
        record.started_at_us = record::unix_microseconds(ran.began);
        record::describe_reply(&mut record, &ran.reply).map_err(wrap_row_error)?;
        self.seen.complete_record(&one.attempt, &mut record);
        self.emit_record(one, &record)
    }

    fn emit_record(&mut self, one: &ClaimedAttempt, record: &Record) -> Result<(), AttemptEnd<E>> {
        (self.callbacks.sink)(record).map_err(AttemptEnd::Failed)?;
        match record.outcome {
            Outcome::PassedOver => self.outcomes.passed_over += 1,
            // Later visits are not counted as attempts, but their losses are reported.
            Outcome::Ok if !one.attempt.is_first => {}
            outcome => *self.outcomes.counts.entry(outcome.name().to_owned()).or_default() += 1,
        }
        (self.callbacks.listener)(CampaignEvent::Recorded(record));
        self.source.observe(&one.attempt, record);
        if let Some(message) = self.source.progress_message() {
            (self.callbacks.listener)(CampaignEvent::Progress(&message));
        }
        self.open -= 1;
        self.open_visits -= self.source.visits_of(&one.attempt);
        Ok(())
    }

    fn end_broken(&mut self, why: String) -> AttemptEnd<E> {
        self.outcomes.broken = Some(why);
        AttemptEnd::Stopped
    }
}

fn begin_record(one: &ClaimedAttempt) -> Result<Record, RowError> {
    let placement = Json::new(&jobs::try_placement(&one.attempt, one.number))?;
    Ok(Record { attempt: one.number, placement: Some(placement), ..record::attempt_record(&one.attempt)? })
}

#[derive(Default)]
struct EarlierVisits {
    /// Largest absolute and relative errors; only an experiment's first visit is compared with the reference.
    errors: HashMap<Key, (Option<f64>, Option<f64>)>,
    /// Scatter between the visits (repeated measurements) of experiments, by number of threads and cache state.
    noise_floors: HashMap<(usize, CacheState), NoiseFloor>,
}

impl EarlierVisits {
    fn complete_record(&mut self, attempt: &Attempt, record: &mut Record) {
        let Some(median_ns) = record.median_ns.filter(|_| record.outcome == Outcome::Ok) else { return };
        if attempt.is_first {
            self.errors.insert(record.key, (record.max_abs_error, record.max_rel_error));
        } else if let Some(errors) = self.errors.get(&record.key) {
            (record.max_abs_error, record.max_rel_error) = *errors;
        }
        let floor = self.noise_floors.entry((attempt.cpus.len(), attempt.state)).or_default();
        floor.add_visit(record.key, median_ns);
        record.noise_floor = floor.pooled_spread();
    }
}

fn wrap_row_error<E: From<RowError>>(error: RowError) -> AttemptEnd<E> {
    AttemptEnd::Failed(error.into())
}

fn is_over<E>(callbacks: &CampaignCallbacks<'_, E>, start: &Instant, config: &Config) -> bool {
    (callbacks.should_stop)() || is_over_budget(config.budget_seconds, *start)
}

/// Returns whether a budget of seconds since `start` is spent.
pub fn is_over_budget(budget_seconds: Option<f64>, start: Instant) -> bool {
    budget_seconds.is_some_and(|budget| start.elapsed().as_secs_f64() > budget)
}
