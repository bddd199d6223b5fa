//! What the knobs of a schedule mean for an operator of these sizes: tiles and what they leave over, how the tiles fall on
//! threads, what has to stay near while one is computed.
//!
//! Knobs alone say little across shapes: a tile of eight columns is good where eight divides the columns. The names are
//! those of the collector's templates for CPUs; schedules without these knobs get none of these features.

use super::device::Device;
use super::work::{Form, RANK, Work};
use std::collections::BTreeMap;

/// Vector registers of the larger vector extensions.
const REGISTERS: f64 = 32.0;

/// Adds the features that follow from the knobs among the extras.
pub fn add(work: &Work, device: &Device, threads: f64, extras: &mut BTreeMap<String, f64>) {
    if work.rank == 0 {
        return;
    }
    let knobs = Knobs { extras, lanes: (device.flops_per_cycle / 4.0).max(1.0) };
    let found = match (knobs.number("tile_x"), knobs.number("vector")) {
        (Some(across), _) => contraction(work, device, threads, &knobs, across),
        (None, Some(vector)) => spatial(work, threads, &knobs, vector),
        (None, None) => return,
    };
    extras.extend(found.into_iter().map(|(name, value)| (format!("tiling.{name}"), value)));
}

/// Threads that the schedule gives something to do: all, where it does not say how many pieces there are.
pub fn busy_threads(threads: f64, extras: &BTreeMap<String, f64>) -> f64 {
    extras.get("tiling.chunks").map_or(threads, |chunks| threads.min(chunks.exp2().round().max(1.0)))
}

/// Whether a knob may have this setting for these sizes, as far as a tile must divide what it is a tile of, and a vector not be
/// longer than its row. Whether schedules are tiles of the result says whose knob it is.
pub fn fits(work: &Work, knob: &str, setting: f64, has_tiles: bool) -> bool {
    if work.rank == 0 || setting <= 1.0 {
        return true;
    }
    let divides = |extent: f64| extent % setting == 0.0;
    let columns = work.output[work.rank - 1];
    if !has_tiles {
        return match knob {
            "vector" => setting <= columns,
            "parallel" => setting <= (work.rank as f64 - 1.0).max(1.0),
            _ => true,
        };
    }
    let places = Places::of(work, work.form == Form::Convolution && work.rank >= 3);
    match knob {
        "tile_c" => divides(work.output[places.channels]),
        "tile_x" => divides(work.output[places.columns]),
        "tile_y" => divides(places.rows.map_or(1.0, |rows| work.output[rows])),
        "split_r" => divides((work.depth / work.taps.max(1.0)).round() * work.groups),
        _ => true,
    }
}

struct Knobs<'a> {
    extras: &'a BTreeMap<String, f64>,
    /// Elements in a vector register.
    lanes: f64,
}

impl Knobs<'_> {
    fn number(&self, name: &str) -> Option<f64> {
        self.extras.get(&format!("knob.{name}")).copied().filter(|value| *value >= 1.0)
    }

    fn is(&self, name: &str, word: &str) -> bool {
        self.extras.contains_key(&format!("knob.{name}={word}"))
    }
}

