//! Keeps accumulator buffers on the stack, where LLVM can assign them to registers. TVM allocates buffers of a kibibyte
//! or more in its workspace, which the code then accesses in every step of a sum, unless an annotation is set. TVM's
//! interface cannot set it, so it is added to the serialized text of the module.

use super::call::{TvmError, Value, call};
use super::expression::Module;
use super::names;
use serde_json::{Value as Json, json};

const ALLOCATION: &str = "tirx.AllocBuffer";
/// TVM's own limit: smaller buffers are kept on the stack anyway.
const SMALL_BYTES: u64 = 1 << 10;
/// Size limit of a buffer that is kept on the stack: twice the total size of the vector registers of AVX-512.
const LARGEST_BYTES: u64 = 4 << 10;

pub(super) fn keep_small_buffers(module: Module) -> Result<Module, TvmError> {
    let text = call!(names::JSON_GRAPH, &module.0, Value::none())?.as_text()?;
    if !text.contains(ALLOCATION) {
        return Ok(module);
    }
    let mut graph =
        serde_json::from_str(&quote_numbers(&text)).map_err(|error| TvmError::new(names::JSON_GRAPH.text, error))?;
    if !mark_allocations(&mut graph) {
        return Ok(module);
    }
    call!(names::FROM_JSON_GRAPH, unquote_numbers(&graph.to_string()).as_str()).map(Module)
}

