//! Keys that change the architecture and are not read.
//!
//! A configuration that sets one of them is refused: without the key it describes another model.

use super::layers::{is_set, shorten_value};
use super::{ModelConfig, Parsed};
use serde_json::Value;

/// What the keys describe, and the keys.
const UNREAD_KEYS: [(&str, &[&str]); 6] = [
    (
        "layers with heads of different sizes or numbers",
        &["attention_other_setting", "swa_head_dim", "swa_num_attention_heads", "swa_num_key_value_heads"],
    ),
    ("attention layers of this form", &["multi_query_group_num", "num_attention_groups", "o_lora_rank", "share_q_dim"]),
    ("dense branches next to experts", &["parallel_attn_mlp_res", "residual_moe"]),
    ("expert layers of this form", &["moe_latent_size", "moe_layers_enum", "share_expert_dim"]),
    ("encoders with cross-attention", &["is_encoder_decoder"]),
    ("layers that are computed repeatedly", &["total_ut_steps"]),
];
/// Words between the underscores of keys that count something.
const COUNT_WORDS: [&str; 3] = ["count", "n", "num"];
/// Words of keys that count how experts are grouped or sent, which does not change their number.
const GROUP_WORDS: [&str; 3] = ["group", "groups", "per"];

impl ModelConfig {
    pub(super) fn check_unread_keys(&self) -> Parsed<()> {
        for (part, keys) in UNREAD_KEYS {
            let stated = keys.iter().find_map(|key| Some((key, self.other.get(*key).filter(|value| is_set(value))?)));
            if let Some((key, value)) = stated {
                return Err(format!(
                    "`{key}` is {}: {part} are not supported; remove the key to predict the model without them",
                    shorten_value(value)
                ));
            }
        }
        match self.other.iter().find(|(key, value)| counts_experts(key) && is_above_one(value)) {
            Some((key, value)) => Err(format!(
                "`{key}` is {}, but this number of experts is not read; the known key is `num_experts`, with \
                 `num_experts_per_tok` and `n_shared_experts`",
                shorten_value(value)
            )),
            None => Ok(()),
        }
    }
}

/// Returns whether a key seems to state a number of experts.
fn counts_experts(key: &str) -> bool {
    let words: Vec<&str> = key.split('_').collect();
    let has = |some: &[&str]| words.iter().any(|word| some.contains(word));
    let is_count = has(&["experts"]) || has(&["expert", "moe"]) && has(&COUNT_WORDS);
    is_count && !has(&GROUP_WORDS)
}

fn is_above_one(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.as_f64().is_some_and(|number| number > 1.0),
        Value::Array(entries) => entries.iter().any(is_above_one),
        _ => false,
    }
}
