//! `ga`: generations. The fittest stay, the others are children of parents chosen by their speed.

use crate::points::Points;
use crate::problem::Problem;
use crate::{Features, Result, Seen, Tuner};
use job::space::{Knobs, Schedule};
use rand::RngExt;
use std::collections::{BTreeSet, VecDeque};

/// Points of a generation.
const POPULATION: usize = 32;
/// Those that may be parents of the next one whatever their generation.
const ELITE: usize = 3;
/// How likely an axis of a child is drawn anew.
const MUTATION: f64 = 0.1;
/// Children that turn out to be known, before a draw takes their place.
const TRIES: usize = 16;

pub struct Genetic {
    points: Points,
    /// What was seen: points with operations per time, none for failures.
    seen: Vec<(Knobs, f64)>,
    /// How many of them belong to earlier generations.
    earlier: usize,
    waiting: VecDeque<Knobs>,
    unheard: BTreeSet<Knobs>,
}

impl Genetic {
    pub fn new(problem: &Problem, seed: u64) -> Genetic {
        let points = Points::new(&problem.space, seed);
        Genetic { points, seen: Vec::new(), earlier: 0, waiting: VecDeque::new(), unheard: BTreeSet::new() }
    }

    /// A generation of draws, until so many were seen; then children of what the last one left.
    fn breed(&mut self) {
        if self.seen.len() < POPULATION {
            for _ in self.seen.len()..POPULATION {
                self.waiting.extend(self.points.draw());
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
                let child = self.child(&parents)?;
                self.points.take(&child).then_some(child)
            });
            let child = child.or_else(|| self.points.draw());
            self.waiting.extend(child);
        }
    }

    fn child(&mut self, parents: &[(Knobs, f64)]) -> Option<Knobs> {
        let (one, other) = (self.parent(parents), self.parent(parents));
        let mut child = self.points.crossed(&one, &other);
        for _ in 0..self.points.space.axes.len() {
            if self.points.random.random_bool(MUTATION) {
                child = self.points.changed(&child, 1).unwrap_or(child);
            }
        }
        self.points.space.allows(&child).then_some(child)
    }

    /// A parent, the likelier the faster.
    fn parent(&mut self, parents: &[(Knobs, f64)]) -> Knobs {
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
    fn propose(&mut self, count: usize) -> Result<Vec<Schedule>> {
        // A generation has parents only when all of the last one is known.
        if self.waiting.is_empty() && self.unheard.is_empty() {
            self.breed();
        }
        let count = count.min(self.waiting.len());
        let proposed: Vec<Knobs> = self.waiting.drain(..count).collect();
        self.unheard.extend(proposed.iter().cloned());
        Ok(proposed.into_iter().map(|knobs| Schedule::Template { knobs }).collect())
    }

    fn observe(&mut self, schedule: &Schedule, _: Option<&Features>, seen: Seen) {
        let Schedule::Template { knobs } = schedule else { return };
        self.points.take(knobs);
        self.unheard.remove(knobs);
        self.waiting.retain(|waiting| waiting != knobs);
        match seen {
            Seen::Time(ns) => self.seen.push((knobs.clone(), 1.0 / ns.max(f64::MIN_POSITIVE))),
            Seen::Failed => self.seen.push((knobs.clone(), 0.0)),
            Seen::Elsewhere | Seen::PassedOver => {}
        }
    }
}
