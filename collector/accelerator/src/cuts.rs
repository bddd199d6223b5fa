//! Tilings of a layer: the choices of each knob, and the default.

use crate::core::Core;
use crate::fit::check_fit;
use crate::knobs::Knobs;
use crate::layer::{Kind, Layer};

/// Returns the possible values of each tiling parameter. Not all combinations of them fit on the core.
pub fn knob_choices(core: &Core, layer: &Layer) -> [Vec<u32>; 7] {
    let [height, width] = layer.output_extents();
    let [batches, _, blocks_out] = layer.block_counts(core);
    let summed = layer.summed_blocks(core).max(1);
    let threads = |tiles: u32| if tiles.is_multiple_of(2) { vec![1, 2] } else { vec![1] };
    [
        list_divisors(batches),
        list_divisors(height),
        list_divisors(width),
        list_divisors(summed),
        list_divisors(blocks_out),
        threads(blocks_out),
        threads(height),
    ]
}

/// Returns the fitting tiling with the highest `score_tiling` and at most two threads. `None` if none fits.
pub fn default_knobs(core: &Core, layer: &Layer) -> Option<Knobs> {
    let [batches, heights, widths, depths, blocks, oc_threads, h_threads] = knob_choices(core, layer);
    let mut best: Option<((u64, u64, u64, u64), Knobs)> = None;
    // Whole rows make long bursts, so the widest tiles are tried first.
    for &tile_w in widths.iter().rev() {
        for (&tile_h, &tile_co) in heights.iter().flat_map(|h| blocks.iter().map(move |c| (h, c))) {
            for (&oc, &h) in oc_threads.iter().flat_map(|o| h_threads.iter().map(move |h| (o, h))) {
                let threads = oc * h;
                if threads > 2 {
                    continue;
                }
                for (&tile_ci, &tile_b) in depths.iter().flat_map(|d| batches.iter().map(move |b| (d, b))) {
                    let knobs = Knobs { tile_b, tile_h, tile_w, tile_ci, tile_co, oc_threads: oc, h_threads: h };
                    if check_fit(core, layer, &knobs).is_err() {
                        continue;
                    }
                    let score = score_tiling(layer, &knobs);
                    if best.as_ref().is_none_or(|(known, _)| score > *known) {
                        best = Some((score, knobs));
                    }
                }
            }
        }
    }
    best.map(|(_, knobs)| knobs)
}

/// Returns a sort key, highest for the best tiling: virtual threads, sums per loaded element, sums per tile, and input
/// blocks per load.
fn score_tiling(layer: &Layer, knobs: &Knobs) -> (u64, u64, u64, u64) {
    let Knobs { tile_b, tile_h, tile_w, tile_ci, tile_co, oc_threads, h_threads } = *knobs;
    let places = u64::from(tile_b) * u64::from(tile_h) * u64::from(tile_w);
    let sums = places * u64::from(tile_co);
    let taps = u64::from(layer.kernel[0] * layer.kernel[1]);
    // One element of weights is as large as 16 elements of data.
    let loaded = match layer.kind {
        Kind::Elementwise => 4 * sums,
        Kind::Depthwise => sums + 16 * u64::from(tile_co) * taps,
        Kind::Convolution => places + 16 * u64::from(tile_co) * taps,
    };
    (u64::from(oc_threads * h_threads), 1000 * sums / loaded.max(1), sums, u64::from(tile_ci))
}

fn list_divisors(extent: u32) -> Vec<u32> {
    (1..=extent.max(1)).filter(|number| extent.max(1).is_multiple_of(*number)).collect()
}
