//! What was asked for: `RawConfig` mirrors the file and only parses, `Config` is checked and complete.

use crate::counters::{self, CounterRequest};
use crate::cuda::Architecture;
use crate::measure::Plan;
use crate::target::{composite, cuda_text, is_cuda, is_llvm};
use datasets::CacheState;
use models::fuse::Fuse;
use models::names;
use models::transformers::{self, Phase};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A configuration as written; everything left out has a default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawConfig {
    /// Models to collect.
    pub models: Vec<RawModel>,
    /// Batch sizes.
    pub batch: Option<Vec<i64>>,
    /// Tokens of each sequence, for models from `transformers`.
    pub sequence: Option<Vec<i64>>,
    /// Parts of a decoder's work, for models from `transformers`: `prefill`, `decode`.
    pub phase: Option<Vec<Phase>>,
    /// What becomes of attention: `fused`, `split`, `both`.
    pub attention: Option<AttentionChoice>,
    /// Whether code is made for one size or for several at once: `default`, `vm`.
    pub executor: Option<Executor>,
    /// How many tasks with other sizes stand beside each one.
    pub variations: Option<usize>,
    /// `llvm`, `cuda`, or TVM's JSON of a target; partners may stand before it: `cpu-vendor, llvm`.
    pub target: Option<String>,
    /// Who computes the tasks: `tvm`, `torch`.
    pub backend: Option<Backend>,
    /// GPU architectures for the target `cuda`, such as `sm_90`.
    pub arch: Option<Vec<String>>,
    /// Thread counts.
    pub threads: Option<Vec<usize>>,
    /// Where schedules come from: `template`, `metaschedule`.
    pub samplers: Option<Vec<Sampler>>,
    /// Schedules per task and sampler, the default one included.
    pub schedules: Option<usize>,
    /// Whether pointwise operators join the operator before them: `epilogue`, `none`.
    pub fuse: Option<FuseChoice>,
    /// Cache states: `warm`, `cold`.
    pub cache: Option<Vec<CacheChoice>>,
    /// Seed of schedules and input values.
    pub seed: Option<u64>,
    /// Stop after this many seconds.
    pub budget_seconds: Option<f64>,
    /// How to measure.
    pub measure: Plan,
    /// What to count.
    pub counters: CounterRequest,
    /// Bounds of every job.
    pub limits: Limits,
}

/// One model as written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawModel {
    /// `local`, `simple`, `onnx`, `remoteonnx`, `tflite`, `torch` or `transformers`.
    pub source: String,
    /// Its name there.
    pub name: String,
    /// Shapes of inputs by name, for files that leave dimensions open.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub shapes: BTreeMap<String, Vec<i64>>,
    /// Whether operators that cannot be represented are left out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub skip_unsupported: bool,
}

/// Where schedules come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sampler {
    /// Our own templates.
    Template,
    /// TVM's own space.
    MetaSchedule,
}

/// Whether pointwise operators join the operator before them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FuseChoice {
    /// They do.
    Epilogue,
    /// Each operator is a task.
    None,
}

impl From<FuseChoice> for Fuse {
    fn from(choice: FuseChoice) -> Fuse {
        match choice {
            FuseChoice::Epilogue => Fuse::Epilogue,
            FuseChoice::None => Fuse::None,
        }
    }
}

/// What becomes of attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AttentionChoice {
    /// One task.
    Fused,
    /// Two products and a softmax.
    Split,
    /// Both.
    Both,
}

/// What code is made for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Executor {
    /// One size.
    #[default]
    Default,
    /// All sizes of a model, compiled once and measured at each.
    Vm,
}

/// Who computes the tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// Code that TVM compiles.
    #[default]
    Tvm,
    /// PyTorch's library and the vendor's libraries in it.
    Torch,
}

impl Backend {
    fn is_default(&self) -> bool {
        *self == Backend::default()
    }
}

/// What caches hold before a timed run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CacheChoice {
    /// What the previous run left.
    Warm,
    /// Other data.
    Cold,
}

impl From<CacheChoice> for CacheState {
    fn from(choice: CacheChoice) -> CacheState {
        match choice {
            CacheChoice::Warm => CacheState::Warm,
            CacheChoice::Cold => CacheState::Cold,
        }
    }
}

