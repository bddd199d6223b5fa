//! Declares the space of convolutions and matrix products.

use super::axes::{
    BLOCK, ChoiceAxis, Declaration, GRAIN, LAYOUT, NumberAxis, OUTER, PAD_AT, PARALLEL, SPLIT_R, TILE_C, TILE_X,
    TILE_Y, UNROLL, divisors, upto,
};
use super::choices::{CopyAt, LayoutKind, PadAt, SumAt, SumOrder, TileOrder, WriteAt, YesNo};
use super::dots;
use super::extents::{Blocking, Extents, is_depthwise};
use super::register_tile::{
    DEEP_ROWS, Tile, Together, best_tile, depthwise_tile, group_tile, has_few_registers, imbalance, is_deep, registers,
    row_tile, together,
};
use super::taps::is_worth_it;
use super::{Domain, Knobs, Space, SpaceLimits, Template};
use crate::flat::ENOUGH;
use crate::machine::Cpu;
use crate::tiles::{count, filled, reach_little_past};
use models::Choice;
use std::ops::RangeInclusive;

/// Tiles along channels that are taken together.
pub static CACHE_C: NumberAxis = NumberAxis::new("cache_c").neutral(1);
/// Tiles along rows that are taken together.
pub static CACHE_Y: NumberAxis = NumberAxis::new("cache_y").neutral(1);
/// Tiles along columns that are taken together.
pub static CACHE_X: NumberAxis = NumberAxis::new("cache_x").neutral(1);
/// When sums are finished: without tiles that are taken together there is nothing else to finish first.
pub static SUM_AT: ChoiceAxis<SumAt> = ChoiceAxis::new("sum_at").neutral("tile").when(takes_together);
/// Steps of the depth that tiles taken together sum at once.
pub static CACHE_R: NumberAxis = NumberAxis::new("cache_r").neutral(1).when(sums_together);
pub static ORDER: ChoiceAxis<SumOrder> = ChoiceAxis::new("order");
/// Where what tiles read is copied.
pub static COPY_AT: ChoiceAxis<CopyAt> = ChoiceAxis::new("copy_at").neutral("no");
/// Where what follows the sums is computed.
pub static WRITE_AT: ChoiceAxis<WriteAt> = ChoiceAxis::new("write_at").neutral("tile");
/// Whether the innermost loop is one vector.
pub static VECTORIZE: ChoiceAxis<YesNo> = ChoiceAxis::new("vectorize");

/// The axes of contractions on CPUs alone.
pub(crate) static AXES: &[&Declaration] =
    &[&CACHE_C.0, &CACHE_Y.0, &CACHE_X.0, &SUM_AT.0, &CACHE_R.0, &ORDER.0, &COPY_AT.0, &WRITE_AT.0, &VECTORIZE.0];

fn takes_together(knobs: &Knobs) -> bool {
    [&CACHE_C, &CACHE_Y, &CACHE_X].into_iter().any(|axis| axis.of(knobs).is_some_and(|together| together != 1))
}

fn sums_together(knobs: &Knobs) -> bool {
    takes_together(knobs) && SUM_AT.is(knobs, SumAt::Cache)
}

/// Settings that come to others: without parts of the depth a copy for each part is one for each step of the pool.
pub(crate) fn settle(knobs: &mut Knobs) {
    if COPY_AT.is(knobs, CopyAt::Part) && CACHE_R.of(knobs).is_none() {
        COPY_AT.set(knobs, CopyAt::Outer);
    }
}

/// Channel blocks, or channels, that one register tile may have; the last tile may reach past the end.
const ANY_CHANNELS: [i64; 9] = [1, 2, 3, 4, 5, 6, 8, 12, 16];

/// Tiles along one dimension that may be taken together, so that they share what a cache holds.
const TOGETHER: [i64; 6] = [1, 2, 3, 4, 8, 16];

/// Steps of the depth that tiles taken together may sum before the next: what they read of both operands stays near.
const PARTS: [i64; 4] = [64, 128, 256, 512];

