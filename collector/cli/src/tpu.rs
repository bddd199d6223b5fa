//! `tpu`: captures of TPU cards, viewed, imported, compared and taken.

use super::{DONE, DONE_WITH_LOSSES, Result, SLOWER, paper, print, print_json};
use crate::values::some_percent;
use ::capture::tpu::compare::{self, Change};
use ::capture::tpu::import::{self, Per, Provenance};
use ::capture::tpu::loss::Losses;
use ::capture::tpu::{self, Reading, Timeline, capture};
use clap::{Args, Subcommand};
use engine::campaign::record::now_us;
use engine::failure::Failure;
use report::{Cell, Table, duration, figures, number, words};
use std::io::Write;
use std::path::{Path, PathBuf};

/// What can be done with captures of TPU cards.
#[derive(Clone, Debug, Subcommand)]
pub enum TpuCommand {
    /// Write everything a capture shows: trace, summary, registers, workbook, page
    ///
    /// Into the output folder go `perfetto.pftrace`, `summary.txt`, `tiuRegInfo_*.txt`, `tdmaRegInfo_*.txt`,
    /// `cdmaRegInfo_*.txt`, `PerfDoc/PerfAI_output.xlsx` with the same records as CSV beside it, and
    /// `PerfWeb/result.html`. What cannot be read is skipped, told with file and offset, and makes the exit code 1.
    View(TpuView),
    /// Add a capture's operators to a store, as rows with the source `imported`
    Import(TpuImport),
    /// Show which operators got slower between two captures, the costliest first
    ///
    /// Operators that are as often and as long in both are counted and not listed.
    Compare(TpuCompare),
    /// Run a command with profiling switched on, and view the capture it writes
    Capture(TpuCapture),
}

/// A capture and what to write of it.
#[derive(Clone, Debug, Args)]
pub struct TpuView {
    /// The capture, a folder such as `cdm_profile_data_dev0-0`
    pub input: PathBuf,
    /// Folder for what is written
    #[arg(default_value = "profile_out")]
    pub output: PathBuf,
    #[command(flatten)]
    pub outputs: TpuOutputs,
}

/// Which outputs, and how to read; flags of both generations of bigTpuProfile keep their names.
#[derive(Clone, Debug, Default, Args)]
pub struct TpuOutputs {
    /// Write the Perfetto trace; it is written anyway, the flag is for command lines of bigTpuProfile 0.3.0
    #[arg(long)]
    pub perfetto: bool,
    /// Write no Perfetto trace
    #[arg(long = "disable_perfetto", alias = "disable-perfetto", conflicts_with = "perfetto")]
    pub disable_perfetto: bool,
    /// Write no summary.txt and print no table
    #[arg(long = "disable_summary", alias = "disable-summary")]
    pub disable_summary: bool,
    /// Write no page (PerfWeb)
    #[arg(long = "disable_web", alias = "disable-web")]
    pub disable_web: bool,
    /// Write no workbook (PerfDoc); without page and workbook there are no register reports either
    #[arg(long = "disable_doc", alias = "disable-doc")]
    pub disable_doc: bool,
    /// Write the workbook; it is written anyway, the flag is for command lines of bigTpuProfile 0.3.2 and later
    #[arg(long = "enable_doc", alias = "enable-doc", conflicts_with = "disable_doc")]
    pub enable_doc: bool,
    /// Merge a host trace in the format of Chrome's tracing
    #[arg(long = "trace_file", alias = "trace-file", value_name = "FILE")]
    pub trace_file: Option<PathBuf>,
    /// Clock of the tensor unit in MHz, instead of the capture's own
    #[arg(long = "tiu_freq", alias = "tiu-freq", value_name = "MHZ")]
    pub tiu_freq: Option<f64>,
    /// Show only cores below this number in the workbook
    #[arg(long = "num_core", alias = "num-core", value_name = "N")]
    pub num_core: Option<u32>,
    /// Give the figures of bigTpuProfile 0.3.7 where they are wrong, too, for comparison
    #[arg(long)]
    pub compat: bool,
}

impl TpuOutputs {
    /// Whether the trace is wanted.
    pub fn writes_trace(&self) -> bool {
        !self.disable_perfetto
    }

    /// Whether the workbook is wanted.
    pub fn writes_book(&self) -> bool {
        !self.disable_doc
    }

    /// Whether the page is wanted.
    pub fn writes_page(&self) -> bool {
        !self.disable_web
    }

    /// Whether the register reports are wanted: workbook and page used to be made from them.
    pub fn writes_registers(&self) -> bool {
        self.writes_book() || self.writes_page()
    }
}

