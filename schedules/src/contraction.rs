//! Declares the schedule space of convolutions and matrix products.

use super::axes::{
    BLOCK, ChoiceAxis, Declaration, GRAIN, LAYOUT, NumberAxis, OUTER, PAD_AT, PARALLEL, SPLIT_R, TILE_C, TILE_X,
    TILE_Y, UNROLL, candidate_divisors, divisors,
};
use super::choices::{CopyAt, HeldOperand, LayoutKind, PadAt, SumAt, SumOrder, TileOrder, WriteAt, YesNo};
use super::dots;
use super::extents::{Blocking, Extents, is_depthwise};
use super::register_tile::{
    DEEP_ROWS, Tile, TileGroup, best_tile, deep_grouping, depthwise_tile, group_tile, has_few_registers, is_deep,
    row_tile, thread_imbalance, used_registers,
};
use super::taps::is_worth_it;
use super::{Domain, Knobs, Space, SpaceLimits, Template};
use crate::flat::ENOUGH;
use crate::machine::Cpu;
use crate::tiles::{filled_extent, reach_little_past, tile_count};
use models::Choice;
use std::ops::RangeInclusive;

/// Register tiles along channels per group that shares cached data; `CACHE_Y` and `CACHE_X`: along rows and columns.
pub static CACHE_C: NumberAxis = NumberAxis::new("cache_c").with_neutral(1);
pub static CACHE_Y: NumberAxis = NumberAxis::new("cache_y").with_neutral(1);
pub static CACHE_X: NumberAxis = NumberAxis::new("cache_x").with_neutral(1);
pub static SUM_AT: ChoiceAxis<SumAt> = ChoiceAxis::new("sum_at").with_neutral("tile").only_when(groups_tiles);
/// Depth steps that a group of tiles sums before the next group; the depth is split into such parts.
pub static CACHE_R: NumberAxis = NumberAxis::new("cache_r").with_neutral(1).only_when(finishes_groups).added_in(6);
pub static ORDER: ChoiceAxis<SumOrder> = ChoiceAxis::new("order");
pub static COPY_AT: ChoiceAxis<CopyAt> = ChoiceAxis::new("copy_at").with_neutral("no").added_in(6);
/// Decides the order of unrolled loops of a convolution's tile, and so which operand fits few registers.
pub static HELD: ChoiceAxis<HeldOperand> =
    ChoiceAxis::new("held").with_neutral("inputs").only_when(has_tile_of_blocks).added_in(8);
/// Whether a tile of a pointwise convolution prefetches the input of the next one.
pub static PREFETCH: ChoiceAxis<YesNo> =
    ChoiceAxis::new("prefetch").with_neutral("no").only_when(reads_uncopied_blocks).added_in(9);
pub static WRITE_AT: ChoiceAxis<WriteAt> = ChoiceAxis::new("write_at").with_neutral("tile");
pub static VECTORIZE: ChoiceAxis<YesNo> = ChoiceAxis::new("vectorize");

pub(crate) static AXES: &[&Declaration] = &[
    &CACHE_C.0,
    &CACHE_Y.0,
    &CACHE_X.0,
    &SUM_AT.0,
    &CACHE_R.0,
    &ORDER.0,
    &COPY_AT.0,
    &HELD.0,
    &PREFETCH.0,
    &WRITE_AT.0,
    &VECTORIZE.0,
];

fn groups_tiles(knobs: &Knobs) -> bool {
    [&CACHE_C, &CACHE_Y, &CACHE_X].into_iter().any(|axis| axis.setting_in(knobs).is_some_and(|together| together != 1))
}

fn finishes_groups(knobs: &Knobs) -> bool {
    groups_tiles(knobs) && SUM_AT.is_set_to(knobs, SumAt::Cache)
}

fn has_tile_of_blocks(knobs: &Knobs) -> bool {
    let is_blocked = LAYOUT.is_set_to(knobs, LayoutKind::Blocked);
    is_blocked && TILE_C.or_one(knobs) > 1 && TILE_Y.or_one(knobs) * TILE_X.or_one(knobs) > 1
}

