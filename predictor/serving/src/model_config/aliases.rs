//! Keys with the same meaning, of which a configuration may contain several with equal values.

use super::ModelConfig;
use serde_json::{Map, Value};

/// Returns the configuration without keys that repeat the value of another key with the same meaning; None if there are
/// no such keys, or an error if the values differ.
pub(super) fn merge_aliases(text: &str) -> Result<Option<String>, String> {
    // Other errors are described by the parser of the configuration.
    let Ok(Value::Object(mut config)) = serde_json::from_str(text) else { return Ok(None) };
    Ok(merge_object(&mut config)?.then(|| Value::Object(config).to_string()))
}

fn merge_object(config: &mut Map<String, Value>) -> Result<bool, String> {
    let mut is_changed = match config.get_mut("text_config").and_then(Value::as_object_mut) {
        Some(text) => merge_object(text)?,
        None => false,
    };
    while let Some(field) = repeated_field(config) {
        let is_alias = |key: &str, value: &Value| {
            let both = [(field.clone(), value.clone()), (key.to_owned(), value.clone())];
            key == field || repeated_field(&Map::from_iter(both)).is_some()
        };
        let same: Vec<(String, Value)> = config
            .iter()
            .filter(|(key, value)| is_alias(key, value))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        if same.len() < 2 {
            break;
        }
        let mut stated = same.iter().filter(|(_, value)| !value.is_null());
        let (kept, known) = stated.next().unwrap_or(&same[0]);
        if let Some((key, value)) = stated.find(|(_, value)| value != known) {
            return Err(format!("`{kept}` is {known}, but `{key}`, which has the same meaning, is {value}"));
        }
        config.retain(|key, _| key == kept || !same.iter().any(|(other, _)| other == key));
        is_changed = true;
    }
    Ok(is_changed)
}

/// Returns the field of [`ModelConfig`] that the configuration states under several keys, if any.
fn repeated_field(config: &Map<String, Value>) -> Option<String> {
    let error = serde_json::from_value::<ModelConfig>(Value::Object(config.clone())).err()?.to_string();
    error.strip_prefix("duplicate field `")?.split('`').next().map(str::to_owned)
}
