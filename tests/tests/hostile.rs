//! Untrusted stores, traces and configurations never become code: every command refuses them with an error.
#![allow(missing_docs)]

use datasets::{Json, Outcome, Record};
use serde_json::{Value, json};
use std::path::Path;
use tests::{Bench, Ran, run, stores};

/// A command in the shape of code that a library runs when it is loaded, as TVM takes it from an annotation: on x86-64 it made a
/// file while nothing checked moves.
fn assembly(mark: &Path) -> String {
    let lines = [
        ".text".to_owned(),
        "stranger: lea stranger_command(%rip), %rdi".to_owned(),
        "jmp system@PLT".to_owned(),
        ".section .rodata".to_owned(),
        format!("stranger_command: .asciz \\22touch {}\\22", mark.display()),
        ".section .init_array,\\22aw\\22,@init_array".to_owned(),
        ".quad stranger".to_owned(),
        ".text".to_owned(),
    ];
    lines.map(|line| format!("module asm \"{line}\"\n")).concat()
}

/// Moves that would bring it into a product.
fn moves(mark: &Path) -> Value {
    json!([
        [
            ["GetSBlock", [], ["T_matmul", "main"], ["b0"]],
            ["GetLoops", ["b0"], [], ["l1", "l2", "l3"]],
            ["Annotate", ["l1", format!("\"{}\"", assembly(mark))], ["pragma_import_llvm"], []],
        ],
        []
    ])
}

const MODEL: &str = "--modelsource simple --modelname matmul:m=32,n=32,k=32";

/// A store in which an untrusted schedule is by far the fastest of a product; all else in it is sound.
fn stranger(bench: &Bench, name: &str, schedule: &Value) -> Record {
    run(bench.opcollect(&format!("{MODEL} --schedules 2 --threads 1 --config quick.toml --store sound"))).expect(0);
    let mut records = stores::records(&bench.path("sound"));
    let fast = records.iter().find(|record| record.outcome == Outcome::Ok).expect("a time").clone();
    let mut fast = Record {
        schedule: Some(Json::new(schedule).expect("JSON")),
        schedule_hash: Some("0".repeat(32)),
        median_ns: fast.median_ns.map(|ns| ns / 1000.0),
        min_ns: fast.min_ns.map(|ns| ns / 1000.0),
        ..fast
    };
    fast.key = fast.experiment_key();
    records.push(fast.clone());
    stores::write(&bench.path(name), &records);
    fast
}

#[track_caller]
fn nothing_ran(mark: &Path, ran: &Ran) {
    assert!(!mark.exists(), "a stranger's command ran: {ran}");
}

#[test]
fn moves_that_bring_in_code_are_refused_by_every_door() {
    let bench = Bench::new();
    let mark = bench.path("ran");
    let trace = moves(&mark);

    let lines = [json!({"op": "matmul:m=32,n=32,k=32"}), json!({"i": 0, "run_ms": 1.0, "trace": trace})];
    bench.write("tuned.jsonl", &lines.map(|line| format!("{line}\n")).concat());
    let ran = run(bench.opcollect("replay --traces tuned.jsonl --json"));
    nothing_ran(&mark, &ran);
    assert!(
        ran.code() == 2 && ran.stderr.contains("`tuned.jsonl`, line 2: move 2 of the schedule is refused"),
        "{ran}"
    );
    assert!(ran.stderr.contains("pragma_import_llvm"), "{ran}");

    let schedules = [
        json!({"from": "trace", "trace": trace}),
        json!({"from": "metaschedule", "space": 0, "seed": 7, "trace": trace}),
    ];
    for (number, schedule) in schedules.iter().enumerate() {
        let store = format!("stranger-{number}");
        let fast = stranger(&bench, &store, schedule);
        let ran = run(bench.opcollect(&format!("dataset verify --store {store}"))).expect(1);
        assert!(ran.stdout.contains("move 2 of the schedule is refused"), "{ran}");

        let ran = run(bench.opcollect(&format!("replay --store {store} --key {}", fast.key)));
        nothing_ran(&mark, &ran);
        assert!(ran.code() == 2 && ran.stderr.contains("move 2 of the schedule is refused"), "{ran}");

        let compare =
            format!("model compare {MODEL} --threads 1 --rounds 1 --variant default --variant best --store {store}");
        let ran = run(bench.opcollect(&compare));
        nothing_ran(&mark, &ran);

        let tune = "--iftune true --tuner metaschedule --trials 8 --threads 1 --config quick.toml";
        let ran = run(bench.opcollect(&format!("{MODEL} {tune} --store {store}")));
        nothing_ran(&mark, &ran);
        assert!(ran.code() <= 1, "{ran}");

        let ran = run(bench.opcollect(&format!("dataset best --store {store}")));
        nothing_ran(&mark, &ran);
        let ran = run(bench.opcollect(&format!("dataset verify --store {store} --quarantine"))).expect(1);
        nothing_ran(&mark, &ran);
        run(bench.opcollect(&format!("dataset verify --store {store}"))).expect(0);
    }
}

#[test]
fn a_target_of_a_stranger_sets_no_option() {
    let bench = Bench::new();
    let written = bench.path("written");
    let option = format!("-info-output-file:string={}", written.display());
    let target = json!({"kind": "llvm", "mcpu": "x86-64-v3", "cl-opt": [option]}).to_string();
    bench.write(
        "hostile.toml",
        &format!("target = '{target}'\nmodels = [{{ source = \"simple\", name = \"relu:shape=8x8\" }}]\n"),
    );
    let ran = run(bench.opcollect("--config hostile.toml --store store"));
    assert!(ran.code() == 2 && ran.stderr.contains("the target has a field `cl-opt`"), "{ran}");

    let fast = stranger(&bench, "sound-schedule", &json!({"from": "template", "knobs": {}}));
    let mut record = Record { target_text: Some(target), ..fast };
    record.key = record.experiment_key();
    stores::write(&bench.path("hostile"), std::slice::from_ref(&record));
    let ran = run(bench.opcollect(&format!("replay --store hostile --key {}", record.key)));
    assert!(ran.code() == 2 && ran.stderr.contains("`cl-opt`"), "{ran}");
    assert!(!written.exists());
}

#[test]
fn a_configuration_names_no_library() {
    let bench = Bench::new();
    let text =
        "models = [{ source = \"simple\", name = \"relu:shape=8x8\" }]\n[counters]\npapi_library = \"./evil.so\"\n";
    bench.write("hostile.toml", text);
    let ran = run(bench.opcollect("--config hostile.toml --store store"));
    assert!(ran.code() == 2 && ran.stderr.contains("papi_library"), "{ran}");
}

/// Control characters in names of files are shown as a replacement character.
#[test]
fn names_of_strangers_do_not_command_the_terminal() {
    let bench = Bench::new();
    let name = "x\u{1b}]0;owned\u{7}\u{1b}[2J.onnx";
    std::fs::write(bench.path(name), "nothing").expect("a file");
    let mut command = bench.opcollect("graph --modelsource onnx --modelname");
    command.arg(name);
    let ran = run(command);
    assert!(ran.code() != 0 && !ran.stderr.contains('\u{1b}') && ran.stderr.contains("]0;owned"), "{ran}");
}
