//! `--ifcompare`: after a campaign, runs its whole models with the default schedules and with the best in the store.

use crate::Result;
use crate::campaign::graphs::LoadedModels;
use crate::campaign::{Config, ModelRequest, PlannedModule, PlannedTask};
use crate::compare::{self, ComparisonRequest, Report, VariantName};
use crate::failure::Failure;
use crate::observer::Observer;
use crate::prepared::for_each_thread_count;
use crate::prepared::{PreparedModel, cpu_target_failure, refuse_sweeps};
use crate::runs::PrecedingCampaign;
use measure::ROUNDS;
use report::Paper;
use serde::Serialize;
use std::path::Path;
use std::rc::Rc;

/// Comparison of default and best schedules for one model and number of threads.
#[derive(Serialize)]
#[serde(untagged)]
pub enum ModelComparison {
    /// The times with the default and with the best schedules.
    Timed(Box<Report>),
    /// The model could not be compared.
    NotCompared {
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

impl ModelComparison {
    /// Returns whether the comparison failed or found wrong outputs.
    pub fn is_loss(&self) -> bool {
        match self {
            ModelComparison::Timed(report) => report.is_wrong(),
            ModelComparison::NotCompared { .. } => true,
        }
    }

    /// Formats the result as text.
    pub fn describe(&self, paper: &Paper) -> String {
        match self {
            ModelComparison::Timed(report) => compare::describe_report(report, paper),
            ModelComparison::NotCompared { model, threads, why, .. } => {
                format!("{model}: {}, not compared: {why}", report::format_count(*threads, "thread"))
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
        return Err(cpu_target_failure());
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
    preceding: &PrecedingCampaign,
    observer: &Rc<dyn Observer>,
) -> Vec<ModelComparison> {
    config
        .models
        .iter()
        .flat_map(|model| compare_model((model, loaded), (config, preceding), store, observer))
        .collect()
}

fn compare_model(
    (model, loaded): (&ModelRequest, &LoadedModels),
    (config, preceding): (&Config, &PrecedingCampaign),
    store: &Path,
    observer: &Rc<dyn Observer>,
) -> Vec<ModelComparison> {
    let left = |threads: usize, why: String| ModelComparison::NotCompared {
        model: model.label(),
        batch: model.batch,
        threads,
        why,
    };
    let seen = for_each_thread_count(model, loaded, (config, preceding), true, observer, |prepared, _| {
        compare_schedules(prepared, store)
    });
    let compared = |(threads, seen): (usize, Result<Option<Report>>)| match seen {
        Ok(Some(report)) => ModelComparison::Timed(Box::new(report)),
        Ok(None) => left(threads, "the store has no schedule for its tasks".to_owned()),
        Err(failure) => left(threads, failure.message().to_owned()),
    };
    seen.into_iter().map(compared).collect()
}

/// Times default and best schedules interleaved. Returns None if the store has no usable schedule for any task.
fn compare_schedules(prepared: &mut PreparedModel, store: &Path) -> Result<Option<Report>> {
    let best = prepared.best_schedules(store, false)?;
    if best.found_count() == 0 {
        return Ok(None);
    }
    let wanted =
        ComparisonRequest { variants: &[VariantName::Default, VariantName::Best], best: Some(&best), plan: None };
    let variants = compare::prepare_variants(&wanted, prepared)?;
    compare::time_variants(variants, ROUNDS, prepared).map(Some)
}
