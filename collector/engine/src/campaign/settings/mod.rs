//! Settings of a campaign, from a configuration file and from flags. Each setting is declared once,
//! in a group of which commands take flags and files have keys.

mod fields;
mod resolve;
#[cfg(test)]
mod tests;

pub use resolve::Resolved;

use super::choices::{AttentionChoice, Backend, CacheChoice, Executor, Sampler};
use super::config::{ConfigError, Limits};
use super::corun_settings::CoRun;
use super::night::Night;
use super::tune::TuneSettings;
#[cfg(feature = "clap")]
use crate::flags::choices;
use measure::Plan;
use measure::counters::{self, CounterRequest};
use models::{Fuse, names};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use zoo::transformers::Phase;

/// Settings of a campaign; everything that is left out has a default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// Models to collect.
    pub models: Vec<ModelEntry>,
    /// Sizes, forms and target of all models.
    #[serde(flatten)]
    pub model: ModelSettings,
    /// Schedules, thread counts and cache states.
    #[serde(flatten)]
    pub sweep: SweepSettings,
    /// A search in place of samples.
    pub tune: Option<TuneSettings>,
    /// How to measure.
    pub measure: Plan,
    /// Counters to read.
    pub counters: CounterRequest,
    /// Bounds of every job.
    pub limits: Limits,
    /// Settings of `opcollect night`, which no other command reads.
    pub night: Option<Night>,
    /// Settings of `opcollect corun`, which no other command reads.
    pub corun: Option<CoRun>,
}

/// An entry of the list of models.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelEntry {
    /// Name of a [`super::choices::ModelSource`].
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

// The doc comments are the help of the flags.
/// Sizes, forms and target of all models of a campaign.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(default)]
pub struct ModelSettings {
    /// Batch sizes, such as 1 or 1,8,32 [default: 1]
    #[cfg_attr(feature = "clap", arg(long = "batchsize", value_name = "N,…", value_delimiter = ','))]
    pub batch: Option<Vec<i64>>,
    /// Tokens of each sequence, such as 128 or 32,512; in a decoding step those that were read before [default: 128]
    ///
    /// For `transformers`, and for dimensions that an ONNX file leaves open and calls a sequence. Models of images have
    /// their own number.
    #[cfg_attr(feature = "clap", arg(long, value_name = "N,…", value_delimiter = ','))]
    pub sequence: Option<Vec<i64>>,
    /// Parts of a decoder's work: all tokens at once, or one more token after those that were read [default: prefill]
    ///
    /// Only for `transformers`. A decoding step takes the keys and values of earlier tokens from outside.
    #[cfg_attr(feature = "clap", arg(long, value_parser = choices::<Phase>(), value_name = "PHASE", value_delimiter = ','))]
    pub phase: Option<Vec<Phase>>,
    /// Decoding steps one after the other as one model, each with the keys and values of those before it [default: 1]
    ///
    /// Only for `--phase decode`. `--sequence` is what was read before the first step; each step is given its token.
    #[cfg_attr(feature = "clap", arg(long, value_name = "N"))]
    pub steps: Option<i64>,
    /// Whether attention is one task, its parts, or both [default: fused]
    #[cfg_attr(feature = "clap", arg(long, value_parser = choices::<AttentionChoice>()))]
    pub attention: Option<AttentionChoice>,
    /// Whether pointwise operators join the operator before them [default: epilogue]
    #[cfg_attr(feature = "clap", arg(long, value_parser = choices::<Fuse>()))]
    pub fuse: Option<Fuse>,
    /// Whether code is made for one size, or once for all the sizes that are given [default: default]
    ///
    /// With `vm`, the batch sizes and lengths of sequences of a model stay open when its tasks are compiled; each piece
    /// of code is then measured, and checked, at every size. What needs numbers is compiled for each size: `opcollect
    /// tasks --executor vm` says which tasks and why. No tile of a thread may be larger than 1 along a size that is open.
    #[cfg_attr(feature = "clap", arg(long, value_parser = choices::<Executor>()))]
    pub executor: Option<Executor>,
    /// Also measure N resized variants of each task [default: 0]
    ///
    /// The operators stay, each size is drawn from between half and twice of what it was, and the work is at most twice
    /// as much; `--seed` draws others. They stand in no model and count for none: from them a predictor learns what lies
    /// between the shapes of known networks.
    #[cfg_attr(feature = "clap", arg(long, value_name = "N"))]
    pub variations: Option<usize>,
    /// What to compile for: `llvm`, `cuda`, `pynq`, or TVM's JSON of such a target [default: llvm]
    ///
    /// `build` also takes `mali`, or the JSON of an OpenCL device: kernels in OpenCL C, which nothing here runs.
    ///
    /// Libraries that take the operators they support may stand before it, as in `cpu-vendor, llvm`, where
    /// `cpu-vendor` is PyTorch's library (see `--backend`).
    #[cfg_attr(feature = "clap", arg(long, value_name = "TARGET"))]
    pub target: Option<String>,
    /// Who computes the tasks: TVM's code, or PyTorch's library [default: tvm]
    ///
    /// `torch` shows what a vendor's library reaches on the same tasks, on this machine's CPU and timed as compiled code
    /// is; an operator that PyTorch has no form of is recorded as skipped. It needs a build with the feature `torch`: see
    /// `docs/guide/torch.md`.
    #[cfg_attr(feature = "clap", arg(long, value_parser = choices::<Backend>(), value_name = "BACKEND"))]
    pub backend: Option<Backend>,
    /// GPU architectures to compile for, such as sm_90 or sm_80,sm_90 [default: this machine's GPU]
    #[cfg_attr(feature = "clap", arg(long, value_name = "NAME,…", value_delimiter = ','))]
    pub arch: Option<Vec<String>>,
    /// Which part of a board computes, for `--target pynq`: `arm`, its cores, reached over RPC, or `fpga`, a core on its
    /// fabric, whose times are simulated here unless a board is named [default: arm]
    #[cfg_attr(feature = "clap", arg(long, value_name = "UNIT"))]
    pub unit: Option<String>,
    /// Which board, for `--target pynq`: pynq-z1, pynq-z2, ultra96, zcu104, kv260 [default: pynq-z1]
    #[cfg_attr(feature = "clap", arg(long, value_name = "NAME"))]
    pub board: Option<String>,
    /// Which configuration of the core, for `--unit fpga`: 1x16, 4x8 [default: 1x16]
    #[cfg_attr(feature = "clap", arg(long, value_name = "NAME"))]
    pub fpga_config: Option<String>,
    /// Which parameters of the timing model, for `--unit fpga` [default: those of the board]
    #[cfg_attr(feature = "clap", arg(long, value_name = "NAME"))]
    pub sim_params: Option<String>,
}

