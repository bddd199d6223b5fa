//! Accumulators that stay on the stack, where LLVM finds registers for them.
//!
//! TVM keeps buffers of less than a kibibyte on the stack and asks its workspace for all others, which then are memory in
//! every step of a sum. A tile that fills the vector registers of a processor with 512 bits in each has two. A buffer that
//! says so stays where it is; nothing of TVM's says so from outside, so it is written into the text of the module.

use super::call::{TvmError, Value, call};
use super::expression::Module;
use super::names;
use serde_json::{Value as Json, json};

/// TVM's own limit: what is smaller stays on the stack by itself.
const SMALL_BYTES: u64 = 1 << 10;
/// What all registers of a processor hold, twice.
const LARGEST_BYTES: u64 = 4 << 10;

/// The module with buffers of up to this size on the stack.
pub(super) fn keep_small_buffers(module: Module) -> Result<Module, TvmError> {
    let text = call!(names::JSON_GRAPH, &module.0, Value::none())?.text()?;
    let mut graph = serde_json::from_str(&text).map_err(|error| TvmError::new(names::JSON_GRAPH.text, error))?;
    if !mark(&mut graph) {
        return Ok(module);
    }
    call!(names::FROM_JSON_GRAPH, graph.to_string().as_str()).map(Module)
}

/// Marks allocations; says whether there were any.
fn mark(graph: &mut Json) -> bool {
    const KEY: &str = "disable_lower_builtin";
    let Some(nodes) = graph["nodes"].as_array_mut() else { return false };
    let wanted: Vec<usize> = nodes
        .iter()
        .filter(|node| node["type"] == "tirx.AllocBuffer")
        .filter(|node| bytes(nodes, node).is_some_and(|bytes| (SMALL_BYTES..=LARGEST_BYTES).contains(&bytes)))
        .filter_map(|node| place(&node["data"]["annotations"]))
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

/// The size of what a node allocates in the memory that all may use, when it is a number.
fn bytes(nodes: &[Json], allocation: &Json) -> Option<u64> {
    let at = |place_of: &Json| nodes.get(place(place_of)?);
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

/// The bytes of an element of a type, such as `float32x16`.
fn bytes_of_type(dtype: &str) -> Option<u64> {
    let bits = dtype.trim_start_matches(|letter: char| letter.is_ascii_alphabetic());
    let (bits, lanes) = bits.split_once('x').unwrap_or((bits, "1"));
    bits.parse::<u64>().ok()?.checked_mul(lanes.parse().ok()?).map(|bits| bits / 8)
}

/// The index of a node.
fn place(reference: &Json) -> Option<usize> {
    usize::try_from(reference.as_u64()?).ok()
}
