//! Products of bytes that a processor multiplies four at a time: neighbours along the depth lie in one number of 32 bits,
//! and one instruction adds their four products to a sum.
//!
//! The places of a convolution's result are the lanes of a vector, its channels are broadcast. A convolution of single
//! places is one row of all of them.

use super::axes::{choice, choices, divisors, numbers};
use super::{Axis, Knobs, Setting, Space};
use crate::target::Cpu;
use crate::tiles::{count, filled};
use models::operators::QConv;
use models::{DType, Op, Operand, Task};
use std::collections::BTreeMap;

/// Neighbours that one instruction multiplies.
pub const QUAD: i64 = 4;

/// The axes that only this way of computing has.
pub(super) const AXES: [&str; 5] = ["bytes", "dots_c", "dots_x", "vector", "quads_at"];

/// What of a level-one cache a tile of data may fill.
const CACHED_BYTES: i64 = 32 << 10;

/// A convolution of bytes.
pub(super) struct Dots {
    /// Channels that read the same data.
    together: i64,
    /// Places outside of a row, all batches included.
    rows: i64,
    columns: i64,
    /// Quads that one sum has.
    steps: i64,
    is_flat: bool,
    /// Whether quads are neighbours of a row.
    is_of_columns: bool,
}

/// Whether a convolution's places are one row: each reads the place of the same number.
pub fn is_flat(op: &Op, kernel: &[i64]) -> bool {
    let Op::QConv(QConv { strides, pads, .. }) = op else { return false };
    strides.iter().chain(kernel).all(|&one| one == 1) && pads.iter().all(|&pad| pad == 0)
}

/// What a task is as products of bytes, where it is one: weights that are packed, without a zero point, and nothing behind
/// the sums that looks at places.
pub(super) fn dots(task: &Task) -> Option<Dots> {
    let anchor = &task.steps[0];
    let Op::QConv(QConv { groups, w_zero: 0, .. }) = &anchor.op else { return None };
    let [Operand::Parameter(data), Operand::Parameter(weight)] = anchor.inputs[..] else { return None };
    let (data, weight) = (task.parameters.get(data)?, task.parameters.get(weight)?);
    let is_byte = matches!(data.ty.dtype, DType::I8 | DType::U8) && weight.ty.dtype == DType::I8;
    if !is_byte || !weight.is_constant || anchor.output.dtype != DType::I32 || !follows_channels(task) {
        return None;
    }
    let (output, weight) = (anchor.output.extents()?, weight.ty.extents()?);
    let is_flat = is_flat(&anchor.op, &weight[2..]);
    let (columns, rows) = output[2..].split_last()?;
    let rows: i64 = rows.iter().product();
    let (rows, columns) = if is_flat { (1, rows * columns) } else { (rows, *columns) };
    let (width, height) = weight[2..].split_last()?;
    let height: i64 = height.iter().product();
    let quads = |depth: i64| count(depth, QUAD);
    let is_of_columns = weight[1] == 1 && !is_flat;
    let steps = if is_of_columns { height * quads(*width) } else { height * width * quads(weight[1]) };
    // Channels of other groups read other data.
    let together = if is_of_columns { 1 } else { output[1] / groups };
    Some(Dots { together, rows: output[0] * rows, columns, steps, is_flat, is_of_columns })
}

/// Whether all that follows the sums is the same at every place of a channel.
pub(super) fn follows_channels(task: &Task) -> bool {
    task.steps.iter().enumerate().skip(1).all(|(place, step)| {
        let is_pointwise = matches!(
            step.op,
            Op::BiasAdd(_)
                | Op::Requantize(_)
                | Op::Quantize(_)
                | Op::Dequantize(_)
                | Op::Clip(_)
                | Op::Unary(_)
                | Op::Cast(_)
        );
        let is_narrow = |operand: &Operand| match operand {
            Operand::Step(before) => before + 1 == place,
            Operand::Parameter(index) => task.parameters.get(*index).is_some_and(|one| one.ty.rank() <= 1),
        };
        is_pointwise && step.inputs.first() == Some(&Operand::Step(place - 1)) && step.inputs.iter().all(is_narrow)
    })
}

/// Adds this way of computing to a task's space, and makes it the default.
pub(super) fn add_to(space: &mut Space, machine: &Cpu, dots: &Dots) {
    let Some(layout) = space.axes.iter_mut().find(|axis| axis.name == "layout") else { return };
    layout.settings.push(choice("dots"));
    let tiles = tiles(machine, dots);
    let Some(best) = tiles.iter().min_by(|one, other| one.cost.total_cmp(&other.cost)) else { return };
    let bytes = bytes(machine);
    let is_signed = bytes.settings[0].clone();
    let distinct = |of: fn(&Tile) -> i64| tiles.iter().map(of).collect::<std::collections::BTreeSet<i64>>();
    space.axes.push(bytes);
    space.axes.push(numbers("dots_c", "channels in one register tile (dots)", distinct(|tile| tile.channels)));
    let lanes = machine.vector_lanes;
    let columns = distinct(|tile| tile.vectors).into_iter().map(|vectors| vectors * lanes);
    space.axes.push(numbers("dots_x", "columns in one register tile (dots)", columns));
    space.axes.push(numbers("vector", "columns in one vector (dots)", [lanes]));
    let place = if dots.is_of_columns { "channel" } else { "outer" };
    space.axes.push(choices("quads_at", "where neighbours along the depth are put together (dots)", ["root", place]));
    // A row is put together in its tile where there are tiles for everyone, because then it stays in a near cache. Rows of
    // windows share what they read.
    let width = best.vectors * lanes;
    let tiles = dots.rows * count(dots.columns, width);
    let quads_at = if dots.is_of_columns || dots.is_flat && tiles >= 8 * machine.cores { place } else { "root" };
    let outer = if dots.is_of_columns { "channels" } else { "space" };
    space.default = Knobs(BTreeMap::from([
        ("layout".to_owned(), choice("dots")),
        ("bytes".to_owned(), is_signed),
        ("dots_c".to_owned(), Setting::Number(best.channels)),
        ("dots_x".to_owned(), Setting::Number(width)),
        ("vector".to_owned(), Setting::Number(lanes)),
        ("quads_at".to_owned(), choice(quads_at)),
        ("outer".to_owned(), choice(outer)),
    ]));
}

