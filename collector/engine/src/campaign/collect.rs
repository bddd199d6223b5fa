//! Executes attempts and turns them into records.

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
    /// A build ended.
    Built,
    /// An attempt ended with this record.
    Recorded(&'a Record),
    /// A progress message of the source.
    Standing(&'a str),
    /// Only attempts that other processes have claimed are left; contains their number.
    Waiting(usize),
}

/// Counts of attempts by outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Outcomes {
    /// Count by outcome.
    pub counts: BTreeMap<String, usize>,
    /// Number of candidates that a search built and its cost model rejected before the run; they
    /// are not attempts.
    pub passed_over: usize,
    /// Reason why no worker can be started, which ended the campaign.
    pub broken: Option<String>,
    /// Attempts not made because the budget ended, a signal came, or other processes did not make
    /// them in time.
    pub left: usize,
    /// Attempts among `left` that other processes have claimed.
    pub held: usize,
    /// Attempts that other processes have claimed or made, and that are not counted in `left`.
    pub elsewhere: usize,
    /// Time spent waiting for builds, in milliseconds.
    pub build_ms: u64,
    /// Time spent waiting for runs, in milliseconds.
    pub run_ms: u64,
}

impl Outcomes {
    /// Returns the counts by outcome as text.
    pub fn text(&self) -> String {
        let counts: Vec<String> = self.counts.iter().map(|(outcome, count)| format!("{count} {outcome}")).collect();
        if counts.is_empty() { "nothing new".to_owned() } else { counts.join(", ") }
    }

    /// Merges these counts with those of later attempts.
    pub fn and(mut self, next: Outcomes) -> Outcomes {
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

    /// Returns the number of attempts without a time.
    pub fn losses(&self) -> usize {
        self.counts.iter().filter(|(name, _)| name.as_str() != Outcome::Ok.name()).map(|(_, count)| count).sum()
    }
}

/// The process that makes a visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// This process makes the visit, as the try of the experiment with this number.
    Ours(i64),
    /// Another process has made the visit.
    Made,
    /// Another process has claimed the visit, but may end before it has made it.
    Held,
}

/// Results of claiming several visits, in their order.
pub type Turns = Vec<Turn>;

impl Turn {
    /// Returns the number of the try if this process makes the visit.
    pub fn number(self) -> Option<i64> {
        if let Turn::Ours(number) = self { Some(number) } else { None }
    }
}

/// Callbacks of a campaign: the sink of records, the listener of events, the stop condition and the
/// claims.
pub struct Outside<'a, E> {
    /// Receives every record as soon as it exists; an error ends the campaign.
    pub sink: &'a mut dyn FnMut(&Record) -> Result<(), E>,
    /// Receives progress events.
    pub listener: &'a mut dyn FnMut(CampaignEvent<'_>),
    /// Checked between attempts to decide whether to stop.
    pub should_stop: &'a dyn Fn() -> bool,
    /// Called before a batch is started, to claim its visits.
    pub claim: &'a mut dyn FnMut(&[Visit]) -> Result<Turns, E>,
}

/// Claims all visits without coordination, for campaigns of a single process.
pub fn claim_all<E>(wanted: &[Visit]) -> Result<Turns, E> {
    Ok(wanted.iter().map(|visit| Turn::Ours(i64::from(visit.number) + 1)).collect())
}

/// A visit of an experiment that is to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visit {
    /// Key of the experiment.
    pub key: Key,
    /// Number of the visit, counted from 0.
    pub number: u32,
}

/// The tasks and settings of a campaign.
#[derive(Clone, Copy)]
pub struct Campaign<'a> {
    /// Tasks of the models.
    pub tasks: &'a [PlannedTask],
    /// Models that are run as whole programs.
    pub modules: &'a [PlannedModule],
    /// Target of the compiled code.
    pub target: &'a Target,
    /// Checked configuration.
    pub config: &'a Config,
}

