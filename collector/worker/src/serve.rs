//! Worker's side of a conversation: takes over the socket, confines the process and serves requests until the
//! supervisor closes the socket. Confinement must precede the first library, and the greeting must follow the last one:
//!
//! ```no_run
//! let entry = worker::enter_worker()?;
//! let versions = Default::default(); // load libraries here, and report their versions
//! entry.serve_requests(versions, |request: String| request.len())?;
//! # Ok::<(), worker::ServeError>(())
//! ```

use std::{
    cell::RefCell,
    collections::BTreeMap,
    fs::File,
    os::{fd::AsFd, unix::net::UnixStream},
    panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook},
    process::ExitCode,
};

use serde::{Serialize, de::DeserializeOwned};

use super::{
    Envelope, Hello, PROTOCOL, ProcessLimits, Start, WorkerAnswer,
    confine::{ConfineError, arm_cpu_fuse, confine_process},
    frame::{FrameError, read_frame, write_frame},
    resident_bytes,
};

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("standard input is not a socket: this program is started by `opcollect`, not by hand")]
    NotStartedBySupervisor,
    #[error("cannot take over standard input: {0}")]
    Input(#[source] std::io::Error),
    #[error("the supervisor uses protocol {theirs}, this worker {PROTOCOL}; install both from one build")]
    Protocol { theirs: u32 },
    #[error(transparent)]
    Confine(#[from] ConfineError),
    #[error("conversation with the supervisor failed: {0}")]
    Frame(#[from] FrameError),
}

/// Returns the exit code of a worker, and prints the error if there is one.
pub fn exit_code(served: anyhow::Result<()>) -> ExitCode {
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The supervisor captures standard error and quotes its end.
            #[allow(clippy::print_stderr)]
            {
                eprintln!("{error:#}");
            }
            ExitCode::from(3)
        }
    }
}

/// A confined worker that has not sent its greeting yet.
pub struct Entry {
    pub(super) stream: UnixStream,
    limits: ProcessLimits,
}

/// Capability to run machine code: proof that the calling process is a confined worker. Machine code cannot be checked,
/// so only code from a builder of the same supervisor, or an artifact that the user named, may be run.
#[derive(Clone, Copy, Debug)]
pub struct RunnerProcess(());

/// Takes over the socket from standard input, which becomes `/dev/null`, and confines the process. Must be the
/// first action of `main`.
pub fn enter_worker() -> Result<Entry, ServeError> {
    let socket = std::io::stdin().as_fd().try_clone_to_owned().map_err(ServeError::Input)?;
    let mut stream = UnixStream::from(socket);
    if stream.peer_addr().is_err() {
        return Err(ServeError::NotStartedBySupervisor);
    }
    let nothing = File::open("/dev/null").map_err(ServeError::Input)?;
    nix::unistd::dup2_stdin(nothing).map_err(|errno| ServeError::Input(errno.into()))?;
    let start: Start = read_frame(&mut stream)?;
    if start.protocol != PROTOCOL {
        return Err(ServeError::Protocol { theirs: start.protocol });
    }
    confine_process(&start.limits, start.supervisor_pid)?;
    Ok(Entry { stream, limits: start.limits })
}

/// Confines a process that does a single job without a socket, such as in a simulator; ties it to its parent's life.
pub fn enter_alone(supervisor_pid: i32) -> Result<RunnerProcess, ServeError> {
    confine_process(&ProcessLimits::default(), supervisor_pid)?;
    Ok(RunnerProcess(()))
}

impl Entry {
    /// Makes this worker a runner. Workers that only build do not need this.
    pub fn become_runner(&self) -> RunnerProcess {
        RunnerProcess(())
    }

    /// Sends the greeting and serves requests until the supervisor closes the socket. A panic becomes an error reply;
    /// the supervisor then replaces this process, since unwinding may leave inconsistent state.
    pub fn serve_requests<Request: DeserializeOwned, Reply: Serialize>(
        mut self,
        versions: BTreeMap<String, String>,
        mut handler: impl FnMut(Request) -> Reply,
    ) -> Result<(), ServeError> {
        remember_panics();
        let pid = nix::unistd::getpid().as_raw();
        write_frame(&mut self.stream, &Hello { protocol: PROTOCOL, pid, versions, rss_bytes: resident_bytes() })?;
        loop {
            let request: Envelope<Request> = match read_frame(&mut self.stream) {
                Err(FrameError::Closed) => return Ok(()),
                request => request?,
            };
            arm_cpu_fuse(&self.limits)?;
            let result = catch_unwind(AssertUnwindSafe(|| handler(request.body)))
                .map_err(|_| LAST_PANIC.take().unwrap_or_else(|| "the handler panicked without a message".into()));
            self.send_reply(request.number, result)?;
        }
    }

    fn send_reply<Reply: Serialize>(&mut self, number: u64, result: Result<Reply, String>) -> Result<(), FrameError> {
        let rss_bytes = resident_bytes();
        match write_frame(&mut self.stream, &Envelope { number, body: WorkerAnswer { rss_bytes, result } }) {
            // Nothing has been written yet, so an error reply can be sent instead.
            Err(error @ (FrameError::Oversized { .. } | FrameError::Unencodable { .. })) => {
                let result = Err::<Reply, _>(format!("reply: {error}"));
                write_frame(&mut self.stream, &Envelope { number, body: WorkerAnswer { rss_bytes, result } })
            }
            sent => sent,
        }
    }
}

thread_local! {
    /// Message and location of the latest panic of this thread; the panic's payload lacks the location.
    static LAST_PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

fn remember_panics() {
    let earlier = take_hook();
    set_hook(Box::new(move |info| {
        LAST_PANIC.set(Some(info.to_string().replace(":\n", ": ")));
        earlier(info);
    }));
}
