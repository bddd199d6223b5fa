//! `random`: points drawn uniformly without replacement.

use crate::points::Points;
use crate::problem::Problem;
use crate::{Features, Result, TrialResult, Tuner};
use job::space::Schedule;

pub struct Random {
    points: Points,
}

impl Random {
    pub fn new(problem: &Problem, seed: u64) -> Random {
        Random { points: Points::new(&problem.space, seed) }
    }
}

impl Tuner for Random {
    fn propose_schedules(&mut self, count: usize) -> Result<Vec<Schedule>> {
        let drawn = (0..count).map_while(|_| self.points.draw_uniform());
        Ok(drawn.map(|knobs| Schedule::Template { knobs }).collect())
    }

    fn observe_result(&mut self, schedule: &Schedule, _: Option<&Features>, _: TrialResult) {
        if let Schedule::Template { knobs } = schedule {
            self.points.take_point(knobs);
        }
    }
}
