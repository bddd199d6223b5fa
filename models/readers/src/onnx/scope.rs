//! Resolves names, in the main graph and in nested subgraphs.

use super::call::Arguments;
use models::graph::ValueId;
use std::collections::HashMap;
use std::rc::Rc;

#[derive(Clone)]
pub(super) enum Slot {
    Value(ValueId),
    Sequence(Rc<Vec<ValueId>>),
    /// An optional value without an element.
    Absent,
    /// An input of a function that the call omits. A node that reads it has an omitted input.
    Omitted,
    Skipped,
    /// An optional output that is not computed; an error only if it is read. The text is the reason.
    Unmade(&'static str),
}

pub(super) struct Scope<'a> {
    /// Scopes of names; the innermost is last.
    pub names: Vec<HashMap<&'a str, Slot>>,
    pub opsets: HashMap<&'a str, i64>,
    pub arguments: Arguments<'a>,
    /// Prefix of node names.
    pub place: String,
    pub depth: usize,
}

impl Scope<'_> {
    pub(super) fn find_name(&self, name: &str) -> Option<Slot> {
        self.names.iter().rev().find_map(|names| names.get(name)).cloned()
    }
}
