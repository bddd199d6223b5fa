//! Merges a configuration file and flags into a checked configuration. Flags override the file.

use super::Result;
use crate::options::{Models, Sweep, Tuning};
use engine::campaign::choices::ModelSource;
use engine::campaign::settings::{ResolvedConfig, SweepSettings};
use engine::campaign::{CoRun, ModelEntry, Settings};
use engine::failure::Failure;
use job::space::Filter;
use models::{Choice, names};
use readers::inputs::OpenInputs;
use std::collections::BTreeMap;

/// Returns the configuration of commands that measure or build without search.
pub fn resolve_config(models: &Models, sweep: &Sweep) -> Result<ResolvedConfig> {
    Settings { tune: None, ..merge_settings(models, sweep)? }.resolve_here()
}

/// Returns the configuration of `build`, which compiles a sample of schedules.
pub fn config_of_build(models: &Models, sweep: &Sweep) -> Result<ResolvedConfig> {
    let settings = merge_settings(models, sweep)?;
    if settings.tune.is_some() {
        return Err(Failure::usage(
            "`build` compiles a sample of schedules, but the configuration has a table `[tune]`",
        )
        .with_hint("remove the table; a search builds and measures in one command, `opcollect --iftune`"));
    }
    settings.resolve_here()
}

/// Returns the configuration of commands that may search, and may measure on a board.
pub fn config_of_search(models: &Models, sweep: &Sweep, tuning: &Tuning, is_on_board: bool) -> Result<ResolvedConfig> {
    // The number of a board's CPUs is known once it is reached. No board has more.
    const BOARD_CPUS: usize = 1024;
    let mut settings = merge_settings(models, sweep)?;
    merge_tuning(&mut settings, tuning, sweep)?;
    if !is_on_board {
        return settings.resolve_here();
    }
    settings.sweep.threads.get_or_insert_with(|| vec![1]);
    settings.resolve(BOARD_CPUS)
}

pub fn config_of_coruns(models: &Models, sweep: &Sweep) -> Result<(ResolvedConfig, Option<CoRun>)> {
    let Sweep { settings: SweepSettings { schedules, samplers, threads, cache, budget_seconds, .. }, sampling, .. } =
        sweep;
    let without_effect = [
        ("--schedules", schedules.is_some()),
        ("--sampler", samplers.is_some()),
        ("--threads", threads.is_some()),
        ("--cache", cache.is_some()),
        ("--budget", budget_seconds.is_some()),
        ("--precision", sampling.precision.is_some()),
        ("--visits", sampling.visits.is_some()),
        ("--stack-offset", sampling.stack_offset.is_some()),
    ];
    if let Some((flag, _)) = without_effect.into_iter().find(|(_, is_given)| *is_given) {
        return Err(Failure::usage(format!("`{flag}` has no effect on co-runs")).with_hint(
            "the table `[corun]` of the configuration sets threads and measurements, for example `threads = 1`",
        ));
    }
    let settings = Settings { tune: None, ..merge_settings(models, sweep)? };
    let corun = settings.corun.clone();
    Ok((settings.resolve_here()?, corun))
}

/// Returns the models with the settings of the configuration file, which flags override.
pub fn models_with_file(models: &Models) -> Result<Models> {
    let settings = merge_settings(models, &Sweep::default())?.model;
    Ok(Models { settings, ..models.clone() })
}

/// Merges the configuration file and the flags. Flags override the file.
fn merge_settings(models: &Models, sweep: &Sweep) -> Result<Settings> {
    let file = match &models.config {
        Some(path) => Settings::read(path).map_err(Failure::usage)?,
        None => Settings::default(),
    };
    let mut settings = Settings {
        models: model_entries(models)?.unwrap_or(file.models),
        model: models.settings.clone().with_fallback(file.model),
        sweep: sweep.settings.clone().with_fallback(file.sweep),
        ..file
    };
    if models.modelsource.is_some() && settings.models.is_empty() {
        return Err(Failure::usage("`--modelsource` needs a model").with_hint("see `opcollect list`"));
    }
    sweep.sampling.apply_to_plan(&mut settings.measure);
    settings.limits.builders = sweep.builders.unwrap_or(settings.limits.builders);
    settings.request_counters(&sweep.counters);
    Ok(settings)
}

fn model_entries(models: &Models) -> Result<Option<Vec<ModelEntry>>> {
    if models.model_names().next().is_none() {
        if models.inputs.is_given() {
            let message = "`--shape`, `--bind` and `--skip-unsupported` need a model";
            let hint = "in a configuration, give `shapes`, `values` and `skip_unsupported`";
            return Err(Failure::usage(message).with_hint(hint));
        }
        return Ok(None);
    }
    let sizes = parse_sizes(&models.inputs)?;
    let values = models.inputs.parse_values().map_err(Failure::usage)?;
    let mut entries = Vec::new();
    for name in models.model_names() {
        let source = model_source(models.modelsource, name)?;
        entries.extend(sizes.iter().map(|shapes| ModelEntry {
            source: source.name().to_owned(),
            name: name.clone(),
            shapes: shapes.clone(),
            values: values.clone(),
            skip_unsupported: models.inputs.skip_unsupported,
        }));
    }
    Ok(Some(entries))
}

