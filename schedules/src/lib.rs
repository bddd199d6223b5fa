//! Schedules: a space is a list of axes with possible settings, and a schedule is a point, with one setting per axis.
//! Declaring, counting and sampling are pure functions: the same task, machine and seed give the same schedules in the
//! same order. [`LoopNest`] is the single description of the loops that a template generates.

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
pub use canonical::{NEWEST_AXIS, canonical_knobs, find_declaration};
pub use declare::cpu_space;
pub use domain::{Domain, Form, Walk};
pub use filter::{Filter, FilterError};
pub use knobs::{Knobs, Setting, Settings};
pub use machine::{Cpu, Gpu};
pub use nest::{Dimension, LoopNest, Mark, NestLoop};
pub use packing::Packing;
pub use product::{FRAGMENT, OperandSide, Product, WARP_THREADS};
pub use rules::Rule;
pub use sample::{nth_point, sample_points};
pub use stored::{ByTaps, Layout};
pub use template::{rows_of, task_template};

#[derive(Clone, Debug, PartialEq)]
pub struct Space {
    pub template: Template,
    /// Axes, in the order in which their transformations are applied.
    pub axes: Vec<Axis>,
    pub default: Knobs,
    limits: SpaceLimits,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    pub name: &'static str,
    pub meaning: &'static str,
    pub settings: Vec<Setting>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Template {
    /// Convolutions and matrix products, with register tiles of the result.
    Contraction,
    /// Operators whose result elements are independent.
    Spatial,
    /// Normalisations and other operators that compute intermediate results per row.
    Rows,
}

#[derive(Clone, Debug, PartialEq)]
enum SpaceLimits {
    Registers {
        tile_elements: i64,
        /// Maximum of tile elements times unrolled steps; it bounds build time.
        unrolled_elements: i64,
        window: i64,
        /// Numbers of tiles in Winograd's algorithm with 2 × 2 and 4 × 4 tiles; None if it is not applicable.
        tiles: Option<[winograd::Tiles; 2]>,
        sums: i64,
        domain: Domain,
        /// Extent that channel blocks must divide if the second operand of a product is not copied.
        whole: Option<i64>,
    },
    Device(gpu::GpuLimits),
    Core(core::CoreLimits),
}

/// Returns whether compilers generate good code for vectors of this width: short ones and powers of two.
fn is_vector(width: i64) -> bool {
    width <= 16 || width.count_ones() == 1
}

impl Space {
    pub fn without_limits(template: Template, axes: Vec<Axis>, default: Knobs) -> Space {
        Space { template, axes, default, limits: declare::no_limits() }
    }

    /// Returns the setting that has no effect, which applies to schedules that do not name the axis.
    pub fn neutral_setting(name: &str) -> Option<Setting> {
        find_declaration(name)?.neutral_setting()
    }

    /// Returns the first knob whose setting the space lacks, with its axis if the space has one.
    pub fn foreign_knob<'a>(&self, knobs: &'a Knobs) -> Option<(&'a str, &'a Setting, Option<&Axis>)> {
        let with_axis = |(name, setting): (&'a String, &'a Setting)| {
            (name.as_str(), setting, self.axes.iter().find(|axis| axis.name == *name))
        };
        let is_foreign = |(_, setting, axis): &(&str, &Setting, Option<&Axis>)| {
            !axis.is_some_and(|axis| axis.settings.contains(setting))
        };
        knobs.0.iter().map(with_axis).find(is_foreign)
    }

    /// Returns the number of points, including those that the limits reject; saturates.
    pub fn point_count(&self) -> u64 {
        self.axes.iter().fold(1u64, |size, axis| size.saturating_mul(axis.settings.len() as u64))
    }
}
