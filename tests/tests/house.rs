//! The workspace keeps its own rules: arrows between crates, reasons of dependencies, what files begin with, circles
//! between files, and documents that name only what exists.
#![allow(missing_docs)]

mod circles;

use std::collections::{BTreeMap, BTreeSet};
use tests::workspace::{Member, files, members, root, text};

/// The lines of crates in ARCHITECTURE.md, the highest first.
fn layers() -> Vec<Vec<String>> {
    let architecture = text("ARCHITECTURE.md");
    let rest = architecture.split_once("Crate arrows").expect("the arrows are described").1;
    let block = rest.split("```").nth(1).expect("they are a block");
    let lines = block.lines().skip(1).map(|line| line.split_whitespace().map(str::to_owned).collect());
    lines.filter(|line: &Vec<String>| !line.is_empty()).collect()
}

fn no_faults(wrong: Vec<String>) {
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn arrows_between_crates_point_downwards() {
    let layers = layers();
    let layer = |name: &str| layers.iter().position(|line| line.iter().any(|known| known == name));
    let mut wrong = Vec::new();
    for Member { name, dependencies, .. } in members() {
        let Some(own) = layer(&name) else {
            wrong.push(format!("ARCHITECTURE.md: `{name}` is not among the lines of crates"));
            continue;
        };
        let upward = dependencies.iter().filter(|used| layer(used).is_some_and(|below| below <= own));
        wrong.extend(upward.map(|used| format!("`{name}` depends on `{used}`, which is not below it")));
        if dependencies.iter().any(|used| used.starts_with("tvm-")) && name != "kernel" {
            wrong.push(format!("`{name}` depends on TVM, which only `kernel` may"));
        }
    }
    let known: BTreeSet<String> = members().into_iter().map(|member| member.name).collect();
    let gone = layers.iter().flatten().filter(|name| !known.contains(*name));
    wrong.extend(gone.map(|name| format!("ARCHITECTURE.md: there is no crate `{name}`")));
    no_faults(wrong);
}

#[test]
fn every_dependency_has_its_reason() {
    let manifest = text("Cargo.toml");
    let section = manifest.split_once("[workspace.dependencies]").expect("dependencies are the workspace's").1;
    let section = section.split("\n[").next().unwrap_or_default();
    let lines = section.lines().filter(|line| line.contains(" = ") && !line.contains("{ path = "));
    let is_without = |line: &&str| line.split_once('#').is_none_or(|(_, why)| why.trim().is_empty());
    no_faults(lines.filter(is_without).map(|line| format!("Cargo.toml: `{line}` says not what it is for")).collect());
    let mut wrong = Vec::new();
    for member in members() {
        let manifest = text(&format!("{}/Cargo.toml", member.folder));
        let own = manifest.lines().skip_while(|line| !line.contains("dependencies]"));
        let own = own.filter(|line| line.contains(" = \"") || line.contains("version = "));
        wrong.extend(own.map(|line| format!("{}/Cargo.toml: `{line}` is not the workspace's", member.folder)));
    }
    no_faults(wrong);
}

#[test]
fn every_file_says_first_what_it_is_for() {
    let is_silent = |path: &String| !text(path).starts_with("//! ");
    no_faults(files(".rs").into_iter().filter(is_silent).map(|path| format!("{path}: no line `//! …`")).collect());
}

#[test]
fn modules_with_files_below_them_lie_in_their_folder() {
    let is_beside = |path: &String| {
        let stem = path.trim_end_matches(".rs");
        !path.contains("/tests/") && root().join(stem).is_dir() && !stem.ends_with("/lib") && !stem.ends_with("/main")
    };
    let sources = files(".rs").into_iter();
    no_faults(sources.filter(is_beside).map(|path| format!("{path}: is called `mod.rs` in its folder")).collect());
}

#[test]
fn no_files_of_a_crate_need_each_other() {
    let mut wrong = Vec::new();
    for Member { name, folder, .. } in members() {
        let start = format!("{folder}/src/");
        let sources: BTreeMap<String, String> = files(".rs")
            .into_iter()
            .filter(|path| path.starts_with(&start))
            .map(|path| (path.clone(), text(&path)))
            .collect();
        let found = circles::circles(&start, &sources);
        wrong.extend(found.into_iter().map(|files| format!("{name}: {} need each other", files.join(", "))));
    }
    no_faults(wrong);
}

/// `engine` and `predictor` serve programs, Python and tests: they do not print, and neither end the process nor read its environment.
/// The settings of `engine` are flags, too, where a program asks for that by the feature `clap`.
#[test]
fn the_engine_and_the_predictor_are_libraries() {
    let mut wrong: Vec<String> = Vec::new();
    for name in ["engine", "predictor"] {
        let Member { folder, dependencies, .. } =
            members().into_iter().find(|member| member.name == name).expect("a crate of the workspace");
        let foreign = ["clap", "clap_complete", "indicatif"];
        let is_optional =
            text(&format!("{folder}/Cargo.toml")).contains("clap = { workspace = true, optional = true }");
        let used =
            dependencies.iter().filter(|used| foreign.contains(&used.as_str()) && !(*used == "clap" && is_optional));
        wrong.extend(used.map(|used| format!("{name} depends on `{used}`")));
        for path in files(".rs").into_iter().filter(|path| path.starts_with(&format!("{folder}/src/"))) {
            let source = text(&path);
            // Lints of the workspace deny printing, unless a source allows it or `report` does it.
            let of_program =
                ["clippy::print_", "report::terminal", "process::exit", "env::var", "env::args", "env::current_exe"];
            let found = of_program.iter().filter(|part| source.contains(**part));
            wrong.extend(found.map(|part| format!("{path} has `{part}`")));
        }
    }
    no_faults(wrong);
}

/// A command line holds arguments and tables, and no file holds two subjects.
#[test]
fn command_lines_and_files_stay_small() {
    const LARGEST_CLI_LINES: usize = 5500;
    const LARGEST_FILE_LINES: usize = 700;
    let sources: Vec<(String, usize)> = files(".rs")
        .into_iter()
        .map(|path| (text(&path).lines().count(), path))
        .map(|(lines, path)| (path, lines))
        .collect();
    let mut wrong: Vec<String> = Vec::new();
    for cli in ["collector/cli/", "predictor/cli/"] {
        let lines: usize = sources.iter().filter(|(path, _)| path.starts_with(cli)).map(|(_, lines)| lines).sum();
        if lines > LARGEST_CLI_LINES {
            wrong.push(format!("{cli} has {lines} lines; work belongs to the library below it"));
        }
    }
    let is_product = |path: &str| path.contains("/src/") && !path.starts_with("tests/");
    wrong.extend(
        sources
            .iter()
            .filter(|(path, lines)| is_product(path) && *lines > LARGEST_FILE_LINES)
            .map(|(path, lines)| format!("{path} has {lines} lines")),
    );
    no_faults(wrong);
}

/// Returns the commands of both programs with their options, read from the command references; `help.rs` compares those with the
/// programs.
fn commands() -> BTreeMap<String, BTreeSet<String>> {
    let mut commands = BTreeMap::new();
    for program in ["opcollect", "oppredict"] {
        let page = text(&format!("docs/reference/{program}.md"));
        for section in page.split("\n## ").skip(1) {
            let (name, help) = section.split_once('\n').expect("a heading ends with its line");
            let words = help.split(|c: char| c.is_whitespace() || ",`[]=.".contains(c));
            let options = words.filter(|word| word.starts_with("--")).map(str::to_owned);
            commands.insert(name.to_owned(), options.collect());
        }
    }
    commands
}

/// What a document shows in code: spans, and lines of blocks.
fn code(document: &str) -> Vec<(usize, String)> {
    let (mut found, mut is_block) = (Vec::new(), false);
    for (number, line) in (1..).zip(document.lines()) {
        if line.trim_start().starts_with("```") {
            is_block = !is_block;
        } else if is_block {
            found.push((number, line.to_owned()));
        } else {
            found.extend(line.split('`').skip(1).step_by(2).map(|span| (number, span.to_owned())));
        }
    }
    found
}

/// Limits of the pages that a newcomer reads first, in lines.
const LINES_MAX: [(&str, usize); 2] = [("README.md", 120), ("ARCHITECTURE.md", 250)];
/// Words that the pages avoid because a reader must guess what they stand for, as whole words.
const BANNED: [&str; 16] = [
    "in turns",
    "beside",
    "besides",
    "whoever",
    "somebody",
    "nobody",
    "everybody",
    "anybody",
    "mend",
    "manieth",
    "passes over",
    "passed over",
    "in their place",
    "in its place",
    "told",
    "hears",
];

/// Lines of a page with a banned word, outside of code.
fn banned_words(path: &str, document: &str) -> Vec<String> {
    let mut is_block = false;
    let mut found = Vec::new();
    for (number, line) in (1..).zip(document.lines()) {
        is_block ^= line.trim_start().starts_with("```");
        let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join(" ");
        let words = prose.to_lowercase().replace(|c: char| !c.is_alphanumeric(), " ");
        let words = format!(" {} ", words.split_whitespace().collect::<Vec<_>>().join(" "));
        let banned = BANNED.iter().filter(|word| !is_block && words.contains(&format!(" {word} ")));
        found.extend(banned.map(|word| format!("{path}:{number}: write something plainer than `{word}`")));
    }
    found
}

/// The anchors of a page's headings, as GitHub makes them.
fn anchors(document: &str) -> BTreeSet<String> {
    let headings = document.lines().filter(|line| line.starts_with('#'));
    headings
        .map(|line| {
            let kept = line.trim_start_matches('#').trim().to_lowercase();
            kept.chars().filter(|&c| c.is_alphanumeric() || "-_ ".contains(c)).collect::<String>().replace(' ', "-")
        })
        .collect()
}

#[test]
fn documents_have_the_shape_that_readers_expect() {
    let mut wrong = Vec::new();
    for (path, most) in LINES_MAX {
        let lines = text(path).lines().count();
        if lines > most {
            wrong.push(format!("{path} has {lines} lines, more than {most}"));
        }
    }
    let summary = text("docs/SUMMARY.md");
    for path in files(".md").iter().filter(|path| path.starts_with("docs/") && *path != "docs/SUMMARY.md") {
        let inside = path.trim_start_matches("docs/");
        if !summary.contains(&format!("]({inside})")) {
            wrong.push(format!("docs/SUMMARY.md does not list {inside}"));
        }
    }
    for path in files(".md") {
        let document = text(&path);
        if !path.starts_with("docs/reference/") {
            wrong.extend(banned_words(&path, &document));
        }
        let folder = root().join(&path).parent().expect("a document lies in a folder").to_owned();
        for link in document.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let Some((page, anchor)) = link.split_once('#').filter(|_| !link.contains("://")) else { continue };
            let page = if page.is_empty() { root().join(&path) } else { folder.join(page) };
            let has = std::fs::read_to_string(&page).is_ok_and(|page| anchors(&page).contains(anchor));
            if !has {
                wrong.push(format!("{path}: there is no heading for the link `{link}`"));
            }
        }
    }
    no_faults(wrong);
}

