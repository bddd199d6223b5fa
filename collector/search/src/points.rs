//! Points of a space that were not proposed yet: random points, mutations and crossovers.

use job::space::{Axis, Knobs, Setting, Space, canonical_knobs, nth_point};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeSet;

/// Number of rejected random points after which a small space is listed instead.
const DRAWS: usize = 256;
/// Limit of rejected random points for large spaces, some of which allow only a few of a hundred thousand points.
const DRAWS_MAX: usize = 1 << 18;
const LISTED_MAX: u64 = 1 << 16;

pub struct Points {
    pub space: Space,
    pub random: ChaCha8Rng,
    taken: BTreeSet<Knobs>,
}

impl Points {
    pub fn new(space: &Space, seed: u64) -> Points {
        Points { space: space.clone(), random: ChaCha8Rng::seed_from_u64(seed), taken: BTreeSet::new() }
    }

    /// Marks a point as taken. Returns whether the point was new.
    pub fn take_point(&mut self, knobs: &Knobs) -> bool {
        self.taken.insert(knobs.clone())
    }

    pub fn iter_taken(&self) -> impl Iterator<Item = &Knobs> {
        self.taken.iter()
    }

    pub fn is_taken(&self, knobs: &Knobs) -> bool {
        self.taken.contains(knobs)
    }

    pub fn any_allowed(&mut self) -> Option<Knobs> {
        for _ in 0..DRAWS {
            let knobs = self.draw_within();
            if self.space.allows_point(&knobs) {
                return Some(knobs);
            }
        }
        None
    }

    /// Takes a random new point; None if none is found. Each axis is drawn independently, so a kind of schedule with
    /// few points is as likely as a kind with many.
    pub fn draw_new(&mut self) -> Option<Knobs> {
        self.draw_by(|points| Some(points.draw_within()))
    }

    /// Takes a random new point, uniform over distinct points: of all settings that give a point, one is accepted.
    pub fn draw_uniform(&mut self) -> Option<Knobs> {
        let drawn = self.draw_by(|points| {
            let settings = points.draw_settings();
            let knobs = canonical_knobs(settings.clone());
            points.is_representative(&settings, &knobs).then_some(knobs)
        });
        drawn.or_else(|| self.draw_new())
    }

    fn draw_by(&mut self, draw: impl Fn(&mut Points) -> Option<Knobs>) -> Option<Knobs> {
        let is_listed = self.space.point_count() <= LISTED_MAX;
        for _ in 0..if is_listed { DRAWS } else { DRAWS_MAX } {
            let Some(knobs) = draw(self) else { continue };
            if self.space.allows_point(&knobs) && self.take_point(&knobs) {
                return Some(knobs);
            }
        }
        if !is_listed {
            return None;
        }
        let all = (0..self.space.point_count()).map(|place| nth_point(&self.space, place));
        let left: BTreeSet<Knobs> =
            all.filter(|knobs| self.space.allows_point(knobs) && !self.taken.contains(knobs)).collect();
        let left: Vec<Knobs> = left.into_iter().collect();
        let chosen = (!left.is_empty()).then(|| left[self.random.random_range(0..left.len())].clone())?;
        self.take_point(&chosen);
        Some(chosen)
    }

    fn draw_within(&mut self) -> Knobs {
        let knobs = canonical_knobs(self.draw_settings());
        self.space.reduce_overhang(knobs)
    }

    fn draw_settings(&mut self) -> Knobs {
        let random = &mut self.random;
        Knobs(self.space.axes.iter().map(|axis| (axis.name.to_owned(), random_setting(axis, random))).collect())
    }

    fn is_representative(&self, settings: &Knobs, knobs: &Knobs) -> bool {
        let usual = self.preferred_settings(knobs);
        match settings.0.iter().filter(|(name, setting)| usual.0.get(*name) != Some(*setting)).count() {
            0 => true,
            // The search for the representative is expensive, and most settings are rejected before it.
            1 => self.representative_settings(knobs).as_ref() == Some(settings),
            _ => false,
        }
    }