fn reads_uncopied_blocks(knobs: &Knobs) -> bool {
    LAYOUT.is_set_to(knobs, LayoutKind::Blocked) && COPY_AT.setting_in(knobs).is_none_or(|at| at == CopyAt::No)
}

/// Adjusts a dependent setting: if the depth is not split, operands are copied once per parallel step, not per part.
pub(crate) fn settle_copies(knobs: &mut Knobs) {
    if COPY_AT.is_set_to(knobs, CopyAt::Part) && CACHE_R.setting_in(knobs).is_none() {
        COPY_AT.set(knobs, CopyAt::Outer);
    }
}

/// Candidates for the channels, or blocks of channels, of a register tile; the last tile may overhang.
const ANY_CHANNELS: [i64; 9] = [1, 2, 3, 4, 5, 6, 8, 12, 16];

/// Candidates for the number of tiles per group along one dimension; the tiles of a group share data in a cache.
const TOGETHER: [i64; 6] = [1, 2, 3, 4, 8, 16];

/// Candidates for the depth steps of a group, chosen so that the operands of one part stay in the cache.
const PARTS: [i64; 4] = [64, 128, 256, 512];

pub(crate) fn contraction_space(machine: &Cpu, extents: &Extents, domain: Domain, has_epilogue: bool) -> Space {
    let lanes = machine.vector_lanes;
    let (blocks, widths) = (block_sizes(machine, extents), tile_widths(machine, extents));
    let may_block = !blocks.is_empty();
    let may_be_plain = extents.is_conv || uncopied_blocks(extents, &blocks).is_empty();
    let mut axes = Vec::new();
    let layouts = [(LayoutKind::Blocked, may_block), (LayoutKind::Plain, may_be_plain)];
    axes.push(
        LAYOUT.to_axis("storage format of weights and accumulators", layouts.iter().filter(|l| l.1).map(|l| l.0)),
    );
    if may_block {
        axes.push(BLOCK.to_axis("channels in one vector block", blocks.iter().copied()));
    }
    axes.push(TILE_C.to_axis(
        "channel blocks (blocked) or channels (plain) in one register tile",
        ANY_CHANNELS.into_iter().filter(|&channels| channels <= extents.channels),
    ));
    axes.push(TILE_Y.to_axis("rows in one register tile", 1..=extents.rows.min(8)));
    axes.push(TILE_X.to_axis("columns in one register tile", overhanging_widths(extents, &widths, may_block)));
    axes.push(
        SPLIT_R.to_axis("inner part of the split reduction", candidate_divisors(extents.depth, &[1, 4, 8, 16, 32])),
    );
    if extents.is_conv {
        let orders = if extents.is_single { &SumOrder::ALL[..2] } else { SumOrder::ALL };
        axes.push(ORDER.to_axis("order of the reduction loops", orders.iter().copied()));
    }
    if may_hold_weights(machine, extents) && may_block {
        axes.push(HELD.to_axis(
            "operand that a register tile keeps in registers while it reads the other one",
            [HeldOperand::Inputs, HeldOperand::Weights],
        ));
    }
    axes.push(UNROLL.to_axis("whether the innermost reduction loop is unrolled", [0, 1]));
    let orders = if extents.is_conv { TileOrder::ALL } else { &TileOrder::ALL[..2] };
    axes.push(OUTER.to_axis("order of the loops over tiles, or the outermost loop", orders.iter().copied()));
    for (axis, meaning, tiles) in [
        (&CACHE_C, "tiles along channels per group", extents.channels),
        (&CACHE_Y, "tiles along rows per group", extents.rows),
        (&CACHE_X, "tiles along columns per group", extents.columns),
    ] {
        if tiles > 1 {
            axes.push(axis.to_axis(meaning, TOGETHER.into_iter().filter(|&together| together <= tiles)));
        }
    }
    axes.push(SUM_AT.to_axis(
        "whether sums are finished per tile, or for all tiles of a group together",
        [SumAt::Tile, SumAt::Cache],
    ));
    let parts: Vec<i64> = PARTS.into_iter().filter(|part| *part < extents.depth && extents.depth % part == 0).collect();
    if !parts.is_empty() {
        let text = "depth steps that a group of tiles sums before the next group";
        axes.push(CACHE_R.to_axis(text, std::iter::once(1).chain(parts)));
    }
    axes.push(PARALLEL.to_axis("number of outer loops that are fused and run on the thread pool", [1, 2, 3]));
    axes.push(GRAIN.to_axis("steps of the fused loop that a thread takes at a time", [1, 2, 4, 8]));
    if extents.is_padded {
        axes.push(PAD_AT.to_axis("compute location of the padded input", [PadAt::Inline, PadAt::Root, PadAt::Outer]));
    }
    if may_copy(extents) {
        axes.push(COPY_AT.to_axis(
            "compute location of a contiguous copy of the data that tiles read",
            [CopyAt::No, CopyAt::Outer, CopyAt::Part],
        ));
    }
    if may_prefetch(extents) && may_block {
        axes.push(PREFETCH.to_axis("whether a tile prefetches the input of the next one", [YesNo::No, YesNo::Yes]));
    }
    if has_epilogue {
        axes.push(WRITE_AT.to_axis("compute location of the epilogue", [WriteAt::Tile, WriteAt::Root]));
    }
    axes.push(VECTORIZE.to_axis("whether the innermost loop is vectorised explicitly", [YesNo::Yes, YesNo::No]));
    let default = contraction_default(machine, extents, &blocks, &widths);
    let limits = SpaceLimits::Registers {
        tile_elements: 2 * machine.vector_registers * lanes,
        unrolled_elements: unrolled_limit(machine),
        window: extents.window,
        tiles: None,
        sums: dots::sum_registers(machine),
        domain,
        whole: extents.whole,
    };
    Space { template: Template::Contraction, axes, default, limits }
}

