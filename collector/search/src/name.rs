//! The tuners: their names, what each needs, and how each starts.

use crate::draft::Draft;
use crate::evolved::Evolved;
use crate::features::View;
use crate::genetic::Genetic;
use crate::grid::Grid;
use crate::random::Random;
use crate::{Evolution, Problem, Result, Tuner, guided};
use models::{Choice, choice};
use targets::{Kind, TunerNeeds};

choice! {
    /// A tuner.
    pub enum TunerName {
        /// Our own: from the default schedule on, drafts by what trees say of knobs, tiles and loops, other tasks' trials included
        Draft = "draft",
        /// Trees that learn speeds from loops; annealing finds what they like
        Xgb = "xgb",
        /// The same with trees that learn which of two is faster
        XgbRank = "xgb-rank",
        /// Trees that learn speeds from knobs
        XgbKnob = "xgb_knob",
        /// Trees that learn speeds from loops
        XgbItervar = "xgb_itervar",
        /// Trees that learn speeds from how often data is used again, over how much of it must stay near
        XgbCurve = "xgb_curve",
        /// Generations of which the fittest are crossed and changed
        Ga = "ga",
        /// Draws
        Random = "random",
        /// One point after the other
        Gridsearch = "gridsearch",
        /// Draws from TVM's MetaSchedule space
        Metaschedule = "metaschedule",
    }
}

/// What a tuner starts from.
pub(crate) struct Start<'a> {
    pub(crate) problem: &'a Problem,
    pub(crate) seed: u64,
    pub(crate) evolution: Box<dyn FnOnce() -> Box<dyn Evolution> + 'a>,
}

/// A tuner beside its name and its help.
struct Declaration {
    /// Whether it learns from loops of templates for CPUs alone.
    learns_cpu_loops: bool,
    /// Whether it draws from TVM's own space, which has none of our axes.
    draws: bool,
    make: fn(Start<'_>) -> Result<Box<dyn Tuner>>,
}

impl Declaration {
    /// A tuner that searches our spaces and needs nothing of what code is made of.
    const fn new(make: fn(Start<'_>) -> Result<Box<dyn Tuner>>) -> Declaration {
        Declaration { learns_cpu_loops: false, draws: false, make }
    }

    /// A tuner that learns from loops of templates for CPUs.
    const fn of_loops(make: fn(Start<'_>) -> Result<Box<dyn Tuner>>) -> Declaration {
        Declaration { learns_cpu_loops: true, ..Declaration::new(make) }
    }
}

impl TunerName {
    fn declaration(self) -> Declaration {
        match self {
            TunerName::Draft => Declaration::new(|on| Ok(Box::new(Draft::new(on.problem, on.seed)?))),
            TunerName::Xgb | TunerName::XgbItervar => {
                Declaration::of_loops(|on| guided::regression(on.problem, View::Loops, on.seed))
            }
            TunerName::XgbRank => Declaration::of_loops(|on| guided::ranking(on.problem, View::Loops, on.seed)),
            TunerName::XgbKnob => Declaration::new(|on| guided::regression(on.problem, View::Knobs, on.seed)),
            TunerName::XgbCurve => Declaration::of_loops(|on| guided::regression(on.problem, View::Curves, on.seed)),
            TunerName::Ga => Declaration::new(|on| Ok(Box::new(Genetic::new(on.problem, on.seed)))),
            TunerName::Random => Declaration::new(|on| Ok(Box::new(Random::new(on.problem, on.seed)))),
            TunerName::Gridsearch => Declaration::new(|on| Ok(Box::new(Grid::new(on.problem)))),
            TunerName::Metaschedule => Declaration {
                draws: true,
                ..Declaration::new(|on| Ok(Box::new(Evolved::new(on.seed, (on.evolution)()))))
            },
        }
    }

    /// Starts the tuner.
    pub(crate) fn start(self, start: Start<'_>) -> Result<Box<dyn Tuner>> {
        (self.declaration().make)(start)
    }

    /// Whether it draws from TVM's own space, which has none of our axes.
    pub fn draws(self) -> bool {
        self.declaration().draws
    }

    /// Returns why it cannot search for a target; None where it can.
    pub fn misfit(self, target: Kind) -> Option<String> {
        let Declaration { learns_cpu_loops, draws, .. } = self.declaration();
        target.refuse_tuner(&TunerNeeds { name: self.name(), learns_cpu_loops, draws })
    }
}
