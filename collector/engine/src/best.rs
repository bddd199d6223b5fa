//! The best known schedule and time of each task in a store, for this machine or the nearest host.

use crate::campaign::CurrentConditions;
use crate::campaign::config::Limits;
use crate::campaign::record::{self, of_host};
use crate::failure::Failure;
use crate::observer::Observer;
use crate::stores::{failed, left_out_note, note_damage, open};
use crate::{Result, machine};
use bench::{Bench, Versions};
use datasets::best::{Answer, Best, Question, best};
use datasets::{Choose, Record};
use job::revision::Revisions;
use job::space::Schedule;
use measure::host::Facts;
use report::{Paper, Table, duration, figures, or_unknown, words};
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::Path;
use targets::{HOST, Kind, Target};

/// The best known times of the tasks that match a question.
#[derive(Debug, Serialize)]
pub struct BestTimes {
    /// Best time of each task, slowest first.
    pub tasks: Vec<Best>,
    /// Number of times that were left out because of their versions.
    pub left_out: usize,
    /// Sum of the best times of the model's tasks, each weighted by its count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_ns: Option<f64>,
    /// Whether a part of the store could not be read.
    #[serde(skip)]
    pub is_damaged: bool,
}

/// Returns the best time of each task that matches a question, or an error if there is none.
pub fn find_best(store: &Path, question: &Question, observer: &dyn Observer) -> Result<BestTimes> {
    let (times, hosts) = ask_store(store, question, observer)?;
    if let Some(host) = question.host.as_ref().filter(|host| !hosts.contains(*host)) {
        return Err(Failure::usage(format!("`{}` has no record of the host `{host}`", store.display()))
            .with_hint(models::names::hint(host, hosts.iter().map(String::as_str))));
    }
    if times.tasks.is_empty() {
        return Err(match times.left_out {
            0 => Failure::usage(format!("`{}` has no matching time", store.display()))
                .with_hint("`opcollect dataset stats` shows the contents of a store"),
            left_out => Failure::usage(format!(
                "`{}` has {left_out} matching times, all of other versions than those of this machine",
                store.display()
            ))
            .with_hint("measure again, or use them with `--all-versions`"),
        });
    }
    observer.notes(&left_out_note(times.left_out).into_iter().collect::<Vec<_>>());
    let total_ns = question.model.as_ref().and_then(|_| total_ns(&times.tasks));
    Ok(BestTimes { total_ns, ..times })
}

/// Returns the best time of each task in a store. For the host class of this machine, only times
/// under current conditions count; for other hosts, those of the newest versions.
pub fn best_in_store(store: &Path, question: &Question, observer: &dyn Observer) -> Result<Vec<Best>> {
    Ok(ask_store(store, question, observer)?.0.tasks)
}

/// Returns the best times in a store, with the names and classes of all hosts in it.
fn ask_store(store: &Path, question: &Question, observer: &dyn Observer) -> Result<(BestTimes, BTreeSet<String>)> {
    let facts = Facts::read();
    let here = of_host(&facts);
    let records = open(store)?.records(Choose::All).map_err(failed)?;
    note_damage(records.damage(), observer);
    let is_damaged = !records.damage().is_empty();
    let (mut asked, mut own, mut hosts) = (Vec::new(), Vec::new(), BTreeSet::new());
    for record in records {
        let record = record.map_err(failed)?;
        for host in [&record.host, &record.host_class] {
            if !hosts.contains(host) {
                hosts.insert(host.clone());
            }
        }
        match question.is_about(&record) {
            true if record.host_class == here.host_class && !question.all_versions => {
                own.push(Record { task: record.task.clone(), ..record.lean() });
            }
            true => asked.push(record.lean()),
            false => {}
        }
    }
    let own_count = own.len();
    if let Some(now) = current_conditions(&own, &facts, observer) {
        own.retain(|record| now.match_record(record));
    }
    let old_count = own_count - own.len();
    asked.extend(own.into_iter().map(Record::lean));
    let Answer { tasks, left_out } = best(&asked, question, &here);
    Ok((BestTimes { tasks, left_out: left_out + old_count, total_ns: None, is_damaged }, hosts))
}