/// Makes all attempts that a source proposes.
///
/// Two batches are in flight at a time, so that builds continue during runs. The bench decides when
/// each job runs.
pub fn collect<E: From<RowError>>(
    source: &mut dyn Source,
    campaign: &Campaign<'_>,
    bench: &mut dyn Bench,
    outside: &mut Outside<'_, E>,
) -> Result<Outcomes, E> {
    let start = Instant::now();
    let mut pass = Pass {
        campaign: *campaign,
        source,
        bench,
        outside,
        start,
        outcomes: Outcomes::default(),
        in_hand: BTreeMap::new(),
        seen: SeenAttempt::default(),
        open: 0,
        newest: 0,
        tickets: 0,
        waiting_since: None,
    };
    let ended = pass.all();
    pass.bench.abandon();
    if let Err(AttemptEnd::Failed(error)) = ended {
        return Err(error);
    }
    let mut outcomes = pass.outcomes;
    outcomes.left = pass.source.left() + pass.open;
    outcomes.held = pass.source.held();
    Ok(outcomes)
}

/// State of one execution of all attempts.
struct Pass<'a, 'b, E> {
    campaign: Campaign<'a>,
    source: &'a mut dyn Source,
    bench: &'a mut dyn Bench,
    outside: &'a mut Outside<'b, E>,
    start: Instant,
    outcomes: Outcomes,
    /// Jobs that were submitted to the bench.
    in_hand: BTreeMap<Ticket, InHand>,
    seen: SeenAttempt,
    /// Number of tries without a record.
    open: usize,
    /// Number of tries in the newest batch.
    newest: usize,
    tickets: Ticket,
    /// Start of the current wait for other processes, or None if they have made progress since.
    waiting_since: Option<Instant>,
}

/// Interval between two checks for attempts that other processes have made.
const ASKED_EVERY: Duration = Duration::from_secs(2);
/// Longest wait without progress of other processes. It exceeds the time for which the claims of a
/// killed process on another machine stay valid.
const MOST_WAITED: Duration = Duration::from_secs(8 * 60);

/// The purpose of a submitted job.
enum InHand {
    /// A build for these tries.
    Build(Vec<Try>),
    /// A run, with the record as far as it is known before the run.
    Run(Box<Try>, Box<Record>),
}

/// An attempt that this process makes.
struct Try {
    attempt: Attempt,
    /// Number of the try of its experiment, from 1.
    number: i64,
}

/// Reason why a campaign ended before its last attempt.
enum AttemptEnd<E> {
    /// The campaign was stopped, or no worker can be started.
    Stopped,
    /// A record could not be created or stored.
    Failed(E),
}

impl<E: From<RowError>> Pass<'_, '_, E> {
    fn all(&mut self) -> Result<(), AttemptEnd<E>> {
        loop {
            self.fill()?;
            if self.in_hand.is_empty() {
                return Ok(());
            }
            let waiting = Instant::now();
            let (outside, start, config) = (&*self.outside, self.start, self.campaign.config);
            let done = self.bench.next(&mut || !is_over(outside, &start, config));
            let ms = u64::try_from(waiting.elapsed().as_millis()).unwrap_or(u64::MAX);
            let (ticket, done) = done.ok_or(AttemptEnd::Stopped)?;
            match (done, self.in_hand.remove(&ticket)) {
                (Done::Built(build), Some(InHand::Build(tries))) => {
                    self.outcomes.build_ms += ms;
                    (self.outside.listener)(CampaignEvent::Built);
                    self.built(build, tries)?;
                }
                (Done::Ran(ran), Some(InHand::Run(one, record))) => {
                    self.outcomes.run_ms += ms;
                    self.ran(ran, &one, *record)?;
                }
                _ => unreachable!("a bench answers what it was asked, once"),
            }
        }
    }

    /// Starts batches until two are in flight.
    fn fill(&mut self) -> Result<(), AttemptEnd<E>> {
        while self.open <= self.newest {
            let proposed = self.source.propose(self.campaign.config.limits.build_batch);
            if proposed.is_empty() {
                return Ok(());
            }
            let is_put_off = self.begin(proposed)?;
            match is_put_off && self.open == 0 {
                true => self.wait()?,
                false => self.waiting_since = None,
            }
        }
        Ok(())
    }

