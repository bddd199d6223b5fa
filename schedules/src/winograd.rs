//! Convolutions of 3 × 3 filters may save products by Winograd's transforms; a rule says where that pays.

use super::axes::{ALGORITHM, BLOCK, Declaration, NumberAxis, Ways, divisors};
use super::choices::Algorithm;
use super::{Setting, Space, SpaceLimits};
use crate::machine::Cpu;
use crate::tiles::filled;
use crate::transforms::{KERNEL, LANES, transforms};
use models::operators::Conv;
use models::{Choice, DType, Op, Task};

/// Tiles that fit the registers together with a block of channels.
const MOST_TILES: i64 = 28;

pub static TILE_P: NumberAxis = NumberAxis::new("tile_p").ways(Ways::WINOGRAD);
/// Rows of tiles that are taken through all steps at once, 0 for all.
pub static STRIP: NumberAxis = NumberAxis::new("strip").neutral(0).ways(Ways::WINOGRAD);

pub(crate) static AXES: &[&Declaration] = &[&TILE_P.0, &STRIP.0];

/// Rows of tiles that may be done at once.
const STRIPS: [i64; 5] = [0, 1, 2, 4, 8];

/// Tiles of a result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Tiles {
    images: i64,
    pub(crate) rows: i64,
    columns: i64,
}

impl Tiles {
    /// All there are.
    pub(crate) fn all(self) -> i64 {
        self.images * self.rows * self.columns
    }

    /// Strips of rows that pass through all steps together; a number of rows, or all.
    fn of(self, strip: i64) -> i64 {
        if strip == 0 { self.all() } else { strip * self.columns }
    }

    /// Whether register tiles of this many positions divide those of strips, and strips the image.
    pub(crate) fn allow(self, strip: i64, places: i64) -> bool {
        (strip == 0 || self.rows % strip == 0) && self.of(strip) % places == 0
    }
}

/// A convolution as Winograd sees it.
struct WinogradShape {
    images: i64,
    sources: i64,
    channels: i64,
    places: [i64; 2],
}

