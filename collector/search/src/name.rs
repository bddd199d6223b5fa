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

pub(crate) struct Start<'a> {
    pub(crate) problem: &'a Problem,
    pub(crate) seed: u64,
    pub(crate) evolution: Box<dyn FnOnce() -> Box<dyn Evolution> + 'a>,
}

struct Declaration {
    /// Whether the tuner learns from loop features, which exist only for CPU templates.
    learns_cpu_loops: bool,
    /// Whether the tuner samples TVM's own space, which has no axes.
    samples_tvm_space: bool,
    make: fn(Start<'_>) -> Result<Box<dyn Tuner>>,
}

impl Declaration {
    const fn template_tuner(make: fn(Start<'_>) -> Result<Box<dyn Tuner>>) -> Declaration {
        Declaration { learns_cpu_loops: false, samples_tvm_space: false, make }
    }

    const fn loop_tuner(make: fn(Start<'_>) -> Result<Box<dyn Tuner>>) -> Declaration {
        Declaration { learns_cpu_loops: true, ..Declaration::template_tuner(make) }
    }
}

impl TunerName {
    fn find_declaration(self) -> Declaration {
        match self {
            TunerName::Draft => Declaration::template_tuner(|on| Ok(Box::new(Draft::new(on.problem, on.seed)?))),
            TunerName::Xgb | TunerName::XgbItervar => {
                Declaration::loop_tuner(|on| guided::regression_tuner(on.problem, View::Loops, on.seed))
            }
            TunerName::XgbRank => Declaration::loop_tuner(|on| guided::ranking_tuner(on.problem, View::Loops, on.seed)),
            TunerName::XgbKnob => {
                Declaration::template_tuner(|on| guided::regression_tuner(on.problem, View::Knobs, on.seed))
            }
            TunerName::XgbCurve => {
                Declaration::loop_tuner(|on| guided::regression_tuner(on.problem, View::Curves, on.seed))
            }
            TunerName::Ga => Declaration::template_tuner(|on| Ok(Box::new(Genetic::new(on.problem, on.seed)))),
            TunerName::Random => Declaration::template_tuner(|on| Ok(Box::new(Random::new(on.problem, on.seed)))),
            TunerName::Gridsearch => Declaration::template_tuner(|on| Ok(Box::new(Grid::new(on.problem)))),
            TunerName::Metaschedule => Declaration {
                samples_tvm_space: true,
                ..Declaration::template_tuner(|on| Ok(Box::new(Evolved::new(on.seed, (on.evolution)()))))
            },
        }
    }

    pub(crate) fn start_tuner(self, start: Start<'_>) -> Result<Box<dyn Tuner>> {
        (self.find_declaration().make)(start)
    }

    pub fn samples_tvm_space(self) -> bool {
        self.find_declaration().samples_tvm_space
    }

    pub fn why_unsupported(self, target: Kind) -> Option<String> {
        let Declaration { learns_cpu_loops, samples_tvm_space, .. } = self.find_declaration();
        target.refuse_tuner(&TunerNeeds { name: self.name(), learns_cpu_loops, draws: samples_tvm_space })
    }
}
