//! A profile for a reader: rows, the whole that they are parts of, and what looking cost.

use super::styled::Styled;
use super::{Report, Stored};
use crate::profile::arguments::ProfileTable;
use crate::{model, paper};
use profile::summary::Row;
use profile::summary::threads::Thread;
use report::{Cell, Table, duration, figures, number, or_unknown, percent, words};
use std::collections::BTreeSet;

/// The table with what stands below it.
pub fn describe(report: &Report<'_>, asked: &ProfileTable, styled: Option<&Styled>) -> String {
    let row_limit = asked.row_limit;
    let plural = if report.threads == 1 { "" } else { "s" };
    let mut lines = vec![format!(
        "{}: {} calls of {} tasks, {} thread{plural}, seed {}",
        report.model, report.calls, report.tasks, report.threads, report.seed
    )];
    match styled {
        Some(styled) => lines.push(styled.table(row_limit)),
        None => lines.push(rows(report, asked).on(&paper())),
    }
    if styled.is_none() && report.rows.len() > row_limit {
        lines.push(format!(
            "{} more rows: `--row-limit {}` shows all",
            report.rows.len() - row_limit,
            report.rows.len()
        ));
    }
    lines.push(String::new());
    lines.extend(threads(report));
    lines.extend(whole(report));
    lines.push(format!(
        "memory          {} of activations (at least {}), {} of constants, {} the whole process",
        model::size(report.activation_bytes),
        model::size(report.least_activation_bytes),
        model::size(report.constant_bytes),
        model::size(report.peak_memory_bytes)
    ));
    for energy in report.energy {
        let (domain, source) = (&energy.domain, &energy.source);
        lines.push(format!("energy          {} mJ a run ({domain}, by {source})", number(energy.millijoules)));
    }
    lines.push(match &report.check {
        None => "check           none".to_owned(),
        Some(check) => format!("check           {}", if check.is_right { "right" } else { "WRONG" }),
    });
    let stored = |stored: &Stored| format!("records         {} in `{}`", stored.keys.len(), stored.store);
    lines.extend(report.records.as_ref().map(stored));
    let named = |path: &std::path::PathBuf| format!("names for perf  `{}`", path.display());
    lines.extend(report.perf_map.as_ref().map(named));
    lines.extend(alone(report));
    lines.extend(refused(report));
    lines.extend(report.notes.iter().map(|note| format!("note            {note}")));
    lines.join("\n")
}

