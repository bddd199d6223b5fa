//! Whole models on boards and on a simulated core with a board's CPU, and devices that disconnect or hang.
#![allow(missing_docs)]

use nix::sys::signal::Signal;
use serde_json::Value as Json;
use std::time::{Duration, Instant};
use tests::agents::{emulated_boards, of_tvm, own_agent};
use tests::{Bench, run, workspace};

const MODEL: &str = "--modelsource local --modelname mlp --threads 1";

fn quantised() -> String {
    let path = workspace::root().join("models/readers/tests/tflite-cases/block_int8/model.tflite");
    format!("--modelsource tflite --modelname {}", path.display())
}

#[test]
fn a_whole_model_runs_on_an_agent_and_is_recorded() {
    let (bench, agent) = (Bench::new(), own_agent(""));
    let on = format!("--target llvm --host 127.0.0.1 --port {}", agent.port);
    let report = run(bench.opcollect(&format!("model run {MODEL} {on} --store st --json"))).expect(0).json();
    assert_eq!((&report["source"], &report["check"]["is_right"]), (&"measured".into(), &true.into()), "{report}");
    assert!(report["median_ns"].as_f64() > Some(0.0) && report["calls"].as_u64() > Some(1), "{report}");
    run(bench.opcollect("dataset export --store st --format jsonl --out rows.jsonl")).expect(0);
    let text = std::fs::read_to_string(bench.path("rows.jsonl")).expect("it was just written");
    let row: Json = serde_json::from_str(text.trim()).expect("one row");
    assert_eq!(
        (&row["op_kind"], &row["outcome"], &row["source"]),
        (&"network".into(), &"ok".into(), &"measured".into())
    );
    // Other inputs give other results: nothing remains from the previous run.
    let other = run(bench.opcollect(&format!("model run {MODEL} {on} --seed 7 --json"))).expect(0).json();
    assert_eq!(other["check"]["is_right"], true, "{other}");
    let refused = run(bench.opcollect(&format!("model run {MODEL} {on} --parallel full"))).expect(2).stderr;
    assert!(refused.contains("only sequentially") && refused.contains("hint: "), "{refused}");
}

#[test]
fn whole_models_run_on_emulated_boards_and_cores() {
    for (board, agent) in emulated_boards() {
        let bench = Bench::new();
        let on = format!("--board {board} --host 127.0.0.1 --port {}", agent.port);
        let ran = run(bench.opcollect(&format!("model run {MODEL} --target pynq {on} --json"))).expect(0);
        let report = ran.json();
        assert_eq!((&report["source"], &report["check"]["is_right"]), (&"emulated".into(), &true.into()), "{report}");
        assert!(ran.stderr.contains("recorded as emulated"), "{ran}");
        let both = format!("model run {} --target pynq --unit fpga --threads 1 {on} --json", quantised());
        let report = run(bench.opcollect(&both)).expect(0).json();
        let [core, cpu] = [0, 1].map(|unit| report["units"][unit].clone());
        assert_eq!((&core["source"], &cpu["source"]), (&"simulated".into(), &"emulated".into()), "{report}");
        assert!(cpu["sum_ns"].as_f64() > Some(0.0) && core["sum_ns"].as_f64() > Some(0.0), "{report}");
    }
}

#[test]
fn a_quantised_model_on_a_core_is_correct_without_mixed_sums() {
    let bench = Bench::new();
    let asked = format!("model run {} --target pynq --unit fpga", quantised());
    let report = run(bench.opcollect(&format!("{asked} --json"))).expect(0).json();
    let [off, largest] = ["off_by", "largest_output"].map(|name| report[name].as_f64().expect("a number"));
    assert!(off <= 0.05 * largest && report["bit_exact"] == true, "{report}");
    let [core, cpu] = [0, 1].map(|unit| report["units"][unit].clone());
    assert!(core["calls"].as_u64() > Some(0) && core["source"] == "simulated", "{report}");
    assert!(cpu["sum_ns"].is_null() && cpu["source"].is_null(), "{report}");
    let (keys, calls) = (report.as_object().expect("an object"), report["calls"].as_array().expect("calls"));
    assert!(keys.keys().all(|key| !key.contains("median") && !key.contains("time")), "{report}");
    assert!(calls.iter().filter(|call| call["unit"] == "arm").all(|call| call["why"].is_string()), "{report}");
    let said = run(bench.opcollect(&asked)).expect(0).stdout;
    assert!(said.contains("simulated") && said.contains("not added up"), "{said}");
    let floats = run(bench.opcollect(&format!("model run {MODEL} --target pynq --unit fpga"))).expect(2).stderr;
    assert!(floats.contains("no layer of `mlp`") && floats.contains("hint: "), "{floats}");
}

#[test]
fn drained_devices_stop_and_unreachable_ones_are_reported() {
    let Some(tracker) = of_tvm("tvm.exec.rpc_tracker", "") else { return };
    let (bench, at) = (Bench::new(), format!("--tracker 127.0.0.1:{}", tracker.port));
    let mut agents = [0, 1].map(|_| own_agent(&format!("--key k {at}")));
    let other = own_agent(&format!("--key other {at}"));
    let status = || run(bench.opcollect(&format!("fleet status {at} --json"))).expect(0).json();
    let until = Instant::now() + Duration::from_secs(60);
    while status()["servers"].as_array().is_none_or(|servers| servers.len() < 3) {
        assert!(Instant::now() < until, "the agents do not register: {}", status());
        std::thread::sleep(Duration::from_millis(100));
    }
    let none = run(bench.opcollect(&format!("fleet drain {at} --key none"))).expect(2).stderr;
    assert!(none.contains("no device with the key `none`") && none.contains("hint: "), "{none}");
    let report = run(bench.opcollect(&format!("fleet drain {at} --key k --wait 60 --json"))).expect(0).json();
    assert_eq!((report["left"].as_array().map(Vec::len), &report["devices"]), (Some(2), &0.into()), "{report}");
    assert!(agents.iter_mut().all(|agent| agent.ends(Duration::from_secs(20))));
    assert_eq!(status()["servers"].as_array().map(Vec::len), Some(1), "{}", status());
    drop(other);
}

#[test]
fn a_frozen_server_costs_only_its_deadline() {
    let (bench, agent) = (Bench::new(), own_agent(""));
    bench.write("still.toml", "limits = { run_seconds = 2.0 }\nmeasure = { time_budget_ns = 20000000 }\n");
    let on = format!("--target llvm --host 127.0.0.1 --port {} --board-wait 3", agent.port);
    let asked = format!(
        "--config still.toml --modelsource simple --modelname matmul:m=32,n=32,k=32 --threads 1 --counters none {on} \
         --schedules 400 --retry-faults 0 --store st --json"
    );
    let (begin, campaign) = (Instant::now(), bench.opcollect(&asked));
    let freezer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(4));
        agent.signal(Signal::SIGSTOP).expect("it is there");
        agent
    });
    let ran = run(campaign);
    let agent = freezer.join().expect("it only stops it");
    assert!(begin.elapsed() < Duration::from_secs(240), "every wait has an end\n{ran}");
    run(bench.opcollect("dataset export --store st --format jsonl --out rows.jsonl")).expect(0);
    let text = std::fs::read_to_string(bench.path("rows.jsonl")).expect("it was just written");
    let late = text.lines().filter(|line| line.contains("\"timed_out\"")).count();
    assert!(late <= 1, "the run that it was at is lost, if it was at one, and then no device is left\n{ran}");
    assert!(ran.stderr.contains("no board is available") && text.contains("\"ok\""), "{ran}");
    agent.signal(Signal::SIGCONT).expect("it is there");
}
