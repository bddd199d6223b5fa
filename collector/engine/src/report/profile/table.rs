//! Formats the rows of a profile as a table.

use super::summary::{ProfileView, Report};
use measure::counters::names::CPU_TIME;
use profile::summary::Row;
use report::{
    Cell, Column, Table, format_duration, format_number, format_percent, format_size, number_column, or_unknown,
    text_column,
};
use std::collections::BTreeSet;

/// Heading and formula of a column that is derived from counters; shown if any row has a value.
type DerivedColumn = (&'static str, fn(&Row) -> Option<f64>);

const DERIVED: [DerivedColumn; 4] = [
    ("IPC", |row| row.derived.instructions_per_cycle),
    ("misses/kFLOP", |row| row.derived.llc_misses_per_kflop),
    ("GB/s missed", |row| row.derived.llc_gbytes_per_second),
    ("GHz", |row| row.derived.ghz),
];

struct TableColumns<'a> {
    has_cpu: bool,
    has_parts: bool,
    has_memory: bool,
    derived: Vec<&'static DerivedColumn>,
    counters: BTreeSet<&'a String>,
}

pub fn build_table(report: &Report, view: ProfileView) -> Table {
    let shown = &report.rows[..view.row_limit.min(report.rows.len())];
    // Counters of CPU time have a column of their own.
    let is_other = |name: &&String| !name.starts_with(CPU_TIME);
    let columns = TableColumns {
        has_cpu: shown.iter().any(|row| row.cpu_ns.is_some()),
        has_parts: shown.iter().any(|row| row.spread.tasks_per_call.is_some()),
        has_memory: view.has_memory,
        derived: DERIVED.iter().filter(|(_, value)| shown.iter().any(|row| value(row).is_some())).collect(),
        counters: shown.iter().flat_map(|row| row.counters.keys()).filter(is_other).collect(),
    };
    let mut table = Table::new(columns.column_headings(if report.group_by == "scope" { "scope" } else { "operator" }));
    for row in shown {
        table.add_row(columns.row_cells(report, row));
    }
    table
}

impl TableColumns<'_> {
    fn column_headings(&self, first: &str) -> Vec<Column> {
        let mut columns = vec![
            text_column(first),
            number_column("×"),
            number_column("share"),
            number_column("median"),
            number_column("self total"),
            number_column("of total").drop_order(4),
            number_column("min").drop_order(3),
            number_column("p95").drop_order(2),
            number_column("MFLOP").drop_order(4),
            number_column("GFLOP/s"),
            number_column("roofline"),
            number_column("GB/s").drop_order(6),
        ];
        columns.extend(self.has_cpu.then(|| number_column("processor").drop_order(3)));
        if self.has_parts {
            columns.extend([number_column("imbalance"), number_column("wake").drop_order(5)]);
        }
        columns.extend(self.derived.iter().map(|(name, _)| number_column(*name).drop_order(1)));
        if self.has_memory {
            columns.extend([number_column("takes"), number_column("taken"), number_column("workspace")]);
        }
        columns.extend(self.counters.iter().map(|name| number_column(name.replace('_', " ")).drop_order(1)));
        columns
    }

    fn row_cells(&self, report: &Report, row: &Row) -> Vec<Cell> {
        let mut cells = vec![
            row_label(row),
            report::format_plain(row.calls_per_step),
            format_percent(row.share),
            format_duration(row.median_ns),
            format_duration(row.self_total_ns as f64),
            format_percent(row.total_share),
            format_duration(row.min_ns),
            format_duration(row.p95_ns),
            or_unknown(row.flops, |flops| format_number(flops * 1e-6)),
            or_unknown(row.gflops_per_second.filter(|rate| *rate > 0.0), format_number),
            or_unknown(row.roofline_share, |share| format!("{:.0} %", 100.0 * share)),
            or_unknown(row.gbytes_per_second.filter(|rate| *rate > 0.0), format_number),
        ];
        cells.extend(self.has_cpu.then(|| or_unknown(row.cpu_ns, format_duration)));
        if self.has_parts {
            cells.push(or_unknown(row.spread.imbalance, |ratio| format!("{ratio:.2}×")));
            cells.push(or_unknown(row.spread.wake_ns, format_duration));
        }
        cells.extend(self.derived.iter().map(|(_, value)| or_unknown(value(row), format_number)));
        if self.has_memory {
            let bytes = [row.allocated_bytes, row.live_bytes, row.workspace_bytes];
            cells.extend(bytes.map(|bytes| or_unknown(bytes, format_size)));
        }
        let counted = |name: &&String| or_unknown(row.counters.get(*name), |count| count_text(report, name, *count));
        cells.extend(self.counters.iter().map(counted));
        cells.into_iter().map(Cell::from).collect()
    }
}

/// Formats a counter value, with a `≤` if reading the counters alone causes a comparable count.
fn count_text(report: &Report, name: &str, count: f64) -> String {
    let alone = report.counters.iter().find(|counter| counter.name == name).and_then(|counter| counter.alone);
    match alone {
        Some(alone) if count > 0.0 && count <= 2.0 * alone => format!("≤ {}", format_number(count)),
        _ => format_number(count),
    }
}

/// Returns the name of a row: with sizes for a single task, and with the call's name for a single call.
fn row_label(row: &Row) -> String {
    let is_single_call = !row.text.is_empty() && row.calls_per_step <= 1.0 && !row.scope.is_empty();
    if is_single_call { format!("{} ({})", row.text, row.scope) } else { row.title().to_owned() }
}
