//! `build` and `run`: compile on one machine, measure on another.

use super::collect::{Shown, collect};
use super::pace::Pace;
use super::progress::terminal;
use super::settings::Settled;
use super::signals::watch_signals;
use super::{DONE, DONE_WITH_LOSSES, Result, machine, print, program, settings};
use crate::options::{Measuring, Models, Sweep};
use crate::program::ProgramRun;
use bench::Prebuilt;
use engine::artifacts::{Artifacts, BuildCounts, build_artifacts};
use engine::boards::Standing;
use engine::campaign::graphs::LoadedModels;
use engine::collection::Collection;
use engine::repeat::Repeat;
use engine::stores::open_store;
use std::path::Path;
use std::time::Instant;

/// Compiles a model's tasks into a folder.
pub fn build(models: &Models, sweep: &Sweep, out: &Path) -> Result<u8> {
    let Settled { config, loaded } = settings::config(models, sweep)?;
    let observer = terminal(Pace::default());
    let BuildCounts { built, lost, tasks } = build_artifacts(config, &loaded, out, observer.as_ref())?;
    print(&format!("{built} artifacts of {tasks} tasks in `{}`, {lost} not built", out.display()))?;
    Ok(if lost > 0 { DONE_WITH_LOSSES } else { DONE })
}

/// Measures a folder of artifacts.
pub fn run(dir: &Path, store: Option<&Path>, measuring: &Measuring, asked: &ProgramRun, as_json: bool) -> Result<u8> {
    program::refuse(dir, asked)?;
    let start = Instant::now();
    let repeat = Repeat::new(&measuring.repeat())?;
    let artifacts = Artifacts::read(dir)?;
    let mut workers = machine::workers(&artifacts.config().limits)?;
    let versions = artifacts.versions(&mut workers)?;
    let _exclusive = crate::exclusive(measuring.wait)?;
    let collection = Collection {
        campaign: artifacts.campaign(),
        versions,
        revisions: artifacts.revisions().clone(),
        store: open_store(store)?,
        shard: None,
        repeat,
        night: measuring.night.as_deref(),
        loaded: &LoadedModels::default(),
        on: Standing::here()?,
        start,
        signal: watch_signals()?,
        observer: terminal(measuring.progress),
    };
    let shown = Shown { compares: false, sink: None, as_json, curves: None };
    collect(&collection, &mut Prebuilt::new(&mut workers, |job| artifacts.find(job)), shown)
}
