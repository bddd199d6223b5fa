//! `model compare`: several ways to run one model, timed in interleaved rounds.

use super::pace::Pace;
use super::progress::terminal_observer;
use super::{DONE, DONE_WITH_LOSSES, Result, print_json, print_text, settings, stdout_paper};
use crate::options::{ExclusiveUse, Models, Sampling, Sweep};
use clap::Args;
use engine::campaign::settings::ResolvedConfig;
use engine::compare::{ComparisonRequest, VariantName, describe_report, prepare_variants, time_variants};
use engine::failure::Failure;
use engine::flags::choice_parser;
use engine::prepared::{PreparationRequest, PreparedModel, RunLocation};
use engine::{machine, staging};
use job::Engine;
use measure::ROUNDS;
use models::Choice;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct ModelCompare {
    #[command(flatten)]
    pub models: Models,
    /// Way to run the model; repeatable [default: default, onnxruntime]
    ///
    /// Ratios are relative to the first variant.
    #[arg(long, value_name = "VARIANT", value_parser = choice_parser::<VariantName>())]
    pub variant: Vec<VariantName>,
    /// Store with the schedules for `--variant best`
    ///
    /// Schedules are those measured on this class of hosts, for the same target, versions, code and number of threads.
    #[arg(long, value_name = "DIR")]
    pub store: Option<PathBuf>,
    /// Also use times of other TVM versions and code revisions for `best`
    #[arg(long, requires = "store")]
    pub all_versions: bool,
    /// Plan for `--variant plan`, which `oppredict plan` wrote
    ///
    /// The plan must be for this model, machine and number of threads.
    #[arg(long, value_name = "FILE")]
    pub plan: Option<PathBuf>,
    /// Number of threads [default: all CPUs]
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Number of rounds
    ///
    /// Each round samples every variant for a short time, in rotating order. Rounds are divided into 5 visits, which
    /// are fresh processes; intervals of ratios are over these. If visits disagree by more than 10 %, all rounds are
    /// repeated, at most twice.
    #[arg(long, value_name = "N", default_value_t = ROUNDS, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub rounds: u32,
    /// Seed of input values [default: 0]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..1 << 63))]
    pub seed: Option<u64>,
    /// Skip the comparison with the reference, which is slow for large models
    #[arg(long)]
    pub no_check: bool,
    #[command(flatten)]
    pub exclusive: ExclusiveUse,
    /// Print one JSON document as the last line of stdout
    #[arg(long)]
    pub json: bool,
}

pub fn run(arguments: &ModelCompare) -> Result<u8> {
    let wanted = requested_variants(arguments)?;
    let engines: Vec<Engine> = wanted.iter().map(|variant| variant.engine()).collect();
    let sweep = Sweep::of_run(arguments.threads, arguments.seed, &Sampling::default());
    let ResolvedConfig { config, loaded } = settings::resolve_config(&arguments.models, &sweep)?;
    let observer = terminal_observer(Pace::default());
    let mut prepared = PreparedModel::from_request(PreparationRequest {
        config,
        models: &loaded,
        threads: arguments.threads,
        inputs: &Default::default(),
        is_checked: !arguments.no_check,
        engines: &engines,
        on: RunLocation::Cpus,
        observer: observer.clone(),
    })?;
    let best =
        arguments.store.as_ref().map(|store| prepared.best_schedules(store, arguments.all_versions)).transpose()?;
    let plan = arguments.plan.as_ref().map(|path| staging::read_plan(path, &prepared)).transpose()?;
    let wanted = ComparisonRequest { variants: &wanted, best: best.as_ref(), plan: plan.as_ref() };
    let variants = prepare_variants(&wanted, &mut prepared)?;
    let _exclusive = machine::lock_cpus(arguments.exclusive.wait, observer.as_ref())?;
    let report = time_variants(variants, arguments.rounds, &mut prepared)?;
    if arguments.json {
        print_json(&report)?
    } else {
        print_text(&describe_report(&report, &stdout_paper()))?
    }
    Ok(if report.is_wrong() { DONE_WITH_LOSSES } else { DONE })
}

/// Returns the variants to compare; fails for duplicates.
fn requested_variants(arguments: &ModelCompare) -> Result<Vec<VariantName>> {
    let wanted = match arguments.variant.as_slice() {
        [] => vec![VariantName::Default, VariantName::Onnxruntime],
        given => given.to_vec(),
    };
    if let Some(place) = (1..wanted.len()).find(|place| wanted[..*place].contains(&wanted[*place])) {
        return Err(Failure::usage(format!("`--variant {}` is given twice", wanted[place].name())));
    }
    match (wanted.contains(&VariantName::Plan), &arguments.plan) {
        (true, None) => {
            return Err(Failure::usage("`--variant plan` needs a plan")
                .with_hint("give `--plan FILE`; `oppredict plan --model M --data STORE --out FILE` creates one"));
        }
        (false, Some(_)) => {
            return Err(
                Failure::usage("`--plan` needs `--variant plan`").with_hint("add `--variant plan`, or remove `--plan`")
            );
        }
        _ => {}
    }
    match (wanted.contains(&VariantName::Best), &arguments.store) {
        (true, None) => Err(Failure::usage("`--variant best` needs a store with measured schedules")
            .with_hint("give `--store DIR`; `opcollect --modelname … --store DIR` creates one")),
        (false, Some(_)) => {
            Err(Failure::usage("`--store` needs `--variant best`")
                .with_hint("add `--variant best`, or remove `--store`"))
        }
        _ => Ok(wanted),
    }
}
