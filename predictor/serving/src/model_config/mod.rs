//! Fields of the `config.json` that is published with each model, and the architecture that they describe.

mod aliases;
mod experts;
mod layers;
mod unread;

use crate::architecture::{
    Architecture, Attention, FullHeads, GroupedAttention, LatentAttention, LayerInputs, SparseIndex, Streams,
};
use crate::error::{Error, Result};
use crate::kernel::GATED_MATRICES;
use serde::{Deserialize, Deserializer, de::IgnoredAny};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Limit on the number of layers, heads and experts.
const MAX_COUNT: u64 = 1 << 14;
const MAX_WIDTH: u64 = 1 << 24;
/// Model families whose feed-forward network has no gate, so it has two matrices instead of three.
const UNGATED: [&str; 4] = ["gpt_neox", "nemotron", "phi", "starcoder2"];
/// Activations of feed-forward networks without a gate.
const UNGATED_ACTIVATIONS: [&str; 3] = ["relu2", "relu_squared", "xielu"];
/// Model families with an activation of `UNGATED_ACTIVATIONS` behind a gate.
const GATED: [&str; 1] = ["bitnet"];
/// Model families that are described by other keys.
const OTHER_KEYS: [&str; 6] = ["bloom", "falcon", "gpt2", "gpt_neo", "mpt", "opt"];
const ENCODERS: [&str; 14] = [
    "albert",
    "bert",
    "camembert",
    "clip",
    "clip_text_model",
    "deberta",
    "deberta-v2",
    "distilbert",
    "electra",
    "modernbert",
    "mpnet",
    "roberta",
    "xlm-roberta",
    "xlm-roberta-xl",
];
/// Parts of the names of classes that generate text.
const GENERATORS: [&str; 3] = ["CausalLM", "ConditionalGeneration", "LMHead"];
/// Model types with tied input and output embeddings by default, as are all types of `TIED_PREFIXES`.
const TIED: [&str; 10] =
    ["bloom", "ernie4_5", "ernie4_5_moe", "falcon", "gpt2", "mpt", "opt", "smollm3", "starcoder2", "vaultgemma"];
const TIED_PREFIXES: [&str; 2] = ["cohere", "gemma"];
/// Model types with latent attention.
const LATENT: [&str; 4] = ["deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2"];

