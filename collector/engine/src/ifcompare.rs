//! `--ifcompare`: after a campaign, runs its whole models with the default schedules and with the best
//! ones in the store.

use crate::Result;
use crate::campaign::graphs::LoadedModels;
use crate::campaign::{Config, ModelRequest, PlannedModule, PlannedTask};
use crate::compare::{self, ComparisonRequest, Report, Way};
use crate::failure::Failure;
use crate::observer::Observer;
use crate::prepared::for_each_thread_count;
use crate::prepared::{PreparedModel, not_on_cpus, refuse_sweeps};
use crate::runs::After;
use measure::ROUNDS;
use report::Paper;
use serde::Serialize;
use std::path::Path;
use std::rc::Rc;

/// Comparison of default and best schedules for one model and number of threads.
#[derive(Serialize)]
#[serde(untagged)]
pub enum Compared {
    /// The times with the default and with the best schedules.
    Timed(Box<Report>),
    /// The model could not be compared.
    Left {
        /// Name of the model.
        model: String,
        /// Batch size of the model, if it has one.
        batch: Option<i64>,
        /// The number of threads.
        threads: usize,
        /// Reason why there are no times.
        why: String,
    },
}

impl Compared {
    /// Returns whether the comparison failed or found wrong outputs.
    pub fn is_loss(&self) -> bool {
        match self {
            Compared::Timed(report) => report.is_wrong(),
            Compared::Left { .. } => true,
        }
    }

    /// Formats the result as text.
    pub fn describe(&self, paper: &Paper) -> String {
        match self {
            Compared::Timed(report) => compare::describe_report(report, paper),
            Compared::Left { model, threads, why, .. } => {
                let plural = if *threads == 1 { "" } else { "s" };
                format!("{model}: {threads} thread{plural}, not compared: {why}")
            }
        }
    }
}

/// Rejects campaigns whose models cannot be run as whole models.
pub fn reject_campaign(
    config: &Config,
    tasks: &[PlannedTask],
    modules: &[PlannedModule],
    is_shard: bool,
) -> Result<()> {
    refuse_sweeps(config, "`--ifcompare` runs a model as a whole")?;
    if config.target_kind().runs_on_gpu() {
        return Err(not_on_cpus());
    }
    if !modules.is_empty() || tasks.iter().any(|planned| planned.partner.is_some()) {
        return Err(Failure::usage("`--ifcompare` needs compiled code for all tasks, but a library computes some")
            .with_hint("remove `--ifcompare`, or `--backend` and partners in `--target`"));
    }
    if is_shard {
        return Err(Failure::usage("`--ifcompare` needs the whole campaign, not one shard").with_hint(
            "remove it, merge the stores, and run `opcollect model compare --variant default --variant best`",
        ));
    }
    Ok(())
}

/// Compares every model for every number of threads. A failure does not end the comparison.
pub fn compare_all(
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
    let seen =
        for_each_thread_count(model, loaded, (config, after), true, observer, |whole, _| on_threads(whole, store));
    let compared = |(threads, seen): (usize, Result<Option<Report>>)| match seen {
        Ok(Some(report)) => Compared::Timed(Box::new(report)),
        Ok(None) => left(threads, "the store has no schedule for its tasks".to_owned()),
        Err(failure) => left(threads, failure.message().to_owned()),
    };
    seen.into_iter().map(compared).collect()
}

/// Times default and best schedules interleaved. Returns None if the store has no usable schedule for any task.
fn on_threads(whole: &mut PreparedModel, store: &Path) -> Result<Option<Report>> {
    let best = whole.best_schedules(store, false)?;
    if best.found_count() == 0 {
        return Ok(None);
    }
    let wanted = ComparisonRequest { variants: &[Way::Default, Way::Best], best: Some(&best), plan: None };
    let variants = compare::prepare_variants(&wanted, whole)?;
    compare::time_variants(variants, ROUNDS, whole).map(Some)
}
