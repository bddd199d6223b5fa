//! Patterns of operators as data.
//! A pattern is a line of text that looks like the computation it finds, so a table of patterns can be read:
//!
//! | text | finds |
//! | --- | --- |
//! | `x` | any value; a repeated name must be the same value |
//! | `_` | any value |
//! | `#w` | a constant |
//! | `0.5` | a constant whose elements all equal this number |
//! | `relu(x)` | an operator whose inputs match; operands of sums and products in either order |
//! | `concat(x, ..)` | an operator whose further inputs are arbitrary |
//! | `relu/clip(x)` | one of several operators |
//! | `relu?(x)` | the operator, or `x` without it |
//! | `clip{low=0,high=6}(x)` | an operator with these attributes |
//! | `sqrt(x) \| pow(x, 0.5)` | one of several patterns |
//! | `c@conv(x, #w)` | a pattern whose value gets a name |

mod parse;

use crate::lookup::GraphLookup;
use models::graph::{Node, ValueId};
use models::operators::Op;
use serde_json::Value as Json;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

/// A parsed pattern; its root is the operator that computes the last value.
#[derive(Clone, Debug, PartialEq)]
pub struct Pattern(PatternForm);

#[derive(Clone, Debug, PartialEq)]
enum PatternForm {
    Any(Option<String>),
    Constant(String),
    Number(f64),
    Call(PatternCall),
    Choice(Vec<PatternForm>),
    Named(String, Box<PatternForm>),
}

#[derive(Clone, Debug, PartialEq)]
struct PatternCall {
    operators: Vec<String>,
    attributes: Vec<(String, Json)>,
    inputs: Vec<PatternForm>,
    is_open: bool,
    /// Whether the operator may be absent; then its first input is matched instead of the operator.
    is_optional: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("pattern `{text}`: {reason}")]
pub struct NotAPattern {
    text: String,
    reason: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Match {
    values: BTreeMap<String, ValueId>,
    /// Indices of the nodes that the match covers, last one first.
    pub nodes: Vec<usize>,
}

impl Match {
    /// Returns the value that matched a name. Every name that is not inside an alternative has a value.
    pub fn get(&self, name: &str) -> Option<ValueId> {
        self.values.get(name).copied()
    }
}

impl Pattern {
    pub fn parse_text(text: &str) -> Result<Pattern, NotAPattern> {
        parse::parse_pattern(text).map(Pattern).map_err(|reason| NotAPattern { text: text.to_owned(), reason })
    }

    /// Parses a pattern of the source code, once per thread; panics if the text is invalid.
    pub(crate) fn from_static(text: &'static str) -> Rc<Pattern> {
        thread_local! {
            /// Patterns by the address and length of their text. A lock would make threads wait for each other.
            static PARSED: RefCell<HashMap<(*const u8, usize), Rc<Pattern>>> = RefCell::default();
        }
        let parse = || Rc::new(Pattern::parse_text(text).unwrap_or_else(|error| panic!("{error}")));
        PARSED.with_borrow_mut(|parsed| parsed.entry((text.as_ptr(), text.len())).or_insert_with(parse).clone())
    }

    pub(crate) fn find_in(&self, lookup: &GraphLookup<'_>, id: ValueId) -> Option<Match> {
        let mut found = None;
        match_form(&self.0, lookup, id, &mut Match::default(), &mut |state| {
            found = Some(state.clone());
            true
        });
        found
    }
}

/// Calls `then` for every match of `form`, until it returns true.
fn match_form(
    form: &PatternForm,
    lookup: &GraphLookup<'_>,
    id: ValueId,
    state: &mut Match,
    then: &mut dyn FnMut(&mut Match) -> bool,
) -> bool {
    match form {
        PatternForm::Any(None) => then(state),
        PatternForm::Any(Some(name)) => bind_name(name, id, state, then),
        PatternForm::Constant(name) => lookup.constant_data(id).is_some() && bind_name(name, id, state, then),
        PatternForm::Number(number) => lookup.is_about(id, *number) && then(state),
        PatternForm::Choice(forms) => forms.iter().any(|form| match_form(form, lookup, id, state, then)),
        PatternForm::Named(name, form) => {
            match_form(form, lookup, id, state, &mut |state| bind_name(name, id, state, then))
        }
        PatternForm::Call(call) => {
            if let Some((index, node)) = lookup.indexed_producer(id).filter(|(_, node)| call.fits_node(node)) {
                state.nodes.push(index);
                let forward: Vec<ValueId> = node.inputs.clone();
                let mut orders = vec![forward];
                if is_commutative(&node.op) && node.inputs.len() == 2 {
                    orders.push(vec![node.inputs[1], node.inputs[0]]);
                }
                if orders.iter().any(|inputs| find_all(&call.inputs, lookup, inputs, state, then)) {
                    return true;
                }
                state.nodes.pop();
            }
            call.is_optional && match_form(&call.inputs[0], lookup, id, state, then)
        }
    }
}

fn find_all(
    forms: &[PatternForm],
    lookup: &GraphLookup<'_>,
    ids: &[ValueId],
    state: &mut Match,
    then: &mut dyn FnMut(&mut Match) -> bool,
) -> bool {
    match (forms.split_first(), ids.split_first()) {
        (Some((form, forms)), Some((&id, ids))) => {
            match_form(form, lookup, id, state, &mut |state| find_all(forms, lookup, ids, state, then))
        }
        (None, _) => then(state),
        (Some(_), None) => false,
    }
}

fn bind_name(name: &str, id: ValueId, state: &mut Match, then: &mut dyn FnMut(&mut Match) -> bool) -> bool {
    match state.values.get(name) {
        Some(other) => *other == id && then(state),
        None => {
            state.values.insert(name.to_owned(), id);
            let is_found = then(state);
            if !is_found {
                state.values.remove(name);
            }
            is_found
        }
    }
}

impl PatternCall {
    fn fits_node(&self, node: &Node) -> bool {
        let count = node.inputs.len();
        let has_inputs = count == self.inputs.len() || (self.is_open && count >= self.inputs.len());
        has_inputs && self.operators.iter().any(|name| name == node.op.name()) && self.has_attributes(&node.op)
    }

