//! Tables of both programs on narrow and wide terminals.
#![allow(missing_docs)]

#[allow(dead_code, reason = "the tests of the reader use all of it")]
#[path = "../../collector/capture/tests/tpu/card.rs"]
mod card;

use tests::{Bench, Ran, program, run};

const WIDTHS: [usize; 4] = [60, 80, 120, 180];

/// Runs a command at each width, and checks that its tables fit and have no colours.
fn check(bench: &Bench, name: &str, arguments: &str, wanted: &str) {
    for width in WIDTHS {
        let mut command = bench.command(&program(name), arguments);
        command.env("COLUMNS", width.to_string());
        let ran = run(command);
        assert!(ran.code() <= 1, "{ran}");
        assert!(fits(&ran, width), "{width} columns: {ran}");
        assert!(ran.stdout.contains(wanted), "`{wanted}` is whole on {width} columns: {ran}");
        assert!(!ran.stdout.contains('\u{1b}'), "a file takes no colours: {ran}");
    }
}

/// Returns whether all table rules fit; a table that would be too wide has stacked rows and no rule.
fn fits(ran: &Ran, width: usize) -> bool {
    let rules = ran.stdout.lines().filter(|line| line.contains('─'));
    rules.map(|line| line.chars().count()).all(|length| length <= width)
}

#[test]
fn tables_of_the_collector_fit() {
    let bench = Bench::new();
    check(&bench, "opcollect", "list", "resnet-18");
    check(&bench, "opcollect", "tasks --modelsource local --modelname resnet-18", "conv2d f32[1,64,56,56]");
    check(&bench, "opcollect", "space --modelsource simple --modelname matmul:m=64,n=64,k=64", "tile_x");
    check(&bench, "opcollect", "dataset schema", "median_interval_ns");
    check(&bench, "opcollect", "doctor", "TVM runtime");
    let input = card::write(&bench.path(""), &[(0, card::small_core(0)), (1, card::small_core(5))]);
    let name = input.file_name().expect("the folder of the capture has a name").to_string_lossy().into_owned();
    check(&bench, "opcollect", &format!("tpu view {name} out"), "mean");
    std::fs::create_dir(bench.path("alone")).expect("a folder can be made");
    card::write(&bench.path("alone"), &[(0, card::small_core(0))]);
    check(&bench, "opcollect", &format!("tpu compare {name} alone/{name}"), "ratio");
}

#[test]
fn tables_of_the_predictor_fit() {
    let bench = Bench::new();
    let sizes: Vec<String> = [(16, 16), (24, 32), (32, 64), (48, 48), (64, 64), (64, 96), (96, 64), (96, 96)]
        .iter()
        .map(|(m, n)| format!("--modelname matmul:m={m},n={n},k={}", m + n))
        .collect();
    let arguments =
        format!("--modelsource simple {} --schedules 2 --threads 1 --config quick.toml --store store", sizes.join(" "));
    check(&bench, "opcollect", &arguments, "matmul");
    check(&bench, "opcollect", "dataset stats --store store", "operator matmul");
    let train = "train --data store --max-uncertainty inf --out products.opp";
    run(bench.command(&program("oppredict"), train)).expect(0);
    check(
        &bench,
        "oppredict",
        "predict --predictor products.opp --op matmul:m=80,n=80,k=144 --threads 1",
        "matmul f32[80",
    );
    check(
        &bench,
        "oppredict",
        "explain --predictor products.opp --op matmul:m=80,n=80,k=144 --threads 1",
        "launch overhead",
    );
    check(&bench, "oppredict", "eval --data store --max-uncertainty inf --folds 2", "matmul");
    check(&bench, "oppredict", "features", "log2");
}

/// If the reader of a pipe closes it early, as `head` does, the exit code stays the same, for both outputs.
#[test]
fn closed_outputs_are_not_errors() {
    let bench = Bench::new();
    let end = |name: &str, words: &str, is_errors: bool| {
        let mut command = bench.command(&program(name), words);
        let (reader, writer) = std::io::pipe().expect("a pipe");
        // The output is closed from the start.
        drop(reader);
        let (closed, other) = (std::process::Stdio::from(writer), std::process::Stdio::null());
        let (stdout, stderr) = if is_errors { (other, closed) } else { (closed, other) };
        let status = command.stdout(stdout).stderr(stderr).status().expect("the program starts");
        status.code()
    };
    for (name, words) in [
        ("opcollect", "--help"),
        ("opcollect", "--version"),
        ("opcollect", "list"),
        ("opcollect", "list --json"),
        ("opcollect", "completions bash"),
        ("opcollect", "tasks mlp"),
        ("opcollect", "graph mlp"),
        ("opcollect", "dataset schema"),
        ("opcollect-board", "--help"),
        ("oppredict", "features"),
        ("oppredict", "devices --json"),
        ("oppredict", "completions zsh"),
    ] {
        assert_eq!(end(name, words, false), Some(0), "{name} {words}");
    }
    for (name, words, code) in [
        ("opcollect", "no-such-model", 2),
        ("opcollect", "--no-such-flag", 2),
        ("opcollect-board", "serve --no-such-flag", 2),
        ("oppredict", "predict", 2),
        ("oppredict", "predict no-such-model", 2),
    ] {
        assert_eq!(end(name, words, true), Some(code), "{name} {words}");
    }
}

#[test]
fn predictions_keep_times_and_intervals_on_80_columns() {
    let bench = Bench::new();
    for words in ["predict resnet-18 --threads 1", "predict conv2d:ci=64,hw=56,co=64,k=3,p=1 --threads 1"] {
        let mut command = bench.command(&program("oppredict"), words);
        command.env("COLUMNS", "80").env("XDG_CACHE_HOME", bench.path("cache"));
        let ran = run(command);
        assert!(ran.code() <= 1 && fits(&ran, 80), "{ran}");
        let heading = ran.stdout.lines().find(|line| line.contains("90 % between"));
        let is_timed = |line: &str| line.contains("each") || line.contains("time");
        assert!(heading.is_some_and(is_timed), "{ran}");
    }
}
