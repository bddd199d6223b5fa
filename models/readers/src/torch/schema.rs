//! JSON schema of the needed parts of an exported program. Unions are objects with one key, the variant's name.

use models::names::shorten_text;
use models::types::DType;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

#[derive(Deserialize)]
pub(super) struct ExportedProgram {
    pub graph_module: GraphModule,
    pub schema_version: Version,
    /// Allowed values of each symbol of a size.
    #[serde(default)]
    pub range_constraints: BTreeMap<String, SizeRange>,
}

/// Ends of a range; `null` if there is no limit.
#[derive(Deserialize)]
pub(super) struct SizeRange {
    #[serde(default)]
    min_val: Value,
    #[serde(default)]
    max_val: Value,
}

impl ExportedProgram {
    /// Returns why an input cannot have these extents: a size outside of the range that was stated at export.
    pub fn range_problem(&self, input: &Meta, extents: &[i64]) -> Option<String> {
        input.sizes.iter().zip(extents).enumerate().find_map(|(dimension, (size, extent))| {
            let symbol = symbol_name(size)?;
            let SizeRange { min_val, max_val } = self.range_constraints.get(symbol)?;
            let (least, most) = (min_val.as_i64().unwrap_or(0), max_val.as_i64().unwrap_or(i64::MAX));
            let is_outside = !(least..=most).contains(extent);
            let allowed = if most == i64::MAX { format!("at least {least}") } else { format!("{least} to {most}") };
            is_outside.then(|| {
                let symbol = shorten_text(symbol);
                format!("dimension {dimension} is {extent}, but the export allows {allowed} for `{symbol}`")
            })
        })
    }
}

/// Returns the name of a size that is a single symbol, as in `s7` or `Symbol('s7', positive=True, integer=True)`.
pub(super) fn symbol_name(size: &Union) -> Option<&str> {
    let text = size.value_of("as_expr")?.get("expr_str")?.as_str()?;
    let name = match text.strip_prefix("Symbol('") {
        Some(rest) => rest.split_once('\'').filter(|(_, rest)| rest.find(')') == Some(rest.len() - 1))?.0,
        None => text,
    };
    name.chars().all(|sign| sign.is_ascii_alphanumeric() || sign == '_').then_some(name)
}

#[derive(Deserialize)]
pub(super) struct Version {
    pub major: i64,
    pub minor: i64,
}

#[derive(Deserialize)]
pub(super) struct GraphModule {
    pub graph: Graph,
    pub signature: Signature,
}

#[derive(Deserialize)]
pub(super) struct Graph {
    #[serde(default)]
    pub inputs: Vec<Union>,
    pub outputs: Vec<Union>,
    pub nodes: Vec<Node>,
    pub tensor_values: BTreeMap<String, Meta>,
    #[serde(default)]
    pub sym_int_values: BTreeMap<String, Value>,
    #[serde(default)]
    pub sym_bool_values: BTreeMap<String, Value>,
    #[serde(default)]
    pub sym_float_values: BTreeMap<String, Value>,
}

#[derive(Deserialize)]
pub(super) struct Signature {
    pub input_specs: Vec<Union>,
}

#[derive(Deserialize)]
pub(super) struct Node {
    pub target: String,
    #[serde(default)]
    pub inputs: Vec<Input>,
    #[serde(default)]
    pub outputs: Vec<Union>,
    #[serde(default)]
    pub metadata: Metadata,
    /// The condition and the body of a loop, moved out of the inputs.
    #[serde(skip)]
    pub parts: Vec<Graph>,
}

/// Metadata of a node. Entries without a field here are skipped, as they may take far more memory than in the file.
#[derive(Default, Deserialize)]
pub(super) struct Metadata {
    #[serde(default)]
    pub nn_module_stack: Note,
}

/// A metadata entry: its text, or a value of another type, which is skipped.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Note {
    Text(String),
    Other(serde::de::IgnoredAny),
}

impl Default for Note {
    fn default() -> Note {
        Note::Text(String::new())
    }
}

impl Note {
    pub fn text(&self) -> &str {
        if let Note::Text(text) = self { text } else { "" }
    }
}

#[derive(Deserialize)]
pub(super) struct Input {
    #[serde(default)]
    pub name: String,
    pub arg: Union,
}

#[derive(Deserialize)]
pub(super) struct Meta {
    pub dtype: i64,
    pub sizes: Vec<Union>,
    #[serde(default)]
    pub strides: Vec<Union>,
    #[serde(default)]
    pub storage_offset: Option<Union>,
}

#[derive(Deserialize)]
pub(super) struct Payloads {
    pub config: BTreeMap<String, Payload>,
}

#[derive(Deserialize)]
pub(super) struct Payload {
    pub path_name: String,
    #[serde(default)]
    pub use_pickle: bool,
    pub tensor_meta: Option<Meta>,
}

#[derive(Clone, Deserialize)]
pub(super) struct Union(Map<String, Value>);

impl Union {
    pub fn new(variant: &str, value: Value) -> Union {
        Union(Map::from_iter([(variant.to_owned(), value)]))
    }

