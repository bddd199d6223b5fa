//! Accelerator cores over RPC, from the command line to records: results are checked before times are accepted, and
//! nothing simulated counts as measured. Agents serve simulated cores; no board was available.
#![allow(missing_docs)]

use accelerator::{BusBlock, Core, HookedBus, Hooks, SimulatedBus, registers};
use agent::session::{FabricSession, serve_session};
use remote::Waiting;
use remote::fabric::FabricKind;
use remote::handshake::{self, HandshakeVerdict};
use serde_json::Value as Json;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;
use tests::agents::{of_tvm, own_agent};
use tests::{Bench, Ran, run, workspace};

const LAYERS: [&str; 2] = ["conv2d:ci=16,hw=8,co=32,k=3,p=1", "dense:m=8,k=64,n=32"];
const MEMORY_BYTES: usize = 16 << 20;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    Flips,
    Leaves,
    Hangs,
}

struct Faulty {
    fault: Fault,
    has_run: bool,
}

impl Hooks for Faulty {
    fn on_write(&mut self, block: BusBlock, register: u32, _: u32) -> bool {
        if (block, register) == (BusBlock::Store, registers::CONTROL) {
            match self.fault {
                // Without a panic hook, which would print to the test's own output.
                Fault::Leaves => std::panic::resume_unwind(Box::new("it leaves")),
                Fault::Hangs => return false,
                Fault::None | Fault::Flips => self.has_run = true,
            }
        }
        true
    }

    fn on_get(&mut self, bytes: &mut [u8]) {
        if self.fault == Fault::Flips && self.has_run {
            bytes[0] ^= 4;
        }
    }
}

/// Serves the agent's sessions with this kind of core on a thread of this test; the first session has the fault.
fn agent_of(kind: FabricKind, fault: Fault) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("it is bound").port();
    std::thread::spawn(move || {
        for (place, stream) in listener.incoming().flatten().enumerate() {
            let fault = if place == 0 { fault } else { Fault::None };
            let _ = std::thread::spawn(move || session(stream, kind, fault)).join();
        }
    });
    port
}

fn session(stream: TcpStream, kind: FabricKind, fault: Fault) {
    let mut waiting = Waiting::new(stream.try_clone().expect("a copy"), Duration::from_secs(60));
    handshake::receive_key(&mut waiting).expect("a client says who it is");
    handshake::send_verdict(HandshakeVerdict::Taken, "", &mut waiting).expect("the client is connected");
    let bus = SimulatedBus::new(Core::find_published("1x16").expect("a core"), 0x1000_0000, MEMORY_BYTES);
    let bus = HookedBus { bus, hooks: Faulty { fault, has_run: false } };
    let fabric = FabricSession::new(kind, Box::new(bus));
    let folder = tempfile::tempdir().expect("a folder");
    // Without this copy, the connection closes when the session ends.
    drop(waiting);
    let _ = serve_session(stream, folder.path(), MEMORY_BYTES, Some(fabric));
}

fn collect(bench: &Bench, model: &str, port: u16, options: &str) -> Ran {
    let command = format!(
        "--config quick.toml --modelsource simple --modelname {model} --target pynq --unit fpga --counters none \
         --host 127.0.0.1 --port {port} --store st --json {options}"
    );
    run(bench.opcollect(&command))
}

fn rows(bench: &Bench) -> Vec<Json> {
    run(bench.opcollect("dataset export --store st --format jsonl --out rows.jsonl")).expect(0);
    let text = std::fs::read_to_string(bench.path("rows.jsonl")).expect("it was just written");
    let rows = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let _ = std::fs::remove_file(bench.path("rows.jsonl"));
    rows
}

