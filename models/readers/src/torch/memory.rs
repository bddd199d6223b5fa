//! Memory that names share: a slice is a window on its tensor, and an operator that writes to its input changes every name of
//! the same memory.
//!
//! A name points to a cell, and a cell may be a window on another. A write goes through slices to the tensor they are cut from.
//! All other cells of the same memory are out of date from then on, and reading one of them is refused.

use super::rules::{self, Memory};
use crate::{Emit, Outcome, unsupported};
use models::graph::ValueId;

/// Windows on windows that a write is followed through.
const MAX_WINDOWS: usize = 64;

/// Why a cell that is out of date cannot be read.
pub(super) const STALE: &str = "its memory was written to under another name";

/// What a cell holds.
#[derive(Clone, Copy)]
pub(super) enum Slot {
    Value(ValueId),
    /// The result of a node that was left out.
    Skipped,
    /// An output that no rule makes.
    Unmade,
    /// Memory that was written to under another name.
    Stale,
}

/// Memory that one or more names stand for.
struct Cell {
    slot: Slot,
    /// The cell it shares memory with, and where it lies in it.
    parent: Option<(usize, Memory)>,
    /// Cells that are windows on this one.
    windows: Vec<usize>,
}

/// The cells of a program.
#[derive(Default)]
pub(super) struct Cells {
    cells: Vec<Cell>,
}

impl Cells {
    /// Adds a cell with memory of its own.
    pub fn add(&mut self, slot: Slot) -> usize {
        self.cells.push(Cell { slot, parent: None, windows: Vec::new() });
        self.cells.len() - 1
    }

    /// Adds a result of an operator, which may be a window on the memory of its first input.
    pub fn add_result(&mut self, id: ValueId, window: Memory, source: Option<usize>) -> usize {
        let cell = self.add(Slot::Value(id));
        if let (Some(source), false) = (source, matches!(window, Memory::Own)) {
            self.cells[cell].parent = Some((source, window));
            self.cells[source].windows.push(cell);
        }
        cell
    }

    /// Returns what a cell holds.
    pub fn slot(&self, cell: usize) -> Slot {
        self.cells[cell].slot
    }

    /// Writes to a cell: the cells it is a slice of change with it, up to the first that is a view of another kind.
    pub fn write(&mut self, emit: &mut Emit<'_>, written: usize, id: ValueId) -> Outcome<()> {
        self.cells[written].slot = Slot::Value(id);
        let mut path = vec![written];
        while let Some((parent, Memory::Range { .. })) = self.cells[path[path.len() - 1]].parent {
            if path.len() > MAX_WINDOWS {
                return unsupported("it writes to a slice of slices");
            }
            path.push(parent);
        }
        self.expire_others(&path);
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

    /// Whether a window shares no element with another one of the same cell that a write has followed.
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

    /// Marks all cells of the same memory as out of date but those that a write has followed or cannot reach.
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
