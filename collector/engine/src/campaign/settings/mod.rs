//! Settings of a campaign, from a configuration file and from flags. Each setting is declared once, as a field of a
//! struct that serves both as a group of flags and as keys of the file.

mod fields;
mod resolve;
#[cfg(test)]
mod tests;

pub use resolve::ResolvedConfig;

use super::choices::{AttentionChoice, Backend, Executor, SamplerName};
use super::config::{ConfigError, Limits};
use super::corun_settings::CoRun;
use super::night::Night;
use super::tune::TuneSettings;
#[cfg(feature = "clap")]
use crate::flags::choice_parser;
use datasets::CacheState;
use measure::Plan;
use measure::counters::{self, CounterRequest};
use models::{Fuse, names};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use zoo::transformers::Phase;

/// Settings of a campaign; missing settings have defaults.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// Models to collect.
    pub models: Vec<ModelEntry>,
    /// Sizes, representation and target of all models.
    #[serde(flatten)]
    pub model: ModelSettings,
    /// Schedules, thread counts and cache states.
    #[serde(flatten)]
    pub sweep: SweepSettings,
    /// Settings of a schedule search, which replaces sampling.
    pub tune: Option<TuneSettings>,
    /// Measurement plan: how each experiment is timed.
    pub measure: Plan,
    /// Hardware counters to read.
    pub counters: CounterRequest,
    /// Resource and time limits of every job.
    pub limits: Limits,
    /// Settings of `opcollect night`, which no other command reads.
    pub night: Option<Night>,
    /// Settings of `opcollect corun`, which no other command reads.
    pub corun: Option<CoRun>,
}

/// An entry of the list of models.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelEntry {
    /// Name of a [`super::choices::ModelSource`].
    pub source: String,
    /// Name of the model within the source.
    pub name: String,
    /// Shapes of inputs by name, for files that leave dimensions open.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub shapes: BTreeMap<String, Vec<i64>>,
    /// Constant inputs by name, for files whose shapes or branches depend on them: one number, or one per element.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub values: BTreeMap<String, Vec<f64>>,
    /// Whether unsupported operators are skipped instead of rejecting the model.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub skip_unsupported: bool,
}

