//! Orchestrator's side of a conversation: starts workers on demand, sends them jobs and survives their faults. After a
//! fault the worker's whole process group is killed. [`Recycle`] also replaces workers without faults, because silent
//! damage (a buffer overrun, leaked memory) must not affect later jobs.

use std::{ffi::OsString, marker::PhantomData, os::fd::BorrowedFd, path::PathBuf, thread, time::Duration};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::{Serialize, de::DeserializeOwned};

use super::{
    Envelope, Fault, Hello, ProcessLimits, WorkerAnswer,
    awake::{LONGEST_WAIT, Moment},
    frame::{FrameError, read_frame, write_frame},
    peer::{Peer, PeerSource, TimedReply},
    process::{StartError, Worker},
};

const START_TRIES: u32 = 4;
/// Delay before the second attempt to start a worker; the delay triples with each further attempt.
const START_PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerSpec {
    pub program: PathBuf,
    /// Arguments of the program; `build` or `run` outside tests.
    pub arguments: Vec<OsString>,
    pub environment: Vec<(OsString, OsString)>,
    pub limits: ProcessLimits,
    pub recycle: Recycle,
    /// Maximum time from the start to the first frame, including loading libraries from a cold disk.
    pub start_deadline: Duration,
}

impl WorkerSpec {
    /// Returns a specification without limits and with a start deadline of 30 seconds.
    pub fn new(program: impl Into<PathBuf>, arguments: &[&str]) -> Self {
        Self {
            program: program.into(),
            arguments: arguments.iter().map(OsString::from).collect(),
            environment: Vec::new(),
            limits: ProcessLimits::default(),
            recycle: Recycle::default(),
            start_deadline: Duration::from_secs(30),
        }
    }
}

/// Criteria for replacing a worker that still works. `None` disables a criterion.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recycle {
    pub after_jobs: Option<u32>,
    pub above_rss_bytes: Option<u64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SupervisorCounts {
    pub started: u64,
    pub replies: u64,
    pub faults: u64,
    pub recycled: u64,
    pub died_idle: u64,
}

/// Keeps one worker of a [`PeerSource`] available for jobs. A single thread can keep several supervisors busy:
/// [`send_request`](Self::send_request) to each, then [`wait_any`] and [`receive_reply`](Self::receive_reply).
pub struct Supervisor<Request, Reply, Source: PeerSource = WorkerSpec> {
    source: Source,
    worker: Option<ActiveWorker<Source::Peer>>,
    pending: Option<Pending>,
    counts: SupervisorCounts,
    number: u64,
    kinds: PhantomData<fn(&Request) -> Reply>,
}

struct ActiveWorker<Peer> {
    peer: Peer,
    jobs: u32,
    rss_bytes: u64,
}

#[derive(Clone, Copy)]
struct Pending {
    deadline: Moment,
    limit: Duration,
}

impl<Request: Serialize, Reply: DeserializeOwned, Source: PeerSource> Supervisor<Request, Reply, Source> {
    /// Creates a supervisor without a worker. The first job starts one.
    pub fn new(source: Source) -> Self {
        Self { source, worker: None, pending: None, counts: SupervisorCounts::default(), number: 0, kinds: PhantomData }
    }

    pub fn call_worker(&mut self, request: &Request, deadline: Duration) -> Result<Reply, Fault> {
        self.send_request(request, deadline)?;
        self.receive_reply()
    }

    /// Sends a request, after starting a worker if necessary; the deadline excludes the start. Panics if the reply to
    /// the previous request is pending.
    pub fn send_request(&mut self, request: &Request, deadline: Duration) -> Result<(), Fault> {
        assert!(self.pending.is_none(), "the reply to the previous request must be received first");
        self.ensure_ready()?;
        let worker = self.worker.as_mut().expect("`ensure_ready` leaves a worker or returns its fault");
        self.number += 1;
        let pending = Pending { deadline: Moment::now().saturating_after(deadline), limit: deadline };
        let mut timed = TimedReply { stream: worker.peer.frame_stream(), deadline: pending.deadline };
        match write_frame(&mut timed, &Envelope { number: self.number, body: request }) {
            Ok(()) => {
                self.pending = Some(pending);
                Ok(())
            }
            // Nothing was written, so the worker is unaffected.
            Err(error @ (FrameError::Oversized { .. } | FrameError::Unencodable { .. })) => {
                self.counts.faults += 1;
                Err(Fault::Unsendable { why: error.to_string() })
            }
            Err(error) => Err(self.fail_job(error, deadline)),
        }
    }

    /// Waits for the reply until the deadline of the last request. Panics if no request is pending.
    pub fn receive_reply(&mut self) -> Result<Reply, Fault> {
        let pending = self.pending.take().expect("a reply is received only after a request");
        let worker = self.worker.as_mut().expect("a pending request has a worker");
        let mut timed = TimedReply { stream: worker.peer.frame_stream(), deadline: pending.deadline };
        let envelope: Envelope<WorkerAnswer<Reply>> = match read_frame(&mut timed) {
            Ok(envelope) => envelope,
            Err(error) => return Err(self.fail_job(error, pending.limit)),
        };
        if envelope.number != self.number {
            let why = format!("reply {} to request {}", envelope.number, self.number);
            return Err(self.fail_job(FrameError::Malformed { why }, pending.limit));
        }
        worker.jobs += 1;
        worker.rss_bytes = envelope.body.rss_bytes;
        match envelope.body.result {
            Ok(reply) => {
                self.counts.replies += 1;
                if self.needs_replacement() {
                    self.recycle_worker();
                }
                Ok(reply)
            }
            Err(why) => {
                // Unwinding may have left the worker in an inconsistent state.
                self.worker = None;
                self.counts.faults += 1;
                Err(Fault::HandlerFailed { why })
            }
        }
    }

