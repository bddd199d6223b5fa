//! `draft`: the default tuner.
//!
//! The first proposals are the default schedule and points that differ from it in one knob. Each later batch is chosen
//! from several hundred candidates (neighbours of the best points, crossovers and random points) by boosted trees over
//! knobs, tiles and loops. The trees are trained again whenever there are new results. They predict times relative to
//! the default schedule, so they also learn from other sizes of the operator. A share of each batch is random.
//!
//! Points that were faster than the default for an equal problem, such as the same sums with another epilogue, are
//! tried first, one per batch.
//!
//! Of recently built candidates, only the half with the best predicted times is run. Random points, hints, trials of a
//! kind, and points that are not clearly slower than the best are always run.
//!
//! Similar points take similar times, and most candidates are similar to a good point. So the predicted speed decreases
//! with the number of trials of a tile, every algorithm and layout is tried a few times, and neighbours of the best
//! point of each kind are candidates.

use crate::features::{self, View};
use crate::judge::Judge;
use crate::model::{self, Features, Goal, Growing, Lessons, each};
use crate::points::Points;
use crate::problem::Problem;
use crate::{Result, TrialResult, Tuner};
use job::space::{Knobs, Schedule, Setting};
use rand::RngExt;
use rand::seq::SliceRandom;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Minimum number of observed points before trees are trained.
const MIN_TRAINING_ROWS: usize = 8;
const RANDOM_SHARE: f64 = 0.08;
/// Number of the best points whose neighbours are candidates.
const PARENTS: usize = 6;
/// Numbers of candidates: neighbours of a parent in two or three knobs, crossovers, and random points.
const CHANGED: usize = 24;
const CROSSED: usize = 64;
const DRAWN: usize = 192;
/// Number of ensembles, whose spread is the uncertainty, and the weight of the uncertainty.
const ENSEMBLES: u64 = 2;
const CURIOSITY: f64 = 0.5;
/// Relative penalty of a tile per earlier trial.
const REPEATED_TILE_PENALTY: f64 = 0.005;
/// Minimum number of trials of each kind, and the number of further kinds whose neighbours are candidates.
const KIND_TRIALS: usize = 6;
const OTHER_KINDS: usize = 2;
/// Knobs that define a kind, and knobs that define a tile within a kind.
const KIND: [&str; 2] = ["algorithm", "layout"];
const TILE: [&str; 6] = ["block", "tile_c", "tile_y", "tile_x", "tile_p", "vector"];
/// Minimum relative improvement that a hint must promise, and the maximum number of hints.
const MIN_HINT_GAIN: f64 = 0.02;
const HINTS: usize = 6;
/// Number or share of new rows after which trees are trained again.
const RETRAINING_ROWS: usize = 16;

/// Relative time that stands for a failure.
const FAILURE_FACTOR: f64 = 8.0;

/// Label of a row.
#[derive(Clone, Copy)]
enum DraftLabel {
    Own(f64),
    Failed,
    /// Time relative to the default schedule of another problem.
    Other(f64),
}

pub struct Draft {
    problem: Problem,
    /// Features that distinguish problems.
    sizes: Features,
    points: Points,
    seed: u64,
    lessons: Lessons,
    labels: Vec<DraftLabel>,
    /// Measured points with their times.
    timed: Vec<(f64, Knobs)>,
    default_ns: Option<f64>,
    /// Points that are proposed before trees are trained.
    first: VecDeque<Knobs>,
    /// Points that were faster than the default for an equal problem, with their relative times, fastest first.
    hints: Vec<(f64, Knobs)>,
    /// Number of hints that were proposed.
    followed: usize,
    /// Points that are run regardless of their code.
    sure: BTreeSet<Knobs>,
    judge: Judge,
    trees: Growing,
}

/// Whether the figures describe CPU code. The cost model was not validated on figures of GPU kernels.
fn is_told_of(figures: &Features) -> bool {
    figures.contains_key("code_cycles")
}

/// Returns the features of a point with those of its code.
fn seen_built<'a>(
    sight: &'a features::VisibleFeatures,
    sizes: &'a Features,
    figures: &'a Features,
) -> impl Iterator<Item = (&'a str, f64)> {
    sight.each().chain(each(sizes)).chain(each(figures))
}

fn kind(knobs: &Knobs) -> [Option<&Setting>; KIND.len()] {
    KIND.map(|name| knobs.0.get(name))
}

fn tile(knobs: &Knobs) -> ([Option<&Setting>; KIND.len()], [Option<&Setting>; TILE.len()]) {
    (kind(knobs), TILE.map(|name| knobs.0.get(name)))
}

