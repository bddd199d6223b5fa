//! Runs the passes on every network.
#![allow(missing_docs)]

use passes::simplify;

#[test]
fn simplifying_twice_changes_nothing_more() {
    for entry in zoo::list() {
        let once = simplify(&entry.build(1).unwrap()).unwrap();
        assert!(once.nodes.iter().all(|node| node.op.name() != "batch_norm"), "{}", entry.name);
        assert_eq!(simplify(&once).unwrap(), once, "{}", entry.name);
    }
}
