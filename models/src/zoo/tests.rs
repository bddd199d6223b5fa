use super::*;
use crate::operator::Class;
use crate::work::work;

/// Learned parameters, and multiply-adds for one input, as counted on the reference library's own classes.
const GOLDEN: &[(&str, u64, u64)] = &[
    ("resnet-18", 11_689_512, 1_814_073_344),
    ("resnet-34", 21_797_672, 3_663_761_408),
    ("resnet-50", 25_557_032, 4_089_184_256),
    ("resnet-101", 44_549_160, 7_801_405_440),
    ("resnet-152", 60_192_808, 11_513_626_624),
    ("mlp", 109_386, 109_184),
];

#[test]
fn parameters_and_multiply_adds_are_those_of_the_reference() {
    for (name, parameters, macs) in GOLDEN {
        let graph = build(name, 1).unwrap();
        assert_eq!((graph.parameters().learned, macs_of(&graph)), (*parameters, *macs), "{name}");
    }
}

#[test]
fn every_model_has_a_golden_row_and_grows_with_the_batch() {
    for entry in list() {
        let golden = GOLDEN.iter().find(|(name, ..)| *name == entry.name);
        let (_, parameters, macs) = golden.unwrap_or_else(|| panic!("`{}` has no golden row", entry.name));
        let graph = entry.build(3).unwrap();
        assert_eq!((graph.parameters().learned, macs_of(&graph)), (*parameters, 3 * macs), "{}", entry.name);
    }
}

#[test]
fn no_two_models_share_a_spelling() {
    let mut all: Vec<String> = list().iter().flat_map(spellings).map(bare).collect();
    let count = all.len();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), count);
}

#[test]
fn spelling_is_forgiving_and_mistakes_get_a_hint() {
    for name in ["resnet-18", "resnet18", "ResNet_18", "RESNET18"] {
        assert_eq!(find(name).unwrap().name, "resnet-18");
    }
    let says = |name: &str| find(name).err().unwrap().to_string();
    assert_eq!(says("resnet19"), "unknown model `resnet19`; the nearest are `resnet-18`, `resnet-101`, `resnet-152`");
    assert_eq!(says("qqqqqqqqqqqq"), "unknown model `qqqqqqqqqqqq`; `--list` shows all names");
    assert_eq!(build("mlp", 0).unwrap_err().to_string(), "model `mlp`: batch size 0 must be at least 1");
}

fn macs_of(graph: &Graph) -> u64 {
    let contractions = graph.nodes.iter().filter(|node| node.op.class() == Class::Contraction);
    contractions
        .map(|node| {
            let ty = |id: &ValueId| &graph.values[id.0 as usize].ty;
            work(&node.op, &node.inputs.iter().map(ty).collect::<Vec<_>>(), ty(&node.outputs[0])).unwrap().macs
        })
        .sum()
}
