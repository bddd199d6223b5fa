//! Tests that clients cannot block the board for others: silent clients, disappearing clients, endless kernels and
//! killed agents. All tests use the real program.
#![allow(missing_docs)]

mod common;

use common::{Agent, LONG, kernel, kernels, load};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use remote::agent::{HOST, LIMIT};
use remote::handshake::{Key, MAGIC, TRACKER_MAGIC, greet_server};
use remote::wire::Value;
use remote::{Address, RemoteError, Session};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Environment variable with an agent's address, set for the test process that another test starts as a client.
const CLIENT_VARIABLE: &str = "OPCOLLECT_TEST_CLIENT";

fn tcp(address: &Address) -> TcpStream {
    TcpStream::connect((address.host.as_str(), address.port)).expect("the agent listens")
}

fn greeting() -> Vec<u8> {
    [&MAGIC.to_le_bytes()[..], &7_i32.to_le_bytes(), b"client:"].concat()
}

/// Opens a session and returns the handle of a kernel that never ends.
fn endless(address: &Address, kernels: &[u8]) -> (Session, u64) {
    let mut session = Session::open(address, &Key::default(), LONG).expect("the agent listens");
    let library = load(&mut session, kernels);
    let function = kernel(&mut session, library, "endless");
    (session, function)
}

fn wait(what: &str, holds: impl Fn() -> bool) {
    let until = Instant::now() + LONG;
    while !holds() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn folders(parent: &Path) -> Vec<PathBuf> {
    let entries = parent.read_dir().expect("it is there").map(|entry| entry.expect("it is there").path());
    entries.filter(|path| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"opc"))).collect()
}

fn agent_in(folder: &Path, options: &[&str]) -> Agent {
    let mut command = Command::new(env!("CARGO_BIN_EXE_opcollect-board"));
    Agent::spawn(command.env("TMPDIR", folder).args(["serve", "--port", "0"]).args(options))
}

#[test]
fn silent_clients_delay_no_other() {
    let agent = Agent::start(&[]);
    let whole = greeting();
    let mut silent: Vec<TcpStream> = (0..100).map(|_| tcp(&agent.address)).collect();
    for (place, stream) in silent.iter_mut().enumerate() {
        stream.write_all(&whole[..place % whole.len()]).unwrap_or_default();
    }
    // Sequential greetings would exceed the time limit.
    let mut session = agent.session();
    assert!(session.find_function(HOST).expect("the agent is there").is_some());
    let status = std::fs::read_to_string(format!("/proc/{}/status", agent.child.id())).expect("it runs");
    let threads = status.lines().find_map(|line| line.strip_prefix("Threads:")).expect("it has threads").trim();
    assert!(threads.parse::<usize>().is_ok_and(|threads| threads <= 70), "{threads} threads");
    // Excess greetings end early, and each remaining one ends at its time limit.
    for mut stream in silent {
        stream.set_read_timeout(Some(LONG)).expect("a limit");
        assert!(matches!(stream.read(&mut [0]), Ok(0) | Err(_)), "a silent client is answered");
    }
    drop(session);
    assert!(agent.session().find_function(HOST).expect("the agent is there").is_some());
}

