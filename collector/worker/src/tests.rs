//! Tests with real processes: the test program starts itself as a worker and misbehaves on request.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Command, Stdio},
    time::Duration,
};

use expect_test::{Expect, expect};
use nix::{
    sys::{
        prctl::set_child_subreaper,
        signal::{Signal, kill, raise},
        wait::{WaitStatus, waitpid},
    },
    unistd::Pid,
};
use serde::{Deserialize, Serialize};

use super::frame::{FrameError, read_frame, write_frame};
use super::*;

const AMPLE: Duration = Duration::from_secs(60);

#[derive(Debug, Serialize, Deserialize)]
enum Deed {
    Echo(String),
    Segfault,
    Abort,
    Exit(i32),
    Panic,
    Endless,
    Grow,
    Garbage,
    WrongNumber,
    LargeReply,
    LoudStderr,
}

type Boss = Supervisor<Deed, String>;

fn spec() -> WorkerSpec {
    role("tests::worker_role")
}

fn role(test: &str) -> WorkerSpec {
    let this = std::env::current_exe().expect("the test program has a path");
    let arguments = ["--exact", test, "--ignored", "--nocapture", "--test-threads=1"];
    let mut spec = WorkerSpec::new(this, &arguments);
    spec.environment.push(("OPCOLLECT_TEST_ROLE".into(), "yes".into()));
    spec
}

fn is_role() -> bool {
    std::env::var_os("OPCOLLECT_TEST_ROLE").is_some()
}

#[test]
#[ignore = "not a test: the worker that the tests start"]
fn worker_role() {
    if !is_role() {
        return;
    }
    let entry = enter_worker().expect("started by a supervisor");
    let mut socket = entry.stream.try_clone().expect("socket");
    let versions = [("library".to_string(), "1.2".to_string())].into();
    let served = entry.serve_requests(versions, |deed| match deed {
        Deed::Echo(text) => text,
        Deed::Segfault => {
            // The first signal only makes the standard library's handler restore the default action.
            raise(Signal::SIGSEGV).unwrap();
            raise(Signal::SIGSEGV).unwrap();
            unreachable!("the signal ends the process")
        }
        Deed::Abort => std::process::abort(),
        Deed::Exit(code) => std::process::exit(code),
        Deed::Panic => panic!("the operator has no shape"),
        Deed::Endless => loop {
            std::hint::spin_loop();
        },
        Deed::Grow => {
            let mut hoard = Vec::new();
            loop {
                hoard.push(vec![1_u8; 1 << 20]);
                std::hint::black_box(&hoard);
            }
        }
        Deed::Garbage => {
            socket.write_all(&[0xff; 64]).unwrap();
            String::new()
        }
        Deed::WrongNumber => {
            let body = WorkerAnswer { rss_bytes: 0, result: Ok::<_, String>(String::new()) };
            frame::write_frame(&mut socket, &Envelope { number: 4711, body }).unwrap();
            String::new()
        }
        Deed::LargeReply => "x".repeat(frame::FRAME_BYTES_MAX),
        Deed::LoudStderr => {
            let noise = "noise ".repeat(100_000);
            std::io::stderr().write_all(noise.as_bytes()).unwrap();
            std::io::stderr().write_all(b"\nthe last word\n").unwrap();
            std::process::exit(9)
        }
    });
    served.expect("conversation");
}

fn check_fault(spec: WorkerSpec, deed: &Deed, deadline: Duration, expected: Expect) -> Fault {
    let mut boss = Boss::new(spec);
    assert_eq!(boss.call_worker(&Deed::Echo("before".into()), AMPLE).as_deref(), Ok("before"));
    let fault = boss.call_worker(deed, deadline).expect_err("a fault");
    expected.assert_eq(fault.to_string().lines().next().unwrap_or_default());
    assert_eq!(boss.call_worker(&Deed::Echo("after".into()), AMPLE).as_deref(), Ok("after"));
    let counts = SupervisorCounts { started: 2, replies: 2, faults: 1, recycled: 0, died_idle: 0 };
    assert_eq!(boss.counts(), counts);
    fault
}

