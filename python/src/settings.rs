//! Converts Python values to settings, with the names and errors of configuration files.

use crate::refused;
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
pub fn read(configuration: Option<Configuration<'_>>, settings: &Bound<'_, PyDict>) -> PyResult<Settings> {
    let mut table = match configuration {
        None => Table::new(),
        Some(Configuration::Dict(dict)) => table(&dict, "")?,
        Some(Configuration::File(path)) => {
            // The file is validated on its own first, because its errors contain line numbers.
            Settings::read(&path).map_err(refused)?;
            let text = std::fs::read_to_string(&path).map_err(refused)?;
            text.parse().map_err(refused)?
        }
    };
    merge(&mut table, self::table(settings, "")?);
    let text = toml::to_string(&table).map_err(refused)?;
    Settings::parse(&text).map_err(refused)
}

/// Overwrites the values of a table with those of another one.
fn merge(table: &mut Table, over: Table) {
    for (name, value) in over {
        match (table.get_mut(&name), value) {
            (Some(Value::Table(inner)), Value::Table(over)) => merge(inner, over),
            (_, value) => drop(table.insert(name, value)),
        }
    }
}

/// Converts a dictionary. Entries with the value `None` are left out.
fn table(dict: &Bound<'_, PyDict>, place: &str) -> PyResult<Table> {
    let mut table = Table::new();
    for (name, value) in dict {
        let name: String =
            name.extract().map_err(|_| refused(format!("the name of a setting is a text, not {name}")))?;
        let place = if place.is_empty() { name.clone() } else { format!("{place}.{name}") };
        if !value.is_none() {
            table.insert(name, self::value(&value, &place)?);
        }
    }
    Ok(table)
}

fn value(given: &Bound<'_, PyAny>, place: &str) -> PyResult<Value> {
    if given.is_instance_of::<PyBool>() {
        return Ok(Value::Boolean(given.extract()?));
    }
    if given.is_instance_of::<PyString>() {
        return Ok(Value::String(given.extract()?));
    }
    if let Ok(dict) = given.cast::<PyDict>() {
        return Ok(Value::Table(table(dict, place)?));
    }
    if given.is_instance_of::<PyList>() || given.is_instance_of::<PyTuple>() {
        let items = given.try_iter()?.map(|item| value(&item?, place));
        return Ok(Value::Array(items.collect::<PyResult<_>>()?));
    }
    // NumPy's integers have `__index__`, its other numbers `__float__`.
    if given.is_instance_of::<PyInt>() || given.hasattr("__index__")? {
        let number = given.extract().map_err(|_| refused(format!("`{place}` is {given}, which is too large")))?;
        return Ok(Value::Integer(number));
    }
    if given.is_instance_of::<PyFloat>() || given.hasattr("__float__")? {
        return Ok(Value::Float(given.extract()?));
    }
    if let Ok(path) = given.extract::<PathBuf>() {
        return Ok(Value::String(path.display().to_string()));
    }
    Err(refused(format!("`{place}` is {}; give a number, a text, a list or a dictionary", given.repr()?)))
}