    /// Waits for other processes until the next check.
    fn wait(&mut self) -> Result<(), AttemptEnd<E>> {
        (self.outside.listener)(CampaignEvent::Waiting(self.source.held()));
        let begun = Instant::now();
        let since = *self.waiting_since.get_or_insert(begun);
        let is_over = |pass: &Self| is_over(pass.outside, &pass.start, pass.campaign.config);
        while begun.elapsed() < ASKED_EVERY && !is_over(self) {
            std::thread::sleep(Duration::from_millis(50));
        }
        if since.elapsed() > MOST_WAITED || is_over(self) { Err(AttemptEnd::Stopped) } else { Ok(()) }
    }

    /// Claims a batch and submits the attempts of this process to the bench. Returns whether the
    /// source postponed all of the batch.
    fn begin(&mut self, proposed: Vec<Attempt>) -> Result<bool, AttemptEnd<E>> {
        let wanted = proposed.iter().map(|attempt| Visit { key: attempt.key, number: attempt.visit });
        let turns = (self.outside.claim)(&wanted.collect::<Vec<Visit>>()).map_err(AttemptEnd::Failed)?;
        let (mut ours, mut is_put_off): (Vec<Try>, bool) = (Vec::new(), true);
        for (attempt, turn) in proposed.into_iter().zip(turns) {
            match turn {
                Turn::Ours(number) => ours.push(Try { attempt, number }),
                Turn::Held if self.source.put_off(&attempt) => continue,
                Turn::Made | Turn::Held => {
                    self.outcomes.elsewhere += usize::from(attempt.is_first);
                    self.source.forgo(&attempt);
                }
            }
            is_put_off = false;
        }
        if !ours.is_empty() {
            self.newest = ours.len();
            self.open += ours.len();
        }
        let mut groups: Vec<Vec<Try>> = Vec::new();
        for one in ours {
            match groups.last_mut() {
                Some(group) if group[0].attempt.shares_build_with(&one.attempt) => group.push(one),
                _ => groups.push(vec![one]),
            }
        }
        groups.into_iter().try_for_each(|group| self.submit(group))?;
        Ok(is_put_off)
    }

    /// Submits the build of a group, or its runs if nothing is built.
    fn submit(&mut self, group: Vec<Try>) -> Result<(), AttemptEnd<E>> {
        match jobs::build_job(&group[0].attempt, self.campaign.tasks, self.campaign.target) {
            Some(job) => self.give(BenchWork::Build(job), InHand::Build(group)),
            None => {
                for one in group {
                    let record = begin_record(&one).map_err(failed)?;
                    self.run(one, record, None);
                }
            }
        }
        Ok(())
    }

    /// Runs an artifact, unless the source rejects it after the build.
    fn verify(&mut self, one: Try, artifact: &Artifact) -> Result<(), AttemptEnd<E>> {
        let mut record = begin_record(&one).map_err(failed)?;
        if let Code::Compiled { schedule, .. } = &one.attempt.code {
            record::describe_artifact(&mut record, schedule, artifact).map_err(failed)?;
        }
        match self.source.pass_over(&one.attempt, &record) {
            None => self.run(one, record, Some(artifact)),
            Some(why) => {
                record.started_at_us = record::now_us();
                record::fail(&mut record, Outcome::PassedOver, why);
                self.keep(&one, &record)?;
            }
        }
        Ok(())
    }

    fn run(&mut self, one: Try, record: Record, artifact: Option<&Artifact>) {
        let Campaign { tasks, config, .. } = self.campaign;
        let work = jobs::run((&one.attempt, one.number), artifact, tasks, config);
        self.give(work, InHand::Run(Box::new(one), Box::new(record)));
    }

    fn give(&mut self, work: BenchWork, what: InHand) {
        self.in_hand.insert(self.tickets, what);
        self.bench.submit(self.tickets, work);
        self.tickets += 1;
    }

