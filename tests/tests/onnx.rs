//! A few cases of the ONNX project's backend tests; `scripts/onnx-conformance` runs them all.

use std::path::Path;
use tests::onnx::{Case, Verdict, folders};

#[test]
fn checked_in_cases_pass() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("onnx-cases");
    let found = folders(&root).unwrap();
    assert!(found.len() >= 20, "only {} cases below {}", found.len(), root.display());
    for folder in found {
        let case = Case::read(&root, &folder).unwrap_or_else(|verdict| panic!("{}: {verdict:?}", folder.display()));
        assert_eq!(case.evaluate(), Verdict::Passed, "{}", case.name);
    }
}

/// Files of `scripts/onnx_models.py`: attention as PyTorch's exporter and published networks spell it.
#[test]
fn attention_is_one_operator_however_it_is_spelled() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("onnx-attention");
    let found = folders(&root).unwrap();
    assert!(found.len() >= 12, "only {} cases below {}", found.len(), root.display());
    for folder in found {
        let case = Case::read(&root, &folder).unwrap_or_else(|verdict| panic!("{}: {verdict:?}", folder.display()));
        let case = case.of_network();
        assert_eq!(case.evaluate(), Verdict::Passed, "{}", case.name);
        let graph = case.simplified().unwrap();
        let count = |name: &str| graph.nodes.iter().filter(|node| node.op.name() == name).count();
        let counts = ["attention", "softmax", "mat_mul", "expand"].map(count);
        assert_eq!(counts, [1, 0, 0, 0], "{}: {}", case.name, graph.to_text());
    }
}
