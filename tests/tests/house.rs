//! Checks the workspace's own rules: crate arrows, reasons of dependencies, module comments, cycles between files, and
//! documents that name only existing things.
#![allow(missing_docs)]

mod circles;

use std::collections::{BTreeMap, BTreeSet};
use tests::workspace::{Member, files, members, product_code, root, text};

/// Returns the lines of crates in ARCHITECTURE.md, the highest layer first.
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
fn every_file_starts_with_a_module_comment() {
    let is_silent = |path: &String| !text(path).starts_with("//! ");
    no_faults(files(".rs").into_iter().filter(is_silent).map(|path| format!("{path}: no line `//! …`")).collect());
}

#[test]
fn modules_with_submodules_are_mod_rs_files() {
    let is_beside = |path: &String| {
        let stem = path.trim_end_matches(".rs");
        !path.contains("/tests/") && root().join(stem).is_dir() && !stem.ends_with("/lib") && !stem.ends_with("/main")
    };
    let sources = files(".rs").into_iter();
    no_faults(sources.filter(is_beside).map(|path| format!("{path}: is called `mod.rs` in its folder")).collect());
}

#[test]
fn no_files_of_a_crate_depend_on_each_other() {
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

/// `engine` and `predictor` are libraries: they do not print, end the process or read its environment.
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
            // Lints of the workspace deny printing, unless a source allows it or uses `report`.
            let of_program =
                ["clippy::print_", "report::terminal", "process::exit", "env::var", "env::args", "env::current_exe"];
            let found = of_program.iter().filter(|part| source.contains(**part));
            wrong.extend(found.map(|part| format!("{path} has `{part}`")));
        }
    }
    no_faults(wrong);
}

/// Returns whether a line of code compares kinds of targets, instead of calling a method of the kind.
fn compares_kinds(line: &str) -> bool {
    // PyTorch is also a source of models.
    let names =
        || targets::KINDS.iter().flat_map(|kind| [kind.name(), kind.code_name()]).filter(|name| *name != "torch");
    let is_predicate = names().chain(["fabric"]).any(|name| line.contains(&format!("is_{name}(")));
    let is_word = names().any(|name| {
        ["== ", "!= ", "== Some(", "!= Some("].iter().any(|sign| line.contains(&format!("{sign}\"{name}\"")))
    });
    let is_column = datasets::Target::ALL.iter().any(|word| line.contains(&format!("Target::{word:?}")));
    let is_handle =
        ["== targets::", "!= targets::", "target.kind ==", "target.kind !="].iter().any(|part| line.contains(part));
    let is_match = line.contains("match ") && ["kind.name()", "code_name()"].iter().any(|part| line.contains(part));
    is_predicate || is_word || is_column || is_handle || is_match
}

/// Kinds of targets are declared in `collector/targets`. The column `target` belongs to `datasets` and is also filled
/// by imported traces and captures.
#[test]
fn kinds_of_targets_are_not_compared() {
    const DECLARED: [&str; 4] = [
        "collector/targets/src/",
        "datasets/src/record/",
        "collector/profile/src/import/rows.rs",
        "collector/capture/src/tpu/import.rs",
    ];
    let is_product = |path: &String| {
        path.contains("/src/")
            && !path.starts_with("tests/")
            && !path.ends_with("tests.rs")
            && !path.contains("/tests/")
    };
    let sources = files(".rs").into_iter().filter(is_product);
    let others = sources.filter(|path| !DECLARED.iter().any(|declared| path.starts_with(declared)));
    let mut found: Vec<String> = Vec::new();
    for path in others {
        let source = text(&path);
        let lines = (1..).zip(product_code(&source).lines()).filter(|(_, line)| compares_kinds(line));
        found
            .extend(lines.map(|(number, line)| format!("{path}:{number}: asks for a kind of target: {}", line.trim())));
    }
    no_faults(found);
}

