//! A few cases of the ONNX project's backend tests; `scripts/onnx-conformance` runs them all.

use std::path::Path;
use std::process::Command;
use tests::onnx::{Case, Distance, Verdict, folders};
use tests::{skip, workspace};

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

/// Files of `scripts/onnx_models.py`: attention as exported by PyTorch and as in published networks.
#[test]
fn all_forms_of_attention_become_one_operator() {
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

/// Returns the tolerance of a case: one integer step and a relative float error, because rounding is ambiguous.
fn allowed(name: &str) -> Distance {
    let form = name.split('/').next().unwrap_or_default();
    let share = match form {
        "operators" if name.contains("DynamicQuantizeLSTM") => 5e-3,
        "qoperator" | "qoperator-extended" | "qdq" | "qdq-extended" | "dynamic" | "dynamic-extended" => 5e-2,
        "half" | "half-whole" => 2e-2,
        "sixteen" | "sixteen-unsigned" => 2e-3,
        _ => 1e-4,
    };
    Distance { steps: 1.0, share }
}

/// Networks as saved by ONNX Runtime's optimiser and quantisers, and single operators of its own domain.
#[test]
fn files_of_onnxruntime_match_its_results() {
    let cases = tempfile::tempdir().expect("a folder");
    let root = workspace::root();
    let script = root.join("scripts/onnxruntime_cases.py");
    let python = root.join(".venv/bin/python");
    if !Command::new(&python).args(["-c", "import onnxruntime"]).output().is_ok_and(|done| done.status.success()) {
        return skip("`onnxruntime` is not in .venv; `scripts/setup --test` installs it");
    }
    let made = Command::new(&python).arg(script).arg(cases.path()).output().expect("Python runs");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let found = folders(cases.path()).expect("a list");
    assert!(found.len() > 200, "only {} cases", found.len());
    let mut wrong = Vec::new();
    for folder in found {
        let name = folder.strip_prefix(cases.path()).unwrap_or(&folder).display().to_string();
        let limit = allowed(&name);
        match Case::read(cases.path(), &folder).and_then(|case| case.distance()) {
            Ok(far) if far.steps <= limit.steps && far.share <= limit.share => {}
            Ok(far) => wrong.push(format!("{name}: {far:?} is above {limit:?}")),
            Err(why) => wrong.push(format!("{name}: {why:?}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
