//! Declares the space of each family.

use super::axes::{choice, choices, divisors, numbers, upto};
use super::taps::{Reach, is_worth_it, reaches};
use super::template::{has_functions, parameter_extents, summed};
use super::{Knobs, Limits, Setting, Space, Template, attention, beyond, dots, is_vector, pool, template, winograd};
use crate::flat::{ENOUGH, flat, of_elements};
use crate::phases;
use crate::target::Cpu;
use crate::tiles::{count, filled};
use models::{Op, PoolMode, Task};
use std::collections::BTreeMap;

pub(super) const UNLIMITED: Limits = Limits::Registers {
    tile_elements: i64::MAX,
    unrolled_elements: i64::MAX,
    window: 1,
    tiles: None,
    sums: i64::MAX,
    loops: beyond::NONE,
    whole: None,
};

/// Channel blocks, or channels, that one register tile may have; the last tile may reach past the end.
const ANY_CHANNELS: [i64; 9] = [1, 2, 3, 4, 5, 6, 8, 12, 16];

/// Tiles along one dimension that may be taken together, so that they share what a cache holds.
const TOGETHER: [i64; 6] = [1, 2, 3, 4, 8, 16];

/// Steps of the depth that tiles taken together may sum before the next: what they read of both operands stays near.
const PARTS: [i64; 4] = [64, 128, 256, 512];

/// Those of which the default schedule takes one.
const TILE_CHANNELS: [i64; 8] = [1, 2, 3, 4, 6, 8, 12, 16];

/// Columns that one vector of work on elements may have.
const VECTORS: [i64; 6] = [1, 4, 8, 16, 32, 64];

/// The space of a task on CPUs.
pub(super) fn cpu_space(task: &Task, machine: &Cpu) -> Space {
    let flat = flat(task);
    let task = flat.as_ref().map_or(task, |flat| &flat.task);
    let anchor = &task.steps[0];
    let output = anchor.output.extents().unwrap_or_default();
    let mut space = match template(task) {
        Template::Contraction => {
            let extents = by_phases(task, &output, contraction_extents(task, &output));
            let mut space = contraction(machine, &extents, &output, task.steps.len() > 1);
            winograd::extend(&mut space, task, machine);
            if let Some(dots) = dots::dots(task) {
                dots::add_to(&mut space, machine, &dots);
            } else if dots::is_product(task) {
                dots::add_to_product(&mut space, machine);
            }
            space
        }
        Template::Rows => match &anchor.op {
            Op::Attention { .. } => {
                let mut space = rows(machine, &output, true);
                attention::extend(&mut space, task, machine);
                space
            }
            _ => {
                let mut space = rows(machine, &output, false);
                if sums_neighbours(&anchor.op, output.len()) {
                    let row = input_extent(task, -1);
                    add_partial_sums(&mut space, machine, row);
                    // Two sums at a time hide what an addition takes.
                    let two = 2 * machine.vector_lanes;
                    if matches!(anchor.op, Op::LayerNorm { .. } | Op::RmsNorm { .. })
                        && row % two == 0
                        && row >= 4 * two
                    {
                        space.default.0.insert("split_r".to_owned(), Setting::Number(two));
                    }
                }
                space
            }
        },
        Template::Spatial => {
            let (is_padded, is_strided) = match &anchor.op {
                Op::Pool { pads, strides, .. } => {
                    (pads.iter().any(|&pad| pad > 0), strides.last().is_some_and(|&stride| stride > 1))
                }
                _ => (false, false),
            };
            let (columns, row) = (output.last().copied().unwrap_or(1), reduced_row(task));
            let vector = match &anchor.op {
                // A vector of strided reads is slower than what the compiler makes of single ones.
                _ if row.is_some() || is_strided => 1,
                // Reads that depend on the place are vectors when the compiler makes them, and else a test for each element.
                Op::Resize { .. } | Op::OneHot { .. } => 1,
                Op::BorderPad { .. } if columns >= 4 * machine.vector_lanes => 2 * machine.vector_lanes,
                Op::Tile { .. } => whole_vector(machine, input_extent(task, -1)),
                // So are bytes: as many as fit a register.
                op if of_elements(op) && anchor.output.dtype.bytes() == 1 => 1,
                op if of_elements(op) => element_vector(machine, columns),
                _ => whole_vector(machine, columns),
            };
            let mut space = spatial(machine, &output, vector, is_padded);
            let usual = space.default.clone();
            if let (Op::Pool { kernel, .. }, true) = (&anchor.op, is_strided) {
                let window = kernel.iter().copied().max().unwrap_or(1);
                space.default.0.extend(of_strided(machine, &output, is_padded.then_some(window)));
            }
            if let Some(row) = row {
                add_partial_sums(&mut space, machine, row);
            }
            add_columns(&mut space, machine, task, usual);
            space
        }
    };
    if has_functions(task) {
        space.axes.push(choices("functions", "how exponentials and their kin are computed", ["vector", "library"]));
        space.default.0.insert("functions".to_owned(), choice("vector"));
    }
    pool::extend(&mut space, task, machine);
    space
}