#[test]
fn comparisons_of_target_kinds_are_found() {
    let asks = [
        "if is_cuda(&config.target) {",
        "let is_off = config.target != \"llvm\";",
        "settings.unit.as_deref() == Some(\"fpga\")",
        "Target::Pynq if record.unit.is_some() => None,",
        "if target.kind == targets::host() {",
        "match target.kind.code_name() {",
    ];
    for line in asks {
        assert!(compares_kinds(line), "{line}");
    }
    for line in ["if config.kind().runs_on_gpu() {", "record.target = kind.record_word();", "model.source == \"torch\""]
    {
        assert!(!compares_kinds(line), "{line}");
    }
}

/// Limits the size of the CLI crates, which contain only arguments and tables, and of files, which have one subject.
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

/// Returns the commands of both programs with their options, from the references that `help.rs` checks.
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

const LINES_MAX: [(&str, usize); 2] = [("README.md", 120), ("ARCHITECTURE.md", 250)];
/// Words that pages avoid because their meaning is unclear, as whole words.
const BANNED: [&str; 17] = [
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
    "so many",
];

fn banned_in(text: &str) -> Vec<&'static str> {
    let prose: String = text.split('`').step_by(2).collect::<Vec<_>>().join(" ");
    let words = prose.to_lowercase().replace(|c: char| !c.is_alphanumeric(), " ");
    let words = format!(" {} ", words.split_whitespace().collect::<Vec<_>>().join(" "));
    BANNED.into_iter().filter(|word| words.contains(&format!(" {word} "))).collect()
}

fn banned_words(path: &str, document: &str) -> Vec<String> {
    let mut is_block = false;
    let mut found = Vec::new();
    for (number, line) in (1..).zip(document.lines()) {
        is_block ^= line.trim_start().starts_with("```");
        let banned = if is_block { Vec::new() } else { banned_in(line) };
        found.extend(banned.into_iter().map(|word| format!("{path}:{number}: write something plainer than `{word}`")));
    }
    found
}

/// Returns a page's links to files and headings of this repository, each as a path and an anchor, which may be empty.
fn links(path: &str, document: &str) -> Vec<(std::path::PathBuf, String)> {
    let folder = root().join(path).parent().expect("a document lies in a folder").to_owned();
    let targets = document.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let local = targets.filter(|target| !target.is_empty() && !target.contains("://"));
    let parts = local.map(|target| target.split_once('#').unwrap_or((target, "")));
    let file = |page: &str| if page.is_empty() { root().join(path) } else { folder.join(page) };
    parts.map(|(page, anchor)| (file(page), anchor.to_owned())).collect()
}

/// Returns the anchors of a page's headings, in GitHub's form.
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
fn documents_have_limited_length_and_valid_links() {
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
        for (file, anchor) in links(&path, &document) {
            let has =
                |anchor: &String| std::fs::read_to_string(&file).is_ok_and(|page| anchors(&page).contains(anchor));
            if !file.exists() {
                wrong.push(format!("{path}: the link to `{}` leads nowhere", file.display()));
            } else if !anchor.is_empty() && !has(&anchor) {
                wrong.push(format!("{path}: `{}` has no heading for `#{anchor}`", file.display()));
            }
        }
    }
    no_faults(wrong);
}

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
    // CONTRIBUTING.md describes how such a file is added. Decisions use the file names of their time.
    const EXAMPLE_SOURCES: [&str; 1] = ["models/src/operators/roll.rs"];
    let (commands, sources, mut wrong) = (commands(), files(".rs"), Vec::new());
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
        // A source may be named by the end of its path.
        let spans = code(&document).into_iter().filter(|(_, span)| span.contains('/') && span.ends_with(".rs"));
        let is_example = |span: &str| span.contains(['{', ' ', '<']) || EXAMPLE_SOURCES.contains(&span);
        let is_gone =
            |span: &str| !sources.iter().any(|source| source.ends_with(&format!("/{span}")) || source == span);
        let gone = spans.filter(|(_, span)| !path.starts_with("docs/decisions/") && !is_example(span) && is_gone(span));
        wrong.extend(gone.map(|(number, span)| format!("{path}:{number}: there is no source `{span}`")));
    }
    no_faults(wrong);
}

