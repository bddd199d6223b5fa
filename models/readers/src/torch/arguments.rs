//! Reads arguments of nodes: tensors and numbers by name, and literals.

use super::call::Argument;
use super::import::Importer;
use super::memory::{STALE, Slot};
use super::schema::{Union, integer_of};
use crate::{Outcome, Refusal, malformed, unsupported};
use models::graph::ValueId;
use models::names::shorten_text;
use serde_json::Value;

impl<'a> Importer<'a> {
    pub(super) fn parse_argument(&self, union: &'a Union) -> Outcome<Argument> {
        let (variant, value) = union.variant_and_value();
        let list = || value.as_array().map_or(&[][..], Vec::as_slice);
        let wrong = || Refusal::Malformed(format!("an argument of type `{}` is invalid", shorten_text(variant)));
        let each = |read: &dyn Fn(&'a Value) -> Option<i64>| -> Outcome<Vec<i64>> {
            list().iter().map(|value| read(value).ok_or_else(wrong)).collect()
        };
        Ok(match variant {
            "as_none" => Argument::None,
            "as_tensor" => Argument::Tensor(self.resolve_tensor(value)?),
            "as_tensors" => {
                let ids = list().iter().map(|value| Ok(Some(self.resolve_tensor(value)?)));
                Argument::Tensors(ids.collect::<Outcome<_>>()?)
            }
            "as_optional_tensors" => {
                let ids = list()
                    .iter()
                    .map(|value| value.get("as_tensor").map(|value| self.resolve_tensor(value)).transpose());
                Argument::Tensors(ids.collect::<Outcome<_>>()?)
            }
            "as_int" => Argument::Int(value.as_i64().ok_or_else(wrong)?),
            "as_ints" => Argument::Ints(each(&|value| value.as_i64())?),
            "as_sym_int" => Argument::Int(self.resolve_integer(value, variant)?),
            "as_sym_ints" => {
                let numbers = list().iter().map(|value| self.resolve_integer(value, variant));
                Argument::Ints(numbers.collect::<Outcome<_>>()?)
            }
            "as_sym_bool" => match value.get("as_bool").and_then(Value::as_bool) {
                Some(flag) => Argument::Bool(flag),
                None => Argument::Bool(self.resolve_integer(value, variant)? != 0),
            },
            "as_sym_float" => match value.get("as_float").and_then(parse_float) {
                Some(number) => Argument::Float(number),
                None => Argument::Float(self.resolve_integer(value, variant)? as f64),
            },
            "as_float" => Argument::Float(parse_float(value).ok_or_else(wrong)?),
            "as_floats" => Argument::Floats(list().iter().map(parse_float).collect::<Option<_>>().ok_or_else(wrong)?),
            "as_bool" => Argument::Bool(value.as_bool().ok_or_else(wrong)?),
            "as_string" => Argument::Text(value.as_str().ok_or_else(wrong)?.to_owned()),
            "as_scalar_type" | "as_device" | "as_layout" | "as_memory_format" => Argument::Ignored,
            other => return unsupported(format!("arguments of type `{}`", shorten_text(other))),
        })
    }

    fn resolve_tensor(&self, value: &Value) -> Outcome<ValueId> {
        let name = value.get("name").and_then(Value::as_str).unwrap_or("");
        match self.cell_of.get(name).map(|&cell| self.cells.cell_slot(cell)) {
            Some(Slot::Value(id)) => Ok(id),
            Some(Slot::Skipped) => unsupported(format!("input `{name}` is an output of a skipped node")),
            Some(Slot::Stale) => unsupported(format!("input `{name}`: {STALE}")),
            Some(Slot::Unmade) => unsupported(format!("input `{name}` is an output that is not supported")),
            None => malformed(format!("input `{}` is not computed by any earlier node", shorten_text(name))),
        }
    }

    /// Returns an integer argument: a literal, a number computed by the program, or the value at export.
    fn resolve_integer(&self, value: &'a Value, variant: &str) -> Outcome<i64> {
        let wrong = || Refusal::Malformed(format!("an argument of type `{variant}` is invalid"));
        if let Some(number) = value.get("as_int") {
            return number.as_i64().ok_or_else(wrong);
        }
        let name = value.get("as_name").and_then(Value::as_str).ok_or_else(wrong)?;
        if let Some(number) = self.numbers.get(name) {
            return Ok(*number);
        }
        let graph = self.graph;
        let symbol = graph.sym_int_values.get(name).or_else(|| graph.sym_bool_values.get(name));
        let Some(symbol) = symbol.or_else(|| graph.sym_float_values.get(name)) else { return Err(wrong()) };
        let example = symbol.as_object().and_then(|symbol| symbol.iter().next());
        match example.and_then(|(variant, value)| integer_of(variant, value)) {
            Some(number) => Ok(number),
            None => unsupported(format!("the value of the number `{}` depends on input data", shorten_text(name))),
        }
    }
}

/// Parses a float. JSON has no literals for infinities and NaN, so these are strings.
fn parse_float(value: &Value) -> Option<f64> {
    match value.as_str() {
        Some("Infinity") => Some(f64::INFINITY),
        Some("-Infinity") => Some(f64::NEG_INFINITY),
        Some("NaN") => Some(f64::NAN),
        _ => value.as_f64(),
    }
}
