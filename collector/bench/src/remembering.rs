//! Builds that are kept, for whoever asks for the same code again and again.

use crate::{Ability, Bench, Build, Done, Ticket, Versions, Work};
use job::BuildJob;
use std::collections::{BTreeMap, VecDeque};
use worker::Fault;

/// A bench that builds everything once.
pub struct Remembering<'a> {
    bench: &'a mut dyn Bench,
    asked: BTreeMap<Ticket, BuildJob>,
    known: Vec<(BuildJob, Build)>,
    done: VecDeque<(Ticket, Build)>,
}

impl<'a> Remembering<'a> {
    /// Remembers what this bench builds from now on.
    pub fn new(bench: &'a mut dyn Bench) -> Self {
        Remembering { bench, asked: BTreeMap::new(), known: Vec::new(), done: VecDeque::new() }
    }
}

impl Bench for Remembering<'_> {
    fn capability(&mut self, of: Ability) -> Result<Versions, Fault> {
        self.bench.capability(of)
    }

    fn submit(&mut self, ticket: Ticket, work: Work) {
        if let Work::Build(job) = &work {
            if let Some((_, build)) = self.known.iter().find(|(known, _)| known == job) {
                self.done.push_back((ticket, build.clone()));
                return;
            }
            self.asked.insert(ticket, job.clone());
        }
        self.bench.submit(ticket, work);
    }

    fn next(&mut self, goes_on: &mut dyn FnMut() -> bool) -> Option<(Ticket, Done)> {
        if let Some((ticket, build)) = self.done.pop_front() {
            return Some((ticket, Done::Built(build)));
        }
        let (ticket, done) = self.bench.next(goes_on)?;
        if let (Done::Built(build @ Build::Built(_)), Some(job)) = (&done, self.asked.remove(&ticket)) {
            self.known.push((job, build.clone()));
        }
        Some((ticket, done))
    }

    fn abandon(&mut self) {
        self.asked.clear();
        self.done.clear();
        self.bench.abandon();
    }
}
