//! Puts the blocks of a task on a GPU's grid. Whatever a template leaves alone becomes a kernel of its own, so that no
//! operator is without a schedule.

mod contraction;
mod rows;
mod spatial;
mod sum;
mod tensor;

use super::{Knobs, Result, block_of_part, choice, number, single_epilogue};
use crate::lower::{Lowered, Part};
use crate::tvm::compile::{CompileTarget, Device};
use crate::tvm::schedule::{Block, Loop, Memory, Schedule as Moves, ThreadAxis};
use crate::tvm::tensor_core::TensorProduct;
use job::space::choices::Unit;
use job::space::gpu::sum::SUM_THREADS;
use job::space::gpu::tensor::{Operands, operands};
use job::space::gpu::{SPLIT_K, UNIT};
use job::space::{Template, template};
use models::Task;

pub(super) fn apply(task: &Task, lowered: &Lowered, knobs: &Knobs, moves: &Moves) -> Result<()> {
    if UNIT.is(knobs, Unit::Tensor) {
        return tensor::apply(task, lowered, knobs, moves);
    }
    match template(task) {
        Template::Contraction if SUM_THREADS.of(knobs).is_some() => sum::apply(lowered, knobs, moves),
        Template::Contraction if task.steps[0].output.rank() >= 2 => {
            contraction::apply(super::form(&task.steps[0].op), lowered, knobs, moves)
        }
        Template::Contraction | Template::Spatial => spatial::apply(lowered, knobs, moves),
        Template::Rows => rows::apply(task, lowered, knobs, moves),
    }
}

/// The product of a task, as TVM's own rules for tensor cores want it: on all devices of a target, and as exact as its type.
pub(super) fn tensor_product(task: &Task, target: &CompileTarget) -> Option<TensorProduct> {
    let Device::Cuda(architectures) = &target.device else { return None };
    let capability = architectures.iter().map(|architecture| architecture.number).min()?;
    let operands = operands(task, capability)?;
    let Operands { product, is_left_transposed, is_right_transposed, .. } = operands;
    let is_offered = !operands.is_conv && !operands.is_rounded();
    is_offered.then_some(TensorProduct { product, is_left_transposed, is_right_transposed })
}

/// Makes a kernel of a block that stands by itself: one thread for each element of its result.
fn bind_alone(moves: &Moves, block: &Block, threads: i64) -> Result<()> {
    if moves.reduces(block)?.contains(&true) {
        let result = moves.cache_write(block, Memory::Local)?;
        let thread = bind_elements(moves, &result, threads)?;
        return reduce_in_thread(moves, block, &thread);
    }
    bind_elements(moves, block, threads).map(drop)
}

/// Binds all loops of a block without reduction, and returns the loop of one thread.
fn bind_elements(moves: &Moves, block: &Block, threads: i64) -> Result<Loop> {
    bind_loop(moves, &all_loops(moves, block)?, threads)
}

fn all_loops(moves: &Moves, block: &Block) -> Result<Loop> {
    Ok(match moves.loops(block)?.as_slice() {
        // A single number has no loops.
        [] => moves.unit_loop(block)?,
        [only] => only.clone(),
        several => moves.fuse(several)?,
    })
}

/// Deals the steps of a loop to blocks of threads, and returns the loop of one thread.
fn bind_loop(moves: &Moves, target: &Loop, threads: i64) -> Result<Loop> {
    let parts = moves.split(target, &[None, Some(threads)])?;
    moves.bind(&parts[0], ThreadAxis::BlockX)?;
    moves.bind(&parts[1], ThreadAxis::ThreadX)?;
    Ok(parts[1].clone())
}

/// Computes a reduction inside of a block, its sum shared: all threads sum a part each and then join them.
///
/// A thread takes `together` neighbours at once. Returns the loop of a thread.
fn reduce_across_threads(moves: &Moves, block: &Block, around: &Loop, threads: i64, together: i64) -> Result<Loop> {
    moves.compute_at(block, around)?;
    moves.set_memory(block, Memory::Shared)?;
    let reduces = moves.reduces(block)?;
    let loops = moves.loops(block)?;
    let own = loops[loops.len() - reduces.len()..].iter().zip(&reduces);
    let summed: Vec<Loop> = own.filter(|(_, reduces)| **reduces).map(|(target, _)| target.clone()).collect();
    let all = if let [only] = summed.as_slice() { only.clone() } else { moves.fuse(&summed)? };
    let factors = [None, Some(threads), Some(together)];
    let parts = moves.split(&all, if together > 1 { &factors } else { &factors[..2] })?;
    moves.bind(&parts[1], ThreadAxis::ThreadX)?;
    Ok(parts[1].clone())
}

/// A sum and where it goes, as one kernel computes them.
struct Summed {
    anchor: Block,
    result: Block,
    /// Whether the result has parts of the sum along its first dimension.
    is_partial: bool,
}

/// Deals the depth of a sum to blocks of the grid: partial sums become the result of the kernel to be scheduled, and the
/// task's own result is a second kernel that adds them, one thread for each element.
fn split_sum(moves: &Moves, anchor: Block, result: Block, knobs: &Knobs) -> Result<Summed> {
    const THREADS: i64 = 256;
    let parts = SPLIT_K.or_one(knobs);
    if parts == 1 {
        return Ok(Summed { anchor, result, is_partial: false });
    }
    let first = moves.reduces(&anchor)?.iter().position(|&reduces| reduces).expect("a contraction sums");
    let depth = moves.split(&moves.loops(&anchor)?[first], &[Some(parts), None])?;
    let partial = moves.factor_reduction(&depth[0], 0)?;
    moves.set_memory(&anchor, Memory::Local)?;
    let thread = bind_elements(moves, &result, THREADS)?;
    reduce_in_thread(moves, &anchor, &thread)?;
    let written = moves.cache_write(&partial, Memory::Global)?;
    Ok(Summed { anchor: partial, result: written, is_partial: true })
}

/// Computes a reduction inside of a thread, its sum in registers.
fn reduce_in_thread(moves: &Moves, block: &Block, thread: &Loop) -> Result<()> {
    moves.compute_at(block, thread)?;
    let reduces = moves.reduces(block)?;
    let loops = moves.loops(block)?;
    let own = &loops[loops.len() - reduces.len()..];
    let first = reduces.iter().position(|&reduces| reduces).expect("a reduction has something to sum");
    // Where TVM cannot follow how threads fall on the result, the initial value stays inside, behind a test for the first step.
    match moves.decompose_reduction(block, &own[first]) {
        Err(error) if !error.message.contains("Not a reduction block") => Err(error.into()),
        _ => Ok(()),
    }
}