#[derive(Deserialize)]
pub(crate) struct ModelConfig {
    #[serde(default, deserialize_with = "read_or_default")]
    model_type: String,
    architectures: Option<Vec<String>>,
    text_config: Option<Box<ModelConfig>>,
    vision_config: Option<IgnoredAny>,
    audio_config: Option<IgnoredAny>,
    max_position_embeddings: Option<u64>,
    num_hidden_layers: Option<u64>,
    hidden_size: Option<u64>,
    vocab_size: Option<u64>,
    tie_word_embeddings: Option<bool>,
    #[serde(default, deserialize_with = "read_shared")]
    intermediate_size: Option<u64>,
    /// Gemma 4: layers that share keys and values have twice the width.
    use_double_wide_mlp: Option<bool>,
    /// Width of the inputs of each layer in Gemma, and their number of embeddings.
    hidden_size_per_layer_input: Option<u64>,
    vocab_size_per_layer_input: Option<u64>,
    altup_num_inputs: Option<u64>,
    laurel_rank: Option<u64>,
    /// Width of the dense layers of Llama 4, where `intermediate_size` is that of the experts.
    intermediate_size_mlp: Option<u64>,
    hidden_act: Option<String>,
    mlp_hidden_act: Option<String>,
    num_attention_heads: Option<u64>,
    num_key_value_heads: Option<u64>,
    head_dim: Option<u64>,
    attn_output_gate: Option<bool>,
    /// Sizes of the layers of Gemma 4 with full attention, and whether their values are projected like keys.
    global_head_dim: Option<u64>,
    num_global_key_value_heads: Option<u64>,
    attention_k_eq_v: Option<bool>,
    /// Number of last layers that attend to the keys and values of an earlier layer.
    num_kv_shared_layers: Option<u64>,
    /// Hunyuan: one of `cla_share_factor` layers has keys and values, to which the others attend.
    use_cla: Option<bool>,
    cla_share_factor: Option<u64>,
    sliding_window: Option<u64>,
    use_sliding_window: Option<bool>,
    sliding_window_pattern: Option<WindowPattern>,
    /// Name of `sliding_window_pattern` in AFMoE.
    global_attn_every_n_layers: Option<u64>,
    max_window_layers: Option<u64>,
    layer_types: Option<Vec<String>>,
    /// Name of `layer_types` in Zamba and Jamba.
    layers_block_type: Option<Vec<String>>,
    attn_layer_indices: Option<BTreeSet<u64>>,
    attn_type_list: Option<Vec<u64>>,
    full_attention_interval: Option<u64>,
    attention_chunk_size: Option<u64>,
    no_rope_layers: Option<Vec<u64>>,
    linear_num_key_heads: Option<u64>,
    linear_num_value_heads: Option<u64>,
    linear_key_head_dim: Option<u64>,
    linear_value_head_dim: Option<u64>,
    attn_layer_period: Option<u64>,
    attn_layer_offset: Option<u64>,
    mamba_d_state: Option<u64>,
    mamba_expand: Option<u64>,
    mamba_n_heads: Option<u64>,
    mamba_n_groups: Option<u64>,
    /// A number, or the word `auto`.
    mamba_d_head: Option<Value>,
    use_mla: Option<bool>,
    /// `Some(None)` if the configuration states `null`: queries are projected without a latent vector.
    #[serde(default, deserialize_with = "read_stated")]
    q_lora_rank: Option<Option<u64>>,
    kv_lora_rank: Option<u64>,
    qk_nope_head_dim: Option<u64>,
    qk_rope_head_dim: Option<u64>,
    v_head_dim: Option<u64>,
    index_topk: Option<u64>,
    index_n_heads: Option<u64>,
    index_head_dim: Option<u64>,
    #[serde(
        default,
        deserialize_with = "read_shared",
        alias = "num_local_experts",
        alias = "n_routed_experts",
        alias = "moe_num_experts"
    )]
    num_experts: Option<u64>,
    #[serde(default, deserialize_with = "read_shared", alias = "moe_k", alias = "moe_topk", alias = "top_k_experts")]
    num_experts_per_tok: Option<u64>,
    #[serde(default, deserialize_with = "read_shared")]
    moe_intermediate_size: Option<u64>,
    /// Gemma 4: a dense network next to the experts of each layer.
    enable_moe_block: Option<bool>,
    #[serde(alias = "num_dense_layers")]
    first_k_dense_replace: Option<u64>,
    /// First layer with experts in Ernie, and the last one: −1 is the last layer.
    moe_layer_start_index: Option<u64>,
    moe_layer_end_index: Option<i64>,
    moe_layer_interval: Option<u64>,
    moe_layer_freq: Option<LayerFrequency>,
    decoder_sparse_step: Option<u64>,
    mlp_only_layers: Option<BTreeSet<u64>>,
    interleave_moe_layer_step: Option<u64>,
    expert_layer_period: Option<u64>,
    expert_layer_offset: Option<u64>,
    #[serde(
        default,
        deserialize_with = "read_shared",
        alias = "num_shared_expert",
        alias = "num_shared_experts",
        alias = "moe_num_shared_experts"
    )]
    n_shared_experts: Option<u64>,
    /// Width of one shared expert of Ling, if other than that of the routed experts.
    moe_shared_expert_intermediate_size: Option<u64>,
    shared_expert_intermediate_size: Option<u64>,
    /// Width of the shared expert of Granite, and of its feed-forward network without experts.
    shared_intermediate_size: Option<u64>,
    quantization_config: Option<Quantization>,
    /// Fields that are not read, among which `layers` and `unread` look for architectures that are not supported.
    #[serde(flatten)]
    other: BTreeMap<String, Value>,
}

/// Layers with experts: every n-th layer, or one flag per layer.
#[derive(Deserialize)]
#[serde(untagged)]
enum LayerFrequency {
    Every(u64),
    Flags(Vec<u64>),
}

