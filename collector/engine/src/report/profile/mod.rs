//! Formats a profile: its rows, the totals, and the cost of profiling.

pub mod changes;
pub mod code;
pub mod simulated;
mod summary;
mod table;

pub use summary::{OperatorRecords, ProfileView, Report, TotalTimes};

use super::styled::StyledTable;
use profile::summary::threads::Thread;
use report::{Paper, format_count, format_duration, format_number, format_percent, format_size, or_unknown};
use std::collections::BTreeSet;

/// Formats a profile: its rows, or the table in another tool's style, followed by totals and notes.
pub fn describe_profile(report: &Report, view: ProfileView, styled: Option<&StyledTable>, paper: &Paper) -> String {
    let ProfileView { row_limit, .. } = view;
    let mut lines = vec![format!(
        "{}: {} of {}, {}, seed {}",
        report.model,
        format_count(report.calls, "call"),
        format_count(report.tasks, "task"),
        format_count(report.threads, "thread"),
        report.seed
    )];
    match styled {
        Some(styled) => lines.push(styled.format_text(row_limit, paper)),
        None => lines.push(table::build_table(report, view).format_for(paper)),
    }
    if styled.is_none() && report.rows.len() > row_limit {
        let (left, all) = (report.rows.len() - row_limit, report.rows.len());
        lines.push(format!("{}: `--row-limit {all}` shows all", format_count(left, "more row")));
    }
    lines.push(String::new());
    lines.extend(thread_lines(report));
    lines.extend(total_lines(report));
    lines.push(format!(
        "memory          {} of activations (at least {}), {} of constants, {} the whole process",
        format_size(report.activation_bytes),
        format_size(report.least_activation_bytes),
        format_size(report.constant_bytes),
        format_size(report.peak_memory_bytes)
    ));
    for energy in &report.energy {
        let (domain, source) = (&energy.domain, &energy.source);
        lines.push(format!("energy          {} mJ a run ({domain}, by {source})", format_number(energy.millijoules)));
    }
    lines.push(match &report.check {
        None => "check           none".to_owned(),
        Some(check) => format!("check           {}", if check.is_right { "right" } else { "WRONG" }),
    });
    let stored = |records: &OperatorRecords| format!("records         {} in `{}`", records.keys.len(), records.store);
    lines.extend(report.records.as_ref().map(stored));
    lines.extend(report.perf_map.as_ref().map(|path| format!("names for perf  `{}`", path.display())));
    lines.extend(reading_cost(report));
    lines.extend(refused_lines(report));
    lines.extend(report.notes.iter().map(|note| format!("note            {note}")));
    lines.join("\n")
}

fn thread_lines(report: &Report) -> Vec<String> {
    let steps = report.totals.steps.max(1) as f64;
    let mean = |ns: u64| format_duration(ns as f64 / steps);
    let line = |thread: &Thread| {
        let polling = or_unknown(thread.polling_ns, mean);
        let counts = thread.counters.iter().map(|(name, count)| format!("; {} {name}", format_number(*count)));
        format!(
            "{:<15} busy {} a run, {}; idle in operators {}; processor time without {polling}{}",
            thread.name,
            mean(thread.busy_ns),
            format_percent(thread.busy_share),
            mean(thread.idle_ns),
            counts.collect::<String>()
        )
    };
    report.threads_of_pool.iter().map(line).collect()
}

fn total_lines(report: &Report) -> Vec<String> {
    let totals = &report.totals;
    let steps = totals.steps.max(1) as f64;
    let part = |ns: u64| if totals.total_ns == 0 { 0.0 } else { ns as f64 / totals.total_ns as f64 };
    let mean = |ns: u64| format!("{} a run, {}", format_duration(ns as f64 / steps), format_percent(part(ns)));
    let mut lines = vec![
        format!("sum             {}", mean(totals.sum_ns)),
        format!("not attributed  {}", mean(totals.not_attributed_ns)),
        format!(
            "total           {} a run; median {}, least {}, {} runs{}",
            format_duration(totals.total_ns as f64 / steps),
            format_duration(totals.step_median_ns),
            format_duration(totals.step_min_ns),
            totals.steps,
            report.schedule.as_ref().map(|schedule| format!(" by {schedule}")).unwrap_or_default()
        ),
    ];
    lines.extend(totals.typical.map(|typical| {
        let between = |(low, high)| format!(" ({} … {})", format_duration(low), format_duration(high));
        format!(
            "typical         {}{} a run, by the medians of the operators; most runs were disturbed, each at other \
             operators",
            format_duration(typical.time_ns),
            typical.interval_ns.map(between).unwrap_or_default()
        )
    }));
    lines.extend(totals.bare_median_ns.map(|bare_ns| {
        let slowdown = or_unknown(totals.profiler_slowdown, |ratio| format!("{ratio:.3}×"));
        let interval = totals.profiler_slowdown_interval.map(|(low, high)| format!(" ({low:.3} … {high:.3})"));
        let interval = interval.unwrap_or_default();
        format!(
            "not profiled    {} median, interleaved with these; slowdown {slowdown}{interval}, median ratio of a \
             profiled run to the adjacent one",
            format_duration(bare_ns)
        )
    }));
    lines
}

/// Formats the counts that are caused by reading the counters; None if there are none.
fn reading_cost(report: &Report) -> Option<String> {
    let known =
        report.counters.iter().filter_map(|counter| Some((counter, counter.alone.filter(|alone| *alone > 0.0)?)));
    let all: Vec<String> = known.map(|(counter, alone)| format!("{} {}", format_number(alone), counter.name)).collect();
    (!all.is_empty()).then(|| format!("reading cost    reading the counters adds {}", all.join(", ")))
}

fn refused_lines(report: &Report) -> Vec<String> {
    let counted = |name: &&str| report.rows.iter().any(|row| row.counters.contains_key(*name));
    let given: BTreeSet<&str> = report.counters.iter().map(|counter| counter.name.as_str()).filter(counted).collect();
    let lacking: BTreeSet<&str> = report.refusals.iter().map(|refusal| refusal.counter.as_str()).collect();
    let reason = |name: &&str| {
        let last = report.refusals.iter().rfind(|refusal| refusal.counter == **name)?;
        Some(format!("not counted     {name}: {} ({})", last.why, last.source))
    };
    lacking.iter().filter(|name| !given.contains(**name)).filter_map(reason).collect()
}