/// Adds the algorithm to the space of a convolution that it can compute, and makes it the default where it is faster.
pub(crate) fn extend(space: &mut Space, task: &Task, machine: &Cpu) {
    let Some(shape) = shape(task) else { return };
    let Some(blocks) = space.axes.iter().find(|axis| axis.name == BLOCK.0.name) else { return };
    let number = |setting: &Setting| match setting {
        Setting::Number(number) => Some(*number),
        Setting::Choice(_) => None,
    };
    let blocks: Vec<i64> = blocks.settings.iter().filter_map(number).collect();
    let tiles = [2, 4].map(|tile| shape.tiles(tile));
    if let SpaceLimits::Registers { tiles: place, .. } = &mut space.limits {
        *place = Some(tiles);
    }
    let algorithms = ALGORITHM.axis("whether transforms of tiles save products", Algorithm::ALL.iter().copied());
    space.axes.insert(0, algorithms);
    let fits = |places: &i64| tiles.iter().any(|tiles| STRIPS.iter().any(|&strip| tiles.allow(strip, *places)));
    space.axes.push(TILE_P.axis("tiles in one register tile (winograd)", (1..=MOST_TILES).filter(fits)));
    let divides = |strip: &i64| tiles.iter().any(|tiles| tiles.allow(*strip, 1));
    let text = "rows of tiles taken through all steps at once, 0 for all (winograd)";
    space.axes.push(STRIP.axis(text, STRIPS.into_iter().filter(divides)));
    let knobs = &mut space.default;
    let best = [2, 4].into_iter().flat_map(|tile| shape.best(tile, machine, &blocks));
    match best.min_by(|a, b| a.cost.total_cmp(&b.cost)).filter(|best| best.cost < shape.direct(machine)) {
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

fn shape(task: &Task) -> Option<WinogradShape> {
    let anchor = &task.steps[0];
    let Op::Conv(Conv { strides, dilations, groups: 1, .. }) = &anchor.op else { return None };
    let weight = task.parameters.get(1).filter(|weight| weight.is_constant && weight.ty.dtype == DType::F32)?;
    let [channels, sources, height, width] = weight.ty.extents()?[..] else { return None };
    let [images, _, rows, columns] = anchor.output.extents()?[..] else { return None };
    let is_small = [height, width] == [KERNEL as i64; 2] && strides[..] == [1, 1] && dilations[..] == [1, 1];
    (is_small && sources % LANES == 0).then_some(WinogradShape { images, sources, channels, places: [rows, columns] })
}

/// Settings with what they are expected to cost.
struct BestTile {
    tile: i64,
    block: i64,
    places: i64,
    strip: i64,
    cost: f64,
}

/// Costs are counted in floating-point operations of a product of matrices; these were seen on one core with vectors of
/// 512 bits.
mod cost {
    /// Floats in those vectors.
    pub(crate) const LANES: i64 = 16;
    /// Of a byte of the filters: in a whole model they come from far away.
    pub(crate) const BYTE: f64 = 15.0;
    /// The same where a core computes half of those at a time, or has no wider ones: it waits less for what it computes slower with.
    pub(crate) const BYTE_OF_HALVES: f64 = 3.0;
    /// Of transforming an element of the input or the result.
    pub(crate) const ELEMENT: [f64; 2] = [150.0, 110.0];
    /// Loads per product of a register tile that hides them.
    pub(crate) const HIDDEN_LOADS: f64 = 0.65;
    /// More accumulators than this leave too few registers.
    pub(crate) const EASY_ACCUMULATORS: i64 = 18;
    /// How much faster it must look.
    pub(crate) const MARGIN: f64 = 0.9;
}

impl WinogradShape {
    fn tiles(&self, tile: i64) -> Tiles {
        let [rows, columns] = self.places.map(|places| (places + tile - 1) / tile);
        Tiles { images: self.images, rows, columns }
    }

    /// Numbers of rows of tiles that may be taken through all steps at once, 0 for all, each with how much longer its products take.
    /// Strips whose windows and products a core keeps are worth it where not all of them stay near and a strip is enough tiles for
    /// the filters that it brings in. Seen with caches of 2 MiB: from 3 % more time to 37 % less.
    fn strips(&self, tiles: Tiles, window: i64, machine: &Cpu) -> Vec<(i64, f64)> {
        const KEPT: i64 = 1 << 20;
        const FAR: i64 = 3 << 20;
        /// Tiles for which filters from far away are brought in; a core with vectors of half the width waits less for them.
        const ENOUGH: i64 = 28;
        const ENOUGH_OF_NARROW: i64 = 7;
        /// Where strips would do and all rows are taken.
        const WITHOUT: f64 = 1.15;
        let numbers = window * window * 4;
        let bytes = |tiles: i64| numbers * tiles * (self.sources + self.channels);
        let filters = numbers * self.sources * self.channels;
        if bytes(tiles.all()) <= KEPT || filters > FAR {
            return vec![(0, 1.0)];
        }
        let enough = if machine.vector_lanes < cost::LANES { ENOUGH_OF_NARROW } else { ENOUGH };
        let fits = |strip: &i64| {
            tiles.allow(*strip, 1)
                && (*strip == 1 || bytes(tiles.of(*strip)) <= KEPT)
                && (filters <= KEPT || tiles.of(*strip) >= enough)
        };
        let uneven = |strip: i64| {
            let strips = self.images * tiles.rows / strip;
            filled(strips, machine.cores) as f64 / strips as f64
        };
        let strips = [1, 2].into_iter().filter(fits).map(|strip| (strip, uneven(strip)));
        [(0, WITHOUT)].into_iter().chain(strips).collect()
    }

    /// What bringing in filters costs.
    fn filters(&self, numbers: i64, machine: &Cpu) -> f64 {
        let computes_halves = machine.is_halved || machine.vector_lanes < cost::LANES;
        let byte = if computes_halves { cost::BYTE_OF_HALVES } else { cost::BYTE };
        (numbers * self.sources * self.channels * 4) as f64 * byte
    }

    fn direct(&self, machine: &Cpu) -> f64 {
        let taps = (KERNEL * KERNEL) as i64;
        let products = self.images * self.places[0] * self.places[1] * taps * self.sources * self.channels;
        (2.0 * products as f64 + self.filters(taps, machine)) * cost::MARGIN
    }

    fn best(&self, tile: i64, machine: &Cpu, blocks: &[i64]) -> Option<BestTile> {
        let window = transforms(tile)?.window_extent();
        let all = self.tiles(tile);
        let tiles = all.all();
        let elements = self.images * self.places[0] * self.places[1] * (self.sources + self.channels);
        let transforming = elements as f64 * cost::ELEMENT[usize::from(tile > 2)];
        let fixed = transforming + self.filters(window * window, machine);
        let room = machine.vector_registers - 4;
        let of_block = |(strip, longer): (i64, f64), block: i64| {
            let vectors = (block + machine.vector_lanes - 1) / machine.vector_lanes;
            let stored = filled(self.channels, block);
            let products = 2.0 * (window * window * tiles * self.sources * stored) as f64;
            let fits = divisors(all.of(strip)).filter(move |&places| places <= MOST_TILES && places * vectors <= room);
            fits.map(move |places| {
                let loads = (vectors + places) as f64 / (vectors * places) as f64;
                let crowded = if vectors * places > cost::EASY_ACCUMULATORS { 1.1 } else { 1.0 };
                let slower = (loads / cost::HIDDEN_LOADS).max(1.0) * crowded * longer;
                BestTile { tile, block, places, strip, cost: fixed + products * slower }
            })
        };
        // Wider blocks leave the nearest cache no room for the windows.
        let blocks = blocks.iter().filter(|&&block| block >= machine.vector_lanes && block <= 2 * machine.vector_lanes);
        let cheaper = |best: Option<BestTile>, one: BestTile| match best {
            Some(best) if best.cost < one.cost => Some(best),
            _ => Some(one),
        };
        let strips = self.strips(all, window, machine).into_iter();
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
        let graph = zoo::simple::build(text).expect("an operator");
        let task = models::plan(&graph, Fuse::Epilogue).expect("a plan").tasks.remove(0).task;
        cpu_space(&task, machine).default
    }

    #[test]
    fn strips_leave_room_for_a_tile_that_hides_its_loads() {
        let of = |lanes: i64, cores: i64, text: &str| {
            let default = default(&Cpu::test(lanes, cores), text);
            ["block", "tile_p", "strip"].map(|name| default.number(name).unwrap_or(0))
        };
        let knobs = |lanes: i64, cores: i64| of(lanes, cores, SMALL);
        // A row of 14 tiles has no part of four for sixteen registers; two rows have, and are even on one core, nearly so on two.
        assert_eq!(knobs(8, 1), [16, 4, 2]);
        assert_eq!(knobs(8, 2), [16, 4, 2]);
        assert_eq!(knobs(16, 2)[2], 1, "a row does for more registers, and is even");
        let deep = "conv2d:ci=128,hw=28,co=128,k=3,p=1";
        assert_eq!((of(8, 1, deep), of(16, 1, deep)[2]), ([8, 7, 1], 0), "seven tiles are enough for some");
    }

    #[test]
    fn filters_from_far_away_are_worth_their_products_where_those_are_slow() {
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
