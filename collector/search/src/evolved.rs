//! `metaschedule`: TVM's MetaSchedule space and its evolutionary search. The first batch is random; later batches are
//! children of measured schedules, from a process that has TVM.

use crate::{Error, Evolution, Features, Result, TrialResult, Tuner};
use job::space::Schedule;
use std::collections::{HashSet, VecDeque};

const BATCH: usize = 64;

pub struct Evolved {
    first: i64,
    next: usize,
    evolution: Box<dyn Evolution>,
    /// Hashes of all schedules that were proposed or observed.
    taken: HashSet<String>,
    measured: Vec<(Schedule, f64)>,
    /// Children (bred schedules) not proposed yet; `bred_at` is the number of taken schedules when they were bred.
    children: VecDeque<Schedule>,
    bred_at: Option<usize>,
}

impl Evolved {
    pub fn new(seed: u64, evolution: Box<dyn Evolution>) -> Evolved {
        Evolved {
            // TVM's seeds are positive 31-bit numbers.
            first: (seed >> 34).cast_signed(),
            next: 0,
            evolution,
            taken: HashSet::new(),
            measured: Vec::new(),
            children: VecDeque::new(),
            bred_at: None,
        }
    }

    fn draw_schedule(&mut self) -> Schedule {
        loop {
            let (space, seed) = (self.next, self.first + 1 + self.next as i64);
            self.next += 1;
            let drawn = Schedule::MetaSchedule { space, seed, trace: None };
            if self.taken.insert(drawn.stable_hash()) {
                return drawn;
            }
        }
    }

    /// Returns a new child, after breeding if none is left; None if nothing was measured, or all children are known.
    fn next_child(&mut self) -> Result<Option<Schedule>> {
        let is_due = self.bred_at.is_none_or(|count| self.taken.len() >= count + BATCH);
        if self.children.is_empty() && is_due && !self.measured.is_empty() {
            let seed = self.first + self.taken.len() as i64;
            let bred = self.evolution.breed_schedules(&self.measured, BATCH, seed).map_err(Error::Evolution)?;
            self.bred_at = Some(self.taken.len());
            self.children = bred.into();
        }
        while let Some(child) = self.children.pop_front() {
            if self.taken.insert(child.stable_hash()) {
                return Ok(Some(child));
            }
        }
        Ok(None)
    }
}

impl Tuner for Evolved {
    fn propose_schedules(&mut self, count: usize) -> Result<Vec<Schedule>> {
        let mut proposed = Vec::new();
        while proposed.len() < count {
            let child = if self.taken.len() < BATCH { None } else { self.next_child()? };
            proposed.push(child.unwrap_or_else(|| self.draw_schedule()));
        }
        Ok(proposed)
    }

    fn observe_result(&mut self, schedule: &Schedule, _: Option<&Features>, seen: TrialResult) {
        if matches!(schedule, Schedule::Template { .. }) {
            return;
        }
        self.taken.insert(schedule.stable_hash());
        if let TrialResult::Time(time_ns) = seen {
            self.measured.push((schedule.clone(), time_ns));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use job::space::Moves;
    use serde_json::json;
    use std::cell::RefCell;
    use std::rc::Rc;

    type Asked = Rc<RefCell<Vec<(usize, i64)>>>;

    struct Fake(Asked, usize);

    impl Evolution for Fake {
        fn breed_schedules(
            &mut self,
            measured: &[(Schedule, f64)],
            _: usize,
            seed: i64,
        ) -> std::result::Result<Vec<Schedule>, String> {
            self.0.borrow_mut().push((measured.len(), seed));
            let trace = |child| {
                let block = format!("child_{child}_of_{seed}");
                Moves::new(json!([[["GetSBlock", [], [block, "main"], ["b0"]]], []])).expect("moves")
            };
            Ok((0..self.1).map(|child| Schedule::Trace { trace: trace(child) }).collect())
        }
    }

    fn is_drawn(schedule: &Schedule) -> bool {
        matches!(schedule, Schedule::MetaSchedule { .. })
    }

    #[test]
    fn the_first_batch_is_drawn_and_later_ones_are_bred_from_what_was_measured() {
        let asked = Asked::default();
        let mut tuner = Evolved::new(1 << 40, Box::new(Fake(asked.clone(), BATCH)));
        let first = tuner.propose_schedules(BATCH).expect("draws");
        assert!(first.iter().all(is_drawn));
        first.iter().skip(1).for_each(|schedule| tuner.observe_result(schedule, None, TrialResult::Time(1.0)));
        tuner.observe_result(&first[0], None, TrialResult::Failed);
        let second = tuner.propose_schedules(BATCH + 1).expect("children");
        assert_eq!(second.iter().filter(|schedule| is_drawn(schedule)).count(), 0);
        let seed = (1 << 40 >> 34) + BATCH as i64;
        assert_eq!(*asked.borrow(), [(BATCH - 1, seed), (BATCH - 1, seed + BATCH as i64)]);
    }

    #[test]
    fn where_nothing_new_is_bred_draws_go_on_and_breeding_is_tried_again_later() {
        let asked = Asked::default();
        let mut tuner = Evolved::new(7, Box::new(Fake(asked.clone(), 1)));
        let drawn = tuner.propose_schedules(BATCH).expect("draws");
        assert!(tuner.propose_schedules(3).expect("draws").iter().all(is_drawn), "nothing was measured");
        tuner.observe_result(&drawn[0], None, TrialResult::Time(1.0));
        let next = tuner.propose_schedules(2 * BATCH).expect("some of both");
        assert_eq!(next.iter().filter(|schedule| !is_drawn(schedule)).count(), 2);
        assert_eq!(asked.borrow().len(), 2);
    }
}
