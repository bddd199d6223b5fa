//! Declares the space of each family.

use super::template::summed;
use super::{Axis, Knobs, Limits, Setting, Space, Template, template};
use crate::target::Machine;
use models::{Op, Task};
use std::collections::BTreeMap;

const UNLIMITED: Limits = Limits { tile_elements: i64::MAX, unrolled_elements: i64::MAX };

/// The space of a task on a machine.
pub fn space(task: &Task, machine: &Machine) -> Space {
    let anchor = &task.steps[0];
    let output = anchor.output.extents().unwrap_or_default();
    match template(task) {
        Template::Contraction => contraction(machine, &contraction_extents(task, &output)),
        Template::Rows => rows(machine, &output, matches!(anchor.op, Op::Attention { .. })),
        Template::Spatial => {
            let is_padded = matches!(&anchor.op, Op::Pool { pads, .. } if pads.iter().any(|&pad| pad > 0));
            spatial(machine, &output, is_padded)
        }
    }
}

/// What a register tile has to do with. Only contractions ask.
fn contraction_extents(task: &Task, output: &[i64]) -> Extents {
    let anchor = &task.steps[0];
    let (last, rank) = (output.last().copied().unwrap_or(1), output.len());
    match &anchor.op {
        Op::Conv { strides, pads, .. } | Op::QConv { strides, pads, .. } | Op::ConvTranspose { strides, pads, .. } => {
            let is_transposed = matches!(anchor.op, Op::ConvTranspose { .. });
            Extents {
                channels: output.get(1).copied().unwrap_or(1),
                rows: if strides.len() > 1 { output[rank - 2] } else { 1 },
                columns: last,
                depth: input_extent(task, 1),
                is_padded: is_transposed || pads.iter().any(|&pad| pad > 0),
                is_conv: true,
                may_block: !is_transposed,
            }
        }
        op => {
            // Columns of an unpacked transposed operand cannot be read as a vector.
            let may_block = match op {
                Op::Dense | Op::QDense { .. } => task.parameters.get(1).is_some_and(|weight| weight.is_constant),
                Op::Einsum { .. } => false,
                _ => true,
            };
            Extents {
                channels: last,
                rows: 1,
                columns: output[..rank - 1].last().copied().unwrap_or(1),
                depth: summed(task).unwrap_or_else(|| input_extent(task, -1)),
                is_padded: false,
                is_conv: false,
                may_block,
            }
        }
    }
}

fn input_extent(task: &Task, dimension: i64) -> i64 {
    let extents = task.parameters.first().and_then(|parameter| parameter.ty.extents()).unwrap_or_default();
    let place = if dimension < 0 { extents.len().checked_sub(1) } else { usize::try_from(dimension).ok() };
    place.and_then(|place| extents.get(place)).copied().unwrap_or(1)
}

struct Extents {
    channels: i64,
    rows: i64,
    columns: i64,
    depth: i64,
    is_padded: bool,
    is_conv: bool,
    may_block: bool,
}

fn contraction(machine: &Machine, extents: &Extents) -> Space {
    let lanes = machine.vector_lanes;
    let blocks: Vec<i64> = divisors(extents.channels).filter(|&b| b >= 2 && b <= 4 * lanes && b >= lanes / 4).collect();
    let blocks: Vec<i64> = blocks
        .iter()
        .copied()
        .filter(|&b| b % (lanes / 2) == 0)
        .chain(
            // An awkward channel count still gets its best divisor.
            blocks.iter().copied().max().filter(|_| blocks.iter().all(|b| b % (lanes / 2) != 0)),
        )
        .collect();
    let may_block = extents.may_block && !blocks.is_empty();
    let may_be_plain = extents.is_conv || !may_block;
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
        upto(extents.channels, &[1, 2, 4, 8]),
    ));
    axes.push(numbers("tile_y", "rows in one register tile", upto(extents.rows, &[1, 2, 4])));
    axes.push(numbers("tile_x", "columns in one register tile", divisors(extents.columns).filter(|&d| d <= 32)));
    axes.push(numbers("split_r", "inner part of the split reduction", upto(extents.depth, &[1, 4, 8, 16, 32])));
    if extents.is_conv {
        axes.push(choices("order", "which reduction loop is outside", ["depth_first", "kernel_first"]));
    }
    axes.push(numbers("unroll", "innermost reduction loops written out", [0, 1]));
    axes.push(choices("outer", "which output dimension is outside", ["channels", "space"]));
    axes.push(numbers("parallel", "outer loops fused and run on the pool", [1, 2, 3]));
    if extents.is_padded {
        axes.push(choices("pad_at", "where the padded input is computed", ["inline", "root", "outer"]));
    }
    axes.push(choices("vectorize", "whether the innermost loop is one vector", ["yes", "no"]));
    let default = contraction_default(machine, extents, &blocks, may_block);
    let limits = Limits {
        tile_elements: 2 * machine.vector_registers * lanes,
        unrolled_elements: 8 * machine.vector_registers * lanes,
    };
    Space { template: Template::Contraction, axes, default, limits }
}