/// Returns a hint for an operator name that lacks sizes or is misspelt.
fn operator_hint(name: &str) -> Option<String> {
    let (kind, has_sizes) = name.split_once(':').map_or((name, false), |(kind, _)| (kind, true));
    let forms = zoo::simple::list_forms();
    match forms.iter().find(|form| form.name == kind) {
        Some(form) if !has_sizes => {
            Some(format!("`{kind}` is an operator, whose sizes follow a colon, such as `{}`", form.example))
        }
        _ if has_sizes => names::suggest_nearest(kind, forms.iter().map(|form| form.name)),
        _ => None,
    }
}

/// Returns the given source of the model, or else the one that the name implies.
fn model_source(given: Option<ModelSource>, name: &str) -> Result<ModelSource> {
    let said = zoo::source_of(name).and_then(ModelSource::from_name);
    match (given, said) {
        (Some(ModelSource::Local), Some(said)) if said != ModelSource::Local => {
            let hint = format!(
                "the name belongs to another source: give `--modelsource {}`, or remove that option",
                said.name()
            );
            Err(Failure::usage(format!("the zoo has no model `{name}`")).with_hint(hint))
        }
        (Some(given), _) => Ok(given),
        (None, Some(said)) => Ok(said),
        (None, None) => Err(unknown_model(name)),
    }
}

/// Returns the error for a name that no source has.
fn unknown_model(name: &str) -> Failure {
    let near = names::suggest_nearest(name, zoo::list_models().iter().map(|entry| entry.name));
    if let Some(problem) = names::missing_file(name, near.as_deref().unwrap_or_default()) {
        return Failure::usage(format!("cannot read `{name}`: {problem}"));
    }
    let hint = operator_hint(name)
        .or(near)
        .unwrap_or_else(|| "`opcollect list` shows all models; `--modelsource` sets the format of a file".to_owned());
    Failure::usage(format!("no source has a model `{name}`")).with_hint(hint)
}

/// Parses input shapes. Returns one map from names to shapes per model size: the n-th shape of an input belongs to the
/// n-th size, and the only shape of an input to all sizes.
fn parse_sizes(inputs: &OpenInputs) -> Result<Vec<BTreeMap<String, Vec<i64>>>> {
    let given = inputs.parse_shapes().map_err(Failure::usage)?;
    let count = given.values().map(Vec::len).max().unwrap_or(1);
    if let Some((name, shapes)) = given.iter().find(|(_, shapes)| shapes.len() != 1 && shapes.len() != count) {
        let message = format!("`--shape` gives `{name}` {} shapes and another input {count}", shapes.len());
        return Err(Failure::usage(message)
            .with_hint("give each input one shape for all sizes of the model, or one shape per size"));
    }
    let at = |place: usize| {
        given.iter().map(move |(name, shapes)| (name.clone(), shapes[place.min(shapes.len() - 1)].clone()))
    };
    Ok((0..count).map(|place| at(place).collect()).collect())
}

fn merge_tuning(settings: &mut Settings, tuning: &Tuning, sweep: &Sweep) -> Result<()> {
    let Tuning { iftune, settings: flags, only, curves } = tuning;
    match iftune {
        Some(true) => drop(settings.tune.get_or_insert_default()),
        Some(false) => settings.tune = None,
        None => {}
    }
    let Some(tune) = &mut settings.tune else {
        let given = [
            ("--tuner", flags.tuner.is_some()),
            ("--trials", flags.trials.is_some()),
            ("--trials-per-task", flags.trials_per_task.is_some()),
            ("--patience", flags.patience.is_some()),
            ("--only", !only.is_empty()),
            ("--curves", curves.is_some()),
        ];
        let Some((flag, _)) = given.into_iter().find(|(_, is_given)| *is_given) else { return Ok(()) };
        return Err(Failure::usage(format!("`{flag}` needs a search, which `--iftune true` enables"))
            .with_hint("add `--iftune true`, or remove the option"));
    };
    if sweep.settings.schedules.is_some() || sweep.settings.samplers.is_some() {
        let flag = if sweep.settings.schedules.is_some() { "--schedules" } else { "--sampler" };
        return Err(Failure::usage(format!("`{flag}` applies to a sweep, not to a search"))
            .with_hint("give `--trials` and `--tuner` instead, or `--iftune false`"));
    }
    *tune = flags.clone().with_fallback(std::mem::take(tune));
    if !only.is_empty() {
        tune.only = Some(parse_filter(only)?);
    }
    Ok(())
}

/// Returns the restriction of schedule spaces by flags, or else that of the configuration file's table `[tune]`.
pub fn space_filter(models: &Models, only: &[String]) -> Result<Filter> {
    let flags = parse_filter(only)?;
    if !flags.is_empty() {
        return Ok(flags);
    }
    let tune = merge_settings(models, &Sweep::default())?.tune;
    Ok(tune.and_then(|tune| tune.only).unwrap_or_default())
}

fn parse_filter(only: &[String]) -> Result<Filter> {
    Filter::parse_texts(only).map_err(|text| {
        Failure::usage(format!("`--only {text}` is not an axis with settings")).with_hint("write it as `tile_x=4,8`")
    })
}
