//! Attention by register tiles of queries, and what such a tile need not look at.

use super::axes::{choice, choices, divisors, numbers};
use super::template::parameter_extents;
use super::{Setting, Space};
use crate::target::Cpu;
use crate::tiles::filled;
use models::{Op, Task};

/// Queries that see no place after their own, and perhaps only so many before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sight {
    /// The place that the first query sees last.
    pub earlier: i64,
    /// How many places a query sees at most.
    pub window: Option<i64>,
    places: i64,
}

impl Sight {
    /// The sight of a task's queries, where its sizes are known and not all of them see all places.
    pub fn of(task: &Task) -> Option<Sight> {
        let Op::Attention { causal: true, window, .. } = &task.steps[0].op else { return None };
        let [_, _, queries, _] = parameter_extents(task, 0)[..] else { return None };
        let [_, _, places, _] = parameter_extents(task, 1)[..] else { return None };
        // A window beyond all places is none; differences must fit an index.
        let window = window.filter(|&window| window < queries.max(places));
        Some(Sight { earlier: places - queries, window, places })
    }

    /// So many places divide all of them, and are worth asking whether they are seen.
    pub fn stretch(&self) -> Option<i64> {
        /// A question per turn costs more than what it saves.
        const LEAST: i64 = 8;
        const MOST: i64 = 64;
        divisors(self.places).filter(|places| (LEAST..=MOST).contains(places)).last()
    }
}

/// Adds register tiles to rows of queries, and makes them the default where there are several queries.
pub(super) fn extend(space: &mut Space, task: &Task, machine: &Cpu) {
    let [batch, heads, queries, _] = task.steps[0].output.extents().unwrap_or_default()[..] else { return };
    let places = parameter_extents(task, 1).get(2).copied().unwrap_or(1);
    let lanes = machine.vector_lanes;
    let blocks: Vec<i64> =
        [lanes, 2 * lanes, 4 * lanes].into_iter().filter(|&block| block < 2 * places.max(1)).collect();
    let block = blocks.iter().copied().min_by_key(|&block| (filled(places, block), -block));
    let (Some(block), true) = (block, queries > 1) else { return };
    space
        .axes
        .insert(0, choices("layout", "whether keys are turned, and scores computed in tiles", ["blocked", "plain"]));
    space.axes.insert(1, numbers("block", "places in one register tile (blocked)", blocks));
    let room = (machine.vector_registers - 4) * lanes / block;
    let tiles: Vec<i64> = divisors(queries).filter(|&rows| rows <= 8).collect();
    let tile = tiles.iter().copied().filter(|&rows| rows <= room).max().unwrap_or(1);
    space.axes.insert(2, numbers("tile_y", "queries in one register tile (blocked)", tiles));
    let helpers_at = if batch * heads >= 2 * machine.cores { "head" } else { "root" };
    let knobs = &mut space.default.0;
    knobs.insert("layout".to_owned(), choice("blocked"));
    knobs.insert("block".to_owned(), Setting::Number(block));
    knobs.insert("tile_y".to_owned(), Setting::Number(tile));
    knobs.insert("helpers_at".to_owned(), choice(helpers_at));
    if Sight::of(task).is_some() {
        let meaning = "whether places that no query of a register tile sees are left out (blocked)";
        space.axes.push(choices("unseen", meaning, ["skipped", "computed"]));
        knobs.insert("unseen".to_owned(), choice("skipped"));
    }
}