/// Schedules, thread counts and cache states of a campaign.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(default)]
pub struct SweepSettings {
    /// Schedules per task, the default one included [default: 8]
    #[cfg_attr(feature = "clap", arg(long, value_name = "N"))]
    pub schedules: Option<usize>,
    /// Where schedules come from [default: template]
    #[cfg_attr(feature = "clap", arg(long = "sampler", value_parser = choices::<Sampler>(), value_name = "SAMPLER", value_delimiter = ','))]
    pub samplers: Option<Vec<Sampler>>,
    /// Thread counts, such as 1,2 [default: 1 and all CPUs]
    #[cfg_attr(feature = "clap", arg(long, value_name = "N,…", value_delimiter = ','))]
    pub threads: Option<Vec<usize>>,
    /// Cache states before a timed run [default: warm]
    #[cfg_attr(feature = "clap", arg(long, value_parser = choices::<CacheChoice>(), value_name = "STATE", value_delimiter = ','))]
    pub cache: Option<Vec<CacheChoice>>,
    /// Seed of schedules and input values [default: 0]
    #[cfg_attr(feature = "clap", arg(long, value_name = "N"))]
    pub seed: Option<u64>,
    /// Stop after this many seconds
    #[cfg_attr(feature = "clap", arg(long = "budget", value_name = "SECONDS", value_parser = report::quantity::seconds))]
    pub budget_seconds: Option<f64>,
}

impl ModelSettings {
    /// Returns these settings, completed by those of `file`.
    pub fn over(self, file: ModelSettings) -> ModelSettings {
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
    /// Returns these settings, completed by those of `file`.
    pub fn over(self, file: SweepSettings) -> SweepSettings {
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
    /// Requests counters by name: only these, or none for the name `none`. An empty list changes
    /// nothing.
    pub fn request_counters(&mut self, names: &[String]) {
        match names {
            [] => {}
            [only] if only == "none" => self.counters.backend = counters::Backend::None,
            names => {
                self.counters.events = names.to_vec();
                // The request wins over settings that disable counters.
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
        let text = std::fs::read_to_string(path).map_err(unreadable)?;
        Settings::parse(&text).map_err(|why| ConfigError::Malformed { path: path.to_owned(), why })
    }

    /// Parses the text of a TOML file.
    pub fn parse(text: &str) -> Result<Settings, String> {
        fields::check(text)
            // The groups are parsed first, because errors in flattened fields do not name their
            // line.
            .and_then(|()| Ok((toml::from_str(text)?, toml::from_str(text)?)))
            .and_then(|(model, sweep)| Ok(Settings { model, sweep, ..toml::from_str(text)? }))
            .map_err(|error| names::with_hint(error.to_string().trim_end()))
    }
}
