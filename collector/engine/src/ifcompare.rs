//! `--ifcompare`: after a campaign, its models as a whole, by the default schedules and by the best that the store has.

use crate::Result;
use crate::campaign::graphs::LoadedModels;
use crate::campaign::{Config, ModelRequest, PlannedModule, PlannedTask};
use crate::compare::{self, Report, Wanted, Way};
use crate::failure::Failure;
use crate::observer::Observer;
use crate::prepared::each;
use crate::prepared::{PreparedModel, not_on_cpus, refuse_sweeps};
use crate::runs::After;
use measure::ROUNDS;
use report::Paper;
use serde::Serialize;
use std::path::Path;
use std::rc::Rc;

/// A model on a number of threads.
#[derive(Serialize)]
#[serde(untagged)]
pub enum Compared {
    /// Both ways were timed.
    Timed(Box<Report>),
    /// They were not.
    Left {
        /// The model.
        model: String,
        /// Its batch size, where it has one.
        batch: Option<i64>,
        /// The number of threads.
        threads: usize,
        /// Why they were not.
        why: String,
    },
}

impl Compared {
    /// Whether something is missing or wrong.
    pub fn is_loss(&self) -> bool {
        match self {
            Compared::Timed(report) => report.is_wrong(),
            Compared::Left { .. } => true,
        }
    }

    /// For a reader.
    pub fn describe(&self, paper: &Paper) -> String {
        match self {
            Compared::Timed(report) => compare::describe(report, paper),
            Compared::Left { model, threads, why, .. } => {
                let plural = if *threads == 1 { "" } else { "s" };
                format!("{model}: {threads} thread{plural}, not compared: {why}")
            }
        }
    }
}

/// Refuses campaigns whose models cannot be run as a whole.
pub fn refuse(config: &Config, tasks: &[PlannedTask], modules: &[PlannedModule], is_shard: bool) -> Result<()> {
    refuse_sweeps(config, "`--ifcompare` runs a model as a whole")?;
    if config.kind().runs_on_gpu() {
        return Err(not_on_cpus());
    }
    if !modules.is_empty() || tasks.iter().any(|planned| planned.partner.is_some()) {
        return Err(Failure::usage("`--ifcompare` runs compiled code, and a library computes tasks of this campaign")
            .with_hint("leave out `--ifcompare`, or `--backend` and partners in `--target`"));
    }
    if is_shard {
        return Err(Failure::usage("`--ifcompare` needs all of a campaign, and a shard does a part of it").with_hint(
            "leave it out, merge the stores, and run `opcollect model compare --variant default --variant best`",
        ));
    }
    Ok(())
}

/// Every model of a campaign on every number of threads. What goes wrong with one is told in its place.
pub fn all(
    config: &Config,
    loaded: &LoadedModels,
    store: &Path,
    after: &After,
    observer: &Rc<dyn Observer>,
) -> Vec<Compared> {
    config.models.iter().flat_map(|model| of_model((model, loaded), (config, after), store, observer)).collect()
}

fn of_model(
    (model, loaded): (&ModelRequest, &LoadedModels),
    (config, after): (&Config, &After),
    store: &Path,
    observer: &Rc<dyn Observer>,
) -> Vec<Compared> {
    let left = |threads: usize, why: String| Compared::Left { model: model.label(), batch: model.batch, threads, why };
    let seen = each(model, loaded, (config, after), true, observer, |whole, _| on_threads(whole, store));
    let compared = |(threads, seen): (usize, Result<Option<Report>>)| match seen {
        Ok(Some(report)) => Compared::Timed(Box::new(report)),
        Ok(None) => left(threads, "the store has a schedule for none of its tasks".to_owned()),
        Err(failure) => left(threads, failure.message().to_owned()),
    };
    seen.into_iter().map(compared).collect()
}

/// Both ways in turns; nothing where both would be the same code.
fn on_threads(whole: &mut PreparedModel, store: &Path) -> Result<Option<Report>> {
    let best = whole.best(store, false)?;
    if best.found() == 0 {
        return Ok(None);
    }
    let wanted = Wanted { variants: &[Way::Default, Way::Best], best: Some(&best), plan: None };
    let variants = compare::make(&wanted, whole)?;
    compare::time(variants, ROUNDS, whole).map(Some)
}
