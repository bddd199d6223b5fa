//! Fields of the `config.json` that is published with each model, and the architecture that they describe.

use crate::architecture::{Architecture, Attention, ExpertLayers, GroupedAttention, LatentAttention, LinearAttention};
use serde::Deserialize;

/// Limit on the number of layers, heads and experts.
const MAX_COUNT: u64 = 1 << 14;
const MAX_WIDTH: u64 = 1 << 24;
/// Unsupported model families: their feed-forward network has no gate, so it has two matrices instead of three.
const UNGATED: [&str; 8] = ["bloom", "falcon", "gpt2", "gpt_neo", "gpt_neox", "opt", "phi", "starcoder2"];

#[derive(Deserialize)]
pub(crate) struct ModelConfig {
    #[serde(default)]
    model_type: String,
    text_config: Option<Box<ModelConfig>>,
    num_hidden_layers: Option<u64>,
    hidden_size: Option<u64>,
    vocab_size: Option<u64>,
    tie_word_embeddings: Option<bool>,
    intermediate_size: Option<u64>,
    num_attention_heads: Option<u64>,
    num_key_value_heads: Option<u64>,
    head_dim: Option<u64>,
    attn_output_gate: Option<bool>,
    sliding_window: Option<u64>,
    use_sliding_window: Option<bool>,
    sliding_window_pattern: Option<u64>,
    layer_types: Option<Vec<String>>,
    linear_num_key_heads: Option<u64>,
    linear_num_value_heads: Option<u64>,
    linear_key_head_dim: Option<u64>,
    linear_value_head_dim: Option<u64>,
    q_lora_rank: Option<u64>,
    kv_lora_rank: Option<u64>,
    qk_nope_head_dim: Option<u64>,
    qk_rope_head_dim: Option<u64>,
    v_head_dim: Option<u64>,
    index_topk: Option<u64>,
    #[serde(alias = "num_local_experts", alias = "n_routed_experts")]
    num_experts: Option<u64>,
    num_experts_per_tok: Option<u64>,
    moe_intermediate_size: Option<u64>,
    first_k_dense_replace: Option<u64>,
    n_shared_experts: Option<u64>,
    shared_expert_intermediate_size: Option<u64>,
    quantization_config: Option<Quantization>,
}

#[derive(Deserialize)]
struct Quantization {
    #[serde(default)]
    modules_to_not_convert: Vec<String>,
}

type Parsed<T> = std::result::Result<T, String>;

/// Returns a required size, or an error if the size is missing or not from 1 to `most`.
fn require_bounded(value: Option<u64>, field: &str, most: u64) -> Parsed<u64> {
    match value {
        None => Err(format!("the configuration lacks `{field}`")),
        Some(size) if (1..=most).contains(&size) => Ok(size),
        Some(size) => Err(format!("`{field}` is {size}, but must be from 1 to {most}")),
    }
}

impl ModelConfig {
    pub(crate) fn into_architecture(self, name: &str) -> Parsed<Architecture> {
        if let Some(text) = self.text_config {
            let tied = self.tie_word_embeddings.or(text.tie_word_embeddings);
            return ModelConfig { tie_word_embeddings: tied, ..*text }.into_architecture(name);
        }
        if UNGATED.contains(&self.model_type.as_str()) {
            return Err(format!(
                "models of type `{}` have no gated feed-forward network and are not supported",
                self.model_type
            ));
        }
        let layers = require_bounded(self.num_hidden_layers, "num_hidden_layers", MAX_COUNT)?;
        let experts = self.expert_layers(layers)?;
        let dense_layers = layers - experts.map_or(0, |experts| experts.layers);
        let kept = self.quantization_config.as_ref().map_or(&[][..], |of| &of.modules_to_not_convert);
        Ok(Architecture {
            name: name.to_owned(),
            layers,
            hidden: require_bounded(self.hidden_size, "hidden_size", MAX_WIDTH)?,
            vocabulary: require_bounded(self.vocab_size, "vocab_size", MAX_WIDTH)?,
            has_tied_embeddings: self.tie_word_embeddings.unwrap_or(false),
            quantises_experts_only: experts.is_some() && kept.iter().any(|module| module.ends_with("self_attn")),
            attention: self.parse_attention(layers)?,
            intermediate: match dense_layers {
                0 => 0,
                _ => require_bounded(self.intermediate_size, "intermediate_size", MAX_WIDTH)?,
            },
            dense_layers,
            experts,
        })
    }

