//! Keys with the same meaning, of which a configuration may contain several with equal values.

use serde_json::{Map, Value};

/// The aliases of [`super::ModelConfig`], each group with the name of its field first.
const ALIASES: [&[&str]; 4] = [
    &["num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"],
    &["num_experts_per_tok", "moe_k", "moe_topk", "top_k_experts"],
    &["first_k_dense_replace", "num_dense_layers"],
    &["n_shared_experts", "num_shared_expert", "num_shared_experts", "moe_num_shared_experts"],
];

/// Removes keys that repeat the value of another key of their group. Returns None if there are none, or an error if
/// the values differ.
pub(super) fn merge_aliases(text: &str) -> Result<Option<String>, String> {
    // Other errors are described by the parser of the configuration.
    let Ok(Value::Object(mut config)) = serde_json::from_str(text) else { return Ok(None) };
    Ok(merge_object(&mut config)?.then(|| Value::Object(config).to_string()))
}

fn merge_object(config: &mut Map<String, Value>) -> Result<bool, String> {
    let mut is_changed = false;
    for group in ALIASES {
        let mut first: Option<(&str, Value)> = None;
        for key in group.iter().copied() {
            match (&first, config.get(key)) {
                (_, None | Some(Value::Null)) => is_changed |= config.remove(key).is_some(),
                (None, Some(value)) => first = Some((key, value.clone())),
                (Some((other, known)), Some(value)) if known != value => {
                    return Err(format!("`{other}` is {known}, but `{key}`, which has the same meaning, is {value}"));
                }
                (Some(_), Some(_)) => is_changed |= config.remove(key).is_some(),
            }
        }
    }
    match config.get_mut("text_config").and_then(Value::as_object_mut) {
        Some(text) => Ok(merge_object(text)? || is_changed),
        None => Ok(is_changed),
    }
}
