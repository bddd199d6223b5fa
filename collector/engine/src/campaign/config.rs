//! A checked, complete configuration.

use super::choices::{AttentionChoice, Backend, Executor, SamplerName};
use super::tune::Tune;
use datasets::CacheState;
use measure::counters::{self, CounterRequest};
use measure::{Cache, Plan};
use models::fuse::Fuse;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use targets::{HOST, Kind, Setting};
use zoo::transformers::{self, Phase};

/// Resource and time limits of jobs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Number of concurrent builders; 0 means one per CPU.
    pub builders: usize,
    /// Number of builds per batch. Builders also pause when this number of runs that need all CPUs is waiting.
    pub build_batch: usize,
    /// Whether builders keep working while a candidate runs on other CPUs.
    pub overlap: bool,
    /// Time limit in seconds for the start of a worker, which includes loading libraries from a cold disk.
    pub start_seconds: f64,
    /// Time limit of a build in seconds.
    pub build_seconds: f64,
    /// Time limit of a run in seconds, in addition to the plan's own limit and the reference computation.
    pub run_seconds: f64,
    /// Memory limit of a builder process, in MiB.
    pub build_memory_mib: u64,
    /// Memory limit of a runner process, in MiB.
    pub run_memory_mib: u64,
    /// Number of jobs after which a runner process is replaced.
    pub runner_jobs: u32,
    /// Number of polls of an idle TVM thread before it sleeps; waking it would add to the measured time.
    pub spin_count: u32,
    /// Whether the peak rates of this host are measured, which takes one to two seconds for each number of threads.
    #[serde(skip_serializing_if = "is_true")]
    pub measure_peaks: bool,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            builders: 0,
            build_batch: 16,
            overlap: true,
            start_seconds: 30.0,
            build_seconds: 60.0,
            run_seconds: 20.0,
            build_memory_mib: 4096,
            run_memory_mib: 8192,
            runner_jobs: 200,
            spin_count: 2000,
            measure_peaks: true,
        }
    }
}

/// A model to load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelRequest {
    /// Source: `local`, `simple`, `onnx`, `remoteonnx`, `tflite`, `torch` or `transformers`.
    pub source: String,
    /// Name of the model within the source.
    pub name: String,
    /// Requested batch size; after loading, the actual batch size. None if the model has no batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<i64>,
    /// Shapes of the model's inputs, by input name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub shapes: BTreeMap<String, Vec<i64>>,
    /// Values of inputs that are constant, by input name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<String, Vec<f64>>,
    /// Whether unsupported operators are skipped.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub skip_unsupported: bool,
    /// For a transformer: the sequence length, the inference phase and the number of decoding steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<Tokens>,
    /// Sequence length, for model files with symbolic sequence dimensions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<i64>,
}

impl ModelRequest {
    /// Returns the name of the model, with the sequence length, phase and steps that are run.
    pub fn label(&self) -> String {
        match self.tokens {
            None => match self.sequence {
                Some(sequence) => format!("{} sequence {sequence}", self.name),
                None => self.name.clone(),
            },
            Some(Tokens { sequence, phase, steps: None }) => transformers::format_label(&self.name, phase, sequence),
            Some(Tokens { sequence, phase, steps: Some(steps) }) => {
                format!("{} steps {steps}", transformers::format_label(&self.name, phase, sequence))
            }
        }
    }
}

/// The part of a transformer's inference that is run: phase, sequence length and decoding steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tokens {
    /// Number of tokens per sequence.
    pub sequence: i64,
    /// Phase of the inference: prefill or decoding.
    pub phase: Phase,
    /// Number of decoding steps; each step reads the keys and values of all previous steps. None means one step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<i64>,
}

/// A checked, complete configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Config {
    /// Models to collect, one entry per batch size.
    pub models: Vec<ModelRequest>,
    /// Target: `llvm` or another name, or TVM's JSON description. A GPU target names its architectures.
    pub target: String,
    /// Libraries that compute their supported operators in place of compiled code.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub partners: Vec<String>,
    /// Compiler or library that computes the tasks not claimed by a partner library.
    #[serde(default, skip_serializing_if = "is_default_backend")]
    pub backend: Backend,
    /// Numbers of threads with which every task is measured.
    pub threads: Vec<usize>,
    /// Sources from which schedules are sampled.
    pub samplers: Vec<SamplerName>,
    /// Number of schedules per task and sampler.
    pub schedules: usize,
    /// Settings of a schedule search, which replaces sampling. None samples schedules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tune: Option<Tune>,
    /// Which pointwise operators are fused with the preceding operator into one task.
    pub fuse: Fuse,
    /// Representation of attention in tasks.
    pub attention: AttentionChoice,
    /// Whether code is compiled for each size separately, or once for all sizes of a model.
    #[serde(default)]
    pub executor: Executor,
    /// Number of additional tasks per task, with the same operators but other sizes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub variations: usize,
    /// Cache states before a timed run, such as warm or cold.
    pub cache: Vec<CacheState>,
    /// Seed of the random schedules and random input values.
    pub seed: u64,
    /// Time budget of the campaign in seconds; None sets no limit.
    pub budget_seconds: Option<f64>,
    /// Measurement plan: how each experiment is timed.
    pub measure: Plan,
    /// Hardware counters to read.
    pub counters: CounterRequest,
    /// Resource and time limits of every job.
    pub limits: Limits,
}