#[test]
fn a_job_gets_its_reply_and_the_worker_stays() {
    let mut boss = Boss::new(spec());
    assert_eq!(boss.current_hello(), None, "no job, no worker");
    for text in ["one", "two"] {
        assert_eq!(boss.call_worker(&Deed::Echo(text.into()), AMPLE).as_deref(), Ok(text));
    }
    let hello = boss.current_hello().expect("a worker");
    assert_eq!(hello.versions["library"], "1.2");
    assert!(hello.rss_bytes > 0);
    assert_eq!(boss.counts(), SupervisorCounts { started: 1, replies: 2, ..SupervisorCounts::default() });
}

#[test]
fn death_by_signal_is_a_crash() {
    check_fault(spec(), &Deed::Segfault, AMPLE, expect!["worker crashed with SIGSEGV (11)"]);
    check_fault(spec(), &Deed::Abort, AMPLE, expect!["worker crashed with SIGABRT (6)"]);
}

#[test]
fn an_exit_is_not_a_reply() {
    check_fault(spec(), &Deed::Exit(3), AMPLE, expect!["worker exited with code 3 instead of answering"]);
    check_fault(spec(), &Deed::Exit(0), AMPLE, expect!["worker exited with code 0 instead of answering"]);
}

#[test]
fn an_endless_job_is_killed_at_its_deadline() {
    let deadline = Duration::from_millis(50);
    check_fault(spec(), &Deed::Endless, deadline, expect!["no reply within 50 ms; the worker was killed"]);
}

#[test]
fn processor_time_has_a_limit() {
    let mut spec = spec();
    spec.limits.cpu_seconds_per_job = Some(0);
    check_fault(spec, &Deed::Endless, AMPLE, expect!["worker crashed with SIGXCPU (24)"]);
}

#[test]
fn memory_has_a_limit() {
    let mut spec = spec();
    spec.limits.memory_bytes = Some(256 << 20);
    let fault = check_fault(spec, &Deed::Grow, AMPLE, expect!["worker crashed with SIGABRT (6); end of its output:"]);
    assert!(fault.to_string().contains("memory allocation of"), "{fault}");
}

#[test]
fn damaged_replies_are_rejected() {
    check_fault(
        spec(),
        &Deed::Garbage,
        AMPLE,
        expect![
            "the worker sent an invalid reply: frame of 4294967295 bytes exceeds the limit of 67108864 bytes; the \
             worker was killed"
        ],
    );
    check_fault(
        spec(),
        &Deed::WrongNumber,
        AMPLE,
        expect![
            "the worker sent an invalid reply: frame content cannot be decoded: reply 4711 to request 2; the worker \
             was killed"
        ],
    );
}

#[test]
fn a_panic_is_reported_with_its_location() {
    let mut boss = Boss::new(spec());
    let Err(Fault::HandlerFailed { why }) = boss.call_worker(&Deed::Panic, AMPLE) else {
        panic!("not a failed handler")
    };
    let (place, message) = why.split_once(": ").expect("place and message");
    assert!(place.starts_with("panicked at collector/worker/src/tests.rs:"), "{place}");
    assert_eq!(message, "the operator has no shape");
    assert_eq!(boss.call_worker(&Deed::Echo("after".into()), AMPLE).as_deref(), Ok("after"));
    assert_eq!(boss.counts().started, 2);
}

#[test]
fn an_oversized_reply_is_reported() {
    check_fault(
        spec(),
        &Deed::LargeReply,
        AMPLE,
        expect![
            "the worker could not finish the job: reply: frame of 67108874 bytes exceeds the limit of 67108864 bytes"
        ],
    );
}

#[test]
fn only_the_end_of_standard_error_is_kept() {
    let mut boss = Boss::new(spec());
    let fault = boss.call_worker(&Deed::LoudStderr, AMPLE).expect_err("it exits");
    let Fault::Exited { code: 9, stderr } = fault else { panic!("{fault}") };
    assert!(stderr.ends_with("noise \nthe last word"), "{stderr}");
    assert!(stderr.len() <= 8 << 10);
}