#[test]
fn a_second_client_learns_at_once_that_the_board_is_busy() {
    let agent = Agent::start(&[]);
    let first = agent.session();
    let busy = |result: Result<(), RemoteError>| match result {
        Err(error @ RemoteError::Busy { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    };
    let said = busy(greet_server(&agent.address, &Key::default(), LONG).map(drop));
    assert_eq!(said, format!("{} is busy with another client", agent.address));
    // Verdict at which TVM's clients report an error.
    let mut stream = tcp(&agent.address);
    stream.write_all(&greeting()).expect("sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("the agent closes the connection");
    assert_eq!(answer, (MAGIC + 1).to_le_bytes());
    busy(Session::open(&agent.address, &Key::default(), Duration::from_millis(300)).map(drop));
    // A client with a longer time limit is admitted after the first one leaves.
    std::thread::scope(|scope| {
        let second = scope.spawn(|| agent.session().find_function(HOST));
        std::thread::sleep(Duration::from_millis(100));
        assert!(!second.is_finished());
        drop(first);
        assert!(second.join().expect("no panic").expect("the agent is there").is_some());
    });
}

#[test]
fn a_wrong_key_is_rejected_before_the_busy_check() {
    let agent = Agent::start(&["--key", "board"]);
    let key = Key { name: "board".to_owned(), ..Key::default() };
    let _first = Session::open(&agent.address, &key, LONG).expect("the key is right");
    assert!(matches!(
        greet_server(&agent.address, &Key::default(), LONG).map(drop),
        Err(RemoteError::KeyRefused { .. })
    ));
}

fn message(stream: &mut TcpStream) -> String {
    let mut length = [0; 4];
    stream.read_exact(&mut length).expect("the agent asks");
    let mut text = vec![0; u32::from_le_bytes(length) as usize];
    stream.read_exact(&mut text).expect("the agent asks");
    String::from_utf8(text).expect("text")
}

/// Plays the tracker: acknowledges an agent's messages up to the next offer of a session; returns its match key.
fn offered(stream: &mut TcpStream) -> Key {
    loop {
        let text = message(stream);
        // Either a registration or an offer: `[3, "board", [PORT, "MATCH KEY"], null]`.
        if let Some(rest) = text.strip_prefix("[3,") {
            let name = rest.split('"').nth(3).expect("a match key").to_owned();
            return Key { name, ..Key::default() };
        }
        answer_success(stream);
    }
}

fn answer_success(stream: &mut TcpStream) {
    stream.write_all(&[&1_i32.to_le_bytes()[..], b"0"].concat()).expect("the agent waits");
}

fn is_waiting(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).expect("a mode");
    let error = stream.peek(&mut [0]).err();
    stream.set_nonblocking(false).expect("a mode");
    error.is_some_and(|error| error.kind() == ErrorKind::WouldBlock)
}

#[test]
fn a_tracker_that_does_not_answer_delays_no_greeting() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it is bound").to_string();
    let agent = Agent::start(&["--key", "board", "--tracker", &address]);
    let greet = |key: &Key| greet_server(&agent.address, key, LONG);
    let is_refused = |key: &Key| matches!(greet(key), Err(RemoteError::KeyRefused { .. }));

    let (mut tracker, _) = listener.accept().expect("the agent connects");
    tracker.set_read_timeout(Some(LONG)).expect("a limit");
    tracker.read_exact(&mut [0; 4]).expect("the agent greets");
    assert!(is_refused(&Key::default()), "no session is offered");
    assert!(is_waiting(&tracker), "the client waited for the tracker");

    tracker.write_all(&TRACKER_MAGIC.to_le_bytes()).expect("the agent waits");
    let key = offered(&mut tracker);
    // A tracker may assign a session before it replies to the agent.
    let first = greet(&key).expect("the key is the one that was offered");
    assert!(is_waiting(&tracker), "the client waited for the tracker");
    answer_success(&mut tracker);
    assert!(is_refused(&key), "a match key is good for one session");
    drop(first);
    let next = offered(&mut tracker);
    assert!(next != key && is_refused(&key));
    assert!(greet(&next).is_ok());
}

/// Tests that the next client waits until the agent has freed the board, shortly after the last client has left.
#[test]
fn one_session_follows_another_without_a_pause() {
    let agent = Agent::start(&[]);
    for round in 0..50 {
        let waiting = greet_server(&agent.address, &Key::default(), LONG)
            .unwrap_or_else(|error| panic!("round {round}: {error}"));
        drop(waiting);
    }
    for _ in 0..10 {
        assert!(agent.session().find_function(HOST).expect("the agent is there").is_some());
    }
}

#[test]
fn a_session_ends_near_its_time_limit_while_the_client_waits() {
    let Some(kernels) = kernels() else { return };
    let agent = Agent::start(&["--session-seconds", "3600"]);
    let (mut stays, function) = endless(&agent.address, &kernels);
    stays.set_deadline(Instant::now() + Duration::from_secs(1));
    let ended = stays.call(function, vec![]);
    let is_limit = |why: &str| why.contains("RPCSessionTimeoutError: a request exceeded");
    assert!(
        match &ended {
            Err(RemoteError::Refused(why)) => is_limit(why),
            Err(RemoteError::TimedOut { .. }) => true,
            _ => false,
        },
        "{ended:?}"
    );
    assert!(agent.session().find_function(HOST).expect("the agent is there").is_some());
}

#[test]
fn a_limit_applies_to_requests_and_not_between_them() {
    let Some(kernels) = kernels() else { return };
    let agent = Agent::start(&["--session-seconds", "3600"]);
    let (mut session, function) = endless(&agent.address, &kernels);
    for wrong in [0, -1, i64::MAX] {
        let refused = session.call_named(LIMIT, vec![Value::Int(wrong)]);
        assert!(
            matches!(&refused, Err(RemoteError::Refused(why)) if why.contains("not a valid time limit")),
            "{refused:?}"
        );
    }
    session.call_named(LIMIT, vec![Value::Int(1)]).expect("a limit");
    std::thread::sleep(Duration::from_millis(1500));
    assert!(session.find_function(HOST).expect("the session goes on").is_some());
    let ended = session.call(function, vec![]);
    assert!(
        matches!(&ended, Err(RemoteError::Refused(why)) if why.contains("RPCSessionTimeoutError: a request exceeded")),
        "{ended:?}"
    );
}

#[test]
fn client_in_an_endless_kernel() {
    let Some(address) = std::env::var(CLIENT_VARIABLE).ok().and_then(|text| text.parse().ok()) else { return };
    let Some(kernels) = kernels() else { return };
    let (mut session, function) = endless(&address, &kernels);
    std::io::stdout().write_all(b"\nruns\n").expect("the parent reads");
    let _ = session.call(function, vec![]);
}

#[test]
fn a_killed_client_frees_the_board() {
    if kernels().is_none() {
        return;
    }
    let agent = Agent::start(&["--session-seconds", "3600"]);
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.args(["--exact", "client_in_an_endless_kernel", "--nocapture"]);
    let mut client = command
        .env(CLIENT_VARIABLE, agent.address.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .expect("this test runs again");
    let said = BufReader::new(client.stdout.take().expect("it is piped")).lines();
    assert!(said.map_while(Result::ok).any(|line| line == "runs"));
    let session = agent.process_of_session();
    client.kill().expect("it runs");
    client.wait().expect("it was killed");
    assert!(agent.session().find_function(HOST).expect("the agent is there").is_some());
    assert!(kill(session, None).is_err(), "the session of the killed client still runs");
}

#[test]
fn leftovers_of_a_killed_agent_are_removed_by_the_next_one() {
    let Some(kernels) = kernels() else { return };
    let parent = tempfile::tempdir().expect("a folder");
    let other = agent_in(parent.path(), &[]);
    let in_use = other.session();
    wait("no folder of the session", || folders(parent.path()).len() == 1);
    let kept = folders(parent.path()).remove(0);
    for signal in [Signal::SIGKILL, Signal::SIGTERM] {
        let mut agent = agent_in(parent.path(), &[]);
        let (mut session, function) = endless(&agent.address, &kernels);
        let process = agent.process_of_session();
        let client = std::thread::spawn(move || session.call(function, vec![]));
        kill(agent.process(), signal).expect("it runs");
        agent.child.wait().expect("it was killed");
        assert!(client.join().expect("no panic").is_err(), "the session goes on");
        wait("the session outlives its agent", || has_ended(process));
        assert_eq!(folders(parent.path()).len(), 2, "{signal}: {:?}", folders(parent.path()));
        let next = agent_in(parent.path(), &[]);
        drop(next.session());
        wait("folders are left", || folders(parent.path()) == [kept.clone()]);
    }
    drop(in_use);
    wait("a folder is left", || folders(parent.path()).is_empty());
}

/// Starts the session process by a script that waits, so that the agent is killed first.
#[test]
fn a_session_whose_agent_died_before_it_began_ends() {
    let parent = tempfile::tempdir().expect("a folder");
    let script = parent.path().join("late");
    let text = "#!/bin/sh\ntouch \"$0.begun\"\nwhile [ ! -e \"$0.go\" ]; do sleep 0.05; done\nexec \"$@\"\n";
    std::fs::write(&script, text).expect("a file");
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).expect("a program");
    let mut agent = agent_in(parent.path(), &["--through", script.to_str().expect("text")]);
    let mut stream = tcp(&agent.address);
    stream.write_all(&greeting()).expect("sent");
    wait("no session begins", || script.with_extension("begun").exists());
    agent.child.kill().expect("it runs");
    agent.child.wait().expect("it was killed");
    let kept = folders(parent.path());
    let next = agent_in(parent.path(), &[]);
    drop(next.session());
    wait("the folder of a session was removed before its end", || folders(parent.path()) == kept);
    std::fs::write(script.with_extension("go"), "").expect("a file");
    stream.set_read_timeout(Some(LONG)).expect("a connection");
    stream.read_to_end(&mut Vec::new()).expect("the session goes on");
    let last = agent_in(parent.path(), &[]);
    drop(last.session());
    wait("the folder of an ended session is left", || folders(parent.path()).is_empty());
}

fn has_ended(process: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with('Z'))
}

