//! `tpu`: captures of TPU cards.

use super::{DONE, DONE_WITH_LOSSES, Result, SLOWER, print_json, print_note_lines, print_text, stdout_paper};
use crate::pace::Pace;
use crate::progress::terminal_observer;
use crate::trace::report_skipped;
use crate::values::percent;
use capture::tpu::Reading;
use capture::tpu::capture::Request;
use capture::tpu::import::Per;
use capture::tpu::loss::Losses;
use capture::tpu::summary::sum_timeline;
use capture::tpu::view::Outputs;
use clap::{Args, Subcommand};
use datasets::Output;
use engine::failure::Failure;
use engine::stores::{DEFAULT_STORE, store_failure};
use engine::tpu::{self, ImportOptions};
use report::format_count;
use std::io::Write;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, Subcommand)]
pub enum TpuCommand {
    /// Write a capture as trace, summary, register tables, workbook and page
    ///
    /// Output files: `perfetto.pftrace`, `summary.txt`, `tiuRegInfo_*.txt`, `tdmaRegInfo_*.txt`, `cdmaRegInfo_*.txt`,
    /// `PerfDoc/PerfAI_output.xlsx` with the same records as CSV, and `PerfWeb/result.html`. Unreadable parts are
    /// skipped and reported with file and offset, and the exit code is then 1.
    View(TpuView),
    /// Add a capture's operators to a store, with source `imported`
    Import(TpuImport),
    /// Show which operators got slower between two captures
    ///
    /// Rows are sorted by the change in total time. Unchanged operators are counted but not listed.
    Compare(TpuCompare),
    /// Run a command with profiling enabled, and view the capture it writes
    Capture(TpuCapture),
}

#[derive(Clone, Debug, Args)]
pub struct TpuView {
    /// Capture: a folder such as `cdm_profile_data_dev0-0`
    pub input: PathBuf,
    /// Output folder
    #[arg(default_value = "profile_out")]
    pub output: PathBuf,
    #[command(flatten)]
    pub outputs: TpuOutputs,
}

/// Outputs of the TPU profiler. The flags have the names of both generations of bigTpuProfile.
#[derive(Clone, Debug, Default, Args)]
pub struct TpuOutputs {
    /// Write the Perfetto trace; always on, accepted for bigTpuProfile 0.3.0
    #[arg(long)]
    pub perfetto: bool,
    /// Write no Perfetto trace
    #[arg(long = "disable_perfetto", alias = "disable-perfetto", conflicts_with = "perfetto")]
    pub disable_perfetto: bool,
    /// Write no summary.txt and print no table
    #[arg(long = "disable_summary", alias = "disable-summary")]
    pub disable_summary: bool,
    /// Write no HTML page (PerfWeb)
    #[arg(long = "disable_web", alias = "disable-web")]
    pub disable_web: bool,
    /// Write no workbook (PerfDoc)
    ///
    /// Without page and workbook, there are no register reports either.
    #[arg(long = "disable_doc", alias = "disable-doc")]
    pub disable_doc: bool,
    /// Write the workbook; always on, accepted for bigTpuProfile 0.3.2
    #[arg(long = "enable_doc", alias = "enable-doc", conflicts_with = "disable_doc")]
    pub enable_doc: bool,
    /// Merge a host trace in Chrome's trace format
    #[arg(long = "trace_file", alias = "trace-file", value_name = "FILE")]
    pub trace_file: Option<PathBuf>,
    /// Clock of the tensor unit in MHz, instead of the capture's value
    #[arg(long = "tiu_freq", alias = "tiu-freq", value_name = "MHZ")]
    pub tiu_freq: Option<f64>,
    /// Show only cores below this number in the workbook
    #[arg(long = "num_core", alias = "num-core", value_name = "N")]
    pub num_core: Option<u32>,
    /// Reproduce incorrect values of bigTpuProfile 0.3.7, for comparison
    #[arg(long)]
    pub compat: bool,
}

impl TpuOutputs {
    fn requested_outputs(&self) -> Outputs<'_> {
        Outputs {
            has_summary: !self.disable_summary,
            has_trace: !self.disable_perfetto,
            has_book: !self.disable_doc,
            has_page: !self.disable_web,
            host_trace: self.trace_file.as_deref(),
            core_limit: self.num_core,
        }
    }
}

#[derive(Clone, Debug, Args)]
pub struct TpuImport {
    /// Capture folder
    pub input: PathBuf,
    /// Store to write records to, created if absent
    #[arg(long, value_name = "DIR", default_value = DEFAULT_STORE)]
    pub store: PathBuf,
    /// Add one row per command, instead of one per group of equal commands
    #[arg(long)]
    pub commands: bool,
    /// Name of the host of the capture
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,
    /// Clock of the tensor unit in MHz, instead of the capture's value
    #[arg(long = "tiu_freq", alias = "tiu-freq", value_name = "MHZ")]
    pub tiu_freq: Option<f64>,
    /// Print one JSON document as the last line of stdout
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum FailOn {
    /// An operator or the total time got slower
    Slower,
}

#[derive(Clone, Debug, Args)]
pub struct TpuCompare {
    /// Baseline capture
    pub before: PathBuf,
    /// Capture to compare with the baseline
    pub after: PathBuf,
    /// Maximum number of rows
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// Exit with code 4 if a time grew by more than `--threshold`
    ///
    /// Both the total time and the mean of each operator are checked; the mean must also have grown by more than three
    /// standard errors. Code 4 takes precedence over code 1 for skipped parts of a capture.
    #[arg(long, value_name = "WHAT")]
    pub fail_on: Option<FailOn>,
    /// Growth in percent that is not reported as slower
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0, value_parser = percent::<1_000_000>)]
    pub threshold: f64,
    /// Clock of the tensor unit in MHz, instead of the captures' value
    #[arg(long = "tiu_freq", alias = "tiu-freq", value_name = "MHZ")]
    pub tiu_freq: Option<f64>,
    /// Write an HTML page with all changes to this file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
