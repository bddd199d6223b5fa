//! Kernels of serving frameworks: their sizes, and the operations and bytes that they require.

pub use crate::routing::Distribution;
use crate::routing::{RankLoad, Routing};
use crate::scheme::{Dtype, Scheme};
use models::Choice;
use serde::{Deserialize, Serialize};

/// Bytes per element of outputs and queries, which frameworks store in 16 bits.
const OUTPUT_BYTES: f64 = 2.0;

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kernel {
    Gemm(Gemm),
    Prefill(Prefill),
    Decode(Decode),
    Experts(Experts),
}

/// The product `y[m,n] = x[m,k] · w[n,k]` of activations `x` and weights `w`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gemm {
    /// Rows of activations, usually the number of tokens.
    pub m: u64,
    pub n: u64,
    pub k: u64,
    pub scheme: Scheme,
}

/// Causal attention of the `new_tokens` of each sequence to themselves and to `past` cached tokens.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prefill {
    pub batch: u64,
    pub new_tokens: u64,
    pub past: u64,
    pub heads: u64,
    pub kv_heads: u64,
    pub head_dim: u64,
    /// Size of the sliding window in keys; None for full attention.
    pub window: Option<u64>,
    pub dtype: Dtype,
    pub cache_dtype: Dtype,
}

/// Attention of one new token of each sequence to `context` keys, including its own.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decode {
    pub batch: u64,
    pub context: u64,
    pub heads: u64,
    pub kv_heads: u64,
    pub head_dim: u64,
    /// Size of the sliding window in keys; None for full attention.
    pub window: Option<u64>,
    pub dtype: Dtype,
    pub cache_dtype: Dtype,
}

/// One rank's share of a fused layer of experts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Experts {
    /// Tokens of all ranks of the expert-parallel group.
    pub tokens: u64,
    pub hidden: u64,
    /// Inner width of one expert, before it is divided by `tensor_parallel`.
    pub intermediate: u64,
    /// Number of experts of the layer, before it is divided by `expert_parallel`.
    pub experts: u64,
    pub top_k: u64,
    /// Number of devices among which each expert is split.
    pub tensor_parallel: u64,
    /// Number of devices among which the experts are distributed.
    pub expert_parallel: u64,
    /// Number of matrices of an expert: 3 with a gate, 2 without.
    pub matrices: u64,
    pub distribution: Distribution,
    pub scheme: Scheme,
}

/// Number of matrices of an expert with a gate.
pub(crate) const GATED_MATRICES: u64 = 3;
/// Largest number of experts in a layer; far more than any model has, and few enough to compute the load of each.
const MAX_EXPERTS: u64 = 1 << 16;
/// Window that covers all keys of any measured context.
const UNLIMITED_WINDOW: u64 = 1 << 40;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    /// Floating-point operations; a multiply-add counts as two.
    pub flops: f64,
    /// Compulsory traffic in bytes, with each value moved once.
    pub bytes: f64,
}

