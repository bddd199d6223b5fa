//! `draft`: our own tuner.
//!
//! It begins with the default schedule, which a rule has chosen, and with what differs from it by one knob. From then on
//! every batch is drafted: of some hundred points around the best ones, crossed from them and drawn, those are proposed that
//! trees over knobs, tiles and loops believe to be fastest. The trees are grown anew whenever there is news, learn times
//! relative to the default schedule's, and so also learn from other sizes of the operator. A part of each batch is drawn.
//!
//! What was faster than the default schedule for an equal problem, such as the same sums before another epilogue, is tried before
//! that, one of a batch.
//!
//! What is built is verified: of what was built lately, the half is run whose code promises most. What was drawn, what a hint or a
//! kind is tried for, and what is not clearly slower than the best is run in any case.
//!
//! What differs in little takes nearly the same time, and most points around a good one differ in little. So a point promises
//! less the more often its tile was tried, every algorithm and layout is tried a few times, and the best of each is looked around.

use crate::features::{self, View};
use crate::judge::Judge;
use crate::model::{self, Features, Goal, Growing, Lessons, each};
use crate::points::Points;
use crate::problem::Problem;
use crate::{Result, Seen, Tuner};
use job::space::{Knobs, Schedule, Setting};
use rand::RngExt;
use rand::seq::SliceRandom;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// So many must have been seen before trees are asked.
const LEARNED_FROM: usize = 8;
/// The part of proposals that is drawn anywhere.
const EXPLORED: f64 = 0.08;
/// Of what was seen, so many are looked around.
const PARENTS: usize = 6;
/// Points that differ from a parent in two knobs or three, that are crossed, and that are drawn.
const CHANGED: usize = 24;
const CROSSED: usize = 64;
const DRAWN: usize = 192;
/// Trees whose agreement says how sure they are, and how much that counts.
const SETS: u64 = 2;
const CURIOSITY: f64 = 0.5;
/// A tile promises less by this part for each time that it was tried.
const WORN: f64 = 0.005;
/// Every kind is tried so often, one at a time, and so many kinds beside that of the best are looked around.
const KIND_TRIALS: usize = 6;
const OTHER_KINDS: usize = 2;
/// The knobs that make a kind, and those that make a tile of it.
const KIND: [&str; 2] = ["algorithm", "layout"];
const TILE: [&str; 6] = ["block", "tile_c", "tile_y", "tile_x", "tile_p", "vector"];
/// What was faster elsewhere must promise to be so by more than this part, and no more of such points are tried.
const WORTH: f64 = 0.02;
const HINTS: usize = 6;
/// Trees are grown anew when rows have become more by more than this part.
const ENOUGH: usize = 16;

/// What gave no time counts as so many times as slow as the default schedule.
const FAILED: f64 = 8.0;

/// What trees learn of a row.
#[derive(Clone, Copy)]
enum Label {
    Own(f64),
    Failed,
    /// Over the default schedule of another problem.
    Other(f64),
}

pub struct Draft {
    problem: Problem,
    /// What tells it from other problems.
    sizes: Features,
    points: Points,
    seed: u64,
    lessons: Lessons,
    labels: Vec<Label>,
    /// What gave a time.
    timed: Vec<(f64, Knobs)>,
    default_ns: Option<f64>,
    /// What is tried before trees are asked.
    first: VecDeque<Knobs>,
    /// Points that were faster than the default one for an equal problem, with what of its time they took, the fastest first.
    hints: Vec<(f64, Knobs)>,
    /// How many of them were proposed.
    followed: usize,
    /// Points that are run whatever their code says.
    sure: BTreeSet<Knobs>,
    judge: Judge,
    trees: Growing,
}

/// Whether these are figures of machine code of CPUs; those of kernels of GPUs were not tried as a judge.
fn is_told_of(figures: &Features) -> bool {
    figures.contains_key("code_cycles")
}

/// What trees see of a point that was built.
fn seen_built<'a>(
    sight: &'a features::VisibleFeatures,
    sizes: &'a Features,
    figures: &'a Features,
) -> impl Iterator<Item = (&'a str, f64)> {
    sight.each().chain(each(sizes)).chain(each(figures))
}

/// What kind a point is of.
fn kind(knobs: &Knobs) -> [Option<&Setting>; KIND.len()] {
    KIND.map(|name| knobs.0.get(name))
}

/// What tile it has.
fn tile(knobs: &Knobs) -> ([Option<&Setting>; KIND.len()], [Option<&Setting>; TILE.len()]) {
    (kind(knobs), TILE.map(|name| knobs.0.get(name)))
}

/// How often each of something was tried.
fn counts<'a, K: Ord>(tried: impl IntoIterator<Item = &'a Knobs>, of: impl Fn(&'a Knobs) -> K) -> BTreeMap<K, usize> {
    let mut counts = BTreeMap::new();
    for knobs in tried {
        *counts.entry(of(knobs)).or_default() += 1;
    }
    counts
}