/// Returns the candidates for tile columns: divisors, or, if these are too small, widths with little overhang.
fn tile_widths(machine: &Cpu, extents: &Extents) -> Vec<i64> {
    const MOST: i64 = 32;
    let (columns, is_depthwise) = (extents.columns, is_depthwise(extents));
    let mut widths: Vec<i64> = divisors(columns).filter(|&width| width <= MOST).collect();
    // The compiler splits vectors of odd width into several short ones.
    let is_enough =
        |width: &i64| ENOUGH.contains(width) && (width == ENOUGH.start() || !is_depthwise || width % 2 == 0);
    let has_enough = !extents.may_fill || columns < *ENOUGH.start() || widths.iter().any(is_enough);
    let is_close = |width: &i64| reach_little_past(columns, *width);
    if is_depthwise {
        let whole = machine.vector_lanes;
        let beyond = whole.min(columns.unsigned_abs().next_power_of_two().cast_signed());
        if !has_enough || (extents.may_fill && columns > whole && is_close(&beyond)) {
            widths.push(beyond);
        }
    } else if may_reach(machine, extents) {
        widths.extend(2..=PRODUCT_ROWS.min(columns));
    } else if !has_enough {
        widths
            .extend((*ENOUGH.start()..=MOST).filter(|width| columns % width != 0 && *width < columns).filter(is_close));
    } else if needs_narrow(machine, extents, &widths) {
        widths.extend(NARROW.filter(|width| columns % width != 0).filter(is_close));
    }
    widths.sort_unstable();
    widths.dedup();
    widths
}

/// Columns of register tiles with two or three vectors of channels that fit 16 registers.
const NARROW: RangeInclusive<i64> = 4..=6;

/// Returns whether narrow tiles of a pointwise convolution may overhang, on CPUs with few registers: for epilogues with
/// exponentials, and for long sums if no narrow tile divides the row. For short sums, the last tile costs more.
fn needs_narrow(machine: &Cpu, extents: &Extents, widths: &[i64]) -> bool {
    const LONG_SUM: i64 = 192;
    let is_pointwise = extents.is_single && extents.is_dense && extents.may_fill;
    let is_odd = extents.summed >= LONG_SUM && !widths.iter().any(|width| NARROW.contains(width));
    has_few_registers(machine) && is_pointwise && (is_odd || extents.has_functions)
}

