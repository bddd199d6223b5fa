//! Forward passes of a language model, as kernel calls of one GPU of a replica.

use crate::architecture::{
    Architecture, Attention, AttentionGroup, ExpertLayers, GroupedAttention, LatentAttention, LayerInputs,
    LinearAttention, SparseIndex, Streams,
};
use crate::collectives::Collective;
use crate::error::{Error, Result};
use crate::kernel::{Decode, Distribution, Experts, GATED_MATRICES, Gemm, Kernel, Prefill};
use crate::scheme::{Dtype, Scheme};
use serde::Serialize;

/// Bytes per element of the residual stream.
const STREAM_BYTES: f64 = 2.0;
pub(crate) const STATE_BYTES: f64 = 4.0;
const MAX_DEVICES: u64 = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Parallelism {
    /// Number of GPUs among which each attention layer and each matrix is split.
    pub tensor: u64,
    /// Number of GPUs among which the experts are distributed; with 1, every expert is split among all GPUs.
    pub expert: u64,
    /// Number of groups of `tensor` GPUs, each with its own sequences and shared experts; all share the routed experts.
    pub data: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Formats {
    pub weights: Scheme,
    pub cache: Dtype,
}

/// A forward pass over the sequences of one attention group (the GPUs that share these sequences).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ForwardPass {
    Prefill { sequences: u64, tokens: u64 },
    Decode { sequences: u64, context: u64 },
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KernelCall {
    pub role: &'static str,
    pub count: u64,
    pub work: CallWork,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CallWork {
    Kernel(Kernel),
    /// A kernel without measured tables, for which only a roofline bound is known.
    Bounded {
        flops: f64,
        dtype: Dtype,
        bytes: f64,
    },
    Collective(Collective),
}

impl Parallelism {
    pub const SINGLE: Parallelism = Parallelism { tensor: 1, expert: 1, data: 1 };

    pub fn device_count(&self) -> u64 {
        self.tensor * self.data
    }

    pub fn expert_tensor(&self) -> u64 {
        self.device_count() / self.expert
    }

    /// Returns the number of a layer's experts on all GPUs. If expert parallelism does not divide `experts`, copies of
    /// some of them give each part the same number.
    pub fn placed_experts(&self, experts: u64) -> u64 {
        experts.next_multiple_of(self.expert)
    }

    pub fn check_divisibility(&self, model: &Architecture) -> Result<()> {
        let refused = |problem: String| Err(Error::Parallelism { model: model.name.clone(), problem });
        let Parallelism { tensor, expert, data } = *self;
        for (kind, count) in [("tensor", tensor), ("expert", expert), ("data", data)] {
            if count == 0 {
                return refused(format!("{kind} parallelism must be at least 1"));
            }
        }
        if tensor.saturating_mul(data) > MAX_DEVICES {
            return refused(format!(
                "a replica of {tensor} × {data} GPUs is not supported; use 1 to {MAX_DEVICES} GPUs"
            ));
        }
        let heads = model.query_heads();
        if !heads.is_multiple_of(tensor) {
            let fitting: Vec<String> =
                (1..=heads.min(64)).filter(|size| heads.is_multiple_of(*size)).map(|size| size.to_string()).collect();
            return refused(format!("{tensor} GPUs cannot divide {heads} heads; fitting: {}", fitting.join(", ")));
        }
        if let Attention::Grouped(attention) = model.attention {
            let misfits = |kv_heads: &u64| !kv_heads.is_multiple_of(tensor) && !tensor.is_multiple_of(*kv_heads);
            let full = attention.full_heads.map(|heads| heads.kv_heads);
            if let Some(kv_heads) = full.into_iter().chain([attention.kv_heads]).find(misfits) {
                return refused(format!("{tensor} GPUs cannot divide or share {kv_heads} key-value heads"));
            }
        }
        match model.experts {
            None if expert > 1 => {
                refused("a dense model has no experts to divide; leave expert parallelism at 1".to_owned())
            }
            Some(ExpertLayers { experts, .. }) if expert > experts => {
                refused(format!("expert parallelism {expert} is more than the {experts} experts of a layer"))
            }
            _ if !self.device_count().is_multiple_of(expert) => refused(format!(
                "expert parallelism {expert} does not divide the {} GPUs of a replica",
                self.device_count()
            )),
            _ => Ok(()),
        }
    }
}

impl ForwardPass {
    pub fn sequence_count(&self) -> u64 {
        match *self {
            ForwardPass::Prefill { sequences, .. } | ForwardPass::Decode { sequences, .. } => sequences,
        }
    }

    /// Returns the number of tokens that one attention group computes in the pass.
    pub fn token_count(&self) -> u64 {
        match *self {
            ForwardPass::Prefill { sequences, tokens } => sequences * tokens,
            ForwardPass::Decode { sequences, .. } => sequences,
        }
    }
}

/// Returns the kernel calls of a pass in which all attention groups have the same number of sequences.
pub fn plan_pass(
    model: &Architecture,
    pass: ForwardPass,
    formats: Formats,
    parallelism: Parallelism,
) -> Result<Vec<KernelCall>> {
    plan_partial_pass(model, pass, formats, parallelism, parallelism.data)
}

/// Returns the kernel calls of a pass in which only `busy_groups` of the attention groups have sequences, for a GPU of
/// such a group. The experts, which all groups share, have only the tokens of these groups.
pub fn plan_partial_pass(
    model: &Architecture,
    pass: ForwardPass,
    formats: Formats,
    parallelism: Parallelism,
    busy_groups: u64,
) -> Result<Vec<KernelCall>> {
    parallelism.check_divisibility(model)?;
    let busy_groups = busy_groups.clamp(1, parallelism.data);
    let mut planner = Planner { model, pass, formats, parallelism, busy_groups, calls: Vec::new() };
    match model.attention {
        Attention::Grouped(attention) => planner.grouped_attention(&attention),
        Attention::Latent(attention) => planner.latent_attention(&attention),
    }
    planner.feed_forward();
    planner.side_streams();
    planner.around_layers();
    Ok(planner.calls)
}

struct Planner<'a> {
    model: &'a Architecture,
    pass: ForwardPass,
    formats: Formats,
    parallelism: Parallelism,
    busy_groups: u64,
    calls: Vec<KernelCall>,
}

impl Planner<'_> {
    fn push_call(&mut self, role: &'static str, count: u64, work: CallWork) {
        match self.calls.iter_mut().find(|call| call.role == role && call.work == work) {
            Some(call) => call.count += count,
            None if count > 0 => self.calls.push(KernelCall { role, count, work }),
            None => {}
        }
    }

    /// Returns the number format of matrices outside of experts.
    fn linear_scheme(&self) -> Scheme {
        if self.model.quantises_experts_only { Scheme::Bf16 } else { self.formats.weights }
    }

    fn push_gemm(&mut self, role: &'static str, count: u64, n: u64, k: u64) {
        let (m, scheme) = (self.pass.token_count(), self.linear_scheme());
        self.push_call(role, count, CallWork::Kernel(Kernel::Gemm(Gemm { m, n: n.max(1), k: k.max(1), scheme })));
    }

    /// Adds a memory-bound kernel that reads and writes `numbers` elements in total.
    fn push_pointwise(&mut self, role: &'static str, count: u64, numbers: f64) {
        let bytes = STREAM_BYTES * numbers;
        self.push_call(role, count, CallWork::Bounded { flops: numbers, dtype: Dtype::Bf16, bytes });
    }

    fn grouped_attention(&mut self, attention: &GroupedAttention) {
        let tensor = self.parallelism.tensor;
        let (heads, hidden) = (attention.heads / tensor, self.model.hidden);
        let groups = attention.split_layers(self.model.layers);
        let groups = groups.map(|group| AttentionGroup { kv_heads: (group.kv_heads / tensor).max(1), ..group });
        for AttentionGroup { layers, kv_heads, head_dim, kv_projections, .. } in groups {
            let projected = heads * (1 + u64::from(attention.has_output_gate)) + kv_projections * kv_heads;
            let role = if kv_projections > 0 { "query, key, value" } else { "query" };
            self.push_gemm(role, layers, projected * head_dim, hidden);
            let numbers = 2.0 * (self.pass.token_count() * projected * head_dim) as f64;
            self.push_pointwise("positions, cache", layers, numbers);
        }
        for AttentionGroup { layers, window, kv_heads, head_dim, .. } in groups {
            let role = if window.is_some() { "attention, window" } else { "attention" };
            self.push_attention(role, layers, (heads, kv_heads, head_dim), window);
        }
        for AttentionGroup { layers, head_dim, .. } in groups {
            self.push_gemm("attention output", layers, hidden, heads * head_dim);
        }
        if let Some(linear) = attention.linear {
            self.linear_attention(&linear);
        }
    }

    fn push_attention(&mut self, role: &'static str, count: u64, sizes: (u64, u64, u64), window: Option<u64>) {
        let (heads, kv_heads, head_dim) = sizes;
        let (dtype, cache_dtype) = (Dtype::Bf16, self.formats.cache);
        let kernel = match self.pass {
            ForwardPass::Prefill { sequences: batch, tokens: new_tokens } => Kernel::Prefill(Prefill {
                batch,
                new_tokens,
                past: 0,
                heads,
                kv_heads,
                head_dim,
                window,
                dtype,
                cache_dtype,
            }),
            ForwardPass::Decode { sequences: batch, context } => {
                Kernel::Decode(Decode { batch, context, heads, kv_heads, head_dim, window, dtype, cache_dtype })
            }
        };
        self.push_call(role, count, CallWork::Kernel(kernel));
    }

    /// Adds the gated delta rule (linear attention), whose state is read and written once per pass and sequence.
    fn linear_attention(&mut self, linear: &LinearAttention) {
        let tensor = self.parallelism.tensor;
        let (keys, values) = (linear.key_heads * linear.key_dim, linear.value_heads * linear.value_dim);
        let projected = (2 * keys + 2 * values + 2 * linear.value_heads).div_ceil(tensor);
        self.push_gemm("linear attention input", linear.layers, projected, self.model.hidden);
        let tokens = self.pass.token_count() as f64;
        let state = (linear.value_heads * linear.key_dim * linear.value_dim).div_ceil(tensor) as f64;
        let bytes =
            2.0 * STATE_BYTES * state * self.pass.sequence_count() as f64 + STREAM_BYTES * tokens * projected as f64;
        let work = CallWork::Bounded { flops: 6.0 * tokens * state, dtype: Dtype::Bf16, bytes };
        self.push_call("linear attention", linear.layers, work);
        self.push_gemm("linear attention output", linear.layers, self.model.hidden, values.div_ceil(tensor));
    }

    /// Adds latent attention; in decoding, key and value projections are absorbed into query and output projections.
    fn latent_attention(&mut self, attention: &LatentAttention) {
        let LatentAttention { query_rank, kv_rank, nope_dim, rope_dim, value_dim, .. } = *attention;
        let (layers, hidden) = (self.model.layers, self.model.hidden);
        let heads = attention.heads / self.parallelism.tensor;
        self.push_gemm("latent down-projection", layers, query_rank.unwrap_or(0) + kv_rank + rope_dim, hidden);
        match query_rank {
            Some(rank) => self.push_gemm("query up-projection", layers, heads * (nope_dim + rope_dim), rank),
            None => self.push_gemm("query projection", layers, heads * (nope_dim + rope_dim), hidden),
        }
        if let Some(index) = &attention.index {
            self.sparse_index(index, query_rank.unwrap_or(hidden));
        }
        let (pairs, per_pair, keys) = match self.pass {
            ForwardPass::Decode { sequences, context } => {
                self.push_gemm("absorbed key projection", layers, heads * kv_rank, nope_dim);
                self.push_gemm("absorbed value projection", layers, heads * value_dim, kv_rank);
                let keys = attention.index.map_or(context, |index| context.min(index.most_keys)) as f64;
                let keys = keys * sequences as f64;
                (keys, 2 * kv_rank + rope_dim, keys)
            }
            ForwardPass::Prefill { sequences, tokens } => {
                self.push_gemm("key, value up-projection", layers, heads * (nope_dim + value_dim), kv_rank);
                let pairs = (sequences * tokens) as f64 * mean_keys(tokens, attention.index.as_ref());
                (pairs, nope_dim + rope_dim + value_dim, (sequences * tokens) as f64)
            }
        };
        let flops = 2.0 * pairs * (heads * per_pair) as f64;
        let queries = (self.pass.token_count() * heads * (nope_dim + rope_dim + value_dim)) as f64 * STREAM_BYTES;
        let bytes = keys * (kv_rank + rope_dim) as f64 * self.formats.cache.byte_width() + queries;
        self.push_call("latent attention", layers, CallWork::Bounded { flops, dtype: Dtype::Bf16, bytes });
        self.push_gemm("attention output", layers, hidden, heads * value_dim);
    }

    /// Adds the index of sparse attention. Every GPU scores all tokens with all heads of the index, because the sum over
    /// the heads selects the keys. The selection itself and the scores in memory are left out of the bound.
    fn sparse_index(&mut self, index: &SparseIndex, query_inputs: u64) {
        let layers = self.model.layers;
        let width = index.heads * index.head_dim;
        self.push_gemm("index query projection", layers, width, query_inputs);
        self.push_gemm("index key, weights", layers, index.head_dim + index.heads, self.model.hidden);
        let (pairs, keys) = match self.pass {
            ForwardPass::Decode { sequences, context } => ((sequences * context) as f64, sequences * context),
            ForwardPass::Prefill { sequences, tokens } => {
                ((sequences * tokens) as f64 * mean_keys(tokens, None), sequences * tokens)
            }
        };
        // Servers with a cache or products in fp8 also score in fp8.
        let dtype = if self.formats.cache == Dtype::Fp8 { Dtype::Fp8 } else { Dtype::Bf16 };
        let queries = (self.pass.token_count() * width) as f64 * dtype.byte_width();
        let bytes = (keys * index.key_bytes()) as f64 + queries;
        let work = CallWork::Bounded { flops: 2.0 * pairs * width as f64, dtype, bytes };
        self.push_call("index of sparse attention", layers, work);
    }

    fn feed_forward(&mut self) {
        let Architecture { hidden, intermediate, matrices, dense_layers, double_layers, .. } = *self.model;
        let tokens = self.pass.token_count();
        for (layers, width) in [(dense_layers - double_layers, intermediate), (double_layers, 2 * intermediate)] {
            let width = width.div_ceil(self.parallelism.tensor);
            self.push_gemm(first_role(matrices), layers, (matrices - 1) * width, hidden);
            self.push_pointwise("activation", layers, (matrices * tokens * width) as f64);
            self.push_gemm("feed-forward down", layers, hidden, width);
        }
        if let Some(experts) = self.model.experts {
            self.expert_layers(&experts);
        }
    }

    /// Adds the inputs of each layer and the streams next to that of the layers, whose matrices every GPU has.
    fn side_streams(&mut self) {
        let (layers, hidden, tokens) = (self.model.layers, self.model.hidden, self.pass.token_count());
        if let Some(LayerInputs { width, .. }) = self.model.layer_inputs {
            self.push_gemm("layer inputs", 1, layers * width, hidden);
            self.push_gemm("layer input gate", layers, width, hidden);
            self.push_gemm("layer input projection", layers, hidden, width);
        }
        if let Some(Streams { count, residual_rank }) = self.model.streams {
            self.push_gemm("stream projections", 2 * (count - 1), hidden, hidden);
            self.push_gemm("low-rank residual down", layers, residual_rank, hidden);
            self.push_gemm("low-rank residual up", layers, hidden, residual_rank);
            // Before and after each layer, all streams are read and written.
            self.push_pointwise("streams", layers, 4.0 * (tokens * count * hidden) as f64);
        }
    }

    fn expert_layers(&mut self, experts: &ExpertLayers) {
        let (hidden, Parallelism { tensor, expert, .. }) = (self.model.hidden, self.parallelism);
        let m = self.pass.token_count();
        let router = Gemm { m, n: experts.experts, k: hidden, scheme: Scheme::Bf16 };
        self.push_call("router", experts.layers, CallWork::Kernel(Kernel::Gemm(router)));
        if experts.shared_intermediate > 0 {
            let width = experts.shared_intermediate.div_ceil(tensor);
            self.push_gemm("shared expert gate, up", experts.layers, (self.model.matrices - 1) * width, hidden);
            self.push_gemm("shared expert down", experts.layers, hidden, width);
        }
        let kernel = Kernel::Experts(Experts {
            tokens: m * self.busy_groups,
            hidden,
            intermediate: experts.intermediate,
            experts: self.parallelism.placed_experts(experts.experts),
            top_k: experts.top_k,
            tensor_parallel: self.parallelism.expert_tensor(),
            expert_parallel: expert,
            matrices: self.model.matrices,
            distribution: Distribution::Balanced,
            scheme: self.formats.weights,
        });
        self.push_call("experts", experts.layers, CallWork::Kernel(kernel));
    }

    /// Adds the kernels outside of attention and feed-forward layers: norms, collectives and the output projection.
    fn around_layers(&mut self) {
        let (layers, hidden, Parallelism { tensor, data, .. }) =
            (self.model.layers, self.model.hidden, self.parallelism);
        let tokens = self.pass.token_count();
        // Each kernel adds the layer's output to the stream and normalises: two numbers are read and two are written.
        self.push_pointwise("residual, norm", 2 * layers, 4.0 * (tokens * hidden) as f64);
        let bytes = STREAM_BYTES * (tokens * hidden) as f64;
        let shared_experts = self.model.experts.filter(|_| data > 1);
        let mixed = shared_experts.map_or(0, |experts| experts.layers);
        if tensor > 1 {
            // One all-reduce after attention, one after each feed-forward network that groups do not share.
            let reduced = Collective::AllReduce { bytes, ranks: tensor };
            self.push_call("all-reduce", 2 * layers - mixed, CallWork::Collective(reduced));
        }
        if let Some(ExpertLayers { layers, top_k, .. }) = shared_experts {
            let (bytes, ranks) = (bytes * self.busy_groups as f64, self.parallelism.device_count());
            let exchange = Collective::AllToAll { bytes, ranks, parts: self.parallelism.expert, top_k };
            self.push_call("tokens to experts", layers, CallWork::Collective(exchange));
            self.push_call("results of experts", layers, CallWork::Collective(exchange));
        }
        let width = self.model.vocabulary.div_ceil(tensor);
        let output = Gemm { m: self.pass.sequence_count(), n: width, k: hidden, scheme: Scheme::Bf16 };
        self.push_call("output projection", 1, CallWork::Kernel(Kernel::Gemm(output)));
        if tensor > 1 {
            let bytes = STREAM_BYTES * (self.pass.sequence_count() * self.model.vocabulary) as f64;
            let gathered = Collective::AllGather { bytes, ranks: tensor };
            self.push_call("all-gather of logits", 1, CallWork::Collective(gathered));
        }
    }
}