// The doc comments are the help of the flags.
/// Sizes, forms and target of all models of a campaign.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(default)]
pub struct ModelSettings {
    /// Batch sizes, such as 1 or 1,8,32 [default: 1]
    #[cfg_attr(feature = "clap", arg(long = "batchsize", value_name = "N,…", value_delimiter = ','))]
    pub batch: Option<Vec<i64>>,
    /// Sequence lengths in tokens, such as 128 or 32,512 [default: 128]
    ///
    /// For `transformers`, and, without a default, for dynamic sequence dimensions of ONNX files. In a decoding step this
    /// is the number of earlier tokens. Image models ignore it.
    #[cfg_attr(feature = "clap", arg(long, value_name = "N,…", value_delimiter = ','))]
    pub sequence: Option<Vec<i64>>,
    /// Phase of a decoder: all tokens at once, or one more token [default: prefill]
    ///
    /// Only for `transformers`. A decoding step reads the keys and values of earlier tokens as inputs.
    #[cfg_attr(
        feature = "clap",
        arg(long, value_parser = choice_parser::<Phase>(), value_name = "PHASE", value_delimiter = ',')
    )]
    pub phase: Option<Vec<Phase>>,
    /// Number of consecutive decoding steps in one model [default: 1]
    ///
    /// Only for `--phase decode`. Each step reads its token and the keys and values of all earlier steps; `--sequence`
    /// is the number of tokens before the first step.
    #[cfg_attr(feature = "clap", arg(long, value_name = "N"))]
    pub steps: Option<i64>,
    /// Representation of attention: one task, its parts, or both [default: fused]
    #[cfg_attr(feature = "clap", arg(long, value_parser = choice_parser::<AttentionChoice>()))]
    pub attention: Option<AttentionChoice>,
    /// Fusion of pointwise operators with the preceding operator [default: epilogue]
    #[cfg_attr(feature = "clap", arg(long, value_parser = choice_parser::<Fuse>()))]
    pub fuse: Option<Fuse>,
    /// Compile for each size, or once for all requested sizes [default: default]
    ///
    /// With `vm`, batch sizes and sequence lengths of a model are dynamic in compiled tasks, and each artifact is
    /// measured and checked at every size. Operators that need static sizes are compiled for each size; `opcollect
    /// tasks --executor vm` lists them with the reason. Thread tiles along a dynamic dimension are limited to 1.
    #[cfg_attr(feature = "clap", arg(long, value_parser = choice_parser::<Executor>()))]
    pub executor: Option<Executor>,
    /// Also measure N resized variants of each task [default: 0]
    ///
    /// A variant has the same operators; each size is random between half and twice the original, and the work is at
    /// most doubled. `--seed` selects other variants. Variants belong to no model; they teach predictors shapes between
    /// those of known networks.
    #[cfg_attr(feature = "clap", arg(long, value_name = "N"))]
    pub variations: Option<usize>,
    /// Compilation target: llvm, cuda, pynq, or a JSON target of TVM [default: llvm]
    ///
    /// `build` also supports `mali` or the JSON target of an OpenCL device: it writes OpenCL C kernels, which this
    /// program does not run.
    ///
    /// Libraries that compute the operators they support can precede the target, as in `cpu-vendor, llvm`; `cpu-vendor`
    /// is PyTorch's library (see `--backend`).
    #[cfg_attr(feature = "clap", arg(long, value_name = "TARGET"))]
    pub target: Option<String>,
    /// Library that computes the tasks [default: tvm]
    ///
    /// `torch` measures a vendor library on the same tasks with the same method, on this machine's CPU. Operators that
    /// PyTorch lacks are recorded as skipped. This needs a build with the feature `torch`: see `docs/guide/torch.md`.
    #[cfg_attr(feature = "clap", arg(long, value_parser = choice_parser::<Backend>(), value_name = "BACKEND"))]
    pub backend: Option<Backend>,
    /// GPU architectures to compile for, such as sm_90 or sm_80,sm_90 [default: that of this machine's GPU]
    #[cfg_attr(feature = "clap", arg(long, value_name = "NAME,…", value_delimiter = ','))]
    pub arch: Option<Vec<String>>,
    /// Processor of the board, for `--target pynq` [default: arm]
    ///
    /// `arm`: its CPU cores over RPC. `fpga`: a core on its fabric, whose times are simulated on this machine unless a
    /// board is given.
    #[cfg_attr(feature = "clap", arg(long, value_name = "UNIT"))]
    pub unit: Option<String>,
    /// Board for `--target pynq` [default: pynq-z1]
    ///
    /// Boards: pynq-z1, pynq-z2, ultra96, zcu104, kv260.
    #[cfg_attr(feature = "clap", arg(long, value_name = "NAME"))]
    pub board: Option<String>,
    /// Configuration of the accelerator for `--unit fpga`: 1x16 or 4x8 [default: 1x16]
    #[cfg_attr(feature = "clap", arg(long, value_name = "NAME"))]
    pub fpga_config: Option<String>,
    /// Parameters of the timing model for `--unit fpga` [default: those of the board]
    #[cfg_attr(feature = "clap", arg(long, value_name = "NAME"))]
    pub sim_params: Option<String>,
}

