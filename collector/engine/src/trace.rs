//! Traces from any tool: summaries, queries, checks, conversion, and import into stores.

use crate::Result;
use crate::failure::Failure;
use crate::observer::Observer;
use crate::packing;
use crate::query::query_failure;
use crate::report::styled::{Style, StyledTable};
use crate::stores::{import_records, import_run_id, modified_us, store_failure};
use capture::events::check::{self, CheckReport};
use capture::events::convert::{self, Align, ClockError, Part};
use capture::events::in_memory::{self, Trace};
use capture::events::{self, TraceContents};
use capture::trace::{self, Answer, QueryBounds};
use capture::writer::sink::{Format, Written};
use datasets::output::Output;
use datasets::store::ImportReport;
use profile::SortBy;
use profile::averages::{Averages, Grouping, tvm};
use profile::import::rows::{self, Provenance};
use profile::import::{self, Imported};
use profile::page::render_page;
use profile::summary::GroupBy;
use report::{Paper, format_count};
use serde::Serialize;
use serde_json::{Value, json};
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Options of a summary by operator.
pub struct TopOptions<'a> {
    /// Tool whose table style is used.
    pub style: Style,
    /// The order of rows.
    pub sort_by: SortBy,
    /// Grouping of calls into rows.
    pub grouping: Grouping,
    /// Memory limit for the trace in MiB.
    pub memory_mib: u32,
    /// File for an HTML page.
    pub page: Option<&'a Path>,
    /// File for all rows as CSV.
    pub csv: Option<&'a Path>,
}

/// Operators of a trace with their total times.
pub struct OperatorSums {
    /// Table of the operators.
    pub table: StyledTable,
    /// Tracks and numbers of events that the reader found in the trace.
    pub found: TraceContents,
    format: String,
}

impl OperatorSums {
    /// Formats at most `row_limit` operators.
    pub fn format_text(&self, row_limit: usize, paper: &Paper) -> String {
        match &self.table {
            StyledTable::Torch(_) => self.table.format_text(row_limit, paper),
            StyledTable::Tvm(_) => self.table.table_rows(row_limit).format_for(paper),
        }
    }

    /// Returns the summary as a JSON document for scripts. TVM's report already is such a document.
    pub fn to_document(&self, row_limit: usize) -> OperatorDocument<'_> {
        match &self.table {
            StyledTable::Torch(averages) => OperatorDocument::Torch(self.averages_document(averages, row_limit)),
            StyledTable::Tvm(report) => OperatorDocument::Tvm(report),
        }
    }

    fn averages_document(&self, averages: &Averages, row_limit: usize) -> Value {
        json!({
            "format": self.format,
            "rows": averages.rows.iter().take(row_limit).collect::<Vec<_>>(),
            "rows_in_all": averages.rows.len(),
            "self_cpu_time_total_ns": averages.self_cpu_time_total_ns,
            "self_device_time_total_ns": averages.self_device_time_total_ns,
            "events": self.found.events,
            "malformed": self.found.malformed,
        })
    }
}

/// JSON document with the operators of a trace.
#[derive(Serialize)]
#[serde(untagged)]
pub enum OperatorDocument<'a> {
    /// Averages in the format of torch.profiler.
    Torch(Value),
    /// Report in TVM's format.
    Tvm(&'a tvm::TvmReport),
}

