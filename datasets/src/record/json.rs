//! A JSON value inside a column.
//!
//! Kept as text, exactly as written, because nothing in this crate looks inside it and because a round trip must not
//! change a digit. The text is valid JSON on one line; values made here are compact with sorted names, so equal
//! values have equal texts.

use super::key::excerpt;
use crate::error::RowError;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// A JSON value, as text.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Json(String);

impl Json {
    /// The text of a value: compact, names sorted.
    ///
    /// Fails where `serde_json` does, for example on a map whose names are not texts.
    pub fn new<T: Serialize + ?Sized>(value: &T) -> Result<Json, RowError> {
        serde_json::to_value(value)
            .map(Json::from)
            .map_err(|error| RowError::new(format!("the value has no JSON form: {error}")))
    }

    /// The value `null`.
    pub fn null() -> Json {
        Json("null".to_owned())
    }

    /// A value from text, which is kept as it is unless it spans several lines.
    pub fn parse(text: &str) -> Result<Json, RowError> {
        let wrong = |error| RowError::new(format!("`{}` is not JSON: {error}", excerpt(text)));
        if spans_lines(text) {
            let value: Value = serde_json::from_str(text).map_err(wrong)?;
            return Ok(Json::from(value));
        }
        let raw: &RawValue = serde_json::from_str(text).map_err(wrong)?;
        Ok(Json(raw.get().to_owned()))
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// The value as a Rust type.
    pub fn to<T: DeserializeOwned>(&self) -> Result<T, RowError> {
        serde_json::from_str(&self.0)
            .map_err(|error| RowError::new(format!("`{}` does not fit: {error}", excerpt(&self.0))))
    }
}

impl From<Value> for Json {
    fn from(mut value: Value) -> Json {
        // Sorted here and not left to `serde_json`, whose maps keep their order when any crate asks for that.
        value.sort_all_objects();
        Json(value.to_string())
    }
}

impl Serialize for Json {
    /// As the value itself, not as a text that holds it.
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
    // `contains` of a byte is fast; this runs over every JSON value of every row.
    text.as_bytes().contains(&b'\n') || text.as_bytes().contains(&b'\r')
}