    fn parse_attention(&self, layers: u64) -> Parsed<Attention> {
        let heads = require_bounded(self.num_attention_heads, "num_attention_heads", MAX_COUNT)?;
        if self.kv_lora_rank.is_some() {
            return Ok(Attention::Latent(LatentAttention {
                heads,
                query_rank: require_bounded(self.q_lora_rank, "q_lora_rank", MAX_WIDTH)?,
                kv_rank: require_bounded(self.kv_lora_rank, "kv_lora_rank", MAX_WIDTH)?,
                nope_dim: require_bounded(self.qk_nope_head_dim, "qk_nope_head_dim", MAX_WIDTH)?,
                rope_dim: require_bounded(self.qk_rope_head_dim, "qk_rope_head_dim", MAX_WIDTH)?,
                value_dim: require_bounded(self.v_head_dim, "v_head_dim", MAX_WIDTH)?,
                most_keys: self.index_topk,
            }));
        }
        let kv_heads = require_bounded(self.num_key_value_heads.or(Some(heads)), "num_key_value_heads", heads)?;
        if heads % kv_heads != 0 {
            return Err(format!("{heads} heads cannot share {kv_heads} key-value heads equally"));
        }
        let hidden = require_bounded(self.hidden_size, "hidden_size", MAX_WIDTH)?;
        let (windowed_layers, linear) = (self.windowed_layers(layers), self.linear_attention()?);
        if windowed_layers + linear.map_or(0, |linear| linear.layers) > layers {
            return Err(format!("`layer_types` names more layers than `num_hidden_layers`, {layers}"));
        }
        Ok(Attention::Grouped(GroupedAttention {
            heads,
            kv_heads,
            head_dim: require_bounded(self.head_dim.or(Some(hidden / heads)), "head_dim", MAX_WIDTH)?,
            has_output_gate: self.attn_output_gate.unwrap_or(false),
            windowed_layers,
            window: if windowed_layers > 0 {
                require_bounded(self.sliding_window, "sliding_window", MAX_WIDTH)?
            } else {
                0
            },
            linear,
        }))
    }

    fn windowed_layers(&self, layers: u64) -> u64 {
        if self.sliding_window.is_none() || self.use_sliding_window == Some(false) {
            return 0;
        }
        match (&self.layer_types, self.sliding_window_pattern) {
            (Some(_), _) => self.layers_of_type("sliding_attention"),
            // Every `pattern`-th layer attends to all tokens.
            (None, Some(pattern)) if pattern > 0 => layers - layers / pattern,
            (None, _) => layers,
        }
    }

    fn layers_of_type(&self, wanted: &str) -> u64 {
        self.layer_types.as_ref().map_or(0, |types| types.iter().filter(|of| *of == wanted).count() as u64)
    }

    fn linear_attention(&self) -> Parsed<Option<LinearAttention>> {
        let layers = self.layers_of_type("linear_attention");
        if layers == 0 {
            return Ok(None);
        }
        Ok(Some(LinearAttention {
            layers,
            key_heads: require_bounded(self.linear_num_key_heads, "linear_num_key_heads", MAX_COUNT)?,
            value_heads: require_bounded(self.linear_num_value_heads, "linear_num_value_heads", MAX_COUNT)?,
            key_dim: require_bounded(self.linear_key_head_dim, "linear_key_head_dim", MAX_WIDTH)?,
            value_dim: require_bounded(self.linear_value_head_dim, "linear_value_head_dim", MAX_WIDTH)?,
        }))
    }

    fn expert_layers(&self, layers: u64) -> Parsed<Option<ExpertLayers>> {
        let Some(experts) = self.num_experts.filter(|experts| *experts > 0) else { return Ok(None) };
        let dense = self.first_k_dense_replace.unwrap_or(0);
        let intermediate = self.moe_intermediate_size.or(self.intermediate_size);
        let intermediate = require_bounded(intermediate, "moe_intermediate_size", MAX_WIDTH)?;
        let shared = self.n_shared_experts.map(|shared| shared.saturating_mul(intermediate));
        let shared = shared.or(self.shared_expert_intermediate_size).unwrap_or(0);
        if dense >= layers {
            return Err(format!("{dense} dense layers leave no expert layer among {layers} layers"));
        }
        Ok(Some(ExpertLayers {
            layers: layers - dense,
            experts: require_bounded(Some(experts), "num_experts", MAX_COUNT)?,
            top_k: require_bounded(self.num_experts_per_tok, "num_experts_per_tok", experts)?,
            intermediate,
            shared_intermediate: if shared > 0 {
                require_bounded(Some(shared), "n_shared_experts", MAX_WIDTH)?
            } else {
                0
            },
        }))
    }
}
