//! Schedule axes of attention: register tiles of queries, and the treatment of masked positions.

use super::Space;
use super::axes::{BLOCK, ChoiceAxis, Declaration, HELPERS_AT, LAYOUT, TILE_Y, divisors};
use super::choices::{HelpersAt, LayoutKind, Unseen};
use super::register_tile::{has_few_registers, product_registers};
use super::template::parameter_extents;
use crate::machine::Cpu;
use crate::tiles::{filled_extent, reach_little_past};
use models::operators::Attention;
use models::{Op, Task};

pub static UNSEEN: ChoiceAxis<Unseen> =
    ChoiceAxis::new("unseen").only_when(|knobs| !LAYOUT.is_set_to(knobs, LayoutKind::Plain));

pub(crate) static AXES: &[&Declaration] = &[&UNSEEN.0];

/// Which keys a query attends to in causal attention, possibly limited to a window of earlier positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sight {
    /// Last key position that the first query attends to.
    pub earlier: i64,
    pub window: Option<i64>,
    places: i64,
}

impl Sight {
    /// Returns which keys the queries of a task attend to; None unless it is causal attention with known sizes.
    pub fn from_task(task: &Task) -> Option<Sight> {
        let Op::Attention(Attention { causal: true, window, .. }) = &task.steps[0].op else { return None };
        let [_, _, queries, _] = parameter_extents(task, 0)[..] else { return None };
        let [_, _, places, _] = parameter_extents(task, 1)[..] else { return None };
        // A window of at least all positions has no effect; differences of positions must fit an index.
        let window = window.filter(|&window| window < queries.max(places));
        Some(Sight { earlier: places - queries, window, places })
    }

    /// Returns how many key positions one visibility test covers: a divisor of their number, or None if none fits.
    pub fn visibility_block(&self) -> Option<i64> {
        /// Smallest block of positions: with fewer, a test costs more than it saves.
        const LEAST: i64 = 8;
        const MOST: i64 = 64;
        divisors(self.places).filter(|places| (LEAST..=MOST).contains(places)).last()
    }
}

/// Adds axes for register tiles of several queries, and makes such tiles the default. Does nothing for a single query.
pub(crate) fn add_query_tiles(space: &mut Space, task: &Task, machine: &Cpu) {
    let [batch, heads, queries, _] = task.steps[0].output.extents().unwrap_or_default()[..] else { return };
    let places = parameter_extents(task, 1).get(2).copied().unwrap_or(1);
    let lanes = machine.vector_lanes;
    let blocks: Vec<i64> =
        [lanes, 2 * lanes, 4 * lanes].into_iter().filter(|&block| block < 2 * places.max(1)).collect();
    let (Some(_), true) = (blocks.first(), queries > 1) else { return };
    let tiles = query_tiles(machine, queries);
    let (block, tile) = best_tile(machine, [queries, places], &blocks, &tiles);
    space.axes.insert(
        0,
        LAYOUT.to_axis(
            "whether keys are transposed and scores computed in tiles",
            [LayoutKind::Blocked, LayoutKind::Plain],
        ),
    );
    space.axes.insert(1, BLOCK.to_axis("key positions in one register tile (blocked layout only)", blocks));
    space.axes.insert(2, TILE_Y.to_axis("queries in one register tile (blocked layout only)", tiles));
    let helpers_at = if batch * heads >= 2 * machine.cores { HelpersAt::Head } else { HelpersAt::Root };
    let knobs = &mut space.default;
    LAYOUT.set(knobs, LayoutKind::Blocked);
    BLOCK.set(knobs, block);
    TILE_Y.set(knobs, tile);
    HELPERS_AT.set(knobs, helpers_at);
    if Sight::from_task(task).is_some() {
        let meaning =
            "whether key positions that no query of a register tile attends to are skipped (blocked layout only)";
        space.axes.push(UNSEEN.to_axis(meaning, [Unseen::Skipped, Unseen::Computed]));
        UNSEEN.set(knobs, Unseen::Skipped);
    }
}

/// Returns candidates for the queries per tile: divisors of `queries`, or else sizes that overhang by up to an eighth.
fn query_tiles(machine: &Cpu, queries: i64) -> Vec<i64> {
    const ENOUGH: i64 = 4;
    const MOST: i64 = 8;
    /// Number of queries whose scores fit 16 registers, with two vectors of positions.
    const FITTING: i64 = 6;
    let most = if has_few_registers(machine) { FITTING } else { MOST };
    let dividing: Vec<i64> = divisors(queries).filter(|&rows| rows <= MOST).collect();
    let is_enough = dividing.iter().any(|rows| (ENOUGH.min(queries)..=most).contains(rows));
    let is_close = |rows: &i64| reach_little_past(queries, *rows);
    if is_enough { dividing } else { (1..=MOST.min(queries)).filter(is_close).collect() }
}

/// Returns the positions and queries of the cheapest tile, counting overhang, whose accumulators fit the registers.
fn best_tile(machine: &Cpu, [queries, places]: [i64; 2], blocks: &[i64], tiles: &[i64]) -> (i64, i64) {
    /// Part of the cost of a multiply-add that does not depend on the tile, in loads.
    const OTHER_STEPS: f64 = 2.0;
    let vectors = |block: i64| block / machine.vector_lanes;
    let fits = |(block, rows): &(i64, i64)| {
        *rows == 1 || product_registers(vectors(*block), *rows) <= machine.vector_registers
    };
    let cost = |(block, rows): (i64, i64)| {
        let scores = filled_extent(queries, rows) as f64 * filled_extent(places, block) as f64;
        let loads = (vectors(block) + rows) as f64 / (vectors(block) * rows) as f64;
        scores * (OTHER_STEPS + loads)
    };
    let cheaper = |one: &(i64, i64), other: &(i64, i64)| cost(*one).total_cmp(&cost(*other));
    let tiles = blocks.iter().flat_map(|&block| tiles.iter().map(move |&rows| (block, rows)));
    tiles.filter(fits).min_by(cheaper).unwrap_or((blocks[0], 1))
}
