//! `trace`: trace files of any origin, summed up, asked, checked and written again.

mod arguments;
mod check;
mod convert;
mod import;
mod query;
mod top;

use super::{DONE, DONE_WITH_LOSSES, Result};
pub use arguments::TraceCommand;
use capture::events::{self, Found};
use engine::failure::Failure;

/// Does one of them.
pub fn run(command: &TraceCommand) -> Result<u8> {
    match command {
        TraceCommand::Top(top) => top::run(top),
        TraceCommand::Check(check) => check::run(check),
        TraceCommand::Convert(convert) => convert::run(convert),
        TraceCommand::Merge(merge) => convert::merge(merge),
        TraceCommand::Import(import) => import::run(import),
        TraceCommand::Query(query) => query::run(query),
    }
}

/// Why a trace cannot be read, with what to do about it.
fn unread(error: events::Error) -> Failure {
    let hint = match error {
        events::Error::Large { .. } => "give it more memory with `--memory-mib`",
        events::Error::Format { .. } => "traces are JSON of Chrome's kind (packed with gzip or not) or Perfetto's",
        events::Error::Read { .. } => return Failure::usage(error),
    };
    Failure::usage(error).with_hint(hint)
}

/// Says what could not be read, and the exit code that says it to scripts.
fn tell_skipped(found: &Found) -> u8 {
    eprint!("{}", report::note_lines("skipped", &found.examples));
    match found.malformed {
        0 => DONE,
        count => {
            eprintln!("{count} records of the trace cannot be read and were skipped");
            DONE_WITH_LOSSES
        }
    }
}
