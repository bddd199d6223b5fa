//! Features of schedules that can be computed before the schedules are built.

mod curves;
mod loops;
mod nest;

use crate::model::Features;
use crate::problem::Problem;
use job::space::{Knobs, LoopNest, Setting};
use nest::Nest;
use samples::features as table;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    Knobs,
    /// Features of knobs, tile sizes and each loop.
    Loops,
    /// Features of knobs, tile sizes and curves of data reuse.
    Curves,
}

#[derive(Clone, Debug)]
pub struct VisibleFeatures {
    knobs: Vec<(String, f64)>,
    /// Tile sizes relative to the operator's sizes.
    tiles: Vec<(&'static str, f64)>,
    nest: Vec<(&'static str, f64)>,
}

impl VisibleFeatures {
    /// Iterates over the three parts, each in name order.
    pub fn iter_named(&self) -> impl Iterator<Item = (&str, f64)> {
        let knobs = self.knobs.iter().map(|(name, value)| (name.as_str(), *value));
        knobs.chain(self.tiles.iter().chain(&self.nest).copied())
    }
}

pub fn point_features(problem: &Problem, knobs: &Knobs, view: View) -> VisibleFeatures {
    let named = |(name, setting): (&String, &Setting)| match setting {
        Setting::Number(number) => (["knob.", name].concat(), *number as f64),
        Setting::Choice(word) => (["knob.", name, "=", word].concat(), 1.0),
    };
    let mut named: Vec<(String, f64)> = knobs.0.iter().map(named).collect();
    named.sort_unstable_by(|one, other| one.0.cmp(&other.0));
    let Some(work) = problem.work.as_ref().filter(|_| view != View::Knobs) else {
        return VisibleFeatures { knobs: named, tiles: Vec::new(), nest: Vec::new() };
    };
    let nest = LoopNest::of_point(&problem.domain, knobs);
    let seen = (&problem.domain, &nest, knobs);
    let mut tiles = table::tiling::of_loops(work, &problem.device, problem.threads as f64, seen);
    tiles.sort_unstable_by_key(|(name, _)| *name);
    let nest = Nest::from_loops(work, &problem.domain, &nest);
    let nest = match view {
        View::Loops => loops::loop_features(&nest),
        View::Curves => curves::curve_samples(&nest),
        View::Knobs => Vec::new(),
    };
    VisibleFeatures { knobs: named, tiles, nest }
}

pub fn problem_features(problem: &Problem) -> Features {
    let Some(work) = &problem.work else { return Features::new() };
    let sizes = [
        ("rows", work.rows),
        ("columns", work.columns),
        ("depth", work.depth),
        ("taps", work.taps),
        ("stride", work.stride),
        ("groups", work.groups),
        ("width", work.width.max(1.0)),
        ("threads", problem.threads as f64),
        ("bytes", work.bytes()),
        ("flops", work.flops),
    ];
    sizes.into_iter().map(|(name, size)| (format!("size.{name}"), (1.0 + size).log2())).collect()
}

pub fn differ_in_epilogue_only(one: &Problem, other: &Problem) -> bool {
    let sums = |problem: &Problem| {
        let mut sizes = problem_features(problem);
        sizes.retain(|name, _| name != "size.bytes" && name != "size.flops");
        sizes
    };
    let sums = (sums(one), sums(other));
    !sums.0.is_empty() && sums.0 == sums.1
}
