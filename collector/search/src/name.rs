//! The tuners by their names, and what each is for.

use crate::features::View;
use job::target::Kind;
use serde::{Deserialize, Serialize};

/// A tuner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TunerName {
    /// Our own.
    Draft,
    /// Trees that learn times from loops, annealed.
    Xgb,
    /// Trees that learn the order of pairs.
    #[serde(rename = "xgb-rank")]
    XgbRank,
    /// Trees that learn from knobs.
    XgbKnob,
    /// Trees that learn from loops.
    XgbItervar,
    /// Trees that learn from reuse over footprint.
    XgbCurve,
    /// Generations.
    Ga,
    /// Draws.
    Random,
    /// One point after the other.
    Gridsearch,
    /// Draws from TVM's own space.
    Metaschedule,
}

impl TunerName {
    /// All of them.
    pub const ALL: &[TunerName] = &[
        TunerName::Draft,
        TunerName::Xgb,
        TunerName::XgbRank,
        TunerName::XgbKnob,
        TunerName::XgbItervar,
        TunerName::XgbCurve,
        TunerName::Ga,
        TunerName::Random,
        TunerName::Gridsearch,
        TunerName::Metaschedule,
    ];

    /// The word on the command line and in files.
    pub fn name(self) -> &'static str {
        match self {
            TunerName::Draft => "draft",
            TunerName::Xgb => "xgb",
            TunerName::XgbRank => "xgb-rank",
            TunerName::XgbKnob => "xgb_knob",
            TunerName::XgbItervar => "xgb_itervar",
            TunerName::XgbCurve => "xgb_curve",
            TunerName::Ga => "ga",
            TunerName::Random => "random",
            TunerName::Gridsearch => "gridsearch",
            TunerName::Metaschedule => "metaschedule",
        }
    }

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