    /// Runs a built artifact, or records the failure of the build.
    fn built(&mut self, build: Build, tries: Vec<Try>) -> Result<(), AttemptEnd<E>> {
        let (outcome, why) = match build {
            Build::Built(artifact) => return tries.into_iter().try_for_each(|one| self.verify(one, &artifact)),
            Build::Failed(why) => (Outcome::BuildFailed, why),
            Build::Rejected(why) => (Outcome::Skipped, why),
            Build::Fault(Fault::CannotStart { why }) => return Err(self.broken(why)),
            Build::Fault(fault) => (record::outcome_of(&fault, Outcome::BuildFailed), format!("build: {fault}")),
        };
        for one in tries {
            let mut record = begin_record(&one).map_err(failed)?;
            record.started_at_us = record::now_us();
            record::fail(&mut record, outcome, why.clone());
            self.keep(&one, &record)?;
        }
        Ok(())
    }

    /// Records the result of a run.
    fn ran(&mut self, ran: Ran, one: &Try, mut record: Record) -> Result<(), AttemptEnd<E>> {
        if let Err(Fault::CannotStart { why }) = ran.reply {
            return Err(self.broken(why));
        }
        record.started_at_us = record::microseconds(ran.began);
        record::describe_reply(&mut record, &ran.reply).map_err(failed)?;
        self.seen.complete(&one.attempt, &mut record);
        self.keep(one, &record)
    }

    /// Passes a record to the sink, the listener and the source.
    fn keep(&mut self, one: &Try, record: &Record) -> Result<(), AttemptEnd<E>> {
        (self.outside.sink)(record).map_err(AttemptEnd::Failed)?;
        match record.outcome {
            Outcome::PassedOver => self.outcomes.passed_over += 1,
            // Later visits are not counted as attempts, but their losses are reported.
            Outcome::Ok if !one.attempt.is_first => {}
            outcome => *self.outcomes.counts.entry(outcome.name().to_owned()).or_default() += 1,
        }
        (self.outside.listener)(CampaignEvent::Recorded(record));
        self.source.observe(&one.attempt, record);
        if let Some(standing) = self.source.standing() {
            (self.outside.listener)(CampaignEvent::Standing(&standing));
        }
        self.open -= 1;
        Ok(())
    }

    fn broken(&mut self, why: String) -> AttemptEnd<E> {
        self.outcomes.broken = Some(why);
        AttemptEnd::Stopped
    }
}

/// Returns the record of a try that has not started.
fn begin_record(one: &Try) -> Result<Record, RowError> {
    let placement = Json::new(&jobs::placement(&one.attempt, one.number))?;
    Ok(Record { attempt: one.number, placement: Some(placement), ..record::of_attempt(&one.attempt)? })
}

/// Results of earlier visits that later records repeat.
#[derive(Default)]
struct SeenAttempt {
    /// Errors against the reference, which is compared only in the first visit.
    errors: HashMap<Key, (Option<f64>, Option<f64>)>,
    /// Scatter between visits, by threads and cache state.
    noise_floors: HashMap<(usize, CacheState), NoiseFloor>,
}

impl SeenAttempt {
    fn complete(&mut self, attempt: &Attempt, record: &mut Record) {
        let Some(median_ns) = record.median_ns.filter(|_| record.outcome == Outcome::Ok) else { return };
        if attempt.is_first {
            self.errors.insert(record.key, (record.max_abs_error, record.max_rel_error));
        } else if let Some(errors) = self.errors.get(&record.key) {
            (record.max_abs_error, record.max_rel_error) = *errors;
        }
        let floor = self.noise_floors.entry((attempt.cpus.len(), attempt.state)).or_default();
        floor.take(record.key, median_ns);
        record.noise_floor = floor.pooled();
    }
}

fn failed<E: From<RowError>>(error: RowError) -> AttemptEnd<E> {
    AttemptEnd::Failed(error.into())
}

fn is_over<E>(outside: &Outside<'_, E>, start: &Instant, config: &Config) -> bool {
    (outside.should_stop)() || config.budget_seconds.is_some_and(|budget| start.elapsed().as_secs_f64() > budget)
}
