//! `trace check`: whether a trace can be trusted.

use super::super::{DONE, DONE_WITH_LOSSES, Result, paper, print, print_json};
use super::arguments::Check;
use super::unread;
use capture::events::check::{self, Report};
use capture::events::held;
use report::{Table, figures, words};

/// Looks at a trace.
pub fn run(check: &Check) -> Result<u8> {
    let trace = held::read(&check.file, check.memory_mib).map_err(unread)?;
    let report = check::check(&trace);
    if check.json {
        print_json(&report)?
    } else {
        print(&text(&report))?
    }
    Ok(if report.faults.is_empty() { DONE } else { DONE_WITH_LOSSES })
}

fn text(report: &Report) -> String {
    let Report { slices, values, flows, tracks, faults } = report;
    let looked = format!("{slices} slices, {values} values of counters and {flows} arrows on {tracks} tracks");
    if faults.is_empty() {
        return format!("{looked}: nothing is wrong");
    }
    let mut table = Table::new([words("fault"), figures("count"), words("meaning"), words("the first one")]);
    for fault in faults {
        let example = fault.example.clone().unwrap_or_default();
        table.row([fault.kind.to_owned(), fault.count.to_string(), fault.meaning.to_owned(), example]);
    }
    format!("{looked}\n{}", table.on(&paper()))
}
