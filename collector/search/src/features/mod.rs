//! Features of schedules that are known before a build.

mod curves;
mod loops;
mod nest;

use crate::model::{Features, each};
use crate::problem::Problem;
use job::space::{Knobs, LoopNest, Setting};
use nest::Nest;
use samples::features as table;

/// Detail of the features of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    Knobs,
    /// Knobs, sizes of tiles, and each loop.
    Loops,
    /// Knobs, sizes of tiles, and curves of data reuse.
    Curves,
}

/// Features of a point.
#[derive(Clone, Debug)]
pub struct VisibleFeatures {
    named: Features,
    /// Features of loops or curves.
    nest: Vec<(&'static str, f64)>,
}

impl VisibleFeatures {
    /// Iterates over both parts, each in the order of names.
    pub fn each(&self) -> impl Iterator<Item = (&str, f64)> {
        each(&self.named).chain(self.nest.iter().copied())
    }
}

/// Returns the features of a point.
pub fn of(problem: &Problem, knobs: &Knobs, view: View) -> VisibleFeatures {
    let mut named: Features = knobs
        .0
        .iter()
        .map(|(name, setting)| match setting {
            Setting::Number(number) => (format!("knob.{name}"), *number as f64),
            Setting::Choice(word) => (format!("knob.{name}={word}"), 1.0),
        })
        .collect();
    let Some(work) = problem.work.as_ref().filter(|_| view != View::Knobs) else {
        return VisibleFeatures { named, nest: Vec::new() };
    };
    let nest = LoopNest::of(&problem.domain, knobs);
    table::tiling::add_of(work, &problem.device, problem.threads as f64, (&problem.domain, &nest, knobs), &mut named);
    let nest = Nest::of(work, &problem.domain, &nest);
    let nest = match view {
        View::Loops => loops::of(&nest),
        View::Curves => curves::of(&nest),
        View::Knobs => Vec::new(),
    };
    VisibleFeatures { named, nest }
}

/// Returns the features that distinguish problems in common training data.
pub fn of_problem(problem: &Problem) -> Features {
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

/// Whether two problems differ only in their epilogue.
pub fn are_equal(one: &Problem, other: &Problem) -> bool {
    let sums = |problem: &Problem| {
        let mut sizes = of_problem(problem);
        sizes.retain(|name, _| name != "size.bytes" && name != "size.flops");
        sizes
    };
    let sums = (sums(one), sums(other));
    !sums.0.is_empty() && sums.0 == sums.1
}
