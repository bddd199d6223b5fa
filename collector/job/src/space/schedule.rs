//! A schedule: one point of a space, which its text reproduces.

use super::moves::Moves;
use reference::Rounding;
use schedules::choices::{Functions, Precision, Unit};
use schedules::gpu::{UNIT, tensor::PRECISION};
use schedules::{ByTaps, Knobs, Layout};
use serde::{Deserialize, Serialize};

/// Point of a space.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "from", rename_all = "lowercase")]
pub enum Schedule {
    /// Template of this program with knobs.
    Template {
        /// One setting per axis.
        knobs: Knobs,
    },
    /// Random schedule of TVM's own space.
    MetaSchedule {
        space: usize,
        seed: i64,
        /// Moves of the sample, once they are known. A replay uses them instead of sampling.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        trace: Option<Moves>,
    },
    /// Moves without a space.
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

    /// 32 hexadecimal digits. Moves of a sample are excluded; see [`Schedule::moves_hash`].
    pub fn stable_hash(&self) -> String {
        let named = match self {
            Schedule::MetaSchedule { space, seed, .. } => {
                Schedule::MetaSchedule { space: *space, seed: *seed, trace: None }
            }
            Schedule::Template { .. } | Schedule::Trace { .. } => self.clone(),
        };
        hash_digits(&named.to_json())
    }

    /// None if the moves are unknown.
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

    /// Returns the number that columns of a convolution's sums are padded to a multiple of: whole register tiles.
    pub fn column_multiple(&self) -> i64 {
        self.knobs().map_or(1, Knobs::column_multiple)
    }

    pub fn has_vectors(&self) -> bool {
        self.knobs().is_some_and(Knobs::has_vectors)
    }

    /// Returns how the sum over window positions is ordered, if it is the outer sum.
    pub fn by_taps(&self) -> Option<ByTaps> {
        self.knobs()?.by_taps()
    }

    /// Whether a pool reduces columns of windows before rows.
    pub fn columns_first(&self) -> bool {
        self.knobs().is_some_and(Knobs::columns_first)
    }

    /// Whether the inputs of tiles are copied to contiguous memory.
    pub fn copies_inputs(&self) -> bool {
        self.knobs().is_some_and(Knobs::copies_operand)
    }

    /// Returns how exponentials and similar functions are computed.
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

    /// Describes the knobs that differ from another schedule, or returns `default`.
    pub fn describe_difference(&self, default: &Knobs) -> String {
        let Schedule::Template { knobs } = self else { return self.describe_knobs() };
        let changed = knobs.0.iter().filter(|(name, setting)| default.0.get(*name) != Some(setting));
        let parts: Vec<String> = changed.map(|(name, setting)| format!("{name}={setting}")).collect();
        if parts.is_empty() { "default".to_owned() } else { parts.join(" ") }
    }

    /// In one line: `block=16 tile_x=14 …`.
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
