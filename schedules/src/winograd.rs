//! Adds Winograd's algorithm to the space of 3 × 3 convolutions, and estimates where it pays.

use super::axes::{ALGORITHM, BLOCK, Declaration, NumberAxis, Ways, divisors};
use super::choices::Algorithm;
use super::{Setting, Space, SpaceLimits};
use crate::machine::Cpu;
use crate::register_tile::has_few_registers;
use crate::tiles::filled_extent;
use crate::transforms::{KERNEL, LANES, tile_transforms};
use models::operators::Conv;
use models::{Choice, DType, Op, Task};

/// Maximum number of tiles in a register tile, so that they fit the registers with a block of channels.
const TILES_MAX: i64 = 28;

pub static TILE_P: NumberAxis = NumberAxis::new("tile_p").with_ways(Ways::WINOGRAD);
/// Rows of tiles per strip, which passes through all steps of the algorithm before the next strip; 0 for all rows.
pub static STRIP: NumberAxis = NumberAxis::new("strip").with_neutral(0).with_ways(Ways::WINOGRAD);

pub(crate) static AXES: &[&Declaration] = &[&TILE_P.0, &STRIP.0];

const STRIPS: [i64; 5] = [0, 1, 2, 4, 8];

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Tiles {
    images: i64,
    pub(crate) rows: i64,
    columns: i64,
}

impl Tiles {
    pub(crate) fn tile_count(self) -> i64 {
        self.images * self.rows * self.columns
    }

    /// Returns the number of tiles in a strip of this many rows of tiles; 0 stands for all rows.
    fn strip_tiles(self, strip: i64) -> i64 {
        if strip == 0 { self.tile_count() } else { strip * self.columns }
    }

    pub(crate) fn allows_strip(self, strip: i64, places: i64) -> bool {
        (strip == 0 || self.rows % strip == 0) && self.strip_tiles(strip) % places == 0
    }
}

struct WinogradShape {
    images: i64,
    sources: i64,
    channels: i64,
    places: [i64; 2],
}

/// Adds Winograd's algorithm to the space of a suitable task; makes it the default if it is estimated to be faster.
pub(crate) fn add_winograd(space: &mut Space, task: &Task, machine: &Cpu) {
    let Some(shape) = winograd_shape(task) else { return };
    let Some(blocks) = space.axes.iter().find(|axis| axis.name == BLOCK.0.name) else { return };
    let number = |setting: &Setting| match setting {
        Setting::Number(number) => Some(*number),
        Setting::Choice(_) => None,
    };
    let blocks: Vec<i64> = blocks.settings.iter().filter_map(number).collect();
    let tiles = [2, 4].map(|tile| shape.split_tiles(tile));
    if let SpaceLimits::Registers { tiles: place, .. } = &mut space.limits {
        *place = Some(tiles);
    }
    let algorithms = ALGORITHM.to_axis(
        "direct convolution, or Winograd's algorithm, which needs fewer multiplications",
        Algorithm::ALL.iter().copied(),
    );
    space.axes.insert(0, algorithms);
    let fits = |places: &i64| tiles.iter().any(|tiles| STRIPS.iter().any(|&strip| tiles.allows_strip(strip, *places)));
    space.axes.push(TILE_P.to_axis("tiles in one register tile (winograd)", (1..=TILES_MAX).filter(fits)));
    let divides = |strip: &i64| tiles.iter().any(|tiles| tiles.allows_strip(*strip, 1));
    let text = "rows of tiles per strip, which passes through all steps at once; 0 for all rows (winograd)";
    space.axes.push(STRIP.to_axis(text, STRIPS.into_iter().filter(divides)));
    let knobs = &mut space.default;
    let best = [2, 4].into_iter().flat_map(|tile| shape.best_tile(tile, machine, &blocks));
    match best.min_by(|a, b| a.cost.total_cmp(&b.cost)).filter(|best| best.cost < shape.direct_cost(machine)) {
        Some(best) => {
            knobs.0.clear();
            ALGORITHM.set(knobs, if best.tile == 2 { Algorithm::Winograd2 } else { Algorithm::Winograd4 });
            BLOCK.set(knobs, best.block);
            TILE_P.set(knobs, best.places);
            if best.strip > 0 {
                STRIP.set(knobs, best.strip);
            }
        }
        None => ALGORITHM.set(knobs, Algorithm::Direct),
    }
}

