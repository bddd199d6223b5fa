//! `board trace`: simulate one operator on an accelerator core, and write a trace with a track for each module
//! and a table.

use super::super::{DONE, Result, print_json, print_text, settings, stdout_paper};
use crate::options::{Models, Sweep};
use crate::pace::Pace;
use crate::progress::terminal_observer;
use clap::Args;
use engine::campaign::settings::ResolvedConfig;
use engine::core_trace::{CoreTraceOptions, trace_core};
use std::path::PathBuf;
use targets::{FPGA, PYNQ};

pub const BOARD_TRACE_EXAMPLES: &str = "\
Examples:
  opcollect board trace --modelsource simple --modelname conv2d:ci=64,hw=56,co=64,k=3,p=1 --out layer.pftrace
  opcollect board trace --modelsource local --modelname resnet-18 --task 5 --knobs tile_h=7,tile_ci=4 --out layer.pftrace";

#[derive(Clone, Debug, Args)]
pub struct BoardTrace {
    #[command(flatten)]
    pub models: Models,
    /// Task to simulate, from 1, in the order of `opcollect tasks`
    ///
    /// The order is that of `opcollect tasks --target pynq --unit fpga`.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub task: usize,
    /// Knobs that differ from the default schedule, as in tile_h=7,tile_ci=4
    #[arg(long, value_name = "NAME=N,…", value_delimiter = ',')]
    pub knobs: Vec<String>,
    /// Write the trace to this file, for ui.perfetto.dev
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Size limit of the trace in MiB, approximate
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub trace_mib: u32,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

pub fn run(wanted: &BoardTrace) -> Result<u8> {
    let mut models = wanted.models.clone();
    models.settings.target.get_or_insert_with(|| PYNQ.to_owned());
    models.settings.unit.get_or_insert_with(|| FPGA.to_owned());
    let ResolvedConfig { config, loaded } = settings::resolve_config(&models, &Sweep::default())?;
    let BoardTrace { task, knobs, out, trace_mib, .. } = wanted;
    let options = CoreTraceOptions { task: *task, knobs, out, trace_mib: *trace_mib };
    let trace = trace_core(&options, &config, &loaded, terminal_observer(Pace::default()).as_ref())?;
    if wanted.json {
        print_json(&trace)?
    } else {
        print_text(&trace.format_table(&stdout_paper()))?
    }
    Ok(DONE)
}
