//! Dependencies between the files of a crate, and cycles among them.
//!
//! A file and the folder of its submodules form one unit: dependencies inside of it do not count. Tests are excluded.

use proc_macro2::{TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};

type Path = Vec<String>;

fn module(path: &str) -> Path {
    let mut names: Path = path.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if names.last().is_some_and(|name| ["mod", "lib", "main"].contains(&name.as_str())) {
        names.pop();
    }
    names
}

/// Returns groups of sibling modules that depend on each other cyclically. A module includes all of its submodules.
pub fn circles(start: &str, sources: &BTreeMap<String, String>) -> Vec<Vec<String>> {
    let is_test = |path: &&String| path.contains("/tests/") || path.ends_with("/tests.rs") || path.contains("/bin/");
    let kept = sources.keys().filter(|path| !is_test(path));
    let modules: BTreeMap<Path, &String> =
        kept.map(|path| (module(path.strip_prefix(start).expect("a source of the crate")), path)).collect();
    let mut arrows: Vec<(&Path, &Path)> = Vec::new();
    for (own, path) in &modules {
        let tokens: TokenStream = sources[*path].parse().expect("a source file is made of tokens");
        let mut used = Vec::new();
        paths(tokens, own, &mut used);
        for path in used {
            let longest = (1..=path.len()).rev().find_map(|length| modules.get_key_value(&path[..length]));
            arrows.extend(longest.map(|(to, _)| (own, to)));
        }
    }
    let folders: BTreeSet<&[String]> =
        modules.keys().flat_map(|path| (0..path.len()).map(|length| &path[..length])).collect();
    folders.into_iter().flat_map(|folder| circles_within(folder, &arrows)).collect()
}

fn circles_within(folder: &[String], arrows: &[(&Path, &Path)]) -> BTreeSet<Vec<String>> {
    let part =
        |path: &Path| path.starts_with(folder).then(|| path.get(..=folder.len()).map(<[String]>::to_vec)).flatten();
    let mut between: BTreeMap<Path, BTreeSet<Path>> = BTreeMap::new();
    for (from, to) in arrows {
        if let (Some(from), Some(to)) = (part(from), part(to))
            && from != to
        {
            between.entry(to.clone()).or_default();
            between.entry(from).or_default().insert(to);
        }
    }
    let reach: BTreeMap<&Path, BTreeSet<&Path>> = between.keys().map(|from| (from, reached(from, &between))).collect();
    let circle = |(from, reached): (&&Path, &BTreeSet<&Path>)| -> Vec<String> {
        let circle: BTreeSet<&Path> = reached.iter().filter(|to| reach[**to].contains(from)).copied().collect();
        circle.into_iter().map(|path| path.join("::")).collect()
    };
    reach.iter().map(circle).filter(|circle| !circle.is_empty()).collect()
}

/// Returns all modules reachable from a module; the module itself only if it is in a cycle.
fn reached<'a>(from: &Path, arrows: &'a BTreeMap<Path, BTreeSet<Path>>) -> BTreeSet<&'a Path> {
    let mut found = BTreeSet::new();
    let mut open: Vec<&Path> = arrows[from].iter().collect();
    while let Some(next) = open.pop() {
        if found.insert(next) {
            open.extend(&arrows[next]);
        }
    }
    found
}

/// Adds every path, from the crate's root, that occurs in the tokens, without test modules.
fn paths(tokens: TokenStream, own: &[String], found: &mut Vec<Path>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut at = 0;
    while at < tokens.len() {
        match &tokens[at] {
            TokenTree::Group(group) if group.stream().to_string() == "cfg (test)" => {
                // Skips the following item, up to its body or semicolon.
                at += tokens[at..].iter().position(is_end).unwrap_or(0);
            }
            TokenTree::Group(group) => paths(group.stream(), own, found),
            TokenTree::Ident(word) if word == "use" => {
                let length = tokens[at..].iter().position(is_end).unwrap_or(tokens.len() - at);
                tree(&tokens[at + 1..at + length], &[], own, found);
                at += length;
            }
            TokenTree::Ident(word) if word == "crate" || word == "super" => {
                let (path, length) = straight(&tokens[at..]);
                found.extend(absolute(&path, own));
                at += length - 1;
            }
            _ => {}
        }
        at += 1;
    }
}

