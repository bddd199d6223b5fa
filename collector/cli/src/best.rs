//! `dataset best`: the best known schedules and times.

use super::{Result, paper, print, print_json, tell, tell_damage};
use bench::{Bench, Versions};
use clap::Args;
use datasets::best::{Answer, Best, Question, best};
use datasets::{Choose, Record};
use engine::campaign::CurrentConditions;
use engine::campaign::config::Limits;
use engine::campaign::record::{self, of_host};
use engine::failure::Failure;
use engine::machine;
use engine::stores::{failed, left_out_note, open};
use job::revision::Revisions;
use job::target::{Kind, Target};
use measure::host::Facts;
use report::{Table, duration, figures, or_unknown, words};
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Of what the best is asked.
#[derive(Clone, Debug, Args)]
pub struct BestQuestion {
    /// The store
    #[arg(long, value_name = "DIR", default_value = "opcollect-data")]
    pub store: PathBuf,
    /// Only tasks of this operator, such as `conv2d`
    #[arg(long, value_name = "KIND")]
    pub operator: Option<String>,
    /// Only tasks whose text contains this, or whose hash begins with it
    #[arg(long, value_name = "TEXT")]
    pub task: Option<String>,
    /// Only tasks of this model, and their sum
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// Only times on so many threads
    #[arg(long, value_name = "N")]
    pub threads: Option<i64>,
    /// The host, or its class; without records of it, the nearest that is known [default: this machine]
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,
    /// Also use times of other TVM versions, code revisions and clock policies, and show them
    #[arg(long)]
    pub all_versions: bool,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Report<'a> {
    tasks: &'a [Best],
    left_out: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    total_ns: Option<f64>,
}

/// The answer of a store for this machine or the nearest host.
pub struct StoreAnswer {
    /// The best of each task.
    pub answer: Answer,
    /// Names and classes of all hosts in the store.
    pub hosts: BTreeSet<String>,
    /// The exit code, which reports damage of the store.
    pub code: u8,
}

/// Answers.
pub fn run(asked: &BestQuestion) -> Result<u8> {
    let question = Question {
        operator: asked.operator.clone(),
        task: asked.task.clone(),
        model: asked.model.clone(),
        threads: asked.threads,
        host: asked.host.clone(),
        all_versions: asked.all_versions,
    };
    let StoreAnswer { answer, hosts, code } = ask(&asked.store, &question)?;
    let Answer { tasks: found, left_out } = &answer;
    if let Some(host) = asked.host.as_ref().filter(|host| !hosts.contains(*host)) {
        return Err(Failure::usage(format!("`{}` has no record of the host `{host}`", asked.store.display()))
            .with_hint(models::names::hint(host, hosts.iter().map(String::as_str))));
    }
    if found.is_empty() {
        return Err(match left_out {
            0 => Failure::usage(format!("`{}` has no time of what was asked for", asked.store.display()))
                .with_hint("`opcollect dataset stats` says what a store holds"),
            _ => Failure::usage(format!(
                "`{}` has {left_out} times for this question, all of other versions than those of this machine",
                asked.store.display()
            ))
            .with_hint("measure again, or use them with `--all-versions`"),
        });
    }
    tell(&left_out_note(*left_out).into_iter().collect::<Vec<_>>());
    let total_ns = asked.model.as_ref().and_then(|_| total(found));
    if asked.json {
        print_json(&Report { tasks: found, left_out: *left_out, total_ns })?;
        return Ok(code);
    }
    print(&table(found, asked.all_versions))?;
    if let (Some(total), Some(model)) = (total_ns, &asked.model) {
        print(&format!("{model}: {} by the best of each task, one after the other", duration(total)))?;
    }
    let elsewhere: Vec<&Best> = found.iter().filter(|best| best.distance > 0.0).collect();
    if asked.host.is_none() && !elsewhere.is_empty() {
        let Best { host, versions, .. } = elsewhere[0];
        tell(&[format!(
            "{} of {} tasks were not measured here; the nearest host that was is `{host}` ({versions})",
            elsewhere.len(),
            found.len()
        )]);
    }
    Ok(code)
}

