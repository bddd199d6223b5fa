//! Tests of sessions with the real program: supported requests, and isolation of sessions from each other.

// Skipped tests print a message.
#![allow(clippy::print_stderr)]
#![allow(missing_docs)]

mod common;

use common::{Agent, LONG, kernel, kernels, load};
use measure::counters::CounterRequest;
use measure::{Measurement, Method, Plan};
use remote::agent::{AgentDescription, HOST, MEASURE, Order};
use remote::handshake::Key;
use remote::packet::Packet;
use remote::wire::{DataType, Tensor, Value};
use remote::{Address, RemoteError, Session, Tracker, Waiting, connect_within};
use std::io::Write;
use std::net::TcpListener;
use std::process::Command;
use std::time::{Duration, Instant};

const FLOAT: DataType = DataType { code: 2, bits: 32, lanes: 1 };

/// Allocates two tensors of `count` numbers: 0, 1, 2 … and zeros.
fn tensors(session: &mut Session, count: i64) -> [Tensor; 2] {
    let [from, to] = [0; 2].map(|_| session.allocate_tensor(FLOAT, &[count]).expect("memory"));
    let numbers: Vec<u8> = (0..count).flat_map(|number| (number as f32).to_le_bytes()).collect();
    session.write_tensor(&from, &numbers).expect("they fit");
    [from, to]
}

