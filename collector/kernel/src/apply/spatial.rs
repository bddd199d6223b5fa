//! Schedules operators with independent elements on CPUs: outer loops run on the thread pool, columns are vectors.
//! Reductions over windows add vectors of adjacent columns.

use super::rows::{along_rows, split_partial};
use super::{Knobs, Result, block_of_part, fuse_grains, fuse_parallel, plain_copy, required_number};
use crate::lower::{Lowered, Part};
use crate::tvm::schedule::{Block, Loop, Schedule as Moves};
use job::space::axes::{PAD_AT, PARALLEL, SPLIT_R, VECTOR};
use job::space::choices::PadAt;

pub(super) fn schedule_spatial(rank: usize, lowered: &Lowered, knobs: &Knobs, moves: &Moves) -> Result<()> {
    let anchor = block_of_part(lowered, moves, Part::Anchor)?.expect("every task has an anchor");
    let pad = block_of_part(lowered, moves, Part::Pad)?;
    let pad_at = PAD_AT.setting_in(knobs).unwrap_or(PadAt::Inline);
    if let Some(pad) = pad.as_ref().filter(|_| pad_at == PadAt::Inline) {
        moves.compute_inline(pad)?;
    }
    // A reduction has loops beyond those of its result.
    let is_reduction = moves.loops(&anchor)?.len() > rank;
    let result = result_block(lowered, moves, &anchor, is_reduction)?;
    let loops = moves.loops(&result)?;
    // A scalar has no loops to schedule.
    let Some((last, outer)) = loops.split_last() else { return Ok(()) };
    let parts = moves.split_loop(last, &[None, Some(required_number(knobs, &VECTOR)?)])?;
    let inside = parts[0].clone();
    let window = match SPLIT_R.setting_in(knobs).filter(|&lanes| lanes > 1) {
        _ if !is_reduction => None,
        Some(lanes) => {
            let reduced = &moves.loops(&anchor)?[rank..];
            if reduced.len() > 1 {
                moves.fuse_loops(reduced)?;
            }
            let sums = split_partial(moves, &anchor, lanes)?;
            moves.compute_at(&anchor, &inside)?;
            along_rows(moves, &sums, &inside)?;
            None
        }
        None => {
            moves.compute_at(&anchor, &inside)?;
            Some(reduce_in_vectors(moves, &anchor, loops.len())?)
        }
    };
    moves.vectorize_loop(&parts[1])?;
    let fused = if outer.is_empty() {
        fuse_parallel(moves, std::slice::from_ref(&inside), 1)?
    } else {
        fuse_grains(moves, outer, usize::try_from(required_number(knobs, &PARALLEL)?).unwrap_or(1), knobs)?
    };
    match pad.filter(|_| pad_at != PadAt::Inline) {
        Some(pad) if pad_at == PadAt::Root => plain_copy(moves, &pad)?,
        Some(pad) if pad_at == PadAt::Tile && !outer.is_empty() => moves.compute_at(&pad, &inside)?,
        Some(pad) => moves.compute_at(&pad, &fused)?,
        None => {}
    }
    for helper in lowered.blocks.iter().filter(|block| block.part == Part::Helper) {
        let helper = moves.block(&helper.name)?;
        // Helpers of lower rank are small and stay outside.
        if moves.loops(&helper)?.len() == rank && !outer.is_empty() {
            moves.compute_at(&helper, &fused)?;
        }
    }
    // Last, because loops around a decomposed reduction can no longer be annotated.
    if let Some(window) = window {
        moves.decompose_reduction(&anchor, &window)?;
    }
    Ok(())
}

/// Inlines the blocks between the anchor and the output, and returns the block that writes the output.
pub(super) fn result_block(lowered: &Lowered, moves: &Moves, anchor: &Block, is_reduction: bool) -> Result<Block> {
    if is_reduction {
        return super::single_epilogue(lowered, moves, anchor);
    }
    let mut chain: Vec<&str> = lowered
        .blocks
        .iter()
        .filter(|block| matches!(block.part, Part::Anchor | Part::Epilogue))
        .map(|block| block.name.as_str())
        .collect();
    let last = chain.pop().expect("every task has an anchor");
    for name in chain {
        moves.compute_inline(&moves.block(name)?)?;
    }
    Ok(moves.block(last)?)
}

/// Computes the windows of one vector of output columns at a time. Returns the outermost window loop.
fn reduce_in_vectors(moves: &Moves, anchor: &Block, rank: usize) -> Result<Loop> {
    let loops = moves.loops(anchor)?;
    // The loops over tiles (one per dimension), then the anchor's own dimensions, then its window.
    let (dimensions, window) = loops[rank..].split_at(rank);
    moves.reorder_loops(&window.iter().chain(dimensions).cloned().collect::<Vec<_>>())?;
    moves.vectorize_loop(dimensions.last().expect("an output has at least one dimension"))?;
    Ok(window[0].clone())
}
