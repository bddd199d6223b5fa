//! The best known schedule and time of each task in a store, for this machine or the most similar host.

use crate::campaign::CurrentConditions;
use crate::campaign::config::Limits;
use crate::campaign::record::{self, host_record};
use crate::failure::Failure;
use crate::observer::Observer;
use crate::stores::{left_out_note, note_damage, open_existing, store_failure};
use crate::{Result, machine};
use bench::{Bench, Versions};
use datasets::best::{Answer, Best, Question, best_records};
use datasets::{Choose, Record, Source};
use job::revision::Revisions;
use job::space::Schedule;
use measure::host::Facts;
use report::{Paper, Table, format_count, format_duration, number_column, or_unknown, text_column};
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::Path;
use targets::{HOST, Kind, Target};

/// The best known times of the tasks that match a query.
#[derive(Debug, Serialize)]
pub struct BestTimes {
    /// Best time of each task, slowest first.
    pub tasks: Vec<Best>,
    /// Number of measurements that were omitted because they were made with other versions.
    pub left_out: usize,
    /// Sum of the best times of the model's tasks, each weighted by its count. None if only some tasks are requested or
    /// the times are of several batch sizes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_ns: Option<f64>,
    /// Number of matching tasks that were tried, but have no time.
    pub untimed_tasks: usize,
    /// Number of matching times that were not measured on hardware here: emulated, simulated or imported ones.
    #[serde(skip)]
    pub not_measured: usize,
    /// Whether a part of the store could not be read.
    #[serde(skip)]
    pub is_damaged: bool,
}

/// Returns the best time of each task that matches a query, or an error if there is none.
pub fn find_best(store: &Path, question: &Question, observer: &dyn Observer) -> Result<BestTimes> {
    let (times, hosts) = find_in_store(store, question, observer)?;
    if let Some(host) = question.host.as_ref().filter(|host| !hosts.contains(*host)) {
        return Err(Failure::usage(format!("the store `{}` has no record of the host `{host}`", store.display()))
            .with_hint(models::names::name_hint(host, hosts.iter().map(String::as_str))));
    }
    if times.tasks.is_empty() {
        return Err(match times.left_out {
            0 if times.not_measured > 0 => Failure::usage(format!(
                "the store `{}` has no measured time that matches, only {}",
                store.display(),
                format_count(times.not_measured, "emulated, simulated or imported time")
            ))
            .with_hint("`opcollect dataset query` shows them, with their origin in the column `source`"),
            0 => Failure::usage(format!("the store `{}` has no matching time", store.display()))
                .with_hint("`opcollect dataset stats` shows the contents of a store"),
            left_out => Failure::usage(format!(
                "the store `{}` has {}, measured with other versions than this machine's",
                store.display(),
                format_count(left_out, "matching time")
            ))
            .with_hint("measure again, or use them with `--all-versions`"),
        });
    }
    observer.receive_notes(&left_out_note(times.left_out).into_iter().collect::<Vec<_>>());
    let is_whole = question.model.is_some() && question.operator.is_none() && question.task.is_none();
    let total_ns = is_whole.then(|| total_ns(&times.tasks)).flatten();
    Ok(BestTimes { total_ns, ..times })
}

/// Returns each task's best time: with current versions for this host class, with the newest ones for other classes.
pub fn best_in_store(store: &Path, question: &Question, observer: &dyn Observer) -> Result<Vec<Best>> {
    Ok(find_in_store(store, question, observer)?.0.tasks)
}

/// Returns the best times in a store, with the names and classes of all hosts in it.
fn find_in_store(store: &Path, question: &Question, observer: &dyn Observer) -> Result<(BestTimes, BTreeSet<String>)> {
    let facts = Facts::read_facts();
    let here = host_record(&facts);
    let records = open_existing(store)?.select_records(Choose::All).map_err(store_failure)?;
    note_damage(records.damage(), observer);
    let is_damaged = !records.damage().is_empty();
    let (mut matching, mut own, mut hosts) = (Vec::new(), Vec::new(), BTreeSet::new());
    let (mut not_measured, mut tried) = (0, BTreeSet::new());
    for record in records {
        let record = record.map_err(store_failure)?;
        for host in [&record.host, &record.host_class] {
            if !hosts.contains(host) {
                hosts.insert(host.clone());
            }
        }
        match question.matches_time(&record) {
            true if record.source != Source::Measured => not_measured += 1,
            true if record.host_class == here.host_class && !question.all_versions => {
                own.push(Record { task: record.task.clone(), ..record.without_long_columns() });
            }
            true => matching.push(record.without_long_columns()),
            false if record.source == Source::Measured && question.matches_attempt(&record) => {
                tried.insert(record.task_hash);
            }
            false => {}
        }
    }
    let own_count = own.len();
    if let Some(now) = current_conditions(&own, &facts, observer) {
        own.retain(|record| now.match_record(record));
    }
    let old_count = own_count - own.len();
    matching.extend(own.into_iter().map(Record::without_long_columns));
    let Answer { tasks, left_out } = best_records(&matching, question, &here);
    tasks.iter().for_each(|best| {
        tried.remove(&best.task_hash);
    });
    let left_out = left_out + old_count;
    let times = BestTimes { tasks, left_out, total_ns: None, untimed_tasks: tried.len(), not_measured, is_damaged };
    Ok((times, hosts))
}

