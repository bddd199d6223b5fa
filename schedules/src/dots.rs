//! 8-bit dot products: four bytes along the depth form a 32-bit number, and one instruction adds their products to a
//! sum. In convolutions, positions are vector lanes and channels are broadcast.

use super::axes::{ChoiceAxis, Declaration, LAYOUT, NumberAxis, OUTER, SPLIT_R, VECTOR, Ways, divisors};
use super::choices::{Bytes, LayoutKind, QuadsAt, TileOrder};
use super::{Axis, Knobs, Setting, Settings, Space};
use crate::machine::Cpu;
use crate::tiles::{filled_extent, tile_count};
use models::operators::QConv;
use models::{Choice, DType, Op, Operand, Task};

pub const QUAD: i64 = 4;

pub static BYTES: ChoiceAxis<Bytes> = ChoiceAxis::new("bytes")
    .with_ways(Ways::DIRECT.or(Ways::DOTS))
    .only_when(|knobs| LAYOUT.is_set_to(knobs, LayoutKind::Dots));
pub static DOTS_C: NumberAxis = NumberAxis::new("dots_c").with_ways(Ways::DOTS);
pub static DOTS_X: NumberAxis = NumberAxis::new("dots_x").with_ways(Ways::DOTS);
pub static QUADS_AT: ChoiceAxis<QuadsAt> = ChoiceAxis::new("quads_at").with_ways(Ways::DOTS);

pub(crate) static AXES: &[&Declaration] = &[&BYTES.0, &DOTS_C.0, &DOTS_X.0, &QUADS_AT.0];

/// Number of bytes that the data of a tile may use in a level-one cache.
const CACHED_BYTES: i64 = 32 << 10;

pub(crate) struct Dots {
    /// Number of channels that read the same data.
    together: i64,
    /// Number of rows of positions, including those of all images of the batch.
    rows: i64,
    columns: i64,
    steps: i64,
    is_flat: bool,
    /// Whether the four bytes of a group are neighbours in a row, not along the depth.
    is_of_columns: bool,
}

/// Returns whether each position of the result reads only the input at the same position.
pub fn is_flat(op: &Op, kernel: &[i64]) -> bool {
    let Op::QConv(QConv { strides, pads, .. }) = op else { return false };
    strides.iter().chain(kernel).all(|&one| one == 1) && pads.iter().all(|&pad| pad == 0)
}

/// Returns a convolution's 8-bit dot products; None if weights have a zero point or the epilogue is not by channel.
pub(crate) fn find_dots(task: &Task) -> Option<Dots> {
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
    let quads = |depth: i64| tile_count(depth, QUAD);
    let is_of_columns = weight[1] == 1 && !is_flat;
    let steps = if is_of_columns { height * quads(*width) } else { height * width * quads(weight[1]) };
    // Channels of other groups read different data.
    let together = if is_of_columns { 1 } else { output[1] / groups };
    Some(Dots { together, rows: output[0] * rows, columns, steps, is_flat, is_of_columns })
}

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

pub(crate) fn add_to(space: &mut Space, machine: &Cpu, dots: &Dots) {
    let Some(layout) = space.axes.iter_mut().find(|axis| axis.name == LAYOUT.0.name) else { return };
    layout.settings.push(Setting::Choice(LayoutKind::Dots.name().to_owned()));
    let tiles = dot_tiles(machine, dots);
    let Some(best) = tiles.iter().min_by(|one, other| one.cost.total_cmp(&other.cost)) else { return };
    let distinct = |of: fn(&DotTile) -> i64| tiles.iter().map(of).collect::<std::collections::BTreeSet<i64>>();
    space.axes.push(bytes_axis(machine));
    space.axes.push(DOTS_C.to_axis("channels in one register tile (dots)", distinct(|tile| tile.channels)));
    let lanes = machine.vector_lanes;
    let columns = distinct(|tile| tile.vectors).into_iter().map(|vectors| vectors * lanes);
    space.axes.push(DOTS_X.to_axis("columns in one register tile (dots)", columns));
    space.axes.push(VECTOR.to_axis("columns in one vector (dots)", [lanes]));
    let place = if dots.is_of_columns { QuadsAt::Channel } else { QuadsAt::Outer };
    space.axes.push(QUADS_AT.to_axis("compute location of the groups of four bytes (dots)", [QuadsAt::Root, place]));
    // With enough tiles for all cores, the bytes of a row are grouped in its tile and stay in a near cache. Rows of
    // windows share their input.
    let width = best.vectors * lanes;
    let tiles = dots.rows * tile_count(dots.columns, width);
    let quads_at = if dots.is_of_columns || dots.is_flat && tiles >= 8 * machine.cores { place } else { QuadsAt::Root };
    let outer = if dots.is_of_columns { TileOrder::Channels } else { TileOrder::Space };
    let knobs = &mut space.default;
    knobs.0.clear();
    LAYOUT.set(knobs, LayoutKind::Dots);
    BYTES.set(knobs, data_signedness(machine));
    DOTS_C.set(knobs, best.channels);
    DOTS_X.set(knobs, width);
    VECTOR.set(knobs, lanes);
    QUADS_AT.set(knobs, quads_at);
    OUTER.set(knobs, outer);
}

