//! Campaigns on boards: this machine served by this project's agent and by TVM's own server, directly and through TVM's
//! tracker, and emulated boards. Killed, missing and wrong devices cost only the affected runs.
#![allow(missing_docs)]

use serde_json::Value as Json;
use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tests::agents::{emulated_boards, free_port, of_tvm, own_agent};
use tests::{Bench, Ran, run};

const MODEL: &str =
    "--config quick.toml --modelsource simple --modelname matmul:m=32,n=32,k=32 --threads 1 --counters none";

fn collect(bench: &Bench, options: &str) -> Ran {
    let mut command = bench.opcollect(&format!("{MODEL} --store st --json {options}"));
    command.env_remove("TVM_TRACKER_HOST").env_remove("TVM_TRACKER_PORT");
    run(command)
}

fn rows(bench: &Bench) -> Vec<Json> {
    run(bench.opcollect("dataset export --store st --format jsonl --out rows.jsonl")).expect(0);
    let text = std::fs::read_to_string(bench.path("rows.jsonl")).expect("it was just written");
    let rows = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let _ = std::fs::remove_file(bench.path("rows.jsonl"));
    rows
}

fn outcomes(rows: &[Json]) -> BTreeMap<String, usize> {
    rows.iter().fold(BTreeMap::new(), |mut counts, row| {
        *counts.entry(row["outcome"].as_str().unwrap_or("?").to_owned()).or_default() += 1;
        counts
    })
}

#[test]
fn a_campaign_on_an_agent_equals_a_local_one_and_resumes() {
    let (bench, agent) = (Bench::new(), own_agent(""));
    let on = format!("--target llvm --host 127.0.0.1 --port {}", agent.port);
    collect(&bench, &format!("{on} --schedules 3")).expect(0);
    let first = rows(&bench);
    assert_eq!(outcomes(&first), BTreeMap::from([("ok".to_owned(), 3)]));
    for row in &first {
        assert_eq!((&row["source"], &row["target"]), (&"measured".into(), &"llvm".into()), "{row}");
        assert!(row["median_ns"].as_f64() > Some(0.0) && row["first_run_ns"].as_f64() > Some(0.0), "{row}");
        assert!(row["max_abs_error"].is_number(), "{row}");
        assert_eq!((&row["transport"], &row["unit"]), (&"rpc".into(), &Json::Null), "{row}");
        assert_eq!(row["agent_version"], env!("CARGO_PKG_VERSION"), "{row}");
    }
    let again = collect(&bench, &format!("{on} --schedules 4")).expect(0).json();
    assert_eq!(again["known_before"], 3);
    assert_eq!(rows(&bench).len(), 4);
}

#[test]
fn an_emulated_agent_may_replace_a_board() {
    let bench = Bench::new();
    let mut command = bench.opcollect("board serve --port 0 --emulated");
    let agent = tests::agents::listening(command.stdout(std::process::Stdio::piped()));
    let ran = collect(&bench, &format!("--target pynq --host 127.0.0.1 --port {} --schedules 2", agent.port));
    let said = ran.stderr.clone();
    ran.expect(0);
    assert!(said.contains("instead of the arm cores of pynq-z1"), "{said}");
    for row in rows(&bench) {
        assert_eq!((&row["source"], &row["target"]), (&"emulated".into(), &"pynq".into()), "{row}");
        assert_eq!((&row["unit"], &row["outcome"]), (&"arm".into(), &"ok".into()), "{row}");
    }
}