/// A register tile that fills most of the vector registers with accumulators.
fn contraction_default(machine: &Machine, extents: &Extents, blocks: &[i64], may_block: bool) -> Knobs {
    let tile = best_tile(machine, extents, blocks, may_block);
    let mut knobs = BTreeMap::new();
    let mut set = |name: &str, setting: Setting| knobs.insert(name.to_owned(), setting);
    set("layout", choice(if may_block { "blocked" } else { "plain" }));
    if may_block {
        set("block", Setting::Number(tile.block));
    }
    set("tile_c", Setting::Number(tile.channels));
    set("tile_y", Setting::Number(tile.rows));
    set("tile_x", Setting::Number(tile.columns));
    set("split_r", Setting::Number(1));
    if extents.is_conv {
        set("order", choice("depth_first"));
    }
    set("unroll", Setting::Number(1));
    set("outer", choice("channels"));
    set("parallel", Setting::Number(2));
    if extents.is_padded {
        set("pad_at", choice("root"));
    }
    set("vectorize", choice("yes"));
    Knobs(knobs)
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
fn best_tile(machine: &Machine, extents: &Extents, blocks: &[i64], may_block: bool) -> Tile {
    let lanes = machine.vector_lanes;
    // One register per weight vector in flight and one for the broadcast.
    let room = machine.vector_registers - 4;
    let blocks: &[i64] = if may_block { blocks } else { &[1] };
    let mut best: Option<(f64, Tile)> = None;
    for &block in blocks {
        let vectors = (block + lanes - 1) / lanes;
        for columns in divisors(extents.columns).filter(|&columns| columns <= 32) {
            for rows in upto(extents.rows, &[1, 2, 4]) {
                for channels in upto(extents.channels / block, &[1, 2, 4]) {
                    // Without blocks the columns are the vector and the channels are broadcast.
                    let (vectors, broadcasts) = if may_block {
                        (vectors * channels, columns * rows)
                    } else {
                        ((columns + lanes - 1) / lanes * rows, channels)
                    };
                    if vectors * broadcasts > room {
                        continue;
                    }
                    let loads = (vectors + broadcasts) as f64 / (vectors * broadcasts) as f64;
                    // Half-empty vectors do half the work.
                    let filled = if may_block { block } else { columns } as f64;
                    let waste = ((filled / lanes as f64).ceil() * lanes as f64) / filled;
                    let cost = loads * waste;
                    if best.as_ref().is_none_or(|(least, _)| cost < *least) {
                        best = Some((cost, Tile { block, channels, rows, columns }));
                    }
                }
            }
        }
    }
    best.map_or(Tile { block: 1, channels: 1, rows: 1, columns: 1 }, |(_, tile)| tile)
}

fn spatial(machine: &Machine, output: &[i64], is_padded: bool) -> Space {
    let columns = output.last().copied().unwrap_or(1);
    let vectors: Vec<i64> = [1, 4, 8, 16, 32, 64].into_iter().filter(|&v| v <= columns).collect();
    let preferred = vectors.iter().copied().filter(|&v| v <= machine.vector_lanes).max().unwrap_or(1);
    let exact = divisors(columns).filter(|&d| d <= 2 * machine.vector_lanes).max().unwrap_or(1);
    let vector = if columns % preferred == 0 { preferred } else { exact.max(1) };
    let mut settings: Vec<i64> = vectors;
    settings.push(vector);
    settings.sort_unstable();
    settings.dedup();
    let outer = i64::try_from(output.len().saturating_sub(1)).unwrap_or(0).max(1);
    let mut axes = vec![
        numbers("vector", "columns in one vector", settings),
        numbers("parallel", "outer loops fused and run on the pool", 1..=outer),
    ];
    let mut default = BTreeMap::from([
        ("vector".to_owned(), Setting::Number(vector)),
        ("parallel".to_owned(), Setting::Number(outer)),
    ]);
    if is_padded {
        axes.push(choices("pad_at", "where the padded input is computed", ["inline", "root", "outer"]));
        default.insert("pad_at".to_owned(), choice("outer"));
    }
    Space { template: Template::Spatial, axes, default: Knobs(default), limits: UNLIMITED }
}

fn rows(machine: &Machine, output: &[i64], has_heads: bool) -> Space {
    let columns = output.last().copied().unwrap_or(1);
    let vectors: Vec<i64> = [1, 4, 8, 16, 32].into_iter().filter(|&v| v <= columns).collect();
    let vector = vectors.iter().copied().filter(|&v| v <= machine.vector_lanes).max().unwrap_or(1);
    let places: &[&str] = if has_heads { &["row", "head", "root"] } else { &["row", "root"] };
    let axes = vec![
        numbers("vector", "elements in one vector", vectors),
        choices("helpers_at", "for how much of the result helpers are computed at once", places.iter().copied()),
    ];
    let default =
        BTreeMap::from([("vector".to_owned(), Setting::Number(vector)), ("helpers_at".to_owned(), choice("row"))]);
    Space { template: Template::Rows, axes, default: Knobs(default), limits: UNLIMITED }
}

fn numbers(name: &'static str, meaning: &'static str, settings: impl IntoIterator<Item = i64>) -> Axis {
    Axis { name, meaning, settings: settings.into_iter().map(Setting::Number).collect() }
}

fn choices<'a>(name: &'static str, meaning: &'static str, settings: impl IntoIterator<Item = &'a str>) -> Axis {
    Axis { name, meaning, settings: settings.into_iter().map(choice).collect() }
}

fn choice(name: &str) -> Setting {
    Setting::Choice(name.to_owned())
}

/// Those of the wished numbers that divide the extent.
fn upto(extent: i64, wished: &[i64]) -> impl Iterator<Item = i64> {
    wished.iter().copied().filter(move |&number| number <= extent && extent % number == 0)
}

/// All divisors, ascending.
fn divisors(extent: i64) -> impl Iterator<Item = i64> {
    (1..=extent.min(1 << 16)).filter(move |number| extent % number == 0)
}