/// Bounds of every job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Builders at work at once; 0 means one per CPU.
    pub builders: usize,
    /// Builds between two rounds of runs that take all CPUs.
    pub build_batch: usize,
    /// Whether builders go on while a candidate runs on other CPUs than theirs.
    pub overlap: bool,
    /// A worker may take this long to start, loading libraries from a cold disk included.
    pub start_seconds: f64,
    /// A build may take this long.
    pub build_seconds: f64,
    /// A run may take this long beyond its plan's own limit and the reference computation.
    pub run_seconds: f64,
    /// Memory of a builder.
    pub build_memory_mib: u64,
    /// Memory of a runner.
    pub run_memory_mib: u64,
    /// A runner is replaced after this many jobs.
    pub runner_jobs: u32,
    /// An idle thread of TVM's pool asks this often for work before it sleeps. Waking it takes tens of microseconds.
    pub spin_count: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            builders: 0,
            build_batch: 32,
            overlap: true,
            start_seconds: 30.0,
            build_seconds: 60.0,
            run_seconds: 20.0,
            build_memory_mib: 4096,
            run_memory_mib: 8192,
            runner_jobs: 200,
            spin_count: 2000,
        }
    }
}

/// A model to be loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelRequest {
    /// `local`, `simple`, `onnx`, `remoteonnx`, `tflite`, `torch` or `transformers`.
    pub source: String,
    /// Its name there.
    pub name: String,
    /// Batch size.
    pub batch: i64,
    /// Shapes of inputs by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub shapes: BTreeMap<String, Vec<i64>>,
    /// Whether operators that cannot be represented are left out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub skip_unsupported: bool,
    /// What of a transformer is run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<Tokens>,
}

impl ModelRequest {
    /// The model's name with what of it is run.
    pub fn label(&self) -> String {
        match self.tokens {
            None => self.name.clone(),
            Some(Tokens { sequence, phase }) => transformers::label(&self.name, phase, sequence),
        }
    }
}

/// What of a transformer is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tokens {
    /// Tokens of each sequence.
    pub sequence: i64,
    /// Which part of the work.
    pub phase: Phase,
}

/// A checked, complete configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Config {
    /// Models to collect, one entry per batch size.
    pub models: Vec<ModelRequest>,
    /// `llvm`, or TVM's JSON of a target; a GPU's names its architectures.
    pub target: String,
    /// Libraries that take the operators they support before the target.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub partners: Vec<String>,
    /// Who computes the tasks that no partner takes.
    #[serde(default, skip_serializing_if = "Backend::is_default")]
    pub backend: Backend,
    /// Thread counts.
    pub threads: Vec<usize>,
    /// Where schedules come from.
    pub samplers: Vec<Sampler>,
    /// Schedules per task and sampler.
    pub schedules: usize,
    /// Whether pointwise operators join the operator before them.
    pub fuse: FuseChoice,
    /// What becomes of attention.
    pub attention: AttentionChoice,
    /// What code is made for.
    #[serde(default)]
    pub executor: Executor,
    /// How many tasks with other sizes stand beside each one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub variations: usize,
    /// Cache states.
    pub cache: Vec<CacheChoice>,
    /// Seed of schedules and input values.
    pub seed: u64,
    /// Stop after this many seconds.
    pub budget_seconds: Option<f64>,
    /// How to measure.
    pub measure: Plan,
    /// What to count.
    pub counters: CounterRequest,
    /// Bounds of every job.
    pub limits: Limits,
}

/// Why a configuration was refused.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum ConfigError {
    #[error("cannot read `{}`: {why}", path.display())]
    Unreadable { path: PathBuf, why: String },
    #[error("`{}` is not a configuration: {why}", path.display())]
    Malformed { path: PathBuf, why: String },
    #[error("`{field}` is {found}; {allowed}")]
    OutOfRange { field: &'static str, found: String, allowed: String },
    #[error("{0}")]
    Target(String),
    #[error("{0}")]
    Counter(String),
    #[error(transparent)]
    Plan(#[from] crate::measure::PlanError),
}

impl RawModel {
    /// That what is given for it has an effect.
    fn check(&self) -> Result<(), ConfigError> {
        let is_file = !["local", SIMPLE, TRANSFORMERS].contains(&self.source.as_str());
        let refuse = |field: &'static str, found: String| {
            let allowed = format!("only models from files take it, and `{}` is from `{}`", self.name, self.source);
            Err(ConfigError::OutOfRange { field, found, allowed })
        };
        match (is_file, self.shapes.is_empty(), self.skip_unsupported) {
            (false, false, _) => refuse("shapes", shown(&self.shapes)),
            (false, true, true) => refuse("skip_unsupported", "true".to_owned()),
            _ => Ok(()),
        }
    }
}

