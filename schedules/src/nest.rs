//! The loops that a template generates for a task and a schedule. CPU rules, search features and predictor features
//! read loops only here; a test in the crate `kernel` compares these loops with those of TVM.

use crate::axes::{
    BLOCK, GRAIN, HELPERS_AT, LAYOUT, NumberAxis, OUTER, PARALLEL, SPLIT_R, TILE_C, TILE_X, TILE_Y, UNROLL, VECTOR,
    winograd_tile,
};
use crate::choices::{HeldOperand, LayoutKind, QuadsAt, SumAt, SumOrder, TileOrder, YesNo};
use crate::contraction::{CACHE_C, CACHE_R, CACHE_X, CACHE_Y, HELD, ORDER, SUM_AT, VECTORIZE};
use crate::domain::{Domain, Form, Walk};
use crate::dots::{DOTS_C, DOTS_X, QUAD, QUADS_AT, are_lanes_positions};
use crate::gpu::{THREADS_C, THREADS_X, THREADS_Y};
use crate::knobs::Settings;
use crate::tiles::{filled_extent, tile_count};
use crate::transforms::tile_transforms;
use crate::winograd::{STRIP, TILE_P};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    Plain,
    Unrolled,
    Vector,
    Parallel,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NestLoop {
    pub walk: Walk,
    pub extent: i64,
    pub mark: Mark,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dimension {
    pub walk: Walk,
    pub extent: i64,
    /// Extent of a tile; the last tile may overhang.
    pub tile: i64,
    /// Threads of a GPU block along this dimension; each computes one tile.
    pub threads: i64,
    /// Tiles per group; the last group may be incomplete.
    pub together: i64,
}

impl Dimension {
    fn new(walk: Walk, extent: i64, tile: i64) -> Dimension {
        Dimension { walk, extent, tile, threads: 1, together: 1 }
    }

    /// Returns the number of tiles. On GPUs, the tiles of all threads of a block count as one.
    pub fn tile_count(&self) -> i64 {
        tile_count(self.extent, self.tile * self.threads)
    }

    /// Returns the share of the computed elements that belong to the result; the others are overhang.
    pub fn used_share(&self) -> f64 {
        self.extent as f64 / filled_extent(self.extent, self.tile * self.threads) as f64
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoopNest {
    pub dimensions: Vec<Dimension>,
    /// Dimensions in the order of the tile loops, outermost first.
    pub order: Vec<usize>,
    /// Number of outer loops over tiles and groups that are fused and distributed over threads.
    pub shared: usize,
    pub grain: i64,
    /// Whether the sums of all tiles of a group are finished together.
    pub is_cached: bool,
    /// Channels per block, which are the innermost dimension of the sums; 1 without blocks.
    pub block: i64,
    pub sums: Vec<NestLoop>,
    pub is_vector: bool,
    /// Loops outside of all others: strips and transformed windows of Winograd's algorithm.
    around: Vec<NestLoop>,
    /// Whether the loop over blocks of channels is inside of the tile's loops over positions.
    are_weights_held: bool,
    /// Vector lanes of 8-bit dot-product instructions, which multiply groups of 4 bytes; 0 if these are not used.
    lanes: i64,
}

impl LoopNest {
    /// Returns all loops of a contraction; for other tasks, the loops over the result.
    pub fn of_point(domain: &Domain, knobs: &impl Settings) -> LoopNest {
        match domain.form {
            Form::Elements => LoopNest::of_elements(domain, knobs),
            Form::Convolution | Form::Product => match winograd_tile(knobs) {
                Some(tile) if domain.extents.len() == 4 => LoopNest::of_winograd(domain, tile, knobs),
                _ if are_lanes_positions(knobs) => LoopNest::of_dots(domain, knobs),
                _ if THREADS_C.setting_in(knobs).is_some() => LoopNest::of_threads(domain, knobs),
                _ => LoopNest::of_tiles(domain, knobs),
            },
        }
    }

    fn of_tiles(domain: &Domain, knobs: &impl Settings) -> LoopNest {
        LoopNest { sums: sum_loops(domain, knobs), ..LoopNest::without_sums(domain, knobs) }
    }

    /// Returns the loops over register tiles without those of the sums, which suffices to check a space's limits.
    pub(crate) fn without_sums(domain: &Domain, knobs: &impl Settings) -> LoopNest {
        let number = |axis: &NumberAxis| axis.or_one(knobs).max(1);
        let layout = LAYOUT.setting_in(knobs).unwrap_or(LayoutKind::Plain);
        let block = if layout == LayoutKind::Plain { 1 } else { number(&BLOCK) };
        let columns = number(&TILE_X);
        let (channel, rank) = (domain.channel_dimension(), domain.extents.len());
        let is_conv = domain.form == Form::Convolution;
        let dimensions: Vec<Dimension> = (0..rank)
            .map(|place| {
                let (tile, together) = match domain.loop_walk(place) {
                    Walk::Channels => (number(&TILE_C) * block, number(&CACHE_C)),
                    Walk::Columns => (columns, number(&CACHE_X)),
                    _ if domain.is_rows(place) => (number(&TILE_Y), number(&CACHE_Y)),
                    _ => (1, 1),
                };
                Dimension { together, ..Dimension::new(domain.loop_walk(place), domain.extents[place], tile) }
            })
            .collect();
        let order = OUTER.setting_in(knobs).unwrap_or(TileOrder::Space).dimension_order(channel, rank, is_conv);
        let is_cached = SUM_AT.setting_in(knobs) == Some(SumAt::Cache);
        let is_cut =
            domain.may_fill && layout != LayoutKind::Dots && domain.extents[domain.column_dimension()] % columns != 0;
        let rows = order.iter().position(|&place| place == domain.column_dimension()).unwrap_or(rank);
        let inside = dimensions.iter().filter(|dimension| dimension.together > 1).count();
        let home = if is_cached { rank } else { rank + inside };
        let shared = if is_cut { rows } else { usize::try_from(number(&PARALLEL)).unwrap_or(1) };
        LoopNest {
            dimensions,
            order,
            shared: shared.min(home).max(1),
            grain: number(&GRAIN),
            is_cached: is_cached && inside > 0,
            block,
            is_vector: VECTORIZE.setting_in(knobs) == Some(YesNo::Yes),
            are_weights_held: HELD.is_set_to(knobs, HeldOperand::Weights) && block > 1,
            ..LoopNest::default()
        }
    }

    fn of_dots(domain: &Domain, knobs: &impl Settings) -> LoopNest {
        let (lanes, width) = (VECTOR.or_one(knobs).max(1), DOTS_X.or_one(knobs).max(1));
        let mut extents = domain.extents.clone();
        if domain.is_row {
            let places = extents.drain(2..).product();
            extents.push(places);
        }
        let last = extents.len() - 1;
        let dimensions: Vec<Dimension> = (0..extents.len())
            .map(|place| {
                let (walk, tile) = match place {
                    1 => (Walk::Channels, DOTS_C.or_one(knobs).max(1)),
                    _ if place == last => (Walk::Columns, width),
                    _ => (Walk::Rows, 1),
                };
                Dimension::new(walk, extents[place], tile)
            })
            .collect();
        let is_by_space = OUTER.setting_in(knobs) == Some(TileOrder::Space);
        let order =
            if is_by_space { TileOrder::Space } else { TileOrder::Channels }.dimension_order(1, extents.len(), true);
        let shared = match QUADS_AT.setting_in(knobs) {
            Some(QuadsAt::Outer) => order.len() - 1,
            Some(QuadsAt::Channel) => 2,
            _ => order.len(),
        };
        let mut loops: Vec<NestLoop> = domain.window.iter().map(|&taps| plain_loop(Walk::Taps, taps)).collect();
        match domain.depth {
            1 => loops.last_mut().into_iter().for_each(|columns| columns.extent = tile_count(columns.extent, QUAD)),
            depth => loops.insert(0, plain_loop(Walk::Depth, tile_count(depth, QUAD))),
        }
        let (grain, block) = (1, 1);
        LoopNest { dimensions, order, shared, grain, block, sums: loops, is_vector: true, lanes, ..LoopNest::default() }
    }

    /// Returns the loops of Winograd's algorithm: one matrix product per element of a transformed window.
    fn of_winograd(domain: &Domain, tile: i64, knobs: &impl Settings) -> LoopNest {
        let (block, places) = (BLOCK.or_one(knobs).max(1), TILE_P.or_one(knobs).max(1));
        let strip = STRIP.setting_in(knobs).unwrap_or(0);
        let [images, channels, rows, columns] = domain.extents[..] else {
            unreachable!("Winograd's algorithm applies to results with four dimensions")
        };
        let (rows, columns) = (tile_count(rows, tile), tile_count(columns, tile));
        let window = tile_transforms(tile).map_or(1, |transforms| transforms.window_extent());
        let mark = |walk, extent, mark| NestLoop { walk, extent, mark };
        let (around, products, rows, shared) = if strip > 0 {
            let strips = [mark(Walk::Rows, images * tile_count(rows, strip), Mark::Parallel)];
            (strips.to_vec(), Mark::Plain, strip, 0)
        } else {
            (Vec::new(), Mark::Parallel, images * rows, 1)
        };
        let transformed = [mark(Walk::Transformed, window, products), mark(Walk::Transformed, window, products)];
        let around = [&around[..], &transformed].concat();
        let channels = Dimension::new(Walk::Channels, channels, block);
        let places = Dimension::new(Walk::Columns, rows * columns, places);
        LoopNest {
            dimensions: vec![channels, places],
            order: vec![0, 1],
            shared,
            grain: 1,
            block,
            sums: vec![plain_loop(Walk::Depth, domain.depth)],
            is_vector: true,
            around,
            ..LoopNest::default()
        }
    }

    fn of_threads(domain: &Domain, knobs: &impl Settings) -> LoopNest {
        let number = |axis: &NumberAxis| axis.or_one(knobs).max(1);
        let dimension = |place: usize| {
            let (threads, tile) = match domain.loop_walk(place) {
                Walk::Channels => (number(&THREADS_C), number(&TILE_C)),
                Walk::Columns => (number(&THREADS_X), number(&TILE_X)),
                _ if domain.is_rows(place) => (number(&THREADS_Y), number(&TILE_Y)),
                _ => (1, 1),
            };
            Dimension { threads, ..Dimension::new(domain.loop_walk(place), domain.extents[place], tile) }
        };
        let rank = domain.extents.len();
        let first = domain.window.first().copied().filter(|_| domain.is_depthwise).unwrap_or(domain.depth);
        let walk = if domain.is_depthwise { Walk::Taps } else { Walk::Depth };
        let split = number(&SPLIT_R);
        let mark = if UNROLL.setting_in(knobs).is_some_and(|unroll| unroll > 0) { Mark::Unrolled } else { Mark::Plain };
        let window =
            domain.window.iter().skip(usize::from(domain.is_depthwise)).map(|&taps| plain_loop(Walk::Taps, taps));
        let sums = std::iter::once(plain_loop(walk, tile_count(first, split))).chain(window);
        LoopNest {
            dimensions: (0..rank).map(dimension).collect(),
            order: (0..rank).collect(),
            shared: rank,
            grain: 1,
            block: 1,
            sums: sums.chain([NestLoop { walk, extent: split, mark }]).collect(),
            ..LoopNest::default()
        }
    }

    fn of_elements(domain: &Domain, knobs: &impl Settings) -> LoopNest {
        let last = domain.extents.len().saturating_sub(1);
        let dimension = |(place, &extent): (usize, &i64)| {
            let tile = if place == last { VECTOR.or_one(knobs).max(1) } else { 1 };
            let walk = if place == last { Walk::Columns } else { Walk::Rows };
            Dimension::new(walk, extent, tile)
        };
        let parallel = match (PARALLEL.setting_in(knobs), HELPERS_AT.setting_in(knobs)) {
            (Some(parallel), _) => usize::try_from(parallel).unwrap_or(1),
            (None, Some(_)) => last,
            (None, None) => 0,
        };
        LoopNest {
            dimensions: domain.extents.iter().enumerate().map(dimension).collect(),
            order: (0..domain.extents.len()).collect(),
            shared: parallel.min(last.max(1)),
            grain: GRAIN.or_one(knobs).max(1),
            block: 1,
            is_vector: true,
            ..LoopNest::default()
        }
    }

    /// Returns dimension and trip count of the loops over tiles and groups, outermost first.
    fn outer_loops(&self) -> impl Iterator<Item = (Walk, i64)> {
        let dimensions = self.order.iter().map(|&place| &self.dimensions[place]);
        let inside = dimensions.clone().filter(|dimension| dimension.together > 1);
        let counts =
            dimensions.map(|dimension| (dimension.walk, tile_count(dimension.tile_count(), dimension.together)));
        counts.chain(inside.map(|dimension| (dimension.walk, dimension.together)))
    }

    /// Returns the trip count of the fused loop that is distributed over threads, before chunking.
    pub fn shared_steps(&self) -> i64 {
        self.outer_loops().take(self.shared).map(|(_, extent)| extent).product()
    }

    pub fn chunk_count(&self) -> i64 {
        let around = self.around.iter().filter(|one| one.mark == Mark::Parallel).map(|one| one.extent);
        around.product::<i64>() * tile_count(self.shared_steps(), self.grain)
    }

    /// Returns the ratio of executed to necessary steps: 1, or more if groups of tiles or chunks overhang.
    pub fn walked_ratio(&self) -> f64 {
        if self.dimensions.len() < 2 {
            return 1.0;
        }
        let mut walked = 1.0;
        for dimension in &self.dimensions {
            let tiles = dimension.tile_count();
            walked *= filled_extent(tiles, dimension.together) as f64 / tiles.max(1) as f64;
        }
        let steps = self.shared_steps();
        walked * filled_extent(steps, self.grain) as f64 / steps.max(1) as f64
    }

    /// Returns all loops around a multiply-add, outermost first; splits fused loops, omits loops of one iteration.
    pub fn all_loops(&self) -> Vec<NestLoop> {
        let mut loops = self.around.clone();
        let home = if self.is_cached { self.order.len() } else { usize::MAX };
        loops.extend(self.outer_loops().take(home).enumerate().map(|(place, (walk, extent))| {
            let mark = if place < self.shared { Mark::Parallel } else { Mark::Plain };
            NestLoop { walk, extent, mark }
        }));
        let threads = self.dimensions.iter().filter(|dimension| dimension.threads > 1);
        let mark = Mark::Parallel;
        loops.extend(threads.map(|dimension| NestLoop { walk: dimension.walk, extent: dimension.threads, mark }));
        let part = usize::from(self.is_cached).min(self.sums.len());
        loops.extend(&self.sums[..part]);
        if self.is_cached {
            loops.extend(self.dimensions.iter().map(|dimension| {
                let tiles = dimension.together.min(dimension.tile_count());
                plain_loop(dimension.walk, tiles)
            }));
        }
        loops.extend(&self.sums[part..]);
        loops.extend(self.tile_loops());
        loops.retain(|one| one.extent > 1);
        loops
    }

    /// Returns the loops within a tile, the innermost last.
    fn tile_loops(&self) -> Vec<NestLoop> {
        let mut own: Vec<NestLoop> = Vec::with_capacity(self.dimensions.len() + 1);
        for dimension in &self.dimensions {
            let blocks = if dimension.walk == Walk::Channels { self.block } else { 1 };
            let tile = dimension.tile / blocks;
            // The tile loop is cut to the extent, unless tiles are filled or the sums of a group are finished together.
            let extent =
                if self.is_cached || self.lanes > 0 { tile } else { tile.min(tile_count(dimension.extent, blocks)) };
            own.push(NestLoop { walk: dimension.walk, extent, mark: Mark::Unrolled });
        }
        if self.are_weights_held {
            let channels = own.iter().position(|one| one.walk == Walk::Channels).unwrap_or(0);
            own[channels..].rotate_left(1);
        }
        if self.lanes > 1 {
            let columns = own.last_mut().expect("a result has dimensions");
            columns.extent /= self.lanes;
            own.push(NestLoop { walk: Walk::Columns, extent: self.lanes, mark: Mark::Unrolled });
        } else if self.block > 1 {
            own.push(NestLoop { walk: Walk::Channels, extent: self.block, mark: Mark::Unrolled });
        }
        if let Some(last) = own.last_mut() {
            last.mark = if self.is_vector { Mark::Vector } else { Mark::Plain };
        }
        own
    }
}

fn plain_loop(walk: Walk, extent: i64) -> NestLoop {
    NestLoop { walk, extent, mark: Mark::Plain }
}

/// Returns the loops of a sum, outermost first: parts of the depth, depth and window in the chosen order, split depth.
fn sum_loops(domain: &Domain, knobs: &impl Settings) -> Vec<NestLoop> {
    let is_of_quads = LAYOUT.is_set_to(knobs, LayoutKind::Dots);
    let depth = if is_of_quads { tile_count(domain.depth, QUAD) } else { domain.depth };
    let split = SPLIT_R.or_one(knobs).max(1);
    let part = CACHE_R.setting_in(knobs).filter(|&steps| steps > 1);
    // A depthwise convolution sums only its window, whose rows are split in place of the depth.
    let (walk, first, window) = match domain.window.split_first() {
        Some((&rows, others)) if domain.is_depthwise => (Walk::Taps, rows, others),
        _ => (Walk::Depth, depth, &domain.window[..]),
    };
    let mut all = vec![plain_loop(walk, tile_count(part.unwrap_or(first), split))];
    all.extend(window.iter().map(|&taps| plain_loop(Walk::Taps, taps)));
    let order = ORDER.setting_in(knobs).unwrap_or(SumOrder::KernelFirst);
    let places = order.loop_order(all.len());
    let ends_with_depth = order != SumOrder::DepthFirst && places.last() == Some(&0);
    let parts = part.map(|steps| plain_loop(walk, tile_count(first, steps)));
    let rest = (split > 1).then_some(plain_loop(walk, split));
    let mut sums: Vec<NestLoop> = parts.into_iter().chain(places.iter().map(|&place| all[place])).chain(rest).collect();
    if UNROLL.setting_in(knobs).is_some_and(|unroll| unroll > 0) && (split > 1 || !ends_with_depth) {
        sums.last_mut().into_iter().for_each(|last| last.mark = Mark::Unrolled);
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Knobs, Setting};

    #[test]
    fn overhang_is_counted() {
        let elements = Domain::without_sums(vec![1, 64, 14, 14]);
        let domain = Domain { form: Form::Convolution, may_fill: true, depth: 8, window: vec![3, 3], ..elements };
        let walked = |text: &str| {
            let knobs = text.split_whitespace().map(|pair| {
                let (name, value) = pair.split_once('=').unwrap();
                let setting = value.parse().map_or_else(|_| Setting::Choice(value.to_owned()), Setting::Number);
                (name.to_owned(), setting)
            });
            LoopNest::of_point(&domain, &Knobs(knobs.collect())).walked_ratio()
        };
        assert_eq!(walked("tile_c=8 tile_y=2 tile_x=14 outer=space parallel=2"), 1.0);
        assert_eq!(
            walked("tile_c=8 tile_y=2 tile_x=14 outer=space parallel=1 grain=4"),
            4.0,
            "a single image cannot be split"
        );
        assert_eq!(
            walked("tile_c=8 tile_y=2 tile_x=14 outer=channels parallel=2 grain=4"),
            1.0,
            "eight tiles along channels"
        );
        assert_eq!(walked("tile_c=16 cache_c=3 tile_y=2 tile_x=14 outer=space"), 1.5, "six tiles instead of four");
        assert_eq!(walked("layout=blocked block=32 tile_c=2 cache_c=8 tile_x=14 outer=space"), 8.0);
    }
}
