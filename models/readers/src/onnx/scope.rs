//! What names stand for where a node stands.

use super::call::Arguments;
use models::graph::ValueId;
use std::collections::HashMap;
use std::rc::Rc;

/// Meaning of a name.
#[derive(Clone)]
pub(super) enum Slot {
    Value(ValueId),
    /// A sequence of tensors with known length.
    Sequence(Rc<Vec<ValueId>>),
    /// A missing optional value.
    Absent,
    Skipped,
    /// An optional output that no rule produces; an error only if it is read.
    Unmade(&'static str),
}

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
    pub(super) fn find_name(&self, name: &str) -> Option<Slot> {
        self.names.iter().rev().find_map(|names| names.get(name)).cloned()
    }
}