/// Every n-th layer has full attention and the others have windows, or a letter for each layer: `L` (local) for a
/// window, `G` (global) for full attention. Letters are repeated, and the last layer has full attention.
#[derive(Deserialize)]
#[serde(untagged)]
enum WindowPattern {
    Every(u64),
    Letters(String),
}

/// Layers `i` of a kind with `i % period == offset`.
#[derive(Clone, Copy)]
struct PeriodicLayers {
    period: u64,
    offset: u64,
}

#[derive(Deserialize)]
struct Quantization {
    quant_method: Option<String>,
    #[serde(default, deserialize_with = "read_or_default")]
    modules_to_not_convert: Vec<String>,
}

/// Reads a field in which `null` stands for the default.
fn read_or_default<'de, T: Default + Deserialize<'de>, D: Deserializer<'de>>(
    value: D,
) -> std::result::Result<T, D::Error> {
    Option::deserialize(value).map(Option::unwrap_or_default)
}

/// Reads a field that is present, `null` or not.
fn read_stated<'de, D: Deserializer<'de>>(value: D) -> std::result::Result<Option<Option<u64>>, D::Error> {
    Option::deserialize(value).map(Some)
}

/// Reads a field that may have one entry for each layer, which must be equal.
fn read_shared<'de, D: Deserializer<'de>>(value: D) -> std::result::Result<Option<u64>, D::Error> {
    let value = Value::deserialize(value)?;
    let one = match value.as_array().map(Vec::as_slice) {
        Some([first, others @ ..]) if others.iter().all(|other| other == first) => first.clone(),
        Some([_, ..]) => return Err(serde::de::Error::custom("layers of different sizes are not supported")),
        _ => value,
    };
    Option::deserialize(one).map_err(serde::de::Error::custom)
}

type Parsed<T> = std::result::Result<T, String>;

/// Refuses sizes by layer whose number is not that of the layers.
fn check_lists(text: &str) -> Parsed<()> {
    /// Words in the keys of sizes that `read_shared` reads.
    const SIZES: [&str; 2] = ["intermediate_size", "expert"];
    fn check_object(config: &Map<String, Value>) -> Parsed<()> {
        let layers = config.get("num_hidden_layers").and_then(Value::as_u64);
        for (key, value) in config {
            let is_size = SIZES.iter().any(|word| key.contains(word));
            let sizes = value.as_array().filter(|sizes| is_size && sizes.first().is_some_and(Value::is_u64));
            if let (Some(sizes), Some(layers)) = (sizes, layers)
                && sizes.len() as u64 != layers
            {
                return Err(format!("`{key}` has {} entries, but the model has {layers} layers", sizes.len()));
            }
        }
        config.get("text_config").and_then(Value::as_object).map_or(Ok(()), check_object)
    }
    let config: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    config.as_object().map_or(Ok(()), check_object)
}

/// Returns a required size, or an error if the size is missing or not from 1 to `most`.
fn require_bounded(value: Option<u64>, field: &str, most: u64) -> Parsed<u64> {
    match value {
        None => Err(format!("the configuration lacks `{field}`")),
        Some(size) if (1..=most).contains(&size) => Ok(size),
        Some(size) => Err(format!("`{field}` is {size}, but must be from 1 to {most}")),
    }
}

/// Describes the first key of a configuration whose value has a wrong type, which an error of the parser does not name.
fn find_wrong_key(config: &Value) -> Option<String> {
    config.as_object()?.iter().find_map(|(key, value)| {
        let alone = Value::Object(Map::from_iter([(key.clone(), value.clone())]));
        let error = serde_json::from_value::<ModelConfig>(alone).err()?;
        let inner = if key == "text_config" { find_wrong_key(value) } else { None };
        let problem = error.to_string().replace("u64", "a whole number");
        Some(inner.unwrap_or_else(|| format!("`{key}` is {}: {problem}", layers::shorten_value(value))))
    })
}

