//! A JSON value in a column. The value is kept as its original text, so that a round trip changes no digit. The text is
//! valid JSON on one line. Values created here are compact with sorted names, so equal values have equal texts.

use super::key::excerpt;
use crate::error::RowError;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// A JSON value as text.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Json(String);

impl Json {
    /// Serialises a value compactly with sorted names; fails on a map with non-text keys.
    pub fn new<T: Serialize + ?Sized>(value: &T) -> Result<Json, RowError> {
        serde_json::to_value(value)
            .map(Json::from)
            .map_err(|error| RowError::new(format!("the value has no JSON form: {error}")))
    }

    /// Returns the value `null`.
    pub fn null() -> Json {
        Json("null".to_owned())
    }

    /// Parses a text, which is kept verbatim unless it spans several lines.
    pub fn parse(text: &str) -> Result<Json, RowError> {
        let wrong = |error| RowError::new(format!("`{}` is not JSON: {error}", excerpt(text)));
        if spans_lines(text) {
            let value: Value = serde_json::from_str(text).map_err(wrong)?;
            return Ok(Json::from(value));
        }
        let raw: &RawValue = serde_json::from_str(text).map_err(wrong)?;
        Ok(Json(raw.get().to_owned()))
    }

    /// Returns the text.
    pub fn as_text(&self) -> &str {
        &self.0
    }

    /// Deserialises the value.
    pub fn parse_as<T: DeserializeOwned>(&self) -> Result<T, RowError> {
        serde_json::from_str(&self.0)
            .map_err(|error| RowError::new(format!("`{}` has an unexpected form: {error}", excerpt(&self.0))))
    }
}

impl From<Value> for Json {
    fn from(mut value: Value) -> Json {
        // Sorted explicitly, because `serde_json` maps keep insertion order if any crate enables that feature.
        value.sort_all_objects();
        Json(value.to_string())
    }
}

impl Serialize for Json {
    /// Serialises as the value itself, not as a string.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_str(&self.0).map_err(serde::ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Json, D::Error> {
        let text = <&RawValue>::deserialize(deserializer)?.get();
        if spans_lines(text) {
            return Json::parse(text).map_err(|error| serde::de::Error::custom(error.problem));
        }
        Ok(Json(text.to_owned()))
    }
}

fn spans_lines(text: &str) -> bool {
    // Byte-wise `contains` is fast; this runs for every JSON value of every row.
    text.as_bytes().contains(&b'\n') || text.as_bytes().contains(&b'\r')
}