/// A capture and the store it goes to.
#[derive(Clone, Debug, Args)]
pub struct TpuImport {
    /// The capture
    pub input: PathBuf,
    /// The store, a folder that is made if needed
    #[arg(long, value_name = "DIR", default_value = "opcollect-data")]
    pub store: PathBuf,
    /// One row for every command instead of one for equal commands of a core
    #[arg(long)]
    pub commands: bool,
    /// Name of the host the capture was taken on
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,
    /// Clock of the tensor unit in MHz, instead of the capture's own
    #[arg(long = "tiu_freq", alias = "tiu-freq", value_name = "MHZ")]
    pub tiu_freq: Option<f64>,
    /// Print one JSON document as the last line of stdout
    #[arg(long)]
    pub json: bool,
}

/// What makes a comparison fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum FailOn {
    /// An operator, or the whole, that got slower.
    Slower,
}

/// Two captures of the same work.
#[derive(Clone, Debug, Args)]
pub struct TpuCompare {
    /// The capture before
    pub before: PathBuf,
    /// The capture after
    pub after: PathBuf,
    /// Only this many rows
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// End with exit code 4 when an operator's mean or the whole time grew by more than --threshold
    ///
    /// The mean of an operator must besides have grown by more than three standard errors of its runs. Exit code 1, for
    /// parts of a capture that were skipped, gives way to it.
    #[arg(long, value_name = "WHAT")]
    pub fail_on: Option<FailOn>,
    /// Growth in percent up to which nothing counts as slower
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0, value_parser = some_percent)]
    pub threshold: f64,
    /// Clock of the tensor unit in MHz, instead of the captures' own
    #[arg(long = "tiu_freq", alias = "tiu-freq", value_name = "MHZ")]
    pub tiu_freq: Option<f64>,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// A command that is profiled.
#[derive(Clone, Debug, Args)]
pub struct TpuCapture {
    /// How much is recorded: 0 times only, 1 commands too, 2 their registers too (`PROFILE_MODE`)
    #[arg(long, value_name = "MODE", value_parser = clap::value_parser!(u8).range(0..=2))]
    pub mode: Option<u8>,
    /// Records an engine may write (`PROFILE_RECORD_SIZE`)
    #[arg(long, value_name = "N")]
    pub records: Option<u64>,
    /// The firmware of the cores, for old models (`TPUKERNEL_FIRMWARE_PATH`)
    #[arg(long, value_name = "FILE")]
    pub firmware: Option<PathBuf>,
    /// Folder for what is written
    #[arg(long, value_name = "DIR", default_value = "profile_out")]
    pub out: PathBuf,
    #[command(flatten)]
    pub outputs: TpuOutputs,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub command: Vec<String>,
}

/// Does one of them.
pub fn run(command: &TpuCommand) -> Result<u8> {
    match command {
        TpuCommand::View(arguments) => view(&arguments.input, &arguments.output, &arguments.outputs),
        TpuCommand::Import(arguments) => import(arguments),
        TpuCommand::Compare(arguments) => compare(arguments),
        TpuCommand::Capture(arguments) => take(arguments),
    }
}

fn failed(error: tpu::Error) -> Failure {
    match error {
        tpu::Error::Write { .. } => Failure::environment(error),
        _ => Failure::usage(error),
    }
}

fn view(input: &Path, output: &Path, outputs: &TpuOutputs) -> Result<u8> {
    let reading = Reading { tiu_mhz: outputs.tiu_freq, compat: outputs.compat };
    let mut timeline = tpu::read(input, &reading).map_err(failed)?;
    let summary = tpu::summary::summarise(&timeline);
    let mut written = Vec::new();
    if !outputs.disable_summary
        && let Some(summary) = &summary
    {
        print(&summary.table().on(&paper()))?;
        tpu::output::write(&output.join("summary.txt"), |file| file.write_all(summary.text().as_bytes()))
            .map_err(failed)?;
        written.push("summary.txt".to_owned());
    }
    let mut losses = std::mem::take(&mut timeline.losses);
    if outputs.writes_trace() {
        let tail = (timeline.tail_ns, timeline.tail_offset_ns);
        let host = outputs.trace_file.as_deref().map(|path| tpu::trace::host::read(path, tail, &mut losses));
        let host = host.transpose().map_err(failed)?;
        tpu::trace::write(&timeline, host.as_ref(), &output.join("perfetto.pftrace")).map_err(failed)?;
        written.push("perfetto.pftrace".to_owned());
    }
    if outputs.writes_registers() {
        let count = tpu::reginfo::write(&timeline, output).map_err(failed)?;
        written.push(format!("{count} register reports (*RegInfo_*.txt)"));
    }
    if outputs.writes_book() {
        tpu::book::write(&timeline, output, outputs.num_core).map_err(failed)?;
        written.extend([tpu::book::BOOK, tpu::book::TABLE].map(|name| format!("{}/{name}", tpu::book::FOLDER)));
    }
    if outputs.writes_page() {
        tpu::page::write(&timeline, summary.as_ref(), output).map_err(failed)?;
        written.push(format!("{}/{}", tpu::page::FOLDER, tpu::page::FILE));
    }
    print(&match written.is_empty() {
        true => "wrote nothing: every output is switched off".to_owned(),
        false => format!("wrote into `{}`: {}", output.display(), written.join(", ")),
    })?;
    Ok(tell_losses(&losses))
}