#[test]
fn wrong_commands_are_found() {
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

/// Maximum length of the first paragraph of a help text, without the brackets of defaults and possible values.
const HELP_MAX: usize = 72;

/// Returns the first paragraphs of all help texts of a reference: of commands, options and possible values.
fn help_texts(page: &str) -> BTreeSet<String> {
    let (mut texts, mut current) = (BTreeSet::new(), None::<String>);
    for line in page.lines().chain([""]) {
        let words = line.trim_start();
        let indent = line.len() - words.len();
        let value = words.strip_prefix("- ").filter(|_| indent == 10).and_then(|value| value.split_once(": "));
        let entry = ((2..=6).contains(&indent)).then(|| words.split_once("  ").unwrap_or((words, "")));
        match (value.or(entry), &mut current) {
            (Some((_, text)), _) => texts.extend(current.replace(text.trim().to_owned())),
            (None, Some(text)) if indent >= 10 => *text = format!("{text} {words}").trim_start().to_owned(),
            (None, _) => texts.extend(current.take()),
        }
    }
    texts
}

fn without_brackets(text: &str) -> &str {
    let starts = ["[default: ", "[possible values: ", "[alias: ", "[aliases: "];
    let end = starts.iter().filter_map(|start| text.find(start)).min();
    text[..end.unwrap_or(text.len())].trim_end()
}

#[test]
fn help_texts_are_short_and_plain() {
    let mut wrong = Vec::new();
    for program in ["opcollect", "oppredict"] {
        let path = format!("docs/reference/{program}.md");
        let page = text(&path);
        let texts = help_texts(&page);
        assert!(texts.len() > 100, "{path} has help texts: {texts:?}");
        let long = texts.iter().map(|text| without_brackets(text)).filter(|text| text.chars().count() > HELP_MAX);
        wrong.extend(long.map(|text| format!("{path}: longer than {HELP_MAX} characters: {text}")));
        let banned = page.lines().flat_map(|line| banned_in(line).into_iter().map(move |word| (word, line.trim())));
        wrong.extend(banned.map(|(word, line)| format!("{path}: write something plainer than `{word}`: {line}")));
    }
    no_faults(wrong);
}

#[test]
fn the_first_paragraph_of_a_help_text_is_found() {
    let page = "\
Options:
      --again
          Measure again
          and again

          Second paragraph.

      --style <STYLE>
          Style [default: plain]

          Possible values:
          - plain: As it is
          - bold:  In bold

  -h, --help     Print help
      --to <N>   Where to,
                 and when [default: here]
  list  List all
";
    let expected = ["As it is", "In bold", "List all", "Measure again and again", "Print help"];
    let expected = expected.into_iter().chain(["Style [default: plain]", "Where to, and when [default: here]"]);
    assert_eq!(help_texts(page), expected.map(str::to_owned).map(|text| text.trim().to_owned()).collect());
    assert_eq!(without_brackets("Where to [default: here]"), "Where to");
}

/// Returns a format string without its arguments, whose names are not displayed.
fn without_arguments(message: &str) -> String {
    message.split('{').map(|part| part.split_once('}').map_or(part, |(_, text)| text)).collect::<Vec<_>>().join(" ")
}

/// Returns the banned words of a source's comments and messages, each with its line.
fn banned_in_source(source: &str) -> Vec<(usize, &'static str)> {
    let (mut found, mut is_continued) = (Vec::new(), false);
    for (number, line) in (1..).zip(source.lines()) {
        let code = line.trim_start();
        let comment = code.strip_prefix("//");
        // A message that ends with a backslash continues in the next line.
        let literals = code.split('"').skip(usize::from(!is_continued)).step_by(2);
        let messages: Vec<&str> = if code.starts_with("//") { Vec::new() } else { literals.collect() };
        is_continued = !code.starts_with("//") && code.ends_with('\\');
        // Only literals with several words are messages; a single word may be a name.
        let messages = messages.into_iter().filter(|message| message.trim().contains(' ')).map(without_arguments);
        let texts = comment.map(str::to_owned).into_iter().chain(messages);
        found.extend(texts.flat_map(|text| banned_in(&text)).map(|word| (number, word)));
    }
    found
}

#[test]
fn comments_and_messages_use_standard_terms() {
    let is_product = |path: &String| {
        path.contains("/src/") && !path.starts_with("tests/") && !path.contains("/tests") && !path.contains("fuzz/")
    };
    let mut wrong = Vec::new();
    for path in files(".rs").into_iter().filter(is_product) {
        let found = banned_in_source(product_code(&text(&path))).into_iter();
        wrong.extend(found.map(|(number, word)| format!("{path}:{number}: write something plainer than `{word}`")));
    }
    no_faults(wrong);
}

/// Returns the names of the types that a source defines. Aliases, such as a module's `Result`, are not definitions.
fn defined_types(source: &str) -> impl Iterator<Item = &str> {
    product_code(source).lines().filter_map(|line| {
        let is_before = |word: &&str| word.starts_with("pub") || word.ends_with(')') || *word == "unsafe";
        let mut words = line.split_whitespace().skip_while(is_before);
        let is_type = words.next().is_some_and(|word| ["struct", "enum", "trait", "union"].contains(&word));
        let name = words.next().filter(|_| is_type)?;
        let name = name.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
        name.starts_with(|c: char| c.is_ascii_uppercase()).then_some(name)
    })
}

fn defined_functions(source: &str) -> impl Iterator<Item = &str> {
    product_code(source).split("fn ").skip(1).filter_map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_lowercase() && !c.is_ascii_digit() && c != '_')?;
        (end > 0 && rest[end..].starts_with(['(', '<'])).then_some(&rest[..end])
    })
}