    /// Returns the representative settings of a point: one per axis, neutral or default for unused axes if possible.
    fn representative_settings(&self, knobs: &Knobs) -> Option<Knobs> {
        let usual = self.preferred_settings(knobs);
        let is_point = |settings: &Knobs| canonical_knobs(settings.clone()) == *knobs;
        if is_point(&usual) {
            return Some(usual);
        }
        let undecided = self.space.axes.iter().filter(|axis| !knobs.0.contains_key(axis.name));
        let others =
            undecided.flat_map(|axis| axis.settings.iter().map(|setting| (axis.name.to_owned(), setting.clone())));
        let changed = others.map(|(name, setting)| {
            let mut settings = usual.clone();
            settings.0.insert(name, setting);
            settings
        });
        changed.into_iter().find(is_point)
    }

    fn preferred_settings(&self, knobs: &Knobs) -> Knobs {
        let of = |axis: &Axis| {
            let own = knobs.0.get(axis.name).cloned().or_else(|| self.preferred_setting(axis));
            (axis.name.to_owned(), own.unwrap_or_else(|| axis.settings[0].clone()))
        };
        Knobs(self.space.axes.iter().map(of).collect())
    }

    fn preferred_setting(&self, axis: &Axis) -> Option<Setting> {
        let neutral = Space::neutral_setting(axis.name).filter(|setting| axis.settings.contains(setting));
        neutral.or_else(|| self.space.default.0.get(axis.name).cloned())
    }

    /// Adds a default or random setting for each axis that has no effect in the point.
    fn complete_point(&mut self, knobs: &Knobs) -> Knobs {
        let mut whole = knobs.clone();
        for place in 0..self.space.axes.len() {
            let axis = &self.space.axes[place];
            if !whole.0.contains_key(axis.name) {
                let usual = self.preferred_setting(axis).unwrap_or_else(|| random_setting(axis, &mut self.random));
                whole.0.insert(axis.name.to_owned(), usual);
            }
        }
        whole
    }

    /// Changes `axes` random axes; None if no allowed point is found.
    pub fn change_axes(&mut self, knobs: &Knobs, axes: usize) -> Option<Knobs> {
        const TRIES: usize = 16;
        let whole = self.complete_point(knobs);
        for _ in 0..TRIES {
            let mut other = whole.clone();
            for _ in 0..axes.min(self.space.axes.len()) {
                let axis = &self.space.axes[self.random.random_range(0..self.space.axes.len())];
                other.0.insert(axis.name.to_owned(), random_setting(axis, &mut self.random));
            }
            let other = canonical_knobs(other);
            if other != *knobs && self.space.allows_point(&other) {
                return Some(other);
            }
        }
        None
    }

    pub fn one_axis_neighbours(&mut self, knobs: &Knobs) -> Vec<Knobs> {
        let whole = self.complete_point(knobs);
        let axes = self.space.axes.iter();
        let settings = axes.flat_map(|axis| axis.settings.iter().map(move |setting| (axis.name, setting)));
        let mut found = BTreeSet::new();
        for (name, setting) in settings {
            let mut other = whole.clone();
            other.0.insert(name.to_owned(), setting.clone());
            let other = canonical_knobs(other);
            if other != *knobs && self.space.allows_point(&other) {
                found.insert(other);
            }
        }
        found.into_iter().collect()
    }

    /// Takes the settings of one parent up to a random axis, and the settings of the other parent from there on.
    pub fn cross_points(&mut self, one: &Knobs, other: &Knobs) -> Knobs {
        let (mut child, other) = (self.complete_point(one), self.complete_point(other));
        let from = self.random.random_range(0..=self.space.axes.len());
        for axis in &self.space.axes[from..] {
            child.0.insert(axis.name.to_owned(), other.0[axis.name].clone());
        }
        canonical_knobs(child)
    }
}