#[test]
fn wrong_keys_architectures_and_addresses_give_one_error() {
    let (bench, agent) = (Bench::new(), own_agent("--key board"));
    let at = |port: u16| format!("--host 127.0.0.1 --port {port} --board-wait 2");
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let silent = silent.local_addr().expect("it is bound").port();
    std::fs::write(bench.path("pynq.toml"), "target = \"pynq\"\n").expect("a file");
    let of_file = "--config pynq.toml --modelsource simple --modelname relu:shape=8 --store st";
    let said = run(bench.opcollect(of_file)).expect(2).stderr;
    assert!(said.contains("measuring the cores of a board needs a board"), "{said}");
    for (options, code, words) in [
        (format!("--target llvm {}", at(agent.port)), 2, "rejects the key"),
        (format!("--target pynq --key board {}", at(agent.port)), 2, "wrong architecture"),
        (format!("--target llvm --key board --threads 1000 {}", at(agent.port)), 2, "`threads` is 1000"),
        (format!("--target llvm {}", at(1)), 3, "cannot reach 127.0.0.1:1"),
        (format!("--target llvm {}", at(silent)), 3, "greeting the server"),
        ("--target llvm --tracker 127.0.0.1:1 --key k".to_owned(), 3, "cannot reach 127.0.0.1:1"),
        (format!("--target llvm --tracker 127.0.0.1:{} --key k", agent.port), 3, "greeting the tracker"),
        ("--target pynq".to_owned(), 2, "needs a board"),
        ("--target llvm --key k".to_owned(), 2, "needs a board"),
        ("--target pynq --board pynq-z9 --host 127.0.0.1 --port 1".to_owned(), 2, "`pynq-z9` is not a known board"),
        ("--target llvm --tracker nowhere".to_owned(), 2, "HOST:PORT"),
        (format!("--target llvm --key board --cross-cc no-such-linker {}", at(agent.port)), 3, "no-such-linker"),
    ] {
        // If a flag is given twice, the later one counts.
        let command = bench.opcollect(&format!(
            "--config quick.toml --modelsource simple --modelname relu:shape=8 --counters none --store st {options}"
        ));
        let said = run(command).expect(code).stderr;
        assert!(
            said.contains(words) && said.contains("hint: ") || words.starts_with('`') || words == "HOST:PORT",
            "{options}\n{said}"
        );
        assert!(said.contains(words), "{options}\n{said}");
        assert!(!bench.path("st").exists(), "{options}");
    }
}

#[test]
fn a_campaign_on_tvms_own_server() {
    let Some(server) = of_tvm("tvm.exec.rpc_server", "") else { return };
    let bench = Bench::new();
    let on = format!("--target llvm --host 127.0.0.1 --port {} --schedules 2", server.port);
    let said = collect(&bench, &on).expect(0).stderr;
    assert!(said.contains("recorded as emulated"), "{said}");
    let found = rows(&bench);
    assert_eq!(outcomes(&found), BTreeMap::from([("ok".to_owned(), 2)]));
    // Values that the server cannot provide are absent.
    assert!(found.iter().all(|row| row["source"] == "emulated" && row["first_run_ns"].is_null()), "{found:?}");
    assert!(found.iter().all(|row| row["agent_version"].is_null()), "{found:?}");
    collect(&bench, &format!("{on} --on-hardware")).expect(0);
    let vouched = rows(&bench);
    assert_eq!(
        vouched.iter().filter(|row| row["source"] == "measured").count(),
        2,
        "another source is another experiment"
    );
}

/// TVM's server empties the caches of its own CPU only, and without an agent the caches of other CPUs stay warm.
#[test]
fn tvms_own_server_has_cold_caches_on_one_thread_only() {
    let Some(server) = of_tvm("tvm.exec.rpc_server", "") else { return };
    let bench = Bench::new();
    let on = format!("--target llvm --host 127.0.0.1 --port {} --cache cold", server.port);
    collect(&bench, &on).expect(0);
    let found = rows(&bench);
    assert!(found.iter().all(|row| row["outcome"] == "ok" && row["cache_state"] == "cold"), "{found:?}");
    // TVM's server uses half of the CPUs.
    if std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() >= 4) {
        let said = collect(&bench, &format!("{on} --threads 2")).expect(2).stderr;
        assert!(said.contains("TVM's server flushes the caches of one CPU"), "{said}");
        assert!(said.contains("hint: run `opcollect-board` there"), "{said}");
    }
}

