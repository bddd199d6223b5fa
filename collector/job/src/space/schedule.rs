//! A schedule: one point of a schedule space, which can be reproduced from its text.

use super::moves::Moves;
use reference::Rounding;
use schedules::choices::{Functions, Precision, Unit};
use schedules::gpu::{UNIT, tensor::PRECISION};
use schedules::{ByTaps, Knobs, Layout};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "from", rename_all = "lowercase")]
pub enum Schedule {
    /// Template of this program, with the settings (knobs) of its axes.
    Template { knobs: Knobs },
    /// Random schedule of TVM's own space.
    MetaSchedule {
        space: usize,
        seed: i64,
        /// Moves of the sample, once they are known. A replay uses them instead of sampling.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        trace: Option<Moves>,
    },
    /// Moves (TVM schedule instructions) that do not belong to a schedule space.
    Trace { trace: Moves },
}

fn hash_digits(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex()[..32].to_owned()
}

#[derive(Debug, thiserror::Error)]
#[error("cannot read the schedule: {0}")]
pub struct ScheduleError(#[from] serde_json::Error);

impl Schedule {
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a schedule holds only JSON values")
    }

    pub fn from_json(text: &str) -> Result<Schedule, ScheduleError> {
        Ok(serde_json::from_str(text)?)
    }

    /// Returns a hash of 32 hexadecimal digits, which ignores moves of random samples (see [`Schedule::moves_hash`]).
    pub fn stable_hash(&self) -> String {
        let named = match self {
            Schedule::MetaSchedule { space, seed, .. } => {
                Schedule::MetaSchedule { space: *space, seed: *seed, trace: None }
            }
            Schedule::Template { .. } | Schedule::Trace { .. } => self.clone(),
        };
        hash_digits(&named.to_json())
    }

    /// Returns a hash of a random sample's trace; None without a stored trace, and for all other schedules.
    pub fn moves_hash(&self) -> Option<String> {
        let Schedule::MetaSchedule { trace: Some(trace), .. } = self else { return None };
        Some(hash_digits(&trace.as_json().to_string()))
    }

    fn knobs(&self) -> Option<&Knobs> {
        match self {
            Schedule::Template { knobs } => Some(knobs),
            Schedule::MetaSchedule { .. } | Schedule::Trace { .. } => None,
        }
    }

    pub fn data_layout(&self) -> Layout {
        self.knobs().map_or(Layout::Plain, Knobs::layout)
    }

    /// Returns the tile width, to a multiple of which columns of a convolution are padded; 1 without padding.
    pub fn column_multiple(&self) -> i64 {
        self.knobs().map_or(1, Knobs::column_multiple)
    }

    pub fn has_vectors(&self) -> bool {
        self.knobs().is_some_and(Knobs::has_vectors)
    }

    /// Returns how a convolution sums kernel position by kernel position (tap by tap), or None if it does not.
    pub fn by_taps(&self) -> Option<ByTaps> {
        self.knobs()?.by_taps()
    }

    pub fn columns_first(&self) -> bool {
        self.knobs().is_some_and(Knobs::columns_first)
    }

    pub fn copies_inputs(&self) -> bool {
        self.knobs().is_some_and(Knobs::copies_operand)
    }

    pub fn function_variants(&self) -> Functions {
        self.knobs().map_or(Functions::Vector, Knobs::functions)
    }

    pub fn has_fragments(&self) -> bool {
        match self {
            Schedule::Template { knobs } => UNIT.is_set_to(knobs, Unit::Tensor),
            Schedule::MetaSchedule { trace, .. } => trace.as_ref().is_some_and(Moves::has_fragments),
            Schedule::Trace { trace } => trace.has_fragments(),
        }
    }

    pub fn operand_rounding(&self) -> Rounding {
        match self {
            Schedule::Template { knobs } if PRECISION.is_set_to(knobs, Precision::Tf32) => Rounding::Tf32,
            Schedule::Template { .. } | Schedule::MetaSchedule { .. } | Schedule::Trace { .. } => Rounding::None,
        }
    }

    /// Describes the knobs that differ from `default`; returns "default" if none does.
    pub fn describe_difference(&self, default: &Knobs) -> String {
        let Schedule::Template { knobs } = self else { return self.describe_knobs() };
        let changed = knobs.0.iter().filter(|(name, setting)| default.0.get(*name) != Some(setting));
        let parts: Vec<String> = changed.map(|(name, setting)| format!("{name}={setting}")).collect();
        if parts.is_empty() { "default".to_owned() } else { parts.join(" ") }
    }

    pub fn describe_knobs(&self) -> String {
        match self {
            Schedule::Template { knobs } => {
                let parts: Vec<String> = knobs.0.iter().map(|(name, setting)| format!("{name}={setting}")).collect();
                parts.join(" ")
            }
            Schedule::MetaSchedule { space, seed, .. } => format!("metaschedule space={space} seed={seed}"),
            Schedule::Trace { trace } => format!("trace of {} moves", trace.move_count()),
        }
    }
}
