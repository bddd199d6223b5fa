//! A schedule: one point of a space, replayable from its text.

use super::moves::Moves;
use reference::Rounding;
use schedules::choices::{Functions, Precision, Unit};
use schedules::gpu::{UNIT, tensor::PRECISION};
use schedules::{ByTaps, Knobs, Layout};
use serde::{Deserialize, Serialize};

/// One point of a space.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "from", rename_all = "lowercase")]
pub enum Schedule {
    /// Our own template with these knobs.
    Template {
        /// One setting per axis.
        knobs: Knobs,
    },
    /// A draw from TVM's own space.
    MetaSchedule {
        /// Which of its spaces.
        space: usize,
        /// Seed of every sampling move.
        seed: i64,
        /// The moves that were drawn, once they are known: a replay makes these and draws nothing.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        trace: Option<Moves>,
    },
    /// The moves themselves.
    Trace {
        /// TVM's JSON of a trace.
        trace: Moves,
    },
}

fn digits(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex()[..32].to_owned()
}

/// A schedule that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the schedule: {0}")]
pub struct ScheduleError(#[from] serde_json::Error);

impl Schedule {
    /// The text a record keeps.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a schedule holds only JSON values")
    }

    /// From a record's text.
    pub fn from_json(text: &str) -> Result<Schedule, ScheduleError> {
        Ok(serde_json::from_str(text)?)
    }

    /// Stable identity of the choice: 32 hexadecimal digits. Moves that follow from a draw do not count; see
    /// [`Schedule::moves_hash`].
    pub fn hash(&self) -> String {
        let named = match self {
            Schedule::MetaSchedule { space, seed, .. } => {
                Schedule::MetaSchedule { space: *space, seed: *seed, trace: None }
            }
            Schedule::Template { .. } | Schedule::Trace { .. } => self.clone(),
        };
        digits(&named.to_json())
    }

    /// Stable identity of the moves that a draw led to, once they are known.
    pub fn moves_hash(&self) -> Option<String> {
        let Schedule::MetaSchedule { trace: Some(trace), .. } = self else { return None };
        Some(digits(&trace.json().to_string()))
    }

    /// The knobs of a template's schedule.
    fn knobs(&self) -> Option<&Knobs> {
        match self {
            Schedule::Template { knobs } => Some(knobs),
            Schedule::MetaSchedule { .. } | Schedule::Trace { .. } => None,
        }
    }

    /// The layout the task must be lowered in.
    pub fn layout(&self) -> Layout {
        self.knobs().map_or(Layout::Plain, Knobs::layout)
    }

    /// The columns of a convolution's sums are filled up to a multiple of this: to whole register tiles.
    pub fn columns(&self) -> i64 {
        self.knobs().map_or(1, Knobs::columns)
    }

    /// Whether it makes vectors of its innermost loop.
    pub fn has_vectors(&self) -> bool {
        self.knobs().is_some_and(Knobs::has_vectors)
    }

    /// Whether and how it sums the products at one place of a window after those at another.
    pub fn by_taps(&self) -> Option<ByTaps> {
        self.knobs()?.by_taps()
    }

    /// Whether a pool reduces the columns of windows before the rows of what these come to.
    pub fn columns_first(&self) -> bool {
        self.knobs().is_some_and(Knobs::columns_first)
    }

    /// Whether it copies what tiles read, so that it lies together.
    pub fn copies(&self) -> bool {
        self.knobs().is_some_and(Knobs::copies)
    }

    /// How it computes exponentials and their kin.
    pub fn functions(&self) -> Functions {
        self.knobs().map_or(Functions::Vector, Knobs::functions)
    }

    /// Whether it makes fragments for tensor cores.
    pub fn has_fragments(&self) -> bool {
        match self {
            Schedule::Template { knobs } => UNIT.is(knobs, Unit::Tensor),
            Schedule::MetaSchedule { trace, .. } => trace.as_ref().is_some_and(Moves::has_fragments),
            Schedule::Trace { trace } => trace.has_fragments(),
        }
    }

    /// What becomes of operands before they are multiplied.
    pub fn rounding(&self) -> Rounding {
        match self {
            Schedule::Template { knobs } if PRECISION.is(knobs, Precision::Tf32) => Rounding::Tf32,
            Schedule::Template { .. } | Schedule::MetaSchedule { .. } | Schedule::Trace { .. } => Rounding::None,
        }
    }

    /// What differs from another schedule of the same task, or `default` when nothing does.
    pub fn difference(&self, default: &Knobs) -> String {
        let Schedule::Template { knobs } = self else { return self.describe() };
        let changed = knobs.0.iter().filter(|(name, setting)| default.0.get(*name) != Some(setting));
        let parts: Vec<String> = changed.map(|(name, setting)| format!("{name}={setting}")).collect();
        if parts.is_empty() { "default".to_owned() } else { parts.join(" ") }
    }

    /// All knobs in one line: `block=16 tile_x=14 …`.
    pub fn describe(&self) -> String {
        match self {
            Schedule::Template { knobs } => {
                let parts: Vec<String> = knobs.0.iter().map(|(name, setting)| format!("{name}={setting}")).collect();
                parts.join(" ")
            }
            Schedule::MetaSchedule { space, seed, .. } => format!("metaschedule space={space} seed={seed}"),
            Schedule::Trace { trace } => format!("trace of {} moves", trace.count()),
        }
    }
}
