//! `metaschedule`: draws from TVM's own space, each named by a space and a seed.

use crate::{Result, Seen, Tuner};
use job::space::Schedule;
use std::collections::BTreeSet;

pub struct Draws {
    first: i64,
    next: usize,
    taken: BTreeSet<(usize, i64)>,
}

impl Draws {
    pub fn new(seed: u64) -> Draws {
        // TVM's seeds are positive 31-bit numbers.
        Draws { first: (seed >> 34).cast_signed(), next: 0, taken: BTreeSet::new() }
    }
}

impl Tuner for Draws {
    fn propose(&mut self, count: usize) -> Result<Vec<Schedule>> {
        let mut proposed = Vec::new();
        while proposed.len() < count {
            let (space, seed) = (self.next, self.first + 1 + self.next as i64);
            self.next += 1;
            if self.taken.insert((space, seed)) {
                proposed.push(Schedule::MetaSchedule { space, seed, trace: None });
            }
        }
        Ok(proposed)
    }

    fn observe(&mut self, schedule: &Schedule, _: Seen) {
        if let Schedule::MetaSchedule { space, seed, .. } = schedule {
            self.taken.insert((*space, *seed));
        }
    }
}
