//! `tpu`: captures of TPU cards, viewed, imported, compared and taken.

use super::arguments::{TpuCommand, TpuView};
use super::failure::Failure;
use super::{DONE, DONE_WITH_LOSSES, Result, print};
use crate::tpu::loss::Losses;
use crate::tpu::{self, Reading};
use std::path::Path;

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
    if let Some(summary) = tpu::summary::summarise(&timeline) {
        print(summary.console().trim_end())?;
        write(&arguments.output.join("summary.txt"), summary.text().as_bytes())?;
    }
    let mut losses = std::mem::take(&mut timeline.losses);
    let host = match &arguments.trace_file {
        Some(path) => {
            let tail = (timeline.tail_ns, timeline.tail_offset_ns);
            Some(tpu::trace::host::read(path, tail, &mut losses).map_err(failed)?)
        }
        None => None,
    };
    tpu::trace::write(&timeline, host.as_ref(), &arguments.output.join("perfetto.pftrace")).map_err(failed)?;
    tpu::reginfo::write(&timeline, &arguments.output).map_err(failed)?;
    Ok(tell_losses(&losses))
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    std::fs::write(path, bytes).map_err(|source| failed(tpu::Error::Write { path: path.to_owned(), source }))
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
