//! The orchestrator's side: starts a worker when one is needed, gives it jobs, and survives whatever it does.
//!
//! A job ends in a reply or in a [`Fault`], never in a hang: reading has a deadline, and after any fault the worker's
//! whole process group is killed and the next job starts a fresh worker. A worker that lives long is retired by
//! [`Recycle`], because damage done quietly (an overrun buffer, leaked memory) must not spread to later jobs.

use std::{
    ffi::OsString,
    io::{ErrorKind, Read, Write},
    marker::PhantomData,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::{net::UnixStream, process::CommandExt},
    },
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        signal::{Signal, killpg},
        wait::{Id, WaitPidFlag, WaitStatus, waitid},
    },
    unistd::Pid,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{
    Answer, Envelope, Hello, Limits, PROTOCOL, Start,
    frame::{FrameError, read_frame, write_frame},
    launch::launch,
    stderr::StderrTail,
};

/// How long a process may take to end after it closed its socket, before it counts as running on.
const ENDING_PATIENCE: Duration = Duration::from_secs(2);
/// How long the last of its standard error may take to arrive after its end.
const STDERR_PATIENCE: Duration = Duration::from_millis(200);

/// How to start a worker, and within which bounds it works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerSpec {
    /// The program, `opcollect-worker` in the product.
    pub program: PathBuf,
    /// Its arguments, `build` or `run` in the product.
    pub arguments: Vec<OsString>,
    /// Variables added to the inherited environment.
    pub environment: Vec<(OsString, OsString)>,
    /// Limits the worker sets on itself before anything else.
    pub limits: Limits,
    /// When to replace a worker that still works.
    pub recycle: Recycle,
    /// How long a worker may take from its start to its first frame, loading libraries from a cold disk included.
    pub start_deadline: Duration,
}

impl WorkerSpec {
    /// A worker without limits, with 30 seconds to start; set the other fields as needed.
    pub fn new(program: impl Into<PathBuf>, arguments: &[&str]) -> Self {
        Self {
            program: program.into(),
            arguments: arguments.iter().map(OsString::from).collect(),
            environment: Vec::new(),
            limits: Limits::default(),
            recycle: Recycle::default(),
            start_deadline: Duration::from_secs(30),
        }
    }
}

/// When to replace a worker that still works. `None` means never for this reason.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recycle {
    /// After this many jobs.
    pub after_jobs: Option<u32>,
    /// When a job leaves it with more resident memory than this.
    pub above_rss_bytes: Option<u64>,
}

/// What became of a job that got no reply. Serialisable, since it becomes the outcome of a record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Fault {
    /// The worker died of a signal.
    #[error("worker crashed with {}{}", signal_name(*signal), said(stderr))]
    Crashed {
        /// The signal's number.
        signal: i32,
        /// The end of its standard error.
        stderr: String,
    },
    /// The worker ended by itself instead of answering; libraries call `exit` on some internal errors.
    #[error("worker exited with code {code} instead of answering{}", said(stderr))]
    Exited {
        /// The exit code.
        code: i32,
        /// The end of its standard error.
        stderr: String,
    },
    /// No reply within the job's deadline; the worker was killed.
    #[error("no reply within {limit_ms} ms; the worker was killed")]
    TimedOut {
        /// The deadline of the job.
        limit_ms: u64,
    },
    /// The worker sent something that is not an answer to this job; it was killed.
    #[error("the worker's answer is damaged: {why}; it was killed")]
    Corrupt {
        /// What was wrong with the answer.
        why: String,
    },
    /// The handler inside the worker panicked, or its reply cannot be sent. A fault of the program, not of the job.
    #[error("the worker could not finish the job: {why}")]
    HandlerFailed {
        /// The panic's place and message, or why the reply cannot be sent.
        why: String,
    },
    /// No worker could be started. Trying again will not help before the reason is removed.
    #[error("cannot start a worker: {why}")]
    CannotStart {
        /// The program and the reason.
        why: String,
    },
    /// The request is too large to send; the worker never saw it.
    #[error("the request cannot be sent: {why}")]
    Unsendable {
        /// The encoder's reason.
        why: String,
    },
}