impl RawConfig {
    /// Reads a TOML file.
    pub fn read(path: &Path) -> Result<RawConfig, ConfigError> {
        let unreadable =
            |error: std::io::Error| ConfigError::Unreadable { path: path.to_owned(), why: error.to_string() };
        let text = std::fs::read_to_string(path).map_err(unreadable)?;
        toml::from_str(&text).map_err(|error| ConfigError::Malformed {
            path: path.to_owned(),
            why: names::with_hint(error.to_string().trim_end()),
        })
    }

    /// Checks everything against what this machine allows.
    pub fn check(self, allowed_cpus: usize) -> Result<Config, ConfigError> {
        let composite = composite(self.target.as_deref().unwrap_or("llvm")).map_err(ConfigError::Target)?;
        let partners: Vec<String> = composite.partners.iter().map(|partner| partner.name.to_owned()).collect();
        let target = target(composite.rest, self.arch)?;
        // A GPU is fed by one thread.
        let threads =
            self.threads.unwrap_or_else(|| if is_llvm(&target) { default_threads(allowed_cpus) } else { vec![1] });
        let threads_allowed = format!("allowed are 1 to {allowed_cpus} on this machine");
        each("threads", &threads, &threads_allowed, |&count| count >= 1 && count <= allowed_cpus)?;
        let batch = self.batch.unwrap_or_else(|| vec![1]);
        each("batch", &batch, "allowed are 1 to 65536", |size| (1..=65_536).contains(size))?;
        let schedules = self.schedules.unwrap_or(8);
        each("schedules", &[schedules], "allowed are 1 to 1000000", |count| (1..=1_000_000).contains(count))?;
        let limits = &self.limits;
        let positive = "it must be above 0";
        each("limits.start_seconds", &[limits.start_seconds], positive, |s| *s > 0.0 && s.is_finite())?;
        each("limits.build_seconds", &[limits.build_seconds], positive, |s| *s > 0.0 && s.is_finite())?;
        each("limits.run_seconds", &[limits.run_seconds], positive, |s| *s > 0.0 && s.is_finite())?;
        each("limits.build_batch", &[limits.build_batch], "allowed are 1 to 1024", |n| (1..=1024).contains(n))?;
        each("limits.builders", &[limits.builders], "allowed are 0 to 256", |n| *n <= 256)?;
        let budget: Vec<f64> = self.budget_seconds.into_iter().collect();
        if !budget.is_empty() {
            each("budget_seconds", &budget, positive, |s| *s > 0.0 && s.is_finite())?;
        }
        self.measure.check()?;
        counters::names::check(&self.counters.events).map_err(ConfigError::Counter)?;
        let samplers = self.samplers.unwrap_or_else(|| vec![Sampler::Template]);
        each("samplers", &samplers, "", |_| true)?;
        let executor = self.executor.unwrap_or_default();
        let is_served = |executor: &Executor| match executor {
            Executor::Default => true,
            Executor::Vm => (is_llvm(&target) || is_cuda(&target)) && samplers == [Sampler::Template],
        };
        each(
            "executor",
            &[executor],
            "`vm` is for the targets `llvm` and `cuda` and the sampler `template`",
            is_served,
        )?;
        let variations = self.variations.unwrap_or(0);
        let allowed = "allowed are 0 to 1000, and none with the executor `vm`";
        each("variations", &[variations], allowed, |count| {
            *count == 0 || (*count <= 1000 && executor == Executor::Default)
        })?;
        let backend = self.backend.unwrap_or_default();
        let is_served = |backend: &Backend| match backend {
            Backend::Tvm => true,
            Backend::Torch => target == "llvm" && partners.is_empty() && executor == Executor::Default,
        };
        let allowed = "`torch` computes on this machine's CPU: leave out `target` and `executor`";
        each("backend", &[backend], allowed, is_served)?;
        let cache = self.cache.unwrap_or_else(|| vec![CacheChoice::Warm]);
        each("cache", &cache, "", |_| true)?;
        let tokens = tokens(&self.models, self.sequence, self.phase)?;
        self.models.iter().try_for_each(RawModel::check)?;
        // A simple operator says its own batch.
        let is_simple = |model: &RawModel| model.source == SIMPLE;
        if !self.models.is_empty() && self.models.iter().all(is_simple) {
            let allowed = "a simple operator has its batch in its own text, such as `n=8`";
            each("batch", &batch, allowed, |size| *size == 1)?;
        }
        let models = self.models.iter().flat_map(|model| {
            let tokens =
                if model.source == TRANSFORMERS { tokens.iter().copied().map(Some).collect() } else { vec![None] };
            let batch = if is_simple(model) { &[1][..] } else { &batch };
            let runs = tokens.into_iter().flat_map(|tokens| batch.iter().map(move |&batch| (batch, tokens)));
            runs.map(|(batch, tokens)| ModelRequest {
                source: model.source.clone(),
                name: model.name.clone(),
                batch,
                shapes: model.shapes.clone(),
                skip_unsupported: model.skip_unsupported,
                tokens,
            })
        });
        Ok(Config {
            models: models.collect(),
            target,
            partners,
            backend,
            threads,
            samplers,
            schedules,
            fuse: self.fuse.unwrap_or(FuseChoice::Epilogue),
            attention: self.attention.unwrap_or(AttentionChoice::Fused),
            executor,
            variations,
            cache,
            seed: self.seed.unwrap_or(0),
            budget_seconds: self.budget_seconds,
            measure: self.measure,
            counters: self.counters,
            limits: self.limits,
        })
    }
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// The target's text; architectures become part of a GPU's description.
fn target(text: String, architectures: Option<Vec<String>>) -> Result<String, ConfigError> {
    let allowed = "give `llvm`, `cuda`, or TVM's JSON of such a target";
    each("target", std::slice::from_ref(&text), allowed, |text| is_llvm(text) || is_cuda(text))?;
    match architectures {
        Some(names) if text == "cuda" => {
            each("arch", &names, "they are written like `sm_90`", |name| Architecture::read(name).is_ok())?;
            Ok(cuda_text(&names))
        }
        Some(names) => {
            let allowed = "only the target `cuda` takes it; a JSON description names its own";
            Err(ConfigError::OutOfRange { field: "arch", found: names.join(","), allowed: allowed.to_owned() })
        }
        None => Ok(text),
    }
}

/// The source whose models are one operator given as text.
pub const SIMPLE: &str = "simple";
/// The source whose models read tokens.
pub const TRANSFORMERS: &str = "transformers";

/// Every phase at every length of a sequence. Only transformers have them.
fn tokens(
    models: &[RawModel],
    sequence: Option<Vec<i64>>,
    phase: Option<Vec<Phase>>,
) -> Result<Vec<Tokens>, ConfigError> {
    let (is_given, has_phase) = (sequence.is_some() || phase.is_some(), phase.is_some());
    let sequence = sequence.unwrap_or_else(|| vec![models::transformers::Options::default().sequence]);
    each("sequence", &sequence, "allowed are 1 to 1048576", |length| (1..=1 << 20).contains(length))?;
    let phase = phase.unwrap_or_else(|| vec![Phase::default()]);
    each("phase", &phase, "", |_| true)?;
    if is_given && !models.iter().any(|model| model.source == TRANSFORMERS) {
        let (field, found) = if has_phase { ("phase", shown(&phase)) } else { ("sequence", shown(&sequence)) };
        let allowed = "only models from `transformers` have it".to_owned();
        return Err(ConfigError::OutOfRange { field, found, allowed });
    }
    let runs = phase.iter().flat_map(|&phase| sequence.iter().map(move |&sequence| Tokens { sequence, phase }));
    Ok(runs.collect())
}

/// One thread and all CPUs.
fn default_threads(allowed_cpus: usize) -> Vec<usize> {
    if allowed_cpus > 1 { vec![1, allowed_cpus] } else { vec![1] }
}

/// A setting as it is given; JSON has no word for what is no number.
fn shown<T: Serialize + std::fmt::Debug>(value: &T) -> String {
    match serde_json::to_string(value) {
        Ok(text) if text != "null" => text,
        _ => format!("{value:?}"),
    }
}

/// Refuses an empty list and any value outside of what is allowed.
fn each<T: Serialize + std::fmt::Debug>(
    field: &'static str,
    values: &[T],
    allowed: &str,
    is_allowed: impl Fn(&T) -> bool,
) -> Result<(), ConfigError> {
    let refuse = |found: String, allowed: &str| ConfigError::OutOfRange { field, found, allowed: allowed.to_owned() };
    if values.is_empty() {
        return Err(refuse("empty".to_owned(), "give at least one"));
    }
    match values.iter().find(|value| !is_allowed(value)) {
        Some(value) => Err(refuse(shown(value), allowed)),
        None => Ok(()),
    }
}

impl Config {
    /// Stable identity of everything that was asked for: 32 hexadecimal digits.
    pub fn hash(&self) -> String {
        let text = serde_json::to_string(self).expect("a configuration holds only JSON values");
        blake3::hash(text.as_bytes()).to_hex()[..32].to_owned()
    }
}
