//! Register tiles of default schedules. `docs/decisions/0011-default-schedules-by-rules.md` compares rules and models.

use super::axes::candidate_divisors;
use super::dots;
use super::extents::{Blocking, Extents};
use super::is_vector;
use crate::machine::Cpu;
use crate::tiles::{filled_extent, tile_count};

const TILE_CHANNELS: [i64; 8] = [1, 2, 3, 4, 6, 8, 12, 16];

pub(crate) struct Tile {
    pub(crate) block: i64,
    pub(crate) channels: i64,
    pub(crate) rows: i64,
    pub(crate) columns: i64,
}

/// Returns the tile with the least estimated cost. Its main part, the loads per multiply-add, is least for square tiles
/// whose accumulators fill the registers.
pub(crate) fn best_tile(machine: &Cpu, extents: &Extents, blocks: &[i64], widths: &[i64]) -> Tile {
    /// Number of floats in two cache lines.
    const WIDE: i64 = 32;
    let lanes = machine.vector_lanes;
    let may_block = !blocks.is_empty();
    let is_deep = may_block && is_deep(machine, extents);
    let blocks: &[i64] = if may_block { blocks } else { &[1] };
    let mut best: Option<(f64, Tile)> = None;
    for &block in blocks {
        let vectors = (block + lanes - 1) / lanes;
        for columns in widths.iter().copied().filter(|&columns| may_block || is_vector(columns)) {
            for rows in candidate_divisors(extents.rows, &[1, 2, 4]) {
                // Without blocks, the vector of a product's rows is gathered from memory and reused by up to a vector
                // of channels.
                let is_gathered = !may_block && !extents.is_conv && columns > 1;
                let candidates: &[i64] = if is_gathered { &[1, 2, 4, 8, 16] } else { &[1, 2, 3, 4] };
                for channels in candidate_divisors(tile_count(extents.channels, block), candidates) {
                    // Without blocks, columns are the vector and channels are broadcast.
                    let (vectors, broadcasts) = if may_block {
                        (vectors * channels, columns * rows)
                    } else {
                        ((columns + lanes - 1) / lanes * rows, channels)
                    };
                    if is_gathered && columns.max(channels) > lanes {
                        continue;
                    }
                    let is_kept = !is_deep || (block * channels <= 2 * lanes && columns <= DEEP_ROWS);
                    let slower = spill_slowdown(machine, extents, vectors, broadcasts);
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
                    let slower = slower * read_slowdown(machine, extents, block * channels, broadcasts);
                    let slower = slower * cut_imbalance(machine, extents, block * channels, columns);
                    let cost = steps * slower * wasted_work(machine, extents, block, columns, may_block);
                    // Among tiles of equal cost, contiguous weights are preferred; wide blocks are for products.
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

/// Returns the slowdown by spilled accumulators, which only many unrolled taps hide; None if the tile is unsuitable.
fn spill_slowdown(machine: &Cpu, extents: &Extents, vectors: i64, broadcasts: i64) -> Option<f64> {
    const HIDING_TAPS: i64 = 9;
    /// Minimum number of registers that are needed in addition to the accumulators of a convolution.
    const OTHERS: i64 = 4;
    let accumulators = vectors * broadcasts;
    if used_registers(extents, vectors, broadcasts) <= machine.vector_registers {
        // Dilated windows and short vectors need more registers: with dilation the reduction is restarted at each tap,
        // and LLVM unrolls loops over short vectors.
        let is_tight = extents.is_dilated() || machine.vector_lanes <= 4;
        (!is_tight || accumulators <= dots::sum_registers(machine)).then_some(1.0)
    } else if !extents.is_conv || !extents.is_close || accumulators + OTHERS > machine.vector_registers {
        None
    } else {
        Some(if extents.taps == HIDING_TAPS || extents.window >= HIDING_TAPS { 1.1 } else { 1.5 })
    }
}

/// Returns the number of groups whose inputs a tile reads; 1 with AVX2 and NEON, so that tiles may span groups: a tile
/// of one group spills shared inputs with AVX2, and has too many accumulators with NEON.
fn groups_of(machine: &Cpu, extents: &Extents, channels: i64) -> i64 {
    const LANES: i64 = 16;
    match extents.blocking {
        Blocking::Dividing(group) if extents.is_conv && machine.vector_lanes >= LANES => tile_count(channels, group),
        _ => 1,
    }
}

/// Returns whether the machine has wide vectors but only 16 registers, as with AVX2.
pub(crate) fn has_few_registers(machine: &Cpu) -> bool {
    machine.vector_registers <= 16 && machine.vector_lanes >= 8
}

/// Returns the cost of exponentials in the epilogue, in steps per vector; 0 unless the machine has few registers.
fn function_steps(machine: &Cpu, extents: &Extents, columns: i64) -> f64 {
    const FULL_VECTOR: f64 = 40.0;
    if !extents.has_functions || !has_few_registers(machine) {
        return 0.0;
    }
    let is_cut = extents.columns % columns != 0;
    if is_cut {
        FULL_VECTOR
    } else {
        FULL_VECTOR * filled_extent(columns, machine.vector_lanes) as f64 / columns as f64
    }
}

/// Returns the slowdown of single-position tiles whose weights exceed a core's caches, as each weight is used once.
/// With few registers, the limit is the nearest cache if that holds the inputs, one line per channel.
fn read_slowdown(machine: &Cpu, extents: &Extents, channels: i64, broadcasts: i64) -> f64 {
    const CACHED_BYTES: i64 = 1 << 19;
    const NEAREST_BYTES: i64 = 1 << 15;
    const LINE_BYTES: i64 = 64;
    let bytes = channels.saturating_mul(extents.summed).saturating_mul(extents.weight_bytes);
    let is_near = has_few_registers(machine) && extents.depth.saturating_mul(LINE_BYTES) <= NEAREST_BYTES;
    let cached = if is_near { NEAREST_BYTES } else { CACHED_BYTES };
    if extents.is_conv && broadcasts == 1 && bytes > cached { 1.4 } else { 1.0 }
}

/// Returns the number of vector registers for accumulators, weights and broadcast inputs. An input that several
/// unrolled taps read stays in a register. With stride `s`, a column reads `s` interleaved sequences.
pub(crate) fn used_registers(extents: &Extents, vectors: i64, broadcasts: i64) -> i64 {
    // A transposed convolution is computed phase by phase, each with a stride of one.
    let (window, step) = match extents.may_fill {
        true => (extents.window, extents.step),
        false => (tile_count(extents.window, extents.step), 1),
    };
    let shared = if extents.is_conv && extents.is_close { step.min(window - step).max(0) } else { 0 };
    // LLVM keeps one more input in a register for pointwise windows with a stride.
    let is_strided = extents.is_conv && extents.is_single && extents.step > 1;
    match shared {
        0 => product_registers(vectors, broadcasts) + i64::from(is_strided),
        _ => product_registers(vectors, broadcasts) - 1 + shared * broadcasts + if shared < step { 2 } else { 0 },
    }
}

/// Returns the registers of a product with one broadcast at a time; weights stay in registers if they are reused.
pub(crate) fn product_registers(vectors: i64, broadcasts: i64) -> i64 {
    vectors * broadcasts + if broadcasts > 1 { vectors } else { 1 } + 1
}

/// Maximum number of rows of a tile in a deep product, where tiles have few channels.
pub(crate) const DEEP_ROWS: i64 = 8;

/// Returns whether a product evicts the weights of the widest tile from the cache between rows of tiles.
pub(crate) fn is_deep(machine: &Cpu, extents: &Extents) -> bool {
    const KEPT: i64 = 3 << 19;
    const ROWS: i64 = 16;
    !extents.is_conv && extents.columns >= ROWS && panel_bytes(extents, 4 * machine.vector_lanes) > KEPT
}

fn panel_bytes(extents: &Extents, channels: i64) -> i64 {
    channels.saturating_mul(extents.depth).saturating_mul(extents.weight_bytes)
}

/// Groups of tiles of a deep product, which is summed part by part of the depth.
pub(crate) struct TileGroup {
    pub(crate) channels: i64,
    pub(crate) rows: i64,
    pub(crate) part: i64,
}

/// Returns groups of tiles for a deep product; None if weights stay in the cache and enough rows amortise loading them.
pub(crate) fn deep_grouping(machine: &Cpu, extents: &Extents, tile: &Tile) -> Option<TileGroup> {
    const KEPT: i64 = 5 << 18;
    const ROWS: i64 = 32;
    const CHANNELS: i64 = 4;
    let width = tile.block * tile.channels;
    let is_much = panel_bytes(extents, width) > KEPT || extents.columns <= ROWS;
    let are_enough = tile_count(extents.channels, CHANNELS * width) >= 2 * machine.cores;
    if !is_deep(machine, extents) || !is_much || !are_enough || tile.block == 1 || extents.columns % tile.columns != 0 {
        return None;
    }
    let tiles = extents.columns / tile.columns;
    let rows = [16, 8, 4].into_iter().find(|rows| tiles % rows == 0)?;
    let part = [256, 128].into_iter().find(|part| extents.depth % part == 0)?;
    Some(TileGroup { channels: CHANNELS, rows, part })
}

/// Returns the cost of a convolution, in steps per vector of the result, with loads that are not hidden, spills and the
/// final transposition of channels. Fitted on a core with 512-bit vectors. Adjacent taps share loads.
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

/// Returns a tile with vectors of positions that several channels share, which needs no final transposition. With a
/// single vector less is shared, so this pays only for short sums and for partly empty blocks of channels.
pub(crate) fn row_tile(machine: &Cpu, extents: &Extents, widths: &[i64]) -> Option<Tile> {
    /// Registers for two vectors of positions and a broadcast weight.
    const OTHERS: i64 = 3;
    /// Number of independent sums that hide the latency of a product.
    const BUSY: i64 = 8;
    let lanes = machine.vector_lanes;
    let is_short = extents.summed <= 4 * lanes;
    // Blocks of channels would add at least a sixth of empty channels.
    let is_odd = 6 * (filled_extent(extents.channels, lanes) - extents.channels) >= extents.channels;
    let vectors = [2, 1].into_iter().find(|vectors| widths.contains(&(vectors * lanes)))?;
    if !extents.is_single || !extents.is_dense {
        return None;
    }
    let fits = |channels: &i64| channels * vectors + OTHERS <= machine.vector_registers && channels * vectors <= 16;
    let dividing = candidate_divisors(extents.channels, &TILE_CHANNELS).filter(fits).max()?;
    let channels =
        if has_few_registers(machine) && vectors == 2 { channels_of_rows(extents, dividing) } else { dividing };
    if vectors == 1 && !is_short && !(is_odd && channels >= BUSY) {
        return None;
    }
    Some(Tile { block: 1, channels, rows: 1, columns: vectors * lanes })
}

/// Returns the channels that share two vectors of positions with the fewest loads, on a machine with few registers.
fn channels_of_rows(extents: &Extents, dividing: i64) -> i64 {
    const CANDIDATES: [i64; 2] = [6, 5];
    const VECTORS: i64 = 2;
    let cost =
        |tile: i64| filled_extent(extents.channels, tile) as f64 * (tile + VECTORS) as f64 / (tile * VECTORS) as f64;
    // LLVM stores the sums in each step if the last tile has four of six or three of five channels.
    let is_stored = |tile: i64| extents.channels % tile != 0 && extents.channels % tile == tile / 2 + 1;
    let beyond = CANDIDATES.into_iter().filter(|&tile| tile < extents.channels && !is_stored(tile));
    beyond.chain([dividing]).min_by(|one, other| cost(*one).total_cmp(&cost(*other))).unwrap_or(dividing)
}

/// Returns a tile for groups whose channels do not fill a vector, while the columns do: one vector of columns, the
/// channels of the group, and as many rows as fit. Several small groups share a tile, which hides latencies.
pub(crate) fn group_tile(machine: &Cpu, extents: &Extents, widths: &[i64]) -> Option<Tile> {
    /// Lanes of AVX2; no machine with fewer lanes was measured.
    const LANES: i64 = 8;
    let lanes = machine.vector_lanes;
    let Blocking::Dividing(group @ 2..) = extents.blocking else { return None };
    let shares_inputs = extents.is_conv && extents.is_close && extents.step == 1;
    let columns = widths.iter().copied().filter(|&width| width <= lanes).max()?;
    if lanes < LANES || group >= lanes || !shares_inputs || 4 * columns < 3 * lanes {
        return None;
    }
    let fits = |sums: i64| 4 * sums <= 3 * machine.vector_registers;
    let mut channels = candidate_divisors(group, &[1, 2, 3, 4, 6, 8]).max()?;
    let rows = candidate_divisors(extents.rows, &[1, 2, 4]).filter(|rows| fits(rows * channels)).max()?;
    // In a whole row, padding is tested column by column, which prevents vectors.
    if rows == 1 && columns == extents.columns {
        return None;
    }
    while fits(2 * rows * channels) && extents.channels % (2 * channels) == 0 {
        channels *= 2;
    }
    Some(Tile { block: 1, channels, rows, columns })
}

/// Maximum image positions for tiles with two channels; `SMALL_IMAGE_ON_INTEL` is for small windows with stride 1.
const SMALL_IMAGE: i64 = 400;

const SMALL_IMAGE_ON_INTEL: i64 = 784;

/// Returns the tile: columns and a few rows, because only adjacent windows share inputs, channels do not.
pub(crate) fn depthwise_tile(machine: &Cpu, extents: &Extents, widths: &[i64]) -> Tile {
    const ROWS_MAX: i64 = 8;
    if extents.step > 2 {
        return Tile { block: 1, channels: 1, rows: 1, columns: 1 };
    }
    // One channel of a small image has too few sums to hide latencies.
    let is_simple = extents.window <= 3 && extents.step == 1;
    let most = if machine.is_intel && is_simple { SMALL_IMAGE_ON_INTEL } else { SMALL_IMAGE };
    let is_small = extents.rows * extents.columns <= most;
    // For such short rows and small windows, the compiler's own vectors are better. This was measured with 7 and 14
    // columns (7 on Intel CPUs only with a stride), but not with other widths or with exponentials in the epilogue.
    let is_short = extents.columns == 14 || (extents.columns == 7 && !(machine.is_intel && extents.step == 1));
    let is_left = extents.window <= 3 && is_short && machine.vector_lanes >= 8 && !extents.has_functions;
    // With a stride, explicit vectors read more than they share: on Intel CPUs, two channels take 4 to 12 % more time.
    let is_shared = !machine.is_intel || extents.step == 1 || is_left;
    let columns = widths.iter().copied().filter(|&columns| columns <= machine.vector_lanes);
    let columns = columns.min_by_key(|&width| (column_steps(extents, width, ROWS_MAX), -width)).unwrap_or(1);
    // Each channel needs its accumulators, an input vector and the weights of a window row.
    let fits = |rows: i64, channels: i64| channels * (rows + 1 + extents.window) <= machine.vector_registers;
    let heights = (1..=ROWS_MAX.min(extents.rows)).filter(|&rows| fits(rows, 1));
    let rows = heights.min_by_key(|&rows| input_rows(extents, rows)).unwrap_or(1);
    let is_twofold = is_small && is_shared && extents.channels % 2 == 0 && fits(rows, 2);
    let channels = if is_twofold { 2 } else { 1 };
    Tile { block: 1, channels, rows, columns: if is_left { 1 } else { columns } }
}

/// Returns the cost of all tiles along a row for one column of the window, in half multiply-adds. A vector of any
/// width takes one multiply-add, but one load per power of two in its width; a load costs 1.5 multiply-adds.
fn column_steps(extents: &Extents, width: i64, rows: i64) -> i64 {
    let loads = ((rows - 1) * extents.step + extents.window) * i64::from(width.count_ones());
    tile_count(extents.columns, width) * (2 * rows * extents.window + 3 * loads)
}

fn input_rows(extents: &Extents, rows: i64) -> i64 {
    tile_count(extents.rows, rows) * ((rows - 1) * extents.step + extents.window)
}

/// Returns the slowdown of tiles that overhang a single row: threads are then distributed over channels only.
fn cut_imbalance(machine: &Cpu, extents: &Extents, channels: i64, columns: i64) -> f64 {
    if !extents.is_conv || extents.rows > 1 || extents.columns % columns == 0 {
        return 1.0;
    }
    thread_imbalance(machine, tile_count(extents.channels, channels))
}

/// Returns the largest number of steps of a thread, divided by the mean over the threads.
pub(crate) fn thread_imbalance(machine: &Cpu, steps: i64) -> f64 {
    filled_extent(steps, machine.cores) as f64 / steps.max(1) as f64
}

/// Returns the ratio of executed to useful work: partly empty vectors and overhanging blocks compute too much.
fn wasted_work(machine: &Cpu, extents: &Extents, block: i64, columns: i64, may_block: bool) -> f64 {
    /// Cost factor of an additional copy of the result and of its input.
    const COPIES: f64 = 1.1;
    /// Cost factor of separate code for the last tile of a product's rows.
    const APART: f64 = 1.02;
    let all = filled_extent(extents.columns, columns);
    let beyond = if all == extents.columns {
        1.0
    } else if !extents.is_conv {
        APART
    } else {
        COPIES * all as f64 / extents.columns as f64
    };
    if may_block {
        let channels = filled_extent(extents.channels, block) as f64 / extents.channels as f64;
        beyond * channels * filled_extent(block, machine.vector_lanes) as f64 / block as f64
    } else {
        beyond * filled_extent(columns, machine.vector_lanes) as f64 / columns as f64
    }
}
