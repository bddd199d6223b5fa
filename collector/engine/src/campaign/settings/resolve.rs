//! Resolves settings into a checked, complete configuration.

use super::{ModelEntry, Settings};
use crate::campaign::choices::{AttentionChoice, Executor, ModelSource, SamplerName};
use crate::campaign::config::{
    BATCH, BATCH_ALLOWED, Config, ConfigError, ModelRequest, SEQUENCE, SEQUENCE_ALLOWED, SIMPLE, TRANSFORMERS, Tokens,
    check_each, check_target, distinct, format_setting,
};
use crate::campaign::graphs::{LoadedModels, settle_batches};
use crate::campaign::night::Night;
use crate::campaign::tune::TuneSettings;
use crate::failure::{Failure, format_chain};
use datasets::CacheState;
use models::Choice;
use targets::{HOST, OptionError, TargetOptions, parse_composite};
use zoo::transformers::{self, Phase};

/// A checked configuration, with the models that were read to check it.
pub struct ResolvedConfig {
    /// The checked configuration.
    pub config: Config,
    /// Cache of the models that were loaded to check the configuration.
    pub loaded: LoadedModels,
}

impl ModelEntry {
    /// Returns the name used in records, which is the same for all aliases and spellings of a model in the zoo.
    fn canonical_name(&self) -> String {
        let is_of_zoo = self.source == ModelSource::Local.name();
        let other = is_of_zoo.then(|| zoo::canonical_name(&self.name)).flatten();
        other.unwrap_or_else(|| self.name.clone())
    }

    /// Checks that every option of the entry has an effect.
    fn check(&self) -> Result<(), ConfigError> {
        let is_file = ![ModelSource::Local, ModelSource::Simple, ModelSource::Transformers]
            .iter()
            .any(|source| source.name() == self.source);
        let refuse = |field: &'static str, found: String| {
            let allowed =
                format!("it applies only to models from files, and `{}` is from `{}`", self.name, self.source);
            Err(ConfigError::OutOfRange { field, found, allowed })
        };
        let is_onnx = [ModelSource::Onnx, ModelSource::Remoteonnx].iter().any(|source| source.name() == self.source);
        if !is_onnx && !self.values.is_empty() {
            let allowed = format!("`--bind` applies only to ONNX files, and `{}` is from `{}`", self.name, self.source);
            return Err(ConfigError::OutOfRange { field: "values", found: format_setting(&self.values), allowed });
        }
        match (is_file, self.shapes.is_empty(), self.skip_unsupported) {
            (false, false, _) => refuse("shapes", format_setting(&self.shapes)),
            (false, true, true) => refuse("skip_unsupported", "true".to_owned()),
            _ => Ok(()),
        }
    }
}

impl Settings {
    /// Resolves the settings for the CPUs of this machine.
    pub fn resolve_here(self) -> crate::Result<ResolvedConfig> {
        self.resolve(measure::host::allowed_cpus().map_err(Failure::environment)?.len())
    }

    /// Validates all settings against this machine and against the models, which are loaded for this purpose.
    pub fn resolve(self, allowed_cpus: usize) -> crate::Result<ResolvedConfig> {
        let mut config = self.check(allowed_cpus).map_err(Failure::usage)?;
        if config.models.is_empty() {
            return Err(
                Failure::usage("no model was named").with_hint("give `--modelname`, or `models` in the configuration")
            );
        }
        let loaded = LoadedModels::default();
        settle_batches(&mut config, &loaded).map_err(|error| Failure::usage(format_chain(&error)))?;
        Ok(ResolvedConfig { config, loaded })
    }

    /// Keeps the first of equal elements in every list, because each combination of elements is measured once.
    fn without_duplicates(mut self) -> Settings {
        self.model.batch = self.model.batch.map(distinct);
        self.model.sequence = self.model.sequence.map(distinct);
        self.model.phase = self.model.phase.map(distinct);
        self.model.arch = self.model.arch.map(distinct);
        self.sweep.samplers = self.sweep.samplers.map(distinct);
        self.sweep.threads = self.sweep.threads.map(distinct);
        self.sweep.cache = self.sweep.cache.map(distinct);
        self.counters.events = distinct(self.counters.events);
        self
    }

