//! Tracks tensors that share memory: views such as slices, and operators that write to their input.
//! A name refers to a cell, and a cell may be a view of another cell. A write to a view whose position is known is
//! propagated to the tensors whose memory it shares. All other cells that share the memory become stale, and reading a
//! stale cell is refused.

use super::rules::{self, Memory};
use crate::{Emit, Outcome, unsupported};
use models::graph::ValueId;

/// Maximum number of nested views through which a write is propagated.
const MAX_WINDOWS: usize = 64;

pub(super) const STALE: &str = "the memory of the tensor was overwritten through another name";

#[derive(Clone, Copy)]
pub(super) enum Slot {
    Value(ValueId),
    Skipped,
    Unmade,
    Stale,
}

struct Cell {
    slot: Slot,
    /// The cell whose memory this cell shares, and the part of that memory; None for a cell with memory of its own.
    parent: Option<(usize, Memory)>,
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

    /// Adds a cell for an operator's result, which may be a view of the memory of the cell `source`.
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

    /// Writes to a cell and, while the position of a view in another cell is known, to that one.
    pub fn write_cell(&mut self, emit: &mut Emit<'_>, written: usize, id: ValueId) -> Outcome<()> {
        self.cells[written].slot = Slot::Value(id);
        let mut path = vec![written];
        while let Some((parent, window)) = self.cells[path[path.len() - 1]].parent {
            if matches!(window, Memory::Own | Memory::Other) {
                break;
            }
            if path.len() > MAX_WINDOWS {
                return unsupported("writing to a slice that is nested too deeply");
            }
            path.push(parent);
        }
        self.expire_others(&path);
        for pair in path.windows(2) {
            let [inner, outer] = [pair[0], pair[1]];
            let (Slot::Value(inner_id), Slot::Value(outer_id)) = (self.cells[inner].slot, self.cells[outer].slot)
            else {
                return unsupported("writing to memory of a skipped node");
            };
            if let Some((_, window)) = self.cells[inner].parent {
                let id = rules::write_view(emit, outer_id, inner_id, window)?;
                self.cells[outer].slot = Slot::Value(id);
            }
        }
        Ok(())
    }

    /// Returns whether a slice is disjoint from another slice of the same cell among `kept`, the updated cells.
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

    /// Marks cells that share the memory as stale, except those that the write updated or that are disjoint from it.
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