pub(crate) fn are_lanes_positions(knobs: &impl Settings) -> bool {
    LAYOUT.is_set_to(knobs, LayoutKind::Dots) && DOTS_X.setting_in(knobs).is_some()
}

/// Returns whether a task is an 8-bit matrix product with packed weights, whose columns become vector lanes.
pub(crate) fn is_product(task: &Task) -> bool {
    let anchor = &task.steps[0];
    let (Op::QDense(_), DType::I32) = (&anchor.op, anchor.output.dtype) else { return false };
    let [Operand::Parameter(data), Operand::Parameter(weight)] = anchor.inputs[..] else { return false };
    let (Some(data), Some(weight)) = (task.parameters.get(data), task.parameters.get(weight)) else { return false };
    matches!(data.ty.dtype, DType::I8 | DType::U8) && weight.ty.dtype == DType::I8 && weight.is_constant
}

/// Adds 8-bit dot products to the space of a matrix product, with unchanged tiles, and makes them the default.
pub(crate) fn add_to_product(space: &mut Space, machine: &Cpu) {
    let Some(layout) = space.axes.iter_mut().find(|axis| axis.name == LAYOUT.0.name) else { return };
    layout.settings.push(Setting::Choice(LayoutKind::Dots.name().to_owned()));
    space.axes.push(bytes_axis(machine));
    LAYOUT.set(&mut space.default, LayoutKind::Dots);
    // A group of bytes covers four steps.
    SPLIT_R.set(&mut space.default, 1);
    BYTES.set(&mut space.default, data_signedness(machine));
}

/// Returns the signedness of data that the dot-product instructions take: signed on Arm, unsigned elsewhere.
fn data_signedness(machine: &Cpu) -> Bytes {
    if machine.vector_lanes == 4 && machine.vector_registers == 32 { Bytes::Signed } else { Bytes::Unsigned }
}

fn bytes_axis(machine: &Cpu) -> Axis {
    BYTES.to_axis("whether 8-bit data are signed (dots)", [data_signedness(machine)])
}

/// Adjusts dependent settings: dot products have two tile orders, and the order must fit where data are packed.
pub(crate) fn settle_quads(knobs: &mut Knobs) {
    if !matches!(OUTER.setting_in(knobs), Some(TileOrder::Channels | TileOrder::Space)) && OUTER.0.is_in(knobs) {
        OUTER.set(knobs, TileOrder::Channels);
    }
    match (QUADS_AT.setting_in(knobs), OUTER.setting_in(knobs)) {
        (Some(QuadsAt::Outer), Some(TileOrder::Channels)) => QUADS_AT.set(knobs, QuadsAt::Root),
        (Some(QuadsAt::Channel), _) => OUTER.set(knobs, TileOrder::Channels),
        _ => {}
    }
}

pub(crate) fn fits_registers(knobs: &Knobs, registers: i64) -> bool {
    DOTS_C.or_one(knobs) * DOTS_X.or_one(knobs) <= registers.saturating_mul(VECTOR.or_one(knobs))
}

pub(crate) fn sum_registers(machine: &Cpu) -> i64 {
    (machine.vector_registers * 3 / 4).max(1)
}

struct DotTile {
    channels: i64,
    vectors: i64,
    /// Estimated cycles per useful product, at two products and two loads per cycle.
    cost: f64,
}

fn dot_tiles(machine: &Cpu, dots: &Dots) -> Vec<DotTile> {
    /// Number of independent products that hide the latency of one product.
    const LATENCY: f64 = 10.0;
    /// Cost factor of an additional copy of the result, which removes unused columns.
    const COPY: f64 = 1.02;
    const FAR: f64 = 1.1;
    let registers = sum_registers(machine);
    let lanes = machine.vector_lanes;
    let mut tiles = Vec::new();
    for vectors in 1..=8 {
        for channels in divisors(dots.together).filter(|channels| channels * vectors <= registers) {
            let width = vectors * lanes;
            let padded = filled_extent(dots.columns, width);
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