impl Draft {
    pub fn new(problem: &Problem, seed: u64) -> Result<Draft> {
        model::check()?;
        let mut points = Points::new(&problem.space, seed);
        let default = problem.space.default.clone();
        let mut first = points.neighbours(&default);
        first.shuffle(&mut points.random);
        Ok(Draft {
            problem: problem.clone(),
            sizes: features::of_problem(problem),
            points,
            seed,
            lessons: Lessons::default(),
            labels: Vec::new(),
            timed: Vec::new(),
            default_ns: None,
            first: std::iter::once(default).chain(first).collect(),
            hints: Vec::new(),
            followed: 0,
            sure: BTreeSet::new(),
            judge: Judge::new(seed),
            trees: Growing::new(ENOUGH),
        })
    }

    fn note(&mut self, problem: &Problem, knobs: &Knobs, label: Label) {
        let sizes = features::of_problem(problem);
        self.lessons.add(features::of(problem, knobs, View::Loops).each().chain(each(&sizes)));
        self.labels.push(label);
    }

    /// The fastest point of an equal problem that was not taken, where that promises more than what is known.
    fn hint(&self) -> Option<&(f64, Knobs)> {
        let (best, default_ns) = (self.timed.first()?.0, self.default_ns?);
        let is_open = |knobs: &Knobs| !self.points.is_taken(knobs) && self.problem.space.allows(knobs);
        let hint = self.hints.iter().find(|(_, knobs)| is_open(knobs))?;
        (self.followed < HINTS && hint.0 * default_ns < best * (1.0 - WORTH)).then_some(hint)
    }

    fn note_built(&mut self, problem: &Problem, knobs: &Knobs, figures: &Features, over_default: f64) {
        if !is_told_of(figures) {
            return;
        }
        let (sight, sizes) = (features::of(problem, knobs, View::Knobs), features::of_problem(problem));
        self.judge.learn(seen_built(&sight, &sizes, figures), over_default.min(FAILED));
    }

    /// Grows trees if there was news, in the long run more than a little.
    fn study(&mut self) -> Result<()> {
        let Draft { seed, lessons, labels, timed, default_ns, trees, .. } = self;
        let least = timed.first().map_or(1.0, |(ns, _)| *ns);
        let usual = default_ns.unwrap_or(least);
        let label = |label: &Label| match label {
            Label::Own(ns) => (ns / usual).min(FAILED).ln() as f32,
            Label::Other(over_default) => over_default.min(FAILED).ln() as f32,
            Label::Failed => FAILED.ln() as f32,
        };
        trees.study(labels.len(), || {
            let labels: Vec<f32> = labels.iter().map(label).collect();
            lessons.fit(&labels, Goal::Value, (0..SETS).map(|set| seed.wrapping_add(set)))
        })
    }

    /// Points that were not taken, around the best, crossed and drawn.
    fn pool(&mut self) -> Vec<Knobs> {
        let mut parents: Vec<Knobs> = self.timed.iter().take(PARENTS).map(|(_, knobs)| knobs.clone()).collect();
        for _ in 0..OTHER_KINDS {
            let other = self.timed.iter().find(|(_, knobs)| !parents.iter().any(|parent| kind(parent) == kind(knobs)));
            parents.extend(other.map(|(_, knobs)| knobs.clone()));
        }
        if parents.is_empty() {
            parents.push(self.problem.space.default.clone());
        }
        let mut pool: BTreeSet<Knobs> = BTreeSet::new();
        for parent in &parents {
            pool.extend(self.points.neighbours(parent));
            pool.extend((0..CHANGED).filter_map(|turn| self.points.changed(parent, 2 + turn % 2)));
        }
        for _ in 0..CROSSED {
            let one = self.points.random.random_range(0..parents.len());
            let other = self.points.random.random_range(0..parents.len());
            let child = self.points.crossed(&parents[one], &parents[other]);
            if self.points.space.allows(&child) {
                pool.insert(child);
            }
        }
        pool.extend((0..DRAWN).filter_map(|_| self.points.any()));
        let mut pool: Vec<Knobs> = pool.into_iter().filter(|knobs| !self.points.is_taken(knobs)).collect();
        // Trees say the same of many; chance then decides, and not the order of names.
        pool.shuffle(&mut self.points.random);
        pool
    }