/// What a register tile has to do with. Only contractions ask.
pub(super) fn contraction_extents(task: &Task, output: &[i64]) -> Extents {
    let anchor = &task.steps[0];
    let (last, rank) = (output.last().copied().unwrap_or(1), output.len());
    let is_constant = task.parameters.get(1).is_some_and(|weight| weight.is_constant);
    match &anchor.op {
        Op::Conv { strides, pads, dilations, groups }
        | Op::QConv { strides, pads, dilations, groups, .. }
        | Op::ConvTranspose { strides, pads, dilations, groups, .. } => {
            let is_transposed = matches!(anchor.op, Op::ConvTranspose { .. });
            let channels = output.get(1).copied().unwrap_or(1);
            let taps = taps(task);
            Extents {
                channels,
                rows: if strides.len() > 1 { output[rank - 2] } else { 1 },
                columns: last,
                depth: input_extent(task, 1),
                is_padded: is_transposed || pads.iter().any(|&pad| pad > 0),
                is_conv: true,
                may_fill: !is_transposed,
                summed: input_extent_of(task, 1, 1) * taps,
                is_dense: strides.iter().all(|&stride| stride == 1),
                step: strides.last().copied().unwrap_or(1),
                is_single: taps == 1,
                window: parameter_extents(task, 1).get(2..).and_then(|window| window.last().copied()).unwrap_or(1),
                reaches: if taps > 1 { reaches(task) } else { Vec::new() },
                is_close: taps > 1 && dilations.iter().all(|&dilation| dilation == 1),
                sources: parameter_extents(task, 0).iter().product(),
                weights: parameter_extents(task, 1).iter().product(),
                has_functions: has_functions(task),
                batch: 1,
                outside: 3,
                whole: None,
                blocking: match groups {
                    _ if is_transposed => Blocking::None,
                    1 if is_constant => Blocking::Padded,
                    groups => Blocking::Dividing(channels / groups),
                },
            }
        }
        op => Extents {
            channels: last,
            rows: 1,
            columns: output[..rank - 1].last().copied().unwrap_or(1),
            depth: summed(task).unwrap_or_else(|| input_extent(task, -1)),
            is_padded: false,
            is_conv: false,
            may_fill: false,
            summed: 1,
            is_dense: true,
            step: 1,
            is_single: false,
            is_close: true,
            reaches: Vec::new(),
            window: 1,
            sources: 1,
            weights: 1,
            has_functions: has_functions(task),
            batch: output[..rank.saturating_sub(2)].iter().product(),
            outside: i64::try_from(rank).unwrap_or(2) - 1,
            // Columns of a transposed operand cannot be read as a vector.
            whole: match op {
                Op::Dense if !is_constant => Some(1),
                Op::MatMul { transpose_b, .. } => Some(if *transpose_b { 1 } else { last }),
                _ => None,
            },
            blocking: match op {
                Op::Dense | Op::MatMul { .. } => Blocking::Padded,
                Op::QDense { .. } if is_constant => Blocking::Padded,
                Op::QDense { .. } | Op::Einsum { .. } => Blocking::None,
                _ => Blocking::Dividing(last),
            },
        },
    }
}

/// The extents of one phase of a transposed convolution, where it can be computed phase by phase on CPUs: all phases have as
/// many places, and what follows looks at none. Others stay as they are.
fn by_phases(task: &Task, output: &[i64], extents: Extents) -> Extents {
    let anchor = &task.steps[0];
    let Op::ConvTranspose { strides, .. } = &anchor.op else { return extents };
    let is_constant = task.parameters.get(1).is_some_and(|weight| weight.is_constant);
    let mut places = output.iter().skip(2).zip(strides);
    let is_even = places.all(|(extent, stride)| extent % stride == 0);
    if !is_constant || !is_even || phases::packing(&anchor.op, 1).is_none() || !dots::follows_channels(task) {
        return extents;
    }
    let stride = |from_last: usize| strides.len().checked_sub(from_last).map_or(1, |place| strides[place]);
    let phases: i64 = strides.iter().product();
    Extents {
        rows: extents.rows / stride(2),
        columns: extents.columns / stride(1),
        summed: extents.depth * taps(task) / phases,
        blocking: Blocking::Padded,
        ..extents
    }
}

/// How many places of the input one of the result reads.
fn taps(task: &Task) -> i64 {
    parameter_extents(task, 1).iter().skip(2).product()
}

/// An extent of one of a task's parameters.
fn input_extent_of(task: &Task, parameter: usize, dimension: usize) -> i64 {
    parameter_extents(task, parameter).get(dimension).copied().unwrap_or(1)
}

pub(super) fn input_extent(task: &Task, dimension: i64) -> i64 {
    let extents = parameter_extents(task, 0);
    let place = if dimension < 0 { extents.len().checked_sub(1) } else { usize::try_from(dimension).ok() };
    place.and_then(|place| extents.get(place)).copied().unwrap_or(1)
}