fn refusal(result: Result<impl std::fmt::Debug, RemoteError>) -> String {
    match result {
        Err(RemoteError::Refused(why)) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_kernel_is_uploaded_filled_run_and_measured() {
    let Some(kernels) = kernels() else { return };
    let agent = Agent::start(&[]);
    let mut session = agent.session();
    let library = load(&mut session, &kernels);
    let main = kernel(&mut session, library, "main");
    // Larger than one piece of a copy.
    let count = 3 << 20;
    let [from, to] = tensors(&mut session, count);
    let arguments = || vec![Value::Tensor(from.clone()), Value::Tensor(to.clone())];
    session.call(main, arguments()).expect("it works");
    let last = session.read_tensor(&to).expect("it is there");
    assert_eq!(last.len() as i64, 4 * count);
    assert_eq!(last[last.len() - 4..], (count as f32).to_le_bytes());
    assert!(refusal(session.call(main, vec![])).contains("TypeError: two tensors are wanted"));

    let plan = Plan { samples_min: 3, samples_max: 5, ..Plan::default() };
    let order = Order { threads: 1, method: Method::Sample(plan), counters: CounterRequest::default() };
    let mut asked = vec![Value::Module(library), Value::Text("main".to_owned())];
    asked.push(Value::Text(serde_json::to_string(&order).expect("JSON")));
    asked.extend(arguments());
    let Ok(Value::Text(text)) = session.call_named(MEASURE, asked) else { panic!("no measurement") };
    let measured: Measurement = serde_json::from_str(&text).expect("a measurement");
    assert!(measured.n >= 3 && measured.first_run_ns > 0 && measured.median_ns > 0.0, "{measured:?}");

    // TVM's rule: four repeats of at least two milliseconds.
    let rule = [3, 4, 2, 100, 0, 1, 0].map(Value::Int);
    let mut asked = vec![Value::Module(library), Value::Text("main".to_owned()), Value::Int(1), Value::Int(0)];
    asked.extend(rule);
    asked.push(Value::Text(String::new()));
    let Ok(Value::Function(timed)) = session.call_named("runtime.RPCTimeEvaluator", asked) else {
        panic!("no evaluator")
    };
    let Ok(Value::Bytes(bytes)) = session.call(timed, arguments()) else { panic!("no times") };
    let seconds: Vec<f64> = bytes.chunks(8).map(|one| f64::from_le_bytes(one.try_into().expect("8 bytes"))).collect();
    assert!(seconds.len() == 4 && seconds.iter().all(|time| *time > 0.0), "{seconds:?}");
}

#[test]
fn the_agent_survives_a_crashed_session() {
    let Some(kernels) = kernels() else { return };
    let agent = Agent::start(&["--session-seconds", "30"]);
    for (name, sign) in [("crash", "SIGSEGV"), ("overrun", "SIGSEGV")] {
        let mut session = agent.session();
        let library = load(&mut session, &kernels);
        let function = kernel(&mut session, library, name);
        let [from, to] = tensors(&mut session, 16);
        let why = refusal(session.call(function, vec![Value::Tensor(from), Value::Tensor(to)]));
        assert!(why.contains("the session crashed") && why.contains(sign), "{name}: {why}");
    }
    // The client's session limit is shorter than the agent's.
    let key = Key { timeout: Some(Duration::from_millis(500)), ..Key::default() };
    let mut session = Session::open(&agent.address, &key, LONG).expect("the agent is there");
    let library = load(&mut session, &kernels);
    let function = kernel(&mut session, library, "endless");
    let why = refusal(session.call(function, vec![]));
    assert!(why.contains("RPCSessionTimeoutError"), "{why}");
    assert!(agent.session().find_function(HOST).expect("the agent is there").is_some());
}

/// Tests that an endless kernel blocks a board only while its client is connected.
#[test]
fn a_board_is_free_soon_after_its_client_disconnects() {
    let Some(kernels) = kernels() else { return };
    let agent = Agent::start(&["--session-seconds", "600"]);
    let mut session =
        Session::open(&agent.address, &Key::default(), Duration::from_secs(2)).expect("the agent is there");
    let library = load(&mut session, &kernels);
    let function = kernel(&mut session, library, "endless");
    assert!(session.call(function, vec![]).is_err(), "the call ends at its deadline");
    drop(session);
    let gone = Instant::now();
    assert!(agent.session().find_function(HOST).expect("the agent is there").is_some());
    assert!(gone.elapsed() < Duration::from_secs(30), "{:?}", gone.elapsed());
}

#[test]
fn bad_requests_are_rejected_and_the_session_continues() {
    let agent = Agent::start(&["--memory-mib", "64"]);
    let mut session = agent.session();
    for name in ["../x", "/etc/x", ".", "a/b", ""] {
        assert!(refusal(session.upload_file(name, vec![1])).contains("not a plain file name"), "{name}");
    }
    assert!(refusal(session.allocate_tensor(FLOAT, &[1 << 40])).contains("out of memory"));
    assert!(refusal(session.allocate_tensor(FLOAT, &[i64::MAX, i64::MAX])).contains("the tensor is too large"));
    let tensor = session.allocate_tensor(FLOAT, &[4]).expect("memory");
    assert!(refusal(session.write_tensor(&tensor, &[0; 17])).contains("exceed the block"));
    assert!(
        refusal(session.write_tensor(&Tensor { byte_offset: u64::MAX, ..tensor.clone() }, &[0]))
            .contains("exceed the block")
    );
    assert!(refusal(session.read_tensor(&Tensor { data: 99, ..tensor.clone() })).contains("no memory block 99"));
    session.free_tensor(&tensor).expect("it was there");
    assert!(refusal(session.free_tensor(&tensor)).contains("no memory block"));
    session.upload_file("text.so", b"no library at all, but text".to_vec()).expect("a file");
    assert!(refusal(session.load_library("text.so")).contains("link the object"));
    let mut foreign = b"\x7fELF".to_vec();
    foreign.resize(20, 0);
    foreign[18] = 243;
    session.upload_file("foreign.so", foreign).expect("a file");
    assert!(refusal(session.load_library("foreign.so")).contains("wrong architecture"));
    assert!(refusal(session.call(12345, vec![])).contains("no function"));
    assert_eq!(session.find_function("no such function"), Ok(None));
    let Ok(Value::Text(reply)) = session.call_named(HOST, vec![]) else { panic!("no description of the agent") };
    let reply: AgentDescription = serde_json::from_str(&reply).expect("JSON");
    assert_eq!((reply.facts.architecture.as_str(), reply.emulated), (std::env::consts::ARCH, None));
}

#[test]
fn keys_secrets_and_versions_are_compared() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("secret");
    std::fs::write(&file, "sesame\n").expect("a file");
    let agent = Agent::start(&["--key", "board", "--secret-file", file.to_str().expect("text"), "--emulated"]);
    let open = |name: &str, secret: Option<&str>| {
        let key = Key { name: name.to_owned(), secret: secret.map(str::to_owned), timeout: None };
        Session::open(&agent.address, &key, LONG)
    };
    for (name, secret) in [("board", None), ("board", Some("sesam")), ("other", Some("sesame")), ("", Some("sesame"))] {
        assert!(matches!(open(name, secret), Err(RemoteError::KeyRefused { .. })), "{name} {secret:?}");
    }
    let mut session = open("board", Some("sesame")).expect("both are right");
    let Ok(Value::Text(reply)) = session.call_named(HOST, vec![]) else { panic!("no description of the agent") };
    assert!(serde_json::from_str::<AgentDescription>(&reply).expect("JSON").emulated.is_some());
    drop(session);

    let mut waiting = connect_within(&agent.address, LONG).expect("it listens");
    let key = Key { name: "board".to_owned(), secret: Some("sesame".to_owned()), timeout: None };
    remote::handshake::offer_key(&key, &agent.address, &mut waiting).expect("both are right");
    Packet::InitServer { version: "0.7.0".to_owned(), arguments: vec![] }.send(&mut waiting).expect("sent");
    let Ok(Packet::List(_, values)) = Packet::receive(&mut waiting) else { panic!("no answer") };
    assert!(format!("{values:?}").contains("version mismatch"), "{values:?}");
}

#[test]
fn public_addresses_require_a_secret() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_opcollect-board"));
    let refused = command.args(["serve", "--bind", "0.0.0.0", "--port", "0"]).output().expect("the program was built");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(2) && said.contains("--secret-file") && said.contains("tunnel"), "{said}");
}

