//! A bench of boards: code is built on this machine and run on devices. One thread passes builds to local workers; each
//! device has a thread that runs jobs, and reconnects until the timeout of `Access` if the device is lost. Once no
//! device is left, waiting jobs fail.

mod device;
mod link;
mod network;
mod run;
mod timing;

pub use device::{Access, Device, DeviceLocation};
pub use link::{LinkError, Linker};
pub(crate) use run::{Stop, to_reply};
pub use timing::COLD_ON_ONE_THREAD;
pub(crate) use timing::ReportedClock;

use crate::{Ability, Bench, BenchWork, Done, Ran, Ticket, Versions, Workers};
use job::prepared::PreparedTasks;
use job::{NetworkJob, RunJob, RunReply};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};
use worker::Fault;

const POLL_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Clone, Debug)]
pub struct Fleet {
    pub access: Access,
    pub linker: Linker,
    pub devices: usize,
    /// Number of runs after which a session is replaced.
    pub jobs: u32,
    /// Required [`Device::likeness`] of all devices, because the records contain the description of only one of them.
    pub likeness: String,
}

type Run = (Ticket, DeviceJob, Duration);

enum DeviceJob {
    Operator(Box<RunJob>),
    Network(Box<NetworkJob>),
}

pub struct Boards {
    builds: Option<Sender<(Ticket, job::BuildJob)>>,
    shared: Arc<SharedBoards>,
    events: Receiver<(u64, Ticket, Done)>,
    /// Thread that passes builds to local workers. Device threads are detached, as they may wait for a tracker.
    builder: Option<JoinHandle<()>>,
    versions: Versions,
    /// Results of jobs that were rejected before they reached a device.
    answered: VecDeque<(Ticket, Done)>,
    in_progress: usize,
    round: u64,
}

struct SharedBoards {
    runs: Mutex<VecDeque<Run>>,
    has_work: Condvar,
    /// Number of the current round. Abandoning work starts a new round, and results of older rounds are dropped.
    round: AtomicU64,
    is_over: AtomicBool,
    alive: Mutex<usize>,
    lost: Mutex<Option<String>>,
}

impl Boards {
    pub fn new(mut workers: Workers, fleet: &Fleet) -> Result<Boards, Fault> {
        let versions = workers.capability(Ability::Build)?;
        let (replies, events) = channel();
        let (builds, asked) = channel();
        let devices = fleet.devices.max(1);
        let shared = Arc::new(SharedBoards {
            runs: Mutex::default(),
            has_work: Condvar::new(),
            round: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            alive: Mutex::new(devices),
            lost: Mutex::default(),
        });
        let builder = {
            let (shared, replies) = (Arc::clone(&shared), replies.clone());
            std::thread::spawn(move || build_jobs(workers, &asked, &shared, &replies))
        };
        for _ in 0..devices {
            let (shared, replies) = (Arc::clone(&shared), replies.clone());
            let fleet = fleet.clone();
            std::thread::spawn(move || serve_device(&fleet, &shared, &replies));
        }
        Ok(Boards {
            builds: Some(builds),
            shared,
            events,
            builder: Some(builder),
            versions,
            answered: VecDeque::new(),
            in_progress: 0,
            round: 0,
        })
    }

    fn queue_run(&self, run: Run) {
        self.shared.runs.lock().expect("no thread panics with the lock").push_back(run);
        self.shared.has_work.notify_one();
    }

    /// Returns why all devices were lost. None while a device is left.
    fn loss_reason(&self) -> Option<String> {
        let alive = *self.shared.alive.lock().expect("no thread panics with the lock");
        if alive > 0 {
            return None;
        }
        self.shared.lost.lock().expect("no thread panics with the lock").clone()
    }
}

impl Bench for Boards {
    fn capability(&mut self, _: Ability) -> Result<Versions, Fault> {
        Ok(self.versions.clone())
    }

    fn submit(&mut self, ticket: Ticket, work: BenchWork) {
        self.in_progress += 1;
        match work {
            BenchWork::Build(job) => {
                let builds = self.builds.as_ref().expect("builds are accepted until the bench is dropped");
                // If the receiver is gone, the bench is being dropped.
                let _ = builds.send((ticket, job));
            }
            BenchWork::Run(job, deadline) => self.queue_run((ticket, DeviceJob::Operator(Box::new(job)), deadline)),
            BenchWork::Network(job, deadline) => self.queue_run((ticket, DeviceJob::Network(Box::new(job)), deadline)),
            BenchWork::Library(..) | BenchWork::Together(..) => {
                let why =
                    "boards run only compiled operators, one at a time; library calls and co-runs need this machine";
                let ran = Ran { began: SystemTime::now(), reply: Ok(RunReply::Unsupported(why.to_owned())) };
                self.answered.push_back((ticket, Done::Ran(ran)));
            }
        }
    }