pub(crate) fn contraction(machine: &Cpu, extents: &Extents, domain: Domain, has_epilogue: bool) -> Space {
    let lanes = machine.vector_lanes;
    let (blocks, widths) = (blocks(machine, extents), widths(machine, extents));
    let may_block = !blocks.is_empty();
    let may_be_plain = extents.is_conv || read_as_they_are(extents, &blocks).is_empty();
    let mut axes = Vec::new();
    let layouts = [(LayoutKind::Blocked, may_block), (LayoutKind::Plain, may_be_plain)];
    axes.push(LAYOUT.axis("how weights and the accumulator are stored", layouts.iter().filter(|l| l.1).map(|l| l.0)));
    if may_block {
        axes.push(BLOCK.axis("channels in one vector block", blocks.iter().copied()));
    }
    axes.push(TILE_C.axis(
        "channel blocks (blocked) or channels (plain) in one register tile",
        ANY_CHANNELS.into_iter().filter(|&channels| channels <= extents.channels),
    ));
    axes.push(TILE_Y.axis("rows in one register tile", 1..=extents.rows.min(8)));
    axes.push(TILE_X.axis("columns in one register tile", any_widths(extents, &widths, may_block)));
    axes.push(SPLIT_R.axis("inner part of the split reduction", upto(extents.depth, &[1, 4, 8, 16, 32])));
    if extents.is_conv {
        let orders = if extents.is_single { &SumOrder::ALL[..2] } else { SumOrder::ALL };
        axes.push(ORDER.axis("order of the reduction loops", orders.iter().copied()));
    }
    axes.push(UNROLL.axis("innermost reduction loops written out", [0, 1]));
    let orders = if extents.is_conv { TileOrder::ALL } else { &TileOrder::ALL[..2] };
    axes.push(OUTER.axis("order of the loops over tiles, or which is outside", orders.iter().copied()));
    for (axis, meaning, tiles) in [
        (&CACHE_C, "tiles along channels that are taken together", extents.channels),
        (&CACHE_Y, "tiles along rows that are taken together", extents.rows),
        (&CACHE_X, "tiles along columns that are taken together", extents.columns),
    ] {
        if tiles > 1 {
            axes.push(axis.axis(meaning, TOGETHER.into_iter().filter(|&together| together <= tiles)));
        }
    }
    axes.push(
        SUM_AT.axis(
            "whether sums of a tile, or of tiles taken together, are finished first",
            [SumAt::Tile, SumAt::Cache],
        ),
    );
    let parts: Vec<i64> = PARTS.into_iter().filter(|part| *part < extents.depth && extents.depth % part == 0).collect();
    if !parts.is_empty() {
        let text = "steps of the depth that tiles taken together sum at once";
        axes.push(CACHE_R.axis(text, std::iter::once(1).chain(parts)));
    }
    axes.push(PARALLEL.axis("outer loops fused and run on the pool", [1, 2, 3]));
    axes.push(GRAIN.axis("steps of those loops that a thread takes at once", [1, 2, 4, 8]));
    if extents.is_padded {
        axes.push(PAD_AT.axis("where the padded input is computed", [PadAt::Inline, PadAt::Root, PadAt::Outer]));
    }
    if may_copy(extents) {
        axes.push(COPY_AT.axis(
            "where what tiles read is copied, so that it lies together",
            [CopyAt::No, CopyAt::Outer, CopyAt::Part],
        ));
    }
    if has_epilogue {
        axes.push(WRITE_AT.axis("where what follows the sums is computed", [WriteAt::Tile, WriteAt::Root]));
    }
    axes.push(VECTORIZE.axis("whether the innermost loop is one vector", [YesNo::Yes, YesNo::No]));
    let default = contraction_default(machine, extents, &blocks, &widths);
    let limits = SpaceLimits::Registers {
        tile_elements: 2 * machine.vector_registers * lanes,
        unrolled_elements: written_out(machine),
        window: extents.window,
        tiles: None,
        sums: dots::registers(machine),
        domain,
        whole: extents.whole,
    };
    Space { template: Template::Contraction, axes, default, limits }
}