/// Summarises a trace by operator, and writes the requested files.
pub fn sum_operators(file: &Path, options: &TopOptions<'_>, observer: &dyn Observer) -> Result<OperatorSums> {
    datasets::output::check_distinct(&[("--html", options.page), ("--csv", options.csv)]).map_err(store_failure)?;
    let sums = match import::tvm::read_report(file).map_err(read_failure)? {
        // TVM's report contains sums but no calls, so no other style is possible.
        Some(_) if options.page.is_some() => {
            return Err(Failure::usage("reports of TVM contain only sums, which are not enough for a page"));
        }
        Some((report, found)) => OperatorSums { table: StyledTable::Tvm(report), found, format: String::new() },
        None => {
            let Imported { profile, found } = read_trace(file, options.memory_mib)?;
            observer.receive_notes(&profile.notes);
            if let Some(path) = options.page {
                let group_by = if options.grouping.by_input_shape { GroupBy::InputShape } else { GroupBy::Name };
                datasets::output::write_file(path, render_page(&profile, group_by)).map_err(Failure::environment)?;
            }
            let table = StyledTable::new(&profile, options.style, options.grouping, options.sort_by);
            OperatorSums { table, found, format: profile.format }
        }
    };
    if let Some(path) = options.csv {
        datasets::output::write_file(path, sums.table.to_csv()?).map_err(Failure::environment)?;
    }
    Ok(sums)
}

fn read_trace(file: &Path, memory_mib: u32) -> Result<Imported> {
    import::read_profile(file, &import::ImportBounds::of_memory(memory_mib)).map_err(|error| match error {
        import::Error::Trace(error) => read_failure(error),
        error => Failure::usage(error),
    })
}

fn read_failure(error: events::Error) -> Failure {
    let hint = match error {
        events::Error::Large { .. } => "raise the memory limit with `--memory-mib`",
        events::Error::Format { .. } => {
            "traces must be in Chrome's JSON format, optionally compressed with gzip, or in Perfetto's format"
        }
        events::Error::Read { .. } => return Failure::usage(error),
    };
    Failure::usage(error).with_hint(hint)
}

/// Runs a SQL query over a trace.
pub fn query_trace(file: &Path, sql: &str, bounds: &QueryBounds) -> Result<Answer> {
    let memory = "narrow it with `where` or `limit`, or give more with `--memory-mib`";
    trace::query_trace(file, sql, bounds)
        .map_err(|error| query_failure(error, "the tables are slice, track, counter and args", memory))
}

/// Checks a trace for inconsistencies.
pub fn check_trace(file: &Path, memory_mib: u32) -> Result<CheckReport> {
    let trace = read_timeline(file, memory_mib)?;
    let report = check::check_trace(&trace);
    // Faults explain why a trace has no events.
    if report.faults.is_empty() {
        require_events(file, &trace)?
    }
    Ok(report)
}

/// Reads the events of a trace. Reports of TVM are refused, because they contain only sums.
fn read_timeline(file: &Path, memory_mib: u32) -> Result<Trace> {
    if import::tvm::read_report(file).map_err(read_failure)?.is_some() {
        return Err(Failure::usage(format!(
            "`{}` is a report of TVM, which has sums but no time line",
            file.display()
        ))
        .with_hint("`opcollect trace top` prints the sums"));
    }
    in_memory::read_trace(file, memory_mib).map_err(read_failure)
}

fn require_events(file: &Path, trace: &Trace) -> Result<()> {
    if trace.time_span().is_some() {
        return Ok(());
    }
    let example = trace.found.examples.first().map(|example| format!("; {example}")).unwrap_or_default();
    Err(Failure::usage(format!("the trace `{}` has no slice and no counter value{example}", file.display())))
}

/// Options of the import of a trace.
pub struct ImportOptions<'a> {
    /// Store that receives the records; it is created if needed.
    pub store: &'a Path,
    /// Name of the host on which the trace was taken.
    pub host: Option<&'a str>,
    /// Number of threads that operators could use on that host.
    pub threads: Option<i64>,
    /// Name of the model, which replaces the one in the file.
    pub model: Option<&'a str>,
    /// Memory limit for the trace in MiB.
    pub memory_mib: u32,
}

