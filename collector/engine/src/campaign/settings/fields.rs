//! Rejects unknown keys of a configuration file, which serde does not do for a struct with flattened groups.

use super::Settings;
use serde::de::{Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::sync::LazyLock;

/// Checks that all keys of a TOML text are settings. The error contains the line.
pub fn check_fields(text: &str) -> Result<(), toml::de::Error> {
    toml::from_str::<KnownFields>(text).map(|KnownFields| ())
}

static NAMES: LazyLock<Vec<String>> = LazyLock::new(|| match serde_json::to_value(Settings::default()) {
    Ok(serde_json::Value::Object(fields)) => fields.keys().cloned().collect(),
    _ => Vec::new(),
});

struct KnownFields;

struct FieldName;

impl<'de> Deserialize<'de> for KnownFields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<KnownFields, D::Error> {
        deserializer.deserialize_map(KnownFields)
    }
}

impl<'de> Visitor<'de> for KnownFields {
    type Value = KnownFields;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table of settings")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<KnownFields, A::Error> {
        while map.next_entry::<FieldName, IgnoredAny>()?.is_some() {}
        Ok(KnownFields)
    }
}

impl<'de> Deserialize<'de> for FieldName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<FieldName, D::Error> {
        let name = String::deserialize(deserializer)?;
        if NAMES.contains(&name) {
            return Ok(FieldName);
        }
        let known: Vec<String> = NAMES.iter().map(|known| format!("`{known}`")).collect();
        Err(D::Error::custom(format!("unknown field `{name}`, expected one of {}", known.join(", "))))
    }
}
