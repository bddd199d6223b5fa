//! `trace query`: questions in SQL about Perfetto traces.

use super::super::answers::{rows, table};
use super::super::{DONE, Result, print, print_json};
use super::arguments::Query;
use capture::trace::{self, Bounds, Error};
use engine::failure::Failure;
use std::time::Duration;

/// Answers one.
pub fn run(query: &Query) -> Result<u8> {
    let Query { file, sql, seconds, memory_mib, json } = query;
    let bounds = Bounds { time: Duration::from_secs_f64(*seconds), memory_mib: *memory_mib, ..Bounds::default() };
    let answer = trace::query(file, sql, &bounds).map_err(failed)?;
    if *json {
        print_json(&rows(&answer))?
    } else {
        print(&table(&answer))?
    }
    Ok(DONE)
}

fn failed(error: Error) -> Failure {
    let hint = match error {
        Error::Query(_) | Error::Refused { .. } => "the tables are slice, track, counter and args",
        Error::Late { .. } => "narrow it with `where` or `limit`, or give more time with `--seconds`",
        Error::Memory { .. } => "narrow it with `where` or `limit`, or give more with `--memory-mib`",
        Error::Long { .. } => "narrow it with `where` or `limit`, or sum up with `group by`",
        _ => return Failure::usage(error),
    };
    Failure::usage(error).with_hint(hint)
}
