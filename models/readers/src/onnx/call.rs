//! One ONNX node with its inputs resolved, as import rules use it: attributes by name, inputs by position.

use super::messages;
use crate::{Outcome, malformed, unsupported};
use models::graph::ValueId;
use std::collections::HashMap;

pub(super) type Arguments<'a> = HashMap<&'a str, &'a messages::Attribute>;

pub(super) struct Call<'a> {
    pub node: &'a messages::Node,
    pub opset: i64,
    /// Inputs by position; None for an omitted optional input.
    pub inputs: Vec<Option<ValueId>>,
    pub arguments: Arguments<'a>,
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
    pub fn resolve_attribute(&self, name: &str) -> Option<&'a messages::Attribute> {
        let attribute = self.node.attribute.iter().find(|attribute| attribute.name == name)?;
        match attribute.ref_attr_name.as_str() {
            "" => Some(attribute),
            argument => self.arguments.get(argument).copied(),
        }
    }

    pub fn int_attribute(&self, name: &str, default: i64) -> i64 {
        self.optional_int(name).unwrap_or(default)
    }

    pub fn optional_int(&self, name: &str) -> Option<i64> {
        self.resolve_attribute(name)?.i
    }

    pub fn flag_attribute(&self, name: &str) -> bool {
        self.int_attribute(name, 0) != 0
    }

    pub fn float_attribute(&self, name: &str, default: f32) -> f64 {
        self.optional_float(name).unwrap_or(default.into())
    }

    pub fn optional_float(&self, name: &str) -> Option<f64> {
        self.resolve_attribute(name)?.f.map(f64::from)
    }

    pub fn int_list(&self, name: &str) -> Option<Vec<i64>> {
        // Protobuf does not distinguish an empty list from none, so the attribute itself is looked up.
        self.resolve_attribute(name).map(|attribute| attribute.ints.clone())
    }

    /// Returns a list of numbers, empty if the attribute is omitted.
    pub fn float_list(&self, name: &str) -> Vec<f64> {
        self.resolve_attribute(name)
            .map_or_else(Vec::new, |attribute| attribute.floats.iter().map(|&number| number.into()).collect())
    }

    pub fn text_attribute(&self, name: &str) -> Option<&'a str> {
        std::str::from_utf8(self.resolve_attribute(name)?.s.as_ref()?).ok()
    }

    pub fn expect_int(&self, name: &str, expected: i64) -> Outcome<()> {
        match self.int_attribute(name, expected) {
            found if found == expected => Ok(()),
            found => unsupported(format!("attribute `{name}` is {found}; only {expected} is supported")),
        }
    }
}
