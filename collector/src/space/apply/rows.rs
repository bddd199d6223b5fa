//! Softmax and layer normalisation: one row at a time, so that a row stays in the nearest cache.

use super::{Knobs, Result, choice, fuse_parallel, number, single_epilogue};
use crate::lower::{Lowered, Part, axis_of};
use crate::tvm::schedule::{Loop, Schedule as Moves};
use models::{Op, Task};

pub(super) fn apply(task: &Task, lowered: &Lowered, knobs: &Knobs, moves: &Moves) -> Result<()> {
    let anchor = lowered.blocks.iter().find(|block| block.part == Part::Anchor).expect("every task has an anchor");
    let anchor = moves.block(&anchor.name)?;
    let has_epilogue = lowered.blocks.iter().any(|block| block.part == Part::Epilogue);
    let result = if has_epilogue {
        moves.compute_inline(&anchor)?;
        single_epilogue(lowered, moves, &anchor)?
    } else {
        anchor
    };
    let rank = task.steps[0].output.rank();
    let along: Vec<usize> = match &task.steps[0].op {
        Op::Softmax { axis, .. } => vec![axis_of(*axis, rank)],
        Op::LayerNorm { axis, .. } => (axis_of(*axis, rank)..rank).collect(),
        other => unreachable!("`{other:?}` has no rows"),
    };
    let loops = moves.loops(&result)?;
    let (inner, outer): (Vec<_>, Vec<_>) =
        loops.into_iter().enumerate().partition(|(place, _): &(usize, Loop)| along.contains(place));
    let plain = |loops: Vec<(usize, Loop)>| loops.into_iter().map(|(_, target)| target).collect::<Vec<_>>();
    let (inner, outer) = (plain(inner), plain(outer));
    moves.reorder(&outer.iter().chain(&inner).cloned().collect::<Vec<_>>())?;
    let row = inner.last().expect("a row has at least one dimension").clone();
    let around = if outer.is_empty() { None } else { Some(fuse_parallel(moves, &outer, outer.len())?) };
    if let (Some(around), "row") = (&around, choice(knobs, "helpers_at")?) {
        let helpers: Vec<&str> =
            lowered.blocks.iter().filter(|b| b.part == Part::Helper).map(|b| b.name.as_str()).collect();
        // Consumers first: each helper is read by the ones after it.
        for name in helpers.into_iter().rev() {
            moves.compute_at(&moves.block(name)?, around)?;
        }
    }
    vectorize_row(moves, &row, number(knobs, "vector")?)
}

fn vectorize_row(moves: &Moves, row: &Loop, vector: i64) -> Result<()> {
    let parts = moves.split(row, &[None, Some(vector)])?;
    Ok(moves.vectorize(&parts[1])?)
}
