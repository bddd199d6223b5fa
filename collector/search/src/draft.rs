//! `draft`: the default tuner. The first proposals are the default schedule and points that differ from it in one knob.
//! Each later batch is chosen from several hundred candidates (neighbours of the best points, crossovers and random
//! points) by boosted trees over knobs, tiles and loops, which predict times relative to the default schedule, so they
//! also learn from other sizes of the operator. A share of each batch is random. Hints, points that were faster than
//! the default for an equal problem, are tried first, one per batch.
//!
//! Of recently built candidates, only the half with the best predicted times is run, apart from random points, hints,
//! first trials of a combination of algorithm and layout (a kind), and points that are not clearly slower than the
//! best. The predicted speed decreases with the trials of a tile, and every kind is tried a few times.

use crate::features::{self, View};
use crate::judge::Judge;
use crate::model::{self, Features, Goal, RetrainedTrees, TrainingRows, iter_features};
use crate::points::Points;
use crate::problem::Problem;
use crate::{Result, TrialResult, Tuner};
use job::space::{Knobs, Schedule, Setting};
use rand::RngExt;
use rand::seq::SliceRandom;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const MIN_TRAINING_ROWS: usize = 8;
const RANDOM_SHARE: f64 = 0.08;
const PARENTS: usize = 6;
/// Number of candidates that change two or three knobs of each parent; below, of crossovers and random points.
const CHANGES: usize = 24;
const CROSSOVERS: usize = 64;
const RANDOM_POINTS: usize = 192;
/// Number of tree ensembles, whose spread is the uncertainty, and the weight of the uncertainty in the ranking.
const ENSEMBLES: u64 = 2;
const UNCERTAINTY_WEIGHT: f64 = 0.5;
/// Amount added to the predicted logarithm of the time for each earlier trial of the same tile.
const REPEATED_TILE_PENALTY: f64 = 0.005;
/// Minimum trials of each kind (algorithm and layout); below, number of kinds, except the best, that get neighbours.
const KIND_TRIALS: usize = 6;
const OTHER_KINDS: usize = 2;
/// Knobs that define the kind of a schedule, and knobs that define its tile within the kind.
const KIND: [&str; 2] = ["algorithm", "layout"];
const TILE: [&str; 6] = ["block", "tile_c", "tile_y", "tile_x", "tile_p", "vector"];
/// Minimum relative improvement of a hint, and maximum number of hints.
const MIN_HINT_GAIN: f64 = 0.02;
const HINTS: usize = 6;
/// Trees are retrained when the new rows exceed the known rows divided by this number.
const RETRAINING_ROWS: usize = 16;

const FAILURE_FACTOR: f64 = 8.0;

#[derive(Clone, Copy)]
enum DraftLabel {
    Own(f64),
    Failed,
    /// Time of a schedule of another problem, relative to that problem's default schedule.
    Other(f64),
}

pub struct Draft {
    problem: Problem,
    sizes: Features,
    points: Points,
    seed: u64,
    lessons: TrainingRows,
    labels: Vec<DraftLabel>,
    timed: Vec<(f64, Knobs)>,
    default_ns: Option<f64>,
    first: VecDeque<Knobs>,
    /// Points faster than the default schedule of an equal problem, with times relative to it, fastest first.
    hints: Vec<(f64, Knobs)>,
    proposed_hints: usize,
    /// Points that are run regardless of the features of their code.
    always_run: BTreeSet<Knobs>,
    judge: Judge,
    trees: RetrainedTrees,
}

/// Returns whether the features are those of CPU code: the cost model was not validated on GPU kernels.
fn is_cpu_code(code_features: &Features) -> bool {
    code_features.contains_key("code_cycles")
}

fn built_features<'a>(
    visible: &'a features::VisibleFeatures,
    sizes: &'a Features,
    code_features: &'a Features,
) -> impl Iterator<Item = (&'a str, f64)> {
    visible.iter_named().chain(iter_features(sizes)).chain(iter_features(code_features))
}

fn kind_settings(knobs: &Knobs) -> [Option<&Setting>; KIND.len()] {
    KIND.map(|name| knobs.0.get(name))
}

fn tile_settings(knobs: &Knobs) -> ([Option<&Setting>; KIND.len()], [Option<&Setting>; TILE.len()]) {
    (kind_settings(knobs), TILE.map(|name| knobs.0.get(name)))
}

fn count_trials<'a, K: Ord>(
    tried: impl IntoIterator<Item = &'a Knobs>,
    key_of: impl Fn(&'a Knobs) -> K,
) -> BTreeMap<K, usize> {
    let mut counts = BTreeMap::new();
    for knobs in tried {
        *counts.entry(key_of(knobs)).or_default() += 1;
    }
    counts
}

