//! The worker's side: take the socket, be confined, then answer requests until the supervisor hangs up.
//!
//! Two steps, because confinement must come before the first library is loaded, and the greeting after the last:
//!
//! ```no_run
//! let entry = worker::enter()?;
//! let versions = Default::default(); // load libraries here, and say which
//! entry.serve(versions, |request: String| request.len())?;
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
    Answer, Envelope, Hello, Limits, PROTOCOL, Start,
    confine::{ConfineError, arm_cpu_fuse, confine},
    frame::{FrameError, read_frame, write_frame},
    resident_bytes,
};

/// Why a worker gives up.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Standard input is not the supervisor's socket.
    #[error("standard input is not a socket: this program is started by `opcollect`, not by hand")]
    NotStartedBySupervisor,
    /// Standard input could not be taken over.
    #[error("cannot take over standard input: {0}")]
    Input(#[source] std::io::Error),
    /// The supervisor speaks another version.
    #[error("the supervisor speaks protocol {theirs}, this worker {PROTOCOL}; install both from one build")]
    Protocol {
        /// The supervisor's version.
        theirs: u32,
    },
    /// The worker's limits could not be set.
    #[error(transparent)]
    Confine(#[from] ConfineError),
    /// A frame from or to the supervisor failed.
    #[error("conversation with the supervisor failed: {0}")]
    Frame(#[from] FrameError),
}

/// What a worker's process ends with.
pub fn end(served: anyhow::Result<()>) -> ExitCode {
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Standard error is the supervisor's; it quotes the end of it.
            #[allow(clippy::print_stderr)]
            {
                eprintln!("{error:#}");
            }
            ExitCode::from(3)
        }
    }
}

/// A worker that is confined and has not said hello yet.
pub struct Entry {
    pub(super) stream: UnixStream,
    limits: Limits,
}

/// Proof that the calling process is a runner: confined, started for jobs alone, and replaced when one ends it.
///
/// Whatever loads and runs machine code asks for it. No check can tell what such code does, so the promise is about the
/// process: what it damages is a process that its supervisor expects to lose, and the code is what a builder of the same
/// supervisor made, or an artifact that the user named.
#[derive(Clone, Copy, Debug)]
pub struct RunnerProcess(());

/// Takes the socket from standard input and confines the process. Call it first thing in the worker's `main`.
///
/// Standard input is replaced by `/dev/null`, so that neither generated code nor a started linker can reach the
/// socket by a number they know.
pub fn enter() -> Result<Entry, ServeError> {
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
    confine(&start.limits, start.supervisor_pid)?;
    Ok(Entry { stream, limits: start.limits })
}

/// Confines a process that does one thing and ends, without a socket: a simulator of a processor runs it. It dies with the
/// process that started it, whose number it was given.
pub fn enter_alone(supervisor_pid: i32) -> Result<RunnerProcess, ServeError> {
    confine(&Limits::default(), supervisor_pid)?;
    Ok(RunnerProcess(()))
}

impl Entry {
    /// Makes this worker a runner. A worker that only builds has no business with it.
    pub fn become_runner(&self) -> RunnerProcess {
        RunnerProcess(())
    }

    /// The limits that hold for this worker.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Says hello, then answers requests one by one until the supervisor closes the socket.
    ///
    /// A panic in the handler becomes an error answer with its place and message; the supervisor then replaces this
    /// process, since unwinding may have left its state half changed.
    pub fn serve<Request: DeserializeOwned, Reply: Serialize>(
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
                .map_err(|_| LAST_PANIC.take().unwrap_or_else(|| "it panicked without a message".into()));
            self.answer(request.number, result)?;
        }
    }

    fn answer<Reply: Serialize>(&mut self, number: u64, result: Result<Reply, String>) -> Result<(), FrameError> {
        let rss_bytes = resident_bytes();
        match write_frame(&mut self.stream, &Envelope { number, body: Answer { rss_bytes, result } }) {
            // Nothing has been written yet: say so instead.
            Err(error @ (FrameError::Oversized { .. } | FrameError::Unencodable { .. })) => {
                let result = Err::<Reply, _>(format!("reply: {error}"));
                write_frame(&mut self.stream, &Envelope { number, body: Answer { rss_bytes, result } })
            }
            sent => sent,
        }
    }
}

thread_local! {
    /// Text of the latest panic of this thread; the payload alone would lack its place.
    static LAST_PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

fn remember_panics() {
    let earlier = take_hook();
    set_hook(Box::new(move |info| {
        LAST_PANIC.set(Some(info.to_string().replace(":\n", ": ")));
        earlier(info);
    }));
}
