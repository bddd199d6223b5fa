//! `gridsearch`: one point of the grid after the other, from the first.

use crate::points::Points;
use crate::problem::Problem;
use crate::{Features, Result, Seen, Tuner};
use job::space::{Schedule, point};

/// Points that a proposal looks at before it gives up: spaces may forbid most of theirs.
const LOOKED_AT: u64 = 1 << 20;

pub struct Grid {
    points: Points,
    next: u64,
}

impl Grid {
    pub fn new(problem: &Problem) -> Grid {
        Grid { points: Points::new(&problem.space, 0), next: 0 }
    }
}

impl Tuner for Grid {
    fn propose(&mut self, count: usize) -> Result<Vec<Schedule>> {
        let mut proposed = Vec::new();
        let end = self.points.space.size().min(self.next.saturating_add(LOOKED_AT));
        while self.next < end && proposed.len() < count {
            let knobs = point(&self.points.space, self.next);
            self.next += 1;
            if self.points.space.allows(&knobs) && self.points.take(&knobs) {
                proposed.push(Schedule::Template { knobs });
            }
        }
        Ok(proposed)
    }

    fn observe(&mut self, schedule: &Schedule, _: Option<&Features>, _: Seen) {
        if let Schedule::Template { knobs } = schedule {
            self.points.take(knobs);
        }
    }
}