/// Returns whether a space has the axis `held`: with more registers, both operands of the usual tiles fit.
fn may_hold_weights(machine: &Cpu, extents: &Extents) -> bool {
    extents.is_conv && extents.may_fill && has_few_registers(machine) && !is_depthwise(extents)
}

/// Adds widths whose last tile overhangs. A convolution computes columns past the end and discards them.
fn overhanging_widths(extents: &Extents, widths: &[i64], may_block: bool) -> Vec<i64> {
    let is_any = may_block && !extents.is_conv;
    let others = (1..=extents.columns.min(OVERHANG_MAX))
        .filter(|&width| is_any || (extents.may_fill && may_be_columns(extents.columns, width)));
    let mut all: Vec<i64> = widths.iter().copied().chain(others).collect();
    all.sort_unstable();
    all.dedup();
    all
}

const OVERHANG_MAX: i64 = 16;

pub fn may_be_columns(columns: i64, width: i64) -> bool {
    columns % width == 0 || (width <= OVERHANG_MAX && reach_little_past(columns, width))
}

pub fn may_be_rows(rows: i64, height: i64) -> bool {
    rows % height == 0 || height <= OVERHANG_MAX.min(rows)
}

/// Returns candidates for channels per block: powers of two, as compilers handle vectors of other widths poorly.
fn block_sizes(machine: &Cpu, extents: &Extents) -> Vec<i64> {
    let lanes = machine.vector_lanes;
    let candidates = [lanes / 2, lanes, 2 * lanes, 4 * lanes].into_iter().filter(|&block| block > 1);
    match extents.blocking {
        Blocking::None => Vec::new(),
        Blocking::Dividing(extent) => candidates.filter(|block| extent % block == 0).collect(),
        // A symbolic number of columns counts as 1.
        Blocking::Padded if extents.whole.is_some() => {
            candidates.filter(|&block| block <= 2 * extents.channels).collect()
        }
        // The last block may overhang, but not by a whole block.
        Blocking::Padded => candidates.filter(|&block| block < 2 * extents.channels.max(lanes / 2)).collect(),
    }
}

fn uncopied_blocks(extents: &Extents, blocks: &[i64]) -> Vec<i64> {
    blocks.iter().copied().filter(|block| extents.whole.is_none_or(|whole| whole % block == 0)).collect()
}