/// Replaces the session process by a script that logs whether a running core is marked, and leaves such a mark.
#[test]
fn a_running_core_is_known_to_the_next_session() {
    let parent = tempfile::tempdir().expect("a folder");
    let path = |name: &str| parent.path().join(name);
    let script = "#!/bin/sh\n\
        # The program, `session`, and its folder.\n\
        case $(ls -A \"$3\") in *.core-at-work*) echo stuck ;; *) echo free ;; esac >> \"$0.log\"\n\
        if [ -e \"$0.programs\" ]; then rm -f \"$3/.core-at-work\"; else touch \"$3/.core-at-work\"; fi\n";
    std::fs::write(path("session"), script).expect("a file");
    std::fs::set_permissions(path("session"), PermissionsExt::from_mode(0o755)).expect("a program");
    let agent = agent_in(parent.path(), &["--through", path("session").to_str().expect("text")]);
    let log = || std::fs::read_to_string(path("session.log")).unwrap_or_default();
    let sessions = |count: usize| {
        drop(greet_server(&agent.address, &Key::default(), LONG).expect("the agent is there"));
        wait("no session begins", || log().lines().count() == count);
    };
    sessions(1);
    sessions(2);
    std::fs::write(path("session.programs"), "").expect("a file");
    sessions(3);
    sessions(4);
    assert_eq!(log(), "free\nstuck\nstuck\nfree\n");
    wait("a folder is left", || folders(parent.path()).is_empty());
}

#[test]
fn connections_have_a_keepalive_timer() {
    let agent = Agent::start(&[]);
    let stream = tcp(&agent.address);
    let own = stream.local_addr().expect("it is connected").port();
    (&stream).write_all(&greeting()).expect("sent");
    let ends = (format!(":{:04X}", agent.address.port), format!(":{own:04X}"));
    wait("the connection has no keepalive timer", || {
        let table = std::fs::read_to_string("/proc/net/tcp").expect("there is a table of connections");
        table.lines().any(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            // Fields: local and remote address, state, queues, and timer. Timer 2 is keepalive, in hundredths of a
            // second.
            fields.len() > 5 && fields[1].ends_with(&ends.0) && fields[2].ends_with(&ends.1) && {
                let (kind, left) = fields[5].split_once(':').unwrap_or_default();
                kind == "02" && u64::from_str_radix(left, 16).is_ok_and(|left| left <= 1500)
            }
        })
    });
}
