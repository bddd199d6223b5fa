//! Converts Python values to settings, with the names and errors of configuration files.

use crate::refusal_error;
use engine::campaign::Settings;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use std::path::PathBuf;
use toml::{Table, Value};

/// A configuration: a dictionary, or a TOML file.
#[derive(FromPyObject)]
pub enum Configuration<'py> {
    Dict(Bound<'py, PyDict>),
    File(PathBuf),
}

/// Returns the settings of a configuration, in which the values of the dictionary `settings` take
/// precedence.
pub fn read_settings(configuration: Option<Configuration<'_>>, settings: &Bound<'_, PyDict>) -> PyResult<Settings> {
    let mut table = match configuration {
        None => Table::new(),
        Some(Configuration::Dict(dict)) => read_table(&dict, "")?,
        Some(Configuration::File(path)) => {
            // The file is first validated separately, because errors in files contain line numbers.
            Settings::read(&path).map_err(refusal_error)?;
            let text = std::fs::read_to_string(&path).map_err(refusal_error)?;
            text.parse().map_err(refusal_error)?
        }
    };
    merge_tables(&mut table, self::read_table(settings, "")?);
    let text = toml::to_string(&table).map_err(refusal_error)?;
    Settings::parse(&text).map_err(refusal_error)
}

fn merge_tables(table: &mut Table, over: Table) {
    for (name, value) in over {
        match (table.get_mut(&name), value) {
            (Some(Value::Table(inner)), Value::Table(over)) => merge_tables(inner, over),
            (_, value) => drop(table.insert(name, value)),
        }
    }
}

/// Converts a dictionary. Entries with the value `None` are left out.
fn read_table(dict: &Bound<'_, PyDict>, place: &str) -> PyResult<Table> {
    let mut table = Table::new();
    for (name, value) in dict {
        let name: String =
            name.extract().map_err(|_| refusal_error(format!("the name of a setting must be a text, not {name}")))?;
        let place = if place.is_empty() { name.clone() } else { format!("{place}.{name}") };
        if !value.is_none() {
            table.insert(name, self::read_value(&value, &place)?);
        }
    }
    Ok(table)
}

fn read_value(given: &Bound<'_, PyAny>, place: &str) -> PyResult<Value> {
    if given.is_instance_of::<PyBool>() {
        return Ok(Value::Boolean(given.extract()?));
    }
    if given.is_instance_of::<PyString>() {
        return Ok(Value::String(given.extract()?));
    }
    if let Ok(dict) = given.cast::<PyDict>() {
        return Ok(Value::Table(read_table(dict, place)?));
    }
    if given.is_instance_of::<PyList>() || given.is_instance_of::<PyTuple>() {
        let items = given.try_iter()?.map(|item| read_value(&item?, place));
        return Ok(Value::Array(items.collect::<PyResult<_>>()?));
    }
    // NumPy's integers have `__index__`, its other numbers `__float__`.
    if given.is_instance_of::<PyInt>() || given.hasattr("__index__")? {
        let number =
            given.extract().map_err(|_| refusal_error(format!("`{place}` is {given}, which exceeds 64 bits")))?;
        return Ok(Value::Integer(number));
    }
    if given.is_instance_of::<PyFloat>() || given.hasattr("__float__")? {
        return Ok(Value::Float(given.extract()?));
    }
    if let Ok(path) = given.extract::<PathBuf>() {
        return Ok(Value::String(path.display().to_string()));
    }
    Err(refusal_error(format!("`{place}` is {}; give a number, a text, a list or a dictionary", given.repr()?)))
}
