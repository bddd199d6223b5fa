//! Schedules tasks of several steps, such as attention, on CPUs by rows, so that a row stays in the nearest cache.

use super::{Knobs, Result, fuse_parallel, required_choice, required_number, single_epilogue};
use crate::lower::{Lowered, Part};
use crate::tvm::schedule::{Block, Loop, Schedule as Moves};
use job::space::axes::{HELPERS_AT, SPLIT_R, VECTOR};
use job::space::choices::HelpersAt;
use job::space::rows_of;
use models::Task;

pub(super) fn schedule_rows(task: &Task, lowered: &Lowered, knobs: &Knobs, moves: &Moves) -> Result<()> {
    let name = &lowered.blocks.iter().find(|block| block.part == Part::Anchor).expect("every task has an anchor").name;
    let anchor = moves.block(name)?;
    let rank = task.steps[0].output.rank();
    // A reduction has loops beyond those of its result; it cannot be inlined and is scheduled as an additional helper.
    let is_reduction = moves.loops(&anchor)?.len() > rank;
    let has_epilogue = lowered.blocks.iter().any(|block| block.part == Part::Epilogue);
    if has_epilogue && !is_reduction {
        moves.compute_inline(&anchor)?;
    }
    let result = if has_epilogue || is_reduction { single_epilogue(lowered, moves, &anchor)? } else { anchor.clone() };
    let helpers_at = required_choice(knobs, &HELPERS_AT)?;
    let along = rows_of(task, helpers_at);
    let loops = moves.loops(&result)?;
    let pick = |is_inner: bool| -> Vec<Loop> {
        let places = loops.iter().enumerate().filter(|(place, _)| along.contains(place) == is_inner);
        places.map(|(_, target)| target.clone()).collect()
    };
    let (inner, outer) = (pick(true), pick(false));
    moves.reorder_loops(&outer.iter().chain(&inner).cloned().collect::<Vec<_>>())?;
    let row = inner.last().expect("a row has at least one dimension").clone();
    let around = if outer.is_empty() { None } else { Some(fuse_parallel(moves, &outer, outer.len())?) };
    let mut reduction = None;
    if let Some(around) = around.filter(|_| helpers_at != HelpersAt::Root) {
        if is_reduction {
            moves.compute_at(&anchor, &around)?;
            reduction = Some(rows_inside(moves, &anchor, rank)?);
        }
        let helpers: Vec<&str> =
            lowered.blocks.iter().filter(|b| b.part == Part::Helper).map(|b| b.name.as_str()).collect();
        // Consumers first: each helper is read by the ones after it.
        for name in helpers.into_iter().rev() {
            let helper = moves.block(name)?;
            let is_summed = moves.reduction_flags(&helper)?.last() == Some(&true);
            let lanes = SPLIT_R.setting_in(knobs).filter(|&lanes| lanes > 1 && is_summed);
            let partial = lanes.map(|lanes| split_partial(moves, &helper, lanes)).transpose()?;
            moves.compute_at(&helper, &around)?;
            if let Some(partial) = partial {
                along_rows(moves, &partial, &around)?;
            }
        }
    }
    vectorize_row(moves, &row, required_number(knobs, &VECTOR)?)?;
    // Last, because loops around a decomposed reduction can no longer be annotated.
    if let Some(reduction) = reduction {
        moves.decompose_reduction(&anchor, &reduction)?;
    }
    Ok(())
}

/// Moves the reduction loops outside the last dimension of the result. Returns the outermost reduction loop.
fn rows_inside(moves: &Moves, anchor: &Block, rank: usize) -> Result<Loop> {
    let loops = moves.loops(anchor)?;
    // One fused loop, then the dimensions of the result, then the reduction loops.
    let (dimensions, reduced) = loops[1..].split_at(rank);
    let last = dimensions.last().expect("an output has at least one dimension").clone();
    moves.reorder_loops(&reduced.iter().chain([&last]).cloned().collect::<Vec<_>>())?;
    Ok(reduced[0].clone())
}

fn vectorize_row(moves: &Moves, row: &Loop, vector: i64) -> Result<()> {
    let parts = moves.split_loop(row, &[None, Some(vector)])?;
    Ok(moves.vectorize_loop(&parts[1])?)
}

pub(super) fn split_partial(moves: &Moves, block: &Block, vector: i64) -> Result<Block> {
    let loops = moves.loops(block)?;
    let parts = moves.split_loop(loops.last().expect("a reduction has a loop"), &[None, Some(vector)])?;
    Ok(moves.factor_reduction(&parts[1], -1)?)
}

pub(super) fn along_rows(moves: &Moves, partial: &Block, target: &Loop) -> Result<()> {
    moves.compute_at(partial, target)?;
    let is_summed = moves.reduction_flags(partial)?;
    let loops = moves.loops(partial)?;
    let own = &loops[loops.len() - is_summed.len()..];
    let pick = |wanted: bool| {
        own.iter().zip(&is_summed).filter(move |(_, summed)| **summed == wanted).map(|(own, _)| own.clone())
    };
    let (kept, summed): (Vec<Loop>, Vec<Loop>) = (pick(false).collect(), pick(true).collect());
    // TVM places the extra dimension of partial results first.
    let (lane, rows) = kept.split_first().expect("partial results have an extra dimension");
    moves.reorder_loops(&[rows, &summed, std::slice::from_ref(lane)].concat())?;
    moves.vectorize_loop(lane)?;
    Ok(())
}