    pub fn rename_values(&mut self, renamed: &impl Fn(&str) -> String) {
        self.0.values_mut().for_each(|value| rename_value(value, renamed));
    }

    pub fn variant_and_value(&self) -> (&str, &Value) {
        self.0.iter().next().map_or(("nothing", &Value::Null), |(variant, value)| (variant, value))
    }

    /// Returns the elements of a list argument, or the argument itself.
    pub fn list_elements(&self) -> Vec<Union> {
        match self.variant_and_value() {
            ("as_tensors", Value::Array(all)) => all.iter().map(|one| Union::new("as_tensor", one.clone())).collect(),
            _ => vec![self.clone()],
        }
    }

    pub fn take_graph(&mut self) -> Option<Value> {
        Some(self.0.get_mut("as_graph")?.get_mut("graph")?.take())
    }

    pub fn value_of(&self, variant: &str) -> Option<&Value> {
        self.0.get(variant)
    }
}

fn rename_value(value: &mut Value, renamed: &impl Fn(&str) -> String) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                match value {
                    Value::String(name) if key == "name" || key == "as_name" => *name = renamed(name),
                    value => rename_value(value, renamed),
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| rename_value(value, renamed)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Returns an extent or stride; for a symbolic one, its value at export.
pub(super) fn known_integer(union: &Union) -> Option<i64> {
    let (_, value) = union.variant_and_value();
    integer_of(union.variant_and_value().0, value)
}

/// Returns an integer; for a symbolic expression, its value at export.
pub(super) fn integer_of(variant: &str, value: &Value) -> Option<i64> {
    match variant {
        "as_int" => value.as_i64(),
        "as_expr" => value.get("hint")?.get("as_int")?.as_i64(),
        _ => None,
    }
}

impl Meta {
    pub fn known_extents(&self) -> Option<Vec<i64>> {
        self.sizes.iter().map(known_integer).collect()
    }

    pub fn is_complex(&self) -> bool {
        (9..=11).contains(&self.dtype)
    }

    pub fn is_static(&self) -> bool {
        self.sizes.iter().all(|size| size.value_of("as_int").is_some())
    }
}

pub(super) fn dtype_of_code(code: i64) -> Result<DType, String> {
    Ok(match code {
        1 => DType::U8,
        2 => DType::I8,
        3 => DType::I16,
        4 => DType::I32,
        5 => DType::I64,
        6 => DType::F16,
        7 => DType::F32,
        8 => DType::F64,
        12 => DType::Bool,
        13 => DType::BF16,
        28 => DType::U16,
        34 => DType::U32,
        35 => DType::U64,
        // Parts of complex numbers.
        9 => DType::F16,
        10 => DType::F32,
        11 => DType::F64,
        29..=33 => return Err("elements are 8-bit floats".to_owned()),
        other => return Err(format!("element type {other} is unknown")),
    })
}

pub(super) fn names_of(union: &Union) -> Vec<&str> {
    let (variant, value) = union.variant_and_value();
    match variant {
        "as_tensor" => value.get("name").and_then(Value::as_str).into_iter().collect(),
        "as_tensors" => {
            let list = value.as_array().map_or(&[][..], Vec::as_slice);
            list.iter().filter_map(|tensor| tensor.get("name")?.as_str()).collect()
        }
        "as_optional_tensors" => {
            let list = value.as_array().map_or(&[][..], Vec::as_slice);
            list.iter().filter_map(|tensor| tensor.get("as_tensor")?.get("name")?.as_str()).collect()
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn sizes_outside_of_the_exported_range_are_refused() {
        let size = |symbol: &str| json!({ "as_expr": { "expr_str": symbol, "hint": { "as_int": 4 } } });
        let written_out = "Symbol('s27', positive=True, integer=True)";
        let input = json!({ "dtype": 7, "sizes": [size("s77"), { "as_int": 3 }, size(written_out), size("2*s77")] });
        let input: Meta = serde_json::from_value(input).unwrap();
        let program = json!({
            "graph_module": {
                "graph": { "outputs": [], "nodes": [], "tensor_values": {} },
                "signature": { "input_specs": [] },
            },
            "schema_version": { "major": 8, "minor": 8 },
            "range_constraints": {
                "s77": { "min_val": 2, "max_val": 16 },
                "s27": { "min_val": 3, "max_val": null },
            },
        });
        let program: ExportedProgram = serde_json::from_value(program).unwrap();
        for extents in [[2, 3, 3, 4], [16, 5, 1 << 40, 1]] {
            assert_eq!(program.range_problem(&input, &extents), None);
        }
        let problem = |extents: &[i64]| program.range_problem(&input, extents).unwrap();
        assert_eq!(problem(&[17, 3, 4, 8]), "dimension 0 is 17, but the export allows 2 to 16 for `s77`");
        assert_eq!(problem(&[1]), "dimension 0 is 1, but the export allows 2 to 16 for `s77`");
        assert_eq!(problem(&[2, 3, 2]), "dimension 2 is 2, but the export allows at least 3 for `s27`");
    }
}
