//! Tables with times from other sources: one line per operator, one column per device.

use crate::error::{Error, Result};
use report::format_count;
use samples::text::{file_label, read_bounded};
use std::path::Path;

const BYTES_MAX: u64 = 16 << 20;
/// Largest time of an operator, eleven days.
const TIME_NS_MAX: f64 = 1e15;

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

/// Returns the first device that the list names twice.
pub(super) fn repeated_device(devices: &[String]) -> Option<&String> {
    devices.iter().enumerate().find(|(place, device)| devices[..*place].contains(device)).map(|(_, device)| device)
}

/// Returns the line of the text in which a row starts. The position of a row may be before the line feed of the previous
/// row, and before empty lines.
fn line_number(text: &str, row: &csv::StringRecord) -> usize {
    let position = row.position().map_or(0, |position| position.byte() as usize);
    let is_text = |byte: &u8| !matches!(byte, b'\r' | b'\n');
    let bytes = text.as_bytes();
    let start = bytes[position..].iter().position(is_text).map_or(bytes.len(), |skipped| position + skipped);
    1 + bytes[..start].iter().filter(|byte| **byte == b'\n').count()
}

fn parse_table(text: &str) -> std::result::Result<TimesTable, String> {
    let mut reader =
        csv::ReaderBuilder::new().has_headers(false).flexible(true).trim(csv::Trim::All).from_reader(text.as_bytes());
    let mut lines = reader.records().map(|line| line.map_err(|error| format!("the table is not CSV: {error}")));
    let header = lines.next().ok_or("the table is empty; its first line must be `operator,DEVICE,…`")??;
    let first = header.get(0).unwrap_or_default();
    if first != "operator" {
        return Err(format!("the first line begins with `{first}`, but it must be `operator,DEVICE,…`"));
    }
    if let Some(number) = header.iter().skip(1).find(|cell| cell.parse::<f64>().is_ok()) {
        return Err(format!(
            "the first line has the number `{number}` instead of a device; it must be `operator,DEVICE,…`"
        ));
    }
    let devices: Vec<String> = header.iter().skip(1).map(str::to_owned).collect();
    if devices.is_empty() {
        return Err("the table has no devices; its first line must be `operator,DEVICE,…`".to_owned());
    }
    if let Some(device) = repeated_device(&devices) {
        return Err(format!("the first line names the device `{device}` twice"));
    }
    if devices.iter().any(String::is_empty) {
        return Err("the first line has a device without a name".to_owned());
    }
    let mut table = TimesTable { devices, ..TimesTable::default() };
    for line in lines {
        let line = line?;
        let number = || line_number(text, &line);
        let name = line.get(0).unwrap_or_default();
        if line.len() != table.devices.len() + 1 {
            let found = line.len() - 1;
            return Err(format!(
                "line {}: {} for {}; a name with commas needs quotes",
                number(),
                format_count(found as u64, "time"),
                format_count(table.devices.len() as u64, "device")
            ));
        }
        let time = |(cell, device): (&str, &String)| match cell.parse::<f64>() {
            Ok(time) if time > 0.0 && time <= TIME_NS_MAX => Ok(time),
            _ => Err(format!(
                "line {}: `{cell}` is not a valid time of `{name}` on `{device}`; give nanoseconds, up to {TIME_NS_MAX:e}",
                number()
            )),
        };
        let times = line.iter().skip(1).zip(&table.devices).map(time);
        table.times_ns.push(times.collect::<std::result::Result<_, String>>()?);
        table.operators.push(name.to_owned());
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
        assert_eq!(parse_table("\u{feff}operator,cpu\nx,1e15\n").map(|table| table.operators.len()), Ok(1));
        let quoted = parse_table("operator,cpu\r\n\"conv2d f32[1,3,8,8]\",5\r\n").expect("a table");
        assert_eq!((quoted.operators, quoted.times_ns), (vec!["conv2d f32[1,3,8,8]".to_owned()], vec![vec![5.0]]));
        for (text, wanted) in [
            ("operator,cpu,cpu\nx,1,2\n", "names the device `cpu` twice"),
            ("operator,cpu,\nx,1,2\n", "a device without a name"),
            ("operator,10,20\nb,30,5\n", "the first line has the number `10` instead of a device"),
            ("a,10,20\nb,30,5\n", "the first line begins with `a`, but it must be `operator,DEVICE,…`"),
            ("op,cpu\nx,1\n", "the first line begins with `op`, but it must be `operator,DEVICE,…`"),
            ("operator,cpu\nconv f32[1,3],5\n", "line 2: 2 times for 1 device; a name with commas needs quotes"),
            ("", "the table is empty"),
            ("operator\nx\n", "no devices"),
            ("operator,cpu\n", "no operators"),
            ("operator,cpu\nx,-1\n", "line 2: `-1` is not a valid time of `x` on `cpu`"),
            ("operator,cpu\r\nx,1\r\ny,0\r\n", "line 3: `0` is not"),
            (
                "operator,cpu\nx,1e300\n",
                "line 2: `1e300` is not a valid time of `x` on `cpu`; give nanoseconds, up to 1e15",
            ),
            ("operator,cpu\n\n\nx,0\n", "line 4: `0` is not"),
            ("operator,cpu,gpu\nx,1\n", "line 2: 1 time for 2 devices"),
            ("operator,cpu\nx,1,2\n", "line 2: 2 times for 1 device"),
        ] {
            let refused = parse_table(text).expect_err("no table");
            assert!(refused.contains(wanted), "{refused}");
        }
    }
}