fn tell_losses(losses: &Losses) -> u8 {
    super::tell(&losses.notes);
    eprint!("{}", report::note_lines("skipped", &losses.described));
    match losses.count {
        0 => DONE,
        count => {
            eprintln!("{count} parts of the capture were skipped");
            DONE_WITH_LOSSES
        }
    }
}

fn import(arguments: &TpuImport) -> Result<u8> {
    let reading = Reading { tiu_mhz: arguments.tiu_freq, compat: false };
    let timeline = tpu::read(&arguments.input, &reading).map_err(failed)?;
    let per = if arguments.commands { Per::Command } else { Per::Operator };
    let provenance = provenance(&timeline, arguments.host.as_deref());
    let records = import::records(&timeline, &provenance, per).map_err(Failure::usage)?;
    let report = engine::stores::take_over(&arguments.store, &records)?;
    if arguments.json {
        print_json(&report)?;
    } else {
        let (rows, capture, store) = (report.rows, arguments.input.display(), arguments.store.display());
        print(&match (rows, per) {
            (0, _) => format!("no command of `{capture}` is work of the card: no rows for the store `{store}`"),
            (_, Per::Operator) => {
                format!("{rows} rows of `{capture}`, one per operator and core, are in the store `{store}`")
            }
            (_, Per::Command) => format!("{rows} rows of `{capture}`, one per command, are in the store `{store}`"),
        })?;
    }
    Ok(tell_losses(&timeline.losses))
}

fn provenance(timeline: &Timeline, host: Option<&str>) -> Provenance {
    let modified = timeline.directory.join("global.profile").metadata().and_then(|metadata| metadata.modified());
    let taken = modified.ok().and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
    let taken_at_us = taken.map_or_else(now_us, |time| i64::try_from(time.as_micros()).unwrap_or(i64::MAX));
    Provenance {
        taken_at_us,
        host: host.unwrap_or("unknown").to_owned(),
        run_id: format!("tpu-import-{}", now_us()),
        program_version: env!("CARGO_PKG_VERSION").to_owned(),
        capture_hash: import::capture_hash(timeline),
    }
}

fn compare(arguments: &TpuCompare) -> Result<u8> {
    let reading = Reading { tiu_mhz: arguments.tiu_freq, compat: false };
    let before = tpu::read(&arguments.before, &reading).map_err(failed)?;
    let after = tpu::read(&arguments.after, &reading).map_err(failed)?;
    let comparison = compare::compare(&before, &after);
    let share = arguments.threshold / 100.0;
    let codes = [tell_losses(&before.losses), tell_losses(&after.losses)];
    let mut code = codes.into_iter().max().unwrap_or(DONE);
    if arguments.fail_on == Some(FailOn::Slower) && comparison.is_slower(share) {
        code = SLOWER;
    }
    if arguments.json {
        print_json(&compare_json(&comparison, share))?;
    } else {
        print(&compare_text(&comparison, share, arguments.limit.unwrap_or(usize::MAX)))?;
    }
    Ok(code)
}

