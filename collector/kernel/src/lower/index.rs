//! Looking up and writing elements by index.
//!
//! Writing is turned around: every element of the result looks for the updates that are meant for it. That is more
//! work than writing, but elements stay independent, and of several updates at one place the right one wins.

use super::pointwise::axis_of;
use super::{Output, Part, Result, Writer};
use crate::tvm::TvmError;
use crate::tvm::expression::{
    Axis, Expression, Extent, PLACE, Reduction, Tensor, axis, constant, highest, index, index_type, lowest, reduce,
};
use models::operators::{Gather, GatherElements, GatherNd, OneHot, ScatterElements, ScatterNd};
use models::{Op, ScatterOp};

type Element = std::result::Result<Expression, TvmError>;

pub(super) fn lower(writer: &mut Writer, op: &Op, inputs: &[Tensor], output: &Output) -> Result<Option<Tensor>> {
    match op {
        Op::Gather(Gather { axis }) => gather(writer, axis_of(*axis, inputs[0].extents.len()), inputs, output),
        Op::GatherElements(GatherElements { axis }) => {
            let axis = axis_of(*axis, inputs[0].extents.len());
            writer.block(&output.name("gather_elements"), output.part(), output.like(), |i| {
                let mut at = i.to_vec();
                at[axis] = wrapped(&inputs[1], i, &inputs[0].extents[axis])?;
                inputs[0].at(&at)
            })
        }
        Op::GatherNd(GatherNd { batch }) => gather_nd(writer, axis_of(*batch, inputs[0].extents.len()), inputs, output),
        Op::ScatterElements(ScatterElements { axis, combine }) => {
            let axis = axis_of(*axis, inputs[0].extents.len());
            let (data, indices) = (writer.numbers(&inputs[0].extents)?, writer.numbers(&inputs[1].extents)?);
            let target = Elements { axis, data, indices };
            scatter(writer, &target, *combine, inputs, output)
        }
        Op::ScatterNd(ScatterNd { combine }) => {
            let mut tuples = writer.numbers(&inputs[1].extents)?;
            let looked_up = tuples.pop().expect("indices have a last dimension");
            let target = Slices { looked_up, tuples, data: writer.numbers(&inputs[0].extents)? };
            scatter(writer, &target, *combine, inputs, output)
        }
        Op::OneHot(OneHot { axis, depth, on, off, to }) => {
            let axis = axis_of(*axis, output.extents.len());
            writer.block(&output.name("one_hot"), output.part(), output.like(), |i| {
                let mut at = i.to_vec();
                let class = at.remove(axis);
                let is_on = wrapped(&inputs[0], &at, &Extent::Known(*depth))?.equal(&class)?;
                is_on.select(&constant(*to, *on)?, &constant(*to, *off)?)
            })
        }
        _ => return Ok(None),
    }
    .map(Some)
}

/// An index as stored: negative ones count from the end.
fn wrapped(indices: &Tensor, at: &[Expression], extent: &Extent) -> Element {
    let stored = indices.at(at)?.cast(index_type())?;
    stored.less(&index(0)?)?.select(&stored.add(&extent.expression()?)?, &stored)
}

fn gather(writer: &mut Writer, axis: usize, inputs: &[Tensor], output: &Output) -> Result<Tensor> {
    let [data, indices] = inputs else { unreachable!("gather has two inputs") };
    let inner = axis + indices.extents.len();
    writer.block(&output.name("gather"), output.part(), output.like(), |i| {
        let mut at = i[..axis].to_vec();
        at.push(wrapped(indices, &i[axis..inner], &data.extents[axis])?);
        at.extend_from_slice(&i[inner..]);
        data.at(&at)
    })
}

fn gather_nd(writer: &mut Writer, batch: usize, inputs: &[Tensor], output: &Output) -> Result<Tensor> {
    let [data, indices] = inputs else { unreachable!("gather_nd has two inputs") };
    let tuples = indices.extents.len() - 1;
    let looked_up = writer.number(&indices.extents[tuples])?;
    writer.block(&output.name("gather_nd"), output.part(), output.like(), |i| {
        let mut at = i[..batch].to_vec();
        for place in 0..looked_up {
            let mut tuple = i[..tuples].to_vec();
            tuple.push(index(place)?);
            at.push(wrapped(indices, &tuple, &data.extents[at.len()])?);
        }
        at.extend_from_slice(&i[tuples..]);
        data.at(&at)
    })
}

/// How updates find their element.
trait IndexTarget {
    /// Loops over the updates that may be meant for an element.
    fn loops(&self) -> Result<Vec<Axis>>;
    /// Where the update of these loops stands for an element, and whether it is meant for it.
    fn update(
        &self,
        indices: &Tensor,
        own: &[Expression],
        loops: &[Expression],
    ) -> std::result::Result<(Vec<Expression>, Expression), TvmError>;
}

/// `ScatterElements`: all updates along one dimension.
struct Elements {
    axis: usize,
    data: Vec<i64>,
    indices: Vec<i64>,
}

impl IndexTarget for Elements {
    fn loops(&self) -> Result<Vec<Axis>> {
        Ok(vec![axis("u", &Extent::Known(self.indices[self.axis]), true)?])
    }