fn signal_name(signal: i32) -> String {
    Signal::try_from(signal)
        .map_or_else(|_| format!("signal {signal}"), |known| format!("{} ({signal})", known.as_str()))
}

fn said(stderr: &str) -> String {
    if stderr.is_empty() { String::new() } else { format!("; its last words:\n{stderr}") }
}

/// What a supervisor has seen so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Workers started.
    pub started: u64,
    /// Jobs that got a reply.
    pub replies: u64,
    /// Jobs that ended in a fault.
    pub faults: u64,
    /// Workers replaced though they still worked.
    pub recycled: u64,
    /// Workers found dead between two jobs.
    pub died_idle: u64,
}

impl Counts {
    /// Workers started in place of an earlier one.
    pub fn respawns(&self) -> u64 {
        self.started.saturating_sub(1)
    }
}

/// Keeps one worker alive for jobs of one kind. One thread can keep many busy: [`send`](Self::send) to each, then
/// [`wait_any`] and [`receive`](Self::receive).
pub struct Supervisor<Request, Reply> {
    spec: WorkerSpec,
    worker: Option<Worker>,
    pending: Option<Pending>,
    counts: Counts,
    number: u64,
    kinds: PhantomData<fn(&Request) -> Reply>,
}

#[derive(Clone, Copy)]
struct Pending {
    deadline: Instant,
    limit: Duration,
}

impl<Request: Serialize, Reply: DeserializeOwned> Supervisor<Request, Reply> {
    /// A supervisor without a worker; the first job starts one.
    pub fn new(spec: WorkerSpec) -> Self {
        Self { spec, worker: None, pending: None, counts: Counts::default(), number: 0, kinds: PhantomData }
    }

    /// Does one job: sends the request and waits for the reply, at most `deadline` long.
    pub fn call(&mut self, request: &Request, deadline: Duration) -> Result<Reply, Fault> {
        self.send(request, deadline)?;
        self.receive()
    }

    /// Sends a request, after starting a worker if there is none. The deadline runs from here, without the start.
    ///
    /// # Panics
    /// When the answer to the previous request has not been received: a worker does one job at a time.
    pub fn send(&mut self, request: &Request, deadline: Duration) -> Result<(), Fault> {
        assert!(self.pending.is_none(), "receive the answer before the next request");
        self.ready()?;
        let worker = self.worker.as_mut().expect("`ready` leaves a worker or returns its fault");
        self.number += 1;
        let pending = Pending { deadline: Instant::now() + deadline, limit: deadline };
        let mut timed = Timed { stream: &worker.stream, deadline: pending.deadline };
        match write_frame(&mut timed, &Envelope { number: self.number, body: request }) {
            Ok(()) => {
                self.pending = Some(pending);
                Ok(())
            }
            // Nothing was written, so the worker is as good as before.
            Err(error @ (FrameError::Oversized { .. } | FrameError::Unencodable { .. })) => {
                self.counts.faults += 1;
                Err(Fault::Unsendable { why: error.to_string() })
            }
            Err(error) => Err(self.fail(error, deadline)),
        }
    }

    /// Waits for the reply to the request sent last, until that request's deadline.
    ///
    /// # Panics
    /// When no request is under way.
    pub fn receive(&mut self) -> Result<Reply, Fault> {
        let pending = self.pending.take().expect("send a request before waiting for its answer");
        let worker = self.worker.as_mut().expect("a pending request has a worker");
        let mut timed = Timed { stream: &worker.stream, deadline: pending.deadline };
        let envelope: Envelope<Answer<Reply>> = match read_frame(&mut timed) {
            Ok(envelope) => envelope,
            Err(error) => return Err(self.fail(error, pending.limit)),
        };
        if envelope.number != self.number {
            let why = format!("answer {} to request {}", envelope.number, self.number);
            return Err(self.fail(FrameError::Malformed { why }, pending.limit));
        }
        worker.jobs += 1;
        worker.rss_bytes = envelope.body.rss_bytes;
        match envelope.body.result {
            Ok(reply) => {
                self.counts.replies += 1;
                if self.is_worn() {
                    self.recycle();
                }
                Ok(reply)
            }
            Err(why) => {
                // Unwinding may have left the worker's state half changed.
                self.worker = None;
                self.counts.faults += 1;
                Err(Fault::HandlerFailed { why })
            }
        }
    }