fn winograd_shape(task: &Task) -> Option<WinogradShape> {
    let anchor = &task.steps[0];
    let Op::Conv(Conv { strides, dilations, groups: 1, .. }) = &anchor.op else { return None };
    let weight = task.parameters.get(1).filter(|weight| weight.is_constant && weight.ty.dtype == DType::F32)?;
    let [channels, sources, height, width] = weight.ty.extents()?[..] else { return None };
    let [images, _, rows, columns] = anchor.output.extents()?[..] else { return None };
    let is_small = [height, width] == [KERNEL as i64; 2] && strides[..] == [1, 1] && dilations[..] == [1, 1];
    (is_small && sources % LANES == 0).then_some(WinogradShape { images, sources, channels, places: [rows, columns] })
}

struct BestTile {
    tile: i64,
    block: i64,
    places: i64,
    strip: i64,
    cost: f64,
}

/// Costs, in floating-point operations of a matrix product; fitted on cores with 512-bit vectors.
mod cost {
    pub(crate) const LANES: i64 = 16;
    /// Cost of loading a byte of the filters, which come from memory when a whole model runs.
    pub(crate) const BYTE: f64 = 15.0;
    /// `BYTE` for cores with narrower or half-width vectors, which hide more latency.
    pub(crate) const BYTE_OF_HALVES: f64 = 3.0;
    /// Cost of transforming an element of the input or the result, for 2 × 2 and 4 × 4 tiles.
    pub(crate) const ELEMENT: [f64; 2] = [150.0, 110.0];
    /// `ELEMENT` for machines with few registers, fitted with code for `x86-64-v3`. Direct convolutions are slower there,
    /// so that transforms cost less in comparison.
    pub(crate) const ELEMENT_OF_FEW: [f64; 2] = [55.0, 40.0];
    /// Loads per multiply-add whose cost a register tile hides.
    pub(crate) const HIDDEN_LOADS: f64 = 0.65;
    /// Maximum number of accumulators that leaves enough registers for operands.
    pub(crate) const EASY_ACCUMULATORS: i64 = 18;
    /// Maximum cost relative to direct convolution, so that small estimated gains are ignored.
    pub(crate) const MARGIN: f64 = 0.9;
}

impl WinogradShape {
    fn split_tiles(&self, tile: i64) -> Tiles {
        let [rows, columns] = self.places.map(|places| (places + tile - 1) / tile);
        Tiles { images: self.images, rows, columns }
    }

    /// Returns candidates for the rows of tiles per strip (0 for all), each with the relative time of the products.
    /// Strips pay if their data, not the image's, stay in a core's caches, and tiles amortise loading the filters.
    fn strip_choices(&self, tiles: Tiles, window: i64, machine: &Cpu) -> Vec<(i64, f64)> {
        const KEPT: i64 = 1 << 20;
        const FAR: i64 = 3 << 20;
        /// Number of tiles that amortises loading filters from distant caches; `ENOUGH_OF_NARROW` is for narrower vectors.
        const ENOUGH: i64 = 28;
        const ENOUGH_OF_NARROW: i64 = 7;
        /// Factor on the time of computing the full height at once where strips would be faster.
        const WITHOUT: f64 = 1.15;
        let numbers = window * window * 4;
        let bytes = |tiles: i64| numbers * tiles * (self.sources + self.channels);
        let filters = numbers * self.sources * self.channels;
        if bytes(tiles.tile_count()) <= KEPT || filters > FAR {
            return vec![(0, 1.0)];
        }
        let enough = if machine.vector_lanes < cost::LANES { ENOUGH_OF_NARROW } else { ENOUGH };
        let fits = |strip: &i64| {
            tiles.allows_strip(*strip, 1)
                && (*strip == 1 || bytes(tiles.strip_tiles(*strip)) <= KEPT)
                && (filters <= KEPT || tiles.strip_tiles(*strip) >= enough)
        };
        let uneven = |strip: i64| {
            let strips = self.images * tiles.rows / strip;
            filled_extent(strips, machine.cores) as f64 / strips as f64
        };
        let strips = [1, 2].into_iter().filter(fits).map(|strip| (strip, uneven(strip)));
        [(0, WITHOUT)].into_iter().chain(strips).collect()
    }

    fn filter_cost(&self, numbers: i64, machine: &Cpu) -> f64 {
        let computes_halves = machine.is_halved || machine.vector_lanes < cost::LANES;
        let byte = if computes_halves { cost::BYTE_OF_HALVES } else { cost::BYTE };
        (numbers * self.sources * self.channels * 4) as f64 * byte
    }