pub(super) struct Extents {
    pub(super) channels: i64,
    pub(super) rows: i64,
    pub(super) columns: i64,
    pub(super) depth: i64,
    is_padded: bool,
    is_conv: bool,
    /// Whether columns beyond the result may be computed, and left out.
    may_fill: bool,
    /// Numbers that a number of the result is the sum of.
    summed: i64,
    /// Whether neighbours of the result come from neighbours of the input.
    is_dense: bool,
    /// Places of the input from one column of the result to the next.
    step: i64,
    /// Whether a place of a convolution's result comes from one place of the input.
    is_single: bool,
    /// Whether the taps of a window read neighbours, which they can share.
    is_close: bool,
    /// What windows reach, where that may lie outside of the image.
    reaches: Vec<Reach>,
    /// Columns of a window.
    window: i64,
    /// Numbers of a convolution's input, and of its weights.
    sources: i64,
    weights: i64,
    /// Whether what follows computes exponentials or their kin.
    has_functions: bool,
    /// Products that there are of the same extents.
    batch: i64,
    /// Loops around the rows of a product.
    outside: i64,
    /// Where the second operand of a product may be copied: what blocks of channels must divide where it is not.
    whole: Option<i64>,
    blocking: Blocking,
}

/// Which blocks of output channels a task allows.
#[derive(Clone, Copy)]
pub(super) enum Blocking {
    /// None: neighbouring channels cannot be read as a vector.
    None,
    /// Those that divide this extent: the operand is read as it is, or channels of other groups read other inputs.
    Dividing(i64),
    /// Any: the operand is packed, and padded with zeros to whole blocks.
    Padded,
}

fn contraction(machine: &Cpu, extents: &Extents, output: &[i64], has_epilogue: bool) -> Space {
    let lanes = machine.vector_lanes;
    let (blocks, widths) = (blocks(machine, extents), widths(machine, extents));
    let may_block = !blocks.is_empty();
    let may_be_plain = extents.is_conv || read_as_they_are(extents, &blocks).is_empty();
    let mut axes = Vec::new();
    let layouts = [("blocked", may_block), ("plain", may_be_plain)];
    axes.push(choices(
        "layout",
        "how weights and the accumulator are stored",
        layouts.iter().filter(|l| l.1).map(|l| l.0),
    ));
    if may_block {
        axes.push(numbers("block", "channels in one vector block", blocks.iter().copied()));
    }
    axes.push(numbers(
        "tile_c",
        "channel blocks (blocked) or channels (plain) in one register tile",
        ANY_CHANNELS.into_iter().filter(|&channels| channels <= extents.channels),
    ));
    axes.push(numbers("tile_y", "rows in one register tile", 1..=extents.rows.min(8)));
    axes.push(numbers("tile_x", "columns in one register tile", any_widths(extents, &widths, may_block)));
    axes.push(numbers("split_r", "inner part of the split reduction", upto(extents.depth, &[1, 4, 8, 16, 32])));
    if extents.is_conv {
        let orders = ["depth_first", "kernel_first"].into_iter();
        let others = super::order::OTHERS.iter().filter(|_| !extents.is_single).map(|(name, _)| *name);
        axes.push(choices("order", "order of the reduction loops", orders.chain(others)));
    }
    axes.push(numbers("unroll", "innermost reduction loops written out", [0, 1]));
    let orders = ["channels", "space"].into_iter();
    let others = super::order::OTHERS.iter().filter(|_| extents.is_conv).map(|(name, _)| *name);
    axes.push(choices("outer", "order of the loops over tiles, or which is outside", orders.chain(others)));
    for (name, meaning, tiles) in [
        ("cache_c", "tiles along channels that are taken together", extents.channels),
        ("cache_y", "tiles along rows that are taken together", extents.rows),
        ("cache_x", "tiles along columns that are taken together", extents.columns),
    ] {
        if tiles > 1 {
            axes.push(numbers(name, meaning, TOGETHER.into_iter().filter(|&together| together <= tiles)));
        }
    }
    axes.push(choices(
        "sum_at",
        "whether sums of a tile, or of tiles taken together, are finished first",
        ["tile", "cache"],
    ));
    let parts: Vec<i64> = PARTS.into_iter().filter(|part| *part < extents.depth && extents.depth % part == 0).collect();
    if !parts.is_empty() {
        let text =
            "steps of the depth that tiles taken together sum before the next, where their sums are finished together";
        axes.push(numbers("cache_r", text, std::iter::once(1).chain(parts)));
    }
    axes.push(numbers("parallel", "outer loops fused and run on the pool", [1, 2, 3]));
    axes.push(numbers("grain", "steps of those loops that a thread takes at once", [1, 2, 4, 8]));
    if extents.is_padded {
        axes.push(choices("pad_at", "where the padded input is computed", ["inline", "root", "outer"]));
    }
    if may_copy(extents) {
        axes.push(choices(
            "copy_at",
            "where what tiles read is copied, so that it lies together",
            ["no", "outer", "part"],
        ));
    }
    if has_epilogue {
        axes.push(choices("write_at", "where what follows the sums is computed", ["tile", "root"]));
    }
    axes.push(choices("vectorize", "whether the innermost loop is one vector", ["yes", "no"]));
    let default = contraction_default(machine, extents, &blocks, &widths);
    let limits = Limits::Registers {
        tile_elements: 2 * machine.vector_registers * lanes,
        unrolled_elements: written_out(machine),
        window: extents.window,
        tiles: None,
        sums: dots::registers(machine),
        loops: loops(extents, output),
        whole: extents.whole,
    };
    Space { template: Template::Contraction, axes, default, limits }
}

