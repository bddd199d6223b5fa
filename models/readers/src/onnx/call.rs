//! One node as its rule sees it: attributes by name, inputs by position.

use super::messages;
use crate::{Outcome, malformed, unsupported};
use models::graph::ValueId;
use std::collections::HashMap;

/// Attributes that a function was called with, for the nodes of its body that refer to them.
pub(super) type Arguments<'a> = HashMap<&'a str, &'a messages::Attribute>;

/// One node with its inputs found.
pub(super) struct Call<'a> {
    pub node: &'a messages::Node,
    /// Version of the operator set the node was written for.
    pub opset: i64,
    /// Inputs by position; nothing where an optional one is left out.
    pub inputs: Vec<Option<ValueId>>,
    /// Attributes of the surrounding function.
    pub arguments: Arguments<'a>,
}

impl<'a> Call<'a> {
    /// An input that must be given.
    pub fn input(&self, index: usize) -> Outcome<ValueId> {
        match self.optional(index) {
            Some(id) => Ok(id),
            None => malformed(format!("input {index} is missing")),
        }
    }

    pub fn optional(&self, index: usize) -> Option<ValueId> {
        self.inputs.get(index).copied().flatten()
    }

    /// All inputs of an operator that takes any number of them.
    pub fn all_inputs(&self) -> Outcome<Vec<ValueId>> {
        if self.inputs.is_empty() {
            return malformed("it has no inputs");
        }
        (0..self.inputs.len()).map(|index| self.input(index)).collect()
    }

    /// Whether an output is asked for.
    pub fn has_output(&self, index: usize) -> bool {
        self.node.output.get(index).is_some_and(|name| !name.is_empty())
    }

    /// An attribute, after looking up what it refers to.
    pub fn attribute(&self, name: &str) -> Option<&'a messages::Attribute> {
        let attribute = self.node.attribute.iter().find(|attribute| attribute.name == name)?;
        match attribute.ref_attr_name.as_str() {
            "" => Some(attribute),
            argument => self.arguments.get(argument).copied(),
        }
    }

    pub fn int(&self, name: &str, default: i64) -> i64 {
        self.optional_int(name).unwrap_or(default)
    }

    pub fn optional_int(&self, name: &str) -> Option<i64> {
        self.attribute(name)?.i
    }

    pub fn flag(&self, name: &str) -> bool {
        self.int(name, 0) != 0
    }

    pub fn float(&self, name: &str, default: f32) -> f64 {
        self.optional_float(name).unwrap_or(default.into())
    }

    pub fn optional_float(&self, name: &str) -> Option<f64> {
        self.attribute(name)?.f.map(f64::from)
    }

    pub fn ints(&self, name: &str) -> Option<Vec<i64>> {
        // An empty list and a list left out are the same message, so the attribute itself must be looked for.
        self.attribute(name).map(|attribute| attribute.ints.clone())
    }

    /// A list of numbers, empty where the attribute is left out.
    pub fn floats(&self, name: &str) -> Vec<f64> {
        self.attribute(name)
            .map_or_else(Vec::new, |attribute| attribute.floats.iter().map(|&number| number.into()).collect())
    }

    pub fn text(&self, name: &str) -> Option<&'a str> {
        std::str::from_utf8(self.attribute(name)?.s.as_ref()?).ok()
    }

    /// A number of the operator's own defaults that a node may not change.
    pub fn expect_int(&self, name: &str, expected: i64) -> Outcome<()> {
        match self.int(name, expected) {
            found if found == expected => Ok(()),
            found => unsupported(format!("attribute `{name}` is {found}, only {expected} can be represented")),
        }
    }
}
