//! Schedules contractions with few result elements on GPUs: a group of threads computes the sum of each element.

use super::{Knobs, Result, block_of_part, fuse_all_loops, reduce_across_threads, required_number, single_epilogue};
use crate::lower::{Lowered, Part};
use crate::tvm::schedule::{Memory, Schedule as Moves, ThreadAxis};
use job::space::gpu::sum::{SUM_ELEMENTS, SUM_FETCH, SUM_THREADS};

pub(super) fn schedule_sum(lowered: &Lowered, knobs: &Knobs, moves: &Moves) -> Result<()> {
    let anchor = block_of_part(lowered, moves, Part::Anchor)?.expect("a contraction has an anchor");
    if let Some(pad) = block_of_part(lowered, moves, Part::Pad)? {
        moves.compute_inline(&pad)?;
    }
    let result = single_epilogue(lowered, moves, &anchor)?;
    let parts =
        moves.split_loop(&fuse_all_loops(moves, &result)?, &[None, Some(required_number(knobs, &SUM_ELEMENTS)?)])?;
    moves.bind_axis(&parts[0], ThreadAxis::BlockX)?;
    moves.bind_axis(&parts[1], ThreadAxis::ThreadY)?;
    let fetched = SUM_FETCH.or_one(knobs);
    let thread = reduce_across_threads(moves, &anchor, &parts[1], required_number(knobs, &SUM_THREADS)?, fetched)?;
    if fetched > 1 {
        for operand in 0..2 {
            let copy = moves.cache_read(&anchor, operand, Memory::Local)?;
            moves.compute_at(&copy, &thread)?;
            moves.vectorize_loop(moves.loops(&copy)?.last().expect("an operand has dimensions"))?;
        }
    }
    Ok(())
}
