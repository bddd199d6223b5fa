//! A bench that returns known builds, and passes all other work to another bench.

use crate::{Ability, Bench, BenchWork, Build, Done, Ticket, Versions};
use job::BuildJob;
use std::collections::VecDeque;
use worker::Fault;

pub struct Prebuilt<B, Known> {
    bench: B,
    known: Known,
    done: VecDeque<(Ticket, Build)>,
}

impl<B: Bench, Known: FnMut(&BuildJob) -> Option<Build>> Prebuilt<B, Known> {
    pub fn new(bench: B, known: Known) -> Self {
        Prebuilt { bench, known, done: VecDeque::new() }
    }
}

impl<B: Bench, Known: FnMut(&BuildJob) -> Option<Build>> Bench for Prebuilt<B, Known> {
    fn capability(&mut self, of: Ability) -> Result<Versions, Fault> {
        self.bench.capability(of)
    }

    fn submit(&mut self, ticket: Ticket, work: BenchWork) {
        let known = match &work {
            BenchWork::Build(job) => (self.known)(job),
            BenchWork::Run(..) | BenchWork::Library(..) | BenchWork::Network(..) | BenchWork::Together(..) => None,
        };
        match known {
            Some(build) => self.done.push_back((ticket, build)),
            None => self.bench.submit(ticket, work),
        }
    }

    fn next_result(&mut self, goes_on: &mut dyn FnMut() -> bool) -> Option<(Ticket, Done)> {
        match self.done.pop_front() {
            Some((ticket, build)) => Some((ticket, Done::Built(build))),
            None => self.bench.next_result(goes_on),
        }
    }

    fn abandon_all(&mut self) {
        self.done.clear();
        self.bench.abandon_all();
    }
}
