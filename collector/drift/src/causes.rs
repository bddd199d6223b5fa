//! Possible causes of a difference: versions, settings and hosts of nightly runs, and the generated code of tasks.

use super::cell::cell_text;
use super::history::{LineFacts, Night, Side};
use datasets::{ColumnId, Record};
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Columns that usually have one value in a nightly run.
const OF_NIGHT: [ColumnId; 13] = [
    ColumnId::host,
    ColumnId::host_class,
    ColumnId::cpu_model,
    ColumnId::logical_cpus,
    ColumnId::memory_bytes,
    ColumnId::clock_policy,
    ColumnId::os,
    ColumnId::kernel,
    ColumnId::tvm_version,
    ColumnId::llvm_version,
    ColumnId::driver_version,
    ColumnId::program_version,
    ColumnId::plan,
];

/// Columns that describe the code of a line (a task with one schedule).
const OF_LINE: [ColumnId; 6] = [
    ColumnId::code_revision,
    ColumnId::code_bytes,
    ColumnId::schedule_hash,
    ColumnId::symbolic_task,
    ColumnId::target_text,
    ColumnId::cpus,
];

const VALUES_MAX: usize = 16;

/// A column, or a value in the JSON objects of a column, that differs between the two sides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cause {
    /// Name of the column, followed by the path of the value if the column contains JSON objects: `plan.precision`.
    pub name: String,
    pub before: BTreeSet<String>,
    pub after: BTreeSet<String>,
}

pub(super) fn note_night_facts(record: &Record, facts: &mut LineFacts) {
    note_columns(record, &OF_NIGHT, facts);
}

pub(super) fn note_line_facts(record: &Record, facts: &mut LineFacts) {
    note_columns(record, &OF_LINE, facts);
}

fn note_columns(record: &Record, columns: &[ColumnId], facts: &mut LineFacts) {
    for &id in columns {
        let Some(value) = cell_text(record.cell(id)) else { continue };
        let values = facts.entry(id.name()).or_default();
        if values.len() < VALUES_MAX {
            values.insert(value);
        }
    }
}

pub(super) fn night_causes(nights: &[Night]) -> Vec<Cause> {
    let of = |side: Side| {
        let mut all = LineFacts::new();
        for night in nights.iter().filter(|night| night.side == side) {
            for (name, values) in &night.facts {
                all.entry(name).or_default().extend(values.iter().cloned());
            }
        }
        all
    };
    let (before, after) = (of(Side::Before), of(Side::After));
    // If one side has no nights, every column would differ.
    if before.is_empty() || after.is_empty() { Vec::new() } else { differing_columns(&before, &after) }
}

pub(super) fn differing_columns(before: &LineFacts, after: &LineFacts) -> Vec<Cause> {
    let names: BTreeSet<&'static str> = before.keys().chain(after.keys()).copied().collect();
    let of = |facts: &LineFacts, name: &str| facts.get(name).cloned().unwrap_or_default();
    let columns = names.into_iter().map(|name| (name, of(before, name), of(after, name)));
    let differing = columns.filter(|(_, before, after)| before != after);
    differing.flat_map(|(name, before, after)| differing_values(name, before, after)).collect()
}

/// Returns the differing values of a column whose texts differ. JSON objects are compared by value and path.
fn differing_values(name: &str, before: BTreeSet<String>, after: BTreeSet<String>) -> Vec<Cause> {
    let whole = |before, after| vec![Cause { name: name.to_owned(), before, after }];
    let (Some(objects_before), Some(objects_after)) = (parse_objects(&before), parse_objects(&after)) else {
        return whole(before, after);
    };
    if objects_before == objects_after {
        return Vec::new();
    }
    let (leaves_before, leaves_after) = (values_by_path(&objects_before), values_by_path(&objects_after));
    let paths: BTreeSet<&String> = leaves_before.keys().chain(leaves_after.keys()).collect();
    let of = |leaves: &ValuesByPath, path: &String| leaves.get(path).cloned().unwrap_or_default();
    let causes: Vec<Cause> = paths
        .into_iter()
        .map(|path| Cause {
            name: format!("{name}{path}"),
            before: of(&leaves_before, path),
            after: of(&leaves_after, path),
        })
        .filter(|cause| cause.before != cause.after)
        .collect();
    // The sides may combine the same values differently.
    if causes.is_empty() { whole(before, after) } else { causes }
}