fn contraction_default(machine: &Cpu, extents: &Extents, blocks: &[i64], widths: &[i64]) -> Knobs {
    let is_depthwise = is_depthwise(extents);
    let row_tile = row_tile(machine, extents, widths).or_else(|| group_tile(machine, extents, widths));
    let panels = panel_tile(machine, extents, blocks);
    let has_panels = panels.is_some();
    let is_copied = has_panels || is_copied(extents);
    let blocks = &uncopied_blocks(extents, blocks)[..];
    let may_block = has_panels || !blocks.is_empty() && row_tile.is_none();
    let tile = if is_depthwise {
        depthwise_tile(machine, extents, widths)
    } else if let Some(tile) = panels {
        tile
    } else if let Some(tile) = row_tile {
        tile
    } else {
        // Without blocks, vectors are along the rows of a product and must not overhang.
        let is_whole = |width: &&i64| may_block || extents.is_conv || extents.columns % **width == 0;
        let widths: Vec<i64> = widths.iter().filter(is_whole).copied().collect();
        best_tile(machine, extents, if may_block { blocks } else { &[] }, &widths)
    };
    let mut knobs = Knobs::default();
    LAYOUT.set(&mut knobs, if may_block { LayoutKind::Blocked } else { LayoutKind::Plain });
    if may_block {
        BLOCK.set(&mut knobs, tile.block);
    }
    TILE_C.set(&mut knobs, tile.channels);
    TILE_Y.set(&mut knobs, tile.rows);
    TILE_X.set(&mut knobs, tile.columns);
    SPLIT_R.set(&mut knobs, unrolled_steps(machine, extents, &tile));
    if extents.is_conv {
        // A depthwise convolution sums only taps. If a row of taps is unrolled, the compiler spills sums.
        let is_by_taps = is_depthwise || is_worth_it(&extents.reaches, tile.rows, tile.columns);
        ORDER.set(&mut knobs, if is_by_taps { taps_order(machine, extents, &tile) } else { SumOrder::DepthFirst });
    }
    // Adjacent taps of a window share inputs, which stay in registers.
    let is_pointwise = extents.is_single && may_hold_weights(machine, extents);
    if is_pointwise && may_block && (2..tile.rows * tile.columns).contains(&tile.channels) {
        HELD.set(&mut knobs, HeldOperand::Weights);
    }
    UNROLL.set(&mut knobs, 1);
    // The operand that is read completely for each tile of the other one should be the smaller one. Weights are
    // preferred, because their layout is better than that of columns.
    let is_filled = extents.columns % tile.columns != 0;
    let is_large = extents.sources > 2 * extents.weights;
    let is_by_space = is_copied && extents.is_conv
        || extents.is_single
            && if is_filled { extents.rows > 1 } else { is_large || is_balanced_by_space(machine, extents, &tile) };
    OUTER.set(&mut knobs, if is_by_space { TileOrder::Space } else { TileOrder::Channels });
    if is_copied {
        COPY_AT.set(&mut knobs, CopyAt::Outer);
    }
    if let Some(TileGroup { channels, rows, part }) = deep_grouping(machine, extents, &tile).filter(|_| !has_panels) {
        SUM_AT.set(&mut knobs, SumAt::Cache);
        for (axis, together) in [(&CACHE_C, channels), (&CACHE_X, rows), (&CACHE_R, part)] {
            axis.set(&mut knobs, together);
        }
    }
    if may_block && !is_copied && prefetches(machine, extents, &tile) {
        PREFETCH.set(&mut knobs, YesNo::Yes);
    }
    if is_copied && extents.is_conv {
        CACHE_X.set(&mut knobs, COPIED_TOGETHER);
    } else if has_far_planes(extents, &tile) {
        CACHE_X.set(&mut knobs, FAR_TOGETHER);
    }
    // Steps of the parallel loop share no copy, and a separate last tile of rows needs a loop over rows.
    let walks_rows = !extents.is_conv && may_block && (is_copied || is_filled);
    let parallel = if walks_rows {
        extents.outside.clamp(1, 3)
    } else if pads_planes(machine, extents, &tile) {
        2
    } else {
        3
    };
    PARALLEL.set(&mut knobs, parallel);
    if extents.is_padded {
        PAD_AT.set(&mut knobs, padded_at(extents, &tile));
    }
    // If adjacent results read elements that are far apart, the compiler's own vectorisation is better.
    VECTORIZE.set(&mut knobs, if is_depthwise && extents.step > 2 { YesNo::No } else { YesNo::Yes });
    knobs
}

/// Returns whether tiles along a single row balance threads better than channels do, with weights that fit a cache.
fn is_balanced_by_space(machine: &Cpu, extents: &Extents, tile: &Tile) -> bool {
    const CACHED: i64 = 1 << 18;
    const UNEVEN: f64 = 1.1;
    let by_channels = thread_imbalance(machine, tile_count(extents.channels, tile.block * tile.channels));
    let by_columns = thread_imbalance(machine, tile_count(extents.columns, tile.columns));
    extents.rows == 1 && extents.weights <= CACHED && by_channels > UNEVEN * by_columns
}

/// Default number of tiles along columns that share one copy of their input; more tiles load two threads unevenly.
const COPIED_TOGETHER: i64 = 4;

/// Default number of tiles per group along columns if the channel planes of the result are far apart in memory.
const FAR_TOGETHER: i64 = 8;

