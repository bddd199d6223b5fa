//! Options of `trace`.

use super::super::values::{positive_seconds, whole_mib};
use capture::events::convert::Align;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use engine::flags::choice_parser;
use engine::report::styled::Style;
use engine::stores::DEFAULT_STORE;
use profile::SortBy;
use std::path::PathBuf;

#[derive(Clone, Debug, Subcommand)]
pub enum TraceCommand {
    /// Summarize a trace by operator, in the style of a profiler
    ///
    /// Reads traces of torch.profiler and DeepLink (JSON, also compressed), profiles of ONNX Runtime,
    /// reports of TVM up to 0.23, and Perfetto traces. Columns and sort keys are those of
    /// torch.profiler's `key_averages()`. Unreadable records are skipped and counted, and the exit code
    /// is then 1.
    ///
    /// Examples:
    ///   opcollect trace top trace.json
    ///   opcollect trace top trace.json.gz --group-by-input-shape --sort-by cpu_time_total --row-limit 20
    ///   opcollect trace top onnxruntime_profile.json --group-by-scope --json
    #[command(verbatim_doc_comment)]
    Top(Top),
    /// Check a trace for errors and inconsistent times
    ///
    /// Reports unreadable records, slices that do not nest or end before they begin, flows without an
    /// end, device work that begins before its launch or overlaps, and steps out of order. The exit code
    /// is 1 if there are any such problems.
    ///
    /// Example:
    ///   opcollect trace check trace.json
    #[command(verbatim_doc_comment)]
    Check(Check),
    /// Convert a trace to another format
    ///
    /// The extension of the output file selects the format: `.json` is Chrome's, `.pftrace` is
    /// Perfetto's; a further `.gz` compresses it. Tracks, slices, arguments, flows and counters are kept;
    /// overlapping slices are placed on separate tracks.
    ///
    /// Examples:
    ///   opcollect trace convert trace.json trace.pftrace
    ///   opcollect trace convert perfetto.pftrace trace.json.gz --max-mib 100
    #[command(verbatim_doc_comment)]
    Convert(Convert),
    /// Merge several traces into one with a common clock
    ///
    /// Prints the clock offset of each trace. Traces of torch.profiler contain wall-clock times. Other
    /// traces need `--align start`, `--align keep` or `--offset-ns`.
    ///
    /// Examples:
    ///   opcollect trace merge rank0.json rank1.json all.pftrace
    ///   opcollect trace merge host.json device.pftrace both.pftrace --offset-ns 0,-1250000
    #[command(verbatim_doc_comment)]
    Merge(Merge),
    /// Add a trace's operators to a store, with source `imported`
    ///
    /// Each row is an operator with its shapes and scope, and the times of all its calls; kernels of a
    /// device have their own rows. Imported times are never averaged with measured times.
    ///
    /// Example:
    ///   opcollect trace import trace.json --store opcollect-data --host workstation
    #[command(verbatim_doc_comment)]
    Import(Import),
    /// Query a trace with SQL
    ///
    /// The query can read only the trace's tables, which are those of Perfetto's trace processor: slice (id, ts, dur,
    /// track_id, category, name, depth, parent_id, arg_set_id), track (id, name, type, parent_id), counter (id, ts,
    /// track_id, value) and args (arg_set_id, flat_key, key, int_value, string_value, real_value, value_type,
    /// display_value).
    Query(Query),
}

#[derive(Args, Clone, Debug)]
pub struct Query {
    pub file: PathBuf,
    /// SQL query
    ///
    /// Example: "select name, sum(dur) from slice group by name order by 2 desc".
    pub sql: String,
    /// Time limit of the query in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, value_parser = positive_seconds)]
    pub seconds: f64,
    /// Memory limit for trace and result in MiB
    #[arg(long, value_name = "MIB", default_value_t = 4096, value_parser = whole_mib)]
    pub memory_mib: u32,
    /// Print a JSON array of rows
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Clone, Debug)]
pub struct Top {
    pub file: PathBuf,
    /// Style of the table
    #[arg(long, value_parser = choice_parser::<Style>(), default_value = "torch")]
    pub style: Style,
    /// Sort key of torch.profiler, descending; `cuda` is accepted for `device`
    #[arg(long, value_name = "KEY", value_parser = choice_parser::<SortBy>(), default_value = "self_cpu_time_total")]
    pub sort_by: SortBy,
    /// Maximum number of rows
    #[arg(long, value_name = "ROWS", default_value_t = 100)]
    pub row_limit: usize,
    /// Group calls by input shapes, too
    #[arg(long)]
    pub group_by_input_shape: bool,
    /// Group calls by scope in the model, too, if the trace has scopes
    ///
    /// ONNX Runtime's node names are such scopes.
    #[arg(long)]
    pub group_by_scope: bool,
    /// Memory limit for the trace in MiB
    #[arg(long, value_name = "MIB", default_value_t = 2048, value_parser = whole_mib)]
    pub memory_mib: u32,
    /// Write an HTML page: operators, timeline, flame graph, memory
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write all rows as CSV to this file
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Clone, Debug)]
pub struct Import {
    pub file: PathBuf,
    /// Store to write records to, created if absent
    #[arg(long, value_name = "DIR", default_value = DEFAULT_STORE)]
    pub store: PathBuf,
    /// Name of the host of the trace
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,
    /// Number of threads of operators on the host that recorded the trace
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(i64).range(1..))]
    pub threads: Option<i64>,
    /// Name of the model [default: that in the file]
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// Memory limit for the trace in MiB
    #[arg(long, value_name = "MIB", default_value_t = 2048, value_parser = whole_mib)]
    pub memory_mib: u32,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Clone, Debug)]
pub struct Check {
    pub file: PathBuf,
    /// Memory limit for the trace in MiB
    #[arg(long, value_name = "MIB", default_value_t = 2048, value_parser = whole_mib)]
    pub memory_mib: u32,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Clone, Debug)]
pub struct Convert {
    /// Trace file to read
    pub input: PathBuf,
    /// Trace file to write
    pub output: PathBuf,
    #[command(flatten)]
    pub bounds: WriteBounds,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Clone, Copy, Debug)]
pub struct WriteBounds {
    /// Size limit of the written trace before compression, in MiB
    ///
    /// The end of a larger trace is cut off and marked.
    #[arg(long, value_name = "MIB", default_value_t = 4096, value_parser = whole_mib)]
    pub max_mib: u32,
    /// Memory limit for each trace that is read, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 2048, value_parser = whole_mib)]
    pub memory_mib: u32,
    /// Replace an existing output file
    #[arg(long)]
    pub force: bool,
}

#[derive(Args, Clone, Debug)]
pub struct Merge {
    /// Trace files to read, then the file to write
    #[arg(required = true, num_args = 3.., value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// How the clocks of the traces are aligned
    #[arg(long, value_parser = alignments(), default_value = "clock")]
    pub align: Align,
    /// Offset to add to the times of each trace, in nanoseconds
    #[arg(long, value_name = "NS,…", value_delimiter = ',', allow_hyphen_values = true, conflicts_with = "align")]
    pub offset_ns: Vec<i64>,
    #[command(flatten)]
    pub bounds: WriteBounds,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

fn alignments() -> impl TypedValueParser<Value = Align> {
    let values = [
        ("clock", "By wall-clock times, which each trace must contain"),
        ("start", "All traces start at the time of the earliest one"),
        ("keep", "Times are left unchanged"),
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
    fn from(WriteBounds { max_mib, memory_mib, force }: WriteBounds) -> engine::trace::WriteBounds {
        engine::trace::WriteBounds { max_mib, memory_mib, force }
    }
}
