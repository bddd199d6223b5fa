//! Tests symbolic tasks of a transformer.
#![allow(missing_docs)]

use models::fuse::{Fuse, distinct_tasks};
use models::symbolic::unify_tasks;
use passes::simplify_graph;
use zoo::transformers::{self, Options};

#[test]
fn a_transformer_keeps_its_length() {
    let cut = |sequence: i64| {
        let options = Options { sequence, ..Options::default() };
        let graph = transformers::load_model("bert-base-uncased:num_hidden_layers=1", &options).unwrap().graph;
        distinct_tasks(&simplify_graph(&graph).unwrap(), Fuse::Epilogue).unwrap()
    };
    let (short, long) = (cut(32), cut(96));
    assert_eq!(short.len(), long.len());
    let names = [("sequence", vec![32, 96])];
    let families = short.iter().zip(&long).map(|(a, b)| unify_tasks(&[&a.task, &b.task], &names));
    let kept = families.filter(|family| family.as_ref().is_ok_and(|family| !family.sizes[0].is_empty())).count();
    assert!(kept + 3 >= short.len(), "{kept} of {}", short.len());
}
