//! Parts of programs that only set a mode, put in the place where they are called.
//!
//! `torch.export` wraps what stands inside `no_grad` or `autocast` in a program of its own. Its nodes become nodes of the
//! program around it, under names that say where they come from.

use super::schema::{Graph, Input, Node, Union, names_of};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Programs within programs.
const MAX_DEPTH: usize = 16;

/// Replaces nodes that run a part of the program in another mode by the nodes of that part.
pub(super) fn inline(graph: &mut Graph) -> Result<(), String> {
    inline_to(graph, MAX_DEPTH)
}

fn inline_to(graph: &mut Graph, depth: usize) -> Result<(), String> {
    if !graph.nodes.iter().any(is_wrapper) {
        return Ok(());
    }
    if depth == 0 {
        return Err(format!("it nests programs deeper than {MAX_DEPTH}"));
    }
    for mut node in std::mem::take(&mut graph.nodes) {
        match part_of(&mut node)? {
            Some(part) => insert(graph, &node, part, depth)?,
            None => graph.nodes.push(node),
        }
    }
    Ok(())
}

fn is_wrapper(node: &Node) -> bool {
    let target = node.target.strip_prefix("torch.ops.").unwrap_or(&node.target);
    ["higher_order.wrap_with_set_grad_enabled", "higher_order.wrap_with_autocast"].contains(&target)
}

/// Takes the part that a node runs out of it. A part in another precision stays in its node, which is refused later.
fn part_of(node: &mut Node) -> Result<Option<Graph>, String> {
    if !is_wrapper(node) {
        return Ok(None);
    }
    let is_cast = node.target.ends_with("autocast");
    let is_on = |input: &Input| input.arg.of("as_bool") == Some(&Value::Bool(true));
    // The flags of `autocast` are whether it is on, and whether it keeps a cache.
    let first_flag = node.inputs.iter().find(|input| input.arg.of("as_bool").is_some());
    if is_cast && first_flag.is_some_and(is_on) {
        return Ok(None);
    }
    let part = node.inputs.iter_mut().find_map(|input| input.arg.take_graph());
    let part = part.ok_or_else(|| format!("`{}` runs no program", node.target))?;
    serde_json::from_value(part).map(Some).map_err(|error| format!("a part of the program is damaged ({error})"))
}

/// Adds the nodes of a part with the names of what is outside, then a name for each result.
fn insert(graph: &mut Graph, node: &Node, mut part: Graph, depth: usize) -> Result<(), String> {
    inline_to(&mut part, depth - 1)?;
    let results = names(&node.outputs);
    let prefix = results.first().cloned().unwrap_or_default();
    let given = node.inputs.iter().skip_while(|input| input.arg.of("as_graph").is_none()).skip(1);
    let given: Vec<Union> = given.map(|input| input.arg.clone()).collect();
    let mut outer: BTreeMap<String, String> = BTreeMap::new();
    for (inside, outside) in names(&part.inputs).into_iter().zip(names(&given)) {
        outer.insert(inside, outside);
    }
    let symbol = |union: &Union| Some(union.of("as_sym_int")?.get("as_name")?.as_str()?.to_owned());
    outer.extend(part.inputs.iter().zip(&given).filter_map(|(inside, outside)| symbol(inside).zip(symbol(outside))));
    let renamed = |name: &str| outer.get(name).cloned().unwrap_or_else(|| format!("{prefix}.{name}"));
    for node in &mut part.nodes {
        let arguments = node.inputs.iter_mut().map(|input| &mut input.arg);
        arguments.chain(&mut node.outputs).for_each(|union| union.rename(&renamed));
    }
    part.outputs.iter_mut().for_each(|union| union.rename(&renamed));
    graph.nodes.append(&mut part.nodes);
    for (name, value) in std::mem::take(&mut part.tensor_values) {
        graph.tensor_values.entry(renamed(&name)).or_insert(value);
    }
    for (from, to) in [
        (part.sym_int_values, &mut graph.sym_int_values),
        (part.sym_bool_values, &mut graph.sym_bool_values),
        (part.sym_float_values, &mut graph.sym_float_values),
    ] {
        for (name, value) in from {
            to.entry(renamed(&name)).or_insert(value);
        }
    }
    let made = names(&part.outputs);
    if made.len() != results.len() {
        return Err(format!("a part of the program makes {} tensors for {} names", made.len(), results.len()));
    }
    graph.nodes.extend(made.iter().zip(&results).map(|(from, to)| alias(from, to)));
    Ok(())
}

/// Names of tensors in the order of their variants.
fn names(unions: &[Union]) -> Vec<String> {
    unions.iter().flat_map(names_of).map(str::to_owned).collect()
}

/// Another name for a tensor.
fn alias(from: &str, to: &str) -> Node {
    let tensor = |name: &str| {
        let name = Map::from_iter([("name".to_owned(), Value::from(name))]);
        Union::new("as_tensor", Value::Object(name))
    };
    let inputs = vec![Input { name: "self".to_owned(), arg: tensor(from) }];
    Node {
        target: "torch.ops.aten.alias.default".to_owned(),
        inputs,
        outputs: vec![tensor(to)],
        metadata: Default::default(),
    }
}