/// Names that describe what was done with a value instead of what it is.
const PARTICIPLES: [&str; 10] =
    ["Told", "Asked", "Heard", "Given", "Wanted", "Shown", "Taken", "Held", "Drawn", "Said"];

#[test]
fn type_names_are_nouns_and_rarely_shared() {
    /// Maximum percentage of type definitions whose name has three definitions or more.
    const SHARED_MAX_PERCENT: usize = 12;
    let is_product = |path: &String| path.contains("/src/") && !path.starts_with("tests/") && !path.contains("/tests");
    let (mut counts, mut wrong) = (BTreeMap::<String, usize>::new(), Vec::new());
    for path in files(".rs").into_iter().filter(is_product) {
        for name in defined_types(&text(&path)) {
            *counts.entry(name.to_owned()).or_default() += 1;
            let is_exempt = path.starts_with("predictor/") || path.starts_with("models/readers/");
            if PARTICIPLES.contains(&name) && !is_exempt {
                wrong.push(format!("{path}: `{name}` is a participle; name what the value is"));
            }
        }
    }
    let all: usize = counts.values().sum();
    let shared: usize = counts.values().filter(|count| **count >= 3).sum();
    let most = counts.iter().filter(|(_, count)| **count >= 3).map(|(name, count)| format!("{name} {count}"));
    if shared * 100 > all * SHARED_MAX_PERCENT {
        wrong.push(format!("{shared} of {all} types share their name: {}", most.collect::<Vec<_>>().join(", ")));
    }
    no_faults(wrong);
}

/// Names that state neither what a function does nor what it acts on.
const VAGUE_FUNCTIONS: [&str; 12] =
    ["all", "and", "at", "each", "here", "made", "of", "on", "said", "those", "told", "together"];

#[test]
fn function_names_have_an_object() {
    /// Maximum percentage of functions whose name is a single word, such as `new`, `len` and `run`.
    const ONE_WORD_MAX_PERCENT: usize = 20;
    let is_product = |path: &String| path.contains("/src/") && !path.starts_with("tests/") && !path.contains("/tests");
    let (mut all, mut single, mut wrong) = (0, 0, Vec::new());
    for path in files(".rs").into_iter().filter(is_product) {
        for name in defined_functions(&text(&path)) {
            all += 1;
            single += usize::from(!name.trim_matches('_').contains('_'));
            if VAGUE_FUNCTIONS.contains(&name) {
                wrong.push(format!("{path}: `{name}` is vague; name what the function does, and on what"));
            }
        }
    }
    if single * 100 > all * ONE_WORD_MAX_PERCENT {
        wrong.push(format!("{single} of {all} functions have a name of one word"));
    }
    no_faults(wrong);
}
