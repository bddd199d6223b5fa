//! CSV output of rows, with one column per counter. Unknown values are empty.

use super::Row;
use std::collections::BTreeSet;
use std::io::{Error, Write};

pub fn write_rows(rows: &[Row], sink: impl Write) -> Result<(), Error> {
    let counters: BTreeSet<&String> = rows.iter().flat_map(|row| row.counters.keys()).collect();
    let mut writer = csv::Writer::from_writer(sink);
    let names = COLUMNS.iter().map(|(name, _)| *name).chain(counters.iter().map(|name| name.as_str()));
    writer.write_record(names)?;
    for row in rows {
        let counts = counters.iter().map(|name| format_number(row.counters.get(*name).copied()));
        writer.write_record(COLUMNS.iter().map(|(_, text)| text(row)).chain(counts))?;
    }
    writer.flush()
}

type Column = (&'static str, fn(&Row) -> String);

const COLUMNS: [Column; 28] = [
    ("name", |row| row.name.clone()),
    ("text", |row| row.text.clone()),
    ("scope", |row| row.scope.clone()),
    ("task_hash", |row| row.task.clone().unwrap_or_default()),
    ("schedule_hash", |row| row.schedule.clone().unwrap_or_default()),
    ("input_shapes", |row| serde_json::to_string(&row.input_shapes).unwrap_or_default()),
    ("input_dtypes", |row| row.input_dtypes.join(" ")),
    ("layout", |row| row.layout.clone().unwrap_or_default()),
    ("calls", |row| row.calls.to_string()),
    ("calls_per_step", |row| row.calls_per_step.to_string()),
    ("self_total_ns", |row| row.self_total_ns.to_string()),
    ("total_ns", |row| row.total_ns.to_string()),
    ("mean_ns", |row| row.mean_ns.to_string()),
    ("median_ns", |row| row.median_ns.to_string()),
    ("min_ns", |row| row.min_ns.to_string()),
    ("p95_ns", |row| row.p95_ns.to_string()),
    ("cpu_ns", |row| format_number(row.cpu_ns)),
    ("typical_ns", |row| row.typical_ns.to_string()),
    ("share", |row| row.share.to_string()),
    ("total_share", |row| row.total_share.to_string()),
    ("flops", |row| format_number(row.flops)),
    ("bytes", |row| format_number(row.bytes)),
    ("gflops_per_second", |row| format_number(row.gflops_per_second)),
    ("gbytes_per_second", |row| format_number(row.gbytes_per_second)),
    ("roofline_share", |row| format_number(row.roofline_share)),
    ("allocated_bytes", |row| row.allocated_bytes.map(|bytes| bytes.to_string()).unwrap_or_default()),
    ("workspace_bytes", |row| row.workspace_bytes.map(|bytes| bytes.to_string()).unwrap_or_default()),
    ("live_bytes", |row| row.live_bytes.map(|bytes| bytes.to_string()).unwrap_or_default()),
];

fn format_number(value: Option<f64>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}
