//! How a layer is cut: the inner parts of its extents, and how many parts take turns.

use crate::core::Core;
use crate::fit::fits;
use crate::layer::{Kind, Layer};
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

/// What each knob may be, whether or not all go together.
pub fn choices(core: &Core, layer: &Layer) -> [Vec<u32>; 7] {
    let [height, width] = layer.output();
    let [batches, _, blocks_out] = layer.blocks(core);
    let summed = layer.summed_blocks(core).max(1);
    let threads = |tiles: u32| if tiles.is_multiple_of(2) { vec![1, 2] } else { vec![1] };
    [
        divisors(batches),
        divisors(height),
        divisors(width),
        divisors(summed),
        divisors(blocks_out),
        threads(blocks_out),
        threads(height),
    ]
}

/// A cut that fits and keeps the core busy: two threads where there can be, then the largest tile, then the deepest loads.
/// Nothing where nothing fits.
pub fn default_knobs(core: &Core, layer: &Layer) -> Option<Knobs> {
    let [batches, heights, widths, depths, blocks, oc_threads, h_threads] = choices(core, layer);
    let mut best: Option<((u64, u64, u64, u64), Knobs)> = None;
    // Whole rows make long bursts, so the widest that fits is looked for first.
    for &tile_w in widths.iter().rev() {
        for (&tile_h, &tile_co) in heights.iter().flat_map(|h| blocks.iter().map(move |c| (h, c))) {
            for (&oc, &h) in oc_threads.iter().flat_map(|o| h_threads.iter().map(move |h| (o, h))) {
                let threads = oc * h;
                if threads > 2 {
                    continue;
                }
                for (&tile_ci, &tile_b) in depths.iter().flat_map(|d| batches.iter().map(move |b| (d, b))) {
                    let knobs = Knobs { tile_b, tile_h, tile_w, tile_ci, tile_co, oc_threads: oc, h_threads: h };
                    if fits(core, layer, &knobs).is_err() {
                        continue;
                    }
                    let score = score(layer, &knobs);
                    if best.as_ref().is_none_or(|(known, _)| score > *known) {
                        best = Some((score, knobs));
                    }
                }
            }
        }
    }
    best.map(|(_, knobs)| knobs)
}

/// The order of preference: work in pairs of threads, the sums of a tile for each element it loads, its sums, its depth.
fn score(layer: &Layer, knobs: &Knobs) -> (u64, u64, u64, u64) {
    let Knobs { tile_b, tile_h, tile_w, tile_ci, tile_co, oc_threads, h_threads } = *knobs;
    let places = u64::from(tile_b) * u64::from(tile_h) * u64::from(tile_w);
    let sums = places * u64::from(tile_co);
    let taps = u64::from(layer.kernel[0] * layer.kernel[1]);
    // An element of weights is 16 vectors of data.
    let loaded = match layer.kind {
        Kind::Elementwise => 4 * sums,
        Kind::Depthwise => sums + 16 * u64::from(tile_co) * taps,
        Kind::Convolution => places + 16 * u64::from(tile_co) * taps,
    };
    (u64::from(oc_threads * h_threads), 1000 * sums / loaded.max(1), sums, u64::from(tile_ci))
}

fn divisors(extent: u32) -> Vec<u32> {
    (1..=extent.max(1)).filter(|number| extent.max(1).is_multiple_of(*number)).collect()
}