    fn update(
        &self,
        indices: &Tensor,
        own: &[Expression],
        loops: &[Expression],
    ) -> std::result::Result<(Vec<Expression>, Expression), TvmError> {
        let mut at = own.to_vec();
        at[self.axis] = loops[0].clone();
        // The indices may cover less than the data. Both sides of a conjunction are evaluated, so the place that is read
        // must be inside whatever the condition says; a condition around the read would simplify that away.
        let mut exists: Option<Expression> = None;
        for (dimension, place) in own.iter().enumerate() {
            let extent = self.indices[dimension];
            if dimension != self.axis && extent < self.data[dimension] {
                exists = Some(super::movement::both(exists, place.less(&index(extent)?)?)?);
                at[dimension] = place.min(&index(extent - 1)?)?;
            }
        }
        let meant = wrapped(indices, &at, &Extent::Known(self.data[self.axis]))?.equal(&own[self.axis])?;
        let meant = match exists {
            Some(exists) => meant.and(&exists)?,
            None => meant,
        };
        Ok((at, meant))
    }
}

/// `ScatterNd`: all index tuples.
struct Slices {
    looked_up: i64,
    /// Extents of the tuples, without the last dimension that holds them.
    tuples: Vec<i64>,
    data: Vec<i64>,
}

impl IndexTarget for Slices {
    fn loops(&self) -> Result<Vec<Axis>> {
        let tuples = self.tuples.iter().enumerate();
        let axes = tuples.map(|(d, &extent)| axis(&format!("u{d}"), &Extent::Known(extent), true));
        let mut axes = axes.collect::<std::result::Result<Vec<_>, _>>()?;
        if axes.is_empty() {
            axes.push(axis("u", &Extent::Known(1), true)?);
        }
        Ok(axes)
    }

    fn update(
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
            tuple.push(index(place)?);
            let is_own = wrapped(indices, &tuple, &Extent::Known(self.data[inner]))?.equal(&own[inner])?;
            meant = Some(super::movement::both(meant, is_own)?);
            inner += 1;
        }
        let at = tuples.iter().chain(&own[inner..]).cloned().collect();
        Ok((at, meant.expect("a tuple has at least one index")))
    }
}

fn scatter(
    writer: &mut Writer,
    target: &impl IndexTarget,
    combine: ScatterOp,
    inputs: &[Tensor],
    output: &Output,
) -> Result<Tensor> {
    let [data, indices, updates] = inputs else { unreachable!("a scatter has three inputs") };
    let loops = target.loops()?;
    let variables: Vec<Expression> = loops.iter().map(|axis| axis.variable.clone()).collect();
    // A term of the reduction, or what changes nothing where there is no update.
    let term = |i: &[Expression], value: &dyn Fn(&[Expression]) -> Element, none: Expression| -> Element {
        let (at, meant) = target.update(indices, i, &variables)?;
        meant.if_then_else(&value(&at)?, &none)
    };
    let dtype = output.dtype;
    let (how, none) = match combine {
        ScatterOp::Replace => return replace(writer, &loops, &term, target, inputs, output),
        ScatterOp::Add => (Reduction::Sum, constant(dtype, 0.0)?),
        ScatterOp::Mul => (Reduction::Product, constant(dtype, 1.0)?),
        ScatterOp::Max => (Reduction::Max, lowest(dtype)?),
        ScatterOp::Min => (Reduction::Min, highest(dtype)?),
    };
    let reduced = writer.block(&output.name("scatter_updates"), Part::Anchor, output.like(), |i| {
        reduce(how, dtype, &term(i, &|at| updates.at(at), none)?, &loops)
    })?;
    writer.block(&output.name("scatter"), Part::Epilogue, output.like(), |i| {
        let (old, new) = (data.at(i)?, reduced.at(i)?);
        match how {
            Reduction::Sum => old.add(&new),
            Reduction::Product => old.mul(&new),
            Reduction::Max => old.max(&new),
            Reduction::Min => old.min(&new),
        }
    })
}

type Term<'a> = dyn Fn(&[Expression], &dyn Fn(&[Expression]) -> Element, Expression) -> Element + 'a;

/// The number of the last update of each element, then that update.
fn replace(
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
        count => writer.numbers(&indices.extents[..count])?,
    };
    let mut number = loops[0].variable.clone();
    for (axis, &extent) in loops.iter().zip(&tuples).skip(1) {
        number = number.mul(&index(extent)?)?.add(&axis.variable)?;
    }
    let last = writer.block(&output.name("scatter_last"), Part::Helper, (PLACE, &output.extents), |i| {
        reduce(Reduction::Max, PLACE, &term(i, &|_| Ok(number.clone()), index(-1)?)?.cast(PLACE)?, loops)
    })?;
    writer.block(&output.name("scatter"), Part::Anchor, output.like(), |i| {
        let mut rest = last.at(i)?;
        let mut chosen = Vec::with_capacity(tuples.len());
        for &extent in tuples.iter().skip(1).rev() {
            chosen.push(rest.floor_mod(&index(extent)?)?);
            rest = rest.floor_div(&index(extent)?)?;
        }
        chosen.push(rest);
        chosen.reverse();
        let (at, _) = target.update(indices, i, &chosen)?;
        last.at(i)?.at_least(&index(0)?)?.if_then_else(&updates.at(&at)?, &data.at(i)?)
    })
}
