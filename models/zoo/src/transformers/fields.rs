//! A `config.json` as the families read it: bounded numbers by name, and which names were never asked for.

use models::error::{Error, Result};
use models::names;
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::collections::BTreeSet;

/// Extents, counts and widths in a configuration are at most this; products of two stay far below 64 bits.
const MAX_SIZE: i64 = 1 << 24;
/// Layers, and anything else that multiplies the number of operators.
const MAX_COUNT: i64 = 1 << 10;

/// The fields of a configuration.
pub(super) struct Fields {
    file: String,
    map: Map<String, Value>,
    /// Names that were given one by one beside the text, each of which must be one that is asked for.
    given: BTreeSet<String>,
    /// Names that were asked for.
    used: RefCell<BTreeSet<String>>,
}

impl Fields {
    /// Reads the text of a configuration; the file is only named in errors.
    pub fn parse(text: &str, file: &str) -> Result<Fields> {
        let malformed =
            |reason: String| Error::Malformed { file: file.to_owned(), place: "as a whole".to_owned(), reason };
        match serde_json::from_str(text) {
            Ok(Value::Object(map)) => Ok(Fields::of(file, map)),
            Ok(_) => Err(malformed("a configuration must be a JSON object".to_owned())),
            Err(error) => Err(malformed(format!("it is no JSON ({error})"))),
        }
    }

    fn of(file: &str, map: Map<String, Value>) -> Fields {
        Fields { file: file.to_owned(), map, given: BTreeSet::new(), used: RefCell::default() }
    }

    /// Sets a field, as `key=value` in a name does: the value is JSON, or else a text. False where it was set before.
    pub fn set(&mut self, key: &str, value: &str) -> bool {
        let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
        self.map.insert(key.to_owned(), value);
        self.given.insert(key.to_owned())
    }

    /// That every field which was set one by one changes something; asked when all have been read.
    pub fn check_given(&self) -> std::result::Result<(), String> {
        let used = self.used.borrow();
        match self.given.iter().find(|name| !used.contains(*name)) {
            None => Ok(()),
            Some(name) => {
                let hint = names::hint(name, used.iter().map(String::as_str));
                Err(format!("the graph does not depend on a field `{name}`; {hint}"))
            }
        }
    }

    /// An object inside of this one, or an empty one.
    pub fn object(&self, name: &str) -> Fields {
        let map = self.find(name).and_then(Value::as_object).cloned().unwrap_or_default();
        Fields::of(&self.file, map)
    }

    /// A positive extent that must be there.
    pub fn size(&self, name: &str) -> Result<i64> {
        self.optional_size(name)?.ok_or_else(|| self.missing(name))
    }

    pub fn size_or(&self, name: &str, default: i64) -> Result<i64> {
        Ok(self.optional_size(name)?.unwrap_or(default))
    }

    pub fn optional_size(&self, name: &str) -> Result<Option<i64>> {
        self.bounded(name, 1..=MAX_SIZE)
    }

    /// How many layers or groups there are.
    pub fn count(&self, name: &str) -> Result<i64> {
        self.bounded(name, 1..=MAX_COUNT)?.ok_or_else(|| self.missing(name))
    }

    pub fn count_or(&self, name: &str, default: i64) -> Result<i64> {
        Ok(self.bounded(name, 1..=MAX_COUNT)?.unwrap_or(default))
    }

    /// A list of counts.
    pub fn counts(&self, name: &str) -> Result<Vec<i64>> {
        let value = self.find(name).ok_or_else(|| self.missing(name))?;
        let list = value.as_array().filter(|list| (1..=8).contains(&list.len()));
        let counts = list.and_then(|list| {
            let count = |value: &Value| value.as_i64().filter(|count| (1..=MAX_COUNT).contains(count));
            list.iter().map(count).collect()
        });
        counts.ok_or_else(|| self.wrong(name, value, &format!("must be 1 to 8 numbers from 1 to {MAX_COUNT}")))
    }

    /// A positive number, such as an epsilon.
    pub fn positive_or(&self, name: &str, default: f64) -> Result<f64> {
        let Some(value) = self.find(name) else { return Ok(default) };
        let number = value.as_f64().filter(|number| number.is_finite() && *number > 0.0);
        number.ok_or_else(|| self.wrong(name, value, "must be a positive number"))
    }

    pub fn flag_or(&self, name: &str, default: bool) -> Result<bool> {
        let Some(value) = self.find(name) else { return Ok(default) };
        value.as_bool().ok_or_else(|| self.wrong(name, value, "must be true or false"))
    }

    pub fn text_or<'a>(&'a self, name: &str, default: &'a str) -> Result<&'a str> {
        let Some(value) = self.find(name) else { return Ok(default) };
        value.as_str().ok_or_else(|| self.wrong(name, value, "must be a text"))
    }

    /// Whatever stands there; nothing for `null`.
    pub fn find(&self, name: &str) -> Option<&Value> {
        self.used.borrow_mut().insert(name.to_owned());
        self.map.get(name).filter(|value| !value.is_null())
    }

    /// Names of fields that nobody asked for.
    pub fn unused(&self) -> Vec<String> {
        let used = self.used.borrow();
        self.map.keys().filter(|name| !used.contains(*name)).cloned().collect()
    }

    /// A refusal of a field that is well formed.
    pub fn unsupported(&self, name: &str, reason: impl Into<String>) -> Error {
        Error::Unsupported { file: self.file.clone(), place: format!("field `{name}`"), reason: reason.into() }
    }

    /// A refusal of a field that contradicts itself or another.
    pub fn malformed(&self, name: &str, reason: impl Into<String>) -> Error {
        Error::Malformed { file: self.file.clone(), place: format!("field `{name}`"), reason: reason.into() }
    }

    fn bounded(&self, name: &str, allowed: std::ops::RangeInclusive<i64>) -> Result<Option<i64>> {
        let Some(value) = self.find(name) else { return Ok(None) };
        match value.as_i64() {
            Some(number) if allowed.contains(&number) => Ok(Some(number)),
            _ => {
                let (first, last) = (allowed.start(), allowed.end());
                Err(self.wrong(name, value, &format!("must be a number from {first} to {last}")))
            }
        }
    }

    fn wrong(&self, name: &str, value: &Value, must: &str) -> Error {
        let shown: String = value.to_string().chars().take(80).collect();
        self.malformed(name, format!("it {must}, is `{shown}`"))
    }

    fn missing(&self, name: &str) -> Error {
        self.malformed(name, "it is missing")
    }
}
