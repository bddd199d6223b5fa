//! What can be said to `trace`.

use clap::{Args, Subcommand, ValueEnum};
use profile::averages::SortBy;
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
    ///   opcollect trace top onnxruntime_profile.json --group-by-operator --json
    #[command(verbatim_doc_comment)]
    Top(Top),
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
    #[arg(long, value_name = "MIB", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..))]
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
    #[arg(long, value_enum, default_value_t = Style::Torch)]
    pub style: Style,
    /// What rows are ordered by, the largest first; words of torch.profiler, `cuda` for `device` too
    #[arg(long, value_name = "KEY", value_enum, default_value_t = SortKey::SelfCpuTimeTotal)]
    pub sort_by: SortKey,
    /// How many rows to print
    #[arg(long, value_name = "ROWS", default_value_t = 100)]
    pub row_limit: usize,
    /// Put calls with other input shapes into rows of their own
    #[arg(long)]
    pub group_by_input_shape: bool,
    /// Put calls of one kind of operator into one row, where the trace knows kinds beside names, as ONNX Runtime's does
    #[arg(long)]
    pub group_by_operator: bool,
    /// How much memory the trace may take, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 2048, value_parser = clap::value_parser!(u32).range(1..))]
    pub memory_mib: u32,
    /// Write all rows as CSV, too
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// Whose table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Style {
    /// torch.profiler's
    Torch,
    /// That of the report TVM had
    Tvm,
}

/// Words to order by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum SortKey {
    CpuTime,
    CpuTimeTotal,
    SelfCpuTimeTotal,
    #[value(alias = "cuda_time")]
    DeviceTime,
    #[value(alias = "cuda_time_total")]
    DeviceTimeTotal,
    #[value(alias = "self_cuda_time_total")]
    SelfDeviceTimeTotal,
    CpuMemoryUsage,
    SelfCpuMemoryUsage,
    #[value(alias = "cuda_memory_usage")]
    DeviceMemoryUsage,
    #[value(alias = "self_cuda_memory_usage")]
    SelfDeviceMemoryUsage,
    Count,
}

impl SortKey {
    /// What it means.
    pub fn meaning(self) -> SortBy {
        match self {
            SortKey::CpuTime => SortBy::CpuTime,
            SortKey::CpuTimeTotal => SortBy::CpuTimeTotal,
            SortKey::SelfCpuTimeTotal => SortBy::SelfCpuTimeTotal,
            SortKey::DeviceTime => SortBy::DeviceTime,
            SortKey::DeviceTimeTotal => SortBy::DeviceTimeTotal,
            SortKey::SelfDeviceTimeTotal => SortBy::SelfDeviceTimeTotal,
            SortKey::CpuMemoryUsage => SortBy::CpuMemoryUsage,
            SortKey::SelfCpuMemoryUsage => SortBy::SelfCpuMemoryUsage,
            SortKey::DeviceMemoryUsage => SortBy::DeviceMemoryUsage,
            SortKey::SelfDeviceMemoryUsage => SortBy::SelfDeviceMemoryUsage,
            SortKey::Count => SortBy::Count,
        }
    }
}

/// A time that a clock can wait for.
fn some_seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if seconds > 0.0 && seconds <= 1e6 { Ok(seconds) } else { Err("give more than 0 and at most 1000000".to_owned()) }
}
