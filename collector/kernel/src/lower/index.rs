//! Lowers gathers and scatters. Scatters are inverted: every element of the result searches for the updates that target
//! it. That is more work, but elements are independent, and several updates of one element have a defined result.

use super::pointwise::axis_of;
use super::{Element, Output, Part, Result, Writer};
use crate::tvm::TvmError;
use crate::tvm::expression::{
    Axis, Expression, Extent, PLACE, Reduction, Tensor, constant, index_constant, index_type, loop_axis, reduce_axes,
};
use models::operators::{Gather, GatherElements, GatherNd, OneHot, ScatterElements, ScatterNd};
use models::{Op, ScatterOp};

pub(super) fn lower_indexing(
    writer: &mut Writer,
    op: &Op,
    inputs: &[Tensor],
    output: &Output,
) -> Result<Option<Tensor>> {
    match op {
        Op::Gather(Gather { axis }) => gather_elements(writer, axis_of(*axis, inputs[0].extents.len()), inputs, output),
        Op::GatherElements(GatherElements { axis }) => {
            let axis = axis_of(*axis, inputs[0].extents.len());
            writer.add_block(&output.block_name("gather_elements"), output.block_part(), output.element_type(), |i| {
                let mut at = i.to_vec();
                at[axis] = wrapped_index(&inputs[1], i, &inputs[0].extents[axis])?;
                inputs[0].element_at(&at)
            })
        }
        Op::GatherNd(GatherNd { batch }) => gather_nd(writer, axis_of(*batch, inputs[0].extents.len()), inputs, output),
        Op::ScatterElements(ScatterElements { axis, combine }) => {
            let axis = axis_of(*axis, inputs[0].extents.len());
            let (data, indices) =
                (writer.known_extents(&inputs[0].extents)?, writer.known_extents(&inputs[1].extents)?);
            let target = Elements { axis, data, indices };
            scatter_updates(writer, &target, *combine, inputs, output)
        }
        Op::ScatterNd(ScatterNd { combine }) => {
            let mut tuples = writer.known_extents(&inputs[1].extents)?;
            let looked_up = tuples.pop().expect("indices have a last dimension");
            let target = Slices { looked_up, tuples, data: writer.known_extents(&inputs[0].extents)? };
            scatter_updates(writer, &target, *combine, inputs, output)
        }
        Op::OneHot(OneHot { axis, depth, on, off, to }) => {
            let axis = axis_of(*axis, output.extents.len());
            writer.add_block(&output.block_name("one_hot"), output.block_part(), output.element_type(), |i| {
                let mut at = i.to_vec();
                let class = at.remove(axis);
                let is_on = wrapped_index(&inputs[0], &at, &Extent::Known(*depth))?.equal(&class)?;
                is_on.select(&constant(*to, *on)?, &constant(*to, *off)?)
            })
        }
        _ => return Ok(None),
    }
    .map(Some)
}

/// Reads an index and converts a negative one, which counts from the end.
fn wrapped_index(indices: &Tensor, at: &[Expression], extent: &Extent) -> Element {
    let stored = indices.element_at(at)?.cast(index_type())?;
    stored.less(&index_constant(0)?)?.select(&stored.add(&extent.as_expression()?)?, &stored)
}

fn gather_elements(writer: &mut Writer, axis: usize, inputs: &[Tensor], output: &Output) -> Result<Tensor> {
    let [data, indices] = inputs else { unreachable!("gather has two inputs") };
    let inner = axis + indices.extents.len();
    writer.add_block(&output.block_name("gather"), output.block_part(), output.element_type(), |i| {
        let mut at = i[..axis].to_vec();
        at.push(wrapped_index(indices, &i[axis..inner], &data.extents[axis])?);
        at.extend_from_slice(&i[inner..]);
        data.element_at(&at)
    })
}

fn gather_nd(writer: &mut Writer, batch: usize, inputs: &[Tensor], output: &Output) -> Result<Tensor> {
    let [data, indices] = inputs else { unreachable!("gather_nd has two inputs") };
    let tuples = indices.extents.len() - 1;
    let looked_up = writer.known_extent(&indices.extents[tuples])?;
    writer.add_block(&output.block_name("gather_nd"), output.block_part(), output.element_type(), |i| {
        let mut at = i[..batch].to_vec();
        for place in 0..looked_up {
            let mut tuple = i[..tuples].to_vec();
            tuple.push(index_constant(place)?);
            at.push(wrapped_index(indices, &tuple, &data.extents[at.len()])?);
        }
        at.extend_from_slice(&i[tuples..]);
        data.element_at(&at)
    })
}

trait IndexTarget {
    fn update_loops(&self) -> Result<Vec<Axis>>;
    /// Returns the index of an update, and the condition that this update targets the element at `own`.
    fn find_update(
        &self,
        indices: &Tensor,
        own: &[Expression],
        loops: &[Expression],
    ) -> std::result::Result<(Vec<Expression>, Expression), TvmError>;
}

struct Elements {
    axis: usize,
    data: Vec<i64>,
    indices: Vec<i64>,
}

impl IndexTarget for Elements {
    fn update_loops(&self) -> Result<Vec<Axis>> {
        Ok(vec![loop_axis("u", &Extent::Known(self.indices[self.axis]), true)?])
    }