    /// Validates all settings against the CPUs of this machine.
    pub fn check(self, allowed_cpus: usize) -> Result<Config, ConfigError> {
        let settings = self.without_duplicates();
        if let Some(Err((field, found, allowed))) = settings.night.as_ref().map(Night::check) {
            return Err(ConfigError::OutOfRange { field, found, allowed });
        }
        if let Some(Err((field, found, allowed))) = settings.corun.as_ref().map(|corun| corun.check(allowed_cpus)) {
            return Err(ConfigError::OutOfRange { field, found, allowed });
        }
        let Settings { models, model, sweep, tune, measure, counters, limits, .. } = settings;
        let composite = parse_composite(model.target.as_deref().unwrap_or(HOST)).map_err(ConfigError::Target)?;
        let partners = distinct(composite.partners.iter().map(|partner| partner.name.to_owned()).collect());
        let options = TargetOptions {
            arch: model.arch,
            unit: model.unit,
            board: model.board,
            fpga_config: model.fpga_config,
            sim_params: model.sim_params,
        };
        let target = complete_target(composite.rest, options)?;
        // One thread launches the work of a GPU.
        let is_varied = check_target(&target)?.runs_on_cpus();
        let threads = sweep.threads.unwrap_or_else(|| if is_varied { default_threads(allowed_cpus) } else { vec![1] });
        let threads_allowed = format!("allowed are 1 to {allowed_cpus} on {}", measure::host::OF_THIS_PROCESS);
        check_each("threads", &threads, &threads_allowed, |&count| count >= 1 && count <= allowed_cpus)?;
        let batch = requested_batches(&models, model.batch)?;
        models.iter().try_for_each(ModelEntry::check)?;
        let steps = decoding_steps(model.steps, model.phase.as_deref(), model.executor)?;
        let of_files = model.sequence.clone();
        let tokens = token_combinations(&models, model.sequence, model.phase, steps)?;
        let runs = models.len().saturating_mul(batch.len()).saturating_mul(tokens.len());
        check_each("models", &[runs], "the product of models, batch sizes and sequences is at most 65536", |n| {
            *n <= 1 << 16
        })?;
        let requests = models.iter().flat_map(|entry| {
            let tokens =
                if entry.source == TRANSFORMERS { tokens.iter().copied().map(Some).collect() } else { vec![None] };
            let sequences: Vec<Option<i64>> = match &of_files {
                Some(lengths) if has_named_dimensions(entry) => lengths.iter().copied().map(Some).collect(),
                _ => vec![None],
            };
            // The text of a simple operator contains its sizes.
            let batch = if entry.source == SIMPLE { vec![None] } else { batch.clone() };
            let lengths = tokens
                .into_iter()
                .flat_map(move |tokens| sequences.clone().into_iter().map(move |sequence| (tokens, sequence)));
            let runs = lengths.flat_map(move |(tokens, sequence)| {
                batch.clone().into_iter().map(move |batch| (batch, tokens, sequence))
            });
            runs.map(|(batch, tokens, sequence)| ModelRequest {
                source: entry.source.clone(),
                name: entry.canonical_name(),
                batch,
                shapes: entry.shapes.clone(),
                values: entry.values.clone(),
                skip_unsupported: entry.skip_unsupported,
                tokens,
                sequence,
            })
        });
        let config = Config {
            models: distinct(requests.collect()),
            target,
            partners,
            backend: model.backend.unwrap_or_default(),
            threads,
            samplers: sweep.samplers.unwrap_or_else(|| vec![SamplerName::Template]),
            schedules: sweep.schedules.unwrap_or(8),
            tune: tune.map(TuneSettings::resolve),
            fuse: model.fuse.unwrap_or_default(),
            attention: model.attention.unwrap_or(AttentionChoice::Fused),
            executor: model.executor.unwrap_or_default(),
            variations: model.variations.unwrap_or(0),
            cache: sweep.cache.unwrap_or_else(|| vec![CacheState::Warm]),
            seed: sweep.seed.unwrap_or(0),
            budget_seconds: sweep.budget_seconds,
            measure,
            counters,
            limits,
        };
        config.check()?;
        Ok(config)
    }
}