/// Columns that a register tile may have: those that divide all columns, and where none of them are enough, also those
/// of which a few tiles reach a little past the end, of a channel by itself whole vectors.
fn widths(machine: &Cpu, extents: &Extents) -> Vec<i64> {
    const MOST: i64 = 32;
    let (columns, is_depthwise) = (extents.columns, is_depthwise(extents));
    let mut widths: Vec<i64> = divisors(columns).filter(|&width| width <= MOST).collect();
    // The compiler cuts odd vectors into many.
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

/// Columns of tiles that have two or three vectors of channels and fit 16 registers.
const NARROW: RangeInclusive<i64> = 4..=6;

/// Whether tiles of pointwise sums with few registers may reach past the end of a row that such tiles do not divide, or whose result
/// goes through functions, which have whole vectors then. Short sums gain less than the last block costs.
fn needs_narrow(machine: &Cpu, extents: &Extents, widths: &[i64]) -> bool {
    const LONG_SUM: i64 = 192;
    let is_pointwise = extents.is_single && extents.is_dense && extents.may_fill;
    let is_odd = extents.summed >= LONG_SUM && !widths.iter().any(|width| NARROW.contains(width));
    has_few_registers(machine) && is_pointwise && (is_odd || extents.has_functions)
}

/// Those and all others that a register tile may have: where columns are no vector the last tile may reach past the end, and a
/// convolution computes columns past the end and leaves them out.
fn any_widths(extents: &Extents, widths: &[i64], may_block: bool) -> Vec<i64> {
    let is_any = may_block && !extents.is_conv;
    let others = (1..=extents.columns.min(MOST_PAST))
        .filter(|&width| is_any || (extents.may_fill && may_be_columns(extents.columns, width)));
    let mut all: Vec<i64> = widths.iter().copied().chain(others).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Columns that tiles may have which reach past the end, at most.
const MOST_PAST: i64 = 16;

/// Returns whether a convolution's tiles may have `width` columns: divisors, and widths up to 16 that reach little past the end.
pub fn may_be_columns(columns: i64, width: i64) -> bool {
    columns % width == 0 || (width <= MOST_PAST && reach_little_past(columns, width))
}

/// Returns whether a product's tiles may have `height` rows: divisors, and all heights up to 16.
pub fn may_be_rows(rows: i64, height: i64) -> bool {
    rows % height == 0 || height <= MOST_PAST.min(rows)
}

/// Block sizes a layout may have: powers of two, because vectors of other widths compile badly.
fn blocks(machine: &Cpu, extents: &Extents) -> Vec<i64> {
    let lanes = machine.vector_lanes;
    let wished = [lanes / 2, lanes, 2 * lanes, 4 * lanes].into_iter().filter(|&block| block > 1);
    match extents.blocking {
        Blocking::None => Vec::new(),
        Blocking::Dividing(extent) => wished.filter(|block| extent % block == 0).collect(),
        // Columns whose number stays open are one.
        Blocking::Padded if extents.whole.is_some() => wished.filter(|&block| block <= 2 * extents.channels).collect(),
        // A block may reach past the end, but not by a whole block.
        Blocking::Padded => wished.filter(|&block| block < 2 * extents.channels.max(lanes / 2)).collect(),
    }
}

/// Of these blocks those of an operand that is not copied.
fn read_as_they_are(extents: &Extents, blocks: &[i64]) -> Vec<i64> {
    blocks.iter().copied().filter(|block| extents.whole.is_none_or(|whole| whole % block == 0)).collect()
}

/// A register tile that fills most of the vector registers with accumulators.
fn contraction_default(machine: &Cpu, extents: &Extents, blocks: &[i64], widths: &[i64]) -> Knobs {
    let is_depthwise = is_depthwise(extents);
    let row_tile = row_tile(machine, extents, widths).or_else(|| group_tile(machine, extents, widths));
    let panels = panels(machine, extents, blocks);
    let has_panels = panels.is_some();
    let is_copied = has_panels || is_copied(extents);
    let blocks = &read_as_they_are(extents, blocks)[..];
    let may_block = has_panels || !blocks.is_empty() && row_tile.is_none();
    let tile = if is_depthwise {
        depthwise_tile(machine, extents, widths)
    } else if let Some(tile) = panels {
        tile
    } else if let Some(tile) = row_tile {
        tile
    } else {
        // Without blocks the rows of a product are a vector, which none reach past.
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
    SPLIT_R.set(&mut knobs, steps_written_out(machine, extents, &tile));
    if extents.is_conv {
        // Of channels that are read by one channel only there is nothing to sum but taps: the compiler, given a row of them
        // written out, spills sums.
        let is_by_taps = is_depthwise || is_worth_it(&extents.reaches, tile.rows, tile.columns);
        ORDER.set(&mut knobs, if is_by_taps { taps_order(machine, extents, &tile) } else { SumOrder::DepthFirst });
    }
    UNROLL.set(&mut knobs, 1);
    // What is read whole for each tile of the other should be the smaller one; weights lie better than columns do.
    let is_filled = extents.columns % tile.columns != 0;
    let is_large = extents.sources > 2 * extents.weights;
    let is_by_space = is_copied && extents.is_conv
        || extents.is_single
            && if is_filled { extents.rows > 1 } else { is_large || is_balanced_by_space(machine, extents, &tile) };
    OUTER.set(&mut knobs, if is_by_space { TileOrder::Space } else { TileOrder::Channels });
    if is_copied {
        COPY_AT.set(&mut knobs, CopyAt::Outer);
    }
    if let Some(Together { channels, rows, part }) = together(machine, extents, &tile).filter(|_| !has_panels) {
        SUM_AT.set(&mut knobs, SumAt::Cache);
        for (axis, together) in [(&CACHE_C, channels), (&CACHE_X, rows), (&CACHE_R, part)] {
            axis.set(&mut knobs, together);
        }
    }
    if is_copied && extents.is_conv {
        CACHE_X.set(&mut knobs, COPIED_TOGETHER);
    } else if has_far_planes(extents, &tile) {
        CACHE_X.set(&mut knobs, FAR_TOGETHER);
    }
    // Steps of the pool share no copy, and a last tile of rows that is apart from others needs a loop over them.
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
    // The compiler's own vectors read elements far from each other better.
    VECTORIZE.set(&mut knobs, if is_depthwise && extents.step > 2 { YesNo::No } else { YesNo::Yes });
    knobs
}

/// Whether threads share the tiles of one row more evenly than those of channels, and the weights, which each of these reads, stay in a
/// core's cache.
fn is_balanced_by_space(machine: &Cpu, extents: &Extents, tile: &Tile) -> bool {
    const CACHED: i64 = 1 << 18;
    const UNEVEN: f64 = 1.1;
    let by_channels = imbalance(machine, count(extents.channels, tile.block * tile.channels));
    let by_columns = imbalance(machine, count(extents.columns, tile.columns));
    extents.rows == 1 && extents.weights <= CACHED && by_channels > UNEVEN * by_columns
}

/// Tiles along columns whose input is copied together by default: more keep two threads less alike.
const COPIED_TOGETHER: i64 = 4;

/// Tiles along columns that are taken together where planes of the result are far apart.
const FAR_TOGETHER: i64 = 8;

/// Whether a result of single places is larger than a core's cache and each of its planes many pages long: tiles of all channels one
/// after the other write a little in each of too many places. Seen with 2 MiB, planes of 80×80 and more, on one thread and on two:
/// mostly from 3 to 30 % less time, and nothing of planes of 72×72 and less.
fn has_far_planes(extents: &Extents, tile: &Tile) -> bool {
    const LARGE: i64 = 1 << 19;
    const PLANE: i64 = 6 << 10;
    let plane = extents.rows * extents.columns;
    let is_plain = tile.block == 1 && extents.is_conv && extents.is_single && extents.is_dense;
    is_plain && plane >= PLANE && extents.channels * plane >= LARGE
}

/// Whether channels that are read by one channel only are padded as whole planes, a plane for each step of the pool, and not row of
/// tiles by row of tiles, which reads the rows between tiles twice. Seen of 3×3 side by side on planes of 40 to 72 rows: from 1 to 29 %
/// less time; smaller planes have few rows of tiles, and larger ones leave a core's nearest cache.
fn pads_planes(machine: &Cpu, extents: &Extents, tile: &Tile) -> bool {
    const PLANE: i64 = 5 << 10;
    const ROWS_OF_TILES: i64 = 5;
    const SHARED: i64 = 4;
    is_depthwise(extents)
        && extents.is_padded
        && extents.window <= 3
        && extents.step == 1
        && extents.rows * extents.columns <= PLANE
        && count(extents.rows, tile.rows) >= ROWS_OF_TILES
        && extents.channels >= SHARED * machine.cores
}

/// The order of sums by taps: window first, but of rows of seven that the compiler makes vectors of by itself, in steps, its rows,
/// channels and columns; seen on Intel's: from 4 to 11 % less time.
fn taps_order(machine: &Cpu, extents: &Extents, tile: &Tile) -> SumOrder {
    let is_left = is_depthwise(extents) && tile.columns == 1 && extents.columns == 7;
    if machine.is_intel && is_left && extents.step == 2 { SumOrder::Ycx } else { SumOrder::KernelFirst }
}

/// Whether what tiles read may be copied: the input of a convolution that is not padded, the second operand of a product that is
/// not packed.
fn may_copy(extents: &Extents) -> bool {
    match extents.is_conv {
        true => !extents.is_padded && extents.may_fill && !is_depthwise(extents),
        false => extents.whole.is_some(),
    }
}

/// The tile of a product whose second operand is copied by default, panel by panel: one that is large, or cannot be read as
/// vectors where it lies, where there are rows to share a panel, and panels for all cores.
fn panels(machine: &Cpu, extents: &Extents, blocks: &[i64]) -> Option<Tile> {
    /// Rows that pay for a copy, and those that pay where the operand is not read as vectors without one.
    const ROWS: i64 = 32;
    const FEW_ROWS: i64 = 8;
    const LARGE: i64 = 1 << 17;
    /// Products that one core does before others have begun.
    const FEW: i64 = 1 << 20;
    /// Loads for each multiply-add that are hidden.
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
        let fits = move |columns: &i64| registers(extents, vectors, *columns) <= machine.vector_registers;
        columns.filter(fits).map(move |columns| (vectors, columns))
    });
    let cost = |(vectors, columns): (i64, i64)| {
        let loads = (vectors + columns) as f64 / (vectors * columns) as f64;
        loads.max(HIDDEN) * filled(extents.channels, vectors * lanes) as f64
    };
    let (vectors, columns) = tiles.min_by(|one, other| cost(*one).total_cmp(&cost(*other)))?;
    let block = vectors * lanes;
    let are_enough = extents.batch * count(extents.channels, block) >= 2 * machine.cores;
    let is_small = numbers.saturating_mul(extents.columns) <= FEW;
    (are_enough || is_small).then_some(Tile { block, channels: 1, rows: 1, columns })
}

/// Rows that one tile of a product may have by default.
const PRODUCT_ROWS: i64 = 16;

/// Whether the last tile of a product's rows may reach past the end by default: then the loop over rows is not one of the pool's,
/// and there must be enough blocks of channels. Fewer rows would read the other operand twice.
fn may_reach(machine: &Cpu, extents: &Extents) -> bool {
    !extents.is_conv
        && !matches!(extents.blocking, Blocking::None)
        && extents.columns > PRODUCT_ROWS
        && extents.batch * count(extents.channels, 4 * machine.vector_lanes) >= 2 * machine.cores
}

/// Whether the input of a convolution of single places is copied by default, so that rows of a tile lie together: an input
/// that is larger than a core's cache, where its channels are so far apart that they share places in it, or where the
/// weights are large, too. Seen with 2 MiB: from a quarter to three quarters of the time, and next to nothing below.
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

/// Where the padded input of a convolution is computed. A copy of its own is another way through memory, written by one core and
/// read by another; a copy for each row of tiles is near, and less than the sums of few channels.
fn padded_at(extents: &Extents, tile: &Tile) -> PadAt {
    /// Channels of images, and windows whose rows are so short that a test of each place costs less than a copy.
    const IMAGE: i64 = 4;
    const SMALL: i64 = 3;
    let is_image = extents.depth <= IMAGE;
    // Which columns of a whole row lie outside is known when its places are written out, and a last tile that reaches past the
    // end has its tests anyway.
    let is_whole_row = tile.rows == 1 && tile.columns == extents.columns;
    let is_filled = extents.columns % tile.columns != 0;
    match extents {
        // A channel that is read by one channel only is padded where it is used.
        _ if is_depthwise(extents) => PadAt::Outer,
        // What lies outside is left out tap by tap, phases read one input, and planes and rows have no rows of tiles to share.
        _ if !extents.may_fill || !extents.is_close || extents.reaches.len() != 2 => PadAt::Root,
        _ if is_whole_row || is_filled || (is_image && extents.window <= SMALL) => PadAt::Inline,
        _ if is_image => PadAt::Root,
        _ => PadAt::Outer,
    }
}

/// Unrolled steps of a sum of products. Steps of a window are always unrolled; channels are unrolled instead if
/// positions of a window are apart and share no data.
fn steps_written_out(machine: &Cpu, extents: &Extents, tile: &Tile) -> i64 {
    // Seen on one core with the instructions of Sapphire Rapids: products take from 1 % more to 23 % less, most 4 to 10, and
    // windows of places that lie apart from 9 to 52 % less.
    let most = if machine.is_intel { 8 } else { 1 };
    let is_single = extents.is_single && !is_depthwise(extents);
    let is_product = !extents.is_conv || is_single || extents.is_apart();
    let elements = tile.block.max(1) * tile.channels * tile.rows * tile.columns;
    // With more accumulators LLVM spills some of them once several steps are unrolled.
    let is_full = elements > dots::registers(machine) * machine.vector_lanes;
    let fits = |&steps: &i64| extents.depth % steps == 0 && steps <= most && steps * elements <= written_out(machine);
    [8, 4].into_iter().filter(|_| is_product && !is_full).find(fits).unwrap_or(1)
}

/// Elements of a register tile times the steps written out that a build may take.
fn written_out(machine: &Cpu) -> i64 {
    8 * machine.vector_registers * machine.vector_lanes
}
