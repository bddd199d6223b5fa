//! Runs the passes on every network.
#![allow(missing_docs)]

use passes::simplify_graph;

#[test]
fn simplifying_twice_changes_nothing_more() {
    for entry in zoo::list_models() {
        let once = simplify_graph(&entry.build_graph(1).unwrap()).unwrap();
        assert!(once.nodes.iter().all(|node| node.op.name() != "batch_norm"), "{}", entry.name);
        assert_eq!(simplify_graph(&once).unwrap(), once, "{}", entry.name);
    }
}
