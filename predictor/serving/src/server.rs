//! Servers of language models under load: time to first token, time per token, throughput, memory and power.

use crate::architecture::Architecture;
use crate::calibration::DEFAULT_LEVEL;
use crate::device::GpuFacts;
use crate::error::Result;
use crate::kernel::Kernel;
use crate::memory::{GpuMemory, Residents, replica_memory};
use crate::overhead::{NAMES, OverheadRatio, Overheads, SIZES, ServerFeatures, TARGETS};
use crate::pass_time::PassTime;
use crate::plan::{CallWork, Formats, ForwardPass, Parallelism, plan_partial_pass};
use crate::times::{KernelTimes, Roofline};
use models::Choice;
use serde::Serialize;
use std::sync::LazyLock;

/// Share of its attention group's prompts that a new prompt waits for; used without learned overheads.
const WAITING_SHARE: f64 = 0.05;
/// Number of tokens below which the times of prompts are derived from those of this length. No measured server has shorter
/// ones.
const LEAST_PROMPT: u64 = 128;
/// Number of output tokens of most measured servers.
const USUAL_OUTPUT: u64 = 1024;

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
        /// On separate GPUs
        Disaggregated = "disaggregated" | "disagg",
    }
}

/// Replicas that perform the same phase (prefill or decoding).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ReplicaPool {
    pub parallelism: Parallelism,
    pub replicas: u64,
}

impl ReplicaPool {
    pub fn device_count(&self) -> u64 {
        self.parallelism.device_count() * self.replicas
    }

    fn group_count(&self) -> f64 {
        (self.parallelism.data * self.replicas) as f64
    }

    /// Returns the number of attention groups of a replica that have requests.
    pub(crate) fn busy_groups(&self, load: &ServerLoad) -> u64 {
        load.concurrency.div_ceil(self.replicas).clamp(1, self.parallelism.data)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Deployment {
    pub model: Architecture,
    pub device: &'static GpuFacts,
    pub formats: Formats,
    pub framework: Framework,
    /// Version of the framework; empty for any version.
    pub version: String,
    pub mode: ServingMode,
    /// GPUs that compute prompts; equal to `decode` in mode `Aggregated`.
    pub prefill: ReplicaPool,
    pub decode: ReplicaPool,
}

/// Load of a server in a closed loop: a new request arrives as soon as one completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ServerLoad {
    pub concurrency: u64,
    pub input_tokens: u64,
    pub output_tokens: u64,
}

/// A predicted time with its 90 % interval.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Predicted {
    pub seconds: f64,
    pub low: f64,
    pub high: f64,
    pub source: ServerSource,
}