fn is_end(token: &TokenTree) -> bool {
    match token {
        TokenTree::Punct(mark) => mark.as_char() == ';',
        TokenTree::Group(group) => group.delimiter() == proc_macro2::Delimiter::Brace && !is_names(group.stream()),
        _ => false,
    }
}

fn is_names(tokens: TokenStream) -> bool {
    tokens.into_iter().all(|token| match token {
        TokenTree::Ident(_) => true,
        TokenTree::Punct(mark) => [',', ':', '*'].contains(&mark.as_char()),
        TokenTree::Group(group) => is_names(group.stream()),
        TokenTree::Literal(_) => false,
    })
}

/// Returns the names joined by `::` at the start of the tokens, and the number of tokens that they take.
fn straight(tokens: &[TokenTree]) -> (Path, usize) {
    let (mut path, mut at) = (Vec::new(), 0);
    while let Some(TokenTree::Ident(word)) = tokens.get(at) {
        path.push(word.to_string());
        at += 1;
        let is_joined =
            |place: usize| matches!(tokens.get(place), Some(TokenTree::Punct(mark)) if mark.as_char() == ':');
        if !is_joined(at) || !is_joined(at + 1) {
            break;
        }
        at += 2;
    }
    (path, at.max(1))
}

fn tree(tokens: &[TokenTree], before: &[String], own: &[String], found: &mut Vec<Path>) {
    for part in tokens.split(|token| matches!(token, TokenTree::Punct(mark) if mark.as_char() == ',')) {
        let (path, _) = straight(part);
        let path = [before, &path].concat();
        match part.last() {
            Some(TokenTree::Group(group)) => {
                let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                tree(&inner, &path, own, found);
            }
            _ => found.extend(absolute(&path, own)),
        }
    }
}

/// Returns the path from the crate's root; None for other crates and for modules of the file itself.
fn absolute(path: &[String], own: &[String]) -> Option<Path> {
    let ups = path.iter().take_while(|name| *name == "super").count();
    let path: Path = path.iter().filter(|name| *name != "self").cloned().collect();
    match path.first()?.as_str() {
        "crate" => Some(path[1..].to_vec()),
        "super" => Some([own.get(..own.len().checked_sub(ups)?)?, &path[ups..]].concat()),
        _ => None,
    }
}

#[test]
fn cycles_are_found_and_submodules_are_not_cycles() {
    let sources = |texts: &[(&str, &str)]| -> BTreeMap<String, String> {
        texts.iter().map(|(path, text)| (format!("x/src/{path}"), (*text).to_owned())).collect()
    };
    let found = |texts: &[(&str, &str)]| circles("x/src/", &sources(texts));
    let one = ("one.rs", "use super::two::{Two, three};");
    assert_eq!(found(&[one, ("two.rs", "fn f() -> crate::one::One { todo!() }")]), [["one", "two"]]);
    assert_eq!(found(&[one, ("two.rs", "use std::fmt;")]), Vec::<Vec<String>>::new());
    assert_eq!(
        found(&[one, ("two.rs", "#[cfg(test)]\nmod tests { use crate::one::One; }")]),
        Vec::<Vec<String>>::new()
    );
    assert_eq!(found(&[("one/mod.rs", "use part::A;"), ("one/part.rs", "use super::B;")]), Vec::<Vec<String>>::new());
    let through_a_child =
        [("one/mod.rs", "use part::A;"), ("one/part.rs", "use crate::two::B;"), ("two.rs", "use crate::one::A;")];
    assert_eq!(found(&through_a_child), [["one", "two"]], "a folder uses what its files use");
    let in_a_folder = [("one/a.rs", "use super::b::B;"), ("one/b.rs", "use super::a::A;")];
    assert_eq!(found(&in_a_folder), [["one::a", "one::b"]]);
}
