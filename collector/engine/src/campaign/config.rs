//! A checked, complete configuration.

use super::choices::{AttentionChoice, Backend, CacheChoice, Executor, Sampler};
use super::tune::Tune;
use measure::counters::{self, CounterRequest};
use measure::{Cache, Plan};
use models::fuse::Fuse;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use targets::{HOST, Kind, Setting};
use zoo::transformers::{self, Phase};

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
            build_batch: 16,
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
    /// Batch size: the one asked for, and once the model was looked at the one it has. None where it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<i64>,
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
            Some(Tokens { sequence, phase, steps: None }) => transformers::label(&self.name, phase, sequence),
            Some(Tokens { sequence, phase, steps: Some(steps) }) => {
                format!("{} steps {steps}", transformers::label(&self.name, phase, sequence))
            }
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
    /// So many decoding steps, each with the keys and values of those before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<i64>,
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
    #[serde(default, skip_serializing_if = "is_default_backend")]
    pub backend: Backend,
    /// Thread counts.
    pub threads: Vec<usize>,
    /// Where schedules come from.
    pub samplers: Vec<Sampler>,
    /// Schedules per task and sampler.
    pub schedules: usize,
    /// A search in place of samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tune: Option<Tune>,
    /// Whether pointwise operators join the operator before them.
    pub fuse: Fuse,
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
    Plan(#[from] measure::PlanError),
}

fn is_default_backend(backend: &Backend) -> bool {
    *backend == Backend::default()
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// Returns the kind of a target, or what may be given.
pub(super) fn check_target(text: &String) -> Result<Kind, ConfigError> {
    targets::find(text).ok_or_else(|| ConfigError::OutOfRange {
        field: "target",
        found: shown(text),
        allowed: targets::allowed_names(),
    })
}

/// The source whose models are one operator given as text.
pub const SIMPLE: &str = "simple";
/// The source whose models read tokens.
pub const TRANSFORMERS: &str = "transformers";

/// A setting as it is given; JSON has no word for what is no number.
pub(super) fn shown<T: Serialize + std::fmt::Debug>(value: &T) -> String {
    match serde_json::to_string(value) {
        Ok(text) if text != "null" => text,
        _ => format!("{value:?}"),
    }
}

/// Refuses an empty list and any value outside of what is allowed.
pub(super) fn each<T: Serialize + std::fmt::Debug>(
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
        Some(value) => Err(refuse(shown(value), allowed)),
        None => Ok(()),
    }
}

/// Settings in one list.
const LIST_MAX: usize = 1024;
/// Batch sizes, and how that is said.
pub(super) const BATCH: RangeInclusive<i64> = 1..=65_536;
pub(super) const BATCH_ALLOWED: &str = "allowed are 1 to 65536";
/// Tokens of a sequence.
pub(super) const SEQUENCE: RangeInclusive<i64> = 1..=1 << 20;
pub(super) const SEQUENCE_ALLOWED: &str = "allowed are 1 to 1048576";
/// Threads of any machine.
const THREADS_MAX: usize = 4096;
/// A worker of less memory cannot even load its libraries; one of more is on no machine.
const MEMORY_MIB: RangeInclusive<u64> = 64..=1 << 24;
const MEMORY_ALLOWED: &str = "allowed are 64 to 16777216";
/// A day: what a worker may take longest.
const JOB_SECONDS_MAX: f64 = 86_400.0;
const JOB_SECONDS_ALLOWED: &str = "it must be above 0 and at most 86400, a day";
/// A year: what a campaign may take longest.
const BUDGET_SECONDS_MAX: f64 = 366.0 * 86_400.0;
const BUDGET_ALLOWED: &str = "it must be above 0 and at most 31622400, a year";

impl Limits {
    fn check(&self) -> Result<(), ConfigError> {
        let is_time = |seconds: &f64| *seconds > 0.0 && *seconds <= JOB_SECONDS_MAX;
        each("limits.start_seconds", &[self.start_seconds], JOB_SECONDS_ALLOWED, is_time)?;
        each("limits.build_seconds", &[self.build_seconds], JOB_SECONDS_ALLOWED, is_time)?;
        each("limits.run_seconds", &[self.run_seconds], JOB_SECONDS_ALLOWED, is_time)?;
        each("limits.build_batch", &[self.build_batch], "allowed are 1 to 1024", |n| (1..=1024).contains(n))?;
        each("limits.builders", &[self.builders], "allowed are 0 to 256", |n| *n <= 256)?;
        let is_memory = |mib: &u64| MEMORY_MIB.contains(mib);
        each("limits.build_memory_mib", &[self.build_memory_mib], MEMORY_ALLOWED, is_memory)?;
        each("limits.run_memory_mib", &[self.run_memory_mib], MEMORY_ALLOWED, is_memory)?;
        each("limits.runner_jobs", &[self.runner_jobs], "it must be at least 1", |jobs| *jobs >= 1)
    }
}

