//! Tiling parameters of a layer.

use serde::{Deserialize, Serialize};

/// Tile sizes in elements, and numbers of virtual threads. Of two threads, one loads while the other multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Knobs {
    /// Batch elements (groups of `Core::batch` images) per tile.
    pub tile_b: u32,
    pub tile_h: u32,
    pub tile_w: u32,
    /// Input channel blocks loaded at once per tile.
    pub tile_ci: u32,
    /// Output channel blocks per tile.
    pub tile_co: u32,
    /// Number of virtual threads over output channels, 1 or 2.
    pub oc_threads: u32,
    /// Number of virtual threads over result rows, 1 or 2.
    pub h_threads: u32,
}

impl Knobs {
    pub const NAMES: [&str; 7] = ["tile_b", "tile_h", "tile_w", "tile_ci", "tile_co", "oc_nthread", "h_nthread"];

    pub const LEAST: Knobs =
        Knobs { tile_b: 1, tile_h: 1, tile_w: 1, tile_ci: 1, tile_co: 1, oc_threads: 1, h_threads: 1 };

    /// Returns the knobs in the order of `NAMES`.
    pub fn as_array(&self) -> [u32; 7] {
        let Knobs { tile_b, tile_h, tile_w, tile_ci, tile_co, oc_threads, h_threads } = *self;
        [tile_b, tile_h, tile_w, tile_ci, tile_co, oc_threads, h_threads]
    }

    pub fn from_array([tile_b, tile_h, tile_w, tile_ci, tile_co, oc_threads, h_threads]: [u32; 7]) -> Knobs {
        Knobs { tile_b, tile_h, tile_w, tile_ci, tile_co, oc_threads, h_threads }
    }
}
