//! Tables with times from other sources: one line per operator, one column per device.

use crate::error::{Error, Result};
use samples::text::{file_label, read_bounded};
use std::path::Path;

const BYTES_MAX: u64 = 16 << 20;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct TimesTable {
    pub operators: Vec<String>,
    pub devices: Vec<String>,
    pub times_ns: Vec<Vec<f64>>,
    /// 90 % intervals of the times; empty if they are unknown.
    pub intervals_ns: Vec<Vec<(f64, f64)>>,
    /// Source of the times, such as `predicted by gpu.opp`.
    pub source: String,
}

impl TimesTable {
    /// Returns whether a time is only a lower bound, whose interval has no upper end.
    pub fn is_lower_bound(&self, operator: usize, device: usize) -> bool {
        let intervals_ns = self.intervals_ns.get(operator);
        intervals_ns.is_some_and(|all| all[device].0.is_finite() && !all[device].1.is_finite())
    }
}

/// Reads a CSV table with the header `operator,DEVICE,DEVICE…`.
pub fn read_table(path: &Path) -> Result<TimesTable> {
    let table = parse_table(&read_bounded(path, BYTES_MAX)?).map_err(|problem| Error::table_error(path, problem))?;
    Ok(TimesTable { source: format!("from {}", file_label(path)), ..table })
}

fn parse_table(text: &str) -> std::result::Result<TimesTable, String> {
    let mut lines = text.lines().map(str::trim).enumerate().filter(|(_, line)| !line.is_empty());
    let (_, header) = lines.next().ok_or("the table is empty; its first line must be `operator,DEVICE,…`")?;
    let devices: Vec<String> = header.split(',').skip(1).map(|name| name.trim().to_owned()).collect();
    if devices.is_empty() {
        return Err("the table has no devices; its first line must be `operator,DEVICE,…`".to_owned());
    }
    let mut table = TimesTable { devices, ..TimesTable::default() };
    for (number, line) in lines {
        let mut cells = line.split(',').map(str::trim);
        let name = cells.next().unwrap_or_default();
        let times: Vec<f64> = cells
            .zip(&table.devices)
            .map(|(cell, device)| match cell.parse::<f64>() {
                Ok(time) if time > 0.0 && time.is_finite() => Ok(time),
                _ => Err(format!(
                    "line {}: `{cell}` is not a valid time of `{name}` on `{device}`; give nanoseconds",
                    number + 1
                )),
            })
            .collect::<std::result::Result<_, String>>()?;
        if times.len() != table.devices.len() || line.split(',').count() != table.devices.len() + 1 {
            let found = line.split(',').count() - 1;
            return Err(format!("line {}: {found} times for {} devices", number + 1, table.devices.len()));
        }
        table.operators.push(name.to_owned());
        table.times_ns.push(times);
    }
    if table.operators.is_empty() { Err("the table has no operators".to_owned()) } else { Ok(table) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_read_or_refused() {
        let table = parse_table("operator,cpu,gpu\nconv, 1,9\n\nsoftmax,9,1e0\n").expect("a table");
        assert_eq!((table.operators.len(), table.devices.join(" ")), (2, "cpu gpu".to_owned()));
        assert_eq!(table.times_ns, [[1.0, 9.0], [9.0, 1.0]]);
        for (text, wanted) in [
            ("", "the table is empty"),
            ("operator\nx\n", "no devices"),
            ("operator,cpu\n", "no operators"),
            ("operator,cpu\nx,-1\n", "line 2: `-1` is not a valid time of `x` on `cpu`"),
            ("operator,cpu,gpu\nx,1\n", "line 2: 1 times for 2 devices"),
            ("operator,cpu\nx,1,2\n", "line 2: 2 times for 1 devices"),
        ] {
            let refused = parse_table(text).expect_err("no table");
            assert!(refused.contains(wanted), "{refused}");
        }
    }
}
