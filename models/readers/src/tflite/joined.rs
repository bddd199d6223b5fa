//! Parts of joined tensors. A loop that writes a list, as Keras layers do with their results, joins in each iteration
//! the rows before, the new row and the rows after. Slices of such a list become its parts, so that the unrolled loop
//! joins the rows once.

use crate::{Emit, Outcome};
use models::graph::ValueId;
use std::collections::HashMap;

struct Join {
    axis: usize,
    parts: Vec<ValueId>,
    /// Whether a slice of another joined tensor has these parts.
    is_slice: bool,
}

/// Maximum number of tensors that `concat` joins.
const MAX_JOINED: usize = 4096;

/// Maximum number of parts of all joined tensors together; further ones are joined and sliced as the file states. A
/// loop of 4096 iterations needs half of it.
const MAX_PARTS: usize = 1 << 25;

#[derive(Default)]
pub(super) struct Joins {
    by_value: HashMap<ValueId, Join>,
    part_count: usize,
}

impl Joins {
    /// Joins tensors along an axis; leaves out tensors without elements, and takes the parts of slices.
    pub fn join_parts(&mut self, emit: &mut Emit<'_>, parts: &[ValueId], axis: usize) -> Outcome<ValueId> {
        let mut filled = Vec::new();
        for &part in parts {
            if emit.extents(part)?.get(axis) != Some(&0) {
                filled.push(part);
            }
        }
        let parts = if filled.is_empty() { parts } else { &filled };
        let mut flat = Vec::new();
        for (index, &part) in parts.iter().enumerate() {
            let others = flat.len() + parts.len() - index - 1;
            match self.by_value.get(&part) {
                Some(join) if join.is_slice && join.axis == axis && others + join.parts.len() <= MAX_JOINED => {
                    flat.extend_from_slice(&join.parts);
                }
                _ => flat.push(part),
            }
        }
        self.add_join(emit, Join { axis, parts: flat, is_slice: false })
    }

    /// Slices one dimension; a slice of a joined tensor becomes its parts, as far as none of them must be cut at run time.
    pub fn slice_joined(
        &mut self,
        emit: &mut Emit<'_>,
        x: ValueId,
        axis: usize,
        start: i64,
        stop: i64,
    ) -> Outcome<ValueId> {
        let is_whole = start == 0 && emit.extents(x)?.get(axis) == Some(&stop);
        match if is_whole { None } else { self.parts_between(emit, x, axis, start, stop)? } {
            Some(parts) if !parts.is_empty() && self.has_room(parts.len()) => {
                self.add_join(emit, Join { axis, parts, is_slice: true })
            }
            _ => emit.slice(x, axis, start, stop),
        }
    }

    fn parts_between(
        &self,
        emit: &mut Emit<'_>,
        x: ValueId,
        axis: usize,
        start: i64,
        stop: i64,
    ) -> Outcome<Option<Vec<ValueId>>> {
        let Some(join) = self.by_value.get(&x).filter(|join| join.axis == axis) else { return Ok(None) };
        let (mut chosen, mut offset) = (Vec::new(), 0);
        for &part in &join.parts {
            let Some(end) = emit.extents(part)?.get(axis).map(|extent| offset + extent) else { return Ok(None) };
            if end > start && offset < stop {
                let (low, high) = (start.max(offset) - offset, stop.min(end) - offset);
                let is_whole = high - low == end - offset;
                if !is_whole && emit.builder.constant_data(part).is_none() {
                    return Ok(None);
                }
                chosen.push(emit.slice(part, axis, low, high)?);
            }
            offset = end;
        }
        Ok(Some(chosen))
    }

    fn add_join(&mut self, emit: &mut Emit<'_>, join: Join) -> Outcome<ValueId> {
        let y = emit.concat_parts(&join.parts, join.axis)?;
        if join.parts.len() > 1 && self.has_room(join.parts.len()) {
            self.part_count += join.parts.len();
            self.by_value.insert(y, join);
        }
        Ok(y)
    }

    fn has_room(&self, parts: usize) -> bool {
        self.part_count.saturating_add(parts) <= MAX_PARTS
    }
}
