//! Task × target → schedules.
//!
//! A space is a list of axes that can be read: each has a name and the settings it may take, and a point of the
//! space is one setting per axis. Declaring, counting and sampling need no TVM and are pure: the same task, target
//! and seed give the same schedules in the same order. Only `apply` talks to TVM, inside a builder.

mod attention;
mod axes;
mod core;
mod declare;
pub mod dots;
pub mod gpu;
mod pool;
mod sample;
mod schedule;
mod taps;
mod template;
mod winograd;

pub use self::core::core_knobs;
pub use attention::Sight;
pub use sample::{canonical, point, sample};
pub use schedule::{ByTaps, Functions, Knobs, Layout, Schedule, ScheduleError, Setting};
pub use template::{rows_of, template};

use crate::target::Machine;
use models::Task;

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
        /// Tiles of the result that Winograd's products of 2 x 2 and of 4 x 4 have, where they can be used.
        tiles: Option<[i64; 2]>,
        /// Registers for sums of products of bytes.
        sums: i64,
    },
    /// Those of a GPU.
    Device(gpu::Limits),
    /// Those of a board's core.
    Core(core::CoreLimits),
}

/// How much longer an element takes to compile by itself than as part of a vector.
const SCALAR_COST: i64 = 8;

/// Whether a compiler makes good code of vectors of this many elements: short ones and powers of two.
fn is_vector(width: i64) -> bool {
    width <= 16 || width.count_ones() == 1
}

impl Space {
    /// A space without limits: every setting goes with every other.
    pub fn free(template: Template, axes: Vec<Axis>, default: Knobs) -> Space {
        Space { template, axes, default, limits: declare::UNLIMITED }
    }

    /// Number of points before limits; saturates.
    pub fn size(&self) -> u64 {
        self.axes.iter().fold(1u64, |size, axis| size.saturating_mul(axis.settings.len() as u64))
    }

    /// Whether a point obeys the limits.
    pub fn allows(&self, knobs: &Knobs) -> bool {
        let (tile_elements, unrolled_elements, tiles, sums) = match &self.limits {
            Limits::Device(limits) => return limits.allow(knobs),
            Limits::Core(limits) => return limits.allow(knobs),
            Limits::Registers { tile_elements, unrolled_elements, tiles, sums } => {
                (*tile_elements, *unrolled_elements, *tiles, *sums)
            }
        };
        if dots::is_of_places(knobs) {
            return dots::allows(knobs, sums);
        }
        let number = |name: &str| knobs.number(name).unwrap_or(1);
        if let Some(tile) = knobs.winograd_tile() {
            let tiles = tiles.map_or(0, |[two, four]| if tile == 2 { two } else { four });
            let places = number("tile_p");
            return tiles > 0 && tiles % places == 0 && places * number("block") <= tile_elements;
        }
        let tile = number("tile_x") * number("tile_y") * number("tile_c");
        let is_blocked = matches!(knobs.choice("layout"), Some("blocked" | "dots"));
        let vector = if is_blocked { number("block") } else { 1 };
        let innermost = if is_blocked { vector } else { number("tile_x") };
        if knobs.choice("vectorize") == Some("yes") && !is_vector(innermost) {
            return false;
        }
        let steps = if knobs.number("unroll") == Some(1) { number("split_r") } else { 1 };
        let written_out = tile * vector * steps;
        // Single elements take the compiler far longer than vectors of them.
        let is_scalar = knobs.choice("vectorize") == Some("no");
        let written_out = if is_scalar { written_out.saturating_mul(SCALAR_COST) } else { written_out };
        tile * vector <= tile_elements && written_out <= unrolled_elements
    }
}
