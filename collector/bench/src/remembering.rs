//! A cache of builds for callers that request the same code repeatedly.

use crate::{Ability, Bench, BenchWork, Build, Done, Ticket, Versions};
use job::BuildJob;
use std::collections::{BTreeMap, HashMap, VecDeque};
use worker::Fault;

/// Capacity of the cache; the oldest builds are evicted.
const KEPT_BYTES: usize = 512 << 20;

pub struct Remembering<'a> {
    bench: &'a mut dyn Bench,
    asked: BTreeMap<Ticket, BuildJob>,
    known: HashMap<BuildJob, Build>,
    order: VecDeque<BuildJob>,
    bytes: usize,
    done: VecDeque<(Ticket, Build)>,
}

impl<'a> Remembering<'a> {
    pub fn new(bench: &'a mut dyn Bench) -> Self {
        Remembering {
            bench,
            asked: BTreeMap::new(),
            known: HashMap::new(),
            order: VecDeque::new(),
            bytes: 0,
            done: VecDeque::new(),
        }
    }

    fn cache_build(&mut self, job: BuildJob, build: &Build) {
        self.bytes += entry_bytes(&job, build);
        self.order.push_back(job.clone());
        self.known.insert(job, build.clone());
        while self.bytes > KEPT_BYTES
            && let Some(oldest) = self.order.pop_front()
        {
            let gone = self.known.remove(&oldest);
            self.bytes -= gone.map_or(0, |build| entry_bytes(&oldest, &build));
        }
    }
}

fn entry_bytes(job: &BuildJob, build: &Build) -> usize {
    let code = if let Build::Built(artifact) = build { artifact.stored_code().len() } else { 0 };
    code + 2 * (job.task.len() + job.target.len() + job.schedule.len())
}

impl Bench for Remembering<'_> {
    fn capability(&mut self, of: Ability) -> Result<Versions, Fault> {
        self.bench.capability(of)
    }

    fn submit(&mut self, ticket: Ticket, work: BenchWork) {
        if let BenchWork::Build(job) = &work {
            if let Some(build) = self.known.get(job) {
                self.done.push_back((ticket, build.clone()));
                return;
            }
            self.asked.insert(ticket, job.clone());
        }
        self.bench.submit(ticket, work);
    }

    fn next_result(&mut self, goes_on: &mut dyn FnMut() -> bool) -> Option<(Ticket, Done)> {
        if let Some((ticket, build)) = self.done.pop_front() {
            return Some((ticket, Done::Built(build)));
        }
        let (ticket, done) = self.bench.next_result(goes_on)?;
        if let (Done::Built(build @ Build::Built(_)), Some(job)) = (&done, self.asked.remove(&ticket)) {
            self.cache_build(job, build);
        }
        Some((ticket, done))
    }

    fn abandon_all(&mut self) {
        self.asked.clear();
        self.done.clear();
        self.bench.abandon_all();
    }
}
