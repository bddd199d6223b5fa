//! A schedule: one point of a space, replayable from its text.

use super::gpu::tensor;
use super::moves::Moves;
use reference::Rounding;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// How constant operands are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// As the task says.
    Plain,
    /// The output's channels (or columns) in blocks of this extent.
    Blocked {
        /// Extent of the innermost dimension.
        block: i64,
    },
    /// A convolution with four neighbours along the depth in one number, for instructions that multiply bytes.
    Dots {
        /// The columns of the result are computed up to a multiple of this.
        columns: i64,
        /// Whether data has a sign in products.
        is_signed: bool,
    },
    /// The same of a product of matrices, its columns in blocks.
    BlockedDots {
        /// Extent of the innermost dimension.
        block: i64,
        /// Whether data has a sign in products.
        is_signed: bool,
    },
    /// A convolution as a product of matrices: of its weights, and of its windows as columns.
    Columns {
        /// Zeros make the number of columns a multiple of this.
        multiple: i64,
    },
    /// A convolution by Winograd's products, the output's channels in blocks.
    Winograd {
        /// Extent of a tile of the result.
        tile: i64,
        /// Extent of the innermost dimension.
        block: i64,
    },
}

/// A convolution that sums the products at one place of a window after those at another. Where all that a tile reads is
/// padding there is nothing to sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByTaps {
    /// Rows and columns of a register tile, where the padded input is a copy: it needs no padding that no tile reads.
    pub tile: Option<[i64; 2]>,
}

/// How exponentials and their kin are computed on CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Functions {
    /// By arithmetic on vectors, a few units in the last place off.
    Vector,
    /// By a call of the system's library for each element, as exact as that is.
    Library,
}

/// The value of one knob.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Setting {
    /// An extent or a count.
    Number(i64),
    /// A named way.
    Choice(String),
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Setting::Number(number) => write!(f, "{number}"),
            Setting::Choice(name) => f.write_str(name),
        }
    }
}

/// One setting per axis, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Knobs(pub BTreeMap<String, Setting>);

impl Knobs {
    /// The number of a knob.
    pub fn number(&self, name: &str) -> Option<i64> {
        match self.0.get(name) {
            Some(Setting::Number(number)) => Some(*number),
            Some(Setting::Choice(_)) | None => None,
        }
    }

    /// The extent of Winograd's tiles, where they are used.
    pub fn winograd_tile(&self) -> Option<i64> {
        match self.choice("algorithm")? {
            "winograd2" => Some(2),
            "winograd4" => Some(4),
            _ => None,
        }
    }

    /// The named way of a knob.
    pub fn choice(&self, name: &str) -> Option<&str> {
        match self.0.get(name) {
            Some(Setting::Choice(choice)) => Some(choice),
            Some(Setting::Number(_)) | None => None,
        }
    }
}

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

    /// The layout the task must be lowered in.
    pub fn layout(&self) -> Layout {
        let Schedule::Template { knobs } = self else { return Layout::Plain };
        let number = |name: &str| knobs.number(name).unwrap_or(1);
        if let Some(tile) = knobs.winograd_tile() {
            return Layout::Winograd { tile, block: number("block") };
        }
        match (knobs.choice("layout"), knobs.choice("unit")) {
            (Some("blocked"), _) => Layout::Blocked { block: number("block") },
            (Some("dots"), _) => {
                let is_signed = knobs.choice("bytes") == Some("signed");
                match knobs.number("dots_x") {
                    Some(columns) => Layout::Dots { columns, is_signed },
                    None => Layout::BlockedDots { block: number("block"), is_signed },
                }
            }
            (_, Some("tensor")) => Layout::Columns { multiple: tensor::columns(knobs) },
            _ => Layout::Plain,
        }
    }

    /// The columns of a convolution's sums are filled up to a multiple of this: to whole register tiles.
    pub fn columns(&self) -> i64 {
        let Schedule::Template { knobs } = self else { return 1 };
        match self.layout() {
            Layout::Plain | Layout::Blocked { .. } => knobs.number("tile_x").unwrap_or(1),
            Layout::BlockedDots { .. } | Layout::Dots { .. } | Layout::Columns { .. } | Layout::Winograd { .. } => 1,
        }
    }

    /// Whether it makes vectors of its innermost loop.
    pub fn has_vectors(&self) -> bool {
        matches!(self, Schedule::Template { knobs } if knobs.choice("vectorize") == Some("yes"))
    }

    /// Whether and how it sums the products at one place of a window after those at another.
    pub fn by_taps(&self) -> Option<ByTaps> {
        let Schedule::Template { knobs } = self else { return None };
        knobs.choice("order").filter(|order| *order == "kernel_first")?;
        let number = |name: &str| knobs.number(name).unwrap_or(1);
        let is_copied = knobs.choice("pad_at") == Some("root");
        Some(ByTaps { tile: is_copied.then(|| [number("tile_y"), number("tile_x")]) })
    }

    /// Whether a pool reduces the columns of windows before the rows of what these come to.
    pub fn columns_first(&self) -> bool {
        matches!(self, Schedule::Template { knobs } if knobs.choice("windows") == Some("columns_first"))
    }

    /// Whether it copies what tiles read, so that it lies together.
    pub fn copies(&self) -> bool {
        matches!(self, Schedule::Template { knobs } if knobs.choice("copy_at").is_some_and(|at| at != "no"))
    }

    /// How it computes exponentials and their kin.
    pub fn functions(&self) -> Functions {
        match self {
            Schedule::Template { knobs } if knobs.choice("functions") == Some("library") => Functions::Library,
            Schedule::Template { .. } | Schedule::MetaSchedule { .. } | Schedule::Trace { .. } => Functions::Vector,
        }
    }

    /// Whether it makes fragments for tensor cores.
    pub fn has_fragments(&self) -> bool {
        match self {
            Schedule::Template { knobs } => knobs.choice("unit") == Some("tensor"),
            Schedule::MetaSchedule { trace, .. } => trace.as_ref().is_some_and(Moves::has_fragments),
            Schedule::Trace { trace } => trace.has_fragments(),
        }
    }

    /// What becomes of operands before they are multiplied.
    pub fn rounding(&self) -> Rounding {
        match self {
            Schedule::Template { knobs } if knobs.choice("precision") == Some("tf32") => Rounding::Tf32,
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
