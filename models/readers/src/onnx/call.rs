//! One ONNX node with its inputs resolved, as import rules use it: attributes by name, inputs by position.

use super::messages::{self, kind};
use crate::{Outcome, malformed, unsupported};
use models::graph::ValueId;
use std::cell::RefCell;
use std::collections::HashMap;

pub(super) type Arguments<'a> = HashMap<&'a str, &'a messages::Attribute>;

pub(super) struct Call<'a> {
    pub node: &'a messages::Node,
    pub opset: i64,
    /// Inputs by position; None for an omitted optional input.
    pub inputs: Vec<Option<ValueId>>,
    pub arguments: Arguments<'a>,
    /// First attribute whose type is not the type that a rule asked for. The importer refuses the node after the rule,
    /// so that rules can read optional attributes without handling an error.
    pub mismatch: RefCell<Option<String>>,
}

/// Returns the type code of an attribute. Old files omit the code, so it is then derived from the content.
fn attribute_kind(attribute: &messages::Attribute) -> i32 {
    let contents = [
        (attribute.f.is_some(), kind::FLOAT),
        (attribute.i.is_some(), kind::INT),
        (attribute.s.is_some(), kind::STRING),
        (attribute.t.is_some(), kind::TENSOR),
        (attribute.g.is_some(), kind::GRAPH),
        (!attribute.floats.is_empty(), kind::FLOATS),
        (!attribute.ints.is_empty(), kind::INTS),
        (!attribute.strings.is_empty(), kind::STRINGS),
        (attribute.sparse_tensor.is_some(), kind::SPARSE_TENSOR),
    ];
    match attribute.kind {
        kind::UNDEFINED => contents.iter().find(|(is_set, _)| *is_set).map_or(kind::UNDEFINED, |(_, kind)| *kind),
        stated => stated,
    }
}

impl<'a> Call<'a> {
    pub fn input(&self, index: usize) -> Outcome<ValueId> {
        match self.optional_input(index) {
            Some(id) => Ok(id),
            None => malformed(format!("input {index} is missing")),
        }
    }

    pub fn optional_input(&self, index: usize) -> Option<ValueId> {
        self.inputs.get(index).copied().flatten()
    }

    pub fn all_inputs(&self) -> Outcome<Vec<ValueId>> {
        if self.inputs.is_empty() {
            return malformed("there are no inputs");
        }
        (0..self.inputs.len()).map(|index| self.input(index)).collect()
    }

    pub fn has_output(&self, index: usize) -> bool {
        self.node.output.get(index).is_some_and(|name| !name.is_empty())
    }

    /// Returns an attribute; a reference to an attribute of the surrounding function is resolved.
    fn resolve_attribute(&self, name: &str) -> Option<&'a messages::Attribute> {
        let attribute = self.node.attribute.iter().find(|attribute| attribute.name == name)?;
        match attribute.ref_attr_name.as_str() {
            "" => Some(attribute),
            argument => self.arguments.get(argument).copied(),
        }
    }

    /// Returns an attribute of this type. An attribute of another type is recorded as a mismatch.
    fn typed_attribute(&self, name: &str, expected: i32) -> Option<&'a messages::Attribute> {
        let attribute = self.resolve_attribute(name)?;
        let found = attribute_kind(attribute);
        // Neither a type nor content: an empty list, or a message that states only the name.
        if found == expected || found == kind::UNDEFINED {
            return Some(attribute);
        }
        let found = kind::name_of(found).map_or_else(|| format!("of the unknown type {found}"), str::to_owned);
        let expected = kind::name_of(expected).unwrap_or_default();
        self.record_mismatch(format!("attribute `{name}` is {found}, expected {expected}"));
        None
    }

    fn record_mismatch(&self, reason: String) {
        self.mismatch.borrow_mut().get_or_insert(reason);
    }

    pub fn has_attribute(&self, name: &str) -> bool {
        self.resolve_attribute(name).is_some()
    }

    pub fn int_attribute(&self, name: &str, default: i64) -> i64 {
        self.optional_int(name).unwrap_or(default)
    }

    pub fn optional_int(&self, name: &str) -> Option<i64> {
        let attribute = self.typed_attribute(name, kind::INT)?;
        // Some writers omit fields that are zero.
        attribute.i.or((attribute.kind == kind::INT).then_some(0))
    }

    pub fn flag_attribute(&self, name: &str) -> bool {
        self.int_attribute(name, 0) != 0
    }

    pub fn float_attribute(&self, name: &str, default: f32) -> f64 {
        self.optional_float(name).unwrap_or(default.into())
    }

    pub fn optional_float(&self, name: &str) -> Option<f64> {
        let attribute = self.typed_attribute(name, kind::FLOAT)?;
        attribute.f.or((attribute.kind == kind::FLOAT).then_some(0.0)).map(f64::from)
    }

    pub fn int_list(&self, name: &str) -> Option<Vec<i64>> {
        // Protobuf does not distinguish an empty list from none, so the attribute itself is looked up.
        self.typed_attribute(name, kind::INTS).map(|attribute| attribute.ints.clone())
    }

    pub fn optional_floats(&self, name: &str) -> Option<Vec<f64>> {
        let attribute = self.typed_attribute(name, kind::FLOATS)?;
        Some(attribute.floats.iter().map(|&number| number.into()).collect())
    }

    /// Returns a list of numbers, empty if the attribute is omitted.
    pub fn float_list(&self, name: &str) -> Vec<f64> {
        self.optional_floats(name).unwrap_or_default()
    }

    pub fn text_attribute(&self, name: &str) -> Option<&'a str> {
        let text = self.typed_attribute(name, kind::STRING)?.s.as_ref()?;
        match std::str::from_utf8(text) {
            Ok(text) => Some(text),
            Err(_) => {
                self.record_mismatch(format!("attribute `{name}` is not UTF-8 text"));
                None
            }
        }
    }

    pub fn text_list(&self, name: &str) -> Option<Vec<String>> {
        let attribute = self.typed_attribute(name, kind::STRINGS)?;
        Some(attribute.strings.iter().map(|text| String::from_utf8_lossy(text).into_owned()).collect())
    }

    pub fn tensor_attribute(&self, name: &str) -> Option<&'a messages::Tensor> {
        self.typed_attribute(name, kind::TENSOR)?.t.as_ref()
    }

    pub fn graph_attribute(&self, name: &str) -> Option<&'a messages::Graph> {
        self.typed_attribute(name, kind::GRAPH)?.g.as_ref()
    }

    pub fn expect_int(&self, name: &str, expected: i64) -> Outcome<()> {
        match self.int_attribute(name, expected) {
            found if found == expected => Ok(()),
            found => unsupported(format!("attribute `{name}` is {found}; only {expected} is supported")),
        }
    }
}
