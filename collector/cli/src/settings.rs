//! From what was typed to what is meant: file, then flags, then checks.

use super::Result;
use crate::options::{
    AttentionArgument, BackendArgument, CacheArgument, ExecutorArgument, FuseArgument, Models, PhaseArgument,
    SamplerArgument, Sweep, TunerArgument, Tuning,
};
use engine::campaign::config::{self, AttentionChoice, CacheChoice, Executor, FuseChoice, RawModel, Sampler};
use engine::campaign::graphs::{LoadedModels, settle_batches};
use engine::campaign::{CoRun, Config, RawConfig, Tune};
use engine::failure::{Failure, chain};
use job::space::Filter;
use measure::counters::Backend;
use search::TunerName;
use std::collections::BTreeMap;
use zoo::transformers::Phase;

/// A checked configuration, and the models that were read to check it.
pub struct Settled {
    /// The configuration.
    pub config: Config,
    /// Its models.
    pub loaded: LoadedModels,
}

/// The complete configuration of a command that measures or builds, and searches nothing.
pub fn config(models: &Models, sweep: &Sweep) -> Result<Settled> {
    settle(RawConfig { tune: None, ..raw(models, sweep)? })
}

/// The same of the command that may search, and may measure on a board, which then says how many CPUs it has.
pub fn config_of_search(models: &Models, sweep: &Sweep, tuning: &Tuning, is_on_board: bool) -> Result<Settled> {
    /// No board has more.
    const BOARD_CPUS: usize = 1024;
    let mut raw = raw(models, sweep)?;
    take_tuning(&mut raw, tuning, sweep)?;
    if !is_on_board {
        return settle(raw);
    }
    raw.threads.get_or_insert_with(|| vec![1]);
    settle_for(raw, BOARD_CPUS)
}

/// File, then flags.
fn raw(models: &Models, sweep: &Sweep) -> Result<RawConfig> {
    let mut raw = match &models.config {
        Some(path) => RawConfig::read(path).map_err(Failure::usage)?,
        None => RawConfig::default(),
    };
    take_models(&mut raw, models)?;
    take_sweep(&mut raw, sweep);
    Ok(raw)
}

/// The same of co-runs, with how they are to be made.
pub fn config_of_coruns(models: &Models, sweep: &Sweep) -> Result<(Settled, Option<CoRun>)> {
    let raw = RawConfig { tune: None, ..raw(models, sweep)? };
    let corun = raw.corun.clone();
    Ok((settle(raw)?, corun))
}

fn settle(raw: RawConfig) -> Result<Settled> {
    settle_for(raw, engine::machine::allowed_cpus()?.len())
}

fn settle_for(raw: RawConfig, cpus: usize) -> Result<Settled> {
    let mut config = raw.check(cpus).map_err(Failure::usage)?;
    if config.models.is_empty() {
        return Err(
            Failure::usage("no model was named").with_hint("give `--modelname`, or `models` in the configuration")
        );
    }
    let loaded = LoadedModels::default();
    settle_batches(&mut config, &loaded).map_err(|error| Failure::usage(chain(&error)))?;
    Ok(Settled { config, loaded })
}

