//! Parses arbitrary texts as target descriptions. Accepted descriptions contain only fields of the allow list, and
//! words without characters that code would need. Useful seeds are the column `target_text` of a store.

use super::valid_text;
use serde_json::Value;

pub fn run(bytes: &[u8]) {
    let text = valid_text(bytes);
    let Ok(described) = targets::parse_checked(text) else { return };
    let fields = described.as_object().expect("an object");
    for refused in ["host", "tag", "keys", "libs", "cl-opt", "jit", "from_device", "system-lib"] {
        assert!(!fields.contains_key(refused), "{text}");
    }
    let is_word = |text: &str| text.chars().all(|sign| sign.is_ascii_alphanumeric() || "_.-+".contains(sign));
    let has_words = |value: &Value| match value {
        Value::String(text) => is_word(text),
        Value::Array(items) => items.iter().all(|item| item.as_str().is_some_and(is_word)),
        Value::Bool(_) | Value::Number(_) => true,
        Value::Null | Value::Object(_) => false,
    };
    assert!(fields.values().all(has_words), "{text}");
    assert_eq!(targets::parse_checked(&described.to_string()).as_ref(), Ok(&described));
}
