//! Checks that `docs/reference/environment.md` lists all environment variables that programs and scripts read.
#![allow(missing_docs)]

use std::collections::BTreeSet;
use tests::workspace::{files, members, root, text};

fn without_tests(text: &str) -> &str {
    text.split("#[cfg(test)]").next().unwrap_or_default()
}

/// Returns quoted names that could be variables: capitals, digits and `_`.
fn names(line: &str) -> impl Iterator<Item = &str> {
    let is_name = |text: &&str| {
        text.len() > 3
            && text.starts_with(|first: char| first.is_ascii_uppercase())
            && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
    };
    line.split('"').skip(1).step_by(2).filter(is_name)
}

/// Returns the variables that sources read, as a literal or as a constant whose name ends in `VARIABLE`.
fn read_by_sources() -> BTreeSet<String> {
    const CALLS: [&str; 5] = ["env::var(", "env::var_os(", "option_env!(", "env!(\"", "variable(\""];
    let rooms: Vec<String> =
        members().into_iter().filter(|member| member.name != "tests").map(|member| member.folder).collect();
    let is_source = |path: &String| {
        let of_room = |room: &String| {
            let rest = path.strip_prefix(room.as_str()).and_then(|rest| rest.strip_prefix('/'));
            rest.is_some_and(|rest| rest.starts_with("src/") || rest == "build.rs")
        };
        rooms.iter().any(of_room) && !path.contains("/tests/") && !path.ends_with("/tests.rs")
    };
    let mut read = BTreeSet::new();
    for path in files(".rs").into_iter().filter(is_source) {
        let text = text(&path);
        let is_lookup = text.contains("lookup(");
        for line in without_tests(&text).lines() {
            let is_call = CALLS.iter().any(|call| line.contains(call));
            let is_constant = line.contains("VARIABLE: &str");
            if is_call || is_constant || is_lookup {
                read.extend(names(line).filter(|name| !name.starts_with("CARGO_")).map(str::to_owned));
            }
            if let Some((_, argument)) = line.split_once("env::var").filter(|(_, rest)| rest.starts_with(['(', '_'])) {
                let argument = argument.split_once('(').map_or("", |(_, argument)| argument);
                let is_plain = argument.starts_with('"') || argument.starts_with("name)");
                assert!(is_plain || argument.contains("VARIABLE"), "{path}: name the constant …_VARIABLE: {line}");
            }
        }
    }
    read
}

/// Returns the variables that shell scripts read with a default: `${NAME:-…}`.
fn read_by_scripts() -> BTreeSet<String> {
    let scripts = files("").into_iter().filter(|path| path.starts_with("scripts/"));
    let texts = scripts.filter_map(|path| std::fs::read_to_string(root().join(path)).ok());
    let is_name = |text: &&str| text.len() > 3 && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
    let of = |text: String| {
        let starts = text.split("${").skip(1).filter_map(|rest| Some(rest.split_once(":-")?.0.to_owned()));
        starts.collect::<Vec<String>>()
    };
    texts.flat_map(of).filter(|name| is_name(&name.as_str())).collect()
}

#[test]
fn every_variable_is_documented() {
    let page = text("docs/reference/environment.md");
    let read: BTreeSet<String> = read_by_sources().union(&read_by_scripts()).cloned().collect();
    for known in ["OPCOLLECT_TVM", "NO_COLOR", "SLURM_ARRAY_TASK_ID", "XGBOOST_LIB_DIR", "CARGO_TARGET_DIR"] {
        assert!(read.contains(known), "the search finds `{known}`: {read:?}");
    }
    let missing: Vec<&String> = read.iter().filter(|name| !page.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "docs/reference/environment.md does not say what {missing:?} are for");
}
