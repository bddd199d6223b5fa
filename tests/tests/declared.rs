//! Every operator is declared once: there is no second list of operators, and a new operator touches few files.
#![allow(missing_docs)]

use std::collections::{BTreeMap, BTreeSet};
use tests::workspace::{files, product_code, text};

const LIST: &str = "models/src/operators/mod.rs";
const SHORT_FORMS: &str = "models/zoo/src/simple/forms.rs";
/// Folders with one part per operator, one file per family in each.
const LAYERS: &[&str] = &[
    "collector/kernel/src/lower/",
    "collector/torch/src/",
    "models/readers/src/onnx/write/",
    "models/reference/src/",
    "models/src/operators/",
];
/// Number of files of a plain operator: the list, its own file, one file per layer, and its short form.
const FILES_OF_PLAIN_OPERATOR: usize = 7;
/// Maximum number of files of any operator. Some layers handle some operators in several files.
const MAX_FILES: usize = 11;

fn sources() -> Vec<(String, String)> {
    let is_product = |path: &String| {
        let is_apart = path.starts_with("tests/") || path.starts_with("fuzz/");
        path.contains("/src/") && !is_apart && !path.contains("/tests/") && !path.ends_with("/tests.rs")
    };
    let code = |path: &String| {
        let source = text(path);
        let product = product_code(&source);
        product.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
    };
    let with_code = |path: String| {
        let code = code(&path);
        (path, code)
    };
    files(".rs").into_iter().filter(is_product).map(with_code).collect()
}

/// Returns the words that follow a text which is not part of a longer word.
fn words_after(code: &str, start: &str) -> BTreeSet<String> {
    let word = |rest: &str| rest.chars().take_while(|letter| letter.is_alphanumeric()).collect::<String>();
    let is_apart = |place: usize| !code[..place].ends_with(|letter: char| letter.is_alphanumeric() || letter == '_');
    code.match_indices(start)
        .filter(|(place, _)| is_apart(*place))
        .map(|(place, _)| word(&code[place + start.len()..]))
        .collect()
}

/// Returns the files that name the variant of each operator, including its own file and the list.
fn files_of_operators(sources: &[(String, String)]) -> BTreeMap<&'static str, BTreeSet<&str>> {
    let is_layer = |path: &str| path == SHORT_FORMS || LAYERS.iter().any(|layer| path.starts_with(layer));
    let layers = sources.iter().filter(|(path, _)| is_layer(path));
    let named: Vec<(&str, BTreeSet<String>)> =
        layers.map(|(path, code)| (path.as_str(), words_after(code, "Op::"))).collect();
    let of = |operator: &str| {
        let own = format!("pub struct {operator} {{");
        let naming = named.iter().filter(|(_, names)| names.contains(operator)).map(|(path, _)| *path);
        let declaring =
            sources.iter().filter(|(path, code)| path.starts_with("models/src/operators/") && code.contains(&own));
        naming.chain(declaring.map(|(path, _)| path.as_str())).chain([LIST]).collect()
    };
    models::operators::EXAMPLES.iter().map(|(operator, _)| (*operator, of(operator))).collect()
}

#[test]
fn a_new_operator_touches_few_files() {
    let sources = sources();
    let by_operator = files_of_operators(&sources);
    for (operator, files) in &by_operator {
        assert!(files.iter().any(|path| path.starts_with("models/src/operators/") && *path != LIST), "{operator}");
        assert!(files.len() <= MAX_FILES, "{operator}: {files:#?}");
    }
    let plain = by_operator.values().filter(|files| files.len() <= FILES_OF_PLAIN_OPERATOR).count();
    assert!(plain > by_operator.len() / 2, "{by_operator:#?}");
}

#[test]
fn operators_are_listed_once() {
    let most = models::operators::EXAMPLES.len() * 2 / 3;
    let lists: Vec<String> = sources()
        .into_iter()
        .filter(|(path, code)| path != SHORT_FORMS && words_after(code, "Op::").len() > most)
        .map(|(path, _)| path)
        .collect();
    assert_eq!(lists, Vec::<String>::new(), "ask what an operator declares, or its class");
}

#[test]
fn windows_and_masks_have_one_type_each() {
    let mut declared: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (path, code) in sources() {
        for name in ["struct ", "enum ", "type "].iter().flat_map(|start| words_after(&code, start)) {
            declared.entry(name).or_default().push(path.clone());
        }
    }
    for name in ["AttentionMask", "ConvWindow", "Sight", "Window"] {
        let places = declared.remove(name).unwrap_or_default();
        assert!(places.len() <= 1, "`{name}`: {places:?}");
    }
}