/// Values of JSON objects by their paths; a path begins with a dot.
type ValuesByPath = BTreeMap<String, BTreeSet<String>>;

/// Returns the values of each object by path, or None if there is no text or a text is not a JSON object.
fn parse_objects(texts: &BTreeSet<String>) -> Option<BTreeSet<BTreeMap<String, String>>> {
    let parse = |text: &String| {
        let object: Value = serde_json::from_str(text).ok().filter(Value::is_object)?;
        let mut values = BTreeMap::new();
        add_values(&object, String::new(), &mut values);
        Some(values)
    };
    texts.iter().map(parse).collect::<Option<BTreeSet<_>>>().filter(|objects| !objects.is_empty())
}

fn add_values(value: &Value, path: String, values: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (name, value) in fields {
                add_values(value, format!("{path}.{name}"), values);
            }
        }
        value => drop(values.insert(path, value_text(value))),
    }
}

/// Returns a text that is the same for equal values, such as 1 and 1.0.
fn value_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) if !number.is_f64() => number.to_string(),
        Value::Number(number) => number.as_f64().map_or_else(|| number.to_string(), |number| number.to_string()),
        Value::Array(items) => format!("[{}]", items.iter().map(value_text).collect::<Vec<_>>().join(",")),
        other => other.to_string(),
    }
}

fn values_by_path(objects: &BTreeSet<BTreeMap<String, String>>) -> ValuesByPath {
    let mut all = ValuesByPath::new();
    for (path, text) in objects.iter().flatten() {
        all.entry(path.clone()).or_default().insert(text.clone());
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::before_after;

    #[track_caller]
    fn check(name: &'static str, before: &[&str], after: &[&str], expected: &[&str]) {
        let facts = |texts: &[&str]| LineFacts::from([(name, texts.iter().map(ToString::to_string).collect())]);
        let causes = differing_columns(&facts(before), &facts(after));
        let texts: Vec<String> = causes.iter().map(|cause| format!("{} {}", cause.name, before_after(cause))).collect();
        assert_eq!(texts, expected);
    }

    #[test]
    fn json_is_compared_by_value_and_path() {
        let plan =
            r#"{"batch":{"precisions":[0.1,0.2],"count":4},"sample":{"precision":0.2,"time_budget_ns":10000000}}"#;
        let changed = plan.replace("\"precision\":0.2", "\"precision\":0.3");
        check("plan", &[plan], &[&changed], &["plan.sample.precision 0.2 → 0.3"]);
        check("plan", &[plan, &changed], &[&changed], &["plan.sample.precision 0.2, 0.3 → 0.3"]);
        check("plan", &[r#"{"a":1,"b":2}"#], &[r#"{"b": 2.0, "a": 1}"#], &[]);
        check("plan", &[r#"{"a":1}"#], &[r#"{"a":1,"b":"x"}"#], &["plan.b unknown → x"]);
        let (crossed, straight) = ([r#"{"a":1,"b":2}"#, r#"{"a":2,"b":1}"#], [r#"{"a":1,"b":1}"#, r#"{"a":2,"b":2}"#]);
        check("plan", &crossed, &straight, &[r#"plan {"a":1,"b":2}, {"a":2,"b":1} → {"a":1,"b":1}, {"a":2,"b":2}"#]);
        // A target is either a name or an object.
        check("target_text", &["llvm"], &[r#"{"kind":"llvm"}"#], &[r#"target_text llvm → {"kind":"llvm"}"#]);
    }

    #[test]
    fn shortened_texts_contain_their_difference() {
        let kernel = "Linux version 6.1.0-22-amd64 built by a compiler with a long name, release";
        let (before, after) = (format!("{kernel} 12.2.0 of May"), format!("{kernel} 12.2.1 of May"));
        check("kernel", &[&before], &[&after], &["kernel …e, release 12.2.0 of May → …e, release 12.2.1 of May"]);
    }
}
