//! Names of transformer configurations: a folder with a `config.json`, or a shipped name, both with optional changes as in
//! `llama-7b:num_hidden_layers=2,vocab_size=1000`.

use serde_json::Value;
use std::path::Path;

/// File of a folder that describes its model.
pub const CONFIG_FILE: &str = "config.json";

/// Splits a name into the configuration and its changes. Paths of files and folders may contain colons.
pub fn split_changes(name: &str) -> (&str, &str) {
    if Path::new(name).exists() { (name, "") } else { name.rsplit_once(':').unwrap_or((name, "")) }
}

/// Returns whether a name, without its changes, is a folder with a configuration.
pub fn is_folder(name: &str) -> bool {
    Path::new(split_changes(name).0).join(CONFIG_FILE).is_file()
}

/// Parses changes. A value is a text unless it is valid JSON.
pub fn parse_changes(changes: &str) -> Result<Vec<(&str, Value)>, String> {
    let mut parsed: Vec<(&str, Value)> = Vec::new();
    for change in changes.split(',').filter(|change| !change.is_empty()) {
        let form = || format!("`{change}` does not have the form `field=value`, such as `num_hidden_layers=2`");
        let (key, value) = change.split_once('=').ok_or_else(form)?;
        if parsed.iter().any(|(known, _)| *known == key) {
            return Err(format!("`{key}` is given twice"));
        }
        parsed.push((key, serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()))));
    }
    Ok(parsed)
}
