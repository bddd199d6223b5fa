//! Formats the rows of a profile as a table.

use super::summary::{ProfileView, Report};
use profile::summary::Row;
use report::{Cell, Column, Table, duration, figures, number, or_unknown, percent, size, words};
use std::collections::BTreeSet;

/// A column that is derived from counters, shown if all of those were counted.
type DerivedColumn = (&'static str, fn(&Row) -> Option<f64>);

const DERIVED: [DerivedColumn; 4] = [
    ("IPC", |row| row.derived.instructions_per_cycle),
    ("misses/kFLOP", |row| row.derived.llc_misses_per_kflop),
    ("GB/s missed", |row| row.derived.llc_gbytes_per_second),
    ("GHz", |row| row.derived.ghz),
];

/// Prefix of the counters of processor time, which has a column of its own.
const CPU_TIME: &str = "thread_cpu_ns";

/// The optional columns of a table.
struct TableColumns<'a> {
    has_cpu: bool,
    has_parts: bool,
    has_memory: bool,
    derived: Vec<&'static DerivedColumn>,
    counters: BTreeSet<&'a String>,
}

/// Returns the table.
pub fn rows(report: &Report, view: ProfileView) -> Table {
    let shown = &report.rows[..view.row_limit.min(report.rows.len())];
    let is_other = |name: &&String| !name.starts_with(CPU_TIME);
    let columns = TableColumns {
        has_cpu: shown.iter().any(|row| row.cpu_ns.is_some()),
        has_parts: shown.iter().any(|row| row.spread.tasks_per_call.is_some()),
        has_memory: view.has_memory,
        derived: DERIVED.iter().filter(|(_, value)| shown.iter().any(|row| value(row).is_some())).collect(),
        counters: shown.iter().flat_map(|row| row.counters.keys()).filter(is_other).collect(),
    };
    let mut table = Table::new(columns.headings(if report.group_by == "scope" { "scope" } else { "operator" }));
    for row in shown {
        table.row(columns.cells(report, row));
    }
    table
}

impl TableColumns<'_> {
    fn headings(&self, first: &str) -> Vec<Column> {
        let mut columns = vec![
            words(first),
            figures("×"),
            figures("share"),
            figures("median"),
            figures("self total"),
            figures("of total").drops(4),
            figures("min").drops(3),
            figures("p95").drops(2),
            figures("MFLOP").drops(4),
            figures("GFLOP/s"),
            figures("roofline"),
            figures("GB/s").drops(6),
        ];
        columns.extend(self.has_cpu.then(|| figures("processor").drops(3)));
        if self.has_parts {
            columns.extend([figures("imbalance"), figures("wake").drops(5)]);
        }
        columns.extend(self.derived.iter().map(|(name, _)| figures(*name).drops(1)));
        if self.has_memory {
            columns.extend([figures("takes"), figures("taken"), figures("workspace")]);
        }
        columns.extend(self.counters.iter().map(|name| figures(name.replace('_', " ")).drops(1)));
        columns
    }

    fn cells(&self, report: &Report, row: &Row) -> Vec<Cell> {
        let mut cells = vec![
            label(row),
            report::plain(row.calls_per_step),
            percent(row.share),
            duration(row.median_ns),
            duration(row.self_total_ns as f64),
            percent(row.total_share),
            duration(row.min_ns),
            duration(row.p95_ns),
            or_unknown(row.flops, |flops| number(flops * 1e-6)),
            or_unknown(row.gflops_per_second.filter(|rate| *rate > 0.0), number),
            or_unknown(row.roofline_share, |share| format!("{:.0} %", 100.0 * share)),
            or_unknown(row.gbytes_per_second.filter(|rate| *rate > 0.0), number),
        ];
        cells.extend(self.has_cpu.then(|| or_unknown(row.cpu_ns, duration)));
        if self.has_parts {
            cells.push(or_unknown(row.spread.imbalance, |ratio| format!("{ratio:.2}×")));
            cells.push(or_unknown(row.spread.wake_ns, duration));
        }
        cells.extend(self.derived.iter().map(|(_, value)| or_unknown(value(row), number)));
        if self.has_memory {
            let bytes = [row.allocated_bytes, row.live_bytes, row.workspace_bytes];
            cells.extend(bytes.map(|bytes| or_unknown(bytes, size)));
        }
        let counted = |name: &&String| or_unknown(row.counters.get(*name), |count| count_text(report, name, *count));
        cells.extend(self.counters.iter().map(counted));
        cells.into_iter().map(Cell::from).collect()
    }
}

/// Formats a count. If reading the counters alone causes a comparable count, only an upper bound is
/// known.
fn count_text(report: &Report, name: &str, count: f64) -> String {
    let alone = report.counters.iter().find(|counter| counter.name == name).and_then(|counter| counter.alone);
    match alone {
        Some(alone) if count > 0.0 && count <= 2.0 * alone => format!("≤ {}", number(count)),
        _ => number(count),
    }
}

/// Returns the name of a row: with sizes if it has a single task, and with the name of the call if
/// it is a single call.
fn label(row: &Row) -> String {
    match row.text.is_empty() {
        true => row.name.clone(),
        false if row.calls_per_step <= 1.0 && !row.scope.is_empty() => format!("{} ({})", row.text, row.scope),
        false => row.text.clone(),
    }
}