fn compare_text(comparison: &compare::Comparison, share: f64, limit: usize) -> String {
    let (before, after) = comparison.spans_ns;
    if comparison.is_equal() {
        let (count, time) = (comparison.changes.len(), duration(before as f64));
        return format!("nothing differs: {count} operators, each as often and as long in both captures of {time}");
    }
    let (changed, equal): (Vec<_>, Vec<_>) = comparison.changes.iter().partition(|change| change.differs());
    let mut lines = Vec::new();
    if !changed.is_empty() {
        lines.push(changes_table(&changed[..changed.len().min(limit)], share));
    }
    for (what, list) in [("only before", &comparison.gone), ("only after", &comparison.new)] {
        let each = list.iter().take(limit);
        lines.extend(each.map(|(operator, time)| format!("{what}: {} ({})", operator.text(), duration(*time as f64))));
    }
    let lost: f64 = comparison.changes.iter().map(Change::lost_ns).sum();
    let (what, time) = if lost < 0.0 { ("gained", -lost) } else { ("lost", lost) };
    let slower = changed.iter().filter(|change| change.is_slower(share)).count();
    lines.push(format!(
        "{} operators in both, {} of them equal, {slower} slower by more than {} % and chance; together they {what} {}",
        comparison.changes.len(),
        equal.len(),
        number(share * 100.0),
        duration(time)
    ));
    lines.push(format!(
        "the captures took {} and {}, {:.3} times as long",
        duration(before as f64),
        duration(after as f64),
        comparison.ratio()
    ));
    lines.join("\n")
}

fn changes_table(changes: &[&Change], share: f64) -> String {
    let mut table = Table::new([
        words("operator"),
        figures("before").drops(2),
        figures("mean before"),
        figures("after").drops(1),
        figures("mean after"),
        figures("ratio"),
        figures("lost"),
        words(""),
    ]);
    for change in changes {
        table.row([
            change.operator.text().into(),
            change.before.count.to_string().into(),
            duration(change.before.mean_ns).into(),
            change.after.count.to_string().into(),
            duration(change.after.mean_ns).into(),
            ratio(change.ratio()),
            duration(change.lost_ns()).into(),
            if change.is_slower(share) { Cell::from("slower").bad() } else { Cell::from("") },
        ]);
    }
    table.on(&paper())
}

/// A ratio that says whether an operator got slower or faster by more than its third digit.
fn ratio(ratio: f64) -> Cell {
    const NOTABLE: f64 = 0.01;
    let cell = Cell::from(format!("{ratio:.3}"));
    match ratio {
        ratio if ratio > 1.0 + NOTABLE => cell.bad(),
        ratio if ratio < 1.0 - NOTABLE => cell.best(),
        _ => cell,
    }
}

fn compare_json(comparison: &compare::Comparison, share: f64) -> serde_json::Value {
    let changes = comparison.changes.iter().map(|change| {
        serde_json::json!({
            "operator": change.operator.text(),
            "engine": change.operator.engine.name(),
            "before_count": change.before.count,
            "before_mean_ns": change.before.mean_ns,
            "after_count": change.after.count,
            "after_mean_ns": change.after.mean_ns,
            "ratio": change.ratio(),
            "lost_ns": change.lost_ns(),
            "slower": change.is_slower(share),
        })
    });
    let list = |list: &[(tpu::operators::Operator, i64)]| -> Vec<serde_json::Value> {
        let each = |(operator, time): &(tpu::operators::Operator, i64)| serde_json::json!({ "operator": operator.text(), "total_ns": time });
        list.iter().map(each).collect()
    };
    serde_json::json!({
        "changes": changes.collect::<Vec<_>>(),
        "only_before": list(&comparison.gone),
        "only_after": list(&comparison.new),
        "before_ns": comparison.spans_ns.0,
        "after_ns": comparison.spans_ns.1,
        "equal": comparison.is_equal(),
        "slower": comparison.is_slower(share),
    })
}

fn take(arguments: &TpuCapture) -> Result<u8> {
    let request =
        capture::Request { mode: arguments.mode, records: arguments.records, firmware: arguments.firmware.clone() };
    let taken = capture::take(&request, Path::new("."), &arguments.command).map_err(failed)?;
    if !taken.status.success() {
        eprintln!("note: `{}` ended with {}", arguments.command.join(" "), taken.status);
    }
    let Some(newest) = taken.captures.last() else {
        return Err(Failure::usage("the command wrote no capture into this folder").with_hint(
            "its runtime must support profiling (`ENABLE_ALL_PROFILE=1`); an old model also needs `--firmware FILE`",
        ));
    };
    let mut code = if taken.status.success() { DONE } else { DONE_WITH_LOSSES };
    for path in &taken.captures {
        // Several captures get a folder each; a single one takes the folder itself.
        let name = path.file_name().unwrap_or_default();
        let output =
            if path == newest && taken.captures.len() == 1 { arguments.out.clone() } else { arguments.out.join(name) };
        eprintln!("note: viewing `{}` in `{}`", path.display(), output.display());
        code = code.max(view(path, &output, &arguments.outputs)?);
    }
    Ok(code)
}