impl Kernel {
    pub fn operator_name(&self) -> &'static str {
        match self {
            Kernel::Gemm(_) => "gemm",
            Kernel::Prefill(_) => "attention_prefill",
            Kernel::Decode(_) => "attention_decode",
            Kernel::Experts(_) => "moe",
        }
    }

    /// Returns the sizes that depend on the load and not on the model: tokens, sequences and their lengths.
    pub fn load_sizes(&self) -> Vec<u64> {
        self.named_load_sizes().into_iter().map(|(_, size)| size).collect()
    }

    pub(crate) fn named_load_sizes(&self) -> Vec<(&'static str, u64)> {
        let mut kernel = *self;
        kernel.load_sizes_mut().into_iter().map(|(name, size)| (name, *size)).collect()
    }

    /// Returns the kernel with other [`Kernel::load_sizes`].
    pub fn with_load_sizes(mut self, sizes: impl IntoIterator<Item = u64>) -> Kernel {
        self.load_sizes_mut().into_iter().zip(sizes).for_each(|((_, own), size)| *own = size);
        self
    }

    /// Returns the kernel with an unlimited window if its window covers all keys, so that it also covers those of
    /// neighbouring sizes.
    pub(crate) fn with_open_window(mut self) -> Kernel {
        let (window, keys) = match &mut self {
            Kernel::Prefill(prefill) => (&mut prefill.window, prefill.past + prefill.new_tokens),
            Kernel::Decode(decode) => (&mut decode.window, decode.context),
            Kernel::Gemm(_) | Kernel::Experts(_) => return self,
        };
        *window = window.map(|size| if size < keys { size } else { UNLIMITED_WINDOW });
        self
    }

    fn load_sizes_mut(&mut self) -> Vec<(&'static str, &mut u64)> {
        match self {
            Kernel::Gemm(gemm) => vec![("m", &mut gemm.m)],
            Kernel::Prefill(prefill) => vec![
                ("batch", &mut prefill.batch),
                ("new_tokens", &mut prefill.new_tokens),
                ("past", &mut prefill.past),
            ],
            Kernel::Decode(decode) => vec![("batch", &mut decode.batch), ("context", &mut decode.context)],
            Kernel::Experts(experts) => vec![("tokens", &mut experts.tokens)],
        }
    }

    pub fn product_dtype(&self) -> Dtype {
        match self {
            Kernel::Gemm(gemm) => gemm.scheme.product_dtype(),
            Kernel::Prefill(prefill) => prefill.dtype,
            Kernel::Decode(decode) => decode.dtype,
            Kernel::Experts(experts) => experts.scheme.product_dtype(),
        }
    }

    /// Returns the key that groups models, errors and intervals: the number scheme, or the types of attention.
    pub fn format_key(&self) -> &'static str {
        match self {
            Kernel::Gemm(gemm) => gemm.scheme.name(),
            Kernel::Prefill(prefill) => attention_format(prefill.dtype, prefill.cache_dtype),
            Kernel::Decode(decode) => attention_format(decode.dtype, decode.cache_dtype),
            Kernel::Experts(experts) => experts.scheme.name(),
        }
    }

    pub fn kernel_work(&self) -> Work {
        match self {
            Kernel::Gemm(gemm) => gemm.work(),
            Kernel::Prefill(prefill) => prefill.work(),
            Kernel::Decode(decode) => decode.work(),
            Kernel::Experts(experts) => experts.work(),
        }
    }
}

/// Names the types of attention: the cache's type if products are computed in 16 bits, as in the published tables, else
/// both types.
fn attention_format(dtype: Dtype, cache_dtype: Dtype) -> &'static str {
    match (dtype, cache_dtype) {
        (Dtype::Bf16, cache) => cache.name(),
        (Dtype::Fp8, Dtype::Bf16) => "fp8 products, bf16 cache",
        (Dtype::Fp8, Dtype::Fp8) => "fp8 products and cache",
        (Dtype::Fp8, Dtype::Fp4) => "fp8 products, fp4 cache",
        (Dtype::Fp8, Dtype::Int8) => "fp8 products, int8 cache",
        (Dtype::Fp4, Dtype::Bf16) => "fp4 products, bf16 cache",
        (Dtype::Fp4, Dtype::Fp8) => "fp4 products, fp8 cache",
        (Dtype::Fp4, Dtype::Fp4) => "fp4 products and cache",
        (Dtype::Fp4, Dtype::Int8) => "fp4 products, int8 cache",
        (Dtype::Int8, Dtype::Bf16) => "int8 products, bf16 cache",
        (Dtype::Int8, Dtype::Fp8) => "int8 products, fp8 cache",
        (Dtype::Int8, Dtype::Fp4) => "int8 products, fp4 cache",
        (Dtype::Int8, Dtype::Int8) => "int8 products and cache",
    }
}

impl Gemm {
    pub fn work(&self) -> Work {
        let (m, n, k) = (self.m as f64, self.n as f64, self.k as f64);
        let bytes = m * k * self.scheme.activation_bytes() + n * k * self.scheme.weight_bytes() + m * n * OUTPUT_BYTES;
        Work { flops: 2.0 * m * n * k, bytes }
    }
}

/// Tile of attention kernels for prompts: two blocks of 128 queries, and as many keys as one block has queries.
const TILE_QUERIES: u64 = 256;
const TILE_KEYS: u64 = 128;

impl Prefill {
    /// Returns the number of query-key pairs in one head of one sequence.
    pub fn attended_pairs(&self) -> f64 {
        let (new, past) = (self.new_tokens as f64, self.past as f64);
        // Token i (from 1) attends to past + i keys, at most the window.
        let Some(window) = self.window.map(|window| window as f64) else { return new * past + new * (new + 1.0) / 2.0 };
        let growing = (window - past).clamp(0.0, new).floor();
        growing * past + growing * (growing + 1.0) / 2.0 + (new - growing) * window
    }