impl Draft {
    pub fn new(problem: &Problem, seed: u64) -> Result<Draft> {
        model::check_training()?;
        let mut points = Points::new(&problem.space, seed);
        let default = problem.space.default.clone();
        let mut first = points.one_axis_neighbours(&default);
        first.shuffle(&mut points.random);
        Ok(Draft {
            problem: problem.clone(),
            sizes: features::problem_features(problem),
            points,
            seed,
            lessons: TrainingRows::default(),
            labels: Vec::new(),
            timed: Vec::new(),
            default_ns: None,
            first: std::iter::once(default).chain(first).collect(),
            hints: Vec::new(),
            proposed_hints: 0,
            always_run: BTreeSet::new(),
            judge: Judge::new(seed),
            trees: RetrainedTrees::new(RETRAINING_ROWS),
        })
    }

    fn add_row(&mut self, problem: &Problem, knobs: &Knobs, label: DraftLabel) {
        let sizes = features::problem_features(problem);
        self.lessons
            .add_row(features::point_features(problem, knobs, View::Loops).iter_named().chain(iter_features(&sizes)));
        self.labels.push(label);
    }

    /// Returns the fastest untried hint, if its time is shorter than the best measured time.
    fn next_hint(&self) -> Option<&(f64, Knobs)> {
        let (best, default_ns) = (self.timed.first()?.0, self.default_ns?);
        let is_open = |knobs: &Knobs| !self.points.is_taken(knobs) && self.problem.space.allows_point(knobs);
        let hint = self.hints.iter().find(|(_, knobs)| is_open(knobs))?;
        (self.proposed_hints < HINTS && hint.0 * default_ns < best * (1.0 - MIN_HINT_GAIN)).then_some(hint)
    }

    fn add_built(&mut self, problem: &Problem, knobs: &Knobs, code_features: &Features, over_default: f64) {
        if !is_cpu_code(code_features) {
            return;
        }
        let (visible, sizes) =
            (features::point_features(problem, knobs, View::Knobs), features::problem_features(problem));
        self.judge.add_result(built_features(&visible, &sizes, code_features), over_default.min(FAILURE_FACTOR));
    }

    fn train_if_due(&mut self) -> Result<()> {
        let Draft { seed, lessons, labels, timed, default_ns, trees, .. } = self;
        let least = timed.first().map_or(1.0, |(ns, _)| *ns);
        let usual = default_ns.unwrap_or(least);
        let label = |label: &DraftLabel| match label {
            DraftLabel::Own(ns) => (ns / usual).min(FAILURE_FACTOR).ln() as f32,
            DraftLabel::Other(over_default) => over_default.min(FAILURE_FACTOR).ln() as f32,
            DraftLabel::Failed => FAILURE_FACTOR.ln() as f32,
        };
        trees.train_if_due(labels.len(), || {
            let labels: Vec<f32> = labels.iter().map(label).collect();
            lessons.train_trees(&labels, Goal::Value, (0..ENSEMBLES).map(|set| seed.wrapping_add(set)))
        })
    }

    fn candidate_pool(&mut self) -> Vec<Knobs> {
        let mut parents: Vec<Knobs> = self.timed.iter().take(PARENTS).map(|(_, knobs)| knobs.clone()).collect();
        for _ in 0..OTHER_KINDS {
            let other = self
                .timed
                .iter()
                .find(|(_, knobs)| !parents.iter().any(|parent| kind_settings(parent) == kind_settings(knobs)));
            parents.extend(other.map(|(_, knobs)| knobs.clone()));
        }
        if parents.is_empty() {
            parents.push(self.problem.space.default.clone());
        }
        let mut pool: BTreeSet<Knobs> = BTreeSet::new();
        for parent in &parents {
            pool.extend(self.points.one_axis_neighbours(parent));
            pool.extend((0..CHANGES).filter_map(|turn| self.points.change_axes(parent, 2 + turn % 2)));
        }
        for _ in 0..CROSSOVERS {
            let one = self.points.random.random_range(0..parents.len());
            let other = self.points.random.random_range(0..parents.len());
            let child = self.points.cross_points(&parents[one], &parents[other]);
            if self.points.space.allows_point(&child) {
                pool.insert(child);
            }
        }
        pool.extend((0..RANDOM_POINTS).filter_map(|_| self.points.any_allowed()));
        let mut pool: Vec<Knobs> = pool.into_iter().filter(|knobs| !self.points.is_taken(knobs)).collect();
        // Trees predict equal values for many points. Shuffling breaks ties at random instead of by name.
        pool.shuffle(&mut self.points.random);
        pool
    }

    fn draft_points(&mut self, count: usize) -> Result<Vec<Knobs>> {
        self.train_if_due()?;
        let pool = self.candidate_pool();
        let Some(model) = self.trees.trained_model() else { return Ok(Vec::new()) };
        let tiles = count_trials(self.points.iter_taken(), tile_settings);
        let promise = |knobs: &Knobs| {
            let guess = model.predict_features(
                features::point_features(&self.problem, knobs, View::Loops)
                    .iter_named()
                    .chain(iter_features(&self.sizes)),
            );
            let tried = tiles.get(&tile_settings(knobs)).copied().unwrap_or(0);
            guess.mean - UNCERTAINTY_WEIGHT * guess.spread + REPEATED_TILE_PENALTY * tried as f64
        };
        let mut ranked: Vec<(f64, Knobs)> = pool.into_iter().map(|knobs| (promise(&knobs), knobs)).collect();
        ranked.sort_by(|one, other| one.0.total_cmp(&other.0));
        if let Some(place) = self.rare_candidate(&ranked) {
            ranked[..=place].rotate_right(1);
        }
        Ok(ranked.into_iter().take(count).map(|(_, knobs)| knobs).collect())
    }

