//! Builder processes that compile ahead of the runner, each pinned to a CPU of its own.

use crate::{Ticket, Versions};
use job::{Artifact, BuildJob, BuildReply};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use worker::{Fault, Supervisor, Waiting, WorkerSpec, wait_any};

#[derive(Clone, Debug)]
pub enum Build {
    Built(Box<Artifact>),
    Failed(String),
    Rejected(String),
    Fault(Fault),
}

/// Pool of builder processes. Results are returned in the order of the requests.
pub struct Builders {
    slots: Vec<BuilderSlot>,
    deadline: Duration,
    queue: VecDeque<(u64, BuildJob)>,
    ended: BTreeMap<u64, Build>,
    /// Tickets of pending builds, oldest first.
    tickets: VecDeque<Ticket>,
    /// Number of the oldest pending build.
    first: u64,
}

struct BuilderSlot {
    supervisor: Supervisor<BuildJob, BuildReply>,
    cpu: Option<usize>,
    number: Option<u64>,
}

impl Builders {
    /// Creates builders, pinned to `cpus` (if given) from the last to the first, because runners use the first CPUs.
    pub fn new(spec: &WorkerSpec, count: usize, cpus: &[usize], deadline: Duration) -> Builders {
        let slots = (0..count.max(1)).map(|place| {
            let cpu = (!cpus.is_empty()).then(|| cpus[cpus.len() - 1 - place % cpus.len()]);
            let mut spec = spec.clone();
            spec.limits.cpus = cpu.map(|cpu| vec![cpu]);
            BuilderSlot { supervisor: Supervisor::new(spec), cpu, number: None }
        });
        Builders {
            slots: slots.collect(),
            deadline,
            queue: VecDeque::new(),
            ended: BTreeMap::new(),
            tickets: VecDeque::new(),
            first: 0,
        }
    }

    pub fn versions(&mut self) -> Result<&Versions, Fault> {
        Ok(&self.slots[0].supervisor.ensure_ready()?.versions)
    }

    pub fn request_build(&mut self, ticket: Ticket, job: BuildJob) {
        self.queue.push_back((self.first + self.tickets.len() as u64, job));
        self.tickets.push_back(ticket);
    }

    pub fn take_result(&mut self) -> Option<(Ticket, Build)> {
        let build = self.ended.remove(&self.first)?;
        self.first += 1;
        Some((self.tickets.pop_front().expect("each result has a ticket"), build))
    }

    pub fn are_idle(&self) -> bool {
        self.tickets.is_empty()
    }

    /// Starts queued jobs on all builders and waits for one result.
    pub fn wait_for_result(&mut self) {
        self.feed_builders(&|_| true);
        if let Some(place) = wait_any(&self.waiting_builders()) {
            self.receive_build(place);
        }
    }

    /// Starts queued jobs on idle builders whose CPU is not used by a run.
    pub fn feed_idle_builders(&mut self, run_cpus: &[usize]) {
        self.feed_builders(&|cpu| is_outside(cpu, run_cpus));
    }

    /// Waits until no build occupies the CPUs of a run. Meanwhile, builders work on all other CPUs.
    pub fn vacate_cpus(&mut self, run_cpus: &[usize]) {
        while self.slots.iter().any(|slot| slot.number.is_some() && !is_outside(slot.cpu, run_cpus)) {
            self.feed_idle_builders(run_cpus);
            let Some(place) = wait_any(&self.waiting_builders()) else { return };
            self.receive_build(place);
        }
    }

    pub fn leave_all(&mut self) {
        while let Some(place) = wait_any(&self.waiting_builders()) {
            self.receive_build(place);
        }
    }

    pub fn waiting_builders(&self) -> Vec<Option<Waiting<'_>>> {
        self.slots.iter().map(|slot| slot.supervisor.pending_request()).collect()
    }

    pub fn receive_build(&mut self, place: usize) {
        let slot = &mut self.slots[place];
        let number = slot.number.take().expect("a builder with a pending reply has a job");
        let build = match slot.supervisor.receive_reply() {
            Ok(BuildReply::Built(artifact)) => Build::Built(artifact),
            Ok(BuildReply::Failed(why)) => Build::Failed(why),
            Ok(BuildReply::Rejected(why)) => Build::Rejected(why),
            Err(fault) => Build::Fault(fault),
        };
        self.ended.insert(number, build);
    }

    pub fn abandon_all(&mut self) {
        self.queue.clear();
        self.ended.clear();
        self.first += self.tickets.len() as u64;
        self.tickets.clear();
        for slot in self.slots.iter_mut().filter(|slot| slot.number.is_some()) {
            slot.supervisor.recycle_worker();
            slot.number = None;
        }
    }

    fn feed_builders(&mut self, may_work: &dyn Fn(Option<usize>) -> bool) {
        for place in 0..self.slots.len() {
            while self.slots[place].number.is_none() && may_work(self.slots[place].cpu) {
                let Some((number, job)) = self.queue.pop_front() else { return };
                let slot = &mut self.slots[place];
                match slot.supervisor.send_request(&job, self.deadline) {
                    Ok(()) => slot.number = Some(number),
                    Err(fault) => drop(self.ended.insert(number, Build::Fault(fault))),
                }
            }
        }
    }
}

/// Returns whether a builder leaves the CPUs of a run free. A builder without a CPU of its own may work on any of them.
fn is_outside(builder_cpu: Option<usize>, run_cpus: &[usize]) -> bool {
    builder_cpu.is_some_and(|cpu| !run_cpus.contains(&cpu))
}
