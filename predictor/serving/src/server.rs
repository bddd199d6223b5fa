//! Servers of language models under load: time to first token, time per token, throughput, memory and power.

use crate::architecture::Architecture;
use crate::device::GpuFacts;
use crate::error::Result;
use crate::kernel::Kernel;
use crate::memory::{GpuMemory, Residents, memory};
use crate::overhead::{COVERAGES, NAMES, OverheadRatio, Overheads, SIZES, ServerFeatures};
use crate::pass_time::PassTime;
use crate::plan::{CallWork, Formats, ForwardPass, Parallelism, plan};
use crate::times::{KernelTimes, Roofline};
use models::Choice;
use serde::Serialize;
use std::sync::LazyLock;

/// Share of the prompts of all sequences that a new prompt waits for, before overheads are learned.
const WAITING_SHARE: f64 = 0.05;

models::choice! {
    /// A framework that serves language models.
    pub enum Framework {
        /// vLLM
        Vllm = "vllm",
        /// SGLang
        Sglang = "sglang",
        /// TensorRT-LLM
        TrtLlm = "trtllm" | "tensorrt-llm" | "trt-llm",
    }
}

models::choice! {
    /// Where prompts are computed.
    pub enum ServingMode {
        /// On the GPUs that also decode
        Aggregated = "aggregated" | "agg",
        /// On GPUs of their own
        Disaggregated = "disaggregated" | "disagg",
    }
}

/// Replicas of a model that do the same work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ReplicaPool {
    /// Division of one replica.
    pub parallelism: Parallelism,
    /// Replicas.
    pub replicas: u64,
}

impl ReplicaPool {
    /// Returns the GPUs of all replicas.
    pub fn devices(&self) -> u64 {
        self.parallelism.devices() * self.replicas
    }

    /// Returns the groups that attend to sequences of their own.
    fn groups(&self) -> f64 {
        (self.parallelism.data * self.replicas) as f64
    }
}

/// A model served on GPUs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Deployment {
    /// The model.
    pub model: Architecture,
    /// The GPU.
    pub device: &'static GpuFacts,
    /// Number formats.
    pub formats: Formats,
    /// The framework.
    pub framework: Framework,
    /// Version of the framework; empty for any.
    pub version: String,
    /// Where prompts are computed.
    pub mode: ServingMode,
    /// GPUs that compute prompts; with `Aggregated` those of `decode`.
    pub prefill: ReplicaPool,
    /// GPUs that compute the following tokens.
    pub decode: ReplicaPool,
}

/// Requests that a server answers at once; a new one arrives when one is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ServerLoad {
    /// Sequences at once.
    pub concurrency: u64,
    /// Tokens of each prompt.
    pub input_tokens: u64,
    /// Tokens of each answer.
    pub output_tokens: u64,
}

/// A time with its intervals.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Predicted {
    /// Seconds.
    pub seconds: f64,
    /// Lower end of the 90 % interval.
    pub low: f64,
    /// Upper end of the 90 % interval.
    pub high: f64,
    /// Origin of the time.
    pub source: ServerSource,
}

/// Origin of a server's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerSource {
    /// Kernels times the overhead of the framework, learned from whole servers.
    MeasuredServers,
    /// Kernels alone, without overheads.
    Kernels,
}

/// Power of a pass on one GPU.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PassPower {
    /// Mean watts over the kernels whose power is known.
    pub watts: f64,
    /// Share of the pass that these kernels take.
    pub known_share: f64,
}

