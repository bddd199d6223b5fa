//! Measures one record of a store again, with the record's own settings.

use crate::bases::base_records;
use crate::campaign::collect::{CampaignCallbacks, claim_all};
use crate::campaign::config::Limits;
use crate::campaign::settings::SweepSettings;
use crate::campaign::{Attempt, Campaign, Code, RecordedAttempt, Settings, Sweep, collect_attempts};
use crate::failure::{Failure, format_chain};
use crate::observer::Observer;
use crate::stores::{note_damage, open_existing, store_failure};
use crate::{Result, machine};
use bench::{Bench, Remembering};
use datasets::{Choose, EXPERIMENT, Key, Record, RowError};
use job::space::Schedule;
use measure::counters::{self, CounterRequest};
use measure::host::Facts;
use report::{format_count, format_duration};
use serde::Serialize;
use std::path::Path;
use targets::HOST;

/// A record and the result of its replay.
#[derive(Debug, Serialize)]
pub struct RecordReplay {
    /// Key of the record.
    pub key: String,
    /// The task as text.
    pub task: String,
    /// The schedule as text.
    pub schedule: String,
    /// Number of threads.
    pub threads: usize,
    /// Median time in the record, in nanoseconds.
    pub recorded_median_ns: Option<f64>,
    /// Median time of the replay, in nanoseconds.
    pub median_ns: Option<f64>,
    /// Width of the confidence interval of the replay's median, in nanoseconds.
    pub median_interval_ns: Option<f64>,
    /// Ratio of the replay's time to the recorded time.
    pub ratio: Option<f64>,
    /// Reason why the replay has no time.
    pub loss: Option<String>,
    /// Columns in which the record and the replay differ, so that they are different experiments.
    pub differs_in: Vec<&'static str>,
}

/// Measures a record again without storing the result. Waits up to `wait_seconds` for other processes.
pub fn replay_record(store: &Path, key: &str, wait_seconds: u64, observer: &dyn Observer) -> Result<RecordReplay> {
    let key: Key = key.parse().map_err(|_| {
        Failure::usage(format!("`{key}` is not a key"))
            .with_hint("a key has 32 hexadecimal digits; see the column `key`")
    })?;
    let recorded = find_record(store, key, observer)?;
    let now = measure_again(&recorded, wait_seconds, observer)?;
    Ok(RecordReplay::new(&recorded, &now))
}

/// Returns the record with a key. If there is none, damaged parts are noted, because they may contain it.
fn find_record(store: &Path, key: Key, observer: &dyn Observer) -> Result<Record> {
    let mut records = open_existing(store)?.select_records(Choose::Middle).map_err(store_failure)?;
    for record in records.by_ref() {
        let record = record.map_err(store_failure)?;
        if record.key == key {
            return Ok(record);
        }
    }
    note_damage(records.damage(), observer);
    let failure = Failure::usage(format!("the store `{}` has no readable record {key}", store.display()));
    Err(if records.damage().is_empty() {
        failure
    } else {
        failure.with_hint("part of the store is damaged; see `opcollect dataset verify`")
    })
}

/// Measures a record's experiment once, as a campaign of one attempt, and returns the new record.
fn measure_again(recorded: &Record, wait_seconds: u64, observer: &dyn Observer) -> Result<Record> {
    let facts = Facts::read_facts();
    let recorded_attempt = RecordedAttempt::from_record(recorded, machine::guess_machine(HOST, None)?)
        .map_err(|error| Failure::usage(format!("cannot replay the record {}: {error}", recorded.key)))?;
    refuse_foreign_cpus(&recorded_attempt.cpus)?;
    let settings = Settings {
        sweep: SweepSettings { seed: Some(recorded_attempt.seed), ..SweepSettings::default() },
        counters: CounterRequest { backend: counters::Backend::None, ..CounterRequest::default() },
        limits: Limits { builders: 1, spin_count: recorded_attempt.spin_count, ..Limits::default() },
        ..Settings::default()
    };
    let config = settings.check(machine::allowed_cpus()?.len()).map_err(Failure::usage)?;
    let mut workers = machine::create_workers(&config.limits)?;
    let tasks = [recorded_attempt.task.clone()];
    let library = machine::library_versions(&tasks, &[], &mut workers)?;
    let versions = machine::collect_versions(&recorded_attempt.target, library, &mut workers)?;
    let bases = base_records(&config, &recorded_attempt.target, &facts, &versions)?;
    let base = if recorded_attempt.code == Code::Library { &bases.library } else { &bases.compiled };
    let attempt = recorded_attempt.plan_attempt(base).map_err(|error| Failure::usage(format_chain(&error)))?;
    let campaign = Campaign { tasks: &tasks, modules: &[], target: &recorded_attempt.target, config: &config };
    let _exclusive = machine::lock_cpus(wait_seconds, observer)?;
    run_attempt(attempt, &campaign, &mut workers)
}