/// What is wrong with a command line that begins with one of our programs.
fn wrong_command(line: &str, commands: &BTreeMap<String, BTreeSet<String>>) -> Option<String> {
    let mut words =
        line.split_whitespace().take_while(|word| !word.starts_with(['#', '|', '&', '>', ';']) && *word != "--");
    let program = words.next()?.trim_start_matches("scripts/");
    if !["opcollect", "oppredict"].contains(&program) {
        return None;
    }
    let (mut path, mut is_path) = (program.to_owned(), true);
    let mut options = Vec::new();
    for word in words {
        let longer = format!("{path} {word}");
        if is_path && commands.contains_key(&longer) {
            path = longer;
        } else if word.starts_with("--") {
            is_path = false;
            options.push(word.split('=').next().unwrap_or(word).trim_end_matches([',', ')', ']', '.', ':']));
        } else if is_path && word.chars().all(|c| c.is_ascii_lowercase() || c == '-') {
            let has_more = commands.keys().any(|known| known.starts_with(&format!("{path} ")));
            if has_more {
                return Some(format!("`{path}` has no command `{word}`"));
            }
            is_path = false;
        } else {
            is_path = false;
        }
    }
    let known = &commands[&path];
    let unknown = options.into_iter().find(|option| option.len() > 2 && !known.contains(*option))?;
    Some(format!("`{path}` has no option `{unknown}`"))
}

