use super::*;

/// Parameters, and multiply-adds of linear layers, convolutions and attention at batch 1 and 128 tokens (vision models:
/// their own number of tokens), as counted on the published library's own classes.
const GOLDEN: &[(&str, u64, u64)] = &[("bert-base-uncased", 109_482_240, 22_348_431_360 / 2)];

#[test]
fn parameters_and_multiply_adds_are_those_of_the_published_classes() {
    for (name, parameters, macs) in GOLDEN {
        let graph = load(name, &Options::default()).unwrap().graph;
        assert_eq!((graph.parameters().learned, graph.work().unwrap().macs), (*parameters, *macs), "{name}");
    }
}