impl Architecture {
    pub fn parse_config(text: &str, name: &str) -> Result<Architecture> {
        let refused = |problem: String| Error::Model { model: name.to_owned(), problem };
        let merged =
            aliases::merge_aliases(text).map_err(|problem| refused(format!("invalid configuration: {problem}")))?;
        let text = merged.as_deref().unwrap_or(text);
        let config: ModelConfig = serde_json::from_str(text).map_err(|error| {
            let wrong_key = serde_json::from_str(text).ok().and_then(|config| find_wrong_key(&config));
            refused(format!("invalid configuration: {}", wrong_key.unwrap_or_else(|| error.to_string())))
        })?;
        check_lists(text).and_then(|()| config.into_architecture(name)).map_err(refused)
    }
}

impl ModelConfig {
    fn into_architecture(self, name: &str) -> Parsed<Architecture> {
        if let Some(architectures) = self.architectures.as_ref().filter(|classes| !classes.is_empty()) {
            let generates = |class: &String| GENERATORS.iter().any(|part| class.contains(part));
            if !architectures.iter().any(generates) {
                return Err(format!("`{}` is not a model that generates text", architectures.join("`, `")));
            }
        }
        self.into_text_config().into_text_architecture(name)
    }

    /// Returns the configuration of the text model, with the fields that only the whole model states.
    fn into_text_config(self) -> ModelConfig {
        let Some(text) = self.text_config else { return self };
        let text = text.into_text_config();
        ModelConfig {
            model_type: if text.model_type.is_empty() { self.model_type } else { text.model_type },
            tie_word_embeddings: self.tie_word_embeddings.or(text.tie_word_embeddings),
            max_position_embeddings: text.max_position_embeddings.or(self.max_position_embeddings),
            quantization_config: self.quantization_config.or(text.quantization_config),
            vision_config: self.vision_config.or(text.vision_config),
            audio_config: self.audio_config.or(text.audio_config),
            ..text
        }
    }

    fn into_text_architecture(self, name: &str) -> Parsed<Architecture> {
        self.check_family()?;
        self.check_unread_keys()?;
        let layers = require_bounded(self.num_hidden_layers, "num_hidden_layers", MAX_COUNT)?;
        let experts = self.expert_layers(layers)?;
        let dense_layers = layers - experts.map_or(0, |experts| experts.layers);
        let kept = self.quantization_config.as_ref().map_or(&[][..], |of| &of.modules_to_not_convert);
        let shared_width = self.shared_intermediate_size.filter(|_| self.model_type == "granitemoehybrid");
        let dense_width = self.intermediate_size_mlp.or(shared_width).or(self.intermediate_size);
        // The first Qwen counts the gate and the other half of the same matrix.
        let dense_width = if self.model_type == "qwen" { dense_width.map(|both| both / 2) } else { dense_width };
        let parts = [("vision", &self.vision_config), ("audio", &self.audio_config)];
        Ok(Architecture {
            name: name.to_owned(),
            layers,
            hidden: require_bounded(self.hidden_size, "hidden_size", MAX_WIDTH)?,
            vocabulary: require_bounded(self.vocab_size, "vocab_size", MAX_WIDTH)?,
            has_tied_embeddings: self.has_tied_embeddings(),
            quantises_experts_only: experts.is_some() && kept.iter().any(|module| module.ends_with("self_attn")),
            quantisation: self.quantization_config.as_ref().and_then(|of| of.quant_method.clone()),
            attention: self.parse_attention(layers)?,
            matrices: if self.has_gates() { GATED_MATRICES } else { GATED_MATRICES - 1 },
            intermediate: match dense_layers {
                0 => 0,
                _ => require_bounded(dense_width, "intermediate_size", MAX_WIDTH)?,
            },
            dense_layers,
            double_layers: match self.use_double_wide_mlp {
                Some(true) => self.num_kv_shared_layers.unwrap_or(0).min(dense_layers),
                _ => 0,
            },
            experts,
            layer_inputs: self.layer_inputs()?,
            streams: self.streams()?,
            max_tokens: self.max_position_embeddings,
            uncounted_parts: parts.iter().filter(|(_, part)| part.is_some()).map(|(part, _)| *part).collect(),
        })
    }