/// Counts the trials of each group.
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
            trees: Growing::new(RETRAINING_ROWS),
        })
    }

    fn note(&mut self, problem: &Problem, knobs: &Knobs, label: DraftLabel) {
        let sizes = features::of_problem(problem);
        self.lessons.add(features::of(problem, knobs, View::Loops).each().chain(each(&sizes)));
        self.labels.push(label);
    }

    /// Returns the fastest untried hint, if it promises more than the best known time.
    fn hint(&self) -> Option<&(f64, Knobs)> {
        let (best, default_ns) = (self.timed.first()?.0, self.default_ns?);
        let is_open = |knobs: &Knobs| !self.points.is_taken(knobs) && self.problem.space.allows(knobs);
        let hint = self.hints.iter().find(|(_, knobs)| is_open(knobs))?;
        (self.followed < HINTS && hint.0 * default_ns < best * (1.0 - MIN_HINT_GAIN)).then_some(hint)
    }

    fn note_built(&mut self, problem: &Problem, knobs: &Knobs, figures: &Features, over_default: f64) {
        if !is_told_of(figures) {
            return;
        }
        let (sight, sizes) = (features::of(problem, knobs, View::Knobs), features::of_problem(problem));
        self.judge.learn(seen_built(&sight, &sizes, figures), over_default.min(FAILURE_FACTOR));
    }

    /// Trains trees if there are enough new results.
    fn study(&mut self) -> Result<()> {
        let Draft { seed, lessons, labels, timed, default_ns, trees, .. } = self;
        let least = timed.first().map_or(1.0, |(ns, _)| *ns);
        let usual = default_ns.unwrap_or(least);
        let label = |label: &DraftLabel| match label {
            DraftLabel::Own(ns) => (ns / usual).min(FAILURE_FACTOR).ln() as f32,
            DraftLabel::Other(over_default) => over_default.min(FAILURE_FACTOR).ln() as f32,
            DraftLabel::Failed => FAILURE_FACTOR.ln() as f32,
        };
        trees.study(labels.len(), || {
            let labels: Vec<f32> = labels.iter().map(label).collect();
            lessons.fit(&labels, Goal::Value, (0..ENSEMBLES).map(|set| seed.wrapping_add(set)))
        })
    }

    /// Returns untried candidates: neighbours of the best points, crossovers and random points.
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
        // Trees predict equal values for many points. Shuffling breaks ties at random instead of by name.
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
            guess.mean - CURIOSITY * guess.spread + REPEATED_TILE_PENALTY * tried as f64
        };
        let mut ranked: Vec<(f64, Knobs)> = pool.into_iter().map(|knobs| (promise(&knobs), knobs)).collect();
        ranked.sort_by(|one, other| one.0.total_cmp(&other.0));
        if let Some(place) = self.rare(&ranked) {
            ranked[..=place].rotate_right(1);
        }
        Ok(ranked.into_iter().take(count).map(|(_, knobs)| knobs).collect())
    }

    /// Returns the index of the best candidate of the least tried kind, if that has too few trials.
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
        let drawn = (proposed.len()..count).filter(|_| self.points.random.random_bool(RANDOM_SHARE)).count();
        while self.labels.len() < MIN_TRAINING_ROWS && proposed.len() < count {
            let Some(knobs) = self.first.pop_front() else { break };
            if self.points.take(&knobs) {
                proposed.push(knobs);
            }
        }
        let wanted = count.saturating_sub(drawn + proposed.len());
        if self.labels.len() >= MIN_TRAINING_ROWS && wanted > 0 {
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

    fn observe(&mut self, schedule: &Schedule, figures: Option<&Features>, seen: TrialResult) {
        let Schedule::Template { knobs } = schedule else { return };
        self.points.take(knobs);
        let problem = self.problem.clone();
        match seen {
            TrialResult::Time(ns) => {
                if *knobs == problem.space.default {
                    self.default_ns = Some(ns);
                }
                let place = self.timed.partition_point(|(other, _)| *other <= ns);
                self.timed.insert(place, (ns, knobs.clone()));
                self.note(&problem, knobs, DraftLabel::Own(ns));
            }
            TrialResult::Failed => self.note(&problem, knobs, DraftLabel::Failed),
            TrialResult::Elsewhere | TrialResult::PassedOver => {}
        }
        if let (Some(figures), TrialResult::Time(ns), Some(default_ns)) = (figures, seen, self.default_ns) {
            self.note_built(&problem, knobs, figures, ns / default_ns);
        }
    }

    fn learn(&mut self, problem: &Problem, schedule: &Schedule, figures: Option<&Features>, over_default: f64) {
        if let Schedule::Template { knobs } = schedule {
            if let Some(figures) = figures {
                self.note_built(problem, knobs, figures, over_default);
            }
            self.note(problem, knobs, DraftLabel::Other(over_default));
            if over_default < 1.0 - MIN_HINT_GAIN && features::are_equal(&self.problem, problem) {
                let place = self.hints.partition_point(|(other, _)| *other <= over_default);
                self.hints.insert(place, (over_default, knobs.clone()));
            }
        }
    }

    fn hinted(&self) -> Option<f64> {
        self.hint().map(|(over_default, _)| *over_default)
    }
}
