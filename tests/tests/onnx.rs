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
