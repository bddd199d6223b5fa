//! What names stand for where a node stands.

use super::call::Arguments;
use models::graph::ValueId;
use std::collections::HashMap;
use std::rc::Rc;

/// What a name stands for.
#[derive(Clone)]
pub(super) enum Slot {
    Value(ValueId),
    /// A sequence of tensors, whose length is known.
    Sequence(Rc<Vec<ValueId>>),
    /// An optional value that is not there.
    Absent,
    /// The result of a node that was left out.
    Skipped,
    /// An optional output that no rule makes; an error only for who reads it.
    Unmade(&'static str),
}

/// Names and settings that hold where a node stands.
pub(super) struct Scope<'a> {
    /// Innermost last.
    pub names: Vec<HashMap<&'a str, Slot>>,
    pub opsets: HashMap<&'a str, i64>,
    pub arguments: Arguments<'a>,
    /// Put before the names of nodes.
    pub place: String,
    pub depth: usize,
}

impl Scope<'_> {
    pub(super) fn find(&self, name: &str) -> Option<Slot> {
        self.names.iter().rev().find_map(|names| names.get(name)).cloned()
    }
}
