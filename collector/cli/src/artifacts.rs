//! `build` and `run`: compile on one machine, measure on another.

use super::collect::{CollectionOutput, collect_and_report};
use super::pace::Pace;
use super::progress::terminal_observer;
use super::signals::watch_signals_for;
use super::{DONE, DONE_WITH_LOSSES, Result, print_text, program, settings};
use crate::options::{Measuring, Models, Sweep};
use crate::program::ProgramRun;
use engine::artifacts::{Artifacts, BuildCounts, build_artifacts};
use engine::campaign::settings::ResolvedConfig;
use engine::session::{Session, SessionOptions};
use report::format_count;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

pub fn compile_tasks(models: &Models, sweep: &Sweep, out: &Path) -> Result<u8> {
    let ResolvedConfig { config, loaded } = settings::config_of_build(models, sweep)?;
    let observer = terminal_observer(Pace::default());
    let BuildCounts { built, lost, tasks } = build_artifacts(config, &loaded, out, observer.as_ref())?;
    let (artifacts, tasks) = (format_count(built, "artifact"), format_count(tasks, "task"));
    print_text(&format!("built {artifacts} of {tasks} in `{}`; {lost} could not be built", out.display()))?;
    Ok(if lost > 0 { DONE_WITH_LOSSES } else { DONE })
}

pub fn run_artifacts(
    dir: &Path,
    store: Option<&Path>,
    measuring: &Measuring,
    arguments: &ProgramRun,
    as_json: bool,
) -> Result<u8> {
    program::refuse_program_flags(dir, arguments)?;
    let signal = Arc::default();
    let options = SessionOptions {
        board: None,
        store: store.map(Path::to_owned),
        shard: None,
        repeat: measuring.repeat_options(),
        night: measuring.night.clone(),
        compares: false,
        wait_seconds: measuring.exclusive.wait,
        start: Instant::now(),
        signal: Arc::clone(&signal),
    };
    let session = Session::open_artifacts(Artifacts::read(dir)?, options, terminal_observer(measuring.progress))?;
    watch_signals_for(&signal)?;
    collect_and_report(&session, CollectionOutput { sink: None, as_json, curves: None })
}