    fn direct_cost(&self, machine: &Cpu) -> f64 {
        let taps = (KERNEL * KERNEL) as i64;
        let products = self.images * self.places[0] * self.places[1] * taps * self.sources * self.channels;
        (2.0 * products as f64 + self.filter_cost(taps, machine)) * cost::MARGIN
    }

    fn best_tile(&self, tile: i64, machine: &Cpu, blocks: &[i64]) -> Option<BestTile> {
        let window = tile_transforms(tile)?.window_extent();
        let all = self.split_tiles(tile);
        let tiles = all.tile_count();
        let elements = self.images * self.places[0] * self.places[1] * (self.sources + self.channels);
        let element = if has_few_registers(machine) { cost::ELEMENT_OF_FEW } else { cost::ELEMENT };
        let transforming = elements as f64 * element[usize::from(tile > 2)];
        let fixed = transforming + self.filter_cost(window * window, machine);
        let room = machine.vector_registers - 4;
        let of_block = |(strip, longer): (i64, f64), block: i64| {
            let vectors = (block + machine.vector_lanes - 1) / machine.vector_lanes;
            let stored = filled_extent(self.channels, block);
            let products = 2.0 * (window * window * tiles * self.sources * stored) as f64;
            let fits =
                divisors(all.strip_tiles(strip)).filter(move |&places| places <= TILES_MAX && places * vectors <= room);
            fits.map(move |places| {
                let loads = (vectors + places) as f64 / (vectors * places) as f64;
                let crowded = if vectors * places > cost::EASY_ACCUMULATORS { 1.1 } else { 1.0 };
                let slower = (loads / cost::HIDDEN_LOADS).max(1.0) * crowded * longer;
                BestTile { tile, block, places, strip, cost: fixed + products * slower }
            })
        };
        // With wider blocks, the windows do not fit the nearest cache.
        let blocks = blocks.iter().filter(|&&block| block >= machine.vector_lanes && block <= 2 * machine.vector_lanes);
        let cheaper = |best: Option<BestTile>, one: BestTile| match best {
            Some(best) if best.cost < one.cost => Some(best),
            _ => Some(one),
        };
        let strips = self.strip_choices(all, window, machine).into_iter();
        strips.flat_map(|strip| blocks.clone().flat_map(move |&block| of_block(strip, block))).fold(None, cheaper)
    }
}

#[cfg(test)]
mod tests {
    use crate::{Cpu, Knobs, cpu_space};
    use models::Fuse;

    const LARGE: &str = "conv2d:ci=512,hw=7,co=512,k=3,p=1";
    const SMALL: &str = "conv2d:ci=64,hw=56,co=64,k=3,p=1";

    fn default(machine: &Cpu, text: &str) -> Knobs {
        let graph = zoo::simple::build_operator(text).expect("an operator");
        let task = models::plan_calls(&graph, Fuse::Epilogue).expect("a plan").tasks.remove(0).task;
        cpu_space(&task, machine).default
    }

    #[test]
    fn strips_allow_tiles_that_hide_their_loads() {
        let of = |lanes: i64, cores: i64, text: &str| {
            let default = default(&Cpu::test(lanes, cores), text);
            ["block", "tile_p", "strip"].map(|name| default.number(name).unwrap_or(0))
        };
        let knobs = |lanes: i64, cores: i64| of(lanes, cores, SMALL);
        // A row of 14 tiles has no divisor of four for sixteen registers; two rows have one, with an equal load on one
        // core and a nearly equal one on two.
        assert_eq!(knobs(8, 1), [16, 4, 2]);
        assert_eq!(knobs(8, 2), [16, 4, 2]);
        assert_eq!(knobs(16, 2)[2], 1, "with more registers, one row has an equal load");
        let deep = "conv2d:ci=128,hw=28,co=128,k=3,p=1";
        assert_eq!(
            (of(8, 1, deep), of(16, 1, deep)[2]),
            ([8, 7, 1], 0),
            "seven tiles amortise the filters on some machines"
        );
    }

    #[test]
    fn large_filters_pay_if_products_are_slow() {
        let algorithm =
            |machine: &Cpu, text: &str| default(machine, text).choice("algorithm").expect("an algorithm").to_owned();
        let (whole, narrow) = (Cpu::test(16, 2), Cpu::test(8, 2));
        let halved = Cpu { is_halved: true, ..whole };
        assert_eq!(algorithm(&whole, LARGE), "direct");
        assert_eq!(algorithm(&halved, LARGE), "winograd2");
        assert!(algorithm(&narrow, LARGE).starts_with("winograd"));
        for machine in [whole, halved, narrow] {
            assert_eq!(algorithm(&machine, SMALL), "winograd4");
        }
    }
}
