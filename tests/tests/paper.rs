//! Tables of both programs on narrow and wide paper, as a person at a terminal meets them.
#![allow(missing_docs)]

#[allow(dead_code, reason = "the tests of the reader use all of it")]
#[path = "../../collector/capture/tests/tpu/card.rs"]
mod card;

use tests::{Bench, Ran, program, run};

const WIDTHS: [usize; 4] = [60, 80, 120, 180];

/// Runs a command once for each width; its tables fit and have no colours.
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

/// A table's rule is as wide as the table; where there is none, the rows are stacked.
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
    check(&bench, "opcollect", &format!("tpu view {name} out"), "Overall");
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
        "starting it",
    );
    check(&bench, "oppredict", "eval --data store --max-uncertainty inf --folds 2", "matmul");
    check(&bench, "oppredict", "features", "log2");
}