#[test]
fn a_simulated_core_over_rpc_gives_simulated_records() {
    let (bench, agent) = (Bench::new(), own_agent("--fpga simulated"));
    for model in LAYERS {
        let ran = collect(&bench, model, agent.port, "--schedules 3").expect(0);
        assert!(
            ran.stderr.contains("its times are not measured") && ran.stderr.contains("compared with the reference"),
            "{ran}"
        );
        let report = ran.json();
        assert_eq!((&report["source"], &report["outcomes"]["counts"]["ok"]), (&"simulated".into(), &3.into()), "{ran}");
        let again = collect(&bench, model, agent.port, "--schedules 3").expect(0).json();
        assert_eq!(again["known_before"], 3, "{again}");
    }
    let found = rows(&bench);
    assert_eq!(found.len(), 6);
    for row in &found {
        let text = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
        assert_eq!([text("source"), text("unit"), text("transport")], ["simulated", "fpga", "rpc"], "{row}");
        assert_eq!([text("board"), text("host_class")], ["pynq-z1", "simulated"], "{row}");
        assert_eq!(text("device"), "pynq-z1 1x16, simulated by an agent");
        assert_eq!(text("agent_version"), env!("CARGO_PKG_VERSION"));
        assert_eq!((row["max_abs_error"].as_f64(), row["n"].as_i64()), (Some(0.0), Some(1)), "{row}");
        let cycles = row["counters"]["cycles"].as_f64().expect("cycles");
        assert_eq!(row["median_ns"].as_f64(), Some(10.0 * cycles), "the model's, 10 ns each, and no agent's: {row}");
    }
    // A core simulated on this machine is another experiment.
    let here = format!("--modelsource simple --modelname {} --target pynq --unit fpga --schedules 3", LAYERS[0]);
    let here = run(bench.opcollect(&format!("--config quick.toml {here} --counters none --store st --json"))).expect(0);
    assert_eq!(here.json()["known_before"], 0, "{here}");
}

#[test]
fn searches_and_other_cores_run_on_the_agent() {
    let (bench, agent) = (Bench::new(), own_agent("--fpga simulated"));
    let options = "--fpga-config 4x8 --bitstream 4x8_i8w8a32_15_16_16_18.bin --iftune true --tuner ga --trials 8";
    let report = collect(&bench, LAYERS[0], agent.port, options).expect(0).json();
    assert!(report["outcomes"]["counts"]["ok"].as_u64() >= Some(8), "{report}");
    assert!(rows(&bench).iter().all(|row| row["device"] == "pynq-z1 4x8, simulated by an agent"));
}

#[test]
fn a_wrong_result_is_a_failed_record() {
    for kind in [FabricKind::Simulated, FabricKind::Devmem] {
        let bench = Bench::new();
        let port = agent_of(kind, Fault::Flips);
        collect(&bench, LAYERS[0], port, "--schedules 2").expect(1);
        let found = rows(&bench);
        let wrong: Vec<&Json> = found.iter().filter(|row| row["outcome"] == "wrong_result").collect();
        assert_eq!((found.len(), wrong.len()), (2, 1), "only the first session lies: {found:?}");
        assert!(wrong[0]["median_ns"].is_null() && wrong[0]["max_abs_error"].as_f64() > Some(0.0), "{}", wrong[0]);
        assert!(wrong[0]["samples_ns"].as_array().is_none_or(Vec::is_empty), "{}", wrong[0]);
    }
}

#[test]
fn a_lost_session_costs_one_attempt() {
    let bench = Bench::new();
    let port = agent_of(FabricKind::Simulated, Fault::Leaves);
    let options = "--schedules 3 --retry-faults 0 --board-wait 20";
    collect(&bench, LAYERS[0], port, options).expect(1);
    let count = |outcome: &str| rows(&bench).iter().filter(|row| row["outcome"] == outcome).count();
    assert_eq!((count("crashed"), count("ok")), (1, 2), "{:?}", rows(&bench));
}

#[test]
fn a_hanging_core_is_a_failure_with_advice() {
    let bench = Bench::new();
    let port = agent_of(FabricKind::Devmem, Fault::Hangs);
    collect(&bench, LAYERS[0], port, "--schedules 1").expect(1);
    let found = rows(&bench);
    assert_eq!((found.len(), &found[0]["outcome"]), (1, &"run_failed".into()), "{found:?}");
    assert!(found[0]["reason"].as_str().expect("a reason").contains("--bitstream"), "{found:?}");
    assert!(found[0]["median_ns"].is_null());
}

