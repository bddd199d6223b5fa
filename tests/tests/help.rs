//! What every command says of itself, word for word; and the completions of shells.
//!
//! The commands are found by walking through the help itself, so that none is forgotten.
#![allow(missing_docs)]

use std::path::Path;
use tests::{Bench, golden, program, run};

/// The help of a command and of all commands below it: path of names, long form.
fn walk(bench: &Bench, program: &Path, path: &str) -> Vec<(String, String)> {
    let long = run(bench.command(program, &format!("{path} --help"))).expect(0).stdout;
    let mut found = vec![(path.to_owned(), long.clone())];
    let commands = long.lines().skip_while(|line| *line != "Commands:").skip(1);
    for line in commands.take_while(|line| !line.is_empty()) {
        // Continued descriptions are indented further.
        let name =
            line.strip_prefix("  ").filter(|rest| !rest.starts_with(' ')).and_then(|rest| rest.split(' ').next());
        if let Some(name) = name.filter(|name| *name != "help") {
            found.extend(walk(bench, program, format!("{path} {name}").trim_start()));
        }
    }
    found
}

#[test]
fn help_of_every_command() {
    let bench = Bench::new();
    let mut files = Vec::new();
    for (name, fewest) in [("opcollect", 15), ("oppredict", 8)] {
        let program = program(name);
        let commands = walk(&bench, &program, "");
        assert!(commands.len() > fewest, "the walk finds the commands of {name}: {commands:?}");
        for (path, long) in commands {
            let short = run(bench.command(&program, &format!("{path} -h"))).expect(0);
            let file = format!("{name} {path}").trim_end().replace(' ', "-");
            golden::check(&format!("help/{file}.txt"), &long);
            golden::check(&format!("help/{file}.short.txt"), &short.stdout);
            files.extend([format!("{file}.txt"), format!("{file}.short.txt")]);
        }
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/help");
    let kept = folder.read_dir().expect("the folder of golden files").map(|entry| entry.expect("an entry").file_name());
    let stale: Vec<_> = kept.filter(|name| !files.iter().any(|file| name == file.as_str())).collect();
    assert!(stale.is_empty(), "remove golden files of commands that are no more: {stale:?}");
}

#[test]
fn nothing_asked_is_help_and_a_mistake() {
    let bench = Bench::new();
    let ran = run(bench.opcollect("")).expect(2);
    assert!(ran.stdout.contains("Usage: opcollect"), "{ran}");
    assert!(ran.stderr.starts_with("error: no model was named\nhint: "), "{ran}");
    assert_eq!(bench.entries(), ["quick.toml"]);
}

#[test]
fn completions_for_shells() {
    let bench = Bench::new();
    for (name, words) in
        [("opcollect", ["modelname", "dataset", "completions"]), ("oppredict", ["predictor", "knee", "features"])]
    {
        for shell in ["bash", "zsh", "fish"] {
            let script = run(bench.command(&program(name), &format!("completions {shell}"))).expect(0).stdout;
            for word in words {
                assert!(script.contains(word), "{shell} does not complete `{word}` of {name}\n{script}");
            }
            let path = bench.write(&format!("{name}.{shell}"), &script);
            // The shell itself says whether the script parses, where it is installed.
            let mut check = std::process::Command::new(shell);
            match check.arg("-n").arg(path).output() {
                Ok(output) => assert!(output.status.success(), "{shell}: {}", String::from_utf8_lossy(&output.stderr)),
                Err(_) => tests::skip(&format!("{shell} is not installed, so its completions are not parsed")),
            }
        }
    }
}