    /// Starts a worker now, if there is none, and returns what it said about itself. Jobs do this when needed.
    pub fn ready(&mut self) -> Result<&Hello, Fault> {
        if self.worker.as_ref().is_some_and(Worker::has_ended) {
            self.worker = None;
            self.counts.died_idle += 1;
        }
        if self.worker.is_none() {
            match Worker::start(&self.spec) {
                Ok(worker) => self.worker = Some(worker),
                Err(why) => {
                    self.counts.faults += 1;
                    return Err(Fault::CannotStart { why: format!("`{}`: {why}", self.spec.program.display()) });
                }
            }
            self.counts.started += 1;
        }
        Ok(&self.worker.as_ref().expect("started above").hello)
    }

    /// Ends the worker, if there is one; the next job starts a fresh one. For use after a result that looks odd.
    pub fn recycle(&mut self) {
        self.pending = None;
        if self.worker.take().is_some() {
            self.counts.recycled += 1;
        }
    }

    /// What this supervisor has seen so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The first frame of the worker that runs now, if one does.
    pub fn hello(&self) -> Option<&Hello> {
        self.worker.as_ref().map(|worker| &worker.hello)
    }

    /// What to wait for in [`wait_any`]; `None` when no request is under way.
    pub fn waiting(&self) -> Option<Waiting<'_>> {
        let pending = self.pending?;
        Some(Waiting { socket: self.worker.as_ref()?.stream.as_fd(), deadline: pending.deadline })
    }

    fn is_worn(&self) -> bool {
        let Some(worker) = &self.worker else { return false };
        self.spec.recycle.after_jobs.is_some_and(|most| worker.jobs >= most)
            || self.spec.recycle.above_rss_bytes.is_some_and(|most| worker.rss_bytes > most)
    }

    /// Ends the worker and says why the job got no reply.
    fn fail(&mut self, error: FrameError, limit: Duration) -> Fault {
        self.counts.faults += 1;
        let worker = self.worker.take().expect("only a running worker can fail");
        worker.fault(error, limit)
    }
}

/// A worker that owes an answer.
#[derive(Debug, Clone, Copy)]
pub struct Waiting<'a> {
    socket: BorrowedFd<'a>,
    deadline: Instant,
}