/// Asks a store. For the host class of this machine, only times under current conditions count; for others, the newest.
pub fn ask(store: &Path, question: &Question) -> Result<StoreAnswer> {
    let facts = Facts::read();
    let here = of_host(&facts);
    let records = open(store)?.records(Choose::All).map_err(failed)?;
    let code = tell_damage(records.damage());
    let (mut asked, mut own, mut hosts) = (Vec::new(), Vec::new(), BTreeSet::new());
    for record in records {
        let record = record.map_err(failed)?;
        if !hosts.contains(&record.host) {
            hosts.insert(record.host.clone());
        }
        if !hosts.contains(&record.host_class) {
            hosts.insert(record.host_class.clone());
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
    if let Some(now) = current_conditions(&own, &facts) {
        own.retain(|record| now.match_record(record));
    }
    let left_out = own_count - own.len();
    asked.extend(own.into_iter().map(Record::lean));
    let mut answer = best(&asked, question, &here);
    answer.left_out += left_out;
    Ok(StoreAnswer { answer, hosts, code })
}

/// Returns the conditions of a measurement on this machine, for the kinds of targets of some records. Returns None if there are no
/// records, or if the compiler cannot be started; the newest versions in the store are the fallback then.
fn current_conditions(records: &[Record], facts: &Facts) -> Option<CurrentConditions> {
    if records.is_empty() {
        return None;
    }
    let has = |target: datasets::Target| records.iter().any(|record| record.target == target);
    let of_kinds = |bench: &mut dyn Bench| -> Result<Vec<Record>> {
        let versions = machine::versions(bench)?;
        let processor = machine::guess("llvm")?;
        let described = |kind: Kind, text: &str, versions: &Versions| {
            let target = Target { kind, text: text.to_owned(), machine: processor };
            record::of_machine(&target, facts, versions, "")
        };
        let mut bases = vec![described(Kind::Llvm, "llvm", &versions)];
        // Without a device or a library, no record of it is current.
        if let Some(device) = has(datasets::Target::Cuda).then(|| machine::device_versions(bench).ok()).flatten() {
            let all: Versions = versions.clone().into_iter().chain(device).collect();
            bases.push(described(Kind::Cuda, "cuda", &all));
        }
        let wants_library = has(datasets::Target::Torch);
        if let Some(library) = wants_library.then(|| machine::library_worker("its times", bench).ok()).flatten() {
            bases.push(record::of_library(&bases[0], &machine::library_target(&library)?));
        }
        Ok(bases)
    };
    match machine::workers(&Limits::default()).and_then(|mut workers| of_kinds(&mut workers)) {
        Ok(bases) => Some(CurrentConditions::new(bases, Revisions::own().clone())),
        Err(failure) => {
            tell(&[format!(
                "the installed versions are unknown, so the newest versions in the store count: {}",
                failure.message()
            )]);
            None
        }
    }
}

/// The time of a model whose tasks are each at their best, where all are on one number of threads and one cache state at most once.
fn total(found: &[Best]) -> Option<f64> {
    let mut seen: Vec<(&str, f64, i64)> = Vec::new();
    for best in found {
        match seen.iter_mut().find(|(hash, ..)| *hash == best.task_hash) {
            Some((_, ns, _)) => *ns = ns.min(best.median_ns),
            None => seen.push((&best.task_hash, best.median_ns, best.count?)),
        }
    }
    Some(seen.iter().map(|(_, ns, count)| ns * *count as f64).sum())
}

/// Returns the answers as a table, with versions if they may differ from those of this machine.
fn table(found: &[Best], all_versions: bool) -> String {
    let has_versions = all_versions || found.iter().any(|best| best.distance >= 1.0);
    let columns = [
        words("task").least(24),
        figures("×").drops(3),
        figures("threads"),
        figures("median"),
        figures("±"),
        figures("schedules"),
        words("by").drops(2),
        words("host").drops(1),
    ];
    let versions = has_versions.then(|| words("versions").least(16));
    let mut table = Table::new(columns.into_iter().chain(versions));
    for best in found {
        let half = best.interval_ns.map(|(low, high)| (high - low) / 2.0 / best.median_ns);
        let schedule = best.schedule_hash.as_deref().map(|hash| &hash[..hash.len().min(8)]);
        let row = [
            best.task.clone(),
            or_unknown(best.count, |count| count.to_string()),
            or_unknown(best.threads, |threads| threads.to_string()),
            duration(best.median_ns),
            or_unknown(half, report::percent),
            best.schedules.to_string(),
            schedule.unwrap_or_default().to_owned(),
            best.host.clone(),
        ];
        table.row(row.into_iter().chain(has_versions.then(|| best.versions.clone())));
    }
    table.on(&paper())
}
