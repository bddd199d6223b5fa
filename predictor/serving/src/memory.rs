//! Memory of a model on each GPU of a replica: weights, key-value cache and activations.

use crate::architecture::{
    Architecture, Attention, AttentionGroup, GroupedAttention, LatentAttention, LinearAttention,
};
use crate::device::GpuFacts;
use crate::plan::{Formats, Parallelism, STATE_BYTES};
use crate::scheme::Scheme;
use serde::Serialize;

/// Share of GPU memory that serving frameworks use by default.
const USABLE_SHARE: f64 = 0.9;
/// Number of prefill tokens per chunk; longer prompts are split.
const CHUNK_TOKENS: u64 = 8192;
const ACTIVATION_BYTES: f64 = 2.0;
/// Limit of the number of sequences of a group whose fit is checked.
const MAX_SEQUENCES: u64 = 1 << 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Residents {
    pub sequences: u64,
    /// Maximum number of tokens of a sequence, prompt and answer together.
    pub tokens: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct GpuMemory {
    pub weights_bytes: f64,
    /// Bytes of the keys, values and recurrent states of all sequences.
    pub cache_bytes: f64,
    pub activation_bytes: f64,
    pub usable_bytes: f64,
    /// Maximum number of sequences per replica, with their activations; 0 if not even one fits.
    pub max_sequences: u64,
}

impl GpuMemory {
    pub fn needed_bytes(&self) -> f64 {
        self.weights_bytes + self.cache_bytes + self.activation_bytes
    }

    pub fn is_sufficient(&self) -> bool {
        self.needed_bytes() <= self.usable_bytes
    }
}

pub fn replica_memory(
    model: &Architecture,
    formats: Formats,
    parallelism: Parallelism,
    residents: Residents,
    device: &GpuFacts,
) -> GpuMemory {
    let weights_bytes = weight_bytes(model, parallelism, formats.weights);
    let own_sequences = residents.sequences.div_ceil(parallelism.data);
    let per_sequence = cache_bytes(model, formats, parallelism, residents.tokens);
    let with_sequences = |own_sequences: u64| GpuMemory {
        weights_bytes,
        cache_bytes: per_sequence * own_sequences as f64,
        activation_bytes: activation_bytes(model, parallelism, own_sequences, residents.tokens),
        usable_bytes: USABLE_SHARE * device.memory_bytes,
        max_sequences: 0,
    };
    let fits = |own_sequences: u64| with_sequences(own_sequences).is_sufficient();
    GpuMemory { max_sequences: find_most(fits) * parallelism.data, ..with_sequences(own_sequences) }
}

/// Returns the largest number that fits, at most `MAX_SEQUENCES`, or 0. All numbers below one that fits must fit.
fn find_most(fits: impl Fn(u64) -> bool) -> u64 {
    let (mut least, mut too_many) = (0, MAX_SEQUENCES + 1);
    while too_many - least > 1 {
        let middle = least + (too_many - least) / 2;
        if fits(middle) {
            least = middle;
        } else {
            too_many = middle;
        }
    }
    least
}

pub fn count_parameters(model: &Architecture) -> f64 {
    let WeightCounts { linear, experts, plain } = WeightCounts::count_weights(model, Parallelism::SINGLE);
    linear + experts + plain
}

fn weight_bytes(model: &Architecture, parallelism: Parallelism, scheme: Scheme) -> f64 {
    let WeightCounts { linear, experts, plain } = WeightCounts::count_weights(model, parallelism);
    let linear_scheme = if model.quantises_experts_only { Scheme::Bf16 } else { scheme };
    linear * linear_scheme.weight_bytes() + experts * scheme.weight_bytes() + plain * Scheme::Bf16.weight_bytes()
}

struct WeightCounts {
    linear: f64,
    experts: f64,
    /// Weights of embeddings, output projection, routers and norms, which are not quantised.
    plain: f64,
}

impl WeightCounts {
    fn count_weights(model: &Architecture, parallelism: Parallelism) -> WeightCounts {
        let (hidden, tensor) = (model.hidden as f64, parallelism.tensor as f64);
        let embeddings = if model.has_tied_embeddings { 1.0 } else { 2.0 };
        let per_width = model.matrices as f64 * hidden;
        let dense = (model.dense_layers + model.double_layers) as f64 * per_width * model.intermediate as f64 / tensor;
        let attention = match &model.attention {
            Attention::Grouped(attention) => grouped_weights(model, attention, parallelism),
            Attention::Latent(attention) => latent_weights(model, attention, parallelism),
        };
        let norms = 2.0 * model.layers as f64 * hidden + hidden;
        let vocabulary = embeddings * hidden * model.vocabulary as f64 / tensor;
        let of_experts = model.experts.map_or((0.0, 0.0, 0.0), |experts| {
            let (layers, per_expert) = (experts.layers as f64, per_width * experts.intermediate as f64);
            let placed = parallelism.placed_experts(experts.experts) as f64;
            let routed = layers * placed * per_expert / parallelism.device_count() as f64;
            let shared = layers * per_width * experts.shared_intermediate as f64 / tensor;
            (routed, shared, layers * hidden * experts.experts as f64)
        });
        let (experts, shared, routers) = of_experts;
        let layers = model.layers as f64;
        // Every GPU has all projections of the inputs and of the streams, but a part of the embeddings.
        let (inputs, input_embeddings) = model.layer_inputs.map_or((0.0, 0.0), |inputs| {
            let width = layers * inputs.width as f64;
            (3.0 * hidden * width, width * inputs.vocabulary as f64 / tensor)
        });
        let streams = model.streams.map_or(0.0, |streams| {
            2.0 * hidden * ((streams.count - 1) as f64 * hidden + layers * streams.residual_rank as f64)
        });
        WeightCounts {
            linear: attention + dense + shared + inputs + streams,
            experts,
            plain: vocabulary + input_embeddings + norms + routers,
        }
    }
}

fn grouped_weights(model: &Architecture, attention: &GroupedAttention, parallelism: Parallelism) -> f64 {
    let hidden = model.hidden as f64;
    let heads = attention.heads / parallelism.tensor;
    let gates = if attention.has_output_gate { heads } else { 0 };
    let of_group = |group: AttentionGroup| {
        let kv_heads = (group.kv_heads / parallelism.tensor).max(1);
        group.layers * (2 * heads + gates + group.kv_projections * kv_heads) * group.head_dim
    };
    let full = hidden * attention.split_layers(model.layers).map(of_group).iter().sum::<u64>() as f64;
    let linear = attention.linear.map_or(0.0, |linear| {
        let LinearAttention { layers, key_heads, value_heads, key_dim, value_dim } = linear;
        let width = 2 * key_heads * key_dim + 3 * value_heads * value_dim + 2 * value_heads;
        (layers * width) as f64 * hidden / parallelism.tensor as f64
    });
    full + linear
}

fn latent_weights(model: &Architecture, attention: &LatentAttention, parallelism: Parallelism) -> f64 {
    let LatentAttention { heads, query_rank, kv_rank, nope_dim, rope_dim, value_dim, index } = *attention;
    let hidden = model.hidden;
    let heads = heads / parallelism.tensor;
    let query_inputs = query_rank.unwrap_or(hidden);
    // The down-projections and the index are on every GPU.
    let index =
        index.map_or(0, |index| index.heads * index.head_dim * query_inputs + hidden * (index.head_dim + index.heads));
    let down = hidden * (query_rank.unwrap_or(0) + kv_rank + rope_dim) + index;
    let up = heads * ((nope_dim + rope_dim) * query_inputs + (nope_dim + value_dim) * kv_rank + value_dim * hidden);
    model.layers as f64 * (down + up) as f64
}

fn cache_bytes(model: &Architecture, formats: Formats, parallelism: Parallelism, tokens: u64) -> f64 {
    let tokens = tokens.max(1);
    match &model.attention {
        Attention::Latent(attention) => {
            let width = attention.kv_rank + attention.rope_dim;
            let index_bytes = attention.index.map_or(0, |index| index.key_bytes());
            let token_bytes = width as f64 * formats.cache.byte_width() + index_bytes as f64;
            model.layers as f64 * tokens as f64 * token_bytes
        }
        Attention::Grouped(attention) => {
            let own_keys = |group: &AttentionGroup| group.kv_projections > 0;
            let numbers = |group: AttentionGroup| {
                let kept = group.window.map_or(tokens, |window| tokens.min(window));
                let width = (group.kv_heads / parallelism.tensor).max(1) * group.head_dim;
                group.layers as f64 * kept as f64 * width as f64
            };
            let keys: f64 = attention.split_layers(model.layers).into_iter().filter(own_keys).map(numbers).sum();
            let state = attention.linear.map_or(0.0, |linear| {
                let numbers = linear.layers * linear.value_heads * linear.key_dim * linear.value_dim;
                STATE_BYTES * numbers as f64 / parallelism.tensor as f64
            });
            2.0 * keys * formats.cache.byte_width() + state
        }
    }
}

/// Estimates the bytes of activations in one forward pass: residual stream, widest layer and logits.
fn activation_bytes(model: &Architecture, parallelism: Parallelism, sequences: u64, tokens: u64) -> f64 {
    let tokens = tokens.clamp(1, CHUNK_TOKENS).max(sequences.min(CHUNK_TOKENS));
    let widest = if model.double_layers > 0 { 2 * model.intermediate } else { model.intermediate };
    let dense = model.matrices * widest.div_ceil(parallelism.tensor);
    let experts = model.experts.map_or(0, |experts| {
        experts.top_k * (model.hidden + model.matrices * experts.intermediate.div_ceil(parallelism.expert_tensor()))
    });
    let other_streams = model.streams.map_or(0, |streams| streams.count - 1);
    let wide = (4 + other_streams) * model.hidden + dense.max(experts);
    let logits = sequences * model.vocabulary.div_ceil(parallelism.tensor);
    ACTIVATION_BYTES * (tokens as f64 * wide as f64 + 2.0 * logits as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::find_device;
    use crate::scheme::Dtype;

    fn needed(name: &str, weights: Scheme, tensor: u64, residents: (u64, u64)) -> GpuMemory {
        let model = Architecture::load_architecture(name).expect("a shipped model");
        let device = find_device("h100_sxm").expect("a known device");
        let parallelism = Parallelism { tensor, ..Parallelism::SINGLE };
        let (sequences, tokens) = residents;
        let formats = Formats { weights, cache: Dtype::Bf16 };
        replica_memory(&model, formats, parallelism, Residents { sequences, tokens }, device)
    }

    #[test]
    fn weights_have_the_published_sizes() {
        for (name, billions) in [
            ("llama-3.1-8b", 8.03),
            ("llama-3.1-70b", 70.55),
            ("llama-3.1-405b", 405.9),
            ("qwen3-32b", 32.8),
            ("qwen3-235b-a22b", 235.1),
            ("mixtral-8x7b", 46.7),
            ("gpt-oss-120b", 116.8),
            ("deepseek-v3", 671.0),
            ("gemma-3-27b", 27.0),
            ("mistral-small-24b", 23.6),
            ("minimax-m2.5", 228.7),
        ] {
            let model = Architecture::load_architecture(name).expect("a shipped model");
            let error = count_parameters(&model) / (billions * 1e9) - 1.0;
            assert!(
                error.abs() < 0.02,
                "{name}: {} parameters, published {billions} billion",
                count_parameters(&model)
            );
        }
        let weights = needed("llama-3.1-70b", Scheme::Bf16, 1, (1, 1)).weights_bytes;
        assert!((weights / 141.1e9 - 1.0).abs() < 0.01, "{weights}");
    }

    #[test]
    fn caches_grow_with_tokens_and_limit_the_batch() {
        // 80 layers, 8 heads of 128 numbers, keys and values, 2 bytes.
        let one = needed("llama-3.1-70b", Scheme::Fp8, 1, (1, 1000)).cache_bytes;
        assert!((one - 80.0 * 8.0 * 128.0 * 2.0 * 2.0 * 1000.0).abs() < 1.0, "{one}");
        let four = needed("llama-3.1-70b", Scheme::Fp8, 4, (1, 1000)).cache_bytes;
        assert!((one / four - 4.0).abs() < 1e-9);
        assert!(!needed("llama-3.1-70b", Scheme::Bf16, 1, (1, 1)).is_sufficient());
        assert_eq!(needed("llama-3.1-70b", Scheme::Bf16, 1, (1, 1)).max_sequences, 0);
        let served = needed("llama-3.1-70b", Scheme::Fp8, 4, (32, 5120));
        assert!(served.is_sufficient() && served.max_sequences > 32, "{served:?}");
        // The cache of 78 layers has 576 bf16 numbers per token, and a key of the index: 128 bytes and a scale.
        let sparse = needed("glm-5", Scheme::Fp8, 8, (1, 1000)).cache_bytes;
        assert_eq!(sparse, 78.0 * 1000.0 * (576.0 * 2.0 + 132.0));
        // As many requests fit as the answer states, whatever number it is for.
        for name in ["llama-3.1-8b", "gemma-3-27b"] {
            let most = needed(name, Scheme::Fp8, 1, (1, 124)).max_sequences;
            let (at_most, above) =
                (needed(name, Scheme::Fp8, 1, (most, 124)), needed(name, Scheme::Fp8, 1, (most + 1, 124)));
            assert!(at_most.is_sufficient() && !above.is_sufficient(), "{name}: {most}");
            assert_eq!((at_most.max_sequences, above.max_sequences), (most, most), "{name}");
        }
        // Windows bound the cache of their layers.
        let short = needed("gemma-3-27b", Scheme::Bf16, 1, (1, 1024)).cache_bytes;
        let long = needed("gemma-3-27b", Scheme::Bf16, 1, (1, 10240)).cache_bytes;
        assert!(long < 3.0 * short, "{short} {long}");
    }
}