fn take_models(raw: &mut RawConfig, models: &Models) -> Result<()> {
    if !models.modelname.is_empty() {
        let source = models.modelsource.ok_or_else(|| {
            Failure::usage("`--modelname` needs `--modelsource`").with_hint("add `--modelsource local` for the zoo")
        })?;
        let sizes = sizes(&models.shape)?;
        raw.models.clear();
        for name in &models.modelname {
            raw.models.extend(sizes.iter().map(|shapes| RawModel {
                source: source.name().to_owned(),
                name: name.clone(),
                shapes: shapes.clone(),
                skip_unsupported: models.skip_unsupported,
            }));
        }
    } else if !models.shape.is_empty() || models.skip_unsupported {
        let message = "`--shape` and `--skip-unsupported` need `--modelname`";
        return Err(Failure::usage(message).with_hint("in a configuration, give `shapes` and `skip_unsupported`"));
    } else if let (Some(_), true) = (models.modelsource, raw.models.is_empty()) {
        return Err(Failure::usage("`--modelsource` needs `--modelname`").with_hint("see `opcollect list`"));
    }
    if !models.batchsize.is_empty() {
        raw.batch = Some(models.batchsize.clone());
    }
    if !models.sequence.is_empty() {
        raw.sequence = Some(models.sequence.clone());
    }
    if !models.phase.is_empty() {
        let phase = |argument: &PhaseArgument| match argument {
            PhaseArgument::Prefill => Phase::Prefill,
            PhaseArgument::Decode => Phase::Decode,
        };
        raw.phase = Some(models.phase.iter().map(phase).collect());
    }
    raw.steps = models.steps.or(raw.steps);
    if let Some(attention) = models.attention {
        raw.attention = Some(match attention {
            AttentionArgument::Fused => AttentionChoice::Fused,
            AttentionArgument::Split => AttentionChoice::Split,
            AttentionArgument::Both => AttentionChoice::Both,
        });
    }
    if let Some(executor) = models.executor {
        raw.executor = Some(match executor {
            ExecutorArgument::Default => Executor::Default,
            ExecutorArgument::Vm => Executor::Vm,
        });
    }
    raw.variations = models.variations.or(raw.variations);
    if let Some(target) = &models.target {
        raw.target = Some(target.clone());
    }
    if let Some(backend) = models.backend {
        raw.backend = Some(match backend {
            BackendArgument::Tvm => config::Backend::Tvm,
            BackendArgument::Torch => config::Backend::Torch,
        });
    }
    if !models.arch.is_empty() {
        raw.arch = Some(models.arch.clone());
    }
    raw.unit = models.unit.clone().or(raw.unit.take());
    raw.board = models.board.clone().or(raw.board.take());
    raw.fpga_config = models.fpga_config.clone().or(raw.fpga_config.take());
    raw.sim_params = models.sim_params.clone().or(raw.sim_params.take());
    if let Some(fuse) = models.fuse {
        raw.fuse = Some(match fuse {
            FuseArgument::Epilogue => FuseChoice::Epilogue,
            FuseArgument::None => FuseChoice::None,
        });
    }
    Ok(())
}

/// Shapes by name, once for each size: an input that is named several times has as many.
fn sizes(texts: &[String]) -> Result<Vec<BTreeMap<String, Vec<i64>>>> {
    let mut given: BTreeMap<String, Vec<Vec<i64>>> = BTreeMap::new();
    for text in texts {
        let (name, extents) = shape(text)?;
        given.entry(name).or_default().push(extents);
    }
    let count = given.values().map(Vec::len).max().unwrap_or(1);
    if let Some((name, shapes)) = given.iter().find(|(_, shapes)| shapes.len() != 1 && shapes.len() != count) {
        let message = format!("`--shape` gives `{name}` {} shapes and another input {count}", shapes.len());
        return Err(Failure::usage(message).with_hint("give each input one shape, or one for each size"));
    }
    let at = |place: usize| {
        given.iter().map(move |(name, shapes)| (name.clone(), shapes[place.min(shapes.len() - 1)].clone()))
    };
    Ok((0..count).map(|place| at(place).collect()).collect())
}

/// `x=1x3x224x224`; the name may hold any sign.
fn shape(text: &str) -> Result<(String, Vec<i64>)> {
    let parsed = text.rsplit_once('=').and_then(|(name, extents)| {
        let extents = extents.split('x').filter(|extent| !extent.is_empty());
        Some((name.to_owned(), extents.map(|extent| extent.parse().ok()).collect::<Option<Vec<i64>>>()?))
    });
    parsed.ok_or_else(|| {
        Failure::usage(format!("`--shape {text}` is not a name and a shape")).with_hint("write it as `x=1x3x224x224`")
    })
}