#[test]
fn tvms_own_client_drives_our_agent() {
    let Some(tracker) = of_tvm("tvm.exec.rpc_tracker", "") else { return };
    let agent = own_agent(&format!("--key k --tracker 127.0.0.1:{}", tracker.port));
    const CLIENT: &str = "
import sys, time, numpy, tvm
from tvm import rpc, te
A = te.placeholder((64,), name='A')
B = te.compute((64,), lambda i: A[i] * 2.0, name='B')
library = sys.argv[2]
tvm.compile(tvm.IRModule({'main': te.create_prim_func([A, B])}), target='llvm').export_library(library)
tracker = rpc.connect_tracker('127.0.0.1', int(sys.argv[1]))
for turn in range(2):
    remote = tracker.request('k', session_timeout=60)
    remote.upload(library)
    module, device = remote.load_module('double.so'), remote.cpu(0)
    assert device.exist
    numbers = numpy.arange(64, dtype='float32')
    a, b = tvm.runtime.tensor(numbers, device), tvm.runtime.tensor(numbers, device)
    module['main'](a, b)
    assert (b.numpy() == 2 * numbers).all()
    times = module.time_evaluator('main', device, number=3, repeat=4)(a, b).results
    assert len(times) == 4 and min(times) > 0
    try:
        module['main'](a)
        raise SystemExit('a missing argument was taken')
    except tvm.error.RPCError as error:
        assert 'Expected 2 arguments' in str(error), error
    # What was caught above still holds the session.
    remote._sess.get_function('CloseRPCConnection')()
print('done')
";
    let bench = Bench::new();
    let python = tests::workspace::root().join(".venv/bin/python");
    let mut command = bench.command(&python, "");
    command.args(["-c", CLIENT, &tracker.port.to_string()]).arg(bench.path("double.so"));
    assert!(run(command).expect(0).stdout.contains("done"));
    drop(agent);
}

#[test]
fn a_campaign_continues_on_the_remaining_devices() {
    let Some(tracker) = of_tvm("tvm.exec.rpc_tracker", "") else { return };
    let register = || own_agent(&format!("--key twin --tracker 127.0.0.1:{}", tracker.port));
    let (one, two) = (register(), register());
    let bench = Bench::new();
    let at = format!("--tracker 127.0.0.1:{}", tracker.port);
    let status = || run(bench.opcollect(&format!("fleet status {at} --json"))).expect(0).json();
    let until = Instant::now() + Duration::from_secs(60);
    while status()["keys"][0]["free"] != 2 {
        assert!(Instant::now() < until, "the agents do not register: {}", status());
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(status()["keys"][0]["devices"], 2);
    assert!(run(bench.opcollect(&format!("fleet status {at}"))).expect(0).stdout.contains("twin"));
    let mut command =
        bench.opcollect(&format!("{MODEL} --store st --json --target llvm {at} --key twin --schedules 12"));
    // The environment variables have the same effect as the flag.
    command.env("TVM_TRACKER_HOST", "127.0.0.1").env("TVM_TRACKER_PORT", tracker.port.to_string());
    let killer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(700));
        drop(one);
    });
    let ran = run(command);
    killer.join().expect("it only kills");
    let found = rows(&bench);
    assert!(found.iter().all(|row| row["transport"] == "tracker"), "{found:?}");
    let counts = outcomes(&found);
    assert_eq!(counts.values().sum::<usize>(), 12, "{ran}");
    assert!(counts.keys().all(|outcome| outcome == "ok" || outcome == "crashed"), "{counts:?}\n{ran}");
    assert!(counts.get("crashed").copied().unwrap_or(0) <= 1, "one device went: {counts:?}\n{ran}");
    drop(two);
}