/// Schedules, thread counts and cache states of a campaign.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(default)]
pub struct SweepSettings {
    /// Number of schedules per task and sampler, including the default [default: 8]
    #[cfg_attr(feature = "clap", arg(long, value_name = "N"))]
    pub schedules: Option<usize>,
    /// Source of schedules [default: template]
    #[cfg_attr(
        feature = "clap",
        arg(
            long = "sampler",
            value_parser = choice_parser::<SamplerName>(),
            value_name = "SAMPLER",
            value_delimiter = ','
        )
    )]
    pub samplers: Option<Vec<SamplerName>>,
    /// Thread counts, such as 1,2 [default: 1 and all CPUs]
    #[cfg_attr(feature = "clap", arg(long, value_name = "N,…", value_delimiter = ','))]
    pub threads: Option<Vec<usize>>,
    /// Cache state before a timed run [default: warm]
    #[cfg_attr(
        feature = "clap",
        arg(long, value_parser = choice_parser::<CacheState>(), value_name = "STATE", value_delimiter = ',')
    )]
    pub cache: Option<Vec<CacheState>>,
    /// Seed of schedules and input values [default: 0]
    #[cfg_attr(feature = "clap", arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..1 << 63)))]
    pub seed: Option<u64>,
    /// Time limit of the campaign in seconds
    ///
    /// The attempts in flight end after it, and so does the measurement of the peak rates of a
    /// host that is new to the store.
    #[cfg_attr(
        feature = "clap",
        arg(long = "budget", value_name = "SECONDS", value_parser = report::quantity::parse_seconds)
    )]
    pub budget_seconds: Option<f64>,
}

impl ModelSettings {
    /// Returns these settings (of flags), with missing ones taken from the configuration file.
    pub fn with_fallback(self, file: ModelSettings) -> ModelSettings {
        ModelSettings {
            batch: self.batch.or(file.batch),
            sequence: self.sequence.or(file.sequence),
            phase: self.phase.or(file.phase),
            steps: self.steps.or(file.steps),
            attention: self.attention.or(file.attention),
            fuse: self.fuse.or(file.fuse),
            executor: self.executor.or(file.executor),
            variations: self.variations.or(file.variations),
            target: self.target.or(file.target),
            backend: self.backend.or(file.backend),
            arch: self.arch.or(file.arch),
            unit: self.unit.or(file.unit),
            board: self.board.or(file.board),
            fpga_config: self.fpga_config.or(file.fpga_config),
            sim_params: self.sim_params.or(file.sim_params),
        }
    }
}

impl SweepSettings {
    /// Returns these settings (of flags), with missing ones taken from the configuration file.
    pub fn with_fallback(self, file: SweepSettings) -> SweepSettings {
        SweepSettings {
            schedules: self.schedules.or(file.schedules),
            samplers: self.samplers.or(file.samplers),
            threads: self.threads.or(file.threads),
            cache: self.cache.or(file.cache),
            seed: self.seed.or(file.seed),
            budget_seconds: self.budget_seconds.or(file.budget_seconds),
        }
    }
}

impl Settings {
    /// Requests exactly the named counters; `none` requests none, and an empty list leaves the settings unchanged.
    pub fn request_counters(&mut self, names: &[String]) {
        match names {
            [] => {}
            [only] if only == "none" => self.counters.backend = counters::Backend::None,
            names => {
                self.counters.events = names.to_vec();
                // Named counters override settings that disable counters.
                if self.counters.backend == counters::Backend::None {
                    self.counters.backend = counters::Backend::default();
                }
            }
        }
    }

    /// Reads a TOML file.
    pub fn read(path: &Path) -> Result<Settings, ConfigError> {
        let unreadable =
            |error: std::io::Error| ConfigError::Unreadable { path: path.to_owned(), why: error.to_string() };
        const MAX_BYTES: u64 = 16 << 20;
        let text = models::files::read_bounded_text(path, MAX_BYTES).map_err(unreadable)?;
        Settings::parse(&text).map_err(|why| ConfigError::Malformed { path: path.to_owned(), why })
    }

    /// Parses the text of a TOML file.
    pub fn parse(text: &str) -> Result<Settings, String> {
        fields::check_fields(text)
            // The groups are parsed first, because errors in flattened fields do not name their
            // line.
            .and_then(|()| Ok((toml::from_str(text)?, toml::from_str(text)?)))
            .and_then(|(model, sweep)| Ok(Settings { model, sweep, ..toml::from_str(text)? }))
            .map_err(|error| names::with_hint(error.to_string().trim_end()))
    }
}