/// What follows from counts: shown where all that it takes was counted.
type DerivedColumn = (&'static str, fn(&Row) -> Option<f64>);

const DERIVED: [DerivedColumn; 4] = [
    ("IPC", |row| row.derived.instructions_per_cycle),
    ("misses/kFLOP", |row| row.derived.llc_misses_per_kflop),
    ("GB/s missed", |row| row.derived.llc_gbytes_per_second),
    ("GHz", |row| row.derived.ghz),
];

/// What counters of processor time begin with.
const CPU_TIME: &str = "thread_cpu_ns";

fn rows(report: &Report<'_>, asked: &ProfileTable) -> Table {
    let shown = &report.rows[..asked.row_limit.min(report.rows.len())];
    // Processor time has a column of its own.
    let is_shown = |name: &&String| !name.starts_with(CPU_TIME);
    let counters: BTreeSet<&String> = shown.iter().flat_map(|row| row.counters.keys()).filter(is_shown).collect();
    let has_cpu = shown.iter().any(|row| row.cpu_ns.is_some());
    let is_scope = report.group_by == "scope";
    let mut columns = vec![
        words(if is_scope { "scope" } else { "operator" }),
        figures("×"),
        figures("self total"),
        figures("share"),
        figures("median"),
        figures("min").drops(3),
        figures("p95").drops(2),
        figures("MFLOP").drops(4),
        figures("GFLOP/s"),
        figures("roofline"),
        figures("GB/s").drops(6),
    ];
    if has_cpu {
        columns.push(figures("processor").drops(3));
    }
    let has_parts = shown.iter().any(|row| row.spread.tasks_per_call.is_some());
    if has_parts {
        columns.extend([figures("imbalance"), figures("wake").drops(5)]);
    }
    let derived: Vec<&DerivedColumn> =
        DERIVED.iter().filter(|(_, value)| shown.iter().any(|row| value(row).is_some())).collect();
    columns.extend(derived.iter().map(|(name, _)| figures(*name).drops(1)));
    if asked.profile_memory {
        columns.extend([figures("takes"), figures("taken"), figures("workspace")]);
    }
    columns.extend(counters.iter().map(|name| figures(name.replace('_', " ")).drops(1)));
    let mut table = Table::new(columns);
    for row in shown {
        let mut cells: Vec<Cell> = vec![
            label(row).into(),
            report::plain(row.calls_per_step).into(),
            duration(row.self_total_ns as f64).into(),
            percent(row.share).into(),
            duration(row.median_ns).into(),
            duration(row.min_ns).into(),
            duration(row.p95_ns).into(),
            or_unknown(row.flops, |flops| number(flops * 1e-6)).into(),
            or_unknown(row.gflops_per_second.filter(|rate| *rate > 0.0), number).into(),
            or_unknown(row.roofline_share, |share| format!("{:.0} %", 100.0 * share)).into(),
            or_unknown(row.gbytes_per_second.filter(|rate| *rate > 0.0), number).into(),
        ];
        if has_cpu {
            cells.push(or_unknown(row.cpu_ns, duration).into());
        }
        if has_parts {
            cells.push(or_unknown(row.spread.imbalance, |ratio| format!("{ratio:.2}×")).into());
            cells.push(or_unknown(row.spread.wake_ns, duration).into());
        }
        cells.extend(derived.iter().map(|(_, value)| Cell::from(or_unknown(value(row), number))));
        if asked.profile_memory {
            let bytes = |bytes: Option<u64>| Cell::from(or_unknown(bytes, model::size));
            cells.extend([bytes(row.allocated_bytes), bytes(row.live_bytes), bytes(row.workspace_bytes)]);
        }
        cells.extend(
            counters
                .iter()
                .map(|name| or_unknown(row.counters.get(*name), |count| counted(report, name, *count)).into()),
        );
        table.row(cells);
    }
    table
}

/// A count; where reading alone counts as much, it only says that there was no more.
fn counted(report: &Report<'_>, name: &str, count: f64) -> String {
    let alone = report.counters.iter().find(|counter| counter.name == name).and_then(|counter| counter.alone);
    match alone {
        Some(alone) if count > 0.0 && count <= 2.0 * alone => format!("≤ {}", number(count)),
        _ => number(count),
    }
}

/// What a row is: with sizes where it has one task, and where it stands where it is one call.
fn label(row: &Row) -> String {
    match row.text.is_empty() {
        true => row.name.clone(),
        false if row.calls_per_step <= 1.0 && !row.scope.is_empty() => format!("{} ({})", row.text, row.scope),
        false => row.text.clone(),
    }
}

/// What each thread of the pool did.
fn threads(report: &Report<'_>) -> Vec<String> {
    let steps = report.totals.steps.max(1) as f64;
    let mean = |ns: u64| duration(ns as f64 / steps);
    let line = |thread: &Thread| {
        let polling = or_unknown(thread.polling_ns, mean);
        let counts = thread.counters.iter().map(|(name, count)| format!("; {} {name}", number(*count)));
        format!(
            "{:<15} busy {} a run, {}; idle in operators {}; on the processor beside {polling}{}",
            thread.name,
            mean(thread.busy_ns),
            percent(thread.busy_share),
            mean(thread.idle_ns),
            counts.collect::<String>()
        )
    };
    report.threads_of_pool.iter().map(line).collect()
}

/// Sum, total, and what is between them.
fn whole(report: &Report<'_>) -> Vec<String> {
    let totals = &report.totals;
    let steps = totals.steps.max(1) as f64;
    let part = |ns: u64| if totals.total_ns == 0 { 0.0 } else { ns as f64 / totals.total_ns as f64 };
    let mean = |ns: u64| format!("{} a run, {}", duration(ns as f64 / steps), percent(part(ns)));
    let mut lines = vec![
        format!("sum             {}", mean(totals.sum_ns)),
        format!("not attributed  {}", mean(totals.not_attributed_ns)),
        format!(
            "total           {} a run; median {}, least {}, {} runs{}",
            duration(totals.total_ns as f64 / steps),
            duration(totals.step_median_ns),
            duration(totals.step_min_ns),
            totals.steps,
            report.schedule.as_ref().map(|schedule| format!(" by {schedule}")).unwrap_or_default()
        ),
    ];
    lines.extend(totals.bare_median_ns.map(|bare_ns| {
        let slowdown = or_unknown(totals.profiler_slowdown, |ratio| format!("{ratio:.3}×"));
        let interval = totals.profiler_slowdown_interval.map(|(low, high)| format!(" ({low:.3} … {high:.3})"));
        let interval = interval.unwrap_or_default();
        format!("not profiled    {} median, in turns with these; slowdown {slowdown}{interval}", duration(bare_ns))
    }));
    lines
}

/// What counters count of their own reading.
fn alone(report: &Report<'_>) -> Option<String> {
    let known =
        report.counters.iter().filter_map(|counter| Some((counter, counter.alone.filter(|alone| *alone > 0.0)?)));
    let all: Vec<String> = known.map(|(counter, alone)| format!("{} {}", number(alone), counter.name)).collect();
    (!all.is_empty()).then(|| format!("reading alone   counts {}", all.join(", ")))
}

/// Counters that nobody gave, each once with its last reason.
fn refused(report: &Report<'_>) -> Vec<String> {
    let counted = |name: &&str| report.rows.iter().any(|row| row.counters.contains_key(*name));
    let given: BTreeSet<&str> = report.counters.iter().map(|counter| counter.name.as_str()).filter(counted).collect();
    let lacking: BTreeSet<&str> = report.refusals.iter().map(|refusal| refusal.counter.as_str()).collect();
    let reason = |name: &&str| {
        let last = report.refusals.iter().rfind(|refusal| refusal.counter == **name)?;
        Some(format!("not counted     {name}: {} ({})", last.why, last.source))
    };
    let never = lacking.iter().filter(|name| !given.contains(**name));
    never.filter_map(reason).collect()
}
