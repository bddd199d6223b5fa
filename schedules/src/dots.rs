//! Products of bytes that a processor multiplies four at a time: neighbours along the depth lie in one number of 32 bits,
//! and one instruction adds their four products to a sum.
//!
//! The places of a convolution's result are the lanes of a vector, its channels are broadcast. A convolution of single
//! places is one row of all of them.

use super::axes::{ChoiceAxis, Declaration, LAYOUT, NumberAxis, OUTER, SPLIT_R, VECTOR, Ways, divisors};
use super::choices::{Bytes, LayoutKind, QuadsAt, TileOrder};
use super::{Axis, Knobs, Setting, Settings, Space};
use crate::machine::Cpu;
use crate::tiles::{count, filled};
use models::operators::QConv;
use models::{Choice, DType, Op, Operand, Task};

/// Neighbours that one instruction multiplies.
pub const QUAD: i64 = 4;

/// Whether data enters products of bytes with a sign.
pub static BYTES: ChoiceAxis<Bytes> =
    ChoiceAxis::new("bytes").ways(Ways::DIRECT.or(Ways::DOTS)).when(|knobs| LAYOUT.is(knobs, LayoutKind::Dots));
/// Channels in one register tile.
pub static DOTS_C: NumberAxis = NumberAxis::new("dots_c").ways(Ways::DOTS);
/// Columns in one register tile.
pub static DOTS_X: NumberAxis = NumberAxis::new("dots_x").ways(Ways::DOTS);
/// Where neighbours along the depth are put together.
pub static QUADS_AT: ChoiceAxis<QuadsAt> = ChoiceAxis::new("quads_at").ways(Ways::DOTS);

/// The axes that only this way of computing has.
pub(crate) static AXES: &[&Declaration] = &[&BYTES.0, &DOTS_C.0, &DOTS_X.0, &QUADS_AT.0];

/// What of a level-one cache a tile of data may fill.
const CACHED_BYTES: i64 = 32 << 10;

