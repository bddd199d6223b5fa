//! Memory that names share: a slice is a window on its tensor, and an operator that writes to its input changes every name of
//! the same memory.
//!
//! A name points to a cell, and a cell may be a window on another. A write goes through slices to the tensor they are cut from.
//! All other cells of the same memory are out of date from then on, and reading one of them is refused.

use super::rules::{self, Memory};
use crate::{Emit, Outcome, unsupported};
use models::graph::ValueId;

/// Limit on the nesting of windows that a write follows.
const MAX_WINDOWS: usize = 64;

pub(super) const STALE: &str = "its memory was written to under another name";

#[derive(Clone, Copy)]
pub(super) enum Slot {
    Value(ValueId),
    Skipped,
    Unmade,
    Stale,
}

/// Memory that one or more names refer to.
struct Cell {
    slot: Slot,
    /// The cell whose memory is shared, and the position in it.
    parent: Option<(usize, Memory)>,
    /// Windows on this cell.
    windows: Vec<usize>,
}

#[derive(Default)]
pub(super) struct Cells {
    cells: Vec<Cell>,
}

impl Cells {
    pub fn add_cell(&mut self, slot: Slot) -> usize {
        self.cells.push(Cell { slot, parent: None, windows: Vec::new() });
        self.cells.len() - 1
    }

    /// Adds an operator's result, which may be a window on the memory of its first input.
    pub fn add_result(&mut self, id: ValueId, window: Memory, source: Option<usize>) -> usize {
        let cell = self.add_cell(Slot::Value(id));
        if let (Some(source), false) = (source, matches!(window, Memory::Own)) {
            self.cells[cell].parent = Some((source, window));
            self.cells[source].windows.push(cell);
        }
        cell
    }

    pub fn cell_slot(&self, cell: usize) -> Slot {
        self.cells[cell].slot
    }

    /// Writes to a cell and updates the cells that it is a slice of.
    pub fn write_cell(&mut self, emit: &mut Emit<'_>, written: usize, id: ValueId) -> Outcome<()> {
        self.cells[written].slot = Slot::Value(id);
        let mut path = vec![written];
        while let Some((parent, window)) = self.cells[path[path.len() - 1]].parent {
            if path.len() > MAX_WINDOWS {
                return unsupported("it writes to a slice of slices");
            }
            path.push(parent);
            if !matches!(window, Memory::Range { .. }) {
                break;
            }
        }
        let is_path_of_ranges = path
            .iter()
            .rev()
            .skip(1)
            .all(|&cell| self.cells[cell].parent.is_some_and(|(_, window)| matches!(window, Memory::Range { .. })));
        let kept = if is_path_of_ranges { path.as_slice() } else { &path[..1] };
        self.expire_others(kept);
        if !is_path_of_ranges {
            return Ok(());
        }
        for pair in path.windows(2) {
            let [inner, outer] = [pair[0], pair[1]];
            let (Slot::Value(inner_id), Slot::Value(outer_id)) = (self.cells[inner].slot, self.cells[outer].slot)
            else {
                return unsupported("it writes to memory of a node that was left out");
            };
            if let Some((_, Memory::Range { axis, start, stop, is_row })) = self.cells[inner].parent {
                let id = rules::write_range(emit, outer_id, inner_id, axis, [start, stop], is_row)?;
                self.cells[outer].slot = Slot::Value(id);
            }
        }
        Ok(())
    }

    /// Returns whether a window is disjoint from the followed windows of the same cell.
    fn is_beside(&self, window: usize, kept: &[usize]) -> bool {
        let range = |cell: usize| match self.cells[cell].parent {
            Some((parent, Memory::Range { axis, start, stop, .. })) => Some((parent, axis, start, stop)),
            _ => None,
        };
        let Some((parent, axis, start, stop)) = range(window) else { return false };
        kept.iter()
            .filter_map(|&cell| range(cell))
            .any(|(of, along, from, to)| (of, along) == (parent, axis) && (to <= start || stop <= from))
    }

    /// Marks the cells of the same memory as stale, except those that a write followed or cannot reach.
    fn expire_others(&mut self, kept: &[usize]) {
        let mut root = kept[0];
        while let Some((parent, _)) = self.cells[root].parent {
            root = parent;
        }
        let mut left = vec![root];
        while let Some(cell) = left.pop() {
            left.extend(self.cells[cell].windows.iter().filter(|&&window| !self.is_beside(window, kept)));
            if !kept.contains(&cell) && matches!(self.cells[cell].slot, Slot::Value(_)) {
                self.cells[cell].slot = Slot::Stale;
            }
        }
    }
}