    fn has_attributes(&self, op: &Op) -> bool {
        if self.attributes.is_empty() {
            return true;
        }
        let stored = serde_json::to_value(op).expect("attributes are numbers, texts and lists");
        self.attributes.iter().all(|(key, wanted)| match (wanted.as_f64(), stored[key].as_f64()) {
            (Some(wanted), Some(found)) => wanted == found,
            _ => stored[key] == *wanted,
        })
    }
}

fn is_commutative(op: &Op) -> bool {
    matches!(op.name(), "add" | "mul" | "max" | "min" | "and" | "or" | "xor" | "equal" | "not_equal")
}

#[cfg(test)]
mod tests {
    use super::*;
    use models::Graph;

    fn graph() -> Graph {
        let text = r#"
            graph "patterns"
            input %0 "x": f32[4]
            constant %1 "one": f32[] = fill(1.0)
            %2 "s": f32[4] = unary(%0) function="sigmoid"
            %3 "p": f32[4] = binary(%2, %0) function="mul"
            %4 "q": f32[4] = binary(%1, %3) function="add"
            %5 "r": f32[4] = clip(%4) low=0.0 high=6.0
            output %5
        "#;
        Graph::from_text(text).unwrap()
    }

    fn find_at(pattern: &str, graph: &Graph, id: ValueId) -> Option<Match> {
        Pattern::parse_text(pattern).unwrap().find_in(&GraphLookup::from_graph(graph), id)
    }

    #[track_caller]
    fn check(pattern: &str, at: u32, nodes: Option<&[usize]>) {
        let found = find_at(pattern, &graph(), ValueId(at));
        assert_eq!(found.as_ref().map(|found| found.nodes.as_slice()), nodes, "{pattern}");
    }

    #[test]
    fn forms_find_what_they_say() {
        check("mul(x, sigmoid(x))", 3, Some(&[1, 0]));
        check("mul(sigmoid(x), x)", 3, Some(&[1, 0]));
        check("mul(sigmoid(x), y)", 3, Some(&[1, 0]));
        check("mul(x, tanh(x))", 3, None);
        check("add(x, 1)", 4, Some(&[2]));
        check("add(x, 2)", 4, None);
        check("add(mul(s@sigmoid(x), x), #one)", 4, Some(&[2, 1, 0]));
        check("clip{low=0,high=6}(_)", 5, Some(&[3]));
        check("clip{low=-1,high=6}(_)", 5, None);
        check("relu/clip?(add(x, _))", 5, Some(&[3, 2]));
        check("relu?(add(x, _))", 4, Some(&[2]));
        check("relu(x) | clip(add(..))", 5, Some(&[3, 2]));
        check("add(#a, #b)", 4, None);
        check("add(a)", 4, None);
    }

    #[test]
    fn a_choice_made_too_early_is_taken_back() {
        // The sum offers its operands in one order first; only the other one leaves `x` for the product.
        let text = r#"
            graph "backtrack"
            input %0 "x": f32[4]
            input %1 "y": f32[4]
            %2 "sum": f32[4] = binary(%1, %0) function="add"
            %3 "product": f32[4] = binary(%2, %0) function="mul"
            output %3
        "#;
        let graph = Graph::from_text(text).unwrap();
        let found = find_at("mul(add(x, other), x)", &graph, ValueId(3)).unwrap();
        assert_eq!((found.get("x"), found.get("other")), (Some(ValueId(0)), Some(ValueId(1))));
    }

    #[test]
    fn mistakes_are_named() {
        for (text, reason) in [
            ("", "expected a pattern, found the end"),
            ("relu(", "expected a pattern, found the end"),
            ("relu(x", "expected `,` or `)`, found the end"),
            ("relu(x) y", "expected the end, found `y`"),
            ("relu?()", "an optional operator needs an input"),
            ("clip{low}(x)", "expected `=`, found `}`"),
            ("clip{low=x}(y)", "`x` is not an attribute value"),
        ] {
            assert_eq!(Pattern::parse_text(text).unwrap_err().to_string(), format!("pattern `{text}`: {reason}"));
        }
        assert!(Pattern::parse_text(&"relu(".repeat(1000)).is_err());
    }
}