/// Numbers in TVM's output that JSON does not allow, and the texts that replace them, longest first.
const UNUSUAL: [[&str; 2]; 3] = [
    ["-Infinity", r#""number: negative infinity""#],
    ["Infinity", r#""number: infinity""#],
    ["NaN", r#""number: none""#],
];

fn quote_numbers(text: &str) -> String {
    let number =
        |between: &str| UNUSUAL.iter().fold(between.to_owned(), |text, [number, name]| text.replace(number, name));
    let mut quoted = String::with_capacity(text.len());
    let mut is_text = false;
    let mut rest = text;
    while let Some(end) = rest.find('"') {
        let (part, after) = rest.split_at(end);
        // A quotation mark behind a backslash is a part of its text.
        let is_escaped = is_text && part.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1;
        if is_text {
            quoted.push_str(part);
        } else {
            quoted.push_str(&number(part));
        }
        quoted.push('"');
        is_text ^= !is_escaped;
        rest = &after[1..];
    }
    quoted + &number(rest)
}

fn unquote_numbers(text: &str) -> String {
    UNUSUAL.iter().fold(text.to_owned(), |text, [number, name]| text.replace(name, number))
}

/// Marks the allocations that are kept on the stack, and returns whether there are any.
fn mark_allocations(graph: &mut Json) -> bool {
    const KEY: &str = "disable_lower_builtin";
    let Some(nodes) = graph["nodes"].as_array_mut() else { return false };
    let wanted: Vec<usize> = nodes
        .iter()
        .filter(|node| node["type"] == ALLOCATION)
        .filter(|node| {
            allocation_bytes(nodes, node).is_some_and(|bytes| (SMALL_BYTES..=LARGEST_BYTES).contains(&bytes))
        })
        .filter_map(|node| node_index(&node["data"]["annotations"]))
        .collect();
    let Some(ty) = nodes.iter().find(|node| node["type"] == "ir.IntImm").map(|node| node["data"]["ty"].clone()) else {
        return false;
    };
    if wanted.is_empty() {
        return false;
    }
    let (key, one) = (nodes.len(), nodes.len() + 1);
    nodes.push(json!({"type": "ffi.String", "data": KEY}));
    nodes.push(json!({"type": "int", "data": 1}));
    nodes.push(json!({"type": "None"}));
    nodes.push(json!({"type": "ir.IntImm", "data": {"span": one + 1, "ty": ty, "value": one}}));
    for annotations in wanted {
        if let Some(pairs) = nodes.get_mut(annotations).and_then(|map| map["data"].as_array_mut()) {
            pairs.extend([json!(key), json!(one + 2)]);
        }
    }
    true
}

fn allocation_bytes(nodes: &[Json], allocation: &Json) -> Option<u64> {
    let at = |place_of: &Json| nodes.get(node_index(place_of)?);
    let buffer = &at(&at(&allocation["data"]["buffer"])?["data"]["ty"])?["data"];
    if at(&buffer["storage_scope"])?["data"] != "global" {
        return None;
    }
    let element = bytes_of_type(at(&buffer["dtype"])?["data"]["dtype"].as_str()?)?;
    at(&buffer["shape"])?["data"]
        .as_array()?
        .iter()
        .try_fold(element, |bytes, extent| bytes.checked_mul(at(&at(extent)?["data"]["value"])?["data"].as_u64()?))
}

/// Returns the size in bytes of a type such as `float32x16`.
fn bytes_of_type(dtype: &str) -> Option<u64> {
    let bits = dtype.trim_start_matches(|letter: char| letter.is_ascii_alphabetic());
    let (bits, lanes) = bits.split_once('x').unwrap_or((bits, "1"));
    bits.parse::<u64>().ok()?.checked_mul(lanes.parse().ok()?).map(|bits| bits / 8)
}

fn node_index(reference: &Json) -> Option<usize> {
    usize::try_from(reference.as_u64()?).ok()
}

#[cfg(test)]
mod tests {
    use super::{bytes_of_type, mark_allocations, quote_numbers, unquote_numbers};
    use serde_json::{Value, json};

    fn graph(dtype: &str, scope: &str, elements: u64) -> Value {
        json!({"nodes": [
            {"type": "ir.PrimType", "data": {"dtype": dtype}},
            {"type": "ffi.String", "data": scope},
            {"type": "int", "data": elements},
            {"type": "ir.IntImm", "data": {"span": 0, "ty": 0, "value": 2}},
            {"type": "ffi.Array", "data": [3]},
            {"type": "tirx.BufferType", "data": {"dtype": 0, "storage_scope": 1, "shape": 4}},
            {"type": "ir.Var", "data": {"ty": 5}},
            {"type": "ffi.Map", "data": []},
            {"type": "tirx.AllocBuffer", "data": {"buffer": 6, "annotations": 7}}
        ]})
    }

    #[test]
    fn buffers_that_registers_hold_are_marked() {
        let is_marked = |dtype, scope, elements| mark_allocations(&mut graph(dtype, scope, elements));
        assert!(is_marked("float32x16", "global", 16) && is_marked("float32x32", "global", 14));
        assert!(is_marked("float32", "global", 1024));
        // What TVM keeps by itself, what is too large, and what lies elsewhere.
        assert!(!is_marked("float32x16", "global", 15) && !is_marked("float32", "global", 1025));
        assert!(!is_marked("float32x16", "shared", 16) && !is_marked("handle", "global", 16));
        let mut marked = graph("float32x16", "global", 16);
        mark_allocations(&mut marked);
        let pair = marked["nodes"][7]["data"].as_array().expect("a map").clone();
        let at = |index: &Value| &marked["nodes"][usize::try_from(index.as_u64().expect("an index")).expect("small")];
        assert_eq!(at(&pair[0])["data"], "disable_lower_builtin");
        assert_eq!(at(&at(&pair[1])["data"]["value"])["data"], 1);
        assert!(!mark_allocations(&mut json!({"nodes": []})) && !mark_allocations(&mut json!({})));
    }

    #[test]
    fn numbers_without_words_survive() {
        let text =
            r#"{"nodes":[{"data":-Infinity},[Infinity,NaN,-Infinity],{"value":NaN},{"data":"is NaN"},"\"NaN",1.5]}"#;
        let read: Value = serde_json::from_str(&quote_numbers(text)).expect("what is quoted is JSON");
        assert_eq!(read["nodes"][3]["data"], "is NaN");
        assert_eq!(unquote_numbers(&read.to_string()), text);
    }

    #[test]
    fn types_have_bytes() {
        let types = ["float32", "float32x16", "int8x64", "bfloat16x2", "uint16", "handle"];
        assert_eq!(types.map(bytes_of_type), [Some(4), Some(64), Some(64), Some(4), Some(2), None]);
    }
}
