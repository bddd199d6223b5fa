//! Binds the blocks of a task to a GPU's grid; each block that a template does not schedule becomes a kernel.

mod contraction;
mod rows;
mod spatial;
mod sum;
mod tensor;

use super::{Knobs, Result, block_of_part, required_choice, required_number, single_epilogue};
use crate::lower::{Lowered, Part};
use crate::tvm::compile::{CompileTarget, Device};
use crate::tvm::schedule::{Block, Loop, Memory, Schedule as Moves, ThreadAxis};
use crate::tvm::tensor_core::TensorProduct;
use job::space::choices::Unit;
use job::space::gpu::sum::SUM_THREADS;
use job::space::gpu::tensor::{Operands, tensor_operands};
use job::space::gpu::{SPLIT_K, UNIT};
use job::space::{Template, task_template};
use models::Task;

pub(super) fn schedule_task(task: &Task, lowered: &Lowered, knobs: &Knobs, moves: &Moves) -> Result<()> {
    if UNIT.is_set_to(knobs, Unit::Tensor) {
        return tensor::schedule_tensor(task, lowered, knobs, moves);
    }
    match task_template(task) {
        Template::Contraction if SUM_THREADS.setting_in(knobs).is_some() => sum::schedule_sum(lowered, knobs, moves),
        Template::Contraction if task.steps[0].output.rank() >= 2 => {
            contraction::schedule_contraction(super::contraction_form(&task.steps[0].op), lowered, knobs, moves)
        }
        Template::Contraction | Template::Spatial => spatial::schedule_spatial(lowered, knobs, moves),
        Template::Rows => rows::schedule_rows(task, lowered, knobs, moves),
    }
}

/// Returns a task's tensor-core product; None for convolutions, or if the product would round an operand.
pub(super) fn tensor_product(task: &Task, target: &CompileTarget) -> Option<TensorProduct> {
    let Device::Cuda(architectures) = &target.device else { return None };
    let capability = architectures.iter().map(|architecture| architecture.number).min()?;
    let operands = tensor_operands(task, capability)?;
    let Operands { product, is_left_transposed, is_right_transposed, .. } = operands;
    let is_offered = !operands.is_conv && !operands.is_rounded();
    is_offered.then_some(TensorProduct { product, is_left_transposed, is_right_transposed })
}

fn bind_alone(moves: &Moves, block: &Block, threads: i64) -> Result<()> {
    if moves.reduction_flags(block)?.contains(&true) {
        let result = moves.cache_write(block, Memory::Local)?;
        let thread = bind_elements(moves, &result, threads)?;
        return reduce_in_thread(moves, block, &thread);
    }
    bind_elements(moves, block, threads).map(drop)
}

fn bind_elements(moves: &Moves, block: &Block, threads: i64) -> Result<Loop> {
    bind_loop(moves, &fuse_all_loops(moves, block)?, threads)
}

fn fuse_all_loops(moves: &Moves, block: &Block) -> Result<Loop> {
    Ok(match moves.loops(block)?.as_slice() {
        // A scalar has no loops.
        [] => moves.unit_loop(block)?,
        [only] => only.clone(),
        several => moves.fuse_loops(several)?,
    })
}

fn bind_loop(moves: &Moves, target: &Loop, threads: i64) -> Result<Loop> {
    let parts = moves.split_loop(target, &[None, Some(threads)])?;
    moves.bind_axis(&parts[0], ThreadAxis::BlockX)?;
    moves.bind_axis(&parts[1], ThreadAxis::ThreadX)?;
    Ok(parts[1].clone())
}

/// Sums an element by a block of threads, each reading `together` neighbours at once; returns the loop over threads.
fn reduce_across_threads(moves: &Moves, block: &Block, around: &Loop, threads: i64, together: i64) -> Result<Loop> {
    moves.compute_at(block, around)?;
    moves.set_memory(block, Memory::Shared)?;
    let reduces = moves.reduction_flags(block)?;
    let loops = moves.loops(block)?;
    let own = loops[loops.len() - reduces.len()..].iter().zip(&reduces);
    let summed: Vec<Loop> = own.filter(|(_, reduces)| **reduces).map(|(target, _)| target.clone()).collect();
    let all = if let [only] = summed.as_slice() { only.clone() } else { moves.fuse_loops(&summed)? };
    let factors = [None, Some(threads), Some(together)];
    let parts = moves.split_loop(&all, if together > 1 { &factors } else { &factors[..2] })?;
    moves.bind_axis(&parts[1], ThreadAxis::ThreadX)?;
    Ok(parts[1].clone())
}

struct Summed {
    anchor: Block,
    result: Block,
    is_partial: bool,
}

/// Splits a sum's depth over blocks of the grid (split-K); a second kernel adds the parts, with one thread per element.
fn split_sum(moves: &Moves, anchor: Block, result: Block, knobs: &Knobs) -> Result<Summed> {
    const THREADS: i64 = 256;
    let parts = SPLIT_K.or_one(knobs);
    if parts == 1 {
        return Ok(Summed { anchor, result, is_partial: false });
    }
    let first = moves.reduction_flags(&anchor)?.iter().position(|&reduces| reduces).expect("a contraction sums");
    let depth = moves.split_loop(&moves.loops(&anchor)?[first], &[Some(parts), None])?;
    let partial = moves.factor_reduction(&depth[0], 0)?;
    moves.set_memory(&anchor, Memory::Local)?;
    let thread = bind_elements(moves, &result, THREADS)?;
    reduce_in_thread(moves, &anchor, &thread)?;
    let written = moves.cache_write(&partial, Memory::Global)?;
    Ok(Summed { anchor: partial, result: written, is_partial: true })
}

fn reduce_in_thread(moves: &Moves, block: &Block, thread: &Loop) -> Result<()> {
    moves.compute_at(block, thread)?;
    let reduces = moves.reduction_flags(block)?;
    let loops = moves.loops(block)?;
    let own = &loops[loops.len() - reduces.len()..];
    let first = reduces.iter().position(|&reduces| reduces).expect("a reduction has something to sum");
    // If TVM cannot prove the mapping of threads to result elements, the initialisation stays inside the loop, behind
    // a test for the first step.
    match moves.decompose_reduction(block, &own[first]) {
        Err(error) if !error.message.contains("Not a reduction block") => Err(error.into()),
        _ => Ok(()),
    }
}