fn has_far_planes(extents: &Extents, tile: &Tile) -> bool {
    const LARGE: i64 = 1 << 19;
    const PLANE: i64 = 6 << 10;
    let plane = extents.rows * extents.columns;
    let is_plain = tile.block == 1 && extents.is_conv && extents.is_single && extents.is_dense;
    is_plain && plane >= PLANE && extents.channels * plane >= LARGE
}

/// Returns whether a depthwise convolution pads whole planes; padding by rows of tiles would read some rows twice.
fn pads_planes(machine: &Cpu, extents: &Extents, tile: &Tile) -> bool {
    const PLANE: i64 = 5 << 10;
    const ROWS_OF_TILES: i64 = 5;
    const SHARED: i64 = 4;
    is_depthwise(extents)
        && extents.is_padded
        && extents.window <= 3
        && extents.step == 1
        && extents.rows * extents.columns <= PLANE
        && tile_count(extents.rows, tile.rows) >= ROWS_OF_TILES
        && extents.channels >= SHARED * machine.cores
}

/// Returns the loop order of a sum by taps: window outermost, except for some depthwise convolutions on Intel CPUs.
fn taps_order(machine: &Cpu, extents: &Extents, tile: &Tile) -> SumOrder {
    let is_left = is_depthwise(extents) && tile.columns == 1 && extents.columns == 7;
    if machine.is_intel && is_left && extents.step == 2 { SumOrder::Ycx } else { SumOrder::KernelFirst }
}

/// Returns whether an operand may be copied: unpadded convolution input, or a product's unpacked second operand.
fn may_copy(extents: &Extents) -> bool {
    match extents.is_conv {
        true => !extents.is_padded && extents.may_fill && !is_depthwise(extents),
        false => extents.whole.is_some(),
    }
}

fn may_prefetch(extents: &Extents) -> bool {
    extents.is_conv && extents.is_single && !extents.is_padded && extents.may_fill && !is_depthwise(extents)
}

/// Returns whether tiles prefetch by default: on server CPUs of Intel, where lines that another core wrote arrive late.
/// Other CPUs were not measured.
fn prefetches(machine: &Cpu, extents: &Extents, tile: &Tile) -> bool {
    machine.is_intel && machine.cores > 1 && may_prefetch(extents) && extents.columns > tile.columns
}

/// Returns the tile of a product whose second operand is copied by panels; None where the copy does not pay.
fn panel_tile(machine: &Cpu, extents: &Extents, blocks: &[i64]) -> Option<Tile> {
    /// Minimum number of rows that amortises a copy. `FEW_ROWS` applies if the operand cannot be read as vectors.
    const ROWS: i64 = 32;
    const FEW_ROWS: i64 = 8;
    const LARGE: i64 = 1 << 17;
    /// Number of multiply-adds that one core finishes before other cores have started.
    const FEW: i64 = 1 << 20;
    /// Number of loads per multiply-add that cost no time, because they overlap with arithmetic.
    const HIDDEN: f64 = 0.55;
    let (whole, lanes) = (extents.whole?, machine.vector_lanes);
    let is_readable = whole % (2 * lanes) == 0;
    let numbers = extents.depth.saturating_mul(extents.channels);
    if extents.columns < if is_readable { ROWS } else { FEW_ROWS } || (is_readable && numbers < LARGE) {
        return None;
    }
    let (widest, most_rows) = if is_deep(machine, extents) { (2, DEEP_ROWS) } else { (4, 12) };
    let vectors = [4, 2, 1].into_iter().filter(|&vectors| vectors <= widest && blocks.contains(&(vectors * lanes)));
    let tiles = vectors.flat_map(|vectors| {
        let columns = (2..=most_rows.min(extents.columns)).rev();
        let fits = move |columns: &i64| used_registers(extents, vectors, *columns) <= machine.vector_registers;
        columns.filter(fits).map(move |columns| (vectors, columns))
    });
    let cost = |(vectors, columns): (i64, i64)| {
        let loads = (vectors + columns) as f64 / (vectors * columns) as f64;
        loads.max(HIDDEN) * filled_extent(extents.channels, vectors * lanes) as f64
    };
    let (vectors, columns) = tiles.min_by(|one, other| cost(*one).total_cmp(&cost(*other)))?;
    let block = vectors * lanes;
    let are_enough = extents.batch * tile_count(extents.channels, block) >= 2 * machine.cores;
    let is_small = numbers.saturating_mul(extents.columns) <= FEW;
    (are_enough || is_small).then_some(Tile { block, channels: 1, rows: 1, columns })
}

