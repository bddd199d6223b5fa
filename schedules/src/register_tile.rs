//! Register tiles that default schedules have.

use super::axes::upto;
use super::dots;
use super::extents::{Blocking, Extents};
use super::is_vector;
use crate::machine::Cpu;
use crate::tiles::{count, filled};

/// Those of which the default schedule takes one.
const TILE_CHANNELS: [i64; 8] = [1, 2, 3, 4, 6, 8, 12, 16];

/// A register tile by its extents.
pub(crate) struct Tile {
    pub(crate) block: i64,
    pub(crate) channels: i64,
    pub(crate) rows: i64,
    pub(crate) columns: i64,
}

/// The tile with the fewest loads per multiply-add among those whose accumulators fit the registers.
///
/// A step of the reduction loads one vector of weights per vector of channels and one number per position, and does
/// their product in multiply-adds; so a square tile is best.
pub(crate) fn best_tile(machine: &Cpu, extents: &Extents, blocks: &[i64], widths: &[i64]) -> Tile {
    /// Floats in two cache lines.
    const WIDE: i64 = 32;
    let lanes = machine.vector_lanes;
    let may_block = !blocks.is_empty();
    let is_deep = may_block && is_deep(machine, extents);
    let blocks: &[i64] = if may_block { blocks } else { &[1] };
    let mut best: Option<(f64, Tile)> = None;
    for &block in blocks {
        let vectors = (block + lanes - 1) / lanes;
        for columns in widths.iter().copied().filter(|&columns| may_block || is_vector(columns)) {
            for rows in upto(extents.rows, &[1, 2, 4]) {
                // A vector of rows of a product that is not blocked is gathered from memory; up to a vector of channels reuses it.
                let is_gathered = !may_block && !extents.is_conv && columns > 1;
                let candidates: &[i64] = if is_gathered { &[1, 2, 4, 8, 16] } else { &[1, 2, 3, 4] };
                for channels in upto(count(extents.channels, block), candidates) {
                    // Without blocks the columns are the vector and the channels are broadcast.
                    let (vectors, broadcasts) = if may_block {
                        (vectors * channels, columns * rows)
                    } else {
                        ((columns + lanes - 1) / lanes * rows, channels)
                    };
                    if is_gathered && columns.max(channels) > lanes {
                        continue;
                    }
                    let is_kept = !is_deep || (block * channels <= 2 * lanes && columns <= DEEP_ROWS);
                    let slower = spilling(machine, extents, vectors, broadcasts);
                    let Some(slower) = slower.filter(|_| is_kept) else { continue };
                    let read = if is_gathered { columns } else { vectors };
                    let inputs = broadcasts * if may_block { groups_of(machine, extents, block * channels) } else { 1 };
                    let loads = (read + inputs) as f64 / (vectors * broadcasts) as f64;
                    let steps = if extents.is_conv {
                        conv_steps(extents, loads, vectors * broadcasts, columns)
                            + function_steps(machine, extents, columns)
                    } else {
                        loads
                    };
                    let slower = slower * reading(machine, extents, block * channels, broadcasts);
                    let slower = slower * cut_imbalance(machine, extents, block * channels, columns);
                    let cost = steps * slower * waste(machine, extents, block, columns, may_block);
                    // Of tiles that cost the same the one whose weights lie together; wide blocks are for products.
                    let is_wide = block > WIDE && extents.is_conv && !extents.is_single;
                    if best.as_ref().is_none_or(|(least, _)| cost < *least || (cost == *least && !is_wide)) {
                        best = Some((cost, Tile { block, channels, rows, columns }));
                    }
                }
            }
        }
    }
    best.map_or(Tile { block: 1, channels: 1, rows: 1, columns: 1 }, |(_, tile)| tile)
}

