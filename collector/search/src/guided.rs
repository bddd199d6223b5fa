//! `xgb` and its variants, as in AutoTVM: after as many results as a plan has points, trees are trained, and simulated
//! annealing over their predictions makes the next plan. A share of the points is random. Trees over loops also learn
//! from other problems, because their labels are relative to each problem's default schedule.

use crate::anneal::anneal_points;
use crate::features::{self, View};
use crate::model::{self, Features, Goal, TrainingRows, iter_features};
use crate::points::Points;
use crate::problem::Problem;
use crate::{Result, TrialResult, Tuner};
use job::space::{Knobs, Schedule};
use rand::RngExt;
use std::collections::VecDeque;

/// Number of points per plan (batch from annealing), and of results before the first plan.
const PLAN: usize = 24;
const RANDOM_SHARE: f64 = 0.05;
const STARTS: usize = 16;

#[derive(Clone, Copy)]
enum GuidedLabel {
    Own(f64),
    /// Time of a schedule of another problem, relative to that problem's default schedule.
    Other(f64),
}

struct Guided {
    problem: Problem,
    sizes: Features,
    points: Points,
    view: View,
    goal: Goal,
    seed: u64,
    lessons: TrainingRows,
    /// Observed points with their times in nanoseconds; infinite for failures.
    seen: Vec<(Knobs, f64)>,
    /// Labels of all training rows, including rows of other problems.
    labels: Vec<GuidedLabel>,
    default_ns: Option<f64>,
    plan: VecDeque<Knobs>,
    planned: usize,
}

pub fn regression_tuner(problem: &Problem, view: View, seed: u64) -> Result<Box<dyn Tuner>> {
    guided_tuner(problem, view, Goal::Value, seed)
}

pub fn ranking_tuner(problem: &Problem, view: View, seed: u64) -> Result<Box<dyn Tuner>> {
    guided_tuner(problem, view, Goal::Order, seed)
}

fn guided_tuner(problem: &Problem, view: View, goal: Goal, seed: u64) -> Result<Box<dyn Tuner>> {
    model::check_training()?;
    Ok(Box::new(Guided {
        problem: problem.clone(),
        sizes: sizes_of(problem, view),
        points: Points::new(&problem.space, seed),
        view,
        goal,
        seed,
        lessons: TrainingRows::default(),
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
        let label = |label: &GuidedLabel| match label {
            GuidedLabel::Own(ns) if ns.is_finite() => (usual / ns) as f32,
            GuidedLabel::Own(_) => 0.0,
            GuidedLabel::Other(over_default) => (1.0 / over_default) as f32,
        };
        let labels: Vec<f32> = self.labels.iter().map(label).collect();
        let model = self.lessons.train_trees(&labels, self.goal, std::iter::once(self.seed))?;
        let mut starts = self.seen.clone();
        starts.sort_by(|one, other| one.1.total_cmp(&other.1));
        let starts: Vec<Knobs> = starts.into_iter().take(STARTS).map(|(knobs, _)| knobs).collect();
        let (problem, sizes, view) = (&self.problem, &self.sizes, self.view);
        let score = |knobs: &Knobs| {
            model
                .predict_features(
                    features::point_features(problem, knobs, view).iter_named().chain(iter_features(sizes)),
                )
                .mean
        };
        self.plan = anneal_points(&mut self.points, &starts, PLAN, score).into();
        self.planned = self.labels.len();
        Ok(())
    }

    fn next_point(&mut self) -> Option<Knobs> {
        if self.points.random.random_bool(RANDOM_SHARE) {
            return self.points.draw_new();
        }
        while let Some(knobs) = self.plan.pop_front() {
            if self.points.take_point(&knobs) {
                return Some(knobs);
            }
        }
        self.points.draw_new()
    }
}

impl Tuner for Guided {
    fn propose_schedules(&mut self, count: usize) -> Result<Vec<Schedule>> {
        if self.labels.len() >= self.planned + PLAN {
            self.make_plan()?;
        }
        let proposed = (0..count).map_while(|_| self.next_point());
        Ok(proposed.map(|knobs| Schedule::Template { knobs }).collect())
    }

    fn observe_result(&mut self, schedule: &Schedule, _: Option<&Features>, seen: TrialResult) {
        let Schedule::Template { knobs } = schedule else { return };
        self.points.take_point(knobs);
        let ns = match seen {
            TrialResult::Time(ns) => ns,
            TrialResult::Failed => f64::INFINITY,
            TrialResult::Elsewhere | TrialResult::RejectedByModel => return,
        };
        if *knobs == self.problem.space.default && ns.is_finite() {
            self.default_ns = Some(ns);
        }
        self.lessons.add_row(
            features::point_features(&self.problem, knobs, self.view).iter_named().chain(iter_features(&self.sizes)),
        );
        self.labels.push(GuidedLabel::Own(ns));
        self.seen.push((knobs.clone(), ns));
    }

    fn learn_from_other(&mut self, problem: &Problem, schedule: &Schedule, _: Option<&Features>, over_default: f64) {
        // The meaning of a single knob differs between spaces.
        if let (Schedule::Template { knobs }, View::Loops | View::Curves) = (schedule, self.view) {
            let sizes = sizes_of(problem, self.view);
            self.lessons
                .add_row(features::point_features(problem, knobs, self.view).iter_named().chain(iter_features(&sizes)));
            self.labels.push(GuidedLabel::Other(over_default));
        }
    }
}

fn sizes_of(problem: &Problem, view: View) -> Features {
    if view == View::Knobs { Features::new() } else { features::problem_features(problem) }
}
