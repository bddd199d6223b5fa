//! Parts of joined tensors. A loop that writes a list, as Keras layers do with their results, joins in each iteration
//! the rows before, the new row and the rows after. Slices of such a list become its parts, so that the unrolled loop
//! joins the rows once.

use super::call::Call;
use crate::Outcome;
use models::graph::ValueId;
use std::collections::HashMap;

pub(super) struct Join {
    axis: usize,
    parts: Vec<ValueId>,
    /// Whether a slice of another joined tensor has these parts.
    is_slice: bool,
}

pub(super) type Joins = HashMap<ValueId, Join>;

impl Call<'_, '_> {
    /// Joins tensors along an axis; leaves out tensors without elements, and takes the parts of slices.
    pub fn join_parts(&mut self, parts: &[ValueId], axis: usize) -> Outcome<ValueId> {
        let mut flat = Vec::new();
        for &part in parts {
            match self.joins.get(&part) {
                Some(join) if join.is_slice && join.axis == axis => flat.extend_from_slice(&join.parts),
                _ if parts.len() > 1 && self.emit.extents(part)?.get(axis) == Some(&0) => {}
                _ => flat.push(part),
            }
        }
        if flat.is_empty() {
            flat.extend(parts.first());
        }
        self.add_join(Join { axis, parts: flat, is_slice: false })
    }

    /// Slices one dimension; a slice of a joined tensor becomes its parts, as far as none of them must be cut at run time.
    pub fn slice_joined(&mut self, x: ValueId, axis: usize, start: i64, stop: i64) -> Outcome<ValueId> {
        match self.parts_between(x, axis, start, stop)? {
            Some(parts) if !parts.is_empty() => self.add_join(Join { axis, parts, is_slice: true }),
            _ => self.emit.slice(x, axis, start, stop),
        }
    }

    fn parts_between(&mut self, x: ValueId, axis: usize, start: i64, stop: i64) -> Outcome<Option<Vec<ValueId>>> {
        let Some(join) = self.joins.get(&x).filter(|join| join.axis == axis) else { return Ok(None) };
        let (mut chosen, mut offset) = (Vec::new(), 0);
        for &part in &join.parts {
            let Some(end) = self.emit.extents(part)?.get(axis).map(|extent| offset + extent) else { return Ok(None) };
            if end > start && offset < stop {
                let (low, high) = (start.max(offset) - offset, stop.min(end) - offset);
                let is_whole = high - low == end - offset;
                if !is_whole && self.emit.builder.constant_data(part).is_none() {
                    return Ok(None);
                }
                chosen.push(self.emit.slice(part, axis, low, high)?);
            }
            offset = end;
        }
        Ok(Some(chosen))
    }

    fn add_join(&mut self, join: Join) -> Outcome<ValueId> {
        let y = self.emit.concat_parts(&join.parts, join.axis)?;
        if join.parts.len() > 1 {
            self.joins.insert(y, join);
        }
        Ok(y)
    }
}
