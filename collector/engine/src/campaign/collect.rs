//! Attempts → records.

use super::config::Config;
use super::module::PlannedModule;
use super::planned::{Attempt, Code, PlannedTask};
use super::source::Source;
use super::{jobs, record};
use bench::{Bench, Build, Done, Ran, Ticket, Work};
use datasets::{CacheState, Json, Key, NoiseFloor, Outcome, Record, RowError};
use job::Artifact;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};
use targets::Target;
use worker::Fault;

/// News of a campaign.
#[derive(Debug)]
pub enum Event<'a> {
    /// A build ended.
    Built,
    /// An attempt ended in this record.
    Recorded(&'a Record),
    /// What the source says of how the work stands.
    Standing(&'a str),
    /// Only attempts that other processes have claimed are left; their number.
    Waiting(usize),
}

/// How many attempts ended in which way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Outcomes {
    /// Count by outcome.
    pub counts: BTreeMap<String, usize>,
    /// What a search built and did not run, which is no attempt.
    pub passed_over: usize,
    /// Why no worker can be started, which ended the campaign.
    pub broken: Option<String>,
    /// Attempts not made because the budget ended, a signal came, or other processes did not make them in time.
    pub left: usize,
    /// Attempts among `left` that other processes have claimed.
    pub held: usize,
    /// Attempts that other processes have claimed or made, and that are not left.
    pub elsewhere: usize,
    /// Time spent waiting for builds, in milliseconds.
    pub build_ms: u64,
    /// Time spent waiting for runs, in milliseconds.
    pub run_ms: u64,
}

impl Outcomes {
    /// Returns the numbers of attempts by outcome as text.
    pub fn text(&self) -> String {
        let counts: Vec<String> = self.counts.iter().map(|(outcome, count)| format!("{count} {outcome}")).collect();
        if counts.is_empty() { "nothing new".to_owned() } else { counts.join(", ") }
    }

    /// Returns these counts plus those of the attempts made next.
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

    /// Attempts that ended in something else than a time.
    pub fn losses(&self) -> usize {
        self.counts.iter().filter(|(name, _)| name.as_str() != Outcome::Ok.name()).map(|(_, count)| count).sum()
    }
}

/// What this process is to do with a visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// To be made by this process, as the try of its experiment with this number.
    Ours(i64),
    /// Made by another process.
    Made,
    /// Claimed by another process, which may end before it is made.
    Held,
}

/// The turn of each of several visits.
pub type Turns = Vec<Turn>;

impl Turn {
    /// Returns the number of the try, if this process is to make it.
    pub fn number(self) -> Option<i64> {
        if let Turn::Ours(number) = self { Some(number) } else { None }
    }
}

/// Where records go and news is heard.
pub struct Outside<'a, E> {
    /// Takes every record as soon as it exists; an error ends the campaign.
    pub sink: &'a mut dyn FnMut(&Record) -> Result<(), E>,
    /// Hears news.
    pub listener: &'a mut dyn FnMut(Event<'_>),
    /// Asked between attempts whether to stop.
    pub should_stop: &'a dyn Fn() -> bool,
    /// Asked before a batch is begun.
    pub claim: &'a mut dyn FnMut(&[Visit]) -> Result<Turns, E>,
}

/// Claims all visits without asking, for campaigns of one process.
pub fn claim_all<E>(wanted: &[Visit]) -> Result<Turns, E> {
    Ok(wanted.iter().map(|visit| Turn::Ours(i64::from(visit.number) + 1)).collect())
}

/// A visit of an experiment that is to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visit {
    /// The experiment.
    pub key: Key,
    /// Which of its visits, counted from 0.
    pub number: u32,
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

/// Makes all attempts that a source proposes.
///
/// Two batches are in hand at a time, so that builds go on while something runs; which of them runs when is the bench's
/// to decide.
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
        seen: Seen::default(),
        open: 0,
        newest: 0,
        tickets: 0,
        waiting_since: None,
    };
    let ended = pass.all();
    pass.bench.abandon();
    if let Err(End::Failed(error)) = ended {
        return Err(error);
    }
    let mut outcomes = pass.outcomes;
    outcomes.left = pass.source.left() + pass.open;
    outcomes.held = pass.source.held();
    Ok(outcomes)
}

/// One way through all attempts.
struct Pass<'a, 'b, E> {
    campaign: Campaign<'a>,
    source: &'a mut dyn Source,
    bench: &'a mut dyn Bench,
    outside: &'a mut Outside<'b, E>,
    start: Instant,
    outcomes: Outcomes,
    /// What the bench was given.
    in_hand: BTreeMap<Ticket, InHand>,
    seen: Seen,
    /// Tries that have no record yet.
    open: usize,
    /// How many tries the newest batch has.
    newest: usize,
    tickets: Ticket,
    /// When this process began to wait for other processes, if none has made anything since.
    waiting_since: Option<Instant>,
}

/// Time between two looks at what other processes have made.
const ASKED_EVERY: Duration = Duration::from_secs(2);
/// Longest wait while other processes make nothing: more than the claims of a process hold that was killed on another machine.
const MOST_WAITED: Duration = Duration::from_secs(8 * 60);

/// What a piece of work is for.
enum InHand {
    /// A build, for these tries.
    Build(Vec<Try>),
    /// A run, with its record as far as it is known before.
    Run(Box<Try>, Box<Record>),
}

