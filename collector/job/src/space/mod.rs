//! Task × target → schedules.
//!
//! A space is a list of axes that can be read: each has a name and the settings it may take, and a point of the
//! space is one setting per axis. Declaring, counting and sampling need no TVM and are pure: the same task, target
//! and seed give the same schedules in the same order. Only `apply` talks to TVM, inside a builder.

mod attention;
mod axes;
mod beyond;
mod contraction;
mod core;
mod declare;
pub mod dots;
mod extents;
mod filter;
pub mod gpu;
mod moves;
pub mod order;
mod pool;
mod register_tile;
mod rules;
mod sample;
mod schedule;
mod taps;
mod template;
mod winograd;

pub use self::core::core_knobs;
pub use attention::Sight;
pub use filter::{Filter, FilterError};
pub use moves::{Moves, MovesError, OBJECT};
pub use rules::Rule;
pub use sample::{canonical, point, sample};
pub use schedule::{ByTaps, Functions, Knobs, Layout, Schedule, ScheduleError, Setting};
pub use template::{rows_of, template};

use crate::target::Machine;
use models::Task;

/// Which spaces this program has. A search counts on proposing the same points when it goes on, so a store of another version
/// is refused; whoever changes axes, settings or rules counts up, and `tests/spaces.rs` tells who forgets it.
pub const VERSION: u32 = 7;

/// The space of a task on a machine.
///
/// A symbol can be 1, so on a CPU no tile may be larger along one.
pub fn space(task: &Task, machine: &Machine) -> Space {
    match machine {
        Machine::Cpu(machine) => declare::cpu_space(&task.with_sizes(|_| 1), machine),
        Machine::Gpu(machine) => gpu::space(task, machine),
        Machine::Core(machine) => core::space(task, machine),
    }
}

/// All schedules of a task on a target.
#[derive(Clone, Debug, PartialEq)]
pub struct Space {
    /// Which template makes the moves.
    pub template: Template,
    /// The axes, in the order the moves are made.
    pub axes: Vec<Axis>,
    /// The point used when nothing is searched.
    pub default: Knobs,
    limits: Limits,
}

/// One choice of a space.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// Its name, as in records.
    pub name: &'static str,
    /// What it decides.
    pub meaning: &'static str,
    /// The settings it may take.
    pub settings: Vec<Setting>,
}

/// The moves a family of operators needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Template {
    /// Convolutions and matrix products: register tiles of the output.
    Contraction,
    /// Everything whose output elements are independent.
    Spatial,
    /// Normalisations and whatever else computes several things of each row.
    Rows,
}

/// Bounds that a single axis cannot state.
#[derive(Clone, Debug, PartialEq)]
enum Limits {
    /// Those of a CPU's registers and of the time a build may take.
    Registers {
        /// Elements of one register tile.
        tile_elements: i64,
        /// Elements of one register tile times the reduction steps written out: bounds the time of a build.
        unrolled_elements: i64,
        /// Columns of a convolution's window.
        window: i64,
        /// Tiles of the result that Winograd's products of 2 x 2 and of 4 x 4 have, where they can be used.
        tiles: Option<[winograd::Tiles; 2]>,
        /// Registers for sums of products of bytes.
        sums: i64,
        /// The loops over tiles.
        loops: beyond::Loops,
        /// What blocks must divide where the second operand of a product is not copied.
        whole: Option<i64>,
    },
    /// Those of a GPU.
    Device(gpu::Limits),
    /// Those of a board's core.
    Core(core::CoreLimits),
}

/// Whether a compiler makes good code of vectors of this many elements: short ones and powers of two.
fn is_vector(width: i64) -> bool {
    width <= 16 || width.count_ones() == 1
}

impl Space {
    /// A space without limits: every setting goes with every other.
    pub fn free(template: Template, axes: Vec<Axis>, default: Knobs) -> Space {
        Space { template, axes, default, limits: declare::UNLIMITED }
    }

    /// The setting of an axis that a point has which does not name it: the one that leaves the move out.
    pub fn neutral(name: &str) -> Option<Setting> {
        match name {
            "cache_c" | "cache_y" | "cache_x" | "cache_r" | "grain" => Some(Setting::Number(1)),
            "strip" => Some(Setting::Number(0)),
            "sum_at" | "write_at" => Some(axes::choice("tile")),
            "copy_at" => Some(axes::choice("no")),
            "windows" => Some(axes::choice("whole")),
            _ => None,
        }
    }

    /// Number of points before limits; saturates.
    pub fn size(&self) -> u64 {
        self.axes.iter().fold(1u64, |size, axis| size.saturating_mul(axis.settings.len() as u64))
    }
}
