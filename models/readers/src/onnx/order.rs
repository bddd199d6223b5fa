//! Which nodes depend on which: an order in which each node follows the nodes it reads, because some converters append
//! nodes at the end, and the nodes that no output needs.

use super::messages::{Graph, Node};
use std::collections::{HashMap, HashSet};

/// Returns a topological order, or None if the nodes already have one. The first node of a cycle is refused on import.
pub(super) fn sort_nodes(nodes: &[Node]) -> Option<Vec<usize>> {
    let makers = find_makers(nodes);
    let before: Vec<Vec<usize>> = nodes
        .iter()
        .enumerate()
        .map(|(index, node)| {
            let mut before = Vec::new();
            visit_reads(node, &mut |name| before.extend(makers.get(name).filter(|&&maker| maker != index)));
            before
        })
        .collect();
    if before.iter().enumerate().all(|(index, before)| before.iter().all(|&maker| maker < index)) {
        return None;
    }
    Some(depth_first_order(&before))
}

/// Returns the outputs of the nodes on which no output of the graph depends.
pub(super) fn unused_values(graph: &Graph) -> HashSet<&str> {
    let nodes = &graph.node;
    let makers = find_makers(nodes);
    let mut is_used = vec![false; nodes.len()];
    let mut left: Vec<usize> = graph.output.iter().filter_map(|info| makers.get(info.name.as_str()).copied()).collect();
    while let Some(index) = left.pop() {
        if !std::mem::replace(&mut is_used[index], true) {
            visit_reads(&nodes[index], &mut |name| left.extend(makers.get(name)));
        }
    }
    let unused = nodes.iter().zip(&is_used).filter(|(_, is_used)| !**is_used);
    unused.flat_map(|(node, _)| node.output.iter().map(String::as_str)).collect()
}

/// Returns whether a node or an output of the graph reads the value, or the graph has an input of this name.
pub(super) fn is_read(graph: &Graph, name: &str) -> bool {
    let mut is_read = graph.input.iter().chain(&graph.output).any(|info| info.name == name);
    for node in &graph.node {
        visit_reads(node, &mut |read| is_read |= read == name);
    }
    is_read
}

/// Returns the node that makes each value.
fn find_makers(nodes: &[Node]) -> HashMap<&str, usize> {
    let mut makers = HashMap::with_capacity(nodes.len());
    for (index, node) in nodes.iter().enumerate() {
        for name in node.output.iter().filter(|name| !name.is_empty()) {
            makers.entry(name.as_str()).or_insert(index);
        }
    }
    makers
}

fn depth_first_order(before: &[Vec<usize>]) -> Vec<usize> {
    let mut order = Vec::with_capacity(before.len());
    let mut is_met = vec![false; before.len()];
    for start in 0..before.len() {
        let mut path = vec![(start, 0)];
        if std::mem::replace(&mut is_met[start], true) {
            continue;
        }
        while let Some((node, next)) = path.pop() {
            match before[node].get(next) {
                None => order.push(node),
                Some(&maker) => {
                    path.push((node, next + 1));
                    if !std::mem::replace(&mut is_met[maker], true) {
                        path.push((maker, 0));
                    }
                }
            }
        }
    }
    order
}

/// Visits all names that a node and its subgraphs read, also names that are defined inside of the subgraphs.
fn visit_reads<'a>(node: &'a Node, found: &mut dyn FnMut(&'a str)) {
    node.input.iter().for_each(|name| found(name));
    for graph in node.attribute.iter().filter_map(|attribute| attribute.g.as_ref()) {
        graph.output.iter().for_each(|info| found(&info.name));
        graph.node.iter().for_each(|node| visit_reads(node, found));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(output: &str, inputs: &[&str]) -> Node {
        let input = inputs.iter().map(|name| (*name).to_owned()).collect();
        Node { input, output: vec![output.to_owned()], ..Node::default() }
    }

    #[test]
    fn nodes_stand_behind_what_they_read() {
        assert_eq!(sort_nodes(&[node("a", &["x"]), node("b", &["a", ""])]), None);
        assert_eq!(sort_nodes(&[node("b", &["a"]), node("c", &["b"]), node("a", &["x"])]), Some(vec![2, 0, 1]));
        assert_eq!(sort_nodes(&[node("a", &["b"]), node("b", &["a"])]).map(|order| order.len()), Some(2));
        assert_eq!(sort_nodes(&[node("a", &["a"])]), None);
    }
}
