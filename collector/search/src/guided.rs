//! `xgb` and its kin, as AutoTVM has them: a plan of points, of which each batch takes the next; when as many were seen
//! as a plan has, trees are grown, and annealing over what they say makes the next plan. A few points are drawn all the same.
//! Trees that see loops learn from other problems, too: speeds are relative to each one's default schedule.

use crate::anneal::anneal;
use crate::features::{self, View};
use crate::model::{self, Features, Goal, Lessons, each};
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

/// What trees learn of a row.
#[derive(Clone, Copy)]
enum Label {
    /// A time in nanoseconds.
    Own(f64),
    /// Over the default schedule of another problem.
    Other(f64),
}

struct Guided {
    problem: Problem,
    /// What tells it from other problems, where trees learn from several.
    sizes: Features,
    points: Points,
    view: View,
    goal: Goal,
    seed: u64,
    lessons: Lessons,
    /// What was seen: points with their time, infinite for failures.
    seen: Vec<(Knobs, f64)>,
    /// What trees learn of each row, the own ones' times among them.
    labels: Vec<Label>,
    default_ns: Option<f64>,
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
        sizes: sizes_of(problem, view),
        points: Points::new(&problem.space, seed),
        view,
        goal,
        seed,
        lessons: Lessons::default(),
        seen: Vec::new(),
        labels: Vec::new(),
        default_ns: None,
        plan: VecDeque::new(),
        planned: 0,
    }))
}

impl Guided {
    fn make_plan(&mut self) -> Result<()> {
        let best = self.seen.iter().map(|(_, ns)| *ns).fold(f64::INFINITY, f64::min);
        if !best.is_finite() && self.labels.len() == self.seen.len() {
            return Ok(());
        }
        let usual = self.default_ns.unwrap_or(best);
        let label = |label: &Label| match label {
            Label::Own(ns) if ns.is_finite() => (usual / ns) as f32,
            Label::Own(_) => 0.0,
            Label::Other(over_default) => (1.0 / over_default) as f32,
        };
        let labels: Vec<f32> = self.labels.iter().map(label).collect();
        let model = self.lessons.fit(&labels, self.goal, std::iter::once(self.seed))?;
        let mut starts = self.seen.clone();
        starts.sort_by(|one, other| one.1.total_cmp(&other.1));
        let starts: Vec<Knobs> = starts.into_iter().take(STARTS).map(|(knobs, _)| knobs).collect();
        let (problem, sizes, view) = (&self.problem, &self.sizes, self.view);
        let score = |knobs: &Knobs| model.ask(features::of(problem, knobs, view).each().chain(each(sizes))).mean;
        self.plan = anneal(&mut self.points, &starts, PLAN, score).into();
        self.planned = self.labels.len();
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
        if self.labels.len() >= self.planned + PLAN {
            self.make_plan()?;
        }
        let proposed = (0..count).map_while(|_| self.next());
        Ok(proposed.map(|knobs| Schedule::Template { knobs }).collect())
    }

    fn observe(&mut self, schedule: &Schedule, _: Option<&Features>, seen: Seen) {
        let Schedule::Template { knobs } = schedule else { return };
        self.points.take(knobs);
        let ns = match seen {
            Seen::Time(ns) => ns,
            Seen::Failed => f64::INFINITY,
            Seen::Elsewhere | Seen::PassedOver => return,
        };
        if *knobs == self.problem.space.default && ns.is_finite() {
            self.default_ns = Some(ns);
        }
        self.lessons.add(features::of(&self.problem, knobs, self.view).each().chain(each(&self.sizes)));
        self.labels.push(Label::Own(ns));
        self.seen.push((knobs.clone(), ns));
    }

    fn learn(&mut self, problem: &Problem, schedule: &Schedule, _: Option<&Features>, over_default: f64) {
        // A knob by itself means something else in another space.
        if let (Schedule::Template { knobs }, View::Loops | View::Curves) = (schedule, self.view) {
            let sizes = sizes_of(problem, self.view);
            self.lessons.add(features::of(problem, knobs, self.view).each().chain(each(&sizes)));
            self.labels.push(Label::Other(over_default));
        }
    }
}

fn sizes_of(problem: &Problem, view: View) -> Features {
    if view == View::Knobs { Features::new() } else { features::of_problem(problem) }
}
