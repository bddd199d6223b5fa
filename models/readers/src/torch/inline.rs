//! Inlines subprograms at the node that runs them: the code inside `no_grad` or `autocast`, and both branches of
//! `torch.cond`, whose node then selects between their results. Inlined nodes get the first result of the calling node
//! as name prefix. The condition and the body of a `while_loop` move from the inputs of the node to its `parts`.

use super::schema::{Graph, Input, Node, Union, names_of};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Maximum length of a subprogram's name prefix, which grows with nesting.
const MAX_PREFIX_BYTES: usize = 1024;

const MAX_DEPTH: usize = 16;

pub(super) fn inline_parts(graph: &mut Graph) -> Result<(), String> {
    inline_to(graph, MAX_DEPTH)
}

fn inline_to(graph: &mut Graph, depth: usize) -> Result<(), String> {
    if !graph.nodes.iter().any(|node| is_wrapper(node) || is_condition(node) || is_loop(&node.target)) {
        return Ok(());
    }
    if depth == 0 {
        return Err(format!("subprograms are nested deeper than {MAX_DEPTH} levels"));
    }
    for mut node in std::mem::take(&mut graph.nodes) {
        if is_condition(&node) {
            insert_both(graph, node, depth)?;
            continue;
        }
        if is_loop(&node.target) {
            take_parts(&mut node, depth)?;
        }
        match take_subprogram(&mut node)? {
            Some(part) => insert_part(graph, &node, part, depth)?,
            None => graph.nodes.push(node),
        }
    }
    Ok(())
}

fn is_wrapper(node: &Node) -> bool {
    let target = node.target.strip_prefix("torch.ops.").unwrap_or(&node.target);
    ["higher_order.wrap_with_set_grad_enabled", "higher_order.wrap_with_autocast"].contains(&target)
}

/// Takes the subprogram that a node runs. None if absent, or if `autocast` changes the precision (refused later).
fn take_subprogram(node: &mut Node) -> Result<Option<Graph>, String> {
    if !is_wrapper(node) {
        return Ok(None);
    }
    let is_cast = node.target.ends_with("autocast");
    let is_on = |input: &Input| input.arg.value_of("as_bool") == Some(&Value::Bool(true));
    // The boolean arguments of `autocast` are `enabled` and `cache_enabled`, in this order.
    let first_flag = node.inputs.iter().find(|input| input.arg.value_of("as_bool").is_some());
    if is_cast && first_flag.is_some_and(is_on) {
        return Ok(None);
    }
    take_program(node.inputs.iter_mut().find(|input| input.arg.value_of("as_graph").is_some())).map(Some)
}

fn insert_part(graph: &mut Graph, node: &Node, part: Graph, depth: usize) -> Result<(), String> {
    let results = tensor_names(&node.outputs);
    let prefix = prefix_of(&results)?;
    let given = node.inputs.iter().skip_while(|input| input.arg.value_of("as_graph").is_none()).skip(1);
    let given: Vec<Union> = given.map(|input| input.arg.clone()).collect();
    let made = insert_nodes(graph, part, &prefix, &given, depth)?;
    if made.len() != results.len() {
        return Err(format!("a subprogram produces {} tensors for {} names", made.len(), results.len()));
    }
    graph.nodes.extend(made.iter().zip(&results).map(|(from, to)| alias_node(from, to)));
    Ok(())
}

fn prefix_of(results: &[String]) -> Result<String, String> {
    let prefix = results.first().cloned().unwrap_or_default();
    if prefix.len() > MAX_PREFIX_BYTES {
        return Err(format!("the name of a result has more than {MAX_PREFIX_BYTES} bytes"));
    }
    Ok(prefix)
}

fn is_condition(node: &Node) -> bool {
    node.target.ends_with("higher_order.cond")
        && node.inputs.iter().any(|input| input.arg.value_of("as_graph").is_some())
}

pub(super) fn is_loop(target: &str) -> bool {
    target.ends_with("higher_order.while_loop")
}

fn take_parts(node: &mut Node, depth: usize) -> Result<(), String> {
    for index in 0..2 {
        let mut part = take_program(node.inputs.get_mut(index))?;
        inline_to(&mut part, depth - 1)?;
        node.parts.push(part);
    }
    Ok(())
}

fn take_program(input: Option<&mut Input>) -> Result<Graph, String> {
    let part = input.and_then(|input| input.arg.take_graph()).ok_or("a node lacks its subprogram")?;
    serde_json::from_value(part).map_err(|error| format!("a subprogram is invalid ({error})"))
}

fn insert_both(graph: &mut Graph, mut node: Node, depth: usize) -> Result<(), String> {
    let results = tensor_names(&node.outputs);
    let prefix = prefix_of(&results)?;
    let given: Vec<Union> = node.inputs.iter().skip(3).flat_map(|input| input.arg.list_elements()).collect();
    let predicate = node.inputs.first().map(|input| input.arg.clone()).ok_or("a condition has no predicate")?;
    let mut inputs = vec![Input { name: "predicate".to_owned(), arg: predicate }];
    for (index, name) in [(1, "then"), (2, "otherwise")] {
        let part = take_program(node.inputs.get_mut(index))?;
        let made = insert_nodes(graph, part, &format!("{prefix}.{name}"), &given, depth)?;
        if made.len() != results.len() {
            return Err(format!("a subprogram produces {} tensors for {} names", made.len(), results.len()));
        }
        let tensors = made.iter().map(|name| serde_json::json!({ "name": name })).collect();
        inputs.push(Input { name: name.to_owned(), arg: Union::new("as_tensors", Value::Array(tensors)) });
    }
    graph.nodes.push(Node { inputs, ..node });
    Ok(())
}

/// Inlines the nodes of a subprogram, renames its arguments to outer values, and returns the names of its results.
fn insert_nodes(
    graph: &mut Graph,
    mut part: Graph,
    prefix: &str,
    given: &[Union],
    depth: usize,
) -> Result<Vec<String>, String> {
    inline_to(&mut part, depth - 1)?;
    let mut outer: BTreeMap<String, String> = BTreeMap::new();
    for (inside, outside) in tensor_names(&part.inputs).into_iter().zip(tensor_names(given)) {
        outer.insert(inside, outside);
    }
    let symbol = |union: &Union| Some(union.value_of("as_sym_int")?.get("as_name")?.as_str()?.to_owned());
    outer.extend(part.inputs.iter().zip(given).filter_map(|(inside, outside)| symbol(inside).zip(symbol(outside))));
    let renamed = |name: &str| outer.get(name).cloned().unwrap_or_else(|| format!("{prefix}.{name}"));
    for node in &mut part.nodes {
        let arguments = node.inputs.iter_mut().map(|input| &mut input.arg);
        arguments.chain(&mut node.outputs).for_each(|union| union.rename_values(&renamed));
    }
    part.outputs.iter_mut().for_each(|union| union.rename_values(&renamed));
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
    Ok(tensor_names(&part.outputs))
}

fn tensor_names(unions: &[Union]) -> Vec<String> {
    unions.iter().flat_map(names_of).map(str::to_owned).collect()
}

fn alias_node(from: &str, to: &str) -> Node {
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
        parts: Vec::new(),
    }
}