    /// Returns an error for models that do not generate text, and for those with keys that are not read.
    fn check_family(&self) -> Parsed<()> {
        let family = self.model_type.as_str();
        if ENCODERS.contains(&family) {
            return Err(format!("`{family}` is not a model that generates text"));
        }
        if OTHER_KEYS.contains(&family) {
            return Err(format!("models of type `{family}` are described by other keys and are not supported"));
        }
        Ok(())
    }

    /// Returns whether the feed-forward networks have gates.
    fn has_gates(&self) -> bool {
        let family = self.model_type.as_str();
        let mut activations = [&self.hidden_act, &self.mlp_hidden_act].into_iter().flatten();
        let is_ungated = |activation: &String| UNGATED_ACTIVATIONS.contains(&activation.as_str());
        GATED.contains(&family) || !UNGATED.contains(&family) && !activations.any(is_ungated)
    }

    fn layer_inputs(&self) -> Parsed<Option<LayerInputs>> {
        let Some(width) = self.hidden_size_per_layer_input.filter(|width| *width > 0) else { return Ok(None) };
        let vocabulary = self.vocab_size_per_layer_input.or(self.vocab_size);
        Ok(Some(LayerInputs {
            width: require_bounded(Some(width), "hidden_size_per_layer_input", MAX_WIDTH)?,
            vocabulary: require_bounded(vocabulary, "vocab_size_per_layer_input", MAX_WIDTH)?,
        }))
    }

    fn streams(&self) -> Parsed<Option<Streams>> {
        let (count, rank) = (self.altup_num_inputs, self.laurel_rank);
        if count.or(rank).is_none() {
            return Ok(None);
        }
        Ok(Some(Streams {
            count: require_bounded(count, "altup_num_inputs", MAX_COUNT)?,
            residual_rank: require_bounded(rank, "laurel_rank", MAX_WIDTH)?,
        }))
    }

    fn has_tied_embeddings(&self) -> bool {
        let family = self.model_type.as_str();
        let is_tied_by_default =
            || TIED.contains(&family) || TIED_PREFIXES.iter().any(|start| family.starts_with(start));
        self.tie_word_embeddings.unwrap_or_else(is_tied_by_default)
    }

    fn parse_attention(&self, layers: u64) -> Parsed<Attention> {
        let hidden = require_bounded(self.hidden_size, "hidden_size", MAX_WIDTH)?;
        let heads = || require_bounded(self.num_attention_heads, "num_attention_heads", MAX_COUNT);
        if self.kv_lora_rank.is_some() {
            self.check_latent_layers(layers)?;
            let heads = heads()?;
            return Ok(Attention::Latent(LatentAttention {
                heads,
                query_rank: match self.q_lora_rank {
                    Some(None) => None,
                    rank => Some(require_bounded(rank.flatten(), "q_lora_rank", MAX_WIDTH)?),
                },
                kv_rank: require_bounded(self.kv_lora_rank, "kv_lora_rank", MAX_WIDTH)?,
                nope_dim: require_bounded(self.qk_nope_head_dim, "qk_nope_head_dim", MAX_WIDTH)?,
                rope_dim: require_bounded(self.qk_rope_head_dim, "qk_rope_head_dim", MAX_WIDTH)?,
                value_dim: require_bounded(self.v_head_dim, "v_head_dim", MAX_WIDTH)?,
                index: self.sparse_index()?,
            }));
        }
        if let Some(most_keys) = self.index_topk.filter(|most_keys| *most_keys > 0) {
            return Err(format!(
                "`index_topk` is {most_keys}: sparse attention is only supported with latent attention (`kv_lora_rank`)"
            ));
        }
        self.check_latent_rank()?;
        // Before the heads, which models without attention do not have.
        let layout = self.layer_layout(layers, hidden)?;
        let heads = heads()?;
        let kv_heads = require_bounded(self.num_key_value_heads.or(Some(heads)), "num_key_value_heads", heads)?;
        if heads % kv_heads != 0 {
            return Err(format!("{heads} heads cannot share {kv_heads} key-value heads equally"));
        }
        let head_dim = self.grouped_head_dim(hidden, heads)?;
        Ok(Attention::Grouped(GroupedAttention {
            heads,
            kv_heads,
            head_dim,
            full_heads: self.full_heads(heads, kv_heads, head_dim)?,
            sharing: layout.sharing,
            // AFMoE has gates without a key.
            has_output_gate: self.attn_output_gate.unwrap_or(self.model_type == "afmoe"),
            windowed_layers: layout.windowed_layers,
            window: layout.window,
            linear: layout.linear,
        }))
    }