/// Returns the conditions of a measurement on this machine, for the kinds of targets of some records. Returns None if there are no
/// records, or if the compiler cannot be started; the newest versions in the store are the fallback then.
fn current_conditions(records: &[Record], facts: &Facts, observer: &dyn Observer) -> Option<CurrentConditions> {
    if records.is_empty() {
        return None;
    }
    let has = |target: datasets::Target| records.iter().any(|record| record.target == target);
    let of_kinds = |bench: &mut dyn Bench| -> Result<Vec<Record>> {
        let versions = machine::versions(bench)?;
        let processor = machine::guess(HOST)?;
        let described = |kind: Kind, versions: &Versions| {
            let target = Target { kind, text: kind.name().to_owned(), machine: processor };
            record::of_machine(&target, facts, versions, "").map_err(Failure::usage)
        };
        let mut bases = vec![described(targets::host(), &versions)?];
        // Records of an absent device or library are never current.
        for kind in targets::KINDS.iter().copied().filter(|kind| kind.runs_on_gpu() && has(kind.record_word())) {
            if let Ok(device) = machine::device_versions(bench) {
                let all: Versions = versions.clone().into_iter().chain(device).collect();
                bases.push(described(kind, &all)?);
            }
        }
        let wants_library = has(targets::library().record_word());
        if let Some(library) = wants_library.then(|| machine::library_worker("its times", bench).ok()).flatten() {
            bases.push(record::of_library(&bases[0], &machine::library_target(&library)?));
        }
        Ok(bases)
    };
    match machine::workers(&Limits::default()).and_then(|mut workers| of_kinds(&mut workers)) {
        Ok(bases) => Some(CurrentConditions::new(bases, Revisions::own().clone())),
        Err(failure) => {
            observer.note(format!(
                "the installed versions are unknown, so the newest versions in the store count: {}",
                failure.message()
            ));
            None
        }
    }
}

/// Returns the knobs of a schedule, or the beginning of its hash where this program cannot read it.
fn schedule(best: &Best) -> String {
    let read = best.schedule.as_ref().and_then(|json| Schedule::from_json(json.text()).ok());
    let hash = || best.schedule_hash.as_deref().map_or_else(String::new, |hash| hash.chars().take(8).collect());
    read.map_or_else(hash, |schedule| schedule.describe())
}

/// Returns the sum of the best times of a model's tasks, or None if a task has no count.
fn total_ns(tasks: &[Best]) -> Option<f64> {
    let mut fastest: Vec<(&str, f64, i64)> = Vec::new();
    for best in tasks {
        match fastest.iter_mut().find(|(hash, ..)| *hash == best.task_hash) {
            Some((_, ns, _)) => *ns = ns.min(best.median_ns),
            None => fastest.push((&best.task_hash, best.median_ns, best.count?)),
        }
    }
    Some(fastest.iter().map(|(_, ns, count)| ns * *count as f64).sum())
}

impl BestTimes {
    /// Returns a note on the tasks that were not measured on this machine, if there are any.
    pub fn elsewhere_note(&self) -> Option<String> {
        let elsewhere: Vec<&Best> = self.tasks.iter().filter(|best| best.distance > 0.0).collect();
        elsewhere.first().map(|Best { host, versions, .. }| {
            format!(
                "{} of {} tasks were not measured here; times are of the most similar host, `{host}` ({versions})",
                elsewhere.len(),
                self.tasks.len()
            )
        })
    }

    /// Returns the times as a table, with versions if `all_versions` is set or a host is not this machine.
    pub fn table(&self, all_versions: bool, paper: &Paper) -> String {
        let has_versions = all_versions || self.tasks.iter().any(|best| best.distance >= 1.0);
        let columns = [
            words("task").least(24),
            figures("×").drops(3),
            figures("threads"),
            figures("median"),
            figures("±"),
            figures("schedules"),
            words("schedule").least(20).drops(1),
            words("host").drops(2),
        ];
        let versions = has_versions.then(|| words("versions").least(16));
        let mut table = Table::new(columns.into_iter().chain(versions));
        for best in &self.tasks {
            let half = best.interval_ns.map(|(low, high)| (high - low) / 2.0 / best.median_ns);
            let row = [
                best.task.clone(),
                or_unknown(best.count, |count| count.to_string()),
                or_unknown(best.threads, |threads| threads.to_string()),
                duration(best.median_ns),
                or_unknown(half, report::percent),
                best.schedules.to_string(),
                schedule(best),
                best.host.clone(),
            ];
            table.row(row.into_iter().chain(has_versions.then(|| best.versions.clone())));
        }
        table.on(paper)
    }
}
