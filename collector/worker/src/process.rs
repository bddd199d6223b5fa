//! A worker process: start, handshake, exit status, and termination of its process group.

use std::{
    io::ErrorKind,
    os::{
        fd::OwnedFd,
        unix::{net::UnixStream, process::CommandExt},
    },
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::{
        signal::{Signal, killpg},
        wait::{Id, WaitPidFlag, WaitStatus, waitid},
    },
    unistd::Pid,
};

use super::{
    Fault, Hello, PROTOCOL, Start, WorkerSpec,
    awake::Moment,
    frame::{FrameError, read_frame, write_frame},
    launch::launch_command,
    peer::{Peer, PeerStream, TimedReply},
    stderr::StderrTail,
};

/// Maximum wait for a process to end after its socket was closed; a later end is not awaited.
const ENDING_PATIENCE: Duration = Duration::from_secs(2);
/// Time for the end of standard error to arrive after the process has ended.
const STDERR_PATIENCE: Duration = Duration::from_millis(200);

/// A worker process, which is killed on drop.
pub struct Worker {
    child: Child,
    stderr: StderrTail,
    stream: UnixStream,
    hello: Hello,
}

pub struct StartError {
    pub why: String,
    /// Whether a retry may succeed: an external signal killed the worker, or resources were temporarily exhausted.
    pub is_passing: bool,
}

impl StartError {
    fn lasting_error(why: String) -> Self {
        Self { why, is_passing: false }
    }

    fn from_launch_error(error: &std::io::Error) -> Self {
        let passing = [ErrorKind::WouldBlock, ErrorKind::OutOfMemory, ErrorKind::ExecutableFileBusy];
        Self { why: error.to_string(), is_passing: passing.contains(&error.kind()) }
    }
}

impl Worker {
    pub fn start_worker(spec: &WorkerSpec) -> Result<Self, StartError> {
        let (stream, theirs) = UnixStream::pair()
            .map_err(|error| StartError::lasting_error(format!("cannot make a socket pair: {error}")))?;
        let mut command = Command::new(&spec.program);
        command
            .args(&spec.arguments)
            .envs(spec.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0);
        let mut child = launch_command(command).map_err(|error| StartError::from_launch_error(&error))?;
        let pipe = child.stderr.take().expect("standard error is piped above");
        let hello = Hello { protocol: 0, pid: 0, versions: Default::default(), rss_bytes: 0 };
        let stderr = match StderrTail::follow_pipe(pipe) {
            Ok(stderr) => stderr,
            Err(error) => {
                end_group(&mut child);
                return Err(StartError::lasting_error(format!(
                    "cannot start a thread for its standard error: {error}"
                )));
            }
        };
        let mut worker = Self { child, stream, stderr, hello };
        match worker.exchange_greetings(spec) {
            Ok(hello) if hello.protocol == PROTOCOL => {
                worker.hello = hello;
                Ok(worker)
            }
            Ok(hello) => Err(StartError::lasting_error(format!(
                "the worker uses protocol {}, this program {PROTOCOL}; install both from one build",
                hello.protocol
            ))),
            Err(error) => {
                let fault = worker.end_with_fault(error, spec.start_deadline);
                // A worker that exits by itself would do so again.
                Err(StartError { why: fault.to_string(), is_passing: matches!(fault, Fault::Crashed { .. }) })
            }
        }
    }

    fn exchange_greetings(&self, spec: &WorkerSpec) -> Result<Hello, FrameError> {
        let mut timed =
            TimedReply { stream: &self.stream, deadline: Moment::now().saturating_after(spec.start_deadline) };
        let supervisor_pid = nix::unistd::getpid().as_raw();
        write_frame(&mut timed, &Start { protocol: PROTOCOL, supervisor_pid, limits: spec.limits.clone() })?;
        read_frame(&mut timed)
    }

    /// Waits for the end of the process, which follows slightly after its socket closes.
    fn await_end(&self) -> Option<WaitStatus> {
        let patience_ends = Instant::now() + ENDING_PATIENCE;
        loop {
            let ended = peek_status(&self.child);
            if ended.is_some() || Instant::now() > patience_ends {
                return ended;
            }
            thread::sleep(Duration::from_micros(200));
        }
    }
}

impl Peer for Worker {
    fn frame_stream(&self) -> &dyn PeerStream {
        &self.stream
    }

    fn peer_hello(&self) -> &Hello {
        &self.hello
    }

    fn has_ended(&self) -> bool {
        peek_status(&self.child).is_some()
    }

    fn end_with_fault(mut self, error: FrameError, limit: Duration) -> Fault {
        let limit_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        match error {
            FrameError::TimedOut => Fault::TimedOut { limit_ms },
            FrameError::Closed | FrameError::Truncated { .. } => match self.await_end() {
                None => Fault::Corrupt { why: format!("{error}, but the process continues") },
                Some(ended) => {
                    end_group(&mut self.child);
                    let stderr = self.stderr.text_within(STDERR_PATIENCE);
                    match ended {
                        WaitStatus::Exited(_, code) => Fault::Exited { code, stderr },
                        WaitStatus::Signaled(_, signal, _) => Fault::Crashed { signal: signal as i32, stderr },
                        other => Fault::Corrupt { why: format!("the process ended {}", describe_status(&other)) },
                    }
                }
            },
            other => Fault::Corrupt { why: other.to_string() },
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        end_group(&mut self.child);
    }
}

fn describe_status(status: &WaitStatus) -> String {
    match status {
        WaitStatus::Stopped(_, signal) => format!("stopped by {signal}"),
        WaitStatus::Continued(_) => "continued".to_owned(),
        _ => "in an unknown way".to_owned(),
    }
}

/// Returns the exit status; `None` while running. Does not reap the process, so that its group id cannot be reused.
fn peek_status(child: &Child) -> Option<WaitStatus> {
    let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    waitid(Id::Pid(child_pid(child)), look).ok().filter(|status| *status != WaitStatus::StillAlive)
}

/// Kills the worker's process group, including linkers and compilers that it started, and reaps the worker.
fn end_group(child: &mut Child) {
    // Fails only if the group has already ended.
    let _ = killpg(child_pid(child), Signal::SIGKILL);
    let _ = child.wait();
}

fn child_pid(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.id()).expect("process ids of Linux fit into 31 bits"))
}
