//! Schedules operators with independent output elements on GPUs: one thread per element, which sums its window or row
//! in registers, or one block of threads per element for long sums.

use super::super::spatial::result_block;
use super::{Knobs, Result, bind_alone, bind_elements, block_of_part, fuse_all_loops, required_number};
use super::{reduce_across_threads, reduce_in_thread};
use crate::lower::{Lowered, Part};
use crate::tvm::schedule::{Memory, Schedule as Moves, ThreadAxis};
use job::space::axes::SUM;
use job::space::choices::SummedBy;
use job::space::gpu::BLOCK_THREADS;

pub(super) fn schedule_spatial(lowered: &Lowered, knobs: &Knobs, moves: &Moves) -> Result<()> {
    let threads = required_number(knobs, &BLOCK_THREADS)?;
    if let Some(pad) = block_of_part(lowered, moves, Part::Pad)? {
        moves.compute_inline(&pad)?;
    }
    for helper in lowered.blocks.iter().filter(|block| block.part == Part::Helper) {
        bind_alone(moves, &moves.block(&helper.name)?, threads)?;
    }
    let anchor = block_of_part(lowered, moves, Part::Anchor)?.expect("every task has an anchor");
    let is_reduction = moves.reduction_flags(&anchor)?.contains(&true);
    let result = result_block(lowered, moves, &anchor, is_reduction)?;
    if is_reduction {
        moves.set_memory(&anchor, Memory::Local)?;
        if SUM.is_set_to(knobs, SummedBy::Block) {
            let block = fuse_all_loops(moves, &result)?;
            moves.bind_axis(&block, ThreadAxis::BlockX)?;
            return reduce_across_threads(moves, &anchor, &block, threads, 1).map(drop);
        }
        let thread = bind_elements(moves, &result, threads)?;
        return reduce_in_thread(moves, &anchor, &thread);
    }
    bind_elements(moves, &result, threads).map(drop)
}