/// Returns the conditions of a measurement made now; None without records, or if the compiler cannot be started.
fn current_conditions(records: &[Record], facts: &Facts, observer: &dyn Observer) -> Option<CurrentConditions> {
    if records.is_empty() {
        return None;
    }
    let has = |target: datasets::Target| records.iter().any(|record| record.target == target);
    let of_kinds = |bench: &mut dyn Bench| -> Result<Vec<Record>> {
        let versions = machine::builder_versions(bench)?;
        let processor = machine::guess_machine(HOST, None)?;
        let described = |kind: Kind, versions: &Versions| {
            let target = Target { kind, text: kind.name().to_owned(), machine: processor };
            record::machine_record(&target, facts, versions, "").map_err(Failure::usage)
        };
        let mut bases = vec![described(targets::host_kind(), &versions)?];
        // Records of an absent device or library are never current.
        for kind in targets::KINDS.iter().copied().filter(|kind| kind.runs_on_gpu() && has(kind.record_word())) {
            if let Ok(device) = machine::device_versions(bench) {
                let all: Versions = versions.clone().into_iter().chain(device).collect();
                bases.push(described(kind, &all)?);
            }
        }
        let wants_library = has(targets::library_kind().record_word());
        if let Some(library) = wants_library.then(|| machine::library_worker("its times", bench).ok()).flatten() {
            bases.push(record::library_record(&bases[0], &machine::library_target(&library)?));
        }
        Ok(bases)
    };
    match machine::create_workers(&Limits::default()).and_then(|mut workers| of_kinds(&mut workers)) {
        Ok(bases) => Some(CurrentConditions::new(bases, Revisions::embedded_table().clone())),
        Err(failure) => {
            observer.note(format!(
                "the installed versions are unknown, so the newest versions in the store count: {}",
                failure.message()
            ));
            None
        }
    }
}

/// Returns the knobs of a schedule, or the beginning of its hash if this program cannot decode it.
fn schedule_text(best: &Best) -> String {
    let read = best.schedule.as_ref().and_then(|json| Schedule::from_json(json.as_text()).ok());
    let hash = || best.schedule_hash.as_deref().map_or_else(String::new, |hash| hash.chars().take(8).collect());
    read.map_or_else(hash, |schedule| schedule.describe_knobs())
}

/// Returns the sum of the best times of a model's tasks, or None if a task has no count or batch sizes differ.
fn total_ns(tasks: &[Best]) -> Option<f64> {
    if !tasks.iter().all(|best| best.batch == tasks[0].batch) {
        return None;
    }
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
    /// Returns a line about the sum of the times of a model's tasks; None if there is no sum.
    pub fn describe_total(&self, model: &str) -> Option<String> {
        let timed = self.tasks.iter().map(|best| &best.task_hash).collect::<BTreeSet<_>>().len();
        let untimed = match self.untimed_tasks {
            0 => String::new(),
            count => format!("; {} without a time", format_count(count, "task")),
        };
        self.total_ns.map(|total_ns| {
            let (sum, tasks) = (format_duration(total_ns), format_count(timed, "task"));
            format!("{model}: {sum}, the sum of the fastest times of the {tasks} in the store{untimed}")
        })
    }

    /// Returns a note about tasks that were not measured on this machine, if there are any.
    pub fn elsewhere_note(&self) -> Option<String> {
        let elsewhere: Vec<&Best> = self.tasks.iter().filter(|best| best.distance > 0.0).collect();
        elsewhere.first().map(|Best { host, versions, .. }| {
            format!(
                "{} of {} tasks were not measured on this machine; their times are from the most similar host, \
                 `{host}` ({versions})",
                elsewhere.len(),
                self.tasks.len()
            )
        })
    }

    /// Formats the times as a table. Versions are included if `all_versions` is set or a time is from another host.
    pub fn format_table(&self, all_versions: bool, paper: &Paper) -> String {
        let has_versions = all_versions || self.tasks.iter().any(|best| best.distance >= 1.0);
        let columns = [
            text_column("task").min_width(24),
            number_column("×").drop_order(3),
            number_column("threads"),
            number_column("median"),
            number_column("±"),
            number_column("schedules"),
            text_column("schedule").min_width(20).drop_order(1),
            text_column("host").drop_order(2),
        ];
        let versions = has_versions.then(|| text_column("versions").min_width(16));
        let mut table = Table::new(columns.into_iter().chain(versions));
        for best in &self.tasks {
            let half = best.interval_ns.map(|(low, high)| (high - low) / 2.0 / best.median_ns);
            let row = [
                best.task.clone(),
                or_unknown(best.count, |count| count.to_string()),
                or_unknown(best.threads, |threads| threads.to_string()),
                format_duration(best.median_ns),
                or_unknown(half, report::format_percent),
                best.schedules.to_string(),
                schedule_text(best),
                best.host.clone(),
            ];
            table.add_row(row.into_iter().chain(has_versions.then(|| best.versions.clone())));
        }
        table.format_for(paper)
    }
}