/// Times, throughput and memory of a server under load.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ServerAnswer {
    /// Kernels of one prompt.
    pub prefill: PassTime,
    /// Kernels of one decoding step at the mean context.
    pub decode: PassTime,
    /// Time to the first token of a request under this load.
    pub first_token: Predicted,
    /// Time between the following tokens of a request under this load.
    pub per_token: Predicted,
    /// Seconds to the first token, then per token, of kernels alone, prompts of other requests included.
    pub kernel_seconds: [f64; 2],
    /// Tokens of answers per second and request.
    pub tokens_per_s_per_user: f64,
    /// Tokens of answers per second and GPU.
    pub tokens_per_s_per_gpu: f64,
    /// GPUs of the server.
    pub devices: u64,
    /// Memory of each GPU.
    pub memory: GpuMemory,
    /// Power of a decoding step on each GPU, where it is known.
    pub decode_power: Option<PassPower>,
    /// Similarity to the nearest measured server, from 0 to 1; None without overheads.
    pub similarity: Option<f64>,
}

/// The summed kernel times of a server under load, from which overheads are learned.
#[derive(Clone, Debug)]
pub struct ServerWork {
    /// One prompt on one replica.
    pub prefill: PassTime,
    /// One decoding step of one replica.
    pub decode: PassTime,
    /// Seconds to the first token, then per token, without overheads.
    pub seconds: [f64; 2],
}

impl Deployment {
    /// Returns the summed kernel times under a load.
    pub fn work(&self, load: &ServerLoad, times: &dyn KernelTimes) -> Result<ServerWork> {
        let prompt = ForwardPass::Prefill { sequences: 1, tokens: load.input_tokens };
        let prefill = self.pass(prompt, self.prefill.parallelism, times)?;
        let sequences = (load.concurrency as f64 / self.decode.groups()).round().max(1.0) as u64;
        let context = load.input_tokens + load.output_tokens / 2;
        let step = ForwardPass::Decode { sequences, context: context.max(1) };
        let decode = self.pass(step, self.decode.parallelism, times)?;
        // In a steady state every answer brings one prompt, which stops the decoding of the others.
        let stopped = match self.mode {
            ServingMode::Aggregated => prefill.seconds * prompts(&self.decode, load) / load.output_tokens as f64,
            ServingMode::Disaggregated => 0.0,
        };
        let waiting = WAITING_SHARE * prefill.seconds * prompts(&self.prefill, load);
        let seconds = [prefill.seconds + decode.seconds + waiting, decode.seconds + stopped];
        Ok(ServerWork { prefill, decode, seconds })
    }

    fn pass(&self, pass: ForwardPass, parallelism: Parallelism, times: &dyn KernelTimes) -> Result<PassTime> {
        PassTime::estimate(plan(&self.model, pass, self.formats, parallelism)?, self.device, times)
    }

    /// Returns what overheads are learned from.
    pub fn features(&self, load: &ServerLoad, work: &ServerWork) -> ServerFeatures {
        let (prefill, decode) = (&self.prefill, &self.decode);
        let stopping = prefill_to_decode(work, load);
        let counts = [
            load.concurrency,
            load.input_tokens,
            load.output_tokens,
            decode.parallelism.devices(),
            prefill.parallelism.devices(),
            decode.parallelism.expert,
            prefill.parallelism.expert,
            decode.parallelism.data,
            prefill.parallelism.data,
            decode.replicas,
            prefill.replicas,
        ];
        let mut sizes = counts.map(|count| (count as f64).ln()).to_vec();
        sizes.extend([work.decode.seconds.ln(), work.prefill.seconds.ln(), stopping.ln()]);
        sizes.extend(shares(&work.decode));
        sizes.extend(shares(&work.prefill));
        let sizes: [f64; SIZES] = sizes.try_into().expect("as many sizes as overheads are learned from");
        let Deployment { model, device, formats, framework, version, mode, .. } = self;
        let names: [String; NAMES] = [
            model.kind().to_owned(),
            model.name.clone(),
            device.system.clone(),
            formats.weights.products().name().to_owned(),
            mode.name().to_owned(),
            framework.name().to_owned(),
            version.clone(),
        ];
        ServerFeatures { sizes, names }
    }