    fn next_result(&mut self, goes_on: &mut dyn FnMut() -> bool) -> Option<(Ticket, Done)> {
        loop {
            if self.in_progress == 0 || !goes_on() {
                return None;
            }
            if let Some(answered) = self.answered.pop_front() {
                self.in_progress -= 1;
                return Some(answered);
            }
            match self.events.recv_timeout(POLL_INTERVAL) {
                Ok((round, ticket, done)) if round == self.round => {
                    self.in_progress -= 1;
                    return Some((ticket, done));
                }
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => {
                    let Some(why) = self.loss_reason() else { continue };
                    let waiting = self.shared.runs.lock().expect("no thread panics with the lock").pop_front();
                    if let Some((ticket, ..)) = waiting {
                        self.in_progress -= 1;
                        let ran = Ran { began: SystemTime::now(), reply: Err(Fault::CannotStart { why }) };
                        return Some((ticket, Done::Ran(ran)));
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    fn abandon_all(&mut self) {
        self.round = self.shared.round.fetch_add(1, Ordering::AcqRel) + 1;
        self.shared.runs.lock().expect("no thread panics with the lock").clear();
        self.answered.clear();
        self.in_progress = 0;
    }
}

impl Drop for Boards {
    fn drop(&mut self) {
        self.abandon_all();
        self.builds = None;
        {
            // With the lock held, each thread either sees the flag or is already waiting.
            let _runs = self.shared.runs.lock().expect("no thread panics with the lock");
            self.shared.is_over.store(true, Ordering::Release);
        }
        self.shared.has_work.notify_all();
        // Dropping the sender has ended its thread.
        if let Some(builder) = self.builder.take() {
            let _ = builder.join();
        }
    }
}

fn build_jobs(
    mut workers: Workers,
    asked: &Receiver<(Ticket, job::BuildJob)>,
    shared: &SharedBoards,
    replies: &Sender<(u64, Ticket, Done)>,
) {
    let mut round = 0;
    while let Ok((ticket, job)) = asked.recv() {
        round = match shared.round.load(Ordering::Acquire) {
            same if same == round => round,
            newer => {
                workers.abandon_all();
                newer
            }
        };
        workers.submit(ticket, BenchWork::Build(job));
        loop {
            for (ticket, job) in asked.try_iter() {
                workers.submit(ticket, BenchWork::Build(job));
            }
            let mut is_wanted = || shared.round.load(Ordering::Acquire) == round;
            let Some((ticket, done)) = workers.next_result(&mut is_wanted) else { break };
            if replies.send((round, ticket, done)).is_err() {
                return;
            }
        }
    }
}

fn serve_device(fleet: &Fleet, shared: &SharedBoards, replies: &Sender<(u64, Ticket, Done)>) {
    let mut prepared = PreparedTasks::default();
    let mut device: Option<(Device, u32)> = None;
    let is_wanted = || !shared.is_over.load(Ordering::Acquire);
    while wait_for_work(shared) {
        if device.is_none() {
            match Device::open_again(&fleet.access, &is_wanted) {
                Ok(opened) if opened.likeness() == fleet.likeness => device = Some((opened, 0)),
                Ok(other) => {
                    let (address, is, wanted) = (&other.address, other.likeness(), &fleet.likeness);
                    let why = format!("{address} is {is}, but this campaign measures on {wanted}");
                    *shared.lost.lock().expect("no thread panics with the lock") = Some(why);
                    break;
                }
                Err(error) => {
                    let hint = error.hint().map_or(String::new(), |hint| format!(" ({hint})"));
                    *shared.lost.lock().expect("no thread panics with the lock") = Some(format!("{error}{hint}"));
                    break;
                }
            }
        }
        let Some((open, done)) = &mut device else { continue };
        let (round, run) = {
            let mut runs = shared.runs.lock().expect("no thread panics with the lock");
            (shared.round.load(Ordering::Acquire), runs.pop_front())
        };
        let Some((ticket, work, deadline)) = run else { continue };
        let began = SystemTime::now();
        let reply = match &work {
            DeviceJob::Operator(job) => run::run_job(open, &mut prepared, &fleet.linker, job, deadline),
            DeviceJob::Network(job) => network::run_network(open, &fleet.linker, job, deadline),
        };
        *done += 1;
        // A wrong or failed run may have left the device in a bad state.
        let is_clean = matches!(reply, Ok(RunReply::Measured(_) | RunReply::Unsupported(_)));
        // Models and their data stay in memory until the session ends, and they are large.
        let is_full = matches!(work, DeviceJob::Network(_)) || *done >= fleet.jobs;
        if !is_clean || !open.session.is_open() || is_full {
            device = None;
        }
        if replies.send((round, ticket, Done::Ran(Ran { began, reply }))).is_err() {
            break;
        }
    }
    *shared.alive.lock().expect("no thread panics with the lock") -= 1;
}

/// Waits until a run is queued. Returns false if the bench ends.
fn wait_for_work(shared: &SharedBoards) -> bool {
    let runs = shared.runs.lock().expect("no thread panics with the lock");
    let nothing = |runs: &mut VecDeque<Run>| runs.is_empty() && !shared.is_over.load(Ordering::Acquire);
    let _runs = shared.has_work.wait_while(runs, nothing).expect("no thread panics with the lock");
    !shared.is_over.load(Ordering::Acquire)
}
