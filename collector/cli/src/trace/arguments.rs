//! What can be said to `trace`.

use super::super::values::{some_seconds, whole_mib};
use capture::events::convert::Align;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use engine::flags::choices;
use engine::report::styled::Style;
use profile::SortBy;
use std::path::PathBuf;

/// What can be done with traces.
#[derive(Clone, Debug, Subcommand)]
pub enum TraceCommand {
    /// Sum up a trace by operator, as the profiler that wrote it would
    ///
    /// Reads what torch.profiler and DeepLink write (JSON, packed or not), ONNX Runtime's profile, the report that TVM had
    /// until 0.23, and Perfetto's traces. Columns and sort keys are those of torch.profiler's `key_averages()`; what
    /// cannot be read is skipped record by record and counted, and the exit code is then 1.
    ///
    /// Examples:
    ///   opcollect trace top trace.json
    ///   opcollect trace top trace.json.gz --group-by-input-shape --sort-by cpu_time_total --row-limit 20
    ///   opcollect trace top onnxruntime_profile.json --group-by-scope --json
    #[command(verbatim_doc_comment)]
    Top(Top),
    /// Look whether a trace can be trusted
    ///
    /// Looks for records that cannot be read, slices that do not nest or end before they begin, arrows that do not arrive,
    /// work of devices that begins before its launch or overlaps, and steps out of order. The exit code is 0 where nothing
    /// is wrong and 1 where something is, with counts.
    ///
    /// Example:
    ///   opcollect trace check trace.json
    #[command(verbatim_doc_comment)]
    Check(Check),
    /// Write a trace in another format
    ///
    /// The name of the file says which: `.json` is Chrome's, `.pftrace` is Perfetto's, and `.gz` behind it packs either.
    /// Tracks, slices, arguments, arrows and counters are kept; what overlaps goes to lanes of its own.
    ///
    /// Examples:
    ///   opcollect trace convert trace.json trace.pftrace
    ///   opcollect trace convert perfetto.pftrace trace.json.gz --max-mib 100
    #[command(verbatim_doc_comment)]
    Convert(Convert),
    /// Put several traces into one, on one clock
    ///
    /// Says by how much each trace's clock was moved. torch.profiler's traces know the time of day; others are put side by
    /// side with `--align start`, as they are with `--align keep`, or as `--offset-ns` says.
    ///
    /// Examples:
    ///   opcollect trace merge rank0.json rank1.json all.pftrace
    ///   opcollect trace merge host.json device.pftrace both.pftrace --offset-ns 0,-1250000
    #[command(verbatim_doc_comment)]
    Merge(Merge),
    /// Add a trace's operators to a store, as rows with the source `imported`
    ///
    /// A row is an operator with its shapes at its place, with the times of all its calls; kernels of a device have rows of
    /// their own. Times of others never meet our own in an average.
    ///
    /// Example:
    ///   opcollect trace import trace.json --store opcollect-data --host workstation
    #[command(verbatim_doc_comment)]
    Import(Import),
    /// Answer a question in SQL about a trace
    ///
    /// A question reads the trace's tables and nothing else, and ends when its time is over.
    /// The tables are those of Perfetto's trace processor: slice (id, ts, dur, track_id, category, name, depth,
    /// parent_id, arg_set_id), track (id, name, type, parent_id), counter (id, ts, track_id, value) and args (arg_set_id,
    /// flat_key, key, int_value, string_value, real_value, value_type, display_value).
    Query(Query),
}

/// A question.
#[derive(Args, Clone, Debug)]
pub struct Query {
    /// The trace
    pub file: PathBuf,
    /// The question, such as "select name, sum(dur) from slice group by name order by 2 desc"
    pub sql: String,
    /// How long the answer may take, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, value_parser = some_seconds)]
    pub seconds: f64,
    /// How much memory trace and answer may take, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 4096, value_parser = whole_mib)]
    pub memory_mib: u32,
    /// Print a JSON array of rows
    #[arg(long)]
    pub json: bool,
}

