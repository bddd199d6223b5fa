//! Schedules products of bytes with register tiles. Vector lanes are columns; the weights of each channel are
//! broadcast. Quads (four bytes along the depth) are packed for a whole tile of columns, or before all tiles.

use super::{Knobs, Result, block_of_part, fuse_parallel, required_choice, required_number, single_epilogue};
use crate::lower::{Lowered, Part};
use crate::tvm::TvmError;
use crate::tvm::expression::{Expression, index_constant};
use crate::tvm::schedule::{Block, Loop, Schedule as Moves};
use job::space::axes::{OUTER, VECTOR};
use job::space::choices::{QuadsAt, TileOrder};
use job::space::dots::{DOTS_C, DOTS_X, QUADS_AT, is_flat};
use models::Task;

pub(super) fn schedule_dots(task: &Task, lowered: &Lowered, knobs: &Knobs, moves: &Moves) -> Result<()> {
    // A symbolic batch size does not affect the schedule.
    let task = &task.with_sizes(|_| 1);
    let extents = task.steps[0].output.extents().expect("all sizes were just bound");
    let kernel = task.parameters.get(1).and_then(|weight| weight.ty.extents()).unwrap_or_default();
    let is_flat = is_flat(&task.steps[0].op, kernel.get(2..).unwrap_or_default());
    let anchor = block_of_part(lowered, moves, Part::Anchor)?.expect("products have an anchor");
    let quads = block_of_part(lowered, moves, Part::Quads)?.expect("products have quads");
    let pads = lowered.blocks.iter().rev().filter(|block| block.part == Part::Pad);
    let pads = pads.map(|block| moves.block(&block.name)).collect::<std::result::Result<Vec<_>, _>>()?;
    let cut = block_of_part(lowered, moves, Part::Cut)?;
    let result = single_epilogue(lowered, moves, &anchor)?;
    let (lanes, channels, columns) =
        (required_number(knobs, &VECTOR)?, required_number(knobs, &DOTS_C)?, required_number(knobs, &DOTS_X)?);
    if is_flat && cut.is_none() {
        flatten_spatial(moves, &result, &extents)?;
    }
    let loops = moves.loops(&result)?;
    let (column, others) = loops.split_last().expect("a convolution has spatial dimensions");
    let channel = moves.split_loop(&others[1], &[None, Some(channels)])?;
    let column = moves.split_loop(column, &[None, Some(columns / lanes), Some(lanes)])?;
    let rows = &others[2..];
    let quads_at = required_choice(knobs, &QUADS_AT)?;
    let mut outer = vec![others[0].clone()];
    if required_choice(knobs, &OUTER)? == TileOrder::Space {
        outer.extend(rows.iter().cloned().chain([column[0].clone(), channel[0].clone()]));
    } else {
        outer.extend([channel[0].clone()].into_iter().chain(rows.iter().cloned()).chain([column[0].clone()]));
    }
    let inner = [channel[1].clone(), column[1].clone(), column[2].clone()];
    moves.reorder_loops(&outer.iter().chain(&inner).cloned().collect::<Vec<_>>())?;
    moves.compute_at(&anchor, outer.last().expect("there are outer loops"))?;
    let reduction = order_sums(moves, &anchor, (outer.len(), extents.len()), lanes)?;
    vectorize_last(moves, &inner)?;
    // Number of outer loops that are fused and run on the pool: all, or those outside of the loops in which quads are
    // packed.
    let parallel = match quads_at {
        QuadsAt::Outer => outer.len() - 1,
        QuadsAt::Channel => 2,
        QuadsAt::Root => outer.len(),
    };
    let fused = fuse_parallel(moves, &outer, parallel)?;
    let is_inside = quads_at != QuadsAt::Root;
    for (block, width) in [(&quads, lanes)].into_iter().chain(pads.iter().map(|pad| (pad, 1))) {
        if is_inside {
            moves.compute_at(block, &fused)?;
        }
        let own = moves.loops(block)?;
        let (last, around) = own.split_last().expect("quads have columns");
        if width > 1 {
            moves.vectorize_loop(&moves.split_loop(last, &[None, Some(width)])?[1])?;
        } else {
            moves.annotate_loop(last, "pragma_loop_partition_hint", 1)?;
        }
        if !is_inside {
            fuse_parallel(moves, around, around.len().min(3))?;
        }
    }
    if let Some(cut) = cut {
        schedule_cut(moves, &cut, &extents, is_flat)?;
    }
    // Last, because loops around a decomposed reduction can no longer be annotated.
    let start = moves.decompose_reduction(&anchor, &reduction)?;
    let loops = moves.loops(&start)?;
    vectorize_last(moves, &loops[loops.len() - 3..])
}

fn flatten_spatial(moves: &Moves, block: &Block, extents: &[i64]) -> Result<()> {
    moves.remap_loops(block, |i| Ok(vec![i[0].clone(), i[1].clone(), flat_column(&i[2..], &extents[2..])?]))?;
    Ok(())
}

fn flat_column(places: &[Expression], extents: &[i64]) -> std::result::Result<Expression, TvmError> {
    let mut column = places[0].clone();
    for (place, &extent) in places[1..].iter().zip(&extents[1..]) {
        column = column.mul(&index_constant(extent)?)?.add(place)?;
    }
    Ok(column)
}

/// Orders the loops of the sums inside a tile: reduction, channels, vectors. Returns the outermost loop.
fn order_sums(moves: &Moves, anchor: &Block, (outer, spatial): (usize, usize), lanes: i64) -> Result<Loop> {
    let loops = moves.loops(anchor)?;
    // A tile has one image and one row.
    let own = loops[outer..outer + spatial].to_vec();
    let reduction = loops[outer + spatial..].to_vec();
    let (column, others) = own.split_last().expect("the tile has spatial loops");
    let column = moves.split_loop(column, &[None, Some(lanes)])?;
    let channel = &others[1];
    let order: Vec<Loop> = [&others[0]]
        .into_iter()
        .chain(&others[2..])
        .chain(&reduction)
        .chain([channel, &column[0], &column[1]])
        .cloned()
        .collect();
    moves.reorder_loops(&order)?;
    vectorize_last(moves, &[channel.clone(), column[0].clone(), column[1].clone()])?;
    Ok(reduction[0].clone())
}

fn vectorize_last(moves: &Moves, loops: &[Loop]) -> Result<()> {
    let (last, others) = loops.split_last().expect("a tile has loops");
    moves.vectorize_loop(last)?;
    others.iter().try_for_each(|target| moves.unroll_loop(target))?;
    Ok(())
}

/// Schedules the block that copies the valid columns of the padded result. Short rows are vectorised as a whole.
fn schedule_cut(moves: &Moves, cut: &Block, extents: &[i64], is_flat: bool) -> Result<()> {
    const AT_ONCE: i64 = 256;
    let mut row = extents[extents.len() - 1];
    if is_flat {
        flatten_spatial(moves, cut, extents)?;
        row = extents[2..].iter().product();
    }
    let loops = moves.loops(cut)?;
    let (last, around) = loops.split_last().expect("a result has columns");
    if row <= AT_ONCE {
        moves.vectorize_loop(last)?;
    }
    fuse_parallel(moves, around, 2)?;
    Ok(())
}
