//! Simulated cores from the command line to records, which are marked and never mixed with measurements.
#![allow(missing_docs)]

use serde_json::Value;
use tests::{Bench, program, run};

const CONV: &str = "--modelsource simple --modelname conv2d:ci=16,hw=8,co=32,k=3,p=1";

fn document(stdout: &str) -> Value {
    serde_json::from_str(stdout.lines().last().expect("a line")).expect("JSON")
}

#[test]
fn a_sweep_records_simulated_times_and_resumes() {
    let bench = Bench::new();
    let command = format!("{CONV} --target pynq --unit fpga --schedules 4 --store s --json");
    let first = run(bench.opcollect(&command)).expect(0);
    assert!(first.stderr.contains("note: simulated: core 1x16 of pynq-z1 at 100 MHz"), "{first}");
    assert!(first.stderr.contains("its times are not measured"), "{first}");
    let report = document(&first.stdout);
    assert_eq!(report["outcomes"]["counts"]["ok"], 4, "{first}");
    assert!(report["models"][0]["simulated"].as_str().expect("a text").starts_with("simulated"), "{first}");
    assert!(report["peaks"]["compute"].as_array().is_none_or(Vec::is_empty), "no peak of this host: {first}");
    let again = run(bench.opcollect(&command)).expect(0);
    assert_eq!(document(&again.stdout)["known_before"], 4, "{again}");
    run(bench.opcollect("dataset export --store s --format jsonl --out rows.jsonl")).expect(0);
    let rows = std::fs::read_to_string(bench.path("rows.jsonl")).expect("rows");
    for row in rows.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON")) {
        let text = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
        assert_eq!([text("source"), text("target"), text("board")], ["simulated", "pynq", "pynq-z1"]);
        assert_eq!([text("unit"), text("transport")], ["fpga", "local"]);
        assert_eq!(text("host_class"), "simulated");
        let target: Value = serde_json::from_str(&text("target_text")).expect("JSON");
        assert_eq!((target["timing"].clone(), target["calibrated"].clone()), ("pynq-hls-100@1".into(), true.into()));
        let counters = match &row["counters"] {
            Value::String(text) => serde_json::from_str(text).expect("JSON"),
            other => other.clone(),
        };
        let (cycles, time) = (counters["cycles"].as_f64().expect("cycles"), row["median_ns"].as_f64().expect("a time"));
        assert_eq!(time, 10.0 * cycles, "10 ns each");
    }
}

#[test]
fn a_table_marks_simulated_times_and_lists_cpu_layers() {
    let bench = Bench::new();
    let ran = run(bench.opcollect(
        "--modelsource local --modelname resnet-18:hw=32 --target pynq --unit fpga --schedules 1 --store s",
    ))
    .expect(0);
    assert!(ran.stdout.contains("simulated: core 1x16 of pynq-z1"), "{ran}");
    assert!(ran.stdout.contains("with their best schedules: simulated "), "{ran}");
    assert!(!ran.stdout.contains("median"), "{ran}");
    assert!(ran.stderr.contains("note: runs on the CPU: "), "{ran}");
}

#[test]
fn a_search_on_the_simulator_tries_only_fitting_schedules() {
    let bench = Bench::new();
    let ran = run(bench
        .opcollect(&format!("{CONV} --target pynq --unit fpga --iftune true --tuner ga --trials 12 --store s --json")))
    .expect(0);
    let report = document(&ran.stdout);
    assert!(report["outcomes"]["counts"]["ok"].as_u64().expect("a count") >= 12, "{ran}");
    assert_eq!(report["searches"].as_array().map(Vec::len), Some(1), "{ran}");
    let stats = run(bench.opcollect("dataset stats --store s --json")).expect(0);
    assert!(stats.stdout.contains("simulated") && !stats.stdout.contains("\"measured\":"), "{stats}");
}

#[test]
fn predictors_exclude_simulated_times() {
    let bench = Bench::new();
    run(bench.opcollect(&format!("{CONV} --target pynq --unit fpga --schedules 3 --store s"))).expect(0);
    let refused = run(bench.command(&program("oppredict"), "train --data s --out p.opp"));
    assert_ne!(refused.code(), 0, "{refused}");
    assert!(refused.stderr.contains("--source simulated"), "it says how they could be used: {refused}");
    assert!(!bench.path("p.opp").exists());
}

#[test]
fn a_trace_has_a_lane_for_each_module() {
    let bench = Bench::new();
    let ran = run(bench.opcollect(&format!("board trace {CONV} --out t.pftrace --json"))).expect(0);
    let report = document(&ran.stdout);
    assert_eq!(report["source"], "simulated");
    assert!(report["cycles"].as_u64().expect("cycles") > 576, "32 x 8 x 8 x 144 products need more: {ran}");
    let asked = "select t.name as lane, count(*) as slices from slice s join track t on s.track_id = t.id group by 1";
    let mut question = bench.opcollect("trace query t.pftrace");
    question.arg(asked);
    let answer = run(question).expect(0);
    for lane in ["load", "compute", "store"] {
        assert!(answer.stdout.contains(lane), "{answer}");
    }
    let refused = run(bench.opcollect(&format!("board trace {CONV} --knobs tile_h=3 --out u.pftrace"))).expect(2);
    assert!(refused.stderr.contains("`tile_h` is 3, which does not divide 8"), "{refused}");
    let refused = run(bench.opcollect(&format!("board trace {CONV} --task 2 --out u.pftrace"))).expect(2);
    assert!(refused.stderr.contains("these models have no task 2 for the accelerator"), "{refused}");
    assert!(!bench.path("u.pftrace").exists());
}

#[test]
fn settings_without_meaning_for_a_core_are_rejected() {
    let bench = Bench::new();
    for (flags, says) in [
        ("--target pynq --unit fpga --board kv260", "no accelerator core is known for the board `kv260`"),
        ("--target pynq --unit fpga --fpga-config 2x2", "`2x2` is not a valid core"),
        ("--target pynq --unit fpga --sim-params fast", "unknown parameter set `fast`"),
        ("--target pynq --unit fpga --threads 2", "threads of an accelerator core are part of its schedules"),
        ("--target pynq --unit fpga --cache cold", "an accelerator core has no cache"),
        ("--target llvm --fpga-config 1x16", "only the target `pynq` supports it"),
        (
            "--target pynq --unit fpga --iftune true --tuner xgb",
            "programs of an accelerator core are not generated by TVM",
        ),
    ] {
        let ran = run(bench.opcollect(&format!("{CONV} {flags} --store s"))).expect(2);
        assert!(ran.stderr.contains(says), "{flags}: {ran}");
        assert!(!bench.path("s").exists(), "{flags}");
    }
}