/// An attempt that is ours to make.
struct Try {
    attempt: Attempt,
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
    fn all(&mut self) -> Result<(), End<E>> {
        loop {
            self.fill()?;
            if self.in_hand.is_empty() {
                return Ok(());
            }
            let waiting = Instant::now();
            let (outside, start, config) = (&*self.outside, self.start, self.campaign.config);
            let done = self.bench.next(&mut || !is_over(outside, &start, config));
            let ms = u64::try_from(waiting.elapsed().as_millis()).unwrap_or(u64::MAX);
            let (ticket, done) = done.ok_or(End::Stopped)?;
            match (done, self.in_hand.remove(&ticket)) {
                (Done::Built(build), Some(InHand::Build(tries))) => {
                    self.outcomes.build_ms += ms;
                    (self.outside.listener)(Event::Built);
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

    /// Begins batches while no more than the newest is in hand, so that there are two.
    fn fill(&mut self) -> Result<(), End<E>> {
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

    /// Waits for other processes until the next look.
    fn wait(&mut self) -> Result<(), End<E>> {
        (self.outside.listener)(Event::Waiting(self.source.held()));
        let begun = Instant::now();
        let since = *self.waiting_since.get_or_insert(begun);
        let is_over = |pass: &Self| is_over(pass.outside, &pass.start, pass.campaign.config);
        while begun.elapsed() < ASKED_EVERY && !is_over(self) {
            std::thread::sleep(Duration::from_millis(50));
        }
        if since.elapsed() > MOST_WAITED || is_over(self) { Err(End::Stopped) } else { Ok(()) }
    }

    /// Claims a batch and gives what is ours to the bench. Returns whether the source has put off all of it.
    fn begin(&mut self, proposed: Vec<Attempt>) -> Result<bool, End<E>> {
        let wanted = proposed.iter().map(|attempt| Visit { key: attempt.key, number: attempt.visit });
        let turns = (self.outside.claim)(&wanted.collect::<Vec<Visit>>()).map_err(End::Failed)?;
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

    /// The build of a group, or its runs where nothing is built.
    fn submit(&mut self, group: Vec<Try>) -> Result<(), End<E>> {
        match jobs::build_job(&group[0].attempt, self.campaign.tasks, self.campaign.target) {
            Some(job) => self.give(Work::Build(job), InHand::Build(group)),
            None => {
                for one in group {
                    let record = begin_record(&one).map_err(failed)?;
                    self.run(one, record, None);
                }
            }
        }
        Ok(())
    }

    /// Runs what was built, unless its source has seen enough of it.
    fn verify(&mut self, one: Try, artifact: &Artifact) -> Result<(), End<E>> {
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

    fn give(&mut self, work: Work, what: InHand) {
        self.in_hand.insert(self.tickets, what);
        self.bench.submit(self.tickets, work);
        self.tickets += 1;
    }

    /// Runs what was built, or records why nothing was.
    fn built(&mut self, build: Build, tries: Vec<Try>) -> Result<(), End<E>> {
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

    /// Records what became of a run.
    fn ran(&mut self, ran: Ran, one: &Try, mut record: Record) -> Result<(), End<E>> {
        if let Err(Fault::CannotStart { why }) = ran.reply {
            return Err(self.broken(why));
        }
        record.started_at_us = record::microseconds(ran.began);
        record::describe_reply(&mut record, &ran.reply).map_err(failed)?;
        self.seen.complete(&one.attempt, &mut record);
        self.keep(one, &record)
    }

    /// Hands a record to the sink, the listener and the source.
    fn keep(&mut self, one: &Try, record: &Record) -> Result<(), End<E>> {
        (self.outside.sink)(record).map_err(End::Failed)?;
        match record.outcome {
            Outcome::PassedOver => self.outcomes.passed_over += 1,
            // Later visits are no more attempts, but what is lost in them is told.
            Outcome::Ok if !one.attempt.is_first => {}
            outcome => *self.outcomes.counts.entry(outcome.name().to_owned()).or_default() += 1,
        }
        (self.outside.listener)(Event::Recorded(record));
        self.source.observe(&one.attempt, record);
        if let Some(standing) = self.source.standing() {
            (self.outside.listener)(Event::Standing(&standing));
        }
        self.open -= 1;
        Ok(())
    }

    fn broken(&mut self, why: String) -> End<E> {
        self.outcomes.broken = Some(why);
        End::Stopped
    }
}

/// The record of a try that has not begun.
fn begin_record(one: &Try) -> Result<Record, RowError> {
    let placement = Json::new(&jobs::placement(&one.attempt, one.number))?;
    Ok(Record { attempt: one.number, placement: Some(placement), ..record::of_attempt(&one.attempt)? })
}

/// What earlier visits say of the next one's record.
#[derive(Default)]
struct Seen {
    /// How far results of artifacts are from the reference, which is compared once.
    errors: HashMap<Key, (Option<f64>, Option<f64>)>,
    /// Scatter between visits, by threads and cache state.
    noise_floors: HashMap<(usize, CacheState), NoiseFloor>,
}

impl Seen {
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

fn failed<E: From<RowError>>(error: RowError) -> End<E> {
    End::Failed(error.into())
}

fn is_over<E>(outside: &Outside<'_, E>, start: &Instant, config: &Config) -> bool {
    (outside.should_stop)() || config.budget_seconds.is_some_and(|budget| start.elapsed().as_secs_f64() > budget)
}