/// The loops over the result, or over one phase of it.
fn loops(extents: &Extents, output: &[i64]) -> beyond::Loops {
    let mut all = output.to_vec();
    let rank = all.len();
    if extents.is_conv && rank > 2 {
        all[rank - 1] = extents.columns;
        if rank > 3 {
            all[rank - 2] = extents.rows;
        }
    }
    beyond::Loops { extents: all, is_conv: extents.is_conv, may_fill: extents.may_fill }
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
    let is_close = |width: &i64| (filled(columns, *width) - columns) * 8 <= columns;
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
    }
    widths.sort_unstable();
    widths.dedup();
    widths
}

/// Those and all others that a register tile may have: where columns are no vector the last tile may reach past the end, and a
/// convolution computes columns past the end and leaves them out.
fn any_widths(extents: &Extents, widths: &[i64], may_block: bool) -> Vec<i64> {
    const MOST: i64 = 16;
    let is_any = may_block && !extents.is_conv;
    let is_close =
        |width: &i64| extents.may_fill && (filled(extents.columns, *width) - extents.columns) * 8 <= extents.columns;
    let others = (1..=extents.columns.min(MOST)).filter(|width| is_any || is_close(width));
    let mut all: Vec<i64> = widths.iter().copied().chain(others).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Whether no two channels of the result read the same ones.
fn is_depthwise(extents: &Extents) -> bool {
    matches!(extents.blocking, Blocking::Dividing(1))
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
    let row_tile = row_tile(machine, extents, widths);
    let panels = panels(machine, extents, blocks);
    let is_copied = panels.is_some() || is_copied(extents);
    let blocks = &read_as_they_are(extents, blocks)[..];
    let may_block = panels.is_some() || !blocks.is_empty() && row_tile.is_none();
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
    let mut knobs = BTreeMap::new();
    let mut set = |name: &str, setting: Setting| knobs.insert(name.to_owned(), setting);
    set("layout", choice(if may_block { "blocked" } else { "plain" }));
    if may_block {
        set("block", Setting::Number(tile.block));
    }
    set("tile_c", Setting::Number(tile.channels));
    set("tile_y", Setting::Number(tile.rows));
    set("tile_x", Setting::Number(tile.columns));
    set("split_r", Setting::Number(steps_written_out(machine, extents, &tile)));
    if extents.is_conv {
        // Of channels that are read by one channel only there is nothing to sum but taps: the compiler, given a row of them
        // written out, spills sums.
        let is_by_taps = is_depthwise || is_worth_it(&extents.reaches, tile.rows, tile.columns);
        set("order", choice(if is_by_taps { "kernel_first" } else { "depth_first" }));
    }
    set("unroll", Setting::Number(1));
    // What is read whole for each tile of the other should be the smaller one; weights lie better than columns do.
    let is_filled = extents.columns % tile.columns != 0;
    let is_large = extents.sources > 2 * extents.weights;
    let is_by_space =
        is_copied && extents.is_conv || extents.is_single && if is_filled { extents.rows > 1 } else { is_large };
    set("outer", choice(if is_by_space { "space" } else { "channels" }));
    if is_copied {
        set("copy_at", choice("outer"));
    }
    if is_copied && extents.is_conv {
        set("cache_x", Setting::Number(COPIED_TOGETHER));
    }
    // Steps of the pool share no copy, and a last tile of rows that is apart from others needs a loop over them.
    let walks_rows = !extents.is_conv && may_block && (is_copied || is_filled);
    set("parallel", Setting::Number(if walks_rows { extents.outside.clamp(1, 3) } else { 3 }));
    if extents.is_padded {
        set("pad_at", choice(padded_at(extents, &tile)));
    }
    // The compiler's own vectors read elements far from each other better.
    set("vectorize", choice(if is_depthwise && extents.step > 2 { "no" } else { "yes" }));
    Knobs(knobs)
}

/// Tiles along columns whose input is copied together by default: more keep two threads less alike.
const COPIED_TOGETHER: i64 = 4;

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
    let sums = machine.vector_registers * 3 / 4;
    let tiles = [4, 2, 1].into_iter().filter(|vectors| blocks.contains(&(vectors * lanes))).flat_map(|vectors| {
        let columns = (2..=12.min(sums / vectors).min(extents.columns)).rev();
        columns.map(move |columns| (vectors, columns))
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
fn padded_at(extents: &Extents, tile: &Tile) -> &'static str {
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
        _ if is_depthwise(extents) => "outer",
        // What lies outside is left out tap by tap, phases read one input, and planes and rows have no rows of tiles to share.
        _ if !extents.may_fill || !extents.is_close || extents.reaches.len() != 2 => "root",
        _ if is_whole_row || is_filled || (is_image && extents.window <= SMALL) => "inline",
        _ if is_image => "root",
        _ => "outer",
    }
}

/// Steps of a sum of products that are written out at once: those of a window are written out anyway, and channels in their
/// place where places of a window lie apart and share nothing.
fn steps_written_out(machine: &Cpu, extents: &Extents, tile: &Tile) -> i64 {
    // Seen on one core with the instructions of Sapphire Rapids: products take from 1 % more to 23 % less, most 4 to 10, and
    // windows of places that lie apart from 9 to 52 % less.
    let most = if machine.is_intel { 8 } else { 1 };
    let is_apart = !extents.is_close && extents.may_fill;
    let is_product = !extents.is_conv || ((extents.is_single || is_apart) && !is_depthwise(extents));
    let elements = tile.block.max(1) * tile.channels * tile.rows * tile.columns;
    let fits = |&steps: &i64| extents.depth % steps == 0 && steps <= most && steps * elements <= written_out(machine);
    [8, 4].into_iter().filter(|_| is_product).find(fits).unwrap_or(1)
}

/// Elements of a register tile times the steps written out that a build may take.
fn written_out(machine: &Cpu) -> i64 {
    8 * machine.vector_registers * machine.vector_lanes
}

/// A register tile by its extents.
struct Tile {
    block: i64,
    channels: i64,
    rows: i64,
    columns: i64,
}

/// The tile with the fewest loads per multiply-add among those whose accumulators fit the registers.
///
/// A step of the reduction loads one vector of weights per vector of channels and one number per position, and does
/// their product in multiply-adds; so a square tile is best.
fn best_tile(machine: &Cpu, extents: &Extents, blocks: &[i64], widths: &[i64]) -> Tile {
    // Of more sums than these of three vectors and more, or in a window of more places, the compiler keeps some in memory though
    // registers are left, which takes twice the time and more: seen of 3 by 9, 4 by 7 and 5 by 6, in windows of 3 by 7, too.
    const FEW_VECTORS: i64 = 2;
    const SUMS: i64 = 24;
    const WINDOW_PLACES: i64 = 6;
    let is_window = extents.is_conv && !extents.is_single;
    let lanes = machine.vector_lanes;
    let may_block = !blocks.is_empty();
    let blocks: &[i64] = if may_block { blocks } else { &[1] };
    let mut best: Option<(f64, Tile)> = None;
    for &block in blocks {
        let vectors = (block + lanes - 1) / lanes;
        for columns in widths.iter().copied().filter(|&columns| may_block || is_vector(columns)) {
            for rows in upto(extents.rows, &[1, 2, 4]) {
                for channels in upto(count(extents.channels, block), &[1, 2, 3, 4]) {
                    // Without blocks the columns are the vector and the channels are broadcast.
                    let (vectors, broadcasts) = if may_block {
                        (vectors * channels, columns * rows)
                    } else {
                        ((columns + lanes - 1) / lanes * rows, channels)
                    };
                    // Registers for weight vectors in flight and for the broadcast; a window of one place has no more.
                    let others = if extents.is_close { 4 } else { vectors + 1 };
                    let is_many = if is_window { broadcasts > WINDOW_PLACES } else { vectors * broadcasts > SUMS };
                    let is_spilled = may_block && vectors > FEW_VECTORS && is_many;
                    if is_spilled || vectors * broadcasts + others > machine.vector_registers {
                        continue;
                    }
                    let loads = (vectors + broadcasts) as f64 / (vectors * broadcasts) as f64;
                    let steps =
                        if extents.is_conv { conv_steps(extents, loads, vectors * broadcasts, columns) } else { loads };
                    let cost = steps * waste(machine, extents, block, columns, may_block);
                    // Of tiles that cost the same the one whose weights lie together; wide blocks are for products.
                    let is_wide = block > 2 * lanes && extents.is_conv && !extents.is_single;
                    if best.as_ref().is_none_or(|(least, _)| cost < *least || (cost == *least && !is_wide)) {
                        best = Some((cost, Tile { block, channels, rows, columns }));
                    }
                }
            }
        }
    }
    best.map_or(Tile { block: 1, channels: 1, rows: 1, columns: 1 }, |(_, tile)| tile)
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
fn row_tile(machine: &Cpu, extents: &Extents, widths: &[i64]) -> Option<Tile> {
    /// Vectors of places and one number of a weight.
    const OTHERS: i64 = 3;
    /// Sums that keep the processor busy while each waits for its last product.
    const BUSY: i64 = 8;
    let lanes = machine.vector_lanes;
    let is_short = extents.summed <= 4 * lanes;
    // Blocks of channels would be a sixth or more beside them.
    let is_odd = 6 * (filled(extents.channels, lanes) - extents.channels) >= extents.channels;
    let vectors = [2, 1].into_iter().find(|vectors| widths.contains(&(vectors * lanes)))?;
    if !extents.is_single || !extents.is_dense {
        return None;
    }
    let fits = |channels: &i64| channels * vectors + OTHERS <= machine.vector_registers && channels * vectors <= 16;
    let channels = upto(extents.channels, &TILE_CHANNELS).filter(fits).max()?;
    if vectors == 1 && !is_short && !(is_odd && channels >= BUSY) {
        return None;
    }
    Some(Tile { block: 1, channels, rows: 1, columns: vectors * lanes })
}

/// Places of an image of which two channels are computed at once; on Intel's, with small windows side by
/// side, more.
const SMALL_IMAGE: i64 = 400;
const SMALL_IMAGE_ON_INTEL: i64 = 784;

/// Columns and a few rows: channels share nothing, so only neighbouring windows do.
fn depthwise_tile(machine: &Cpu, extents: &Extents, widths: &[i64]) -> Tile {
    const MOST_ROWS: i64 = 8;
    if extents.step > 2 {
        return Tile { block: 1, channels: 1, rows: 1, columns: 1 };
    }
    // The rows of a small image alone leave the processor waiting for its sums.
    let is_simple = extents.window <= 3 && extents.step == 1;
    let most = if machine.is_intel && is_simple { SMALL_IMAGE_ON_INTEL } else { SMALL_IMAGE };
    let is_small = extents.rows * extents.columns <= most;
    let channels = if is_small && extents.channels % 2 == 0 { 2 } else { 1 };
    // Of a row this short and a small window the compiler makes better vectors by itself: seen of 7 and 14 columns, of 7 on
    // Intel's in steps alone, not of others, and not where exponentials follow.
    let is_short = extents.columns == 14 || (extents.columns == 7 && !(machine.is_intel && extents.step == 1));
    let is_left = extents.window <= 3 && is_short && machine.vector_lanes >= 8 && !extents.has_functions;
    let columns = widths.iter().copied().filter(|&columns| columns <= machine.vector_lanes);
    let columns = columns.min_by_key(|&width| (steps(extents, width, MOST_ROWS), -width)).unwrap_or(1);
    let fits = |rows: &i64| rows * channels < machine.vector_registers;
    let rows = (1..=MOST_ROWS.min(extents.rows)).filter(fits).min_by_key(|&rows| read(extents, rows)).unwrap_or(1);
    Tile { block: 1, channels, rows, columns: if is_left { 1 } else { columns } }
}

/// Steps of all columns by tiles so wide, for each column of the window, in halves of a multiply-add. A vector of any width is
/// multiplied at once, but loaded by one piece for each power of two, which costs half as much again, as was seen.
fn steps(extents: &Extents, width: i64, rows: i64) -> i64 {
    let loads = ((rows - 1) * extents.step + extents.window) * i64::from(width.count_ones());
    count(extents.columns, width) * (2 * rows * extents.window + 3 * loads)
}

/// Rows of the input that are read for all rows of the result, where a tile has so many.
fn read(extents: &Extents, rows: i64) -> i64 {
    count(extents.rows, rows) * ((rows - 1) * extents.step + extents.window)
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

/// `is_strided` says that neighbours of the result do not come from neighbours of the input.
fn spatial(machine: &Cpu, output: &[i64], vector: i64, is_padded: bool) -> Space {
    let columns = output.last().copied().unwrap_or(1);
    let outer = i64::try_from(output.len().saturating_sub(1)).unwrap_or(0).max(1);
    // Rows of a plane share their padded input, so planes are the grain where there are enough of them.
    let planes: i64 = output.iter().take(2).product();
    let parallel = if output.len() > 3 && planes >= 8 * machine.cores { 2 } else { outer };
    let mut axes = vec![
        numbers("vector", "columns in one vector", VECTORS.into_iter().filter(|&vector| vector <= columns)),
        numbers("parallel", "outer loops fused and run on the pool", 1..=outer),
    ];
    let steps: i64 = output.iter().rev().skip(1).product();
    if steps > 1 {
        let grains = [1, 2, 4, 8].into_iter().filter(|grain| 2 * grain <= steps);
        axes.push(numbers("grain", "steps of those loops that a thread takes at once", grains));
    }
    let mut default = BTreeMap::from([
        ("vector".to_owned(), Setting::Number(vector)),
        ("parallel".to_owned(), Setting::Number(parallel)),
    ]);
    if is_padded {
        axes.push(choices("pad_at", "where the padded input is computed", ["inline", "root", "outer", "tile"]));
        default.insert("pad_at".to_owned(), choice("outer"));
    }
    Space { template: Template::Spatial, axes, default: Knobs(default), limits: UNLIMITED }
}

/// How the windows of a pool that takes steps are computed, where that is not as others are: of long rows the compiler makes
/// vectors by itself, of short ones it does not, and not where borders are in between. All as seen with AVX-512. `padded` is the
/// window's extent where the input is padded.
fn of_strided(machine: &Cpu, output: &[i64], padded: Option<i64>) -> Vec<(String, Setting)> {
    /// Rows so long are vectors without more said.
    const LONG: i64 = 16;
    /// Windows of this extent are small.
    const SMALL: i64 = 3;
    /// Rows so short are written out.
    const WRITTEN_OUT: i64 = 10;
    let (columns, lanes) = (output.last().copied().unwrap_or(1), machine.vector_lanes);
    let all = i64::try_from(output.len().saturating_sub(1)).unwrap_or(0).max(1);
    let steps: i64 = output.iter().rev().skip(1).product();
    let is_of_planes = output.len() <= 4;
    let number = |name: &str, setting: i64| (name.to_owned(), Setting::Number(setting));
    let inline = |vector| vec![number("vector", vector), ("pad_at".to_owned(), choice("inline"))];
    let part = |columns: i64| VECTORS.into_iter().filter(|&vector| vector <= columns.min(lanes)).max().unwrap_or(1);
    match padded {
        // Every element of a window has a test of its own, and so many are too many.
        Some(window) if window > SMALL && columns < LONG => vec![number("vector", part(columns.min(7)))],
        Some(window) if window > SMALL => Vec::new(),
        Some(_) if columns <= WRITTEN_OUT => vec![number("parallel", all)],
        Some(_) if columns < LONG => inline(part(columns)),
        Some(_) if columns == LONG => Vec::new(),
        Some(_) => {
            let vectors = [lanes, lanes / 2].into_iter().filter(|vector| VECTORS.contains(vector));
            vectors.filter(|vector| columns % vector == 0).map(inline).next().unwrap_or_default()
        }
        None if columns < 4 => Vec::new(),
        None if columns < LONG && !is_of_planes => {
            vec![number("vector", part(columns.min(7))), number("parallel", all - 1)]
        }
        None if columns < LONG && steps >= 4 => {
            // What is left of a row beside a vector, one or nearly a whole one, costs more than the vector saves.
            let (vector, rest) = (part(columns), columns % part(columns));
            let is_vector = columns % 2 == 1 && (columns < 8 || (2..=5).contains(&rest));
            let vector = if is_vector { vector } else { 1 };
            vec![number("vector", vector), number("parallel", all), number("grain", 2)]
        }
        None => Vec::new(),
    }
}

/// Pools may reduce the columns of windows first, as vectors of neighbours in a row of the input. That is the default of maxima, and of
/// means whose windows take steps over rows that are not long or leave padding out. All as seen with AVX-512.
/// `usual` is the default of work on elements that are independent.
fn add_columns(space: &mut Space, machine: &Cpu, task: &Task, usual: Knobs) {
    let anchor = &task.steps[0];
    let Op::Pool { mode, kernel, strides, pads, count_pad, .. } = &anchor.op else { return };
    let (data, lanes) = (parameter_extents(task, 0), machine.vector_lanes);
    let output = anchor.output.extents().unwrap_or_default();
    let ([above @ .., last], [.., columns], [.., row]) = (&kernel[..], &output[..], &data[..]) else { return };
    // Places are told by 32-bit numbers where rows have ends.
    let is_small = data.iter().try_fold(1i32, |all, &extent| all.checked_mul(i32::try_from(extent).ok()?)).is_some();
    if *last == 1 || above.iter().all(|&extent| extent == 1) || !is_small {
        return;
    }
    // A row whose numbers fit half of the registers is one vector.
    let whole = if *row <= 16 * lanes { *row } else { 4 * lanes };
    let settings = [1, 8, 16, 32].into_iter().filter(|&width| width < whole).chain([whole]);
    let text = "whether windows are reduced as a whole or their columns first";
    space.axes.push(choices("windows", text, ["whole", "columns_first"]));
    space.axes.push(numbers("row", "columns of windows reduced as one vector, where they are first", settings));
    let is_padded = pads.iter().any(|&pad| pad > 0);
    let is_strided = strides.last().is_some_and(|&stride| stride > 1);
    let largest = |most: i64, of: i64| [16, 8, 4].into_iter().find(|vector| *vector <= of.min(most)).unwrap_or(1);
    let (row, vector) = match (mode, is_padded, is_strided) {
        // The compiler makes vectors of the results, except for short rows of which padding takes the ends.
        (PoolMode::Max, true, true) if *columns < lanes => (whole, largest(8, *columns)),
        (PoolMode::Max, true, false) if *columns % lanes == 0 => (whole, lanes),
        (PoolMode::Max, _, _) => (whole, 1),
        (PoolMode::Average, true, true) if *row <= 4 * lanes => (largest(8, *row), largest(4, *columns)),
        (PoolMode::Average, true, false) if !*count_pad && *row % largest(lanes, *row) <= 1 => {
            (largest(lanes, *row), largest(lanes, *columns))
        }
        (PoolMode::Average, false, true) if *row <= 4 * lanes => (whole, 1),
        (PoolMode::Average | PoolMode::Lp { .. }, _, _) => return,
    };
    space.default = usual;
    space.default.0.remove("pad_at");
    space.default.0.insert("windows".to_owned(), choice("columns_first"));
    for (name, setting) in [("row", row), ("vector", vector)] {
        space.default.0.insert(name.to_owned(), Setting::Number(setting));
    }
    // Short rows are too little to walk plane by plane.
    let steps: i64 = output.iter().rev().skip(1).product();
    if !is_padded && is_strided && *columns < lanes && steps >= 4 {
        let all = i64::try_from(output.len()).unwrap_or(1) - 1;
        space.default.0.insert("parallel".to_owned(), Setting::Number(all));
        space.default.0.insert("grain".to_owned(), Setting::Number(2));
    }
}

/// Whether the helpers of a row reduce elements that lie side by side.
fn sums_neighbours(op: &Op, rank: usize) -> bool {
    let is_last = |axis: i64| axis + 1 == i64::try_from(rank).unwrap_or(i64::MAX);
    match op {
        Op::Softmax { axis, .. } | Op::LpNorm { axis, .. } => is_last(*axis),
        Op::LayerNorm { .. } | Op::RmsNorm { .. } => true,
        Op::GroupNorm { .. } => rank > 2,
        Op::MeanVarianceNorm { axes, .. } => axes.iter().any(|&axis| is_last(axis)),
        _ => false,
    }
}

/// The widest vector that divides the columns: one that does not needs a test in every step.
fn whole_vector(machine: &Cpu, columns: i64) -> i64 {
    let fits = |vector: &i64| *vector <= machine.vector_lanes.min(columns) && columns % vector == 0;
    VECTORS.into_iter().filter(fits).max().unwrap_or(1)
}

/// Elements of one vector of a row, each computed by itself. The compiler makes vectors of its own of single elements,
/// full ones; those of a short row that nothing divides it does not, but masks ours.
fn element_vector(machine: &Cpu, columns: i64) -> i64 {
    let lanes = machine.vector_lanes;
    if columns % lanes == 0 {
        lanes
    } else if (2 * lanes..4 * lanes).contains(&columns) {
        2 * lanes
    } else {
        1
    }
}

/// How many neighbours become one element each, where those lie side by side to the last.
fn reduced_row(task: &Task) -> Option<i64> {
    let data = parameter_extents(task, 0);
    let first = match &task.steps[0].op {
        Op::GlobalPool { .. } => 2,
        Op::Reduce { axes, .. } => {
            let first = data.len().checked_sub(axes.len())?;
            let is_last =
                |axis: &i64| usize::try_from(axis.rem_euclid(data.len() as i64)).is_ok_and(|axis| axis >= first);
            axes.iter().all(is_last).then_some(first)?
        }
        _ => return None,
    };
    data.get(first..)?.iter().copied().reduce(|all, extent| all.saturating_mul(extent))
}

/// Rows are reduced by vectors, whose elements are brought together last.
fn add_partial_sums(space: &mut Space, machine: &Cpu, columns: i64) {
    let lanes = machine.vector_lanes;
    let settings: Vec<i64> = upto(columns, &[1, 4, 7, 8, 14, 16, 28, 32]).filter(|&width| width <= 2 * lanes).collect();
    let width = settings.iter().copied().filter(|&width| width <= lanes).max().unwrap_or(1);
    space.axes.push(numbers("split_r", "partial results of each row's reductions", settings));
    space.default.0.insert("split_r".to_owned(), Setting::Number(width));
}

fn rows(machine: &Cpu, output: &[i64], has_heads: bool) -> Space {
    let columns = output.last().copied().unwrap_or(1);
    let vectors: Vec<i64> = [1, 4, 8, 16, 32].into_iter().filter(|&v| v <= columns).collect();
    let vector = vectors.iter().copied().filter(|&v| v <= machine.vector_lanes).max().unwrap_or(1);
    // A vector past the end has a test for each element; of single ones the compiler makes vectors and a rest.
    let vector = if columns % vector == 0 || has_heads { vector } else { 1 };
    let places: &[&str] = if has_heads { &["row", "head", "root"] } else { &["row", "root"] };
    let axes = vec![
        numbers("vector", "elements in one vector", vectors),
        choices("helpers_at", "for how much of the result helpers are computed at once", places.iter().copied()),
    ];
    let default =
        BTreeMap::from([("vector".to_owned(), Setting::Number(vector)), ("helpers_at".to_owned(), choice("row"))]);
    Space { template: Template::Rows, axes, default: Knobs(default), limits: UNLIMITED }
}