    /// Predicts times, throughput and memory under a load.
    pub fn predict(
        &self,
        load: &ServerLoad,
        times: &dyn KernelTimes,
        overheads: Option<&Overheads>,
    ) -> Result<ServerAnswer> {
        let work = self.work(load, times)?;
        // Overheads are ratios to the roofline, so that they stay valid when other times of kernels are learned.
        let bound = self.work(load, &Roofline)?;
        let ratios = overheads.map(|overheads| overheads.ratios(&self.features(load, &bound)));
        let predicted = |target: usize| match &ratios {
            Some(ratios) => served(bound.seconds[target], &ratios[target]),
            None => {
                let (low, high) = pass_interval(&work);
                let seconds = work.seconds[target];
                Predicted { seconds, low: low * seconds, high: high * seconds, source: ServerSource::Kernels }
            }
        };
        let (first_token, per_token) = (predicted(0), predicted(1));
        let answer_s = first_token.seconds + (load.output_tokens - 1) as f64 * per_token.seconds;
        let devices = self.devices();
        let tokens = (load.concurrency * load.output_tokens) as f64;
        Ok(ServerAnswer {
            kernel_seconds: work.seconds,
            tokens_per_s_per_user: 1.0 / per_token.seconds,
            tokens_per_s_per_gpu: tokens / answer_s / devices as f64,
            devices,
            memory: self.memory(load),
            decode_power: power(&work.decode, self.device, times),
            similarity: ratios.map(|[ratio, _]| ratio.similarity),
            prefill: work.prefill,
            decode: work.decode,
            first_token,
            per_token,
        })
    }

    /// Returns the GPUs of the server.
    pub fn devices(&self) -> u64 {
        match self.mode {
            ServingMode::Aggregated => self.decode.devices(),
            ServingMode::Disaggregated => self.prefill.devices() + self.decode.devices(),
        }
    }

    /// Returns the memory of a GPU that decodes.
    pub fn memory(&self, load: &ServerLoad) -> GpuMemory {
        let sequences = load.concurrency.div_ceil(self.decode.replicas);
        let residents = Residents { sequences, tokens: load.input_tokens + load.output_tokens };
        memory(&self.model, self.formats, self.decode.parallelism, residents, self.device)
    }
}

/// Returns the overheads that came with the program, which `oppredict train --servers` learned from public tables.
pub fn shipped_overheads() -> &'static Overheads {
    static SHIPPED: LazyLock<Overheads> = LazyLock::new(|| {
        let text = include_str!("../../../datasets/published/servers.json");
        Overheads::from_json(text).expect("the file that `oppredict train --servers` wrote")
    });
    &SHIPPED
}

/// The prompts of all sequences that one group of a pool computes.
fn prompts(pool: &ReplicaPool, load: &ServerLoad) -> f64 {
    load.concurrency as f64 / pool.groups()
}

/// Time of prompts over the time of decoding, were each answer to bring one prompt to the same GPU.
fn prefill_to_decode(work: &ServerWork, load: &ServerLoad) -> f64 {
    work.prefill.seconds * load.concurrency as f64 / load.output_tokens as f64 / work.decode.seconds
}

/// Shares of matrix products, attention, experts and transfers.
fn shares(pass: &PassTime) -> [f64; 4] {
    [
        pass.share(|call| matches!(call.work, CallWork::Kernel(Kernel::Gemm(_)))),
        pass.share(|call| {
            matches!(call.work, CallWork::Kernel(Kernel::Prefill(_) | Kernel::Decode(_)))
                || matches!(call.work, CallWork::Bounded { .. }) && call.role.ends_with("attention")
        }),
        pass.share(|call| matches!(call.work, CallWork::Kernel(Kernel::Experts(_)))),
        pass.share(|call| matches!(call.work, CallWork::Collective(_))),
    ]
}

