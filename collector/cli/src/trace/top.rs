//! `trace top`: where the time of a trace went, operator by operator.

use super::super::tables::Style;
use super::super::{Result, paper, print, print_json, tell};
use super::arguments::Top;
use super::{tell_skipped, unread};
use capture::events::Found;
use engine::failure::Failure;
use profile::averages::tvm::Report;
use profile::averages::{self, Averages, Grouping, style};
use profile::import::{self, Bounds, Imported};
use profile::page::page;
use serde_json::json;
use std::path::Path;

/// Sums up a trace.
pub fn run(top: &Top) -> Result<u8> {
    if let Some((report, found)) = import::tvm::read(&top.file).map_err(unread)? {
        // It has sums and no calls: its own style is all there is.
        if top.html.is_some() {
            return Err(Failure::usage("the report that TVM had holds sums only, which make no page"));
        }
        return show_report(top, &report, &found);
    }
    let Imported { profile, found } = import::read(&top.file, &Bounds::of_memory(top.memory_mib)).map_err(failed)?;
    tell(&profile.notes);
    if let Some(path) = &top.html {
        datasets::output::write(path, page(&profile)).map_err(Failure::environment)?;
    }
    if top.style == Style::Tvm {
        return show_report(top, &averages::tvm::of(&profile), &found);
    }
    let grouping = Grouping { by_input_shape: top.group_by_input_shape, by_scope: top.group_by_scope.then_some(0) };
    let mut averages = averages::averages(&profile, grouping);
    averages.sort(top.sort_by.meaning());
    if let Some(path) = &top.csv {
        write(path, averages.csv())?;
    }
    if top.json {
        print_json(&document(top, &profile.format, &averages, &found))?;
    } else {
        let table = style::torch(&averages, top.row_limit).on(&paper());
        print(&format!("{table}\n{}", style::torch_footer(&averages)))?;
    }
    Ok(tell_skipped(&found))
}

/// Why a trace is no profile, with what to do about it.
pub fn failed(error: import::Error) -> Failure {
    match error {
        import::Error::Trace(error) => unread(error),
        error => Failure::usage(error),
    }
}

fn show_report(top: &Top, report: &Report, found: &Found) -> Result<u8> {
    if let Some(path) = &top.csv {
        write(path, report.csv())?;
    }
    if top.json {
        print_json(report)?
    } else {
        print(&report.table(top.row_limit).on(&paper()))?
    }
    Ok(tell_skipped(found))
}

fn document(top: &Top, format: &str, averages: &Averages, found: &Found) -> serde_json::Value {
    json!({
        "format": format,
        "rows": averages.rows.iter().take(top.row_limit).collect::<Vec<_>>(),
        "rows_in_all": averages.rows.len(),
        "self_cpu_time_total_ns": averages.self_cpu_time_total_ns,
        "self_device_time_total_ns": averages.self_device_time_total_ns,
        "events": found.events,
        "malformed": found.malformed,
    })
}

fn write(path: &Path, table: std::result::Result<Vec<u8>, impl std::fmt::Display>) -> Result<()> {
    datasets::output::write(path, table.map_err(Failure::environment)?).map_err(Failure::environment)
}