    /// Returns the number of query-key pairs in one head of one sequence that kernels compute, which work on whole tiles.
    pub(crate) fn tiled_pairs(&self) -> f64 {
        let blocks = |keys: u64| keys.div_ceil(TILE_KEYS) as f64;
        let most = self.window.map_or(f64::INFINITY, |window| blocks(window.saturating_add(TILE_QUERIES)));
        // Tile i (from 1) computes the blocks of the past and i times its own, at most those of the window.
        let (past, own) = (blocks(self.past), blocks(TILE_QUERIES));
        let whole = (self.new_tokens / TILE_QUERIES) as f64;
        let growing = ((most - past) / own).floor().clamp(0.0, whole);
        let at_most = if growing < whole { (whole - growing) * most } else { 0.0 };
        let last = match self.new_tokens % TILE_QUERIES {
            0 => 0.0,
            _ => blocks(self.past + self.new_tokens).min(most),
        };
        let computed = growing * past + own * growing * (growing + 1.0) / 2.0 + at_most + last;
        computed * (TILE_QUERIES * TILE_KEYS) as f64
    }

    pub fn keys_read(&self) -> f64 {
        let all = (self.new_tokens + self.past) as f64;
        self.window.map_or(all, |window| all.min((window + self.new_tokens) as f64))
    }

    pub fn work(&self) -> Work {
        let (batch, heads, head_dim) = (self.batch as f64, self.heads as f64, self.head_dim as f64);
        let cache = 2.0 * batch * self.kv_heads as f64 * self.keys_read() * head_dim * self.cache_dtype.byte_width();
        let queries = 2.0 * batch * heads * self.new_tokens as f64 * head_dim * OUTPUT_BYTES;
        Work { flops: 4.0 * batch * heads * self.attended_pairs() * head_dim, bytes: cache + queries }
    }
}

impl Decode {
    pub fn keys_read(&self) -> f64 {
        self.window.map_or(self.context, |window| window.min(self.context)) as f64
    }

    pub fn work(&self) -> Work {
        let (batch, heads, head_dim) = (self.batch as f64, self.heads as f64, self.head_dim as f64);
        let cache = 2.0 * batch * self.kv_heads as f64 * self.keys_read() * head_dim * self.cache_dtype.byte_width();
        let queries = 2.0 * batch * heads * head_dim * OUTPUT_BYTES;
        Work { flops: 4.0 * batch * heads * self.keys_read() * head_dim, bytes: cache + queries }
    }
}

impl Experts {
    /// Checks sizes from outside of the program; the error states what to change.
    pub(crate) fn check_sizes(&self) -> Result<(), String> {
        let &Experts { top_k, experts, matrices, .. } = self;
        if experts > MAX_EXPERTS {
            return Err(format!("`experts` is {experts}; give at most {MAX_EXPERTS}"));
        }
        if top_k > experts {
            return Err(format!("`top_k` is {top_k}, but the layer has {experts} experts"));
        }
        match (2..=GATED_MATRICES).contains(&matrices) {
            true => Ok(()),
            false => Err(format!("`matrices` is {matrices}; give 3 for experts with a gate, 2 for others")),
        }
    }

    /// Checks that a request divides experts and their widths as servers can; tables may pad them.
    pub(crate) fn check_division(&self) -> Result<(), String> {
        let &Experts { experts, expert_parallel, intermediate, tensor_parallel, .. } = self;
        if experts % expert_parallel != 0 {
            return Err(format!("`expert_parallel` is {expert_parallel}, which does not divide {experts} experts"));
        }
        match tensor_parallel <= intermediate {
            true => Ok(()),
            false => {
                Err(format!("`tensor_parallel` is {tensor_parallel}, more than the width of an expert, {intermediate}"))
            }
        }
    }

    pub fn rank_width(&self) -> f64 {
        self.intermediate as f64 / self.tensor_parallel as f64
    }

    /// Returns the load of the rank with the most pairs of tokens and experts.
    pub(crate) fn rank_load(&self) -> RankLoad {
        let &Experts { tokens, experts, top_k, expert_parallel, distribution, .. } = self;
        RankLoad::from_routing(&Routing { tokens, experts, top_k, expert_parallel, distribution })
    }

    /// Returns the number of weights of one expert on this rank.
    pub(crate) fn expert_weights(&self) -> f64 {
        self.matrices as f64 * self.hidden as f64 * self.rank_width()
    }