/// Returns the slowdown of a tile by spilled registers, or None if the tile is not worth considering.
///
/// A spilled accumulator adds a store and a load to the latency between two of its multiply-adds. In a product every step of the
/// reduction pays for that. The taps of a window row are unrolled, and all taps of a small window: many multiply-adds hide it.
fn spilling(machine: &Cpu, extents: &Extents, vectors: i64, broadcasts: i64) -> Option<f64> {
    /// Unrolled taps that hide the latency.
    const HIDING_TAPS: i64 = 9;
    /// Minimum number of registers in addition to the accumulators of a window.
    const OTHERS: i64 = 4;
    let accumulators = vectors * broadcasts;
    if registers(extents, vectors, broadcasts) <= machine.vector_registers {
        // With dilation the reduction is left and entered at each tap, and LLVM unrolls loops over short vectors by itself: both
        // need more registers.
        let is_tight = extents.is_apart() || machine.vector_lanes <= 4;
        (!is_tight || accumulators <= dots::registers(machine)).then_some(1.0)
    } else if !extents.is_conv || !extents.is_close || accumulators + OTHERS > machine.vector_registers {
        None
    } else {
        Some(if extents.taps == HIDING_TAPS || extents.window >= HIDING_TAPS { 1.1 } else { 1.5 })
    }
}

/// Returns the number of groups whose inputs a tile with this many channels reads, as far as it decides a tile.
///
/// With AVX2 a tile of one group spills the inputs that its taps share, and with NEON it takes more sums than stay in registers.
fn groups_of(machine: &Cpu, extents: &Extents, channels: i64) -> i64 {
    /// Lanes of AVX-512.
    const LANES: i64 = 16;
    match extents.blocking {
        Blocking::Dividing(group) if extents.is_conv && machine.vector_lanes >= LANES => count(channels, group),
        _ => 1,
    }
}

/// Whether the machine has long vectors but only 16 registers for them, as with AVX2.
pub(crate) fn has_few_registers(machine: &Cpu) -> bool {
    machine.vector_registers <= 16 && machine.vector_lanes >= 8
}

/// Returns the steps of exponentials and similar functions behind a convolution, per vector of the result, with few registers.
///
/// Their vectors are as wide as the tile, or as a row where the tiles reach past its end.
fn function_steps(machine: &Cpu, extents: &Extents, columns: i64) -> f64 {
    const FULL_VECTOR: f64 = 40.0;
    if !extents.has_functions || !has_few_registers(machine) {
        return 0.0;
    }
    let is_cut = extents.columns % columns != 0;
    if is_cut { FULL_VECTOR } else { FULL_VECTOR * filled(columns, machine.vector_lanes) as f64 / columns as f64 }
}

/// Returns the slowdown of a convolution's tile with a single position, which uses each loaded weight once, if the weights of its
/// channels exceed a core's caches.
///
/// With few registers other tiles are an alternative as long as the nearest cache holds their inputs, a line for each channel.
fn reading(machine: &Cpu, extents: &Extents, channels: i64, broadcasts: i64) -> f64 {
    const CACHED_BYTES: i64 = 1 << 19;
    const NEAREST_BYTES: i64 = 1 << 15;
    const LINE_BYTES: i64 = 64;
    let bytes = channels.saturating_mul(extents.summed).saturating_mul(extents.weight_bytes);
    let is_near = has_few_registers(machine) && extents.depth.saturating_mul(LINE_BYTES) <= NEAREST_BYTES;
    let cached = if is_near { NEAREST_BYTES } else { CACHED_BYTES };
    if extents.is_conv && broadcasts == 1 && bytes > cached { 1.4 } else { 1.0 }
}

/// Returns how many vector registers a tile needs for accumulators, weights and broadcast inputs.
///
/// The taps of a window row are unrolled, so inputs that several taps read stay in registers. With a stride `s` the taps of one
/// column read `s` interleaved sequences of inputs; neighbouring columns share the sequences that have more than one tap.
pub(crate) fn registers(extents: &Extents, vectors: i64, broadcasts: i64) -> i64 {
    // A transposed convolution is computed phase by phase, each with a stride of one.
    let (window, step) = match extents.may_fill {
        true => (extents.window, extents.step),
        false => (count(extents.window, extents.step), 1),
    };
    let shared = if extents.is_conv && extents.is_close { step.min(window - step).max(0) } else { 0 };
    // LLVM keeps another input of a strided window of one position.
    let is_strided = extents.is_conv && extents.is_single && extents.step > 1;
    match shared {
        0 => product_registers(vectors, broadcasts) + i64::from(is_strided),
        _ => product_registers(vectors, broadcasts) - 1 + shared * broadcasts + if shared < step { 2 } else { 0 },
    }
}

