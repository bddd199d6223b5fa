//! Checks that every `unsafe` has a reason and is in one of the modules (fences) that `ARCHITECTURE.md` lists.
#![allow(missing_docs)]

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::collections::BTreeMap;
use tests::workspace::{files, text};

/// Lines with an `unsafe` block, function or implementation, each with whether a reason precedes the line.
type Promises = Vec<(usize, bool)>;

fn promises(text: &str) -> Promises {
    let tokens: TokenStream = text.parse().expect("a source file is made of tokens");
    let mut lines = Vec::new();
    collect(tokens, &mut lines);
    let text: Vec<&str> = text.lines().map(str::trim).collect();
    lines.into_iter().map(|line| (line, has_reason(&text, line))).collect()
}

fn collect(tokens: TokenStream, lines: &mut Vec<usize>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for (place, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Group(group) => collect(group.stream(), lines),
            TokenTree::Ident(word) if word == "unsafe" && !is_type(&tokens[place + 1..]) => {
                lines.push(word.span().start().line);
            }
            _ => {}
        }
    }
}

/// Returns whether these tokens make a preceding `unsafe` part of a function pointer's type, which needs no reason.
fn is_type(next: &[TokenTree]) -> bool {
    let mut next = next.iter().filter(|token| !matches!(token, TokenTree::Literal(_)));
    let mut word = || next.next().map(ToString::to_string);
    let first = word();
    let is_function = match first.as_deref() {
        Some("extern") => word().as_deref() == Some("fn"),
        other => other == Some("fn"),
    };
    is_function && matches!(next.next(), Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis)
}

fn has_reason(text: &[&str], line: usize) -> bool {
    let is_part =
        |line: &&&str| line.starts_with("//") || line.starts_with("#[") || !line.ends_with([';', '{', '}', ',']);
    let above = text[..line - 1].iter().rev().take_while(is_part).take_while(|line| !line.is_empty());
    let is_reason = |line: &&str| ["// SAFETY: ", "/// # Safety"].iter().any(|mark| line.starts_with(mark));
    above.copied().any(|line| is_reason(&line))
}

fn all() -> BTreeMap<String, Promises> {
    files(".rs").into_iter().map(|path| (path.clone(), promises(&text(&path)))).collect()
}

fn fences() -> Vec<String> {
    let architecture = text("ARCHITECTURE.md");
    let invariant = architecture.split_once("`unsafe` stands in").expect("an invariant speaks of it").1;
    let invariant = invariant.split_once("and nowhere else").expect("it says that these are all").0;
    let named = invariant.split('`').skip(1).step_by(2);
    named
        .flat_map(|path| match path.split_once('{') {
            Some((head, rest)) => {
                let (names, tail) = rest.split_once('}').expect("braces are closed");
                names.split(',').map(|name| format!("{head}{name}{tail}")).collect()
            }
            None => vec![path.to_owned()],
        })
        .collect()
}

fn is_in(fence: &str, path: &str) -> bool {
    path.strip_prefix(fence).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[test]
fn every_unsafe_has_a_reason_and_is_in_a_fence() {
    let (all, fences) = (all(), fences());
    let mut wrong = Vec::new();
    for (path, promises) in &all {
        let is_fenced = fences.iter().any(|fence| is_in(fence, path));
        for (line, has_reason) in promises {
            if !is_fenced {
                wrong.push(format!("{path}:{line}: `unsafe` outside of the fences that ARCHITECTURE.md names"));
            }
            if !has_reason {
                wrong.push(format!("{path}:{line}: `unsafe` without a comment `// SAFETY: …` above its statement"));
            }
        }
    }
    let is_used = |fence: &str| all.iter().any(|(path, promises)| is_in(fence, path) && !promises.is_empty());
    let idle = fences.iter().filter(|fence| !is_used(fence));
    wrong.extend(idle.map(|fence| format!("ARCHITECTURE.md: the fence `{fence}` holds nothing unsafe")));
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Returns the lines of a text with an `unsafe` without a reason, and the number of all its lines with `unsafe`.
fn lacking(text: &str) -> (Vec<usize>, usize) {
    let promises = promises(text);
    (promises.iter().filter(|(_, has_reason)| !has_reason).map(|(line, _)| *line).collect(), promises.len())
}

#[test]
fn safety_comments_are_found() {
    let lacks = |text: &str| lacking(text);
    assert_eq!(lacks("fn f() { unsafe { g() } }"), (vec![1], 1));
    assert_eq!(lacks("// SAFETY: known.\nlet x =\n    unsafe { g() };"), (vec![], 1));
    assert_eq!(lacks("// SAFETY: known.\nlet x = unsafe { g() };\nlet y = unsafe { g() };"), (vec![3], 2));
    assert_eq!(lacks("// SAFETY: known.\n\nlet x = unsafe { g() };"), (vec![3], 1));
    assert_eq!(lacks("// SAFETY: known.\nfn f() {\n    unsafe { g() }\n}"), (vec![3], 1));
    assert_eq!(lacks("// It is quick.\nunsafe impl Send for T {}"), (vec![2], 1));
    assert_eq!(lacks("/// # Safety\n///\n/// Keep it.\n#[inline]\nunsafe fn f() {}"), (vec![], 1));
    assert_eq!(lacks("unsafe extern \"C\" fn f() {}"), (vec![1], 1));
    assert_eq!(lacks("#[unsafe(no_mangle)]\nfn f() {}"), (vec![1], 1));
    assert_eq!(lacks("macro_rules! m { () => { unsafe { g() } } }"), (vec![1], 1));
}

#[test]
fn function_pointer_types_need_no_reason() {
    for text in [
        "type F = unsafe extern \"C\" fn(*mut u8) -> i32;",
        "struct S { f: Option<unsafe fn()> }",
        "// unsafe { g() }",
        "/* unsafe */ const A: &str = \"unsafe { g() }\";",
        "const A: &str = r#\"unsafe \"{}\"\"#;",
        "#![deny(unsafe_code)]",
    ] {
        assert_eq!(lacking(text), (vec![], 0), "{text}");
    }
}