    /// Returns the work of the rank with the most pairs of tokens and experts.
    pub fn work(&self) -> Work {
        let (load, expert) = (self.rank_load(), self.expert_weights());
        let routed = load.pairs.max(1.0);
        let activations = routed * self.hidden as f64 * (self.scheme.activation_bytes() + OUTPUT_BYTES);
        let written = (self.matrices as f64 - 1.0) * routed * self.rank_width();
        let inside = written * (self.scheme.activation_bytes() + OUTPUT_BYTES);
        Work {
            flops: 2.0 * routed * expert,
            bytes: load.active * expert * self.scheme.weight_bytes() + activations + inside,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefill(new_tokens: u64, past: u64, window: Option<u64>) -> Prefill {
        let (dtype, cache_dtype) = (Dtype::Bf16, Dtype::Fp8);
        Prefill { batch: 1, new_tokens, past, heads: 1, kv_heads: 1, head_dim: 1, window, dtype, cache_dtype }
    }

    #[test]
    fn tiles_are_counted_as_a_loop_counts_them() {
        for (new, past) in [(1, 0), (1, 700), (255, 1), (256, 128), (257, 100), (1024, 5000), (2000, 33)] {
            for window in [None, Some(1), Some(128), Some(300), Some(6000)] {
                let blocks = |row: u64| {
                    let keys = past + new.min(row + TILE_QUERIES);
                    window.map_or(keys, |window: u64| keys.min(window + TILE_QUERIES)).div_ceil(TILE_KEYS)
                };
                let counted: u64 = (0..new).step_by(TILE_QUERIES as usize).map(blocks).sum();
                let tiled = prefill(new, past, window).tiled_pairs();
                assert_eq!(tiled, (counted * TILE_QUERIES * TILE_KEYS) as f64, "{new} {past} {window:?}");
            }
        }
        // The number of tiles does not matter.
        assert!(prefill(1 << 40, 0, Some(128)).tiled_pairs().is_finite());
    }

    #[test]
    fn pairs_are_counted_as_a_loop_counts_them() {
        for (new, past) in [(1, 0), (5, 0), (5, 3), (7, 12)] {
            for window in [None, Some(1), Some(4), Some(6), Some(100)] {
                let seen = |token: u64| window.map_or(past + token, |window: u64| window.min(past + token));
                let counted: u64 = (1..=new).map(seen).sum();
                assert_eq!(prefill(new, past, window).attended_pairs(), counted as f64, "{new} {past} {window:?}");
            }
        }
    }

    #[test]
    fn formats_of_attention_name_products_and_cache() {
        let key =
            |dtype, cache_dtype| Kernel::Prefill(Prefill { dtype, cache_dtype, ..prefill(1, 0, None) }).format_key();
        assert_eq!(key(Dtype::Bf16, Dtype::Fp8), "fp8");
        assert_eq!(key(Dtype::Fp8, Dtype::Fp8), "fp8 products and cache");
        let pairs = Dtype::ALL.iter().flat_map(|dtype| Dtype::ALL.iter().map(|cache| key(*dtype, *cache)));
        let names = pairs.collect::<std::collections::BTreeSet<_>>();
        assert_eq!(names.len(), Dtype::ALL.len().pow(2), "{names:?}");
    }

    #[test]
    fn weights_and_activations_have_their_own_bytes() {
        let gemm = |scheme| Gemm { m: 16, n: 64, k: 128, scheme }.work().bytes;
        assert_eq!(gemm(Scheme::Bf16), 2.0 * (16.0 * 128.0 + 64.0 * 128.0 + 16.0 * 64.0));
        assert_eq!(gemm(Scheme::Int8Weights), 2.0 * 16.0 * 128.0 + 64.0 * 128.0 + 2.0 * 16.0 * 64.0);
    }

    #[test]
    fn a_rank_does_its_share() {
        let (distribution, scheme) = (Distribution::Balanced, Scheme::Bf16);
        let whole = Experts {
            tokens: 1024,
            hidden: 512,
            intermediate: 256,
            experts: 64,
            top_k: 8,
            tensor_parallel: 1,
            expert_parallel: 1,
            matrices: 3,
            distribution,
            scheme,
        };
        let share = Experts { tensor_parallel: 2, expert_parallel: 4, ..whole };
        assert_eq!(share.work().flops, whole.work().flops / 8.0);
        assert!(share.work().bytes < whole.work().bytes / 3.0);
        assert_eq!(Experts { matrices: 2, ..whole }.work().flops, whole.work().flops * 2.0 / 3.0);
    }
}