/// Adds the operators of a trace to a store.
pub fn import_trace(
    file: &Path,
    options: &ImportOptions<'_>,
    observer: &dyn Observer,
) -> Result<(ImportReport, TraceContents)> {
    let (records, found) = match import::tvm::read_report(file).map_err(read_failure)? {
        Some((report, found)) => {
            let records = rows::report_records(&report, &trace_provenance(file, options, &file_name(file))?)
                .map_err(Failure::usage)?;
            if records.is_empty() {
                return Err(Failure::usage(format!("the report `{}` has no call with a time", file.display())));
            }
            observer.note(
                "reports of TVM contain only sums: a row has the mean of its calls, without single calls".to_owned(),
            );
            (records, found)
        }
        None => {
            let Imported { profile, found } = read_trace(file, options.memory_mib)?;
            observer.receive_notes(&profile.notes);
            let provenance = trace_provenance(file, options, &profile.model)?;
            (rows::to_records(&profile, &provenance).map_err(Failure::usage)?, found)
        }
    };
    Ok((import_records(options.store, &records)?, found))
}

fn trace_provenance(file: &Path, options: &ImportOptions<'_>, default_model: &str) -> Result<Provenance> {
    let taken_at_us = modified_us(file);
    let host = options.host.unwrap_or("unknown");
    let model = options.model.unwrap_or(default_model);
    let trace_hash = hash_file(file)?;
    let settings = format!("{taken_at_us} {:?}", options.threads);
    Ok(Provenance {
        taken_at_us,
        host: host.to_owned(),
        threads: options.threads,
        model: model.to_owned(),
        run_id: import_run_id("trace", &[&trace_hash, host, model, &settings]),
        program_version: env!("CARGO_PKG_VERSION").to_owned(),
        trace_hash,
    })
}

fn hash_file(path: &Path) -> Result<String> {
    let mut hasher = blake3::Hasher::new();
    let hashed = std::fs::File::open(path).and_then(|mut file| std::io::copy(&mut file, &mut hasher));
    hashed.map_err(|error| Failure::usage(format!("cannot read the trace `{}`: {error}", path.display())))?;
    Ok(hasher.finalize().to_hex()[..32].to_owned())
}

fn file_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Limits of a written trace, and whether it may replace a file.
#[derive(Clone, Copy, Debug)]
pub struct WriteBounds {
    /// Largest size of the written trace before compression, in MiB.
    pub max_mib: u32,
    /// Memory limit for each trace that is read, in MiB.
    pub memory_mib: u32,
    /// Whether an existing output is replaced.
    pub force: bool,
}

/// How the clocks of several traces are aligned.
pub enum Clocks<'a> {
    /// Aligns clocks by a rule.
    Align(Align),
    /// Adds an offset in nanoseconds to the times of each trace, in the order of the traces.
    Offsets(&'a [i64]),
}

/// Summary of a written trace.
#[derive(Serialize)]
pub struct WrittenTrace {
    /// Size of the written trace in bytes, before compression.
    pub bytes: u64,
    /// Number of slices and counter values.
    pub events: u64,
    /// The input traces: all merged ones, or the converted one if its times were shifted.
    pub inputs: Vec<TraceInput>,
    /// Number of slices and counter values that exceeded the size limit.
    pub left_out: u64,
}

/// One of the traces that were read.
#[derive(Serialize)]
pub struct TraceInput {
    /// Name of the input file.
    pub file: String,
    /// Offset in nanoseconds that was added to the times of the trace.
    pub offset_ns: i64,
}

/// Callback that receives each trace before it is written.
pub type TraceSink<'a> = &'a mut dyn FnMut(&Trace);

/// Converts a trace to the format implied by the output file's name.
pub fn convert_trace(input: &Path, output: &Path, bounds: WriteBounds, report: TraceSink<'_>) -> Result<WrittenTrace> {
    let format = implied_format(output)?;
    let file = create_output(output, &[input], bounds.force)?;
    let trace = read_timeline(input, bounds.memory_mib)?;
    require_events(input, &trace)?;
    report(&trace);
    let mut written = write_parts(vec![Part { name: file_name(input), trace, offset_ns: 0 }], format, file, bounds)?;
    written.inputs.retain(|input| input.offset_ns != 0);
    Ok(written)
}