fn stranger(does: impl Fn(&mut std::net::TcpStream) + Send + 'static) -> Address {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("it is bound").port();
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        for mut stream in listener.incoming().flatten() {
            does(&mut stream);
            kept.push(stream);
        }
    });
    Address { host: "127.0.0.1".to_owned(), port }
}

#[test]
fn other_servers_and_frozen_ones_cost_only_the_deadline() {
    let open = |address: &Address| Session::open(address, &Key::default(), Duration::from_millis(300)).map(drop);
    let speaks = stranger(|stream| stream.write_all(b"HTTP/1.1 400 Bad Request\r\n").expect("sent"));
    let Err(RemoteError::SpeaksOtherwise { got, .. }) = open(&speaks) else { panic!("a stranger was taken") };
    assert_eq!(got, "`HTTP…`");
    let is_late = Instant::now();
    for silent in [stranger(|_| ()), stranger(|stream| stream.write_all(&[0x71, 0xf2]).expect("sent"))] {
        assert!(matches!(open(&silent), Err(RemoteError::TimedOut { limit_ms: 300, .. })));
        let tracker = Tracker::open(&silent, Duration::from_millis(300)).map(drop);
        assert!(matches!(tracker, Err(RemoteError::TimedOut { .. })), "{tracker:?}");
    }
    // Each attempt waits for its time limit. The bound is generous, since only termination matters.
    assert!(is_late.elapsed() < Duration::from_secs(30));
    // Single bytes at intervals do not extend the deadline.
    let drips = stranger(|stream| {
        let mut stream = stream.try_clone().expect("a copy");
        std::thread::spawn(move || {
            while stream.write_all(&[0x71]).is_ok() {
                std::thread::sleep(Duration::from_millis(150))
            }
        });
    });
    assert!(open(&drips).is_err());
    let announces = stranger(|stream| {
        let mut waiting = Waiting::new(stream.try_clone().expect("a copy"), LONG);
        remote::handshake::send_verdict(remote::handshake::HandshakeVerdict::Taken, "x", &mut waiting).expect("sent");
        stream.write_all(&u64::MAX.to_le_bytes()).expect("sent");
    });
    assert!(matches!(open(&announces), Err(RemoteError::Malformed(_))));
    let unreachable = Address { host: "127.0.0.1".to_owned(), port: 1 };
    assert!(matches!(open(&unreachable), Err(RemoteError::Unreachable { .. })));
}
