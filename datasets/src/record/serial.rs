//! Records as JSON objects from column names to values, without absent values. Reading rejects unknown and missing
//! columns by name. Plain `Deserialize` can report the column only as text, so file readers use `from_json`, whose
//! error has the column as a field.

use super::cell::Cell;
use super::column::Kind;
use super::table::{COLUMNS, ColumnId, Record};
use super::{SCHEMA_VERSION, key::excerpt};
use crate::error::RowError;
use crate::record::batch::Row;
use models::names;
use serde::de::{DeserializeSeed, Error as _, MapAccess, Visitor};
use serde::ser::{Error as _, SerializeMap};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use std::fmt;

impl Record {
    /// Parses a record from one JSON object, without checking the rules of `check`.
    pub fn from_json(text: &[u8]) -> Result<Record, RowError> {
        let mut refusal = None;
        let mut deserializer = serde_json::Deserializer::from_slice(text);
        let record = RecordSeed { refusal: &mut refusal }
            .deserialize(&mut deserializer)
            .and_then(|record| deserializer.end().map(|()| record));
        record.map_err(|error| refusal.unwrap_or_else(|| not_an_object(text, &error)))
    }
}

impl Serialize for Record {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        AsJson(self).serialize(serializer)
    }
}

pub(crate) struct AsJson<'a, R>(pub &'a R);

impl<R: Row> Serialize for AsJson<'_, R> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for column in COLUMNS {
            match self.0.cell(column.id) {
                Cell::Null => {}
                Cell::Bool(value) => map.serialize_entry(column.name, &value)?,
                Cell::Integer(value) => map.serialize_entry(column.name, &value)?,
                Cell::Float(value) => map.serialize_entry(column.name, &value)?,
                Cell::Text(text) if column.kind == Kind::Json => {
                    let raw: &RawValue = serde_json::from_str(text).map_err(S::Error::custom)?;
                    map.serialize_entry(column.name, raw)?;
                }
                Cell::Text(text) => map.serialize_entry(column.name, text)?,
                Cell::List(values) => map.serialize_entry(column.name, values)?,
                Cell::Key(key) => map.serialize_entry(column.name, &key)?,
            }
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Record {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Record, D::Error> {
        RecordSeed { refusal: &mut None }.deserialize(deserializer)
    }
}

struct RecordSeed<'a> {
    refusal: &'a mut Option<RowError>,
}

impl<'de> DeserializeSeed<'de> for RecordSeed<'_> {
    type Value = Record;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Record, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for RecordSeed<'_> {
    type Value = Record;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a record: an object of columns")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Record, A::Error> {
        let mut refuse = |error: RowError| {
            let message = error.to_string();
            *self.refusal = Some(error);
            A::Error::custom(message)
        };
        let mut record = Record::empty();
        let mut seen = [false; COLUMNS.len()];
        let mut unknown = None;
        while let Some(name) = map.next_key_seed(NameSeed)? {
            let id = match name {
                ColumnName::Known(id) => id,
                ColumnName::Unknown(name) => {
                    map.next_value::<serde::de::IgnoredAny>()?;
                    unknown.get_or_insert(name);
                    continue;
                }
            };
            if std::mem::replace(&mut seen[id as usize], true) {
                return Err(refuse(RowError::new("duplicate column").in_field(id.name())));
            }
            record
                .take(id, &mut map)
                .map_err(|error| refuse(RowError::new(without_line(&error)).in_field(id.name())))?;
        }
        if let Some(name) = unknown {
            return Err(refuse(unknown_column(&name, record.schema_version)));
        }
        match COLUMNS.iter().find(|column| !column.nullable && !seen[column.id as usize]) {
            Some(column) => Err(refuse(missing_column(column.name))),
            None => Ok(record),
        }
    }
}

enum ColumnName {
    Known(ColumnId),
    Unknown(String),
}

struct NameSeed;

impl<'de> DeserializeSeed<'de> for NameSeed {
    type Value = ColumnName;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<ColumnName, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl Visitor<'_> for NameSeed {
    type Value = ColumnName;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a column")
    }

    fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<ColumnName, E> {
        Ok(ColumnId::from_name(name).map_or_else(|| ColumnName::Unknown(excerpt(name)), ColumnName::Known))
    }
}

fn not_an_object(text: &[u8], error: &serde_json::Error) -> RowError {
    let start = String::from_utf8_lossy(&text[..text.len().min(160)]);
    RowError::new(format!("`{}` is not a JSON object of columns: {}", excerpt(&start), without_line(error)))
}

/// Formats an error without its line number, because the caller knows the line in the file.
fn without_line(error: &impl fmt::Display) -> String {
    error.to_string().replace(" at line 1 column ", " at column ")
}

pub(crate) fn unknown_column(name: &str, schema_version: i64) -> RowError {
    let error = RowError::new(format!("unknown column `{name}`")).in_field(name);
    if schema_version > SCHEMA_VERSION {
        return error.with_hint(format!(
            "written with schema version {schema_version}, but this program supports only versions up to {SCHEMA_VERSION}; update the program"
        ));
    }
    error.with_hint(match names::suggest_nearest(name, COLUMNS.iter().map(|column| column.name)) {
        Some(question) => format!("{question} rename or drop it"),
        None => "drop it; docs/reference/dataset-format.md has the table of columns".to_owned(),
    })
}

pub(crate) fn missing_column(name: &str) -> RowError {
    RowError::new(format!("required column `{name}` is missing"))
        .in_field(name)
        .with_hint("the column is required; see the column table in docs/reference/dataset-format.md")
}