fn random_setting(axis: &Axis, random: &mut ChaCha8Rng) -> Setting {
    axis.settings[random.random_range(0..axis.settings.len())].clone()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use crate::synthetic::parse_problem;
    use crate::{Problem, Tuner};
    use job::space::{Schedule, Template};
    use models::Fuse;
    use std::collections::BTreeMap;
    use targets::{cuda_text, parse_cuda};

    fn two_kinds() -> Space {
        let numbers =
            |name, most: i64| Axis { name, meaning: "made up", settings: (1..=most).map(Setting::Number).collect() };
        let units = ["scalar", "tensor"].map(|unit| Setting::Choice(unit.to_owned()));
        let unit = Axis { name: "unit", meaning: "made up", settings: units.to_vec() };
        let axes = vec![unit, numbers("tile_x", 8), numbers("tile_y", 8), numbers("fragments_x", 2)];
        let default = axes.iter().map(|axis| (axis.name.to_owned(), axis.settings[0].clone())).collect();
        Space::without_limits(Template::Contraction, axes, canonical_knobs(Knobs(default)))
    }

    #[test]
    fn every_point_is_drawn_with_the_same_probability() {
        const EACH: usize = 60;
        let space = two_kinds();
        let mut counts: BTreeMap<Knobs, usize> = BTreeMap::new();
        let problem = Problem { space: space.clone(), ..parse_problem("relu:shape=8") };
        for seed in 0..66 * EACH as u64 {
            let drawn = Random::new(&problem, seed).propose_schedules(1).expect("a point").pop();
            let Some(Schedule::Template { knobs }) = drawn else { panic!("{drawn:?}") };
            *counts.entry(knobs).or_default() += 1;
        }
        let (least, most) = (counts.values().min().expect("points"), counts.values().max().expect("points"));
        assert_eq!(counts.len(), 66);
        assert!(*least > EACH / 2 && *most < 2 * EACH, "{least} to {most} times, {EACH} expected");
        // Independent axes make both kinds equally likely.
        let drawn = (0..400).filter_map(|seed| Points::new(&space, seed).draw_new());
        let on_tensors = drawn.filter(|knobs| knobs.choice("unit") == Some("tensor")).count();
        assert!((150..250).contains(&on_tensors), "{on_tensors} of 400");
    }

    #[test]
    fn uniform_draws_take_all_points() {
        let space = two_kinds();
        let mut points = Points::new(&space, 1);
        let drawn: BTreeSet<Knobs> = std::iter::from_fn(|| points.draw_uniform()).collect();
        assert_eq!(drawn.len(), 66);
    }

    #[test]
    fn a_large_space_with_few_points_is_drawn_to_its_end() {
        let numbers =
            |name, most: i64| Axis { name, meaning: "made up", settings: (1..=most).map(Setting::Number).collect() };
        let unit = Axis { name: "unit", meaning: "made up", settings: vec![Setting::Choice("tensor".to_owned())] };
        let axes = vec![unit, numbers("tile_x", 16), numbers("tile_y", 16), numbers("fragments_x", 400)];
        let default = Knobs(axes.iter().map(|axis| (axis.name.to_owned(), axis.settings[0].clone())).collect());
        let space = Space::without_limits(Template::Contraction, axes, canonical_knobs(default));
        assert!(space.point_count() > LISTED_MAX, "else it is listed");
        let mut points = Points::new(&space, 1);
        assert_eq!(std::iter::from_fn(|| points.draw_new()).take(400).count(), 400);
    }

    #[test]
    fn every_point_has_a_representative() {
        let gpu = parse_cuda(&cuda_text(&["sm_80".to_owned()])).expect("a GPU");
        let texts = [
            "matmul:m=16,n=32,k=16",
            "conv2d:ci=64,hw=56,co=64,k=3,p=1",
            "max_pool2d:c=64,hw=112,k=3,s=2,p=1",
            "softmax:shape=64x1000",
        ];
        for text in texts {
            let graph = zoo::simple::build_operator(text).expect("an operator");
            let task = &models::plan_calls(&graph, Fuse::Epilogue).expect("tasks").tasks[0].task;
            for problem in [parse_problem(text), Problem::of_task(task, &gpu, 1)] {
                let mut points = Points::new(&problem.space, 1);
                for _ in 0..500 {
                    let settings = points.draw_settings();
                    let knobs = canonical_knobs(settings);
                    let counted = points.representative_settings(&knobs).unwrap_or_else(|| panic!("{text}: {knobs:?}"));
                    assert!(points.is_representative(&counted, &knobs), "{text}: {knobs:?}");
                }
            }
        }
    }
}