#[test]
fn documents_name_commands_options_scripts_and_files_that_exist() {
    let (commands, mut wrong) = (commands(), Vec::new());
    assert!(commands.len() > 20, "the command references name the commands");
    for path in files(".md").iter().filter(|path| !path.starts_with("CHANGELOG")) {
        let document = text(path);
        for (number, line) in code(&document) {
            for part in line.split("&&").map(str::trim) {
                wrong.extend(wrong_command(part, &commands).map(|why| format!("{path}:{number}: {why}")));
                let script = part.split_whitespace().next().filter(|word| word.starts_with("scripts/"));
                let script = script.filter(|script| !root().join(script).exists() && !script.contains(['{', '*']));
                wrong.extend(script.map(|script| format!("{path}:{number}: there is no `{script}`")));
            }
        }
        let folder = root().join(path).parent().expect("a document lies in a folder").to_owned();
        for target in document.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next()) {
            let is_gone = !target.is_empty() && !target.contains("://") && !folder.join(target).exists();
            wrong.extend(is_gone.then(|| format!("{path}: the link to `{target}` leads nowhere")));
        }
    }
    no_faults(wrong);
}

#[test]
fn what_counts_as_a_wrong_command() {
    let options = |names: &[&str]| names.iter().map(ToString::to_string).collect::<BTreeSet<String>>();
    let commands = BTreeMap::from([
        ("opcollect".to_owned(), options(&["--target"])),
        ("opcollect dataset".to_owned(), options(&[])),
        ("opcollect dataset stats".to_owned(), options(&["--json"])),
    ]);
    let wrong = |line: &str| wrong_command(line, &commands);
    assert_eq!(wrong("scripts/opcollect --target llvm # --nonsense"), None);
    assert_eq!(wrong("opcollect dataset stats STORE --json | less"), None);
    assert_eq!(wrong("opcollect dataset weigh"), Some("`opcollect dataset` has no command `weigh`".to_owned()));
    assert_eq!(
        wrong("opcollect dataset stats --target=x"),
        Some("`opcollect dataset stats` has no option `--target`".to_owned())
    );
    assert_eq!(wrong("opcollect dataset stats -- theirs --nonsense"), None);
    assert_eq!(wrong("python --nonsense"), None);
}
