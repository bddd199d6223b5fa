//! The tuners by their names, and what each is for.

use crate::features::View;
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
        target.refuse_tuner(&TunerNeeds {
            name: self.name(),
            learns_cpu_loops: self.view().is_some_and(|view| view != View::Knobs) && self != TunerName::Draft,
            draws: self == TunerName::Metaschedule,
        })
    }
}
