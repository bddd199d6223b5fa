//! `tpu`: captures of TPU cards, viewed, imported, compared and taken.

use super::arguments::{TpuCommand, TpuView};
use super::failure::Failure;
use super::{DONE, DONE_WITH_LOSSES, Result, print};
use crate::tpu::loss::Losses;
use crate::tpu::{self, Reading};
use std::io::Write;

/// Does one of them.
pub fn run(command: &TpuCommand) -> Result<u8> {
    match command {
        TpuCommand::View(arguments) => view(arguments),
    }
}

fn failed(error: tpu::Error) -> Failure {
    match error {
        tpu::Error::Write { .. } | tpu::Error::Workbook { .. } => Failure::environment(error),
        _ => Failure::usage(error),
    }
}

fn view(arguments: &TpuView) -> Result<u8> {
    let reading = Reading { tiu_mhz: arguments.tiu_freq, compat: arguments.compat };
    let mut timeline = tpu::read(&arguments.input, &reading).map_err(failed)?;
    std::fs::create_dir_all(&arguments.output)
        .map_err(|error| Failure::environment(format!("cannot make `{}`: {error}", arguments.output.display())))?;
    let summary = tpu::summary::summarise(&timeline);
    if !arguments.disable_summary
        && let Some(summary) = &summary
    {
        print(summary.console().trim_end())?;
        tpu::output::write(&arguments.output.join("summary.txt"), |file| file.write_all(summary.text().as_bytes()))
            .map_err(failed)?;
    }
    let mut losses = std::mem::take(&mut timeline.losses);
    if arguments.writes_trace() {
        let tail = (timeline.tail_ns, timeline.tail_offset_ns);
        let host = arguments.trace_file.as_deref().map(|path| tpu::trace::host::read(path, tail, &mut losses));
        let host = host.transpose().map_err(failed)?;
        tpu::trace::write(&timeline, host.as_ref(), &arguments.output.join("perfetto.pftrace")).map_err(failed)?;
    }
    if arguments.writes_registers() {
        tpu::reginfo::write(&timeline, &arguments.output).map_err(failed)?;
    }
    if arguments.writes_book() {
        tpu::book::write(&timeline, &arguments.output, arguments.num_core).map_err(failed)?;
    }
    if arguments.writes_page() {
        tpu::page::write(&timeline, summary.as_ref(), &arguments.output).map_err(failed)?;
    }
    Ok(tell_losses(&losses))
}

fn tell_losses(losses: &Losses) -> u8 {
    super::tell(&losses.notes);
    for loss in &losses.described {
        eprintln!("skipped: {loss}");
    }
    match losses.count {
        0 => DONE,
        count => {
            eprintln!("{count} parts of the capture were skipped");
            DONE_WITH_LOSSES
        }
    }
}