    pub fn ensure_ready(&mut self) -> Result<&Hello, Fault> {
        if self.worker.as_ref().is_some_and(|worker| worker.peer.has_ended()) {
            self.worker = None;
            self.counts.died_idle += 1;
        }
        if self.worker.is_none() {
            match self.source.start_peer() {
                Ok(peer) => {
                    let rss_bytes = peer.peer_hello().rss_bytes;
                    self.worker = Some(ActiveWorker { peer, jobs: 0, rss_bytes });
                }
                Err(why) => {
                    self.counts.faults += 1;
                    return Err(Fault::CannotStart { why });
                }
            }
            self.counts.started += 1;
        }
        Ok(self.worker.as_ref().expect("the worker was just started").peer.peer_hello())
    }

    /// Ends the worker, for example after a suspicious result; the next job starts a new worker.
    pub fn recycle_worker(&mut self) {
        self.pending = None;
        if self.worker.take().is_some() {
            self.counts.recycled += 1;
        }
    }

    pub fn counts(&self) -> SupervisorCounts {
        self.counts
    }

    #[cfg(test)]
    pub fn current_hello(&self) -> Option<&Hello> {
        self.worker.as_ref().map(|worker| worker.peer.peer_hello())
    }

    pub fn pending_request(&self) -> Option<Waiting<'_>> {
        let pending = self.pending?;
        Some(Waiting { socket: self.worker.as_ref()?.peer.frame_stream().as_fd(), deadline: pending.deadline })
    }

    fn needs_replacement(&self) -> bool {
        let Some(worker) = &self.worker else { return false };
        self.source.recycle_criteria().after_jobs.is_some_and(|most| worker.jobs >= most)
            || self.source.recycle_criteria().above_rss_bytes.is_some_and(|most| worker.rss_bytes > most)
    }

    fn fail_job(&mut self, error: FrameError, limit: Duration) -> Fault {
        self.counts.faults += 1;
        let worker = self.worker.take().expect("only a running worker can fail");
        worker.peer.end_with_fault(error, limit)
    }
}

impl PeerSource for WorkerSpec {
    type Peer = Worker;

    /// Starts a worker. Retries if the failure may be temporary, such as a kill by the system's out-of-memory killer.
    fn start_peer(&self) -> Result<Worker, String> {
        let mut pause = START_PAUSE;
        let mut started = Worker::start_worker(self);
        for _ in 1..START_TRIES {
            if !matches!(&started, Err(error) if error.is_passing) {
                break;
            }
            thread::sleep(pause);
            pause *= 3;
            started = Worker::start_worker(self);
        }
        started.map_err(|StartError { why, .. }| format!("`{}`: {why}", self.program.display()))
    }

    fn recycle_criteria(&self) -> &Recycle {
        &self.recycle
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Waiting<'a> {
    socket: BorrowedFd<'a>,
    deadline: Moment,
}

impl Waiting<'_> {
    /// Waits up to `time`; returns whether the worker sent data or exceeded its deadline.
    pub fn is_over_within(&self, time: Duration) -> bool {
        find_over_within(&[*self], time).is_some()
    }
}

/// Waits until a worker sends data or exceeds its deadline; returns its index, or `None` if no reply is pending.
pub fn wait_any(waiting: &[Option<Waiting<'_>>]) -> Option<usize> {
    let places: Vec<usize> = (0..waiting.len()).filter(|&place| waiting[place].is_some()).collect();
    let busy: Vec<Waiting<'_>> = waiting.iter().flatten().copied().collect();
    if busy.is_empty() {
        return None;
    }
    loop {
        if let Some(index) = find_over_within(&busy, LONGEST_WAIT) {
            return Some(places[index]);
        }
    }
}

/// Waits up to `time` until a worker sends data or exceeds its deadline; returns its index.
fn find_over_within(busy: &[Waiting<'_>], time: Duration) -> Option<usize> {
    let first_deadline = busy.iter().map(|worker| worker.deadline).min()?;
    let mut sockets: Vec<PollFd<'_>> =
        busy.iter().map(|worker| PollFd::new(worker.socket, PollFlags::POLLIN)).collect();
    let rest = first_deadline.time_left().min(time) + Duration::from_millis(1);
    let answered = poll(&mut sockets, PollTimeout::try_from(rest).unwrap_or(PollTimeout::MAX));
    let ready = sockets.iter().position(|socket| answered.is_ok() && socket.any() == Some(true));
    let now = Moment::now();
    ready.or_else(|| busy.iter().position(|worker| worker.deadline <= now))
}