/// Waits until one of the workers has something to say, or its deadline has passed, and returns its place in the list;
/// `receive` on its supervisor will then not wait for others' sake. `None` when no worker owes an answer.
pub fn wait_any(waiting: &[Option<Waiting<'_>>]) -> Option<usize> {
    let places: Vec<usize> = (0..waiting.len()).filter(|&place| waiting[place].is_some()).collect();
    let busy: Vec<Waiting<'_>> = waiting.iter().flatten().copied().collect();
    let first_deadline = busy.iter().map(|worker| worker.deadline).min()?;
    loop {
        let mut sockets: Vec<PollFd<'_>> =
            busy.iter().map(|worker| PollFd::new(worker.socket, PollFlags::POLLIN)).collect();
        let rest = first_deadline.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
        let answered = poll(&mut sockets, PollTimeout::try_from(rest).unwrap_or(PollTimeout::MAX));
        let ready = sockets.iter().position(|socket| answered.is_ok() && socket.any() == Some(true));
        let now = Instant::now();
        let late = || busy.iter().position(|worker| worker.deadline <= now);
        if let Some(index) = ready.or_else(late) {
            return Some(places[index]);
        }
    }
}

/// One running process.
struct Worker {
    child: Child,
    stream: UnixStream,
    stderr: StderrTail,
    hello: Hello,
    jobs: u32,
    rss_bytes: u64,
}

impl Worker {
    fn start(spec: &WorkerSpec) -> Result<Self, String> {
        let (stream, theirs) = UnixStream::pair().map_err(|error| format!("cannot make a socket pair: {error}"))?;
        let mut command = Command::new(&spec.program);
        command
            .args(&spec.arguments)
            .envs(spec.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0);
        let mut child = launch(command).map_err(|error| error.to_string())?;
        let pipe = child.stderr.take().expect("standard error is piped above");
        let hello = Hello { protocol: 0, pid: 0, versions: Default::default(), rss_bytes: 0 };
        let stderr = match StderrTail::follow(pipe) {
            Ok(stderr) => stderr,
            Err(error) => {
                end(&mut child);
                return Err(format!("cannot start a thread for its standard error: {error}"));
            }
        };
        let mut worker = Self { child, stream, stderr, hello, jobs: 0, rss_bytes: 0 };
        match worker.greet(spec) {
            Ok(hello) if hello.protocol == PROTOCOL => {
                worker.rss_bytes = hello.rss_bytes;
                worker.hello = hello;
                Ok(worker)
            }
            Ok(hello) => Err(format!(
                "it speaks protocol {}, this program {PROTOCOL}; install both from one build",
                hello.protocol
            )),
            Err(error) => Err(worker.fault(error, spec.start_deadline).to_string()),
        }
    }

    fn greet(&self, spec: &WorkerSpec) -> Result<Hello, FrameError> {
        let mut timed = Timed { stream: &self.stream, deadline: Instant::now() + spec.start_deadline };
        let supervisor_pid = nix::unistd::getpid().as_raw();
        write_frame(&mut timed, &Start { protocol: PROTOCOL, supervisor_pid, limits: spec.limits.clone() })?;
        read_frame(&mut timed)
    }

    fn has_ended(&self) -> bool {
        status(&self.child).is_some()
    }

    /// Ends the worker and names what happened, from the failed transfer and the way the process ended.
    fn fault(mut self, error: FrameError, limit: Duration) -> Fault {
        let limit_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        match error {
            FrameError::TimedOut => Fault::TimedOut { limit_ms },
            FrameError::Closed | FrameError::Truncated { .. } => match self.await_end() {
                None => Fault::Corrupt { why: format!("{error}, but the process goes on") },
                Some(ended) => {
                    end(&mut self.child);
                    let stderr = self.stderr.text(STDERR_PATIENCE);
                    match ended {
                        WaitStatus::Exited(_, code) => Fault::Exited { code, stderr },
                        WaitStatus::Signaled(_, signal, _) => Fault::Crashed { signal: signal as i32, stderr },
                        other => Fault::Corrupt { why: format!("the process ended as {other:?}") },
                    }
                }
            },
            other => Fault::Corrupt { why: other.to_string() },
        }
    }

    /// The socket closes a little before the process can be waited for.
    fn await_end(&self) -> Option<WaitStatus> {
        let patience_ends = Instant::now() + ENDING_PATIENCE;
        loop {
            let ended = status(&self.child);
            if ended.is_some() || Instant::now() > patience_ends {
                return ended;
            }
            thread::sleep(Duration::from_micros(200));
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// How the process ended, or `None` while it runs. It stays unreaped, so its process group cannot become another's.
fn status(child: &Child) -> Option<WaitStatus> {
    let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    waitid(Id::Pid(pid(child)), look).ok().filter(|status| *status != WaitStatus::StillAlive)
}

/// Kills the worker's process group, linkers and compilers it started included, and reaps the worker.
fn end(child: &mut Child) {
    // Fails only when the group is gone, which is what is wanted.
    let _ = killpg(pid(child), Signal::SIGKILL);
    let _ = child.wait();
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.id()).expect("process ids of Linux fit into 31 bits"))
}

/// A stream whose every read and write ends at one deadline.
struct Timed<'a> {
    stream: &'a UnixStream,
    deadline: Instant,
}

impl Timed<'_> {
    fn rest(&self) -> std::io::Result<Option<Duration>> {
        let rest = self.deadline.saturating_duration_since(Instant::now());
        if rest.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(Some(rest)) }
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.stream.set_read_timeout(self.rest()?)?;
        (&mut &*self.stream).read(buffer)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, buffer: &[u8]) -> std::io::Result<usize> {
        self.stream.set_write_timeout(self.rest()?)?;
        (&mut &*self.stream).write(buffer)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