    /// Returns the index of the best candidate of the least tried kind, if that kind has too few trials.
    fn rare_candidate(&self, ranked: &[(f64, Knobs)]) -> Option<usize> {
        let kinds = count_trials(self.points.iter_taken(), kind_settings);
        let tried = ranked.iter().map(|(_, knobs)| kinds.get(&kind_settings(knobs)).copied().unwrap_or(0));
        let (place, times) = tried.enumerate().min_by_key(|(_, times)| *times)?;
        (times < KIND_TRIALS).then_some(place)
    }
}

impl Tuner for Draft {
    fn propose_schedules(&mut self, count: usize) -> Result<Vec<Schedule>> {
        let mut proposed: Vec<Knobs> = Vec::new();
        if let Some((_, knobs)) = self.next_hint().cloned().filter(|_| count > 0) {
            self.points.take_point(&knobs);
            self.always_run.insert(knobs.clone());
            self.proposed_hints += 1;
            proposed.push(knobs);
        }
        let drawn = (proposed.len()..count).filter(|_| self.points.random.random_bool(RANDOM_SHARE)).count();
        while self.labels.len() < MIN_TRAINING_ROWS && proposed.len() < count {
            let Some(knobs) = self.first.pop_front() else { break };
            if self.points.take_point(&knobs) {
                proposed.push(knobs);
            }
        }
        let wanted = count.saturating_sub(drawn + proposed.len());
        if self.labels.len() >= MIN_TRAINING_ROWS && wanted > 0 {
            let drafted = self.draft_points(wanted)?;
            proposed.extend(drafted.into_iter().filter(|knobs| self.points.take_point(knobs)));
        }
        while proposed.len() < count {
            let Some(knobs) = self.points.draw_new() else { break };
            self.always_run.insert(knobs.clone());
            proposed.push(knobs);
        }
        Ok(proposed.into_iter().map(|knobs| Schedule::Template { knobs }).collect())
    }

    fn should_run(&mut self, schedule: &Schedule, code_features: &Features) -> Result<bool> {
        let Schedule::Template { knobs } = schedule else { return Ok(true) };
        let best = self.timed.first().zip(self.default_ns).map(|((ns, _), default_ns)| ns / default_ns);
        let Some(best) = best.filter(|_| is_cpu_code(code_features)) else { return Ok(true) };
        let of_kind = self.timed.iter().filter(|(_, other)| kind_settings(other) == kind_settings(knobs)).count();
        if of_kind < KIND_TRIALS || self.always_run.contains(knobs) || *knobs == self.problem.space.default {
            return Ok(true);
        }
        let visible = features::point_features(&self.problem, knobs, View::Knobs);
        self.judge.should_run(built_features(&visible, &self.sizes, code_features), best)
    }

    fn observe_result(&mut self, schedule: &Schedule, code_features: Option<&Features>, seen: TrialResult) {
        let Schedule::Template { knobs } = schedule else { return };
        self.points.take_point(knobs);
        let problem = self.problem.clone();
        match seen {
            TrialResult::Time(ns) => {
                if *knobs == problem.space.default {
                    self.default_ns = Some(ns);
                }
                let place = self.timed.partition_point(|(other, _)| *other <= ns);
                self.timed.insert(place, (ns, knobs.clone()));
                self.add_row(&problem, knobs, DraftLabel::Own(ns));
            }
            TrialResult::Failed => self.add_row(&problem, knobs, DraftLabel::Failed),
            TrialResult::Elsewhere | TrialResult::RejectedByModel => {}
        }
        if let (Some(code_features), TrialResult::Time(ns), Some(default_ns)) = (code_features, seen, self.default_ns) {
            self.add_built(&problem, knobs, code_features, ns / default_ns);
        }
    }

    fn learn_from_other(
        &mut self,
        problem: &Problem,
        schedule: &Schedule,
        code_features: Option<&Features>,
        over_default: f64,
    ) {
        if let Schedule::Template { knobs } = schedule {
            if let Some(code_features) = code_features {
                self.add_built(problem, knobs, code_features, over_default);
            }
            self.add_row(problem, knobs, DraftLabel::Other(over_default));
            if over_default < 1.0 - MIN_HINT_GAIN && features::differ_in_epilogue_only(&self.problem, problem) {
                let place = self.hints.partition_point(|(other, _)| *other <= over_default);
                self.hints.insert(place, (over_default, knobs.clone()));
            }
        }
    }

    fn best_hint(&self) -> Option<f64> {
        self.next_hint().map(|(over_default, _)| *over_default)
    }
}
