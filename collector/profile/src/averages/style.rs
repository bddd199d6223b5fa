//! Two established table styles: torch.profiler's and that of TVM's former profiling report.

use super::{AverageRow, Averages};
use report::{Table, number_column, text_column};

/// Width at which names are truncated, as in torch.profiler.
const NAME_WIDTH: usize = 55;
const SHAPES_WIDTH: usize = 80;

pub fn torch_table(averages: &Averages, limit: usize) -> Table {
    let has_device = averages.rows.iter().any(|row| row.self_device_time_total_ns > 0);
    let has_device_memory = averages.rows.iter().any(|row| row.self_device_memory_usage_bytes > 0);
    let has_shapes = averages.rows.iter().any(|row| row.input_shapes.is_some());
    let has_scopes = averages.rows.iter().any(|row| row.scope.is_some());
    let mut columns = vec![text_column("Name")];
    columns.extend(["Self CPU %", "Self CPU", "CPU total %", "CPU total", "CPU time avg"].map(number_column));
    if has_device {
        columns.extend(["Self device", "Self device %", "device total", "device time avg"].map(number_column));
    }
    if averages.has_memory {
        columns.extend(["CPU Mem", "Self CPU Mem"].map(number_column));
    }
    if averages.has_memory && has_device_memory {
        columns.extend(["device Mem", "Self device Mem"].map(number_column));
    }
    columns.push(number_column("# of Calls"));
    columns.extend(has_scopes.then(|| text_column("Scope")));
    columns.extend(has_shapes.then(|| text_column("Input Shapes")));
    let mut table = Table::new(columns);
    for row in averages.rows.iter().take(limit) {
        let mut cells = vec![truncate_text(&row.name, NAME_WIDTH)];
        cells.extend([
            format_share(row.self_cpu_time_total_ns, averages.self_cpu_time_total_ns),
            format_time(row.self_cpu_time_total_ns as f64),
            format_share(row.cpu_time_total_ns, averages.self_cpu_time_total_ns),
            format_time(row.cpu_time_total_ns as f64),
            format_time(row.cpu_time_ns()),
        ]);
        if has_device {
            cells.extend([
                format_time(row.self_device_time_total_ns as f64),
                format_share(row.self_device_time_total_ns, averages.self_device_time_total_ns),
                format_time(row.device_time_total_ns as f64),
                format_time(row.device_time_ns()),
            ]);
        }
        if averages.has_memory {
            cells.extend([row.cpu_memory_usage_bytes, row.self_cpu_memory_usage_bytes].map(format_bytes));
        }
        if averages.has_memory && has_device_memory {
            cells.extend([row.device_memory_usage_bytes, row.self_device_memory_usage_bytes].map(format_bytes));
        }
        cells.push(row.count.to_string());
        cells.extend(has_scopes.then(|| row.scope.clone().unwrap_or_default()));
        cells.extend(has_shapes.then(|| truncate_text(&format_shapes(row), SHAPES_WIDTH)));
        table.add_row(cells);
    }
    table
}

pub fn torch_footer(averages: &Averages) -> String {
    let mut lines = format!("Self CPU time total: {}", format_time(averages.self_cpu_time_total_ns as f64));
    if averages.rows.iter().any(|row| row.self_device_time_total_ns > 0) {
        lines += &format!("\nSelf device time total: {}", format_time(averages.self_device_time_total_ns as f64));
    }
    lines
}

fn format_time(ns: f64) -> String {
    let us = ns / 1e3;
    match us {
        us if us >= 1e6 => format!("{:.3}s", us / 1e6),
        us if us >= 1e3 => format!("{:.3}ms", us / 1e3),
        us => format!("{us:.3}us"),
    }
}

fn format_share(part: u64, whole: u64) -> String {
    if whole == 0 { "NaN".to_owned() } else { format!("{:.2}%", part as f64 * 100.0 / whole as f64) }
}

fn format_bytes(bytes: i64) -> String {
    let size = bytes as f64;
    match bytes.unsigned_abs() {
        0..0x400 => format!("{bytes} B"),
        0x400..0x10_0000 => format!("{:.2} KB", size / 1024.0),
        0x10_0000..0x4000_0000 => format!("{:.2} MB", size / f64::from(1 << 20)),
        _ => format!("{:.2} GB", size / f64::from(1 << 30)),
    }
}

fn format_shapes(row: &AverageRow) -> String {
    format!("{:?}", row.input_shapes.as_deref().unwrap_or_default())
}

fn truncate_text(text: &str, width: usize) -> String {
    if text.chars().count() < width - 3 {
        return text.to_owned();
    }
    text.chars().take(width - 3).chain("...".chars()).collect()
}

#[cfg(test)]
mod tests {
    use super::{format_bytes, format_share, format_time, truncate_text};

    #[test]
    fn numbers_are_formatted_like_torch() {
        assert_eq!(
            [0.0, 999.0, 999_999.0, 1e6, 33_477_000.0, 1.5e9].map(format_time),
            ["0.000us", "0.999us", "999.999us", "1.000ms", "33.477ms", "1.500s"]
        );
        assert_eq!(
            [0, 1023, -12_544, 1 << 20, 5 << 30].map(format_bytes),
            ["0 B", "1023 B", "-12.25 KB", "1.00 MB", "5.00 GB"]
        );
        assert_eq!((format_share(1, 3).as_str(), format_share(1, 0).as_str()), ("33.33%", "NaN"));
        assert_eq!(truncate_text(&"x".repeat(52), 55), format!("{}...", "x".repeat(52)));
        assert_eq!(truncate_text(&"é".repeat(51), 55), "é".repeat(51));
    }
}
