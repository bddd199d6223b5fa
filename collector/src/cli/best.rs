//! `dataset best`: the best known schedules and times.

use super::arguments::BestQuestion;
use super::failure::Failure;
use super::stores::{failed, open, tell_damage};
use super::{Result, paper, print, print_json, tell};
use crate::campaign::record::of_host;
use datasets::best::{Best, Question, best, hosts};
use datasets::{Choose, Record};
use measure::host::Facts;
use report::{Table, duration, figures, or_unknown, words};
use serde::Serialize;

/// What `--json` prints.
#[derive(Serialize)]
struct Report<'a> {
    tasks: &'a [Best],
    #[serde(skip_serializing_if = "Option::is_none")]
    total_ns: Option<f64>,
}

/// Answers.
pub fn run(asked: &BestQuestion) -> Result<u8> {
    let records = open(&asked.store)?.records(Choose::All).map_err(failed)?;
    let code = tell_damage(records.damage());
    let records: Vec<Record> =
        records.map(|record| record.map(Record::lean)).collect::<datasets::Result<_>>().map_err(failed)?;
    let known = hosts(&records);
    if let Some(host) = asked.host.as_deref().filter(|host| !known.contains(host)) {
        return Err(Failure::usage(format!("`{}` has no record of the host `{host}`", asked.store.display()))
            .with_hint(models::names::hint(host, known)));
    }
    let question = Question {
        operator: asked.operator.clone(),
        task: asked.task.clone(),
        model: asked.model.clone(),
        threads: asked.threads,
        host: asked.host.clone(),
    };
    let found = best(&records, &question, &of_host(&Facts::read()));
    if found.is_empty() {
        return Err(Failure::usage(format!("`{}` has no time of what was asked for", asked.store.display()))
            .with_hint("`opcollect dataset stats` says what a store holds"));
    }
    let total_ns = asked.model.as_ref().and_then(|_| total(&found));
    if asked.json {
        print_json(&Report { tasks: &found, total_ns })?;
        return Ok(code);
    }
    print(&table(&found))?;
    if let (Some(total), Some(model)) = (total_ns, &asked.model) {
        print(&format!("{model}: {} by the best of each task, one after the other", duration(total)))?;
    }
    let elsewhere: Vec<&Best> = found.iter().filter(|best| best.distance > 0.0).collect();
    if asked.host.is_none() && !elsewhere.is_empty() {
        let host = &elsewhere[0].host;
        tell(&[format!(
            "{} of {} tasks were not measured here; the nearest host that was is `{host}`",
            elsewhere.len(),
            found.len()
        )]);
    }
    Ok(code)
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

fn table(found: &[Best]) -> String {
    let mut table = Table::new([
        words("task").least(24),
        figures("×").drops(3),
        figures("threads"),
        figures("median"),
        figures("±"),
        figures("schedules"),
        words("by").drops(2),
        words("host").drops(1),
    ]);
    for best in found {
        let half = best.interval_ns.map(|(low, high)| (high - low) / 2.0 / best.median_ns);
        let schedule = best.schedule_hash.as_deref().map(|hash| &hash[..hash.len().min(8)]);
        table.row([
            best.task.clone(),
            or_unknown(best.count, |count| count.to_string()),
            or_unknown(best.threads, |threads| threads.to_string()),
            duration(best.median_ns),
            or_unknown(half, report::percent),
            best.schedules.to_string(),
            schedule.unwrap_or_default().to_owned(),
            best.host.clone(),
        ]);
    }
    table.on(&paper())
}