/// Reason why a configuration is invalid.
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
    Plan(#[from] measure::PlanError),
}

fn is_default_backend(backend: &Backend) -> bool {
    *backend == Backend::default()
}

/// A default is not written, so that the hash of a configuration is that of earlier versions.
fn is_true(flag: &bool) -> bool {
    *flag
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

pub(super) fn check_target(text: &String) -> Result<Kind, ConfigError> {
    targets::find_kind(text).ok_or_else(|| ConfigError::OutOfRange {
        field: "target",
        found: format_setting(text),
        allowed: targets::allowed_names(),
    })
}

/// Name of the source whose models are single operators given as text.
pub const SIMPLE: &str = "simple";
/// Name of the source whose models process tokens.
pub const TRANSFORMERS: &str = "transformers";

/// Formats a setting as JSON, or in debug format for numbers such as NaN that JSON writes as `null`.
pub(super) fn format_setting<T: Serialize + std::fmt::Debug>(value: &T) -> String {
    match serde_json::to_string(value) {
        Ok(text) if text != "null" => text,
        _ => format!("{value:?}"),
    }
}

/// Removes elements that equal an earlier one. The order remains.
pub(super) fn distinct<T: std::fmt::Debug>(values: Vec<T>) -> Vec<T> {
    // Models contain numbers that cannot be hashed, so their text is compared.
    let mut seen = HashSet::new();
    values.into_iter().filter(|value| seen.insert(format!("{value:?}"))).collect()
}

/// Rejects an empty list and values that are not allowed.
pub(super) fn check_each<T: Serialize + std::fmt::Debug>(
    field: &'static str,
    values: &[T],
    allowed: &str,
    is_allowed: impl Fn(&T) -> bool,
) -> Result<(), ConfigError> {
    let refuse = |found: String, allowed: &str| ConfigError::OutOfRange { field, found, allowed: allowed.to_owned() };
    if values.is_empty() {
        return Err(refuse("empty".to_owned(), "give at least one"));
    }
    if values.len() > LIST_MAX {
        return Err(refuse(format!("a list of {}", values.len()), "give at most 1024"));
    }
    match values.iter().find(|value| !is_allowed(value)) {
        Some(value) => Err(refuse(format_setting(value), allowed)),
        None => Ok(()),
    }
}

const LIST_MAX: usize = 1024;
pub(super) const BATCH: RangeInclusive<i64> = 1..=65_536;
pub(super) const BATCH_ALLOWED: &str = "allowed are 1 to 65536";
pub(super) const SEQUENCE: RangeInclusive<i64> = 1..=1 << 20;
pub(super) const SEQUENCE_ALLOWED: &str = "allowed are 1 to 1048576";
const THREADS_MAX: usize = 4096;
/// Range of memory limits. A worker needs at least the lower end to load its libraries.
const MEMORY_MIB: RangeInclusive<u64> = 64..=1 << 24;
const MEMORY_ALLOWED: &str = "allowed are 64 to 16777216";
/// Range of time limits of jobs. No worker replies within less than the lower end.
const JOB_SECONDS: RangeInclusive<f64> = 0.001..=86_400.0;
const JOB_SECONDS_ALLOWED: &str = "allowed are 0.001 to 86400, a day";
const BUDGET_SECONDS_MAX: f64 = 366.0 * 86_400.0;
const BUDGET_ALLOWED: &str = "it must be above 0 and at most 31622400, a year";

impl Limits {
    fn check(&self) -> Result<(), ConfigError> {
        let is_time = |seconds: &f64| JOB_SECONDS.contains(seconds);
        check_each("limits.start_seconds", &[self.start_seconds], JOB_SECONDS_ALLOWED, is_time)?;
        check_each("limits.build_seconds", &[self.build_seconds], JOB_SECONDS_ALLOWED, is_time)?;
        check_each("limits.run_seconds", &[self.run_seconds], JOB_SECONDS_ALLOWED, is_time)?;
        check_each("limits.build_batch", &[self.build_batch], "allowed are 1 to 1024", |n| (1..=1024).contains(n))?;
        check_each("limits.builders", &[self.builders], "allowed are 0 to 256", |n| *n <= 256)?;
        let is_memory = |mib: &u64| MEMORY_MIB.contains(mib);
        check_each("limits.build_memory_mib", &[self.build_memory_mib], MEMORY_ALLOWED, is_memory)?;
        check_each("limits.run_memory_mib", &[self.run_memory_mib], MEMORY_ALLOWED, is_memory)?;
        check_each("limits.runner_jobs", &[self.runner_jobs], "it must be at least 1", |jobs| *jobs >= 1)
    }
}

impl Config {
    /// Validates all settings. A valid configuration can be executed on every machine with enough CPUs.
    pub fn check(&self) -> Result<(), ConfigError> {
        check_each("threads", &self.threads, "allowed are 1 to 4096", |count| (1..=THREADS_MAX).contains(count))?;
        check_each("schedules", &[self.schedules], "allowed are 1 to 1000000", |count| {
            (1..=1_000_000).contains(count)
        })?;
        check_each("samplers", &self.samplers, "", |_| true)?;
        check_each("cache", &self.cache, "", |_| true)?;
        for model in &self.models {
            if let Some(batch) = model.batch {
                check_each("batch", &[batch], BATCH_ALLOWED, |size| BATCH.contains(size))?;
            }
            let sequence: Vec<i64> = model.tokens.iter().map(|tokens| tokens.sequence).collect();
            if !sequence.is_empty() {
                check_each("sequence", &sequence, SEQUENCE_ALLOWED, |length| SEQUENCE.contains(length))?;
            }
        }
        if let Some(budget) = self.budget_seconds {
            let is_time = |seconds: &f64| *seconds > 0.0 && *seconds <= BUDGET_SECONDS_MAX;
            check_each("budget_seconds", &[budget], BUDGET_ALLOWED, is_time)?;
        }
        self.limits.check()?;
        self.measure.check_settings()?;
        let warm = "give `cache = [\"cold\"]`, which writes as many bytes as the caches of this machine hold";
        check_each("measure.cache", &[self.measure.cache], warm, |cache| *cache == Cache::Warm)?;
        counters::names::check_events(&self.counters.events).map_err(ConfigError::Counter)?;
        self.check_compatibility()
    }

    fn check_compatibility(&self) -> Result<(), ConfigError> {
        check_target(&self.target)?;
        let is_served = |executor: &Executor| match executor {
            Executor::Default => true,
            Executor::Vm => self.samplers == [SamplerName::Template],
        };
        let allowed = "`vm` needs the target `llvm` or `cuda` and the sampler `template`";
        check_each("executor", &[self.executor], allowed, is_served)?;
        let allowed = "allowed are 0 to 1000, and only 0 with the executor `vm`";
        check_each("variations", &[self.variations], allowed, |count| {
            *count == 0 || (*count <= 1000 && self.executor == Executor::Default)
        })?;
        let is_served = |backend: &Backend| match backend {
            Backend::Tvm => true,
            Backend::Torch => self.target == HOST && self.partners.is_empty() && self.executor == Executor::Default,
        };
        let allowed = "`torch` computes on this machine's CPU: remove `target` and `executor`";
        check_each("backend", &[self.backend], allowed, is_served)?;
        let kind = self.target_kind();
        let is_served = |cache: &CacheState| match cache {
            CacheState::Warm | CacheState::Cold => true,
            CacheState::Network => self.target == HOST && self.backend == Backend::Tvm && self.partners.is_empty(),
        };
        let allowed = "it needs the target `llvm` without a partner library";
        check_each("cache", &self.cache, allowed, is_served)?;
        for (setting, allowed) in kind.fixed_settings() {
            self.check_fixed(*setting, allowed)?;
        }
        let refusal = self.tune.as_ref().and_then(|tune| tune.unsupported_setting(kind, self.executor == Executor::Vm));
        match refusal {
            Some((field, found, allowed)) => Err(ConfigError::OutOfRange { field, found, allowed }),
            None => Ok(()),
        }
    }

    fn check_fixed(&self, setting: Setting, allowed: &str) -> Result<(), ConfigError> {
        let (is_default, field, found) = match setting {
            Setting::Threads => (self.threads == [1], "threads", format_setting(&self.threads)),
            Setting::Samplers => (self.samplers == [SamplerName::Template], "samplers", format_setting(&self.samplers)),
            Setting::Cache => (self.cache == [CacheState::Warm], "cache", format_setting(&self.cache)),
            Setting::Executor => (self.executor == Executor::Default, "executor", format_setting(&self.executor)),
            Setting::Partners => (self.partners.is_empty(), "target", self.partners.join(", ")),
        };
        match is_default {
            true => Ok(()),
            false => Err(ConfigError::OutOfRange { field, found, allowed: allowed.to_owned() }),
        }
    }

    /// Returns the kind of target that computes the tasks that no partner library computes.
    pub fn target_kind(&self) -> Kind {
        match self.backend {
            Backend::Torch => targets::library_kind(),
            Backend::Tvm => self.compiled_kind(),
        }
    }

    /// Returns the kind of `target`, independent of the backend.
    pub fn compiled_kind(&self) -> Kind {
        targets::find_kind(&self.target).unwrap_or_else(targets::host_kind)
    }

    /// Returns the configuration as JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a configuration holds only JSON values")
    }

    /// Returns the configuration as JSON without its time budget, which does not identify a campaign.
    pub fn json_without_budget(&self) -> String {
        Config { budget_seconds: None, ..self.clone() }.to_json()
    }

    /// Returns a stable hash of the configuration without its time budget: 32 hexadecimal digits.
    pub fn hash(&self) -> String {
        datasets::store::config_hash(&self.json_without_budget())
    }
}
