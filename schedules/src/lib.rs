//! Schedules: what there is to choose, and what a choice does to a task.
//!
//! A space is a list of axes that can be read: each has a name and the settings it may take, and a point of the
//! space is one setting per axis. Declaring, counting and sampling need no compiler and are pure: the same task, machine
//! and seed give the same schedules in the same order. [`LoopNest`] is the one description of the loops that a template makes
//! of a task by a point.

mod attention;
pub mod axes;
mod canonical;
pub mod choices;
pub mod contraction;
mod core;
pub mod declare;
mod domain;
pub mod dots;
mod extents;
mod filter;
pub mod flat;
pub mod gpu;
mod knobs;
mod machine;
mod nest;
pub mod order;
mod packing;
pub mod phases;
mod pool;
pub mod pools;
mod product;
mod register_tile;
mod rules;
mod sample;
mod stored;
mod taps;
mod template;
pub mod tiles;
pub mod transforms;
pub mod winograd;

pub use self::core::{core_knobs, core_space};
pub use attention::{Sight, UNSEEN};
pub use canonical::{canonical, declaration};
pub use declare::cpu_space;
pub use domain::{Domain, Form, Walk};
pub use filter::{Filter, FilterError};
pub use knobs::{Knobs, Setting, Settings};
pub use machine::{Cpu, Gpu};
pub use nest::{Dimension, LoopNest, Mark, NestLoop};
pub use packing::Packing;
pub use product::{FRAGMENT, OperandSide, Product, WARP_THREADS};
pub use rules::Rule;
pub use sample::{point, sample};
pub use stored::{ByTaps, Layout};
pub use template::{rows_of, template};

/// All schedules of a task on a machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Space {
    pub template: Template,
    /// The axes, in the order the moves are made.
    pub axes: Vec<Axis>,
    /// The point used when nothing is searched.
    pub default: Knobs,
    limits: SpaceLimits,
}

/// One choice of a space.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    pub name: &'static str,
    pub meaning: &'static str,
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
enum SpaceLimits {
    /// Those of a CPU's registers and of the time a build may take.
    Registers {
        tile_elements: i64,
        /// Elements of one register tile times the reduction steps written out: bounds the time of a build.
        unrolled_elements: i64,
        /// Columns of a convolution's window.
        window: i64,
        /// Tiles of the result that Winograd's products of 2 x 2 and of 4 x 4 have, where they can be used.
        tiles: Option<[winograd::Tiles; 2]>,
        /// Registers for sums of products of bytes.
        sums: i64,
        /// What tiles are made of.
        domain: Domain,
        /// What blocks must divide where the second operand of a product is not copied.
        whole: Option<i64>,
    },
    Device(gpu::GpuLimits),
    Core(core::CoreLimits),
}

/// Whether a compiler makes good code of vectors of this many elements: short ones and powers of two.
fn is_vector(width: i64) -> bool {
    width <= 16 || width.count_ones() == 1
}

impl Space {
    /// A space without limits: every setting goes with every other.
    pub fn free(template: Template, axes: Vec<Axis>, default: Knobs) -> Space {
        Space { template, axes, default, limits: declare::unlimited() }
    }

    /// The setting of an axis that a point has which does not name it: the one that leaves the move out.
    pub fn neutral(name: &str) -> Option<Setting> {
        declaration(name)?.neutral()
    }

    /// Number of points before limits; saturates.
    pub fn size(&self) -> u64 {
        self.axes.iter().fold(1u64, |size, axis| size.saturating_mul(axis.settings.len() as u64))
    }
}
