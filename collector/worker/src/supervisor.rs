//! The orchestrator's side: starts a worker when one is needed, gives it jobs, and survives whatever it does.
//!
//! A job ends in a reply or in a [`Fault`], never in a hang: reading has a deadline, and after any fault the worker's
//! whole process group is killed and the next job starts a fresh worker. A worker that lives long is retired by
//! [`Recycle`], because damage done quietly (an overrun buffer, leaked memory) must not spread to later jobs.

use std::{ffi::OsString, marker::PhantomData, os::fd::BorrowedFd, path::PathBuf, thread, time::Duration};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::{Serialize, de::DeserializeOwned};

use super::{
    Answer, Envelope, Fault, Hello, Limits,
    awake::{LONGEST_WAIT, Moment},
    frame::{FrameError, read_frame, write_frame},
    peer::{Peer, Place, Timed},
    process::{StartError, Worker},
};

/// How often a worker is started before it counts as one that cannot be.
const START_TRIES: u32 = 4;
/// The pause before the second start; each later one is three times as long.
const START_PAUSE: Duration = Duration::from_millis(100);

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

/// Keeps one worker alive for jobs of one kind: a process of this machine, or whoever else a [`Place`] has. One thread can keep many busy: [`send`](Self::send) to each, then
/// [`wait_any`] and [`receive`](Self::receive).
pub struct Supervisor<Request, Reply, At: Place = WorkerSpec> {
    place: At,
    worker: Option<Seat<At::Peer>>,
    pending: Option<Pending>,
    counts: Counts,
    number: u64,
    kinds: PhantomData<fn(&Request) -> Reply>,
}

/// A worker, and how worn it is.
struct Seat<Peer> {
    peer: Peer,
    /// Jobs answered.
    jobs: u32,
    /// Resident memory after the latest job.
    rss_bytes: u64,
}

#[derive(Clone, Copy)]
struct Pending {
    deadline: Moment,
    limit: Duration,
}

impl<Request: Serialize, Reply: DeserializeOwned, At: Place> Supervisor<Request, Reply, At> {
    /// A supervisor without a worker; the first job starts one.
    pub fn new(place: At) -> Self {
        Self { place, worker: None, pending: None, counts: Counts::default(), number: 0, kinds: PhantomData }
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
        let pending = Pending { deadline: Moment::now().after(deadline), limit: deadline };
        let mut timed = Timed { stream: worker.peer.stream(), deadline: pending.deadline };
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
        let mut timed = Timed { stream: worker.peer.stream(), deadline: pending.deadline };
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
        if self.worker.as_ref().is_some_and(|worker| worker.peer.has_ended()) {
            self.worker = None;
            self.counts.died_idle += 1;
        }
        if self.worker.is_none() {
            match self.place.find() {
                Ok(peer) => {
                    let rss_bytes = peer.hello().rss_bytes;
                    self.worker = Some(Seat { peer, jobs: 0, rss_bytes });
                }
                Err(why) => {
                    self.counts.faults += 1;
                    return Err(Fault::CannotStart { why });
                }
            }
            self.counts.started += 1;
        }
        Ok(self.worker.as_ref().expect("started above").peer.hello())
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
        self.worker.as_ref().map(|worker| worker.peer.hello())
    }

    /// What to wait for in [`wait_any`]; `None` when no request is under way.
    pub fn waiting(&self) -> Option<Waiting<'_>> {
        let pending = self.pending?;
        Some(Waiting { socket: self.worker.as_ref()?.peer.stream().as_fd(), deadline: pending.deadline })
    }

    fn is_worn(&self) -> bool {
        let Some(worker) = &self.worker else { return false };
        self.place.recycle().after_jobs.is_some_and(|most| worker.jobs >= most)
            || self.place.recycle().above_rss_bytes.is_some_and(|most| worker.rss_bytes > most)
    }

    /// Ends the worker and says why the job got no reply.
    fn fail(&mut self, error: FrameError, limit: Duration) -> Fault {
        self.counts.faults += 1;
        let worker = self.worker.take().expect("only a running worker can fail");
        worker.peer.fault(error, limit)
    }
}

impl Place for WorkerSpec {
    type Peer = Worker;

    /// Starts a worker, again where the reason it did not start may have passed: others kill for memory, too.
    fn find(&self) -> Result<Worker, String> {
        let mut pause = START_PAUSE;
        let mut started = Worker::start(self);
        for _ in 1..START_TRIES {
            if !matches!(&started, Err(error) if error.is_passing) {
                break;
            }
            thread::sleep(pause);
            pause *= 3;
            started = Worker::start(self);
        }
        started.map_err(|StartError { why, .. }| format!("`{}`: {why}", self.program.display()))
    }

    fn recycle(&self) -> &Recycle {
        &self.recycle
    }
}

/// A worker that owes an answer.
#[derive(Debug, Clone, Copy)]
pub struct Waiting<'a> {
    socket: BorrowedFd<'a>,
    deadline: Moment,
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
        let rest = first_deadline.rest().min(LONGEST_WAIT) + Duration::from_millis(1);
        let answered = poll(&mut sockets, PollTimeout::try_from(rest).unwrap_or(PollTimeout::MAX));
        let ready = sockets.iter().position(|socket| answered.is_ok() && socket.any() == Some(true));
        let now = Moment::now();
        let late = || busy.iter().position(|worker| worker.deadline <= now);
        if let Some(index) = ready.or_else(late) {
            return Some(places[index]);
        }
    }
}