/// Returns the role of the first matrices of a feed-forward network.
fn first_role(matrices: u64) -> &'static str {
    if matrices == GATED_MATRICES { "feed-forward gate, up" } else { "feed-forward up" }
}

/// Returns the mean number of keys of a prompt's tokens: all earlier tokens and itself, or those that an index selects.
fn mean_keys(tokens: u64, index: Option<&SparseIndex>) -> f64 {
    match index.map(|index| index.most_keys).filter(|most| *most < tokens) {
        None => (tokens + 1) as f64 / 2.0,
        // The first tokens have fewer keys than the index may select.
        Some(most) => (most as f64 * (most + 1) as f64 / 2.0 + (tokens - most) as f64 * most as f64) / tokens as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BF16: Formats = Formats { weights: Scheme::Bf16, cache: Dtype::Bf16 };

    fn flops(calls: &[KernelCall]) -> f64 {
        let of = |call: &KernelCall| match &call.work {
            CallWork::Kernel(Kernel::Gemm(_) | Kernel::Experts(_)) => {
                let CallWork::Kernel(kernel) = &call.work else { unreachable!() };
                kernel.kernel_work().flops * call.count as f64
            }
            _ => 0.0,
        };
        calls.iter().map(of).sum()
    }

    #[test]
    fn a_token_takes_two_operations_per_parameter() {
        let model = Architecture::load_architecture("llama-3.1-8b").expect("a shipped model");
        let calls = plan_pass(&model, ForwardPass::Decode { sequences: 1, context: 1 }, BF16, Parallelism::SINGLE)
            .expect("a plan");
        // The embedding is looked up, not multiplied.
        let parameters = crate::memory::count_parameters(&model) - (model.vocabulary * model.hidden) as f64;
        assert!((crate::memory::count_parameters(&model) / 8.03e9 - 1.0).abs() < 0.01);
        assert!((flops(&calls) / (2.0 * parameters) - 1.0).abs() < 0.01, "{}", flops(&calls));
        let count = |role: &str| calls.iter().find(|call| call.role == role).map(|call| call.count);
        assert_eq!(count("query, key, value"), Some(32));
        assert_eq!(count("attention"), Some(32));
        assert_eq!(count("output projection"), Some(1));
        assert_eq!(count("all-reduce"), None);
    }

    #[test]
    fn gpus_divide_the_work() {
        for name in ["llama-3.1-70b", "mixtral-8x7b", "deepseek-v3"] {
            let model = Architecture::load_architecture(name).expect("a shipped model");
            let pass = ForwardPass::Prefill { sequences: 1, tokens: 512 };
            let one = flops(&plan_pass(&model, pass, BF16, Parallelism::SINGLE).expect("a plan"));
            let four = plan_pass(&model, pass, BF16, Parallelism { tensor: 4, ..Parallelism::SINGLE }).expect("a plan");
            let share = flops(&four) / one;
            assert!((0.25..0.3).contains(&share), "{name}: {share}");
            assert_eq!(
                four.iter().filter(|call| call.role == "all-reduce").map(|call| call.count).sum::<u64>(),
                2 * model.layers
            );
        }
    }

    #[test]
    fn experts_have_the_tokens_of_busy_groups() {
        let model = Architecture::load_architecture("deepseek-v3").expect("a shipped model");
        let parallelism = Parallelism { tensor: 1, expert: 8, data: 8 };
        let pass = ForwardPass::Prefill { sequences: 1, tokens: 1024 };
        let plan = |groups| plan_partial_pass(&model, pass, BF16, parallelism, groups).expect("a plan");
        for (groups, busy) in [(0, 1), (1, 1), (3, 3), (8, 8), (9, 8)] {
            let calls = plan(groups);
            let expected = (busy * 1024, STREAM_BYTES * (busy * 1024 * model.hidden) as f64);
            let mut counted = (0, 0.0);
            for call in &calls {
                match &call.work {
                    CallWork::Kernel(Kernel::Experts(experts)) => counted.0 = experts.tokens,
                    CallWork::Collective(Collective::AllToAll { bytes, ranks: 8, .. }) => counted.1 = *bytes,
                    _ => {}
                }
            }
            assert_eq!(counted, expected, "{groups}");
        }
        assert_eq!(plan(8), plan_pass(&model, pass, BF16, parallelism).expect("a plan"));
    }

    #[test]
    fn copies_fill_parts_that_do_not_divide_the_experts() {
        let model = Architecture::load_architecture("deepseek-v3").expect("a shipped model");
        let parallelism = Parallelism { tensor: 1, expert: 72, data: 72 };
        let step = ForwardPass::Decode { sequences: 64, context: 1024 };
        let calls = plan_pass(&model, step, BF16, parallelism).expect("a plan");
        let experts = calls.iter().find_map(|call| match &call.work {
            CallWork::Kernel(Kernel::Experts(experts)) => Some(experts),
            _ => None,
        });
        assert_eq!(experts.expect("experts").experts, 288);
        let router = calls.iter().find(|call| call.role == "router").expect("a router");
        assert!(matches!(router.work, CallWork::Kernel(Kernel::Gemm(Gemm { n: 256, .. }))));
        let to_experts = calls.iter().find(|call| call.role == "tokens to experts").expect("a transfer");
        assert!(matches!(
            to_experts.work,
            CallWork::Collective(Collective::AllToAll { ranks: 72, parts: 72, top_k: 8, .. })
        ));
    }

    #[test]
    fn sparse_attention_reads_few_keys_and_its_index_all() {
        let model = Architecture::load_architecture("glm-5").expect("a shipped model");
        let formats = Formats { weights: Scheme::Fp8, cache: Dtype::Fp8 };
        let parallelism = Parallelism { tensor: 8, ..Parallelism::SINGLE };
        let bounded = |pass, role: &str| {
            let calls = plan_pass(&model, pass, formats, parallelism).expect("a plan");
            let call = calls.into_iter().find(|call| call.role == role).expect("the call");
            match call.work {
                CallWork::Bounded { flops, bytes, .. } => (call.count, flops, bytes),
                other => panic!("{role}: {other:?}"),
            }
        };
        let (index, attention) = ("index of sparse attention", "latent attention");
        let decode = |context| ForwardPass::Decode { sequences: 2, context };
        let prompt = |tokens| ForwardPass::Prefill { sequences: 1, tokens };
        assert_eq!(bounded(decode(1 << 17), attention), bounded(decode(2048), attention));
        assert_ne!(bounded(decode(2048), attention), bounded(decode(2047), attention));
        // All 32 heads of 128 numbers score all tokens, on each of 8 GPUs.
        let tokens = 2.0 * 131_072.0;
        assert_eq!(bounded(decode(1 << 17), index), (78, 2.0 * tokens * 4096.0, tokens * 132.0 + 2.0 * 4096.0));
        let (_, flops, _) = bounded(prompt(4096), index);
        assert_eq!(flops, 2.0 * 4096.0 * 4097.0 / 2.0 * 4096.0);
        // The mean of 1, 2, …, 2048, 2048, … keys.
        assert_eq!(mean_keys(4096, Some(&SparseIndex { heads: 1, head_dim: 1, most_keys: 2048 })), 1536.25);
        assert!(bounded(prompt(4096), attention).1 < 4.0 * bounded(prompt(2048), attention).1);
    }

    #[test]
    fn divisions_that_do_not_fit_are_refused() {
        let refused = |name: &str, tensor, expert, data| {
            let model = Architecture::load_architecture(name).expect("a shipped model");
            Parallelism { tensor, expert, data }.check_divisibility(&model).expect_err("does not fit").to_string()
        };
        assert!(
            refused("llama-3.1-8b", 3, 1, 1).contains("3 GPUs cannot divide 32 heads; fitting: 1, 2, 4, 8, 16, 32")
        );
        assert!(refused("llama-3.1-8b", 2, 2, 1).contains("a dense model has no experts"));
        assert!(refused("mixtral-8x7b", 4, 3, 1).contains("expert parallelism 3 does not divide the 4 GPUs"));
        assert!(refused("mixtral-8x7b", 4, 8, 1).contains("expert parallelism 8 does not divide the 4 GPUs"));
        assert!(refused("mixtral-8x7b", 1, 16, 16).contains("16 is more than the 8 experts of a layer"));
        assert!(refused("llama-3.1-8b", 0, 1, 1).contains("tensor parallelism must be at least 1"));
    }
}