impl Config {
    /// Checks every setting, wherever it was read from; a configuration that passes can be carried out, on a machine
    /// that has the CPUs.
    pub fn check(&self) -> Result<(), ConfigError> {
        each("threads", &self.threads, "allowed are 1 to 4096", |count| (1..=THREADS_MAX).contains(count))?;
        each("schedules", &[self.schedules], "allowed are 1 to 1000000", |count| (1..=1_000_000).contains(count))?;
        each("samplers", &self.samplers, "", |_| true)?;
        each("cache", &self.cache, "", |_| true)?;
        for model in &self.models {
            if let Some(batch) = model.batch {
                each("batch", &[batch], BATCH_ALLOWED, |size| BATCH.contains(size))?;
            }
            let sequence: Vec<i64> = model.tokens.iter().map(|tokens| tokens.sequence).collect();
            if !sequence.is_empty() {
                each("sequence", &sequence, SEQUENCE_ALLOWED, |length| SEQUENCE.contains(length))?;
            }
        }
        if let Some(budget) = self.budget_seconds {
            let is_time = |seconds: &f64| *seconds > 0.0 && *seconds <= BUDGET_SECONDS_MAX;
            each("budget_seconds", &[budget], BUDGET_ALLOWED, is_time)?;
        }
        self.limits.check()?;
        self.measure.check()?;
        let warm = "give `cache = [\"cold\"]`, which writes as much as the machine's caches hold";
        each("measure.cache", &[self.measure.cache], warm, |cache| *cache == Cache::Warm)?;
        counters::names::check(&self.counters.events).map_err(ConfigError::Counter)?;
        self.check_ways()
    }

    /// What does not go together.
    fn check_ways(&self) -> Result<(), ConfigError> {
        check_target(&self.target)?;
        let is_served = |executor: &Executor| match executor {
            Executor::Default => true,
            Executor::Vm => self.samplers == [Sampler::Template],
        };
        let allowed = "`vm` is for the targets `llvm` and `cuda` and the sampler `template`";
        each("executor", &[self.executor], allowed, is_served)?;
        let allowed = "allowed are 0 to 1000, and none with the executor `vm`";
        each("variations", &[self.variations], allowed, |count| {
            *count == 0 || (*count <= 1000 && self.executor == Executor::Default)
        })?;
        let is_served = |backend: &Backend| match backend {
            Backend::Tvm => true,
            Backend::Torch => self.target == HOST && self.partners.is_empty() && self.executor == Executor::Default,
        };
        let allowed = "`torch` computes on this machine's CPU: leave out `target` and `executor`";
        each("backend", &[self.backend], allowed, is_served)?;
        let kind = self.kind();
        for (setting, allowed) in kind.fixed_settings() {
            self.check_fixed(*setting, allowed)?;
        }
        let refusal = self.tune.as_ref().and_then(|tune| tune.refusal(kind, self.executor == Executor::Vm));
        match refusal {
            Some((field, found, allowed)) => Err(ConfigError::OutOfRange { field, found, allowed }),
            None => Ok(()),
        }
    }

    /// Checks that a setting that the target fixes is at its default.
    fn check_fixed(&self, setting: Setting, allowed: &str) -> Result<(), ConfigError> {
        let (is_default, field, found) = match setting {
            Setting::Threads => (self.threads == [1], "threads", shown(&self.threads)),
            Setting::Samplers => (self.samplers == [Sampler::Template], "samplers", shown(&self.samplers)),
            Setting::Cache => (self.cache == [CacheChoice::Warm], "cache", shown(&self.cache)),
            Setting::Executor => (self.executor == Executor::Default, "executor", shown(&self.executor)),
            Setting::Partners => (self.partners.is_empty(), "target", self.partners.join(", ")),
        };
        match is_default {
            true => Ok(()),
            false => Err(ConfigError::OutOfRange { field, found, allowed: allowed.to_owned() }),
        }
    }

    /// Returns the kind of target that computes the tasks that no partner takes.
    pub fn kind(&self) -> Kind {
        match self.backend {
            Backend::Torch => targets::library(),
            Backend::Tvm => self.compiled_kind(),
        }
    }

    /// Returns the kind of `target`, whatever the backend is.
    pub fn compiled_kind(&self) -> Kind {
        targets::find(&self.target).unwrap_or_else(targets::host)
    }

    /// Everything that was asked for, as the text that a store keeps.
    pub fn text(&self) -> String {
        serde_json::to_string(self).expect("a configuration holds only JSON values")
    }

    /// As a store keeps it: all that was asked for, but how long it may take. A run that goes on with another's work by another
    /// budget is the same campaign.
    pub fn kept_text(&self) -> String {
        Config { budget_seconds: None, ..self.clone() }.text()
    }

    /// Stable identity of what a store keeps: 32 hexadecimal digits.
    pub fn hash(&self) -> String {
        datasets::store::config_hash(&self.kept_text())
    }
}