fn run_attempt(attempt: Attempt, campaign: &Campaign<'_>, bench: &mut dyn Bench) -> Result<Record> {
    let mut made: Vec<Record> = Vec::new();
    let mut sink = |record: &Record| -> std::result::Result<(), RowError> {
        made.push(record.clone());
        Ok(())
    };
    let mut callbacks =
        CampaignCallbacks { sink: &mut sink, listener: &mut |_| (), should_stop: &|| false, claim: &mut claim_all };
    let outcomes =
        collect_attempts(&mut Sweep::new(vec![attempt]), campaign, &mut Remembering::new(bench), &mut callbacks);
    let broken = outcomes.map_err(Failure::environment)?.broken;
    datasets::choose_records(made, Choose::Middle).pop().ok_or_else(|| {
        let why = broken.unwrap_or_else(|| "its code was not built".to_owned());
        Failure::environment(format!("cannot start a worker: {why}")).with_hint(machine::worker_hint())
    })
}

fn refuse_foreign_cpus(cpus: &[usize]) -> Result<()> {
    let allowed = machine::allowed_cpus()?;
    let foreign: Vec<String> = cpus.iter().filter(|cpu| !allowed.contains(cpu)).map(usize::to_string).collect();
    if cpus.is_empty() || !foreign.is_empty() {
        let problem = format!("the record ran on CPUs that this process may not use: {}", foreign.join(", "));
        return Err(Failure::environment(problem).with_hint("replay it on the machine it comes from"));
    }
    Ok(())
}

impl RecordReplay {
    fn new(recorded: &Record, now: &Record) -> RecordReplay {
        let schedule = now.schedule.as_ref().and_then(|text| Schedule::from_json(text.as_text()).ok());
        let differs = EXPERIMENT.iter().filter(|&&id| recorded.cell(id) != now.cell(id));
        RecordReplay {
            key: recorded.key.to_hex(),
            task: now.op_text.clone(),
            schedule: schedule.map_or_else(|| "library".to_owned(), |schedule| schedule.describe_knobs()),
            threads: now.threads.and_then(|threads| usize::try_from(threads).ok()).unwrap_or(0),
            recorded_median_ns: recorded.median_ns,
            median_ns: now.median_ns,
            median_interval_ns: now.median_interval_ns,
            ratio: now.median_ns.zip(recorded.median_ns).map(|(now, then)| now / then),
            loss: now.reason.as_ref().map(|why| format!("{}: {why}", now.outcome)),
            differs_in: differs.map(|id| id.name()).collect(),
        }
    }

    /// Formats both times and the columns that differ.
    pub fn describe(&self) -> String {
        let time = |ns: Option<f64>| ns.map(format_duration).unwrap_or_else(|| "no time".to_owned());
        let mut text = format!(
            "{}\n{} · {}\nrecorded {}, now {}",
            self.task,
            self.schedule,
            format_count(self.threads, "thread"),
            time(self.recorded_median_ns),
            time(self.median_ns)
        );
        if let Some(ratio) = self.ratio {
            text.push_str(&format!(", ratio {ratio:.3}"));
        }
        if let Some(loss) = &self.loss {
            text.push_str(&format!("\n{loss}"));
        }
        if !self.differs_in.is_empty() {
            text.push_str(&format!(
                "\nthis experiment differs from the recorded one in {}",
                self.differs_in.join(", ")
            ));
        }
        text
    }
}