/// Merges several traces into one.
pub fn merge_traces(
    inputs: &[PathBuf],
    output: &Path,
    clocks: &Clocks<'_>,
    bounds: WriteBounds,
    report: TraceSink<'_>,
) -> Result<WrittenTrace> {
    let format = implied_format(output)?;
    if let Clocks::Offsets(offsets) = clocks
        && offsets.len() != inputs.len()
    {
        let (given, wanted) = (offsets.len(), inputs.len());
        return Err(Failure::usage(format!(
            "`--offset-ns` has {} for {}",
            format_count(given, "number"),
            format_count(wanted, "trace")
        ))
        .with_hint("give one for each, such as `--offset-ns 0,-1250000`"));
    }
    let file = create_output(output, inputs, bounds.force)?;
    let mut traces: Vec<Trace> = Vec::new();
    for input in inputs {
        let trace = read_timeline(input, bounds.memory_mib)?;
        require_events(input, &trace)?;
        report(&trace);
        traces.push(trace);
    }
    let offsets = match clocks {
        Clocks::Offsets(offsets) => offsets.to_vec(),
        Clocks::Align(align) => {
            let named: Vec<_> = inputs.iter().map(|input| input.display().to_string()).zip(&traces).collect();
            convert::clock_offsets(&named, *align).map_err(clock_failure)?
        }
    };
    let part = |((trace, offset_ns), path): ((Trace, i64), &PathBuf)| Part { name: file_name(path), trace, offset_ns };
    write_parts(traces.into_iter().zip(offsets).zip(inputs).map(part).collect(), format, file, bounds)
}

/// Creates the output, which is a positional argument: a forgotten one would make an input the output.
fn create_output(output: &Path, inputs: &[impl AsRef<Path>], force: bool) -> Result<Output> {
    let identity = |path: &Path| {
        let found = path.metadata().ok().filter(Metadata::is_file)?;
        Some((found.dev(), found.ino()))
    };
    if let Some(existing) = identity(output) {
        let shown = output.display();
        if inputs.iter().any(|input| identity(input.as_ref()) == Some(existing)) {
            return Err(Failure::usage(format!("the output `{shown}` is also an input")));
        }
        if !force {
            return Err(Failure::usage(format!("the output `{shown}` already exists"))
                .with_hint("the last file is the output; replace an existing one with `--force`"));
        }
    }
    Output::create(output).map_err(Failure::environment)
}

fn implied_format(path: &Path) -> Result<Format> {
    let name = file_name(path).to_lowercase();
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    match name.rsplit_once('.').map(|(_, ending)| ending) {
        Some("json") => Ok(Format::Chrome),
        Some("pftrace" | "perfetto-trace" | "pb") => Ok(Format::Perfetto),
        _ => Err(Failure::usage(format!(
            "the output format is unknown, because `{}` has no known extension",
            path.display()
        ))
        .with_hint(
            "use the extension `.json` for Chrome's format or `.pftrace` for Perfetto's, and add `.gz` to compress",
        )),
    }
}

fn clock_failure(error: ClockError) -> Failure {
    let hint = match error {
        ClockError::Unknown(_) => "use `--align start`, `--align keep`, or `--offset-ns`",
        ClockError::Overflow => "give smaller offsets with `--offset-ns`",
    };
    Failure::usage(error).with_hint(hint)
}

fn write_parts(mut parts: Vec<Part>, format: Format, output: Output, bounds: WriteBounds) -> Result<WrittenTrace> {
    convert::fit_times(&mut parts, format).map_err(clock_failure)?;
    let limit = u64::from(bounds.max_mib) << 20;
    let Written { events, left_out, bytes } =
        packing::write_packed(output, |out| Ok(convert::write_merged(&parts, format, out, limit)?.0))?;
    let inputs = parts.into_iter().map(|part| TraceInput { file: part.name, offset_ns: part.offset_ns }).collect();
    Ok(WrittenTrace { bytes, events, inputs, left_out })
}
