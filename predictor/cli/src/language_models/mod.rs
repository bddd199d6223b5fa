//! Language-model servers on GPUs: options, predictions, knees, and the evaluation of whole servers.

mod answers;
mod curves;
mod evaluation;
mod texts;

pub use answers::predict_servers;
pub use curves::print_knees;
pub use evaluation::{evaluate_servers, train_servers};

use crate::options::parse_choice;
use clap::Args;
use models::Choice;
use predictor::servers::ServerQuestion;
use predictor::{Error, Result};
use serving::architecture::Architecture;
use serving::device::{self, GpuFacts};
use serving::plan::{Formats, Parallelism};
use serving::server::{Deployment, Framework, ReplicaPool, ServerLoad, ServingMode};
use serving::{Dtype, Scheme};
use std::ops::RangeInclusive;

/// Default number of prompt tokens.
const INPUT_TOKENS: u64 = 1024;

/// Options of a language-model server on GPUs. Any of these flags selects the prediction of a server.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Language models on GPUs")]
pub struct ServerFlags {
    /// Number format of the weights [default: bf16]
    ///
    /// bf16, fp8, fp8_block, nvfp4, int8, int8_wo, int4_wo, w4a16_mxfp4 or w4a8_mxfp4_mxfp8.
    #[arg(long, value_name = "FORMAT")]
    pub dtype: Option<String>,
    /// Number format of the key-value cache, bf16 or fp8
    ///
    /// Default: fp8 if products have at most 8 bits, else bf16.
    #[arg(long, value_name = "TYPE")]
    pub kv_dtype: Option<String>,
    /// GPUs among which each layer is divided [default: 1]
    #[arg(long, value_name = "N")]
    pub tensor_parallel: Option<u64>,
    /// GPUs among which the experts are distributed [default: 1]
    #[arg(long, value_name = "N")]
    pub expert_parallel: Option<u64>,
    /// Groups of --tensor-parallel GPUs [default: 1]
    ///
    /// Each group attends to its own sequences; all groups share the experts.
    #[arg(long, value_name = "N")]
    pub data_parallel: Option<u64>,
    /// Tokens of each prompt [default: 1024]
    #[arg(long, visible_alias = "context", value_name = "N")]
    pub input_tokens: Option<u64>,
    /// Tokens of each answer, at least 2 [default: 1024]
    #[arg(long, value_name = "N")]
    pub output_tokens: Option<u64>,
    /// Framework: vllm, sglang or trtllm [default: vllm]
    #[arg(long, value_name = "NAME")]
    pub framework: Option<String>,
}

impl ServerFlags {
    pub fn is_given(&self) -> bool {
        let texts = [&self.dtype, &self.kv_dtype, &self.framework];
        let counts =
            [self.tensor_parallel, self.expert_parallel, self.data_parallel, self.input_tokens, self.output_tokens];
        texts.iter().any(|text| text.is_some()) || counts.iter().any(Option::is_some)
    }

    pub fn server_question(&self, model: &str, device: Option<&str>, batch: i64) -> Result<ServerQuestion> {
        let model = Architecture::load_architecture(model)?;
        let device = device.ok_or_else(|| {
            Error::Query("a server needs a GPU: name one with --device; `oppredict devices` lists all".to_owned())
        })?;
        let device = device::find_device(device)?;
        let parallelism = Parallelism {
            tensor: self.tensor_parallel.unwrap_or(1),
            expert: self.expert_parallel.unwrap_or(1),
            data: self.data_parallel.unwrap_or(1),
        };
        parallelism.check_divisibility(&model)?;
        let pool = ReplicaPool { parallelism, replicas: 1 };
        let framework = match &self.framework {
            Some(name) => parse_choice("framework", name)?,
            None => Framework::Vllm,
        };
        let deployment = Deployment {
            formats: self.parse_formats(device)?,
            model,
            device,
            framework,
            version: String::new(),
            mode: ServingMode::Aggregated,
            prefill: pool,
            decode: pool,
        };
        let load = ServerLoad {
            concurrency: check_bound("--batch", u64::try_from(batch).unwrap_or(0), 1..=1 << 16)?,
            input_tokens: check_bound("--input-tokens", self.input_tokens.unwrap_or(INPUT_TOKENS), 1..=1 << 24)?,
            // Answers of one token have no time per token.
            output_tokens: check_bound("--output-tokens", self.output_tokens.unwrap_or(INPUT_TOKENS), 2..=1 << 24)?,
        };
        Ok(ServerQuestion { deployment, load })
    }

    fn parse_formats(&self, device: &GpuFacts) -> Result<Formats> {
        let weights = match &self.dtype {
            Some(name) => parse_choice("number format", name)?,
            None => Scheme::Bf16,
        };
        device.peak_flops(weights.product_dtype())?;
        let cache = match &self.kv_dtype {
            Some(name) => parse_choice("number format of a cache", name)?,
            None if weights.product_dtype() == Dtype::Bf16 => Dtype::Bf16,
            None => Dtype::Fp8,
        };
        match cache {
            Dtype::Bf16 | Dtype::Fp8 => Ok(Formats { weights, cache }),
            other => Err(Error::Query(format!("the cache format {} is not supported; use bf16 or fp8", other.name()))),
        }
    }
}

fn check_bound(flag: &str, value: u64, allowed: RangeInclusive<u64>) -> Result<u64> {
    match allowed.contains(&value) {
        true => Ok(value),
        false => Err(Error::Query(format!("{flag} must be from {} to {}", allowed.start(), allowed.end()))),
    }
}
