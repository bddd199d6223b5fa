//! Tuners by name, with their requirements and constructors.

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
    pub enum TunerName {
        /// Boosted trees over knobs, tiles and loops, trained across tasks
        Draft = "draft",
        /// Boosted trees over loop features, with simulated annealing
        Xgb = "xgb",
        /// As xgb, but trees learn to rank pairs of schedules
        XgbRank = "xgb-rank",
        /// As xgb, with trees over knobs
        XgbKnob = "xgb_knob",
        /// As xgb, with trees over loop features
        XgbItervar = "xgb_itervar",
        /// As xgb, with trees over curves of data reuse against cache size
        XgbCurve = "xgb_curve",
        /// Genetic algorithm: crossover and mutation of the fittest
        Ga = "ga",
        /// Random sampling
        Random = "random",
        /// Exhaustive enumeration in order
        Gridsearch = "gridsearch",
        /// Evolutionary search of TVM's MetaSchedule space
        Metaschedule = "metaschedule",
    }
}

/// Inputs of a tuner's constructor.
pub(crate) struct Start<'a> {
    pub(crate) problem: &'a Problem,
    pub(crate) seed: u64,
    pub(crate) evolution: Box<dyn FnOnce() -> Box<dyn Evolution> + 'a>,
}

/// Requirements and constructor of a tuner.
struct Declaration {
    /// Whether the tuner needs loop features, which exist only for CPU templates.
    learns_cpu_loops: bool,
    /// Whether the tuner samples TVM's own space, which has no axes.
    samples_tvm_space: bool,
    make: fn(Start<'_>) -> Result<Box<dyn Tuner>>,
}

impl Declaration {
    /// Declares a tuner of template spaces that needs no loop features.
    const fn new(make: fn(Start<'_>) -> Result<Box<dyn Tuner>>) -> Declaration {
        Declaration { learns_cpu_loops: false, samples_tvm_space: false, make }
    }

    /// Declares a tuner that needs loop features of CPU templates.
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
                samples_tvm_space: true,
                ..Declaration::new(|on| Ok(Box::new(Evolved::new(on.seed, (on.evolution)()))))
            },
        }
    }

    pub(crate) fn start(self, start: Start<'_>) -> Result<Box<dyn Tuner>> {
        (self.declaration().make)(start)
    }

    /// Whether the tuner samples TVM's own space, which has no axes.
    pub fn samples_tvm_space(self) -> bool {
        self.declaration().samples_tvm_space
    }

    /// Returns why the tuner does not support a target, or None.
    pub fn misfit(self, target: Kind) -> Option<String> {
        let Declaration { learns_cpu_loops, samples_tvm_space, .. } = self.declaration();
        target.refuse_tuner(&TunerNeeds { name: self.name(), learns_cpu_loops, draws: samples_tvm_space })
    }
}
