//! `ga`: a genetic algorithm. The fittest points survive; the others are children of parents chosen by their speed.

use crate::points::Points;
use crate::problem::Problem;
use crate::{Features, Result, TrialResult, Tuner};
use job::space::{Knobs, Schedule};
use rand::RngExt;
use std::collections::{BTreeSet, VecDeque};

const POPULATION: usize = 32;
/// Number of best points of all generations that may be parents in addition to the last generation.
const ELITE: usize = 3;
/// Probability of a mutation per axis of a child.
const MUTATION: f64 = 0.1;
/// Number of attempts to create a new child, after which a random point is taken instead.
const TRIES: usize = 16;

pub struct Genetic {
    points: Points,
    /// Observed points with their fitness: operations per time, 0 for failures.
    seen: Vec<(Knobs, f64)>,
    /// Number of points observed in earlier generations.
    earlier: usize,
    waiting: VecDeque<Knobs>,
    unheard: BTreeSet<Knobs>,
}

impl Genetic {
    pub fn new(problem: &Problem, seed: u64) -> Genetic {
        let points = Points::new(&problem.space, seed);
        Genetic { points, seen: Vec::new(), earlier: 0, waiting: VecDeque::new(), unheard: BTreeSet::new() }
    }

    /// Creates random points until a generation was observed, then children of the last generation.
    fn breed_points(&mut self) {
        if self.seen.len() < POPULATION {
            for _ in self.seen.len()..POPULATION {
                self.waiting.extend(self.points.draw_new());
            }
            return;
        }
        let mut parents: Vec<(Knobs, f64)> = self.seen[self.earlier..].to_vec();
        let mut best = self.seen.clone();
        best.sort_by(|one, other| other.1.total_cmp(&one.1));
        parents.extend(best.into_iter().take(ELITE));
        self.earlier = self.seen.len();
        for _ in 0..POPULATION {
            let child = (0..TRIES).find_map(|_| {
                let child = self.make_child(&parents)?;
                self.points.take_point(&child).then_some(child)
            });
            let child = child.or_else(|| self.points.draw_new());
            self.waiting.extend(child);
        }
    }

    fn make_child(&mut self, parents: &[(Knobs, f64)]) -> Option<Knobs> {
        let (one, other) = (self.pick_parent(parents), self.pick_parent(parents));
        let mut child = self.points.cross_points(&one, &other);
        for _ in 0..self.points.space.axes.len() {
            if self.points.random.random_bool(MUTATION) {
                child = self.points.change_axes(&child, 1).unwrap_or(child);
            }
        }
        self.points.space.allows_point(&child).then_some(child)
    }

    fn pick_parent(&mut self, parents: &[(Knobs, f64)]) -> Knobs {
        let all: f64 = parents.iter().map(|parent| parent.1).sum();
        let mut place = self.points.random.random::<f64>() * all;
        for (knobs, fitness) in parents {
            place -= fitness;
            if place <= 0.0 {
                return knobs.clone();
            }
        }
        parents[parents.len() - 1].0.clone()
    }
}

impl Tuner for Genetic {
    fn propose_schedules(&mut self, count: usize) -> Result<Vec<Schedule>> {
        // A generation has parents only if all results of the last generation are known.
        if self.waiting.is_empty() && self.unheard.is_empty() {
            self.breed_points();
        }
        let count = count.min(self.waiting.len());
        let proposed: Vec<Knobs> = self.waiting.drain(..count).collect();
        self.unheard.extend(proposed.iter().cloned());
        Ok(proposed.into_iter().map(|knobs| Schedule::Template { knobs }).collect())
    }

    fn observe_result(&mut self, schedule: &Schedule, _: Option<&Features>, seen: TrialResult) {
        let Schedule::Template { knobs } = schedule else { return };
        self.points.take_point(knobs);
        self.unheard.remove(knobs);
        self.waiting.retain(|waiting| waiting != knobs);
        match seen {
            TrialResult::Time(ns) => self.seen.push((knobs.clone(), 1.0 / ns.max(f64::MIN_POSITIVE))),
            TrialResult::Failed => self.seen.push((knobs.clone(), 0.0)),
            TrialResult::Elsewhere | TrialResult::RejectedByModel => {}
        }
    }
}
