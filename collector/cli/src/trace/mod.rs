//! `trace`: summarises, queries, checks and converts trace files from any program.

mod arguments;

use super::{DONE, DONE_WITH_LOSSES, Result, print_json, print_text, stdout_paper};
use crate::pace::Pace;
use crate::progress::terminal_observer;
pub use arguments::TraceCommand;
use arguments::{Check, Convert, Import, Merge, Query, Top};
use capture::events::TraceContents;
use capture::events::in_memory::{Losses, Trace};
use capture::trace::QueryBounds;
use engine::query;
use engine::trace::{self, Clocks, ImportOptions, TopOptions, WrittenTrace};
use profile::averages::Grouping;
use report::format_count;
use report::terminal::print_notes;
use std::path::Path;
use std::time::Duration;

pub fn run(command: &TraceCommand) -> Result<u8> {
    match command {
        TraceCommand::Top(arguments) => print_top(arguments),
        TraceCommand::Check(arguments) => check_trace(arguments),
        TraceCommand::Convert(arguments) => convert_trace(arguments),
        TraceCommand::Merge(arguments) => merge_traces(arguments),
        TraceCommand::Import(arguments) => import_trace(arguments),
        TraceCommand::Query(arguments) => query_trace(arguments),
    }
}

fn print_top(top: &Top) -> Result<u8> {
    let options = TopOptions {
        style: top.style,
        sort_by: top.sort_by,
        grouping: Grouping { by_input_shape: top.group_by_input_shape, by_scope: top.group_by_scope.then_some(0) },
        memory_mib: top.memory_mib,
        page: top.html.as_deref(),
        csv: top.csv.as_deref(),
    };
    let sums = trace::sum_operators(&top.file, &options, terminal_observer(Pace::default()).as_ref())?;
    if top.json {
        print_json(&sums.to_document(top.row_limit))?
    } else {
        print_text(&sums.format_text(top.row_limit, &stdout_paper()))?
    }
    Ok(report_found(&sums.found))
}

fn check_trace(check: &Check) -> Result<u8> {
    let report = trace::check_trace(&check.file, check.memory_mib)?;
    if check.json {
        print_json(&report)?
    } else {
        print_text(&report.format_text(&stdout_paper()))?
    }
    Ok(if report.faults.is_empty() { DONE } else { DONE_WITH_LOSSES })
}

fn convert_trace(convert: &Convert) -> Result<u8> {
    let mut code = DONE;
    let mut report_events = |trace: &Trace| code = report_read(trace);
    let written = trace::convert_trace(&convert.input, &convert.output, convert.bounds.into(), &mut report_events)?;
    Ok(code.max(report_written(&written, &convert.output, convert.json)?))
}

fn merge_traces(merge: &Merge) -> Result<u8> {
    let (place, inputs) = merge.files.split_last().expect("clap requires at least three files");
    let clocks = match merge.offset_ns.as_slice() {
        [] => Clocks::Align(merge.align),
        offsets => Clocks::Offsets(offsets),
    };
    let mut code = DONE;
    let mut report_events = |trace: &Trace| code = code.max(report_read(trace));
    let written = trace::merge_traces(inputs, place, &clocks, merge.bounds.into(), &mut report_events)?;
    Ok(code.max(report_written(&written, place, merge.json)?))
}

fn import_trace(import: &Import) -> Result<u8> {
    let options = ImportOptions {
        store: &import.store,
        host: import.host.as_deref(),
        threads: import.threads,
        model: import.model.as_deref(),
        memory_mib: import.memory_mib,
    };
    let (report, found) = trace::import_trace(&import.file, &options, terminal_observer(Pace::default()).as_ref())?;
    if import.json {
        print_json(&report)?;
    } else {
        let (trace, store) = (import.file.display(), import.store.display());
        let rows = format_count(report.rows, "row");
        print_text(&format!("the store `{store}` has {rows} of `{trace}`, one per operator"))?;
    }
    Ok(report_found(&found))
}

fn query_trace(arguments: &Query) -> Result<u8> {
    let Query { file, sql, seconds, memory_mib, json } = arguments;
    let bounds =
        QueryBounds { time: Duration::from_secs_f64(*seconds), memory_mib: *memory_mib, ..QueryBounds::default() };
    let answer = trace::query_trace(file, sql, &bounds)?;
    if *json {
        print_json(&query::json_rows(&answer)?)?
    } else {
        print_text(&answer.to_table().format_for(&stdout_paper()))?
    }
    Ok(DONE)
}

/// Reports what was written to `place`. Returns an exit code that indicates whether events are missing.
fn report_written(written: &WrittenTrace, place: &Path, as_json: bool) -> Result<u8> {
    if as_json {
        print_json(written)?;
    } else {
        for input in &written.inputs {
            print_text(&format!("`{}`: added {} ns to its times", input.file, input.offset_ns))?;
        }
        let WrittenTrace { events, bytes, .. } = written;
        let (events, bytes) = (format_count(*events, "event"), format_count(*bytes, "byte"));
        print_text(&format!("wrote {events}, {bytes} before compression, to `{}`", place.display()))?;
    }
    if written.left_out == 0 {
        return Ok(DONE);
    }
    let left_out = format_count(written.left_out, "event");
    let left_out = format!("{left_out} omitted: the file reached the size limit of `--max-mib`");
    print_notes("note", [left_out]);
    Ok(DONE_WITH_LOSSES)
}

/// Reports what of a trace is not written as it is in the file.
fn report_read(trace: &Trace) -> u8 {
    let Losses { negative_durations, ends_without_begin, begins_without_end: _ } = trace.losses;
    let mut code = report_found(&trace.found);
    for (count, what) in [
        (negative_durations, "with a duration of 0 ns instead of an end before the start"),
        (ends_without_begin, "omitted, of which the file has only the end"),
    ] {
        if count > 0 {
            print_notes("note", [format!("{} {what}", format_count(count, "slice"))]);
            code = DONE_WITH_LOSSES;
        }
    }
    code
}

fn report_found(found: &TraceContents) -> u8 {
    report_skipped(&found.examples, found.malformed, "records of the trace cannot be read and were skipped")
}

/// Reports the number of skipped records, with examples. Returns an exit code that indicates whether any was skipped.
pub fn report_skipped(examples: &[impl ToString], count: u64, what: &str) -> u8 {
    print_notes("skipped", examples.iter().map(ToString::to_string));
    match count {
        0 => DONE,
        count => {
            print_notes("note", [format!("{count} {what}")]);
            DONE_WITH_LOSSES
        }
    }
}