/// A sum.
#[derive(Args, Clone, Debug)]
pub struct Top {
    /// The trace
    pub file: PathBuf,
    /// Whose table to print
    #[arg(long, value_parser = choices::<Style>(), default_value = "torch")]
    pub style: Style,
    /// What rows are ordered by, the largest first; words of torch.profiler, `cuda` for `device` too
    #[arg(long, value_name = "KEY", value_parser = choices::<SortBy>(), default_value = "self_cpu_time_total")]
    pub sort_by: SortBy,
    /// How many rows to print
    #[arg(long, value_name = "ROWS", default_value_t = 100)]
    pub row_limit: usize,
    /// Put calls with other input shapes into rows of their own
    #[arg(long)]
    pub group_by_input_shape: bool,
    /// Put calls at other places in the model into rows of their own, where places are known, as ONNX Runtime's nodes are
    #[arg(long)]
    pub group_by_scope: bool,
    /// How much memory the trace may take, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 2048, value_parser = whole_mib)]
    pub memory_mib: u32,
    /// Write a page for the browser, too: operators, time line, flame view, memory
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write all rows as CSV, too
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// A trace and the store it goes to.
#[derive(Args, Clone, Debug)]
pub struct Import {
    /// The trace
    pub file: PathBuf,
    /// The store, a folder that is made if needed
    #[arg(long, value_name = "DIR", default_value = "opcollect-data")]
    pub store: PathBuf,
    /// Name of the host the trace was taken on
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,
    /// Threads that operators were allowed there
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(i64).range(1..))]
    pub threads: Option<i64>,
    /// Name of the model, instead of that of the file
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// How much memory the trace may take, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 2048, value_parser = whole_mib)]
    pub memory_mib: u32,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// A check.
#[derive(Args, Clone, Debug)]
pub struct Check {
    /// The trace
    pub file: PathBuf,
    /// How much memory the trace may take, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 2048, value_parser = whole_mib)]
    pub memory_mib: u32,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// A change of format.
#[derive(Args, Clone, Debug)]
pub struct Convert {
    /// The trace
    pub input: PathBuf,
    /// Where to write it
    pub output: PathBuf,
    #[command(flatten)]
    pub bounds: WriteBounds,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// What a trace that is written may take.
#[derive(Args, Clone, Copy, Debug)]
pub struct WriteBounds {
    /// How long the written trace may get before it is packed, in MiB; the rest is left out, with a mark
    #[arg(long, value_name = "MIB", default_value_t = 4096, value_parser = whole_mib)]
    pub max_mib: u32,
    /// How much memory each trace that is read may take, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 2048, value_parser = whole_mib)]
    pub memory_mib: u32,
}

/// A merge.
#[derive(Args, Clone, Debug)]
pub struct Merge {
    /// The traces, and last where to write
    #[arg(required = true, num_args = 3.., value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// How the traces are put on one clock
    #[arg(long, value_parser = alignments(), default_value = "clock")]
    pub align: Align,
    /// What to add to the times of each trace instead, in nanoseconds
    #[arg(long, value_name = "NS,…", value_delimiter = ',', allow_hyphen_values = true, conflicts_with = "align")]
    pub offset_ns: Vec<i64>,
    #[command(flatten)]
    pub bounds: WriteBounds,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// Parses how traces are put on one clock.
fn alignments() -> impl TypedValueParser<Value = Align> {
    let values = [
        ("clock", "By the time of day, which each has to know"),
        ("start", "All begin when the first one begins"),
        ("keep", "As they are"),
    ];
    PossibleValuesParser::new(values.map(|(name, help)| PossibleValue::new(name).help(help))).map(|name| {
        match name.as_str() {
            "start" => Align::Start,
            "keep" => Align::Keep,
            _ => Align::Clock,
        }
    })
}

impl From<WriteBounds> for engine::trace::WriteBounds {
    fn from(WriteBounds { max_mib, memory_mib }: WriteBounds) -> engine::trace::WriteBounds {
        engine::trace::WriteBounds { max_mib, memory_mib }
    }
}