#[test]
fn hardware_cores_are_measured_by_the_stopping_rule() {
    let bench = Bench::new();
    // This is not a board, but only the code behind the agent's functions knows that.
    let port = agent_of(FabricKind::Devmem, Fault::None);
    let ran = collect(&bench, LAYERS[1], port, "--schedules 2").expect(0);
    assert!(ran.stderr.contains("check the first results"), "{ran}");
    assert!(!ran.stderr.contains("simulated"), "{ran}");
    let report = ran.json();
    assert_eq!((&report["source"], &report["models"][0]["simulated"]), (&"measured".into(), &Json::Null), "{report}");
    for row in rows(&bench) {
        assert_eq!((&row["source"], &row["unit"]), (&"measured".into(), &"fpga".into()), "{row}");
        assert_eq!((&row["transport"], &row["device"]), (&"rpc".into(), &"pynq-z1 1x16".into()), "{row}");
        assert!(row["host_class"] != "simulated" && row["cpu_arch"].is_string(), "{row}");
        assert!(row["median_ns"].as_f64() > Some(0.0) && row["max_abs_error"].as_f64() == Some(0.0), "{row}");
        assert!(row["counters"]["cycles"].is_null(), "no modelled time is added: {row}");
    }
}

#[test]
fn missing_cores_and_memory_are_reported_with_advice() {
    let bench = Bench::new();
    let small = own_agent("--fpga simulated --memory-mib 1");
    collect(&bench, "conv2d:ci=512,hw=7,co=512,k=3,p=1", small.port, "--schedules 1").expect(1);
    let found = rows(&bench);
    assert!(found[0]["reason"].as_str().expect("a reason").contains("out of memory"), "{found:?}");
    let (other, none) = (Bench::new(), own_agent(""));
    for (options, says) in [
        ("", "does not serve an accelerator core"),
        ("--cross-cc cc", "does not apply to `--unit fpga`"),
        ("--on-hardware", "does not apply to `--unit fpga`"),
    ] {
        let code = if options.is_empty() { 3 } else { 2 };
        let said = collect(&other, LAYERS[0], none.port, options).expect(code).stderr;
        assert!(said.contains(says), "{said}");
        assert!(!options.is_empty() || said.contains("hint: ") && said.contains("--fpga devmem"), "{said}");
        assert!(!other.path("st").exists());
    }
    let cores =
        format!("--modelsource simple --modelname relu:shape=8 --target llvm --host 127.0.0.1 --port {}", none.port);
    let said = run(other.opcollect(&format!("{cores} --bitstream 1x16.bin --store st"))).expect(2).stderr;
    assert!(said.contains("`--bitstream` needs"), "{said}");
    let wrong = own_agent("--fpga simulated");
    let said = collect(&other, LAYERS[0], wrong.port, "--bitstream ../../etc/passwd").expect(3).stderr;
    assert!(said.contains("the name of a bitstream"), "{said}");
}

#[test]
fn tvms_own_client_has_the_functions_too() {
    // TVM's Python package is available if its tracker is.
    let Some(_tracker) = of_tvm("tvm.exec.rpc_tracker", "") else { return };
    const CLIENT: &str = r#"
import json, sys, tvm
from tvm import rpc
session = rpc.connect("127.0.0.1", int(sys.argv[1]))
of = lambda name: session.get_function("pynq.fpga." + name)
of("program")("1x16")
assert json.loads(of("info")())["kind"] == "simulated"
block = of("alloc")(8192)
assert of("phys")(block) % 4096 == 0
of("write")(block, 4, b"\x01\x02\x00\x03")
assert bytes(of("read")(block, 3, 6)) == b"\x00\x01\x02\x00\x03\x00"
of("write")(block, 0, bytes([3] + 15 * [0]))
assert json.loads(of("run")(block, 1, 1000))[0] == 0
of("free")(block)
try:
    of("free")(block)
    raise SystemExit("a block was given back twice")
except tvm.error.RPCError as error:
    assert "no accelerator memory block" in str(error), error
print("done")
"#;
    let (bench, agent) = (Bench::new(), own_agent("--fpga simulated"));
    let mut command = bench.command(&workspace::root().join(".venv/bin/python"), "");
    command.args(["-c", CLIENT, &agent.port.to_string()]);
    assert!(run(command).expect(0).stdout.contains("done"));
}