    fn find_update(
        &self,
        indices: &Tensor,
        own: &[Expression],
        loops: &[Expression],
    ) -> std::result::Result<(Vec<Expression>, Expression), TvmError> {
        let mut at = own.to_vec();
        at[self.axis] = loops[0].clone();
        // The indices may cover less than the data. Both sides of a conjunction are evaluated, so the position that is
        // read must be valid even if the condition is false. TVM would simplify a condition around the read away.
        let mut exists: Option<Expression> = None;
        for (dimension, place) in own.iter().enumerate() {
            let extent = self.indices[dimension];
            if dimension != self.axis && extent < self.data[dimension] {
                exists = Some(super::movement::join_conditions(exists, place.less(&index_constant(extent)?)?)?);
                at[dimension] = place.min(&index_constant(extent - 1)?)?;
            }
        }
        let meant = wrapped_index(indices, &at, &Extent::Known(self.data[self.axis]))?.equal(&own[self.axis])?;
        let meant = match exists {
            Some(exists) => meant.and(&exists)?,
            None => meant,
        };
        Ok((at, meant))
    }
}

struct Slices {
    looked_up: i64,
    /// Extents of the index tensor, without the dimension that contains each tuple.
    tuples: Vec<i64>,
    data: Vec<i64>,
}

impl IndexTarget for Slices {
    fn update_loops(&self) -> Result<Vec<Axis>> {
        let tuples = self.tuples.iter().enumerate();
        let axes = tuples.map(|(d, &extent)| loop_axis(&format!("u{d}"), &Extent::Known(extent), true));
        let mut axes = axes.collect::<std::result::Result<Vec<_>, _>>()?;
        if axes.is_empty() {
            axes.push(loop_axis("u", &Extent::Known(1), true)?);
        }
        Ok(axes)
    }

    fn find_update(
        &self,
        indices: &Tensor,
        own: &[Expression],
        loops: &[Expression],
    ) -> std::result::Result<(Vec<Expression>, Expression), TvmError> {
        let tuples = &loops[..self.tuples.len()];
        let mut meant: Option<Expression> = None;
        let mut inner = 0;
        for place in 0..self.looked_up {
            let mut tuple = tuples.to_vec();
            tuple.push(index_constant(place)?);
            let is_own = wrapped_index(indices, &tuple, &Extent::Known(self.data[inner]))?.equal(&own[inner])?;
            meant = Some(super::movement::join_conditions(meant, is_own)?);
            inner += 1;
        }
        let at = tuples.iter().chain(&own[inner..]).cloned().collect();
        Ok((at, meant.expect("a tuple has at least one index")))
    }
}

fn scatter_updates(
    writer: &mut Writer,
    target: &impl IndexTarget,
    combine: ScatterOp,
    inputs: &[Tensor],
    output: &Output,
) -> Result<Tensor> {
    let [data, indices, updates] = inputs else { unreachable!("a scatter has three inputs") };
    let loops = target.update_loops()?;
    let variables: Vec<Expression> = loops.iter().map(|axis| axis.variable.clone()).collect();
    // The term of the reduction: an update, or the neutral element if there is none.
    let term = |i: &[Expression], value: &dyn Fn(&[Expression]) -> Element, none: Expression| -> Element {
        let (at, meant) = target.find_update(indices, i, &variables)?;
        meant.if_then_else(&value(&at)?, &none)
    };
    let dtype = output.dtype;
    let how = match combine {
        ScatterOp::Replace => return replace_elements(writer, &loops, &term, target, inputs, output),
        ScatterOp::Add => Reduction::Sum,
        ScatterOp::Mul => Reduction::Product,
        ScatterOp::Max => Reduction::Supremum,
        ScatterOp::Min => Reduction::Infimum,
    };
    let none = how.identity(dtype)?;
    let reduced =
        writer.add_block(&output.block_name("scatter_updates"), Part::Anchor, output.element_type(), |i| {
            reduce_axes(how, dtype, &term(i, &|at| updates.element_at(at), none)?, &loops)
        })?;
    writer.add_block(&output.block_name("scatter"), Part::Epilogue, output.element_type(), |i| {
        how.combine(&data.element_at(i)?, &reduced.element_at(i)?)
    })
}

type Term<'a> = dyn Fn(&[Expression], &dyn Fn(&[Expression]) -> Element, Expression) -> Element + 'a;

fn replace_elements(
    writer: &mut Writer,
    loops: &[Axis],
    term: &Term<'_>,
    target: &impl IndexTarget,
    inputs: &[Tensor],
    output: &Output,
) -> Result<Tensor> {
    let [data, indices, updates] = inputs else { unreachable!("a scatter has three inputs") };
    let tuples: Vec<i64> = match loops.len() {
        1 => vec![i64::MAX],
        count => writer.known_extents(&indices.extents[..count])?,
    };
    let mut number = loops[0].variable.clone();
    for (axis, &extent) in loops.iter().zip(&tuples).skip(1) {
        number = number.mul(&index_constant(extent)?)?.add(&axis.variable)?;
    }
    let last = writer.add_block(&output.block_name("scatter_last"), Part::Helper, (PLACE, &output.extents), |i| {
        reduce_axes(Reduction::Max, PLACE, &term(i, &|_| Ok(number.clone()), index_constant(-1)?)?.cast(PLACE)?, loops)
    })?;
    writer.add_block(&output.block_name("scatter"), Part::Anchor, output.element_type(), |i| {
        let mut rest = last.element_at(i)?;
        let mut chosen = Vec::with_capacity(tuples.len());
        for &extent in tuples.iter().skip(1).rev() {
            chosen.push(rest.floor_mod(&index_constant(extent)?)?);
            rest = rest.floor_div(&index_constant(extent)?)?;
        }
        chosen.push(rest);
        chosen.reverse();
        let (at, _) = target.find_update(indices, i, &chosen)?;
        last.element_at(i)?.at_least(&index_constant(0)?)?.if_then_else(&updates.element_at(&at)?, &data.element_at(i)?)
    })
}