pub struct TpuCapture {
    /// Detail: 0 times, 1 also commands, 2 also registers (`PROFILE_MODE`)
    #[arg(long, value_name = "MODE", value_parser = clap::value_parser!(u8).range(0..=2))]
    pub mode: Option<u8>,
    /// Maximum number of records per engine (`PROFILE_RECORD_SIZE`)
    #[arg(long, value_name = "N")]
    pub records: Option<u64>,
    /// Firmware of the cores, for old models (`TPUKERNEL_FIRMWARE_PATH`)
    #[arg(long, value_name = "FILE")]
    pub firmware: Option<PathBuf>,
    /// Output folder
    #[arg(long, value_name = "DIR", default_value = "profile_out")]
    pub out: PathBuf,
    #[command(flatten)]
    pub outputs: TpuOutputs,
    /// Command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub command: Vec<String>,
}

pub fn run(command: &TpuCommand) -> Result<u8> {
    match command {
        TpuCommand::View(arguments) => view_capture(&arguments.input, &arguments.output, &arguments.outputs),
        TpuCommand::Import(arguments) => import_capture(arguments),
        TpuCommand::Compare(arguments) => compare_captures(arguments),
        TpuCommand::Capture(arguments) => take_capture(arguments),
    }
}

fn view_capture(input: &Path, folder: &Path, outputs: &TpuOutputs) -> Result<u8> {
    let mut timeline = tpu::read_capture(input, &Reading { tiu_mhz: outputs.tiu_freq, compat: outputs.compat })?;
    let (summary, wanted) = (sum_timeline(&timeline), outputs.requested_outputs());
    let written = tpu::write_outputs(&mut timeline, summary.as_ref(), folder, &wanted)?;
    if let (true, Some(summary)) = (wanted.has_summary, &summary) {
        print_text(&summary.to_table().format_for(&stdout_paper()))?;
    }
    print_text(&match written.is_empty() {
        true => "wrote nothing: all outputs are disabled".to_owned(),
        false => format!("wrote into `{}`: {}", folder.display(), written.join(", ")),
    })?;
    Ok(report_losses(&timeline.losses))
}

fn report_losses(losses: &Losses) -> u8 {
    print_note_lines(&losses.notes);
    report_skipped(&losses.described, losses.count as u64, "parts of the capture were skipped")
}

fn import_capture(arguments: &TpuImport) -> Result<u8> {
    let TpuImport { input, store, commands, host, tiu_freq, json } = arguments;
    let per = if *commands { Per::Command } else { Per::Operator };
    let options = ImportOptions { store, per, host: host.as_deref(), tiu_mhz: *tiu_freq };
    let (report, losses) = tpu::import_capture(input, &options)?;
    if *json {
        print_json(&report)?;
    } else {
        let (rows, capture, store) = (report.rows, input.display(), store.display());
        let row = if *commands { "one per command" } else { "one per operator and core" };
        print_text(&match rows {
            0 => format!("`{capture}` contains no commands of the card, so no rows were added to the store `{store}`"),
            _ => format!("the store `{store}` has {} of `{capture}`, {row}", format_count(rows, "row")),
        })?;
    }
    Ok(report_losses(&losses))
}

fn compare_captures(arguments: &TpuCompare) -> Result<u8> {
    let mut html = arguments.html.as_ref().map(|path| Output::create(path).map_err(store_failure)).transpose()?;
    let (comparison, losses) = tpu::compare_capture_files(&arguments.before, &arguments.after, arguments.tiu_freq)?;
    let share = arguments.threshold / 100.0;
    let mut code = losses.iter().map(report_losses).max().unwrap_or(DONE);
    if arguments.fail_on == Some(FailOn::Slower) && comparison.is_slower(share) {
        code = SLOWER;
    }
    if let Some(mut output) = html.take() {
        output.write_all(comparison.format_page(share).as_bytes()).map_err(Failure::environment)?;
        output.keep().map_err(store_failure)?;
    }
    if arguments.json {
        print_json(&comparison.to_json(share))?;
    } else {
        print_text(&comparison.format_text(share, arguments.limit.unwrap_or(usize::MAX), &stdout_paper()))?;
    }
    Ok(code)
}

fn take_capture(arguments: &TpuCapture) -> Result<u8> {
    let TpuCapture { mode, records, firmware, out, outputs, command } = arguments;
    tpu::check_paths(out, &outputs.requested_outputs())?;
    let request = Request { mode: *mode, records: *records, firmware: firmware.clone() };
    let taken = tpu::capture_command(&request, Path::new("."), command, terminal_observer(Pace::default()).as_ref())?;
    let mut code = if taken.status.success() { DONE } else { DONE_WITH_LOSSES };
    for path in &taken.captures {
        // Several captures get a folder each; a single one takes the folder itself.
        let is_single = taken.captures.len() == 1;
        let folder = if is_single { out.clone() } else { out.join(path.file_name().unwrap_or_default()) };
        print_note_lines(&[format!("viewing `{}` in `{}`", path.display(), folder.display())]);
        code = code.max(view_capture(path, &folder, outputs)?);
    }
    Ok(code)
}