    fn full_heads(&self, heads: u64, kv_heads: u64, head_dim: u64) -> Parsed<Option<FullHeads>> {
        let projects_values = self.attention_k_eq_v != Some(true);
        if self.global_head_dim.is_none() && projects_values {
            return Ok(None);
        }
        // Without joint keys and values, Gemma 4 ignores this number.
        let global_heads = self.num_global_key_value_heads.filter(|_| !projects_values);
        let global_heads = require_bounded(global_heads.or(Some(kv_heads)), "num_global_key_value_heads", heads)?;
        if !heads.is_multiple_of(global_heads) {
            return Err(format!("{heads} heads cannot share {global_heads} key-value heads equally"));
        }
        Ok(Some(FullHeads {
            kv_heads: global_heads,
            head_dim: require_bounded(self.global_head_dim.or(Some(head_dim)), "global_head_dim", MAX_WIDTH)?,
            projects_values,
        }))
    }

    fn sparse_index(&self) -> Parsed<Option<SparseIndex>> {
        let Some(most_keys) = self.index_topk.filter(|most_keys| *most_keys > 0) else { return Ok(None) };
        Ok(Some(SparseIndex {
            heads: require_bounded(self.index_n_heads, "index_n_heads", MAX_COUNT)?,
            head_dim: require_bounded(self.index_head_dim, "index_head_dim", MAX_WIDTH)?,
            most_keys,
        }))
    }

    fn grouped_head_dim(&self, hidden: u64, heads: u64) -> Parsed<u64> {
        let head_dim = require_bounded(self.head_dim.or(Some(hidden / heads)), "head_dim", MAX_WIDTH)?;
        match self.v_head_dim.filter(|value_dim| *value_dim != head_dim) {
            Some(value_dim) => Err(format!(
                "`v_head_dim` is {value_dim}, but `head_dim` is {head_dim}: values of another size than keys are not \
                 supported"
            )),
            None => Ok(head_dim),
        }
    }

    /// Returns an error if a model with latent attention lacks the size of its compressed vectors.
    fn check_latent_rank(&self) -> Parsed<()> {
        let is_latent = LATENT.contains(&self.model_type.as_str())
            || [self.q_lora_rank.flatten(), self.qk_nope_head_dim, self.qk_rope_head_dim]
                .into_iter()
                .flatten()
                .any(|size| size > 0);
        match is_latent && self.use_mla != Some(false) {
            true => {
                Err("the configuration lacks `kv_lora_rank`, the size of the compressed keys and values".to_owned())
            }
            false => Ok(()),
        }
    }
}

impl PeriodicLayers {
    /// Checks the fields `{field}_period` and `{field}_offset`.
    fn check_period(period: Option<u64>, offset: u64, field: &str) -> Parsed<PeriodicLayers> {
        let period = require_bounded(period, &format!("{field}_period"), MAX_COUNT)?;
        if offset >= period {
            return Err(format!("`{field}_offset` is {offset}, but must be less than `{field}_period`, {period}"));
        }
        Ok(PeriodicLayers { period, offset })
    }

    fn contains(self, layer: u64) -> bool {
        layer % self.period == self.offset
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn embeddings_are_tied_by_the_default_of_their_class() {
        let is_tied = |text: &str| serde_json::from_str::<ModelConfig>(text).expect(text).has_tied_embeddings();
        for family in TIED {
            assert!(is_tied(&format!(r#"{{"model_type":"{family}"}}"#)), "{family}");
            assert!(!is_tied(&format!(r#"{{"model_type":"{family}","tie_word_embeddings":false}}"#)), "{family}");
        }
        assert!(!is_tied(r#"{"model_type":"falcon_h1"}"#) && !is_tied("{}"));
    }
}