fn take_sweep(raw: &mut RawConfig, sweep: &Sweep) {
    raw.schedules = sweep.schedules.or(raw.schedules);
    raw.seed = sweep.seed.or(raw.seed);
    raw.budget_seconds = sweep.budget.or(raw.budget_seconds);
    if !sweep.threads.is_empty() {
        raw.threads = Some(sweep.threads.clone());
    }
    if !sweep.sampler.is_empty() {
        let sampler = |argument: &SamplerArgument| match argument {
            SamplerArgument::Template => Sampler::Template,
            SamplerArgument::Metaschedule => Sampler::MetaSchedule,
        };
        raw.samplers = Some(sweep.sampler.iter().map(sampler).collect());
    }
    if !sweep.cache.is_empty() {
        let state = |argument: &CacheArgument| match argument {
            CacheArgument::Warm => CacheChoice::Warm,
            CacheArgument::Cold => CacheChoice::Cold,
        };
        raw.cache = Some(sweep.cache.iter().map(state).collect());
    }
    sweep.sampling.apply(&mut raw.measure);
    if let Some(builders) = sweep.builders {
        raw.limits.builders = builders;
    }
    match sweep.counters.as_slice() {
        [] => {}
        [only] if only == "none" => raw.counters.backend = Backend::None,
        names => {
            raw.counters.events = names.to_vec();
            // The flag wins over a file that disables counters.
            if raw.counters.backend == Backend::None {
                raw.counters.backend = Backend::default();
            }
        }
    }
}

fn take_tuning(raw: &mut RawConfig, tuning: &Tuning, sweep: &Sweep) -> Result<()> {
    let Tuning { iftune, tuner, trials, trials_per_task, patience, only, curves } = tuning;
    match iftune {
        Some(true) => drop(raw.tune.get_or_insert_with(Tune::default)),
        Some(false) => raw.tune = None,
        None => {}
    }
    let Some(tune) = &mut raw.tune else {
        let given = [
            ("--tuner", tuner.is_some()),
            ("--trials", trials.is_some()),
            ("--trials-per-task", trials_per_task.is_some()),
            ("--patience", patience.is_some()),
            ("--only", !only.is_empty()),
            ("--curves", curves.is_some()),
        ];
        let Some((flag, _)) = given.into_iter().find(|(_, is_given)| *is_given) else { return Ok(()) };
        return Err(Failure::usage(format!("`{flag}` is for a search, and none was asked for"))
            .with_hint("add `--iftune true`, or leave it out"));
    };
    if sweep.schedules.is_some() || !sweep.sampler.is_empty() {
        let flag = if sweep.schedules.is_some() { "--schedules" } else { "--sampler" };
        return Err(Failure::usage(format!("`{flag}` is for a sweep, and this is a search"))
            .with_hint("give `--trials` and `--tuner` instead, or `--iftune false`"));
    }
    if let Some(tuner) = tuner {
        tune.tuner = name_of(*tuner);
    }
    tune.trials = trials.unwrap_or(tune.trials);
    tune.trials_per_task = trials_per_task.or(tune.trials_per_task);
    tune.patience = patience.unwrap_or(tune.patience);
    if !only.is_empty() {
        tune.only = filter(only)?;
    }
    Ok(())
}

/// Settings of axes, as they are typed.
pub fn filter(only: &[String]) -> Result<Filter> {
    Filter::parse(only).map_err(|text| {
        Failure::usage(format!("`--only {text}` is not an axis with settings")).with_hint("write it as `tile_x=4,8`")
    })
}

fn name_of(tuner: TunerArgument) -> TunerName {
    match tuner {
        TunerArgument::Draft => TunerName::Draft,
        TunerArgument::Xgb => TunerName::Xgb,
        TunerArgument::XgbRank => TunerName::XgbRank,
        TunerArgument::XgbKnob => TunerName::XgbKnob,
        TunerArgument::XgbItervar => TunerName::XgbItervar,
        TunerArgument::XgbCurve => TunerName::XgbCurve,
        TunerArgument::Ga => TunerName::Ga,
        TunerArgument::Random => TunerName::Random,
        TunerArgument::Gridsearch => TunerName::Gridsearch,
        TunerArgument::Metaschedule => TunerName::Metaschedule,
    }
}