/// Returns how many vector registers a tile of a product needs: one broadcast at a time, and weights that are used more than once.
pub(crate) fn product_registers(vectors: i64, broadcasts: i64) -> i64 {
    vectors * broadcasts + if broadcasts > 1 { vectors } else { 1 } + 1
}

/// Rows of a product's tile whose channels are few, because its depth is large.
pub(crate) const DEEP_ROWS: i64 = 8;

/// Whether a product is so deep that what the widest tile's channels are multiplied by does not stay in a core's cache from one tile
/// of rows to the next: of half as many channels it does. Seen with 2 MiB, of 8 to 14 thousand: from 14 to 41 % less time.
pub(crate) fn is_deep(machine: &Cpu, extents: &Extents) -> bool {
    const KEPT: i64 = 3 << 19;
    const ROWS: i64 = 16;
    !extents.is_conv && extents.columns >= ROWS && panel(extents, 4 * machine.vector_lanes) > KEPT
}

/// Bytes of weights that this many channels of a product are multiplied by.
fn panel(extents: &Extents, channels: i64) -> i64 {
    channels.saturating_mul(extents.depth).saturating_mul(extents.weight_bytes)
}

/// What tiles of a deep product sum together, part by part of the depth.
pub(crate) struct Together {
    pub(crate) channels: i64,
    pub(crate) rows: i64,
    /// Steps of the depth in a part.
    pub(crate) part: i64,
}

/// That of a product of which not even the channels of a narrow tile stay in a cache, or whose rows are so few that they read what is
/// not there yet: from 14 to 32 % less time, where tiles divide the rows.
pub(crate) fn together(machine: &Cpu, extents: &Extents, tile: &Tile) -> Option<Together> {
    const KEPT: i64 = 5 << 18;
    const ROWS: i64 = 32;
    const CHANNELS: i64 = 4;
    let width = tile.block * tile.channels;
    let is_much = panel(extents, width) > KEPT || extents.columns <= ROWS;
    let are_enough = count(extents.channels, CHANNELS * width) >= 2 * machine.cores;
    if !is_deep(machine, extents) || !is_much || !are_enough || tile.block == 1 || extents.columns % tile.columns != 0 {
        return None;
    }
    let tiles = extents.columns / tile.columns;
    let rows = [16, 8, 4].into_iter().find(|rows| tiles % rows == 0)?;
    let part = [256, 128].into_iter().find(|part| extents.depth % part == 0)?;
    Some(Together { channels: CHANNELS, rows, part })
}

/// Steps that a vector of a convolution's result takes, as they were seen on one core with vectors of 512 bits: those of
/// the sum, slower where loads are not hidden or registers run out, and those of putting channels apart at the end.
///
/// The taps of a window share what they read, and that needs registers, too; one place, or places far apart, have nothing
/// to share, and the more sums a tile fills the seldomer it reads.
fn conv_steps(extents: &Extents, loads: f64, accumulators: i64, columns: i64) -> f64 {
    const EASY_ACCUMULATORS: i64 = 16;
    const LONG_SUM: i64 = 64;
    let (hidden_loads, registers) = if extents.is_close {
        let is_crowded = accumulators > EASY_ACCUMULATORS && extents.summed > LONG_SUM;
        (0.5, if is_crowded { 1.4 } else { 1.0 })
    } else {
        (0.6, 1.0 + 4.0 / accumulators as f64)
    };
    let uneven = if columns % 4 == 0 || !extents.is_close { 1.0 } else { 1.5 };
    let apart = 16.0 * (1.0 + 8.0 / columns as f64) * uneven;
    extents.summed as f64 * (loads / hidden_loads).max(1.0) * registers + apart
}

