//! Profiler captures of TPU cards: reads, imports into stores, compares and records them.

use crate::Result;
use crate::failure::Failure;
use crate::observer::Observer;
use crate::stores::{import_records, import_run_id, modified_us, store_failure};
use capture::tpu::capture::{CommandRun, Request, record_command};
use capture::tpu::compare::{CaptureComparison, compare_captures};
use capture::tpu::import::{self, CaptureProvenance, Per};
use capture::tpu::loss::Losses;
use capture::tpu::summary::CaptureSummary;
use capture::tpu::view::{self, Outputs};
use capture::tpu::{self, Reading, Timeline};
use datasets::store::ImportReport;
use std::path::Path;

/// Reads a profiler capture of a TPU card.
pub fn read_capture(input: &Path, reading: &Reading) -> Result<Timeline> {
    tpu::read_capture(input, reading).map_err(capture_failure)
}

/// Checks, before anything is written, that the folder can hold the outputs and that the host trace can be opened.
pub fn check_paths(folder: &Path, outputs: &Outputs<'_>) -> Result<()> {
    view::check_paths(folder, outputs).map_err(capture_failure)
}

/// Writes the outputs of a capture into a folder, and returns their names.
pub fn write_outputs(
    timeline: &mut Timeline,
    summary: Option<&CaptureSummary>,
    folder: &Path,
    outputs: &Outputs<'_>,
) -> Result<Vec<String>> {
    view::write_outputs(timeline, summary, folder, outputs).map_err(capture_failure)
}

/// Options of the import of a capture.
pub struct ImportOptions<'a> {
    /// Store that receives the records; it is created if needed.
    pub store: &'a Path,
    /// What one row of the store describes: an operator or a command.
    pub per: Per,
    /// Name of the host on which the capture was taken.
    pub host: Option<&'a str>,
    /// Clock of the tensor unit in MHz, which replaces the one in the capture.
    pub tiu_mhz: Option<f64>,
}

/// Adds the operators of a capture to a store.
pub fn import_capture(input: &Path, options: &ImportOptions<'_>) -> Result<(ImportReport, Losses)> {
    let timeline = read_capture(input, &Reading { tiu_mhz: options.tiu_mhz, compat: false })?;
    let taken_at_us = modified_us(&timeline.directory.join("global.profile"));
    let host = options.host.unwrap_or("unknown");
    let capture_hash = import::capture_hash(&timeline);
    let settings = format!("{taken_at_us} {:?} {:?}", options.per, options.tiu_mhz);
    let provenance = CaptureProvenance {
        taken_at_us,
        host: host.to_owned(),
        run_id: import_run_id("tpu", &[&capture_hash, host, &settings]),
        program_version: env!("CARGO_PKG_VERSION").to_owned(),
        capture_hash,
    };
    let records = import::to_records(&timeline, &provenance, options.per).map_err(Failure::usage)?;
    Ok((import_records(options.store, &records)?, timeline.losses))
}

/// Compares two captures of the same work. Also returns which parts of each capture were skipped.
pub fn compare_capture_files(
    before: &Path,
    after: &Path,
    tiu_mhz: Option<f64>,
) -> Result<(CaptureComparison, [Losses; 2])> {
    let reading = Reading { tiu_mhz, compat: false };
    let (before, after) = (read_capture(before, &reading)?, read_capture(after, &reading)?);
    Ok((compare_captures(&before, &after), [before.losses, after.losses]))
}

/// Runs a command with profiling enabled, and returns the captures that it wrote to `folder`. Fails if it wrote none.
pub fn capture_command(
    request: &Request,
    folder: &Path,
    command: &[String],
    observer: &dyn Observer,
) -> Result<CommandRun> {
    let taken = record_command(request, folder, command).map_err(capture_failure)?;
    if !taken.status.success() {
        observer.note(format!("`{}` ended with {}", command.join(" "), taken.status));
    }
    if taken.captures.is_empty() {
        return Err(Failure::usage("the command wrote no capture into this folder").with_hint(
            "its runtime must support profiling (`ENABLE_ALL_PROFILE=1`); an old model also needs `--firmware FILE`",
        ));
    }
    Ok(taken)
}

fn capture_failure(error: tpu::Error) -> Failure {
    match error {
        tpu::Error::Output(error) => store_failure(error),
        _ => Failure::usage(error),
    }
}