fn served(seconds: f64, ratio: &OverheadRatio) -> Predicted {
    let ninety = COVERAGES.iter().position(|coverage| *coverage == 90).expect("one of the coverages");
    let (seconds, factor) = (seconds * ratio.log.exp(), ratio.half_widths[ninety].exp());
    Predicted { seconds, low: seconds / factor, high: seconds * factor, source: ServerSource::MeasuredServers }
}

/// Relative ends of the interval of the kernels of both passes.
fn pass_interval(work: &ServerWork) -> (f64, f64) {
    let relative = |pass: &PassTime| (pass.low / pass.seconds, pass.high / pass.seconds);
    let (prefill, decode) = (relative(&work.prefill), relative(&work.decode));
    (prefill.0.min(decode.0), prefill.1.max(decode.1))
}

/// Mean power over the kernels of a pass whose power is known.
fn power(pass: &PassTime, device: &GpuFacts, times: &dyn KernelTimes) -> Option<PassPower> {
    let (mut joules, mut seconds) = (0.0, 0.0);
    for call in &pass.calls {
        if let CallWork::Kernel(kernel) = &call.call.work
            && let Some(watts) = times.watts(kernel, device)
        {
            joules += watts * call.seconds;
            seconds += call.seconds;
        }
    }
    (seconds > 0.0).then(|| PassPower { watts: joules / seconds, known_share: seconds / pass.seconds })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::find;
    use crate::scheme::{Dtype, Scheme};
    use crate::times::Roofline;

    fn llama_70b(tensor: u64) -> Deployment {
        let pool = ReplicaPool { parallelism: Parallelism { tensor, ..Parallelism::SINGLE }, replicas: 1 };
        Deployment {
            model: Architecture::load("llama-3.1-70b").expect("a shipped model"),
            device: find("h100_sxm").expect("a known device"),
            formats: Formats { weights: Scheme::Fp8, cache: Dtype::Fp8 },
            framework: Framework::Vllm,
            version: String::new(),
            mode: ServingMode::Aggregated,
            prefill: pool,
            decode: pool,
        }
    }

    #[test]
    fn times_follow_load_and_division() {
        let load = |concurrency| ServerLoad { concurrency, input_tokens: 4096, output_tokens: 1024 };
        let answer =
            |tensor, concurrency| llama_70b(tensor).predict(&load(concurrency), &Roofline, None).expect("an answer");
        let (one, many) = (answer(4, 1), answer(4, 64));
        assert!(many.per_token.seconds > one.per_token.seconds);
        assert!(many.first_token.seconds > one.first_token.seconds);
        assert!(many.tokens_per_s_per_gpu > 10.0 * one.tokens_per_s_per_gpu);
        assert!(answer(8, 64).per_token.seconds < many.per_token.seconds);
        assert_eq!((one.devices, one.decode_power), (4, None));
        assert!(one.memory.fits() && one.per_token.source == ServerSource::Kernels);
    }

    #[test]
    fn a_server_has_all_sizes_of_overheads() {
        let server = llama_70b(2);
        let load = ServerLoad { concurrency: 8, input_tokens: 100, output_tokens: 10 };
        let work = server.work(&load, &Roofline).expect("times");
        let features = server.features(&load, &work);
        assert!(features.sizes.iter().all(|size| size.is_finite()));
        assert_eq!(features.names[..3], ["dense", "llama-3.1-70b", "h100_sxm"]);
    }

    #[test]
    fn prompts_on_gpus_of_their_own_do_not_stop_decoding() {
        let load = ServerLoad { concurrency: 32, input_tokens: 8192, output_tokens: 128 };
        let together = llama_70b(4);
        let apart = Deployment { mode: ServingMode::Disaggregated, ..together.clone() };
        let seconds =
            |server: &Deployment| server.predict(&load, &Roofline, None).expect("an answer").per_token.seconds;
        assert!(seconds(&apart) < seconds(&together));
        assert_eq!((together.devices(), apart.devices()), (4, 8));
    }
}
