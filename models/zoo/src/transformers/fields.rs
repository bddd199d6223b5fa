//! Typed and bounded access to the fields of a `config.json`; records which fields are read.

use models::error::{Error, Result};
use models::names;
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::collections::BTreeSet;

/// Maximum of extents and widths; products of two fit 64 bits.
const MAX_SIZE: i64 = 1 << 24;
/// Maximum number of layers, heads and the like.
const MAX_COUNT: i64 = 1 << 10;

pub(super) struct Fields {
    file: String,
    map: Map<String, Value>,
    /// Fields that the user set one by one; fields that the model never reads are errors.
    given: BTreeSet<String>,
    used: RefCell<BTreeSet<String>>,
}

impl Fields {
    pub fn parse_config(text: &str, file: &str) -> Result<Fields> {
        let malformed = |reason: String| Error::Malformed { file: file.to_owned(), place: String::new(), reason };
        match serde_json::from_str(text) {
            Ok(Value::Object(map)) => Ok(Fields::from_map(file, map)),
            Ok(_) => Err(malformed("a configuration must be a JSON object".to_owned())),
            Err(error) => Err(malformed(format!("the configuration is not valid JSON ({error})"))),
        }
    }

    fn from_map(file: &str, map: Map<String, Value>) -> Fields {
        Fields { file: file.to_owned(), map, given: BTreeSet::new(), used: RefCell::default() }
    }

    pub fn set_field(&mut self, key: &str, value: Value) {
        self.map.insert(key.to_owned(), value);
        self.given.insert(key.to_owned());
    }

    /// Fails if a field was set but never read; to be called after the model was built.
    pub fn check_given(&self) -> std::result::Result<(), String> {
        let used = self.used.borrow();
        match self.given.iter().find(|name| !used.contains(*name)) {
            None => Ok(()),
            Some(name) => {
                let hint = names::name_hint(name, used.iter().map(String::as_str));
                Err(format!("the model does not read a field `{name}`; {hint}"))
            }
        }
    }

    /// Returns the fields of a nested object; empty if absent.
    pub fn nested_fields(&self, name: &str) -> Fields {
        let map = self.find_field(name).and_then(Value::as_object).cloned().unwrap_or_default();
        Fields::from_map(&self.file, map)
    }

    pub fn required_size(&self, name: &str) -> Result<i64> {
        self.optional_size(name)?.ok_or_else(|| self.missing_field(name))
    }

    pub fn size_or(&self, name: &str, default: i64) -> Result<i64> {
        Ok(self.optional_size(name)?.unwrap_or(default))
    }

    pub fn optional_size(&self, name: &str) -> Result<Option<i64>> {
        self.bounded_integer(name, 1..=MAX_SIZE)
    }

    pub fn required_count(&self, name: &str) -> Result<i64> {
        self.bounded_integer(name, 1..=MAX_COUNT)?.ok_or_else(|| self.missing_field(name))
    }

    pub fn count_or(&self, name: &str, default: i64) -> Result<i64> {
        Ok(self.bounded_integer(name, 1..=MAX_COUNT)?.unwrap_or(default))
    }

    pub fn required_counts(&self, name: &str) -> Result<Vec<i64>> {
        let value = self.find_field(name).ok_or_else(|| self.missing_field(name))?;
        let list = value.as_array().filter(|list| (1..=8).contains(&list.len()));
        let counts = list.and_then(|list| {
            let count = |value: &Value| value.as_i64().filter(|count| (1..=MAX_COUNT).contains(count));
            list.iter().map(count).collect()
        });
        counts.ok_or_else(|| self.wrong_value(name, value, &format!("must be 1 to 8 numbers from 1 to {MAX_COUNT}")))
    }

    pub fn positive_or(&self, name: &str, default: f64) -> Result<f64> {
        let Some(value) = self.find_field(name) else { return Ok(default) };
        let number = value.as_f64().filter(|number| number.is_finite() && *number > 0.0);
        number.ok_or_else(|| self.wrong_value(name, value, "must be a positive number"))
    }

    pub fn flag_or(&self, name: &str, default: bool) -> Result<bool> {
        let Some(value) = self.find_field(name) else { return Ok(default) };
        value.as_bool().ok_or_else(|| self.wrong_value(name, value, "must be true or false"))
    }

    pub fn text_or<'a>(&'a self, name: &str, default: &'a str) -> Result<&'a str> {
        let Some(value) = self.find_field(name) else { return Ok(default) };
        value.as_str().ok_or_else(|| self.wrong_value(name, value, "must be a text"))
    }

    /// Returns the value of a field and records that it was read; None if absent or `null`.
    pub fn find_field(&self, name: &str) -> Option<&Value> {
        self.used.borrow_mut().insert(name.to_owned());
        self.map.get(name).filter(|value| !value.is_null())
    }

    pub fn unused_fields(&self) -> Vec<String> {
        let used = self.used.borrow();
        self.map.keys().filter(|name| !used.contains(*name)).cloned().collect()
    }

    pub fn unsupported_field(&self, name: &str, reason: impl Into<String>) -> Error {
        Error::Unsupported { file: self.file.clone(), place: format!("field `{name}`"), reason: reason.into() }
    }

    pub fn malformed_field(&self, name: &str, reason: impl Into<String>) -> Error {
        Error::Malformed { file: self.file.clone(), place: format!("field `{name}`"), reason: reason.into() }
    }

    fn bounded_integer(&self, name: &str, allowed: std::ops::RangeInclusive<i64>) -> Result<Option<i64>> {
        let Some(value) = self.find_field(name) else { return Ok(None) };
        match value.as_i64() {
            Some(number) if allowed.contains(&number) => Ok(Some(number)),
            _ => {
                let (first, last) = (allowed.start(), allowed.end());
                Err(self.wrong_value(name, value, &format!("must be a number from {first} to {last}")))
            }
        }
    }

    fn wrong_value(&self, name: &str, value: &Value, must: &str) -> Error {
        let shown: String = value.to_string().chars().take(80).collect();
        self.malformed_field(name, format!("{must}, is `{shown}`"))
    }

    fn missing_field(&self, name: &str) -> Error {
        self.malformed_field(name, "is missing")
    }
}