impl Predicted {
    /// Raises the time by `seconds`, and both ends of the interval in proportion.
    fn raise(&mut self, seconds: f64) {
        let factor = 1.0 + seconds / self.seconds;
        for time in [&mut self.seconds, &mut self.low, &mut self.high] {
            *time *= factor;
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerSource {
    /// Kernel times, multiplied by learned framework overheads.
    MeasuredServers,
    Kernels,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PassPower {
    pub watts: f64,
    /// Share of the pass's time in kernels whose power is known.
    pub known_share: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ServerAnswer {
    pub prefill: PassTime,
    /// Kernel times of one decoding step at the mean context length.
    pub decode: PassTime,
    pub first_token: Predicted,
    pub per_token: Predicted,
    /// Time to first token and time per token from kernel times alone, including the prompts of other requests. The
    /// time to first token also contains one decoding step.
    pub kernel_seconds: [f64; 2],
    pub tokens_per_s_per_user: f64,
    /// Output tokens per second of all requests, divided by the number of GPUs.
    pub tokens_per_s_per_gpu: f64,
    pub devices: u64,
    pub memory: GpuMemory,
    /// Power of one GPU in a decoding step, if known.
    pub decode_power: Option<PassPower>,
    /// Similarity to the nearest measured server, from 0 to 1; None without overheads.
    pub similarity: Option<f64>,
}

#[derive(Clone, Debug)]
pub struct ServerWork {
    pub prefill: PassTime,
    pub decode: PassTime,
    /// Time to first token and time per token in seconds, without framework overheads.
    pub seconds: [f64; 2],
}

impl Deployment {
    pub fn server_work(&self, load: &ServerLoad, times: &dyn KernelTimes) -> Result<ServerWork> {
        let prompt = ForwardPass::Prefill { sequences: 1, tokens: load.input_tokens };
        let prefill = self.time_pass(prompt, &self.prefill, load, times)?;
        let sequences = (load.concurrency as f64 / self.decode.group_count()).round().max(1.0) as u64;
        let context = load.input_tokens + load.output_tokens / 2;
        let step = ForwardPass::Decode { sequences, context: context.max(1) };
        let decode = self.time_pass(step, &self.decode, load, times)?;
        // In the steady state, a new prompt replaces each completed request, and its prefill stalls the other requests.
        let stopped = match self.mode {
            ServingMode::Aggregated => prefill.seconds * other_prompts(&self.decode, load) / load.output_tokens as f64,
            ServingMode::Disaggregated => 0.0,
        };
        let waiting = WAITING_SHARE * prefill.seconds * other_prompts(&self.prefill, load);
        let seconds = [prefill.seconds + decode.seconds + waiting, decode.seconds + stopped];
        Ok(ServerWork { prefill, decode, seconds })
    }

    fn time_pass(
        &self,
        pass: ForwardPass,
        pool: &ReplicaPool,
        load: &ServerLoad,
        times: &dyn KernelTimes,
    ) -> Result<PassTime> {
        let busy = pool.busy_groups(load);
        let calls = plan_partial_pass(&self.model, pass, self.formats, pool.parallelism, busy)?;
        PassTime::from_calls(calls, self.device, times)
    }

    pub fn server_features(&self, load: &ServerLoad, work: &ServerWork) -> ServerFeatures {
        let (prefill, decode) = (&self.prefill, &self.decode);
        let stopping = prefill_to_decode(work, load);
        let counts = [
            load.concurrency,
            load.input_tokens,
            load.output_tokens,
            decode.parallelism.device_count(),
            prefill.parallelism.device_count(),
            decode.parallelism.expert,
            prefill.parallelism.expert,
            decode.parallelism.data,
            prefill.parallelism.data,
            decode.replicas,
            prefill.replicas,
        ];
        let mut sizes = counts.map(|count| (count as f64).ln()).to_vec();
        sizes.extend([work.decode.seconds.ln(), work.prefill.seconds.ln(), stopping.ln()]);
        sizes.extend(time_shares(&work.decode));
        sizes.extend(time_shares(&work.prefill));
        let sizes: [f64; SIZES] = sizes.try_into().expect("one value per size feature");
        let Deployment { model, device, formats, framework, version, mode, .. } = self;
        let names: [String; NAMES] = [
            model.network_kind().to_owned(),
            model.measured_name().to_owned(),
            device.system.clone(),
            formats.weights.product_dtype().name().to_owned(),
            mode.name().to_owned(),
            framework.name().to_owned(),
            version.clone(),
        ];
        ServerFeatures { sizes, names }
    }

    pub fn predict_server(
        &self,
        load: &ServerLoad,
        times: &dyn KernelTimes,
        overheads: Option<&Overheads>,
    ) -> Result<ServerAnswer> {
        let work = self.server_work(load, times)?;
        // Overheads are ratios to the roofline, so that they stay valid if kernel times are trained again.
        let bound = self.server_work(load, &Roofline)?;
        let least = self.least_seconds(load)?;
        let ratios = overheads.map(|overheads| self.overhead_ratios(load, (&bound, least), overheads)).transpose()?;
        let predicted = |target: usize| match &ratios {
            Some(ratios) => apply_overhead(bound.seconds[target], &ratios[target], least[target]),
            None => {
                let (low, high) = pass_interval(&work);
                let seconds = work.seconds[target];
                Predicted { seconds, low: low * seconds, high: high * seconds, source: ServerSource::Kernels }
            }
        };
        let (mut first_token, mut per_token) = (predicted(0), predicted(1));
        let later_tokens = (load.output_tokens - 1) as f64;
        let missing = self.least_answer_seconds(load)? - first_token.seconds - later_tokens * per_token.seconds;
        if missing > 0.0 {
            // The prompts of other requests stop the later tokens of an answer, if there are any.
            match later_tokens > 0.0 {
                true => per_token.raise(missing / later_tokens),
                false => first_token.raise(missing),
            }
        }
        let answer_s = first_token.seconds + later_tokens * per_token.seconds;
        let devices = self.device_count();
        let tokens = (load.concurrency * load.output_tokens) as f64;
        Ok(ServerAnswer {
            kernel_seconds: work.seconds,
            tokens_per_s_per_user: 1.0 / per_token.seconds,
            tokens_per_s_per_gpu: tokens / answer_s / devices as f64,
            devices,
            memory: self.decode_memory(load),
            decode_power: pass_power(&work.decode, self.device, times),
            similarity: ratios.map(|[ratio, _]| ratio.similarity),
            prefill: work.prefill,
            decode: work.decode,
            first_token,
            per_token,
        })
    }

    /// Returns the ratios of the times of a load to its roofline `bound`; `least` are its `least_seconds`.
    ///
    /// A prompt takes at least the time of one of half its length and the additional work of one request: far from
    /// measured servers, ratios tend to their mean, which may lower a time by more than the work raises the roofline.
    pub fn overhead_ratios(
        &self,
        load: &ServerLoad,
        (bound, least): (&ServerWork, [f64; TARGETS]),
        overheads: &Overheads,
    ) -> Result<[OverheadRatio; TARGETS]> {
        if load.input_tokens < LEAST_PROMPT {
            let longer = ServerLoad { input_tokens: LEAST_PROMPT, ..*load };
            let (work, least_of_longer) = (self.server_work(&longer, &Roofline)?, self.least_seconds(&longer)?);
            let mut ratios = self.overhead_ratios(&longer, (&work, least_of_longer), overheads)?;
            for (target, ratio) in ratios.iter_mut().enumerate() {
                let longer = (work.seconds[target] * ratio.log.exp()).max(least_of_longer[target]);
                let seconds = longer - (least_of_longer[target] - least[target]);
                ratio.log = (seconds / bound.seconds[target]).ln();
            }
            return Ok(ratios);
        }
        let mut ratios = overheads.predict_ratios(&self.server_features(load, bound));
        self.raise_by_shorter_prompts(load, (bound, least), overheads, &mut ratios)?;
        // The first token of a single request depends on no output, and that of several takes at least as long. Other
        // numbers of outputs may be far from measured servers.
        if load.concurrency > 1 || load.output_tokens != USUAL_OUTPUT {
            let single = ServerLoad { concurrency: 1, output_tokens: USUAL_OUTPUT, ..*load };
            let (work, least_of_single) = (self.server_work(&single, &Roofline)?, self.least_seconds(&single)?);
            let [of_single, _] = self.overhead_ratios(&single, (&work, least_of_single), overheads)?;
            let log = (work.seconds[0] * of_single.log.exp() / bound.seconds[0]).ln();
            if load.concurrency == 1 || log > ratios[0].log {
                ratios[0] = OverheadRatio { log, ..of_single };
            }
        }
        Ok(ratios)
    }

    fn raise_by_shorter_prompts(
        &self,
        load: &ServerLoad,
        (bound, least): (&ServerWork, [f64; TARGETS]),
        overheads: &Overheads,
        ratios: &mut [OverheadRatio; TARGETS],
    ) -> Result<()> {
        let mut shorter = *load;
        while shorter.input_tokens >= 2 * LEAST_PROMPT {
            shorter.input_tokens /= 2;
            let work = self.server_work(&shorter, &Roofline)?;
            let of_shorter = overheads.predict_ratios(&self.server_features(&shorter, &work));
            let least_of_shorter = self.least_seconds(&shorter)?;
            for (target, ratio) in ratios.iter_mut().enumerate() {
                let added = least[target] - least_of_shorter[target];
                let seconds = work.seconds[target] * of_shorter[target].log.exp() + added;
                ratio.log = ratio.log.max((seconds / bound.seconds[target]).ln());
            }
        }
        Ok(())
    }

    /// Returns the time to first token and per token below which no load can be served: the roofline of one request.
    ///
    /// The roofline of the whole load is none: requests wait for each other, so that fewer are processed at once.
    pub fn least_seconds(&self, load: &ServerLoad) -> Result<[f64; TARGETS]> {
        Ok(self.server_work(&ServerLoad { concurrency: 1, ..*load }, &Roofline)?.seconds)
    }

    /// Returns the time in which one request is answered, from its start to its last token, below which no load can be
    /// served: the roofline of the prompts that are computed meanwhile, one of each request, all in one pass.
    pub fn least_answer_seconds(&self, load: &ServerLoad) -> Result<f64> {
        let sequences = (load.concurrency as f64 / self.prefill.group_count()).floor().max(1.0) as u64;
        let prompts = ForwardPass::Prefill { sequences, tokens: load.input_tokens };
        Ok(self.time_pass(prompts, &self.prefill, load, &Roofline)?.seconds)
    }

    pub fn device_count(&self) -> u64 {
        match self.mode {
            ServingMode::Aggregated => self.decode.device_count(),
            ServingMode::Disaggregated => self.prefill.device_count() + self.decode.device_count(),
        }
    }

    pub fn decode_memory(&self, load: &ServerLoad) -> GpuMemory {
        let sequences = load.concurrency.div_ceil(self.decode.replicas);
        let residents = Residents { sequences, tokens: load.input_tokens + load.output_tokens };
        replica_memory(&self.model, self.formats, self.decode.parallelism, residents, self.device)
    }
}

/// Returns the shipped overheads, which `oppredict train --servers` learned from public tables.
pub fn shipped_overheads() -> &'static Overheads {
    static SHIPPED: LazyLock<Overheads> = LazyLock::new(|| {
        let text = include_str!("../../../datasets/published/servers.json");
        Overheads::from_json(text).expect("the file that `oppredict train --servers` wrote")
    });
    &SHIPPED
}

/// Returns the prompts of other requests that an attention group computes while it answers one request.
fn other_prompts(pool: &ReplicaPool, load: &ServerLoad) -> f64 {
    (load.concurrency as f64 / pool.group_count() - 1.0).max(0.0)
}

fn prefill_to_decode(work: &ServerWork, load: &ServerLoad) -> f64 {
    work.prefill.seconds * load.concurrency as f64 / load.output_tokens as f64 / work.decode.seconds
}

/// Returns the shares of a pass's time in matrix products, attention, experts and transfers.
fn time_shares(pass: &PassTime) -> [f64; 4] {
    [
        pass.share_of(|call| matches!(call.work, CallWork::Kernel(Kernel::Gemm(_)))),
        pass.share_of(|call| {
            matches!(call.work, CallWork::Kernel(Kernel::Prefill(_) | Kernel::Decode(_)))
                || matches!(call.work, CallWork::Bounded { .. }) && call.role.ends_with("attention")
        }),
        pass.share_of(|call| matches!(call.work, CallWork::Kernel(Kernel::Experts(_)))),
        pass.share_of(|call| matches!(call.work, CallWork::Collective(_))),
    ]
}

fn apply_overhead(bound: f64, ratio: &OverheadRatio, least: f64) -> Predicted {
    let (seconds, factor) = (bound * ratio.log.exp(), ratio.half_widths[DEFAULT_LEVEL].exp());
    let [seconds, low, high] = [seconds, seconds / factor, seconds * factor].map(|seconds| seconds.max(least));
    Predicted { seconds, low, high, source: ServerSource::MeasuredServers }
}

/// Returns the interval ends relative to the predicted time, each from the pass with the wider end.
fn pass_interval(work: &ServerWork) -> (f64, f64) {
    let relative = |pass: &PassTime| (pass.low / pass.seconds, pass.high / pass.seconds);
    let (prefill, decode) = (relative(&work.prefill), relative(&work.decode));
    (prefill.0.min(decode.0), prefill.1.max(decode.1))
}

/// Returns the mean power of a pass; None if it is known for less than half of the time, because the rest may differ.
fn pass_power(pass: &PassTime, device: &GpuFacts, times: &dyn KernelTimes) -> Option<PassPower> {
    let (mut joules, mut seconds) = (0.0, 0.0);
    for call in &pass.calls {
        if let CallWork::Kernel(kernel) = &call.call.work
            && let Some(watts) = times.kernel_watts(kernel, device)
        {
            joules += watts * call.seconds;
            seconds += call.seconds;
        }
    }
    (2.0 * seconds >= pass.seconds).then(|| PassPower { watts: joules / seconds, known_share: seconds / pass.seconds })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::find_device;
    use crate::scheme::{Dtype, Scheme};
    use crate::times::Roofline;
    use crate::warnings::WarningCause;

    fn llama_70b(tensor: u64) -> Deployment {
        let pool = ReplicaPool { parallelism: Parallelism { tensor, ..Parallelism::SINGLE }, replicas: 1 };
        Deployment {
            model: Architecture::load_architecture("llama-3.1-70b").expect("a shipped model"),
            device: find_device("h100_sxm").expect("a known device"),
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
        let answer = |tensor, concurrency| {
            llama_70b(tensor).predict_server(&load(concurrency), &Roofline, None).expect("an answer")
        };
        let (one, many) = (answer(4, 1), answer(4, 64));
        assert!(many.per_token.seconds > one.per_token.seconds);
        assert!(many.first_token.seconds > one.first_token.seconds);
        assert!(many.tokens_per_s_per_gpu > 10.0 * one.tokens_per_s_per_gpu);
        assert!(answer(8, 64).per_token.seconds < many.per_token.seconds);
        assert_eq!((one.devices, one.decode_power), (4, None));
        assert!(one.memory.is_sufficient() && one.per_token.source == ServerSource::Kernels);
    }

    #[test]
    fn no_interval_ends_below_the_roofline_of_one_request() {
        let load = ServerLoad { concurrency: 1, input_tokens: 16_384, output_tokens: 256 };
        for device in ["l4", "l40s", "h100_sxm"].map(|name| find_device(name).expect("a known device")) {
            let model = Architecture::load_architecture("llama-3.1-8b").expect("a shipped model");
            let formats = Formats { weights: Scheme::Bf16, cache: Dtype::Bf16 };
            let server = Deployment { device, model, formats, ..llama_70b(1) };
            let answer = server.predict_server(&load, &Roofline, Some(shipped_overheads())).expect("an answer");
            // Each step reads all products' weights and the cache once.
            let read = 7.5e9 * 2.0 + answer.memory.cache_bytes * 0.98;
            assert!(
                answer.per_token.low >= read / device.bandwidth_bytes_per_s,
                "{}: {:?}",
                device.name,
                answer.per_token
            );
            assert!(answer.per_token.low <= answer.per_token.seconds && answer.per_token.high > answer.per_token.low);
        }
    }

    #[test]
    fn times_grow_with_the_prompt() {
        let pool = ReplicaPool { parallelism: Parallelism { tensor: 8, ..Parallelism::SINGLE }, replicas: 1 };
        for (model, device) in [("minimax-m2.5", "b200_sxm"), ("deepseek-v3", "gb200"), ("qwen3-32b", "h200_sxm")] {
            let device = find_device(device).expect("a known device");
            let model = Architecture::load_architecture(model).expect("a shipped model");
            let server = Deployment { device, model, prefill: pool, decode: pool, ..llama_70b(8) };
            let seconds = |input_tokens: u64| {
                let load = ServerLoad { concurrency: 1, input_tokens, output_tokens: 256 };
                let answer = server.predict_server(&load, &Roofline, Some(shipped_overheads())).expect("an answer");
                [answer.first_token.seconds, answer.per_token.seconds]
            };
            let times: Vec<[f64; TARGETS]> = (0..18).map(|power| seconds(1 << power)).collect();
            assert!(times.is_sorted_by(|one, next| one[0] <= next[0] && one[1] <= next[1]), "{device:?}: {times:?}");
        }
    }

    /// Prompts of 4,000 tokens take most of the time of answers of two tokens, far from every measured server.
    #[test]
    fn no_server_computes_prompts_above_the_peak_rate() {
        let device = find_device("h200_sxm").expect("a known device");
        let model = Architecture::load_architecture("llama-3.1-8b").expect("a shipped model");
        let formats = Formats { weights: Scheme::Bf16, cache: Dtype::Bf16 };
        let server = Deployment { device, model, formats, ..llama_70b(1) };
        for (output_tokens, overheads) in
            [(1, None), (2, None), (1, Some(shipped_overheads())), (2, Some(shipped_overheads()))]
        {
            let load = ServerLoad { concurrency: 128, input_tokens: 4000, output_tokens };
            let answer = server.predict_server(&load, &Roofline, overheads).expect("an answer");
            let later = (output_tokens - 1) as f64 * answer.per_token.seconds;
            let flops_per_s = 128.0 * 2.0 * 6.98e9 * 4000.0 / (answer.first_token.seconds + later);
            assert!(flops_per_s <= device.bf16_flops, "{output_tokens}: {answer:?}");
            for time in [&answer.first_token, &answer.per_token] {
                assert!(time.low <= time.seconds && time.seconds <= time.high, "{time:?}");
            }
        }
    }

    #[test]
    fn no_load_has_a_faster_first_token_than_a_single_request() {
        let device = find_device("b200_sxm").expect("a known device");
        let formats = Formats { weights: Scheme::Nvfp4, cache: Dtype::Fp8 };
        let server = Deployment { device, formats, framework: Framework::TrtLlm, ..llama_70b(2) };
        for output_tokens in [16, 200, 4000, 16_000] {
            let first = |concurrency| {
                let load = ServerLoad { concurrency, input_tokens: 256, output_tokens };
                let answer = server.predict_server(&load, &Roofline, Some(shipped_overheads())).expect("an answer");
                answer.first_token.seconds
            };
            let single = first(1);
            for concurrency in [2, 3, 4, 16] {
                assert!(
                    first(concurrency) >= single * 0.999_999,
                    "{output_tokens}, {concurrency}: {}",
                    first(concurrency)
                );
            }
        }
    }

    #[test]
    fn the_first_token_of_a_single_request_depends_on_no_output() {
        let first = |concurrency, input_tokens, output_tokens| {
            let load = ServerLoad { concurrency, input_tokens, output_tokens };
            let answer = llama_70b(4).predict_server(&load, &Roofline, Some(shipped_overheads())).expect("an answer");
            answer.first_token
        };
        for input_tokens in [64, 1024, 4096] {
            let usual = first(1, input_tokens, USUAL_OUTPUT);
            for output_tokens in [1, 16, 256, 8192] {
                let other = first(1, input_tokens, output_tokens);
                assert!((other.seconds / usual.seconds - 1.0).abs() < 0.01, "{other:?} {usual:?}");
                assert!((other.high / usual.high - 1.0).abs() < 0.01, "{other:?} {usual:?}");
            }
        }
    }

    #[test]
    fn a_single_request_waits_for_no_other() {
        let load = |concurrency| ServerLoad { concurrency, input_tokens: 16_384, output_tokens: 16 };
        let work = |concurrency| llama_70b(4).server_work(&load(concurrency), &Roofline).expect("times");
        let one = work(1);
        assert_eq!(one.seconds, [one.prefill.seconds + one.decode.seconds, one.decode.seconds]);
        let two = work(2);
        assert!((two.seconds[1] - two.decode.seconds - two.prefill.seconds / 16.0).abs() < 1e-9);
    }

    #[test]
    fn a_server_has_all_sizes_of_overheads() {
        let server = llama_70b(2);
        let load = ServerLoad { concurrency: 8, input_tokens: 100, output_tokens: 10 };
        let work = server.server_work(&load, &Roofline).expect("times");
        let features = server.server_features(&load, &work);
        assert!(features.sizes.iter().all(|size| size.is_finite()));
        assert_eq!(features.names[..3], ["dense", "llama-3.1-70b", "h100_sxm"]);
    }

    #[test]
    fn groups_without_requests_have_no_tokens() {
        let server = |groups: u64| {
            let parallelism = Parallelism { tensor: 1, expert: groups, data: groups };
            let pool = ReplicaPool { parallelism, replicas: 1 };
            let model = Architecture::load_architecture("deepseek-v3").expect("a shipped model");
            Deployment { model, prefill: pool, decode: pool, ..llama_70b(1) }
        };
        let load = |concurrency| ServerLoad { concurrency, input_tokens: 1024, output_tokens: 1024 };
        let tokens = |pass: &PassTime| {
            let experts = pass.calls.iter().find_map(|call| match &call.call.work {
                CallWork::Kernel(Kernel::Experts(experts)) => Some(experts.tokens),
                _ => None,
            });
            experts.expect("experts")
        };
        for (groups, requests, prompts, sequences) in
            [(8, 1, 1, 1), (8, 5, 5, 5), (8, 8, 8, 8), (8, 64, 8, 64), (64, 1, 1, 1), (1, 4, 1, 4)]
        {
            let work = server(groups).server_work(&load(requests), &Roofline).expect("times");
            assert_eq!((tokens(&work.prefill), tokens(&work.decode)), (1024 * prompts, sequences), "{groups}");
            let warnings = server(groups).model_warnings(&load(requests));
            let idle = warnings.iter().find(|warning| warning.cause == WarningCause::IdleGroups);
            assert_eq!(idle.is_some(), requests < groups, "{groups} {requests}: {warnings:?}");
        }
        // More GPUs do not slow down a single request as much as a prompt on each GPU would.
        let first = |groups| server(groups).server_work(&load(1), &Roofline).expect("times").seconds[0];
        assert!(first(256) < 2.0 * first(8), "{} {}", first(256), first(8));
        let text = server(8).model_warnings(&load(3)).pop().map(|warning| warning.text).unwrap_or_default();
        assert!(text.contains("work to only 3 of the 8 groups of data parallelism"), "{text}");
    }

    #[test]
    fn requests_are_shared_by_replicas() {
        let parallelism = Parallelism { tensor: 1, expert: 4, data: 4 };
        let pool = ReplicaPool { parallelism, replicas: 2 };
        let busy = |concurrency| pool.busy_groups(&ServerLoad { concurrency, input_tokens: 1, output_tokens: 1 });
        assert_eq!([1, 2, 3, 7, 8, 99].map(busy), [1, 1, 2, 4, 4, 4]);
    }

    #[test]
    fn prompts_on_gpus_of_their_own_do_not_stop_decoding() {
        let load = ServerLoad { concurrency: 32, input_tokens: 8192, output_tokens: 128 };
        let together = llama_70b(4);
        let apart = Deployment { mode: ServingMode::Disaggregated, ..together.clone() };
        let seconds =
            |server: &Deployment| server.predict_server(&load, &Roofline, None).expect("an answer").per_token.seconds;
        assert!(seconds(&apart) < seconds(&together));
        assert_eq!((together.device_count(), apart.device_count()), (4, 8));
    }
}
