//! `gridsearch`: enumerates the grid from its first point. Where rules forbid a long run of points, the enumeration
//! restarts with a large stride that is coprime to the size of the grid, so that it still visits every point.

use crate::points::Points;
use crate::problem::Problem;
use crate::{Features, Result, TrialResult, Tuner};
use job::space::{Schedule, nth_point};

/// Number of consecutive positions without a new point, after which the stride changes or the search ends.
const PATIENCE: u64 = 1 << 20;

pub struct Grid {
    points: Points,
    next: u64,
    stride: u64,
    visited: u64,
    patience: u64,
}

impl Grid {
    pub fn new(problem: &Problem) -> Grid {
        Grid::with_patience(problem, PATIENCE)
    }

    fn with_patience(problem: &Problem, patience: u64) -> Grid {
        Grid { points: Points::new(&problem.space, 0), next: 0, stride: 1, visited: 0, patience }
    }

    fn next_position(&mut self) -> Option<u64> {
        let (place, size) = (self.next, self.points.space.point_count());
        if self.visited >= size {
            return None;
        }
        self.visited += 1;
        let next = (u128::from(place) + u128::from(self.stride)) % u128::from(size);
        self.next = u64::try_from(next).expect("it is less than the size");
        Some(place)
    }

    /// Restarts with a stride near the grid's size times the golden ratio; returns false if it was restarted before.
    fn restart_spread(&mut self) -> bool {
        if self.stride > 1 {
            return false;
        }
        let size = self.points.space.point_count();
        let golden = (size as f64 * models::GOLDEN_SHARE) as u64;
        let is_whole = |step: &u64| common_divisor(*step, size) == 1;
        self.stride = (golden.max(2)..size).find(is_whole).unwrap_or(1);
        self.visited = 0;
        self.stride > 1
    }
}

fn common_divisor(one: u64, other: u64) -> u64 {
    if other == 0 { one } else { common_divisor(other, one % other) }
}

impl Tuner for Grid {
    fn propose_schedules(&mut self, count: usize) -> Result<Vec<Schedule>> {
        let (mut proposed, mut vain) = (Vec::new(), 0);
        while proposed.len() < count {
            if vain >= self.patience {
                if !self.restart_spread() {
                    break;
                }
                vain = 0;
            }
            let Some(place) = self.next_position() else { break };
            let knobs = nth_point(&self.points.space, place);
            if self.points.space.allows_point(&knobs) && self.points.take_point(&knobs) {
                proposed.push(Schedule::Template { knobs });
                vain = 0;
            } else {
                vain += 1;
            }
        }
        Ok(proposed)
    }

    fn observe_result(&mut self, schedule: &Schedule, _: Option<&Features>, _: TrialResult) {
        if let Schedule::Template { knobs } = schedule {
            self.points.take_point(knobs);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::parse_problem;
    use job::space::Knobs;
    use std::collections::BTreeSet;

    fn allowed(problem: &Problem) -> BTreeSet<Knobs> {
        let all = (0..problem.space.point_count()).map(|place| nth_point(&problem.space, place));
        all.filter(|knobs| problem.space.allows_point(knobs)).collect()
    }

    fn enumerate(mut grid: Grid) -> BTreeSet<Knobs> {
        let mut tried = BTreeSet::new();
        loop {
            let proposed = grid.propose_schedules(8).expect("a proposal");
            if proposed.is_empty() {
                return tried;
            }
            for schedule in proposed {
                let Schedule::Template { knobs } = schedule else { panic!("{schedule:?}") };
                assert!(tried.insert(knobs.clone()), "{knobs:?} came twice");
            }
        }
    }

    #[test]
    fn the_grid_is_enumerated_to_its_end_where_much_of_it_is_forbidden() {
        let pool = parse_problem("max_pool2d:c=64,hw=112,k=3,s=2,p=1");
        let all = allowed(&pool);
        assert!(all.len() > 100, "{}", all.len());
        assert!(enumerate(Grid::new(&pool)) == all);
        // Hundreds of consecutive positions are forbidden or canonicalise to earlier points.
        assert_eq!(enumerate(Grid::with_patience(&pool, 200)).len(), all.len());
        let first = (0..).map(|place| nth_point(&pool.space, place)).find(|knobs| pool.space.allows_point(knobs));
        let proposed = Grid::new(&pool).propose_schedules(1).expect("a point");
        assert_eq!(proposed, [Schedule::Template { knobs: first.expect("a point") }], "the first point comes first");
    }
}
