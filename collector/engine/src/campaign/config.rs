//! What was asked for: `RawConfig` mirrors the file and only parses, `Config` is checked and complete.

use super::corun_settings::CoRun;
use super::night::Night;
use super::tune::Tune;
use datasets::CacheState;
use job::device::Architecture;
use job::target::{Kind, MALI, composite, cuda_text, fabric_text, is_cuda, is_fabric, is_llvm, is_mali};
use measure::counters::{self, CounterRequest};
use measure::{Cache, Plan};
use models::fuse::Fuse;
use models::names;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use zoo::transformers::{self, Phase};

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
    /// Decoding steps one after the other, as one model.
    pub steps: Option<i64>,
    /// What becomes of attention: `fused`, `split`, `both`.
    pub attention: Option<AttentionChoice>,
    /// Whether code is made for one size or for several at once: `default`, `vm`.
    pub executor: Option<Executor>,
    /// How many tasks with other sizes stand beside each one.
    pub variations: Option<usize>,
    /// `llvm`, `cuda`, `pynq`, or TVM's JSON of a target; partners may stand before it: `cpu-vendor, llvm`.
    pub target: Option<String>,
    /// Who computes the tasks: `tvm`, `torch`.
    pub backend: Option<Backend>,
    /// GPU architectures for the target `cuda`, such as `sm_90`.
    pub arch: Option<Vec<String>>,
    /// The part of a board for the target `pynq`: `fpga`.
    pub unit: Option<String>,
    /// The board for the target `pynq`, such as `pynq-z1`.
    pub board: Option<String>,
    /// The configuration of the core on its fabric, such as `1x16`.
    pub fpga_config: Option<String>,
    /// The parameters that its times are simulated with, such as `pynq-hls-100`.
    pub sim_params: Option<String>,
    /// Thread counts.
    pub threads: Option<Vec<usize>>,
    /// Where schedules come from: `template`, `metaschedule`.
    pub samplers: Option<Vec<Sampler>>,
    /// Schedules per task and sampler, the default one included.
    pub schedules: Option<usize>,
    /// A search in place of samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tune: Option<Tune>,
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
    /// What `opcollect night` does with all this; nothing else asks for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub night: Option<Night>,
    /// What `opcollect corun` does with all this; nothing else asks for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub corun: Option<CoRun>,
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
    #[serde(default, skip_serializing_if = "Backend::is_default")]
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
    Plan(#[from] measure::PlanError),
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
        RawConfig::parse(&text).map_err(|why| ConfigError::Malformed { path: path.to_owned(), why })
    }

    /// Reads the text of such a file.
    pub fn parse(text: &str) -> Result<RawConfig, String> {
        toml::from_str(text).map_err(|error| names::with_hint(error.to_string().trim_end()))
    }

    /// Checks everything against what this machine allows.
    pub fn check(self, allowed_cpus: usize) -> Result<Config, ConfigError> {
        if let Some(Err((field, found, allowed))) = self.night.as_ref().map(Night::check) {
            return Err(ConfigError::OutOfRange { field, found, allowed });
        }
        if let Some(Err((field, found, allowed))) = self.corun.as_ref().map(|corun| corun.check(allowed_cpus)) {
            return Err(ConfigError::OutOfRange { field, found, allowed });
        }
        let composite = composite(self.target.as_deref().unwrap_or("llvm")).map_err(ConfigError::Target)?;
        let partners: Vec<String> = composite.partners.iter().map(|partner| partner.name.to_owned()).collect();
        let board = [
            ("unit", self.unit),
            ("board", self.board),
            ("fpga_config", self.fpga_config),
            ("sim_params", self.sim_params),
        ];
        let target = target(composite.rest, self.arch, board)?;
        // A GPU is fed by one thread.
        let threads =
            self.threads.unwrap_or_else(|| if is_llvm(&target) { default_threads(allowed_cpus) } else { vec![1] });
        let threads_allowed = format!("allowed are 1 to {allowed_cpus} on this machine");
        each("threads", &threads, &threads_allowed, |&count| count >= 1 && count <= allowed_cpus)?;
        let batch = batches(&self.models, self.batch)?;
        self.models.iter().try_for_each(RawModel::check)?;
        let steps = steps(self.steps, self.phase.as_deref(), self.executor)?;
        let tokens = tokens(&self.models, self.sequence, self.phase, steps)?;
        let runs = self.models.len().saturating_mul(batch.len()).saturating_mul(tokens.len());
        each("models", &[runs], "models, batch sizes and sequences give at most 65536 together", |n| *n <= 1 << 16)?;
        let models = self.models.iter().flat_map(|model| {
            let tokens =
                if model.source == TRANSFORMERS { tokens.iter().copied().map(Some).collect() } else { vec![None] };
            // One operator as text says its own sizes.
            let batch = if model.source == SIMPLE { vec![None] } else { batch.clone() };
            let runs =
                tokens.into_iter().flat_map(move |tokens| batch.clone().into_iter().map(move |batch| (batch, tokens)));
            runs.map(|(batch, tokens)| ModelRequest {
                source: model.source.clone(),
                name: model.name.clone(),
                batch,
                shapes: model.shapes.clone(),
                skip_unsupported: model.skip_unsupported,
                tokens,
            })
        });
        let config = Config {
            models: models.collect(),
            target,
            partners,
            backend: self.backend.unwrap_or_default(),
            threads,
            samplers: self.samplers.unwrap_or_else(|| vec![Sampler::Template]),
            schedules: self.schedules.unwrap_or(8),
            tune: self.tune,
            fuse: self.fuse.unwrap_or(FuseChoice::Epilogue),
            attention: self.attention.unwrap_or(AttentionChoice::Fused),
            executor: self.executor.unwrap_or_default(),
            variations: self.variations.unwrap_or(0),
            cache: self.cache.unwrap_or_else(|| vec![CacheChoice::Warm]),
            seed: self.seed.unwrap_or(0),
            budget_seconds: self.budget_seconds,
            measure: self.measure,
            counters: self.counters,
            limits: self.limits,
        };
        config.check()?;
        Ok(config)
    }
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// The target's text; architectures become part of a GPU's description.
fn target(
    text: String,
    architectures: Option<Vec<String>>,
    of_board: [(&'static str, Option<String>); 4],
) -> Result<String, ConfigError> {
    check_target(&text)?;
    if text == PYNQ {
        let [(_, unit), (_, board), core, timing] = of_board;
        if unit.as_deref() == Some("fpga") {
            let text = fabric_text(board.as_deref(), core.1.as_deref(), timing.1.as_deref());
            return text.map_err(ConfigError::Target);
        }
        if let Some(found) = unit.filter(|unit| unit != "arm") {
            let allowed = format!(
                "`arm`, its cores, and `fpga`, a core on its fabric; kernels for a Mali GPU are what `opcollect build --target {MALI}` makes"
            );
            return Err(ConfigError::OutOfRange { field: "unit", found, allowed });
        }
        if let Some((field, Some(found))) = [core, timing].into_iter().find(|(_, given)| given.is_some()) {
            let allowed = "only the unit `fpga` takes it".to_owned();
            return Err(ConfigError::OutOfRange { field, found, allowed });
        }
        return Ok(text);
    }
    if let Some((field, Some(found))) = of_board.into_iter().find(|(_, given)| given.is_some()) {
        let allowed = "only the target `pynq` takes it".to_owned();
        return Err(ConfigError::OutOfRange { field, found, allowed });
    }
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

fn check_target(text: &String) -> Result<(), ConfigError> {
    let allowed = "give `llvm`, `cuda`, `pynq`, `mali` (which `build` takes), or TVM's JSON of such a target";
    let is_known = |text: &str| is_llvm(text) || is_cuda(text) || text == PYNQ || is_fabric(text) || is_mali(text);
    each("target", std::slice::from_ref(text), allowed, |text| is_known(text))
}

/// The target whose code is for the cores of a board.
pub const PYNQ: &str = "pynq";
/// The source whose models are one operator given as text.
pub const SIMPLE: &str = "simple";
/// The source whose models read tokens.
pub const TRANSFORMERS: &str = "transformers";

/// The batch sizes that were asked for; none where none was.
fn batches(models: &[RawModel], batch: Option<Vec<i64>>) -> Result<Vec<Option<i64>>, ConfigError> {
    let Some(batch) = batch else { return Ok(vec![None]) };
    each("batch", &batch, BATCH_ALLOWED, |size| BATCH.contains(size))?;
    if !models.is_empty() && models.iter().all(|model| model.source == SIMPLE) {
        let allowed = "a simple operator has its batch in its own text, such as `n=8`";
        each("batch", &batch, allowed, |size| *size == 1)?;
    }
    Ok(batch.into_iter().map(Some).collect())
}

/// The number of decoding steps, where there are several: each a graph of its own size.
fn steps(steps: Option<i64>, phase: Option<&[Phase]>, executor: Option<Executor>) -> Result<Option<i64>, ConfigError> {
    let Some(count) = steps else { return Ok(None) };
    let refuse = |allowed: String| Err(ConfigError::OutOfRange { field: "steps", found: count.to_string(), allowed });
    if !(1..=transformers::STEPS_MAX).contains(&count) {
        return refuse(format!("allowed are 1 to {}", transformers::STEPS_MAX));
    }
    if phase != Some(&[Phase::Decode]) {
        return refuse("only decoding goes in steps: give the phase `decode`, and no other".to_owned());
    }
    if executor == Some(Executor::Vm) {
        return refuse("the executor `vm` has one step at every size".to_owned());
    }
    Ok(Some(count).filter(|count| *count > 1))
}

/// Every phase at every length of a sequence. Only transformers have them.
fn tokens(
    models: &[RawModel],
    sequence: Option<Vec<i64>>,
    phase: Option<Vec<Phase>>,
    steps: Option<i64>,
) -> Result<Vec<Tokens>, ConfigError> {
    let (is_given, has_phase) = (sequence.is_some() || phase.is_some(), phase.is_some());
    let sequence = sequence.unwrap_or_else(|| vec![zoo::transformers::Options::default().sequence]);
    each("sequence", &sequence, SEQUENCE_ALLOWED, |length| SEQUENCE.contains(length))?;
    let phase = phase.unwrap_or_else(|| vec![Phase::default()]);
    each("phase", &phase, "", |_| true)?;
    if is_given && !models.iter().any(|model| model.source == TRANSFORMERS) {
        let (field, found) = if has_phase { ("phase", shown(&phase)) } else { ("sequence", shown(&sequence)) };
        let allowed = "only models from `transformers` have it".to_owned();
        return Err(ConfigError::OutOfRange { field, found, allowed });
    }
    let runs = phase.iter().flat_map(|&phase| sequence.iter().map(move |&sequence| Tokens { sequence, phase, steps }));
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
const BATCH: RangeInclusive<i64> = 1..=65_536;
const BATCH_ALLOWED: &str = "allowed are 1 to 65536";
/// Tokens of a sequence.
const SEQUENCE: RangeInclusive<i64> = 1..=1 << 20;
const SEQUENCE_ALLOWED: &str = "allowed are 1 to 1048576";
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
            Backend::Torch => self.target == "llvm" && self.partners.is_empty() && self.executor == Executor::Default,
        };
        let allowed = "`torch` computes on this machine's CPU: leave out `target` and `executor`";
        each("backend", &[self.backend], allowed, is_served)?;
        if is_fabric(&self.target) {
            self.check_fabric()?;
        }
        let kind = match self.backend {
            Backend::Torch => Kind::Torch,
            Backend::Tvm if is_cuda(&self.target) => Kind::Cuda,
            Backend::Tvm if is_fabric(&self.target) => Kind::Pynq,
            Backend::Tvm if is_mali(&self.target) => Kind::Opencl,
            Backend::Tvm => Kind::Llvm,
        };
        let refusal = self.tune.as_ref().and_then(|tune| tune.refusal(kind, self.executor == Executor::Vm));
        match refusal {
            Some((field, found, allowed)) => Err(ConfigError::OutOfRange { field, found, allowed }),
            None => Ok(()),
        }
    }

    /// What a core on a board's fabric has no meaning for.
    fn check_fabric(&self) -> Result<(), ConfigError> {
        let only = |is: bool, field: &'static str, found: String, allowed: &str| match is {
            true => Ok(()),
            false => Err(ConfigError::OutOfRange { field, found, allowed: allowed.to_owned() }),
        };
        let core = "of a core on a board's fabric";
        only(
            self.threads == [1],
            "threads",
            shown(&self.threads),
            &format!("the threads {core} are knobs: leave it out"),
        )?;
        only(
            self.samplers == [Sampler::Template],
            "samplers",
            shown(&self.samplers),
            &format!("the space {core} is `template`"),
        )?;
        only(self.cache == [CacheChoice::Warm], "cache", shown(&self.cache), &format!("there is no cache {core}"))?;
        only(
            self.executor == Executor::Default,
            "executor",
            shown(&self.executor),
            &format!("programs {core} have one size: leave it out"),
        )?;
        only(self.partners.is_empty(), "target", self.partners.join(", "), "`pynq` has no partners")
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use toml::{Table, Value};

    /// Every setting there is.
    const WHOLE: &str = r#"
        models = [
            { source = "transformers", name = "x" },
            { source = "onnx", name = "y", shapes = { a = [1, 2] }, skip_unsupported = true },
        ]
        batch = [1, 8]
        sequence = [16]
        phase = ["decode"]
        attention = "both"
        executor = "default"
        variations = 3
        target = "llvm"
        backend = "tvm"
        threads = [1, 2]
        samplers = ["template"]
        schedules = 4
        fuse = "none"
        cache = ["warm", "cold"]
        seed = 7
        budget_seconds = 60.5
        [tune]
        tuner = "xgb-rank"
        trials = 300
        trials_per_task = 64
        patience = 50
        [measure]
        precision = 0.02
        time_limit_ns = 1000
        samples_max = 100
        [counters]
        backend = "none"
        [limits]
        builders = 1
        build_batch = 2
        overlap = false
        start_seconds = 1.5
        build_seconds = 2.5
        run_seconds = 3.5
        build_memory_mib = 100
        run_memory_mib = 200
        runner_jobs = 5
        spin_count = 6
        [night]
        minutes = 60
        deadline = "06:30"
        sentinel_minutes = 10
        again_share = 0.5
        variations = 2
        nights = 10
    "#;

    fn extremes() -> Vec<Value> {
        let numbers = [0, -1, 1, 1 << 40, i64::MAX, i64::MIN].map(Value::Integer);
        let floats = [0.0, -0.5, 1e19, 1e300, f64::INFINITY, f64::NAN, 1e-300].map(Value::Float);
        let lists = [Vec::new(), vec![Value::Integer(0)], vec![Value::Integer(1); 5000]].map(Value::Array);
        let others = [Value::String(String::new()), Value::String("?".to_owned()), Value::Boolean(true)];
        numbers.into_iter().chain(floats).chain(lists).chain(others).collect()
    }

    /// What passes can be turned into what workers are given.
    fn check_usable(config: &Config) {
        let Limits { start_seconds, build_seconds, run_seconds, .. } = config.limits;
        for seconds in [start_seconds, build_seconds, run_seconds].into_iter().chain(config.budget_seconds) {
            assert!(Duration::from_secs_f64(seconds) <= Duration::from_secs(366 * 86_400), "{seconds}");
        }
        for mib in [config.limits.build_memory_mib, config.limits.run_memory_mib] {
            assert!((64..=1 << 24).contains(&mib), "{mib}");
        }
        assert!(config.limits.build_batch > 0 && !config.threads.is_empty());
    }

    fn try_all(table: &Table, whole: &Table, path: &[String], tried: &mut usize) {
        for (name, value) in table {
            let path: Vec<String> = path.iter().chain([name]).cloned().collect();
            for extreme in extremes() {
                let mut changed = whole.clone();
                let (last, folders) = path.split_last().expect("a path has a name");
                let place = folders.iter().fold(&mut changed, |table, name| {
                    table.get_mut(name).and_then(Value::as_table_mut).expect("the path leads through tables")
                });
                place.insert(last.clone(), extreme);
                *tried += 1;
                let text = toml::to_string(&changed).expect("a table is TOML");
                if let Ok(config) = RawConfig::parse(&text).map_err(drop).and_then(|raw| raw.check(4).map_err(drop)) {
                    check_usable(&config);
                }
            }
            if let Value::Table(inner) = value {
                try_all(inner, whole, &path, tried);
            }
        }
    }

    #[test]
    fn a_file_with_any_setting_changed_is_refused_or_can_be_used() {
        let whole: Table = toml::from_str(WHOLE).unwrap();
        check_usable(&RawConfig::parse(WHOLE).unwrap().check(4).unwrap());
        let mut tried = 0;
        try_all(&whole, &whole, &[], &mut tried);
        assert!(tried > 500, "{tried}");
    }

    #[test]
    fn settings_without_effect_are_refused() {
        let refused = |text: &str| RawConfig::parse(text).unwrap().check(4).unwrap_err().to_string();
        let simple = "models = [{ source = 'simple', name = 'relu:shape=8' }]\n";
        expect_test::expect!["`batch` is 8; a simple operator has its batch in its own text, such as `n=8`"]
            .assert_eq(&refused(&format!("{simple}batch = [8]")));
        expect_test::expect!["`sequence` is [8]; only models from `transformers` have it"]
            .assert_eq(&refused(&format!("{simple}sequence = [8]")));
        expect_test::expect![[r#"`measure.cache` is {"cold":{"flush_bytes":4096}}; give `cache = ["cold"]`, which writes as much as the machine's caches hold"#]]
            .assert_eq(&refused(&format!("{simple}[measure]\ncache = {{ cold = {{ flush_bytes = 4096 }} }}")));
        expect_test::expect!["`threads` is 8; allowed are 1 to 4 on this machine"]
            .assert_eq(&refused(&format!("{simple}threads = [1, 8]")));
    }

    fn check_tune(text: &str, expected: expect_test::Expect) {
        let told = match RawConfig::parse(text).map(|raw| raw.check(2)) {
            Ok(Ok(config)) => format!("{:?}", config.tune),
            Ok(Err(error)) => error.to_string(),
            Err(why) => why,
        };
        expected.assert_eq(&told);
    }

    #[test]
    fn what_cannot_be_searched_is_refused() {
        check_tune("", expect_test::expect!["None"]);
        check_tune(
            "[tune]",
            expect_test::expect![
                "Some(Tune { tuner: Draft, trials: 3000, trials_per_task: None, patience: 100, only: Filter({}), in_place: true, spaces: 7 })"
            ],
        );
        check_tune("[tune]\ntrials = 0", expect_test::expect!["`trials` is 0; allowed are 1 to 1000000"]);
        check_tune(
            "[tune]\ntrials_per_task = 0",
            expect_test::expect!["`trials_per_task` is 0; allowed are 1 to 1000000"],
        );
        check_tune(
            "[tune]\npatience = 2000000",
            expect_test::expect!["`patience` is 2000000; allowed are 0 to 1000000"],
        );
        check_tune(
            "executor = 'vm'\n[tune]",
            expect_test::expect![
                "`tuner` is draft; schedules are searched for one size at a time: leave out the executor `vm`"
            ],
        );
        check_tune(
            "backend = 'torch'\n[tune]",
            expect_test::expect!["`tuner` is draft; `draft` searches schedules, and a library has none"],
        );
        check_tune(
            "target = 'cuda'\narch = ['sm_90']\n[tune]\ntuner = 'xgb_curve'",
            expect_test::expect![
                "`tuner` is xgb_curve; `xgb_curve` learns from loops as templates for CPUs make them, and the target is `cuda`; `draft`, `xgb_knob`, `ga`, `random`, `gridsearch` and `metaschedule` search there"
            ],
        );
    }
}