/// Vectors of places and the channels that share them, where places divide into whole vectors: then channels are not put
/// apart at the end. Single vectors are for short sums, because they share less, and where blocks of channels would be partly
/// empty.
pub(crate) fn row_tile(machine: &Cpu, extents: &Extents, widths: &[i64]) -> Option<Tile> {
    /// Vectors of places and one number of a weight.
    const OTHERS: i64 = 3;
    /// Sums that keep the processor busy while each waits for its last product.
    const BUSY: i64 = 8;
    let lanes = machine.vector_lanes;
    let is_short = extents.summed <= 4 * lanes;
    // Blocks of channels would add a sixth or more.
    let is_odd = 6 * (filled(extents.channels, lanes) - extents.channels) >= extents.channels;
    let vectors = [2, 1].into_iter().find(|vectors| widths.contains(&(vectors * lanes)))?;
    if !extents.is_single || !extents.is_dense {
        return None;
    }
    let fits = |channels: &i64| channels * vectors + OTHERS <= machine.vector_registers && channels * vectors <= 16;
    let dividing = upto(extents.channels, &TILE_CHANNELS).filter(fits).max()?;
    let channels =
        if has_few_registers(machine) && vectors == 2 { channels_of_rows(extents, dividing) } else { dividing };
    if vectors == 1 && !is_short && !(is_odd && channels >= BUSY) {
        return None;
    }
    Some(Tile { block: 1, channels, rows: 1, columns: vectors * lanes })
}

/// Returns how many channels share two vectors of places with few registers: the fewest loads per multiply-add, also of channels
/// that the last tile lacks.
fn channels_of_rows(extents: &Extents, dividing: i64) -> i64 {
    const CANDIDATES: [i64; 2] = [6, 5];
    const VECTORS: i64 = 2;
    let cost = |tile: i64| filled(extents.channels, tile) as f64 * (tile + VECTORS) as f64 / (tile * VECTORS) as f64;
    // LLVM stores the sums in each step where the last tile has four of six or three of five channels.
    let is_stored = |tile: i64| extents.channels % tile != 0 && extents.channels % tile == tile / 2 + 1;
    let beyond = CANDIDATES.into_iter().filter(|&tile| tile < extents.channels && !is_stored(tile));
    beyond.chain([dividing]).min_by(|one, other| cost(*one).total_cmp(&cost(*other))).unwrap_or(dividing)
}

/// Returns the tile of a grouped convolution whose channels of a group fill no vector while the columns of a row do: one vector of
/// columns, the channels of a group, and as many rows as the registers hold. Small groups share a tile, which hides latencies.
pub(crate) fn group_tile(machine: &Cpu, extents: &Extents, widths: &[i64]) -> Option<Tile> {
    /// The lanes of AVX2, below which no machine was measured.
    const LANES: i64 = 8;
    let lanes = machine.vector_lanes;
    let Blocking::Dividing(group @ 2..) = extents.blocking else { return None };
    let shares_inputs = extents.is_conv && extents.is_close && extents.step == 1;
    let columns = widths.iter().copied().filter(|&width| width <= lanes).max()?;
    if lanes < LANES || group >= lanes || !shares_inputs || 4 * columns < 3 * lanes {
        return None;
    }
    let fits = |sums: i64| 4 * sums <= 3 * machine.vector_registers;
    let mut channels = upto(group, &[1, 2, 3, 4, 6, 8]).max()?;
    let rows = upto(extents.rows, &[1, 2, 4]).filter(|rows| fits(rows * channels)).max()?;
    // The padding of a whole row is tested column by column, which leaves no vectors.
    if rows == 1 && columns == extents.columns {
        return None;
    }
    while fits(2 * rows * channels) && extents.channels % (2 * channels) == 0 {
        channels *= 2;
    }
    Some(Tile { block: 1, channels, rows, columns })
}

/// Places of an image of which two channels are computed at once; on Intel's, with small windows side by
/// side, more.
const SMALL_IMAGE: i64 = 400;

const SMALL_IMAGE_ON_INTEL: i64 = 784;