/// A convolution of bytes.
pub(crate) struct Dots {
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
pub(crate) fn dots(task: &Task) -> Option<Dots> {
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
pub(crate) fn follows_channels(task: &Task) -> bool {
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
pub(crate) fn add_to(space: &mut Space, machine: &Cpu, dots: &Dots) {
    let Some(layout) = space.axes.iter_mut().find(|axis| axis.name == LAYOUT.0.name) else { return };
    layout.settings.push(Setting::Choice(LayoutKind::Dots.name().to_owned()));
    let tiles = tiles(machine, dots);
    let Some(best) = tiles.iter().min_by(|one, other| one.cost.total_cmp(&other.cost)) else { return };
    let distinct = |of: fn(&DotTile) -> i64| tiles.iter().map(of).collect::<std::collections::BTreeSet<i64>>();
    space.axes.push(bytes_axis(machine));
    space.axes.push(DOTS_C.axis("channels in one register tile (dots)", distinct(|tile| tile.channels)));
    let lanes = machine.vector_lanes;
    let columns = distinct(|tile| tile.vectors).into_iter().map(|vectors| vectors * lanes);
    space.axes.push(DOTS_X.axis("columns in one register tile (dots)", columns));
    space.axes.push(VECTOR.axis("columns in one vector (dots)", [lanes]));
    let place = if dots.is_of_columns { QuadsAt::Channel } else { QuadsAt::Outer };
    space.axes.push(QUADS_AT.axis("where neighbours along the depth are put together (dots)", [QuadsAt::Root, place]));
    // A row is put together in its tile where there are tiles for everyone, because then it stays in a near cache. Rows of
    // windows share what they read.
    let width = best.vectors * lanes;
    let tiles = dots.rows * count(dots.columns, width);
    let quads_at = if dots.is_of_columns || dots.is_flat && tiles >= 8 * machine.cores { place } else { QuadsAt::Root };
    let outer = if dots.is_of_columns { TileOrder::Channels } else { TileOrder::Space };
    let knobs = &mut space.default;
    knobs.0.clear();
    LAYOUT.set(knobs, LayoutKind::Dots);
    BYTES.set(knobs, bytes(machine));
    DOTS_C.set(knobs, best.channels);
    DOTS_X.set(knobs, width);
    VECTOR.set(knobs, lanes);
    QUADS_AT.set(knobs, quads_at);
    OUTER.set(knobs, outer);
}

/// Returns whether the lanes of products of bytes are places, as in a convolution.
pub(crate) fn is_of_places(knobs: &impl Settings) -> bool {
    LAYOUT.is(knobs, LayoutKind::Dots) && DOTS_X.of(knobs).is_some()
}

/// Whether a product of matrices can be one of quads: its weights are packed. Their rows, the columns of the result, are the
/// lanes, and quads of data are broadcast.
pub(crate) fn is_product(task: &Task) -> bool {
    let anchor = &task.steps[0];
    let (Op::QDense(_), DType::I32) = (&anchor.op, anchor.output.dtype) else { return false };
    let [Operand::Parameter(data), Operand::Parameter(weight)] = anchor.inputs[..] else { return false };
    let (Some(data), Some(weight)) = (task.parameters.get(data), task.parameters.get(weight)) else { return false };
    matches!(data.ty.dtype, DType::I8 | DType::U8) && weight.ty.dtype == DType::I8 && weight.is_constant
}

/// Adds products of quads to the space of a product of matrices, and makes them the default: tiles are the same.
pub(crate) fn add_to_product(space: &mut Space, machine: &Cpu) {
    let Some(layout) = space.axes.iter_mut().find(|axis| axis.name == LAYOUT.0.name) else { return };
    layout.settings.push(Setting::Choice(LayoutKind::Dots.name().to_owned()));
    space.axes.push(bytes_axis(machine));
    LAYOUT.set(&mut space.default, LayoutKind::Dots);
    // Quads are four steps each.
    SPLIT_R.set(&mut space.default, 1);
    BYTES.set(&mut space.default, bytes(machine));
}

/// Processors have instructions for data without a sign, those of Arm for data with one.
fn bytes(machine: &Cpu) -> Bytes {
    if machine.vector_lanes == 4 && machine.vector_registers == 32 { Bytes::Signed } else { Bytes::Unsigned }
}

fn bytes_axis(machine: &Cpu) -> Axis {
    BYTES.axis("whether data enters products of bytes with a sign (dots)", [bytes(machine)])
}

/// Settings that come to others: of other orders of loops the moves of these products know nothing, a tile's data is there for all
/// channels, and quads for each channel are inside of a loop over channels.
pub(crate) fn settle(knobs: &mut Knobs) {
    if !matches!(OUTER.of(knobs), Some(TileOrder::Channels | TileOrder::Space)) && OUTER.0.is_in(knobs) {
        OUTER.set(knobs, TileOrder::Channels);
    }
    match (QUADS_AT.of(knobs), OUTER.of(knobs)) {
        (Some(QuadsAt::Outer), Some(TileOrder::Channels)) => QUADS_AT.set(knobs, QuadsAt::Root),
        (Some(QuadsAt::Channel), _) => OUTER.set(knobs, TileOrder::Channels),
        _ => {}
    }
}

/// Whether the sums of a tile stay in registers.
pub(crate) fn allows(knobs: &Knobs, registers: i64) -> bool {
    DOTS_C.or_one(knobs) * DOTS_X.or_one(knobs) <= registers.saturating_mul(VECTOR.or_one(knobs))
}

/// Registers that sums may take.
pub(crate) fn registers(machine: &Cpu) -> i64 {
    (machine.vector_registers * 3 / 4).max(1)
}

struct DotTile {
    channels: i64,
    vectors: i64,
    /// Cycles for a product that is wanted, on a processor that does two products and two loads at once.
    cost: f64,
}

fn tiles(machine: &Cpu, dots: &Dots) -> Vec<DotTile> {
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
            tiles.push(DotTile { channels, vectors, cost });
        }
    }
    tiles
}
