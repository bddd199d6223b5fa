//! `xgb` and its kin, as AutoTVM has them: a plan of points, of which each batch takes the next; when as many were seen
//! as a plan has, trees are grown, and annealing over what they say makes the next plan. A few points are drawn all the same.

use crate::anneal::anneal;
use crate::features::{self, View};
use crate::model::{self, Goal, Lessons};
use crate::points::Points;
use crate::problem::Problem;
use crate::{Result, Seen, Tuner};
use job::space::{Knobs, Schedule};
use rand::RngExt;
use std::collections::VecDeque;

/// Points of a plan, and how many must be seen before the first one.
const PLAN: usize = 24;
/// The part of proposals that is drawn.
const EXPLORED: f64 = 0.05;
/// Points that annealing begins with, of those that were seen.
const STARTS: usize = 16;

struct Guided {
    problem: Problem,
    points: Points,
    view: View,
    goal: Goal,
    seed: u64,
    lessons: Lessons,
    /// What was seen: points with their time, infinite for failures.
    seen: Vec<(Knobs, f64)>,
    plan: VecDeque<Knobs>,
    planned: usize,
}

/// Trees that learn speeds.
pub fn regression(problem: &Problem, view: View, seed: u64) -> Result<Box<dyn Tuner>> {
    guided(problem, view, Goal::Value, seed)
}

/// Trees that learn which of two is faster.
pub fn ranking(problem: &Problem, view: View, seed: u64) -> Result<Box<dyn Tuner>> {
    guided(problem, view, Goal::Order, seed)
}

fn guided(problem: &Problem, view: View, goal: Goal, seed: u64) -> Result<Box<dyn Tuner>> {
    model::check()?;
    Ok(Box::new(Guided {
        problem: problem.clone(),
        points: Points::new(&problem.space, seed),
        view,
        goal,
        seed,
        lessons: Lessons::default(),
        seen: Vec::new(),
        plan: VecDeque::new(),
        planned: 0,
    }))
}

impl Guided {
    fn make_plan(&mut self) -> Result<()> {
        let best = self.seen.iter().map(|(_, ns)| *ns).fold(f64::INFINITY, f64::min);
        if !best.is_finite() {
            return Ok(());
        }
        let labels: Vec<f32> = self.seen.iter().map(|(_, ns)| (best / ns) as f32).collect();
        let model = self.lessons.fit(&labels, self.goal, std::iter::once(self.seed))?;
        let mut starts = self.seen.clone();
        starts.sort_by(|one, other| one.1.total_cmp(&other.1));
        let starts: Vec<Knobs> = starts.into_iter().take(STARTS).map(|(knobs, _)| knobs).collect();
        let (problem, view) = (&self.problem, self.view);
        let score = |knobs: &Knobs| model.ask(&features::of(problem, knobs, view)).mean;
        self.plan = anneal(&mut self.points, &starts, PLAN, score).into();
        self.planned = self.seen.len();
        Ok(())
    }

    fn next(&mut self) -> Option<Knobs> {
        if self.points.random.random_bool(EXPLORED) {
            return self.points.draw();
        }
        while let Some(knobs) = self.plan.pop_front() {
            if self.points.take(&knobs) {
                return Some(knobs);
            }
        }
        self.points.draw()
    }
}

impl Tuner for Guided {
    fn propose(&mut self, count: usize) -> Result<Vec<Schedule>> {
        if self.seen.len() >= self.planned + PLAN {
            self.make_plan()?;
        }
        let proposed = (0..count).map_while(|_| self.next());
        Ok(proposed.map(|knobs| Schedule::Template { knobs }).collect())
    }

    fn observe(&mut self, schedule: &Schedule, seen: Seen) {
        let Schedule::Template { knobs } = schedule else { return };
        self.points.take(knobs);
        let ns = match seen {
            Seen::Time(ns) => ns,
            Seen::Failed => f64::INFINITY,
            Seen::Elsewhere => return,
        };
        self.lessons.add(&features::of(&self.problem, knobs, self.view));
        self.seen.push((knobs.clone(), ns));
    }
}
