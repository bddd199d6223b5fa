//! The tuners by their names, and what each is for.

use crate::features::View;
use job::target::Kind;
use models::{Choice, choice};

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

impl TunerName {
    /// What it sees of a schedule, where it learns from schedules.
    fn view(self) -> Option<View> {
        match self {
            TunerName::XgbKnob => Some(View::Knobs),
            TunerName::Draft | TunerName::Xgb | TunerName::XgbRank | TunerName::XgbItervar => Some(View::Loops),
            TunerName::XgbCurve => Some(View::Curves),
            TunerName::Ga | TunerName::Random | TunerName::Gridsearch | TunerName::Metaschedule => None,
        }
    }

    /// Why it cannot search for a target; nothing where it can.
    pub fn misfit(self, target: Kind) -> Option<String> {
        let needs_loops = self.view().is_some_and(|view| view != View::Knobs) && self != TunerName::Draft;
        match target {
            Kind::Pynq if needs_loops || self == TunerName::Metaschedule => Some(format!(
                "`{}` learns from code that TVM makes, and a core on a board's fabric runs our own; `draft`, `xgb_knob`, `ga`, \
                 `random` and `gridsearch` search there",
                self.name()
            )),
            Kind::Cuda if needs_loops => Some(format!(
                "`{}` learns from loops as templates for CPUs make them, and the target is `cuda`; `draft`, `xgb_knob`, \
                 `ga`, `random`, `gridsearch` and `metaschedule` search there",
                self.name()
            )),
            Kind::Opencl => Some(format!("`{}` measures, and nothing here runs OpenCL", self.name())),
            Kind::Torch => Some(format!("`{}` searches schedules, and a library has none", self.name())),
            Kind::Cuda | Kind::Llvm | Kind::Pynq => None,
        }
    }
}