#[test]
fn emulated_devices_do_not_join_a_campaign_on_hardware() {
    let Some(tracker) = of_tvm("tvm.exec.rpc_tracker", "") else { return };
    let at = format!("--tracker 127.0.0.1:{}", tracker.port);
    let (bench, mut devices) = (Bench::new(), Vec::new());
    let status = || run(bench.opcollect(&format!("fleet status {at} --json"))).expect(0).json();
    for (options, count) in [("", 1), ("--emulated", 2)] {
        devices.push(own_agent(&format!("--key k --tracker 127.0.0.1:{} {options}", tracker.port)));
        let until = Instant::now() + Duration::from_secs(60);
        while status()["keys"][0]["free"] != count {
            assert!(Instant::now() < until, "the agents do not register: {}", status());
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    run(bench.opcollect(&format!("{MODEL} --store st --json --target llvm {at} --key k --schedules 6 --board-wait 5")));
    let sources: BTreeSet<String> = rows(&bench).iter().map(|row| row["source"].to_string()).collect();
    assert!(sources.len() <= 1, "one campaign has one source: {sources:?}");
}

#[test]
fn repeated_kills_of_a_server_lose_and_duplicate_nothing() {
    let bench = Bench::new();
    let port = free_port();
    let start = move || own_agent(&format!("--port {port}"));
    let server = Arc::new(Mutex::new(Some(start())));
    let is_over = Arc::new(AtomicBool::new(false));
    let store = bench.path("st");
    let killer = std::thread::spawn({
        let (server, is_over) = (Arc::clone(&server), Arc::clone(&is_over));
        move || {
            // A campaign that cannot reach its board at the start is refused, which is not what is tested here.
            while !is_over.load(Ordering::Acquire) && !store.is_dir() {
                std::thread::sleep(Duration::from_millis(10));
            }
            let mut kills = 0;
            while !is_over.load(Ordering::Acquire) && kills < 3 {
                std::thread::sleep(Duration::from_millis(600));
                let mut server = server.lock().expect("no thread panics with the lock");
                // Ends the whole process group: listening process and session.
                *server = None;
                kills += 1;
                *server = Some(start());
            }
        }
    });
    let on = format!("--target llvm --host 127.0.0.1 --port {port}");
    let ran = run(bench.opcollect(&format!("{MODEL} --store st --json {on} --schedules 24 --retry-faults 0")));
    is_over.store(true, Ordering::Release);
    killer.join().expect("it only kills and starts");
    let found = rows(&bench);
    let keys: BTreeSet<&str> = found.iter().filter_map(|row| row["key"].as_str()).collect();
    assert_eq!((found.len(), keys.len()), (24, 24), "{ran}");
    let counts = outcomes(&found);
    assert!(counts.keys().all(|outcome| outcome == "ok" || outcome == "crashed"), "{counts:?}\n{ran}");
    assert!(counts.get("crashed").copied().unwrap_or(0) <= 3, "{counts:?}\n{ran}");
}

#[test]
fn times_of_emulated_boards_are_marked() {
    for (board, server) in emulated_boards() {
        let bench = Bench::new();
        let on =
            format!("--target pynq --unit arm --board {board} --host 127.0.0.1 --port {} --schedules 2", server.port);
        let said = collect(&bench, &on).expect(0).stderr;
        assert!(said.contains("recorded as emulated"), "{said}");
        let found = rows(&bench);
        assert_eq!(outcomes(&found), BTreeMap::from([("ok".to_owned(), 2)]), "{said}");
        for row in &found {
            assert_eq!(
                (&row["source"], &row["target"], &row["board"], &row["unit"]),
                (&"emulated".into(), &"pynq".into(), &board.into(), &"arm".into())
            );
            assert!(row["max_abs_error"].is_number(), "{row}");
        }
        assert_eq!(collect(&bench, &on).expect(0).json()["known_before"], 2);
    }
}
