//! What trees see of a schedule before it is built.

mod curves;
mod loops;
mod nest;

use crate::model::Features;
use crate::problem::Problem;
use job::space::{Knobs, Setting};
use nest::Nest;
use samples::features as table;

/// How much of a schedule is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// Its knobs as they are.
    Knobs,
    /// Those, what its tiles mean for the operator, and each of its loops.
    Loops,
    /// Those without the loops: how often data is used again, by how much of it must stay near.
    Curves,
}

/// The features of a point.
pub fn of(problem: &Problem, knobs: &Knobs, view: View) -> Features {
    let mut features: Features = knobs
        .0
        .iter()
        .map(|(name, setting)| match setting {
            Setting::Number(number) => (format!("knob.{name}"), *number as f64),
            Setting::Choice(word) => (format!("knob.{name}={word}"), 1.0),
        })
        .collect();
    let Some(work) = problem.work.as_ref().filter(|_| view != View::Knobs) else { return features };
    table::tiling::add(work, &problem.device, problem.threads as f64, &mut features);
    let nest = Nest::of(work, knobs);
    match view {
        View::Loops => loops::add(&nest, &mut features),
        View::Curves => curves::add(&nest, &mut features),
        View::Knobs => {}
    }
    features
}

/// What tells problems apart whose schedules are learned from together.
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
