//! How a layer is cut: the inner parts of its extents, and how many parts take turns.

use serde::{Deserialize, Serialize};

/// Inner parts of extents, in elements of the core, and threads that take turns so that one's loads hide behind the
/// other's products.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Knobs {
    /// Elements of batch that are on the core together.
    pub tile_b: u32,
    /// Rows of the result.
    pub tile_h: u32,
    /// Places of a row.
    pub tile_w: u32,
    /// Blocks of channels of the data that are loaded together.
    pub tile_ci: u32,
    /// Blocks of channels of the result.
    pub tile_co: u32,
    /// Threads over channels of the result, 1 or 2.
    pub oc_threads: u32,
    /// Threads over rows, 1 or 2.
    pub h_threads: u32,
}

impl Knobs {
    /// Their names, in order.
    pub const NAMES: [&str; 7] = ["tile_b", "tile_h", "tile_w", "tile_ci", "tile_co", "oc_nthread", "h_nthread"];

    /// What is the least of everything.
    pub const LEAST: Knobs =
        Knobs { tile_b: 1, tile_h: 1, tile_w: 1, tile_ci: 1, tile_co: 1, oc_threads: 1, h_threads: 1 };

    /// The numbers, in the order of their names.
    pub fn numbers(&self) -> [u32; 7] {
        let Knobs { tile_b, tile_h, tile_w, tile_ci, tile_co, oc_threads, h_threads } = *self;
        [tile_b, tile_h, tile_w, tile_ci, tile_co, oc_threads, h_threads]
    }

    /// From numbers in the order of their names.
    pub fn of([tile_b, tile_h, tile_w, tile_ci, tile_co, oc_threads, h_threads]: [u32; 7]) -> Knobs {
        Knobs { tile_b, tile_h, tile_w, tile_ci, tile_co, oc_threads, h_threads }
    }
}