fn complete_target(text: String, options: TargetOptions) -> Result<String, ConfigError> {
    check_target(&text)?.apply_options(text, options).map_err(|error| match error {
        OptionError::NotAllowed { field, found, allowed } => ConfigError::OutOfRange { field, found, allowed },
        OptionError::Description(why) => ConfigError::Target(why),
    })
}

/// Returns the requested batch sizes, or a single None if no batch size was requested.
fn requested_batches(models: &[ModelEntry], batch: Option<Vec<i64>>) -> Result<Vec<Option<i64>>, ConfigError> {
    let Some(batch) = batch else { return Ok(vec![None]) };
    check_each("batch", &batch, BATCH_ALLOWED, |size| BATCH.contains(size))?;
    if !models.is_empty() && models.iter().all(|model| model.source == SIMPLE) {
        let allowed = "the text of a simple operator contains its batch, such as `n=8`";
        check_each("batch", &batch, allowed, |size| *size == 1)?;
    }
    Ok(batch.into_iter().map(Some).collect())
}

/// Validates the number of decoding steps. Returns None for a single step, which is the default.
fn decoding_steps(
    steps: Option<i64>,
    phase: Option<&[Phase]>,
    executor: Option<Executor>,
) -> Result<Option<i64>, ConfigError> {
    let Some(count) = steps else { return Ok(None) };
    let refuse = |allowed: String| Err(ConfigError::OutOfRange { field: "steps", found: count.to_string(), allowed });
    if !(1..=transformers::STEPS_MAX).contains(&count) {
        return refuse(format!("allowed are 1 to {}", transformers::STEPS_MAX));
    }
    if phase != Some(&[Phase::Decode]) {
        return refuse("only the phase `decode` has steps: give no other phase".to_owned());
    }
    if executor == Some(Executor::Vm) {
        return refuse("the executor `vm` supports only one step".to_owned());
    }
    Ok(Some(count).filter(|count| *count > 1))
}

fn has_named_dimensions(model: &ModelEntry) -> bool {
    [ModelSource::Onnx, ModelSource::Remoteonnx].iter().any(|source| source.name() == model.source)
}

/// Returns every combination of phase and sequence length. Rejects them if no model supports them.
fn token_combinations(
    models: &[ModelEntry],
    sequence: Option<Vec<i64>>,
    phase: Option<Vec<Phase>>,
    steps: Option<i64>,
) -> Result<Vec<Tokens>, ConfigError> {
    let (is_given, has_phase) = (sequence.is_some() || phase.is_some(), phase.is_some());
    let sequence = sequence.unwrap_or_else(|| vec![zoo::transformers::Options::default().sequence]);
    check_each("sequence", &sequence, SEQUENCE_ALLOWED, |length| SEQUENCE.contains(length))?;
    let phase = phase.unwrap_or_else(|| vec![Phase::default()]);
    check_each("phase", &phase, "", |_| true)?;
    let has_any = |of: fn(&ModelEntry) -> bool| models.iter().any(of);
    let is_taken = has_any(|model| model.source == TRANSFORMERS) || (!has_phase && has_any(has_named_dimensions));
    if is_given && !is_taken {
        let (field, found, who) = match has_phase {
            true => ("phase", format_setting(&phase), "`transformers`"),
            false => ("sequence", format_setting(&sequence), "`transformers` and ONNX files"),
        };
        return Err(ConfigError::OutOfRange { field, found, allowed: format!("it applies only to models from {who}") });
    }
    let runs = phase.iter().flat_map(|&phase| sequence.iter().map(move |&sequence| Tokens { sequence, phase, steps }));
    Ok(runs.collect())
}

fn default_threads(allowed_cpus: usize) -> Vec<usize> {
    if allowed_cpus > 1 { vec![1, allowed_cpus] } else { vec![1] }
}