#[test]
fn a_failed_start_is_reported_with_standard_error() {
    let check = |program: &str, arguments: &[&str], expected: Expect| {
        let fault = Boss::new(WorkerSpec::new(program, arguments)).ensure_ready().expect_err("no worker").to_string();
        expected.assert_eq(&fault);
    };
    check(
        "/does/not/exist",
        &[],
        expect!["cannot start a worker: `/does/not/exist`: No such file or directory (os error 2)"],
    );
    check(
        "/bin/sh",
        &["-c", "echo library missing >&2; exit 4"],
        expect![[r#"
            cannot start a worker: `/bin/sh`: worker exited with code 4 instead of answering; end of its output:
            library missing"#]],
    );
}

fn spec_behind(script: &str, folder: &std::path::Path) -> WorkerSpec {
    let mut spec = spec();
    let script = format!("{}; exec \"$0\" \"$@\"", script.replace("FOLDER", &folder.display().to_string()));
    let mut arguments = vec!["-c".into(), script.into(), spec.program.clone().into_os_string()];
    arguments.append(&mut spec.arguments);
    WorkerSpec { program: "/bin/sh".into(), arguments, ..spec }
}

#[test]
fn a_worker_killed_while_it_starts_is_started_again() {
    let folder = tempfile::tempdir().unwrap();
    let script = "for n in 1 2; do mkdir FOLDER/$n 2>/dev/null && kill -9 $$; done";
    let mut boss = Boss::new(spec_behind(script, folder.path()));
    assert_eq!(boss.call_worker(&Deed::Echo("at last".into()), AMPLE).as_deref(), Ok("at last"));
    assert_eq!(boss.counts(), SupervisorCounts { started: 1, replies: 1, ..SupervisorCounts::default() });
}

#[test]
fn repeated_kills_and_exits_end_the_retries() {
    let folder = tempfile::tempdir().unwrap();
    let count = "echo x >> FOLDER/starts";
    let starts = || std::fs::read_to_string(folder.path().join("starts")).unwrap().lines().count();
    let killed =
        Boss::new(spec_behind(&format!("{count}; kill -9 $$"), folder.path())).ensure_ready().expect_err("killed");
    expect!["cannot start a worker: `/bin/sh`: worker crashed with SIGKILL (9)"].assert_eq(&killed.to_string());
    assert_eq!(starts(), 4);
    let ended = Boss::new(spec_behind(&format!("{count}; exit 4"), folder.path())).ensure_ready().expect_err("ended");
    assert!(ended.to_string().contains("exited with code 4"), "{ended}");
    assert_eq!(starts(), 5, "a worker that exits by itself is not started again");
}

#[test]
#[ignore = "not a test: the supervisor that the next test stops"]
fn stopped_role() {
    if !is_role() {
        return;
    }
    let mut boss = Boss::new(spec());
    for deed in [Deed::Echo("echoed".into()), Deed::Endless] {
        boss.send_request(&deed, Duration::from_secs(2)).expect("sent");
        raise(Signal::SIGSTOP).unwrap();
        let reply = boss.receive_reply().unwrap_or_else(|fault| fault.to_string());
        std::io::stderr().write_all(format!("reply {reply}\n").as_bytes()).expect("standard error is open");
    }
}

#[test]
fn time_while_the_supervisor_is_stopped_does_not_count() {
    let spec = role("tests::stopped_role");
    let mut command = Command::new(spec.program);
    command.args(spec.arguments).envs(spec.environment).stdin(Stdio::null()).stdout(Stdio::null());
    let mut supervisor = command.stderr(Stdio::piped()).spawn().expect("started");
    let pid = Pid::from_raw(i32::try_from(supervisor.id()).unwrap());
    for _ in 0..2 {
        let stop = waitpid(pid, Some(nix::sys::wait::WaitPidFlag::WUNTRACED)).expect("our child");
        assert!(matches!(stop, WaitStatus::Stopped(..)), "{stop:?}");
        // Longer than the deadline of the job, which was sent before.
        std::thread::sleep(Duration::from_millis(3500));
        kill(pid, Signal::SIGCONT).expect("it lives");
    }
    let lines = BufReader::new(supervisor.stderr.take().expect("piped")).lines().map_while(Result::ok);
    let replies: Vec<String> = lines.filter_map(|line| Some(line.strip_prefix("reply ")?.to_owned())).collect();
    supervisor.wait().expect("our child");
    assert_eq!(replies, ["echoed", "no reply within 2000 ms; the worker was killed"]);
}

#[test]
fn workers_are_replaced_after_the_maximum_number_of_jobs() {
    let mut spec = spec();
    spec.recycle.after_jobs = Some(2);
    let mut boss = Boss::new(spec);
    for _ in 0..5 {
        boss.call_worker(&Deed::Echo(String::new()), AMPLE).expect("echo");
    }
    assert_eq!(boss.counts(), SupervisorCounts { started: 3, replies: 5, recycled: 2, ..SupervisorCounts::default() });
}

#[test]
fn a_worker_above_its_memory_limit_is_replaced() {
    let mut spec = spec();
    spec.recycle.above_rss_bytes = Some(1);
    let mut boss = Boss::new(spec);
    boss.call_worker(&Deed::Echo(String::new()), AMPLE).expect("echo");
    assert_eq!(boss.counts().recycled, 1);
}

#[test]
fn a_worker_that_died_between_jobs_costs_no_job() {
    let mut boss = Boss::new(spec());
    let pid = boss.ensure_ready().expect("a worker").pid;
    kill(Pid::from_raw(pid), Signal::SIGKILL).expect("it lives");
    // Waits for the end without reaping, which is the supervisor's task.
    let end = nix::sys::wait::WaitPidFlag::WEXITED | nix::sys::wait::WaitPidFlag::WNOWAIT;
    nix::sys::wait::waitid(nix::sys::wait::Id::Pid(Pid::from_raw(pid)), end).expect("our child");
    assert_eq!(boss.call_worker(&Deed::Echo("fresh".into()), AMPLE).as_deref(), Ok("fresh"));
    assert_eq!(boss.counts(), SupervisorCounts { started: 2, replies: 1, died_idle: 1, ..SupervisorCounts::default() });
}

#[test]
fn one_thread_keeps_several_workers_busy() {
    let mut bosses = [Boss::new(spec()), Boss::new(spec()), Boss::new(spec())];
    for (place, boss) in bosses.iter_mut().enumerate().rev() {
        let deed = if place == 1 { Deed::Endless } else { Deed::Echo(place.to_string()) };
        let deadline = if place == 1 { Duration::from_millis(300) } else { AMPLE };
        boss.send_request(&deed, deadline).expect("sent");
    }
    let mut finished = Vec::new();
    while let Some(place) = wait_any(&bosses.each_ref().map(Boss::pending_request)) {
        finished.push((place, bosses[place].receive_reply().map_err(|fault| fault.to_string())));
    }
    finished.sort();
    let expected = [Ok("0".into()), Err("no reply within 300 ms; the worker was killed".into()), Ok("2".into())];
    assert_eq!(finished, expected.into_iter().enumerate().collect::<Vec<_>>());
}

#[test]
fn a_job_can_be_given_up_before_its_deadline() {
    let mut boss = Boss::new(spec());
    boss.send_request(&Deed::Endless, AMPLE).expect("sent");
    assert!(!boss.pending_request().expect("pending").is_over_within(Duration::from_millis(50)));
    boss.recycle_worker();
    boss.send_request(&Deed::Echo("next".into()), AMPLE).expect("sent");
    assert!(boss.pending_request().expect("pending").is_over_within(AMPLE));
    assert_eq!(boss.receive_reply().as_deref(), Ok("next"));
    boss.send_request(&Deed::Endless, Duration::from_millis(50)).expect("sent");
    assert!(boss.pending_request().expect("pending").is_over_within(AMPLE), "its deadline is over");
}

#[test]
fn supervisors_may_move_between_threads() {
    // A worker must survive the end of the thread that requested it: its parent-death signal depends on the launcher
    // thread.
    let mut boss = std::thread::spawn(|| {
        let mut boss = Boss::new(spec());
        boss.ensure_ready().expect("a worker");
        boss
    })
    .join()
    .expect("thread");
    assert_eq!(boss.call_worker(&Deed::Echo("alive".into()), AMPLE).as_deref(), Ok("alive"));
    assert_eq!(boss.counts().started, 1);
}

#[test]
#[ignore = "not a test: the supervisor that the next test kills"]
fn supervisor_role() {
    if !is_role() {
        return;
    }
    let mut spec = spec();
    spec.limits.cpu_seconds_per_job = Some(20);
    let mut boss = Boss::new(spec);
    let pid = boss.ensure_ready().expect("a worker").pid;
    boss.send_request(&Deed::Endless, AMPLE).expect("sent");
    std::io::stderr().write_all(format!("worker {pid}\n").as_bytes()).expect("standard error is open");
    let _ = boss.receive_reply();
}

#[test]
fn workers_die_with_their_supervisor() {
    // Adopts orphans, so that the exit status of the grandchild can be observed.
    set_child_subreaper(true).expect("subreaper");
    let spec = role("tests::supervisor_role");
    let mut supervisor = Command::new(spec.program)
        .args(spec.arguments)
        .envs(spec.environment)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("started");
    let lines = BufReader::new(supervisor.stderr.take().expect("piped")).lines();
    let pid = lines.map_while(Result::ok).find_map(|line| line.strip_prefix("worker ")?.parse().ok()).expect("its pid");
    supervisor.kill().expect("it lives");
    supervisor.wait().expect("our child");
    let end = waitpid(Pid::from_raw(pid), None).expect("the orphan is a child of this test");
    assert!(matches!(end, WaitStatus::Signaled(_, Signal::SIGKILL, _)), "{end:?}");
}

struct Remote(std::net::SocketAddr, Recycle);

struct Line(std::net::TcpStream, Hello);

impl Peer for Line {
    fn frame_stream(&self) -> &dyn PeerStream {
        &self.0
    }

    fn peer_hello(&self) -> &Hello {
        &self.1
    }

    fn has_ended(&self) -> bool {
        false
    }

    fn end_with_fault(self, error: FrameError, limit: Duration) -> Fault {
        match error {
            FrameError::TimedOut => Fault::TimedOut { limit_ms: limit.as_millis() as u64 },
            other => Fault::Corrupt { why: other.to_string() },
        }
    }
}

impl PeerSource for Remote {
    type Peer = Line;

    fn start_peer(&self) -> Result<Line, String> {
        let mut stream = std::net::TcpStream::connect(self.0).map_err(|error| error.to_string())?;
        let hello = read_frame(&mut stream).map_err(|error| error.to_string())?;
        Ok(Line(stream, hello))
    }

    fn recycle_criteria(&self) -> &Recycle {
        &self.1
    }
}

#[test]
fn a_supervisor_needs_a_stream_and_no_process() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let hello = Hello { protocol: PROTOCOL, pid: 0, versions: Default::default(), rss_bytes: 0 };
            write_frame(&mut stream, &hello).expect("a greeting");
            while let Ok(Envelope::<String> { number, body }) = read_frame(&mut stream) {
                if body.is_empty() {
                    std::thread::sleep(Duration::from_millis(200));
                    break;
                }
                let body = WorkerAnswer { rss_bytes: 0, result: Ok::<usize, String>(body.len()) };
                write_frame(&mut stream, &Envelope { number, body }).expect("an answer");
            }
        }
    });
    let mut supervisor: Supervisor<String, usize, Remote> = Supervisor::new(Remote(address, Recycle::default()));
    let call = |supervisor: &mut Supervisor<String, usize, Remote>, text: &str, ms| {
        supervisor.call_worker(&text.to_owned(), Duration::from_millis(ms))
    };
    assert_eq!(call(&mut supervisor, "four", 10_000), Ok(4));
    assert_eq!(call(&mut supervisor, "", 20), Err(Fault::TimedOut { limit_ms: 20 }));
    assert_eq!(call(&mut supervisor, "and on", 10_000), Ok(6));
    assert_eq!(
        supervisor.counts(),
        SupervisorCounts { started: 2, replies: 2, faults: 1, ..SupervisorCounts::default() }
    );
}