    fn drafted(&mut self, count: usize) -> Result<Vec<Knobs>> {
        self.study()?;
        let pool = self.pool();
        let Some(model) = self.trees.model() else { return Ok(Vec::new()) };
        let tiles = counts(self.points.taken(), tile);
        let promise = |knobs: &Knobs| {
            let guess = model.ask(features::of(&self.problem, knobs, View::Loops).each().chain(each(&self.sizes)));
            let tried = tiles.get(&tile(knobs)).copied().unwrap_or(0);
            guess.mean - CURIOSITY * guess.spread + WORN * tried as f64
        };
        let mut ranked: Vec<(f64, Knobs)> = pool.into_iter().map(|knobs| (promise(&knobs), knobs)).collect();
        ranked.sort_by(|one, other| one.0.total_cmp(&other.0));
        if let Some(place) = self.rare(&ranked) {
            ranked[..=place].rotate_right(1);
        }
        Ok(ranked.into_iter().take(count).map(|(_, knobs)| knobs).collect())
    }

    /// The place of the most promising point of the kind that was tried least, where that is too seldom.
    fn rare(&self, ranked: &[(f64, Knobs)]) -> Option<usize> {
        let kinds = counts(self.points.taken(), kind);
        let tried = ranked.iter().map(|(_, knobs)| kinds.get(&kind(knobs)).copied().unwrap_or(0));
        let (place, times) = tried.enumerate().min_by_key(|(_, times)| *times)?;
        (times < KIND_TRIALS).then_some(place)
    }
}

impl Tuner for Draft {
    fn propose(&mut self, count: usize) -> Result<Vec<Schedule>> {
        let mut proposed: Vec<Knobs> = Vec::new();
        if let Some((_, knobs)) = self.hint().cloned().filter(|_| count > 0) {
            self.points.take(&knobs);
            self.sure.insert(knobs.clone());
            self.followed += 1;
            proposed.push(knobs);
        }
        let drawn = (proposed.len()..count).filter(|_| self.points.random.random_bool(EXPLORED)).count();
        while self.labels.len() < LEARNED_FROM && proposed.len() < count {
            let Some(knobs) = self.first.pop_front() else { break };
            if self.points.take(&knobs) {
                proposed.push(knobs);
            }
        }
        let wanted = count.saturating_sub(drawn + proposed.len());
        if self.labels.len() >= LEARNED_FROM && wanted > 0 {
            let drafted = self.drafted(wanted)?;
            proposed.extend(drafted.into_iter().filter(|knobs| self.points.take(knobs)));
        }
        while proposed.len() < count {
            let Some(knobs) = self.points.draw() else { break };
            self.sure.insert(knobs.clone());
            proposed.push(knobs);
        }
        Ok(proposed.into_iter().map(|knobs| Schedule::Template { knobs }).collect())
    }

    fn is_worth_a_run(&mut self, schedule: &Schedule, figures: &Features) -> Result<bool> {
        let Schedule::Template { knobs } = schedule else { return Ok(true) };
        let best = self.timed.first().zip(self.default_ns).map(|((ns, _), default_ns)| ns / default_ns);
        let Some(best) = best.filter(|_| is_told_of(figures)) else { return Ok(true) };
        let of_kind = self.timed.iter().filter(|(_, other)| kind(other) == kind(knobs)).count();
        if of_kind < KIND_TRIALS || self.sure.contains(knobs) || *knobs == self.problem.space.default {
            return Ok(true);
        }
        let sight = features::of(&self.problem, knobs, View::Knobs);
        self.judge.is_worth_a_run(seen_built(&sight, &self.sizes, figures), best)
    }

    fn observe(&mut self, schedule: &Schedule, figures: Option<&Features>, seen: Seen) {
        let Schedule::Template { knobs } = schedule else { return };
        self.points.take(knobs);
        let problem = self.problem.clone();
        match seen {
            Seen::Time(ns) => {
                if *knobs == problem.space.default {
                    self.default_ns = Some(ns);
                }
                let place = self.timed.partition_point(|(other, _)| *other <= ns);
                self.timed.insert(place, (ns, knobs.clone()));
                self.note(&problem, knobs, Label::Own(ns));
            }
            Seen::Failed => self.note(&problem, knobs, Label::Failed),
            Seen::Elsewhere | Seen::PassedOver => {}
        }
        if let (Some(figures), Seen::Time(ns), Some(default_ns)) = (figures, seen, self.default_ns) {
            self.note_built(&problem, knobs, figures, ns / default_ns);
        }
    }

    fn learn(&mut self, problem: &Problem, schedule: &Schedule, figures: Option<&Features>, over_default: f64) {
        if let Schedule::Template { knobs } = schedule {
            if let Some(figures) = figures {
                self.note_built(problem, knobs, figures, over_default);
            }
            self.note(problem, knobs, Label::Other(over_default));
            if over_default < 1.0 - WORTH && features::are_equal(&self.problem, problem) {
                let place = self.hints.partition_point(|(other, _)| *other <= over_default);
                self.hints.insert(place, (over_default, knobs.clone()));
            }
        }
    }

    fn hinted(&self) -> Option<f64> {
        self.hint().map(|(over_default, _)| *over_default)
    }
}