const PRODUCT_ROWS: i64 = 16;

/// Returns whether row tiles of a product may overhang; the row loop is then sequential, so channels must fill cores.
fn may_reach(machine: &Cpu, extents: &Extents) -> bool {
    !extents.is_conv
        && !matches!(extents.blocking, Blocking::None)
        && extents.columns > PRODUCT_ROWS
        && extents.batch * tile_count(extents.channels, 4 * machine.vector_lanes) >= 2 * machine.cores
}

/// Returns whether a pointwise convolution copies its input: a large one, if planes collide or weights are large.
fn is_copied(extents: &Extents) -> bool {
    const LARGE: i64 = 1 << 19;
    const MANY: i64 = 1 << 18;
    const PAGE: i64 = 1024;
    let is_alike = (extents.rows * extents.columns) % PAGE == 0;
    may_copy(extents)
        && extents.is_single
        && extents.is_dense
        && extents.sources >= LARGE
        && (is_alike || extents.weights > MANY)
        && extents.columns >= 2 * COPIED_TOGETHER * 16
}

/// Returns where the padded input is computed: a copy per row of tiles stays in the cache, a copy of the whole input
/// does not. For few channels and small windows, bound checks are cheapest.
fn padded_at(extents: &Extents, tile: &Tile) -> PadAt {
    /// Maximum channels of an image, for which bound checks cost less than a copy in windows up to `SMALL`.
    const IMAGE: i64 = 4;
    const SMALL: i64 = 3;
    let is_image = extents.depth <= IMAGE;
    // In an unrolled whole row, it is known which columns are padding. A last tile that overhangs has bound checks
    // anyway.
    let is_whole_row = tile.rows == 1 && tile.columns == extents.columns;
    let is_filled = extents.columns % tile.columns != 0;
    match extents {
        // A channel that only one channel of the result reads is padded where it is used.
        _ if is_depthwise(extents) => PadAt::Outer,
        // Dilated windows skip padding tap by tap, all phases read one input, and without two spatial dimensions there
        // are no rows of tiles that share a copy.
        _ if !extents.may_fill || !extents.is_close || extents.reaches.len() != 2 => PadAt::Root,
        _ if is_whole_row || is_filled || (is_image && extents.window <= SMALL) => PadAt::Inline,
        _ if is_image => PadAt::Root,
        _ => PadAt::Outer,
    }
}

/// Returns the number of unrolled steps over channels: 1 except on Intel CPUs, for products and some convolutions.
fn unrolled_steps(machine: &Cpu, extents: &Extents, tile: &Tile) -> i64 {
    // Measured on one core with the instructions of Sapphire Rapids: products take from 1 % more to 23 % less time,
    // most of them 4 to 10 % less, and dilated windows 9 to 52 % less.
    let most = if machine.is_intel { 8 } else { 1 };
    let is_single = extents.is_single && !is_depthwise(extents);
    let is_product = !extents.is_conv || is_single || extents.is_dilated();
    let elements = tile.block.max(1) * tile.channels * tile.rows * tile.columns;
    // With more accumulators, LLVM spills some of them if several steps are unrolled.
    let is_full = elements > dots::sum_registers(machine) * machine.vector_lanes;
    let fits =
        |&steps: &i64| extents.depth % steps == 0 && steps <= most && steps * elements <= unrolled_limit(machine);
    [8, 4].into_iter().filter(|_| is_product && !is_full).find(fits).unwrap_or(1)
}

/// Returns the limit on tile elements times unrolled steps, which bounds build time.
fn unrolled_limit(machine: &Cpu) -> i64 {
    8 * machine.vector_registers * machine.vector_lanes
}