/// Columns and a few rows: channels share nothing, so only neighbouring windows do.
pub(crate) fn depthwise_tile(machine: &Cpu, extents: &Extents, widths: &[i64]) -> Tile {
    const MOST_ROWS: i64 = 8;
    if extents.step > 2 {
        return Tile { block: 1, channels: 1, rows: 1, columns: 1 };
    }
    // The rows of a small image alone leave the processor waiting for its sums.
    let is_simple = extents.window <= 3 && extents.step == 1;
    let most = if machine.is_intel && is_simple { SMALL_IMAGE_ON_INTEL } else { SMALL_IMAGE };
    let is_small = extents.rows * extents.columns <= most;
    // Of a row this short and a small window the compiler makes better vectors by itself: seen of 7 and 14 columns, of 7 on
    // Intel's in steps alone, not of others, and not where exponentials follow.
    let is_short = extents.columns == 14 || (extents.columns == 7 && !(machine.is_intel && extents.step == 1));
    let is_left = extents.window <= 3 && is_short && machine.vector_lanes >= 8 && !extents.has_functions;
    // In steps vectors of our own read more than they share: seen on Intel's, two channels take from 4 to 12 % more.
    let is_shared = !machine.is_intel || extents.step == 1 || is_left;
    let columns = widths.iter().copied().filter(|&columns| columns <= machine.vector_lanes);
    let columns = columns.min_by_key(|&width| (steps(extents, width, MOST_ROWS), -width)).unwrap_or(1);
    // Each channel needs its accumulators, an input vector and the weights of a window row.
    let fits = |rows: i64, channels: i64| channels * (rows + 1 + extents.window) <= machine.vector_registers;
    let heights = (1..=MOST_ROWS.min(extents.rows)).filter(|&rows| fits(rows, 1));
    let rows = heights.min_by_key(|&rows| read(extents, rows)).unwrap_or(1);
    let is_twofold = is_small && is_shared && extents.channels % 2 == 0 && fits(rows, 2);
    let channels = if is_twofold { 2 } else { 1 };
    Tile { block: 1, channels, rows, columns: if is_left { 1 } else { columns } }
}

/// Steps of all columns by tiles so wide, for each column of the window, in halves of a multiply-add. A vector of any width is
/// multiplied at once, but loaded by one piece for each power of two, which costs half as much again, as was seen.
fn steps(extents: &Extents, width: i64, rows: i64) -> i64 {
    let loads = ((rows - 1) * extents.step + extents.window) * i64::from(width.count_ones());
    count(extents.columns, width) * (2 * rows * extents.window + 3 * loads)
}

/// Number of input rows that a tile of this many result rows reads.
fn read(extents: &Extents, rows: i64) -> i64 {
    count(extents.rows, rows) * ((rows - 1) * extents.step + extents.window)
}

/// Returns the slowdown of tiles that reach past the end of one row: threads then share the channels alone.
fn cut_imbalance(machine: &Cpu, extents: &Extents, channels: i64, columns: i64) -> f64 {
    if !extents.is_conv || extents.rows > 1 || extents.columns % columns == 0 {
        return 1.0;
    }
    imbalance(machine, count(extents.channels, channels))
}

/// Returns the largest share of a thread over the mean share, for a loop with this many steps.
pub(crate) fn imbalance(machine: &Cpu, steps: i64) -> f64 {
    filled(steps, machine.cores) as f64 / steps.max(1) as f64
}

/// Work done over work wanted: half-empty vectors and blocks that reach past the end do more than they must.
fn waste(machine: &Cpu, extents: &Extents, block: i64, columns: i64, may_block: bool) -> f64 {
    /// Another copy of the result, and of what it is made of.
    const COPIES: f64 = 1.1;
    /// Code of its own for the last tile of a product's rows.
    const APART: f64 = 1.02;
    let all = filled(extents.columns, columns);
    let beyond = if all == extents.columns {
        1.0
    } else if !extents.is_conv {
        APART
    } else {
        COPIES * all as f64 / extents.columns as f64
    };
    if may_block {
        let channels = filled(extents.channels, block) as f64 / extents.channels as f64;
        beyond * channels * filled(block, machine.vector_lanes) as f64 / block as f64
    } else {
        beyond * filled(columns, machine.vector_lanes) as f64 / columns as f64
    }
}
