//! Schedules tasks of several steps, such as attention, on GPUs: a block of threads per row, or a kernel per step.

use super::{
    Knobs, Loop, Result, ThreadAxis, bind_alone, block_of_part, reduce_across_threads, required_choice, required_number,
};
use crate::lower::{Lowered, Part};
use crate::tvm::schedule::Schedule as Moves;
use job::space::choices::{HelpersAt, Kernels};
use job::space::gpu::{BLOCK_THREADS, KERNELS};
use job::space::rows_of;
use models::Task;

pub(super) fn schedule_rows(task: &Task, lowered: &Lowered, knobs: &Knobs, moves: &Moves) -> Result<()> {
    let threads = required_number(knobs, &BLOCK_THREADS)?;
    if let Some(pad) = block_of_part(lowered, moves, Part::Pad)? {
        moves.compute_inline(&pad)?;
    }
    if required_choice(knobs, &KERNELS)? == Kernels::One {
        return schedule_one_kernel(task, lowered, moves, threads);
    }
    for block in lowered.blocks.iter().filter(|block| block.part != Part::Pad) {
        bind_alone(moves, &moves.block(&block.name)?, threads)?;
    }
    Ok(())
}

/// Schedules one kernel, a block of threads per row; intermediate steps are recomputed where they are read.
fn schedule_one_kernel(task: &Task, lowered: &Lowered, moves: &Moves, threads: i64) -> Result<()> {
    let mut names: Vec<&str> =
        lowered.blocks.iter().filter(|block| block.part != Part::Pad).map(|block| block.name.as_str()).collect();
    let last = names.pop().expect("every task has an anchor");
    let mut sums = Vec::new();
    for name in names {
        let block = moves.block(name)?;
        if moves.reduction_flags(&block)?.contains(&true) { sums.push(block) } else { moves.compute_inline(&block)? }
    }
    let result = moves.block(last)?;
    let along = rows_of(task, HelpersAt::Row);
    let loops = moves.loops(&result)?;
    let pick = |is_inner: bool| -> Vec<Loop> {
        let places = loops.iter().enumerate().filter(|(place, _)| along.contains(place) == is_inner);
        places.map(|(_, target)| target.clone()).collect()
    };
    let (inner, mut outer) = (pick(true), pick(false));
    if outer.is_empty() {
        outer.push(moves.unit_loop_around(&inner[0])?);
    }
    moves.reorder_loops(&outer.iter().chain(&inner).cloned().collect::<Vec<_>>())?;
    let around = fuse_all(moves, &outer)?;
    let row = fuse_all(moves, &inner)?;
    moves.bind_axis(&around, ThreadAxis::BlockX)?;
    // Consumers first: each sum is read by the ones after it.
    for sum in sums.iter().rev() {
        reduce_across_threads(moves, sum, &around, threads, 1)?;
    }
    let parts = moves.split_loop(&row, &[None, Some(threads)])?;
    moves.bind_axis(&parts[1], ThreadAxis::ThreadX)?;
    Ok(())
}

fn fuse_all(moves: &Moves, loops: &[Loop]) -> Result<Loop> {
    Ok(if let [only] = loops { only.clone() } else { moves.fuse_loops(loops)? })
}