type Found = Vec<(&'static str, f64)>;

/// A tile of the output in registers, and the loops over such tiles.
fn contraction(work: &Work, device: &Device, threads: f64, knobs: &Knobs<'_>, across: f64) -> Found {
    let lanes = knobs.lanes;
    let is_conv = work.form == Form::Convolution && work.rank >= 3;
    let is_blocked = knobs.is("layout", "blocked");
    let block = if is_blocked { knobs.number("block").unwrap_or(1.0) } else { 1.0 };
    let in_tile = knobs.number("tile_c").unwrap_or(1.0);
    let (channels, down) = (in_tile * block, knobs.number("tile_y").unwrap_or(1.0));
    let places = Places::of(work, is_conv);
    // Vectors go over channels, except for plain convolutions, where they go over columns.
    let (vectors, positions, own) = match (is_blocked, is_conv) {
        (true, _) => (in_tile * (block / lanes).ceil(), across * down, block),
        (false, true) => ((across / lanes).ceil(), in_tile * down, across),
        (false, false) => ((in_tile / lanes).ceil(), across, in_tile),
    };
    let accumulators = vectors * positions;
    let mut tile = [1.0; RANK];
    tile[places.channels] = channels;
    tile[places.columns] = across;
    if let Some(rows) = places.rows {
        tile[rows] = down;
    }
    let count = |place: usize| (work.output[place] / tile[place]).ceil();
    let used = |place: usize| work.output[place] / (count(place) * tile[place]);
    let mut outer: Vec<f64> = (0..work.rank).map(count).collect();
    let moved = outer.remove(places.channels);
    let first = if is_conv { 1 } else { work.rank.saturating_sub(2) };
    let to = if knobs.is("outer", "channels") { first.min(outer.len()) } else { outer.len() };
    outer.insert(to, moved);
    let tiles: f64 = outer.iter().product();
    let chunks = chunks(&outer, knobs);
    let kernel = work.taps.sqrt();
    let inputs = (work.depth / work.taps.max(1.0)).max(1.0);
    let window = |extent: f64| (extent - 1.0) * work.stride + kernel;
    let input_tile =
        if is_conv { window(across) * window(down) * inputs } else { across * work.depth } * work.element_bytes;
    let weight_tile = channels * work.depth * work.element_bytes;
    let split = knobs.number("split_r").unwrap_or(1.0);
    let is_unrolled = knobs.number("unroll").is_some();
    let inner = match () {
        () if split > 1.0 => split,
        () if knobs.is("order", "depth_first") => kernel,
        () => 1.0,
    };
    let written_out = accumulators * if is_unrolled { inner } else { 1.0 };
    let near = device.near_bytes.max(1.0);
    let mut found = vec![
        ("accumulators", accumulators),
        ("spilled", (accumulators + vectors + 1.0) / REGISTERS),
        ("loads_per_step", (vectors + positions) / accumulators),
        ("lanes_used", own / ((own / lanes).ceil() * lanes)),
        ("channels_used", used(places.channels)),
        ("columns_used", used(places.columns)),
        ("rows_used", places.rows.map_or(1.0, used)),
        ("tiles", tiles.log2()),
        ("steps", work.depth.log2()),
        ("inner_steps", inner),
        ("written_out", written_out.log2()),
        ("weight_tile_of_near", (weight_tile / near).log2()),
        ("weight_tile_of_cache", (weight_tile / device.cache_bytes).log2()),
        ("input_tile_of_near", (input_tile / near).log2()),
        ("input_tile_of_cache", (input_tile / device.cache_bytes).log2()),
        ("split_used", work.depth / ((work.depth / split).ceil() * split)),
    ];
    found.extend(shared(work, threads, chunks));
    found
}

/// Columns in vectors, the other dimensions outside.
fn spatial(work: &Work, threads: f64, knobs: &Knobs<'_>, vector: f64) -> Found {
    let columns = work.output[work.rank - 1];
    let outer: Vec<f64> = work.output[..work.rank - 1].to_vec();
    let mut found = vec![
        ("columns_used", columns / ((columns / vector).ceil() * vector)),
        ("lanes_used", vector / ((vector / knobs.lanes).ceil() * knobs.lanes)),
    ];
    if knobs.number("parallel").is_some() {
        found.extend(shared(work, threads, chunks(&outer, knobs)));
    }
    found
}

/// Pieces that the pool hands out: the first loops, as many as the knob says.
fn chunks(outer: &[f64], knobs: &Knobs<'_>) -> f64 {
    let fused = knobs.number("parallel").unwrap_or(1.0).min(outer.len() as f64) as usize;
    outer.iter().take(fused).product()
}

/// How pieces fall on threads.
fn shared(work: &Work, threads: f64, chunks: f64) -> Found {
    vec![
        ("chunks", chunks.log2()),
        ("chunks_shared", chunks / ((chunks / threads).ceil() * threads)),
        ("flops_per_chunk", (work.flops.max(1.0) / chunks).log2()),
        ("bytes_per_chunk", (work.bytes() / chunks).log2()),
    ]
}

/// Which dimension of the output is what.
struct Places {
    channels: usize,
    columns: usize,
    rows: Option<usize>,
}

impl Places {
    fn of(work: &Work, is_conv: bool) -> Places {
        let rank = work.rank;
        match is_conv {
            true => Places { channels: 1, columns: rank - 1, rows: (rank > 3).then(|| rank - 2) },
            false => Places { channels: rank - 1, columns: rank.saturating_sub(2), rows: None },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn features(work: &Work, knobs: &[(&str, f64)]) -> BTreeMap<String, f64> {
        let device = Device {
            units: 2.0,
            flops_per_cycle: 64.0,
            clock_ghz: 2.0,
            bandwidth_gb_per_s: 20.0,
            cache_bytes: 2097152.0,
            near_bytes: 49152.0,
            memory_bytes: 0.0,
            generation: 0.0,
            peaks: None,
        };
        let mut extras = knobs.iter().map(|(name, value)| (format!("knob.{name}"), *value)).collect();
        add(work, &device, 2.0, &mut extras);
        extras
    }

    #[test]
    fn a_blocked_convolution_is_counted_as_its_schedule_runs() {
        // 64 channels of 56 x 56, in blocks of 16 channels: 4 blocks, 14 columns and 2 rows in a tile.
        let work = Work::convolution(1.0, 64.0, 64.0, 3.0, 56.0, 1.0, 1.0);
        let knobs = [("layout=blocked", 1.0), ("block", 16.0), ("tile_c", 2.0), ("tile_x", 14.0), ("tile_y", 2.0)];
        let found = features(&work, &[&knobs[..], &[("outer=channels", 1.0), ("parallel", 2.0)]].concat());
        assert_eq!(found["tiling.accumulators"], 2.0 * 28.0);
        assert_eq!(found["tiling.loads_per_step"], 30.0 / 56.0);
        assert_eq!(found["tiling.chunks"], 1.0, "one image, two pairs of blocks");
        assert_eq!(found["tiling.chunks_shared"], 1.0);
        assert_eq!(found["tiling.tiles"], (2.0f64 * 28.0 * 4.0).log2());
        assert_eq!(found["tiling.columns_used"], 1.0);
        let outside = features(&work, &[&knobs[..], &[("outer=space", 1.0), ("parallel", 2.0)]].concat());
        assert_eq!(outside["tiling.chunks"], 28f64.log2(), "one image, rows of tiles");
    }

    #[test]
    fn what_no_template_made_gets_no_features() {
        let work = Work::contraction(1.0, 64.0, 64.0, 64.0, false);
        assert_eq!(features(&work, &[("from=trace", 1.0)]).len(), 1);
    }
}