/// Whether the lanes of products of bytes are places: a convolution's.
pub(super) fn is_of_places(knobs: &Knobs) -> bool {
    knobs.choice("layout") == Some("dots") && knobs.number("dots_x").is_some()
}

/// Whether a product of matrices can be one of quads: its weights are packed. Their rows, the columns of the result, are the
/// lanes, and quads of data are broadcast.
pub(super) fn is_product(task: &Task) -> bool {
    let anchor = &task.steps[0];
    let (Op::QDense(_), DType::I32) = (&anchor.op, anchor.output.dtype) else { return false };
    let [Operand::Parameter(data), Operand::Parameter(weight)] = anchor.inputs[..] else { return false };
    let (Some(data), Some(weight)) = (task.parameters.get(data), task.parameters.get(weight)) else { return false };
    matches!(data.ty.dtype, DType::I8 | DType::U8) && weight.ty.dtype == DType::I8 && weight.is_constant
}

/// Adds products of quads to the space of a product of matrices, and makes them the default: tiles are the same.
pub(super) fn add_to_product(space: &mut Space, machine: &Cpu) {
    let Some(layout) = space.axes.iter_mut().find(|axis| axis.name == "layout") else { return };
    layout.settings.push(choice("dots"));
    space.axes.push(bytes(machine));
    space.default.0.insert("layout".to_owned(), choice("dots"));
    // Quads are four steps each.
    space.default.0.insert("split_r".to_owned(), Setting::Number(1));
    space.default.0.extend(space.axes.last().map(|bytes| ("bytes".to_owned(), bytes.settings[0].clone())));
}

/// Processors have instructions for data without a sign, those of Arm for data with one.
fn bytes(machine: &Cpu) -> Axis {
    let bytes = if machine.vector_lanes == 4 && machine.vector_registers == 32 { "signed" } else { "unsigned" };
    choices("bytes", "whether data enters products of bytes with a sign (dots)", [bytes])
}

/// Leaves out knobs that decide nothing.
pub(super) fn canonical(knobs: &mut Knobs) {
    if knobs.number("dots_x").is_none() {
        if knobs.choice("layout") != Some("dots") {
            knobs.0.remove("bytes");
        }
        return;
    }
    if knobs.choice("layout") != Some("dots") {
        knobs.0.retain(|name, _| !AXES.contains(&name.as_str()));
        return;
    }
    let decides = |name: &str| matches!(name, "layout" | "outer" | "functions" | "pool") || AXES.contains(&name);
    knobs.0.retain(|name, _| decides(name));
    // Of the other orders of loops these moves know nothing.
    if !matches!(knobs.choice("outer"), Some("channels" | "space") | None) {
        knobs.0.insert("outer".to_owned(), choice("channels"));
    }
    match (knobs.choice("quads_at"), knobs.choice("outer")) {
        // A tile's data is there for all channels.
        (Some("outer"), Some("channels")) => knobs.0.insert("quads_at".to_owned(), choice("root")),
        (Some("channel"), _) => knobs.0.insert("outer".to_owned(), choice("channels")),
        _ => None,
    };
}

/// Whether the sums of a tile stay in registers.
pub(super) fn allows(knobs: &Knobs, registers: i64) -> bool {
    let number = |name: &str| knobs.number(name).unwrap_or(1);
    number("dots_c") * number("dots_x") <= registers.saturating_mul(number("vector"))
}

/// Registers that sums may take.
pub(super) fn registers(machine: &Cpu) -> i64 {
    (machine.vector_registers * 3 / 4).max(1)
}

struct Tile {
    channels: i64,
    vectors: i64,
    /// Cycles for a product that is wanted, on a processor that does two products and two loads at once.
    cost: f64,
}

fn tiles(machine: &Cpu, dots: &Dots) -> Vec<Tile> {
    /// Products that have to be on their way so that none waits for the one before it.
    const LATENCY: f64 = 10.0;
    /// What another copy of the result takes, for a result that has unused columns first.
    const COPY: f64 = 1.02;
    const FAR: f64 = 1.1;
    let registers = registers(machine);
    let lanes = machine.vector_lanes;
    let mut tiles = Vec::new();
    for vectors in 1..=8 {
        for channels in divisors(dots.together).filter(|channels| channels * vectors <= registers) {
            let width = vectors * lanes;
            let padded = filled(dots.columns, width);
            let products = (channels * vectors) as f64;
            let cycles = products.max((channels + vectors) as f64).max(LATENCY) / products;
            let is_near = QUAD * dots.steps * width <= CACHED_BYTES;
            let cost = cycles * padded as f64 / dots.columns as f64
                * if padded == dots.columns { 1.0 } else { COPY }
                * if is_near { 1.0 } else { FAR };
            tiles.push(Tile { channels, vectors, cost });
        }
    }
    tiles
}
