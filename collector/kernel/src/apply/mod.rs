//! Applies a schedule to a lowered task, as moves (instructions of TVM's schedules).

mod attention;
mod contraction;
mod dots;
mod gpu;
mod pool;
mod rows;
mod spatial;
mod winograd;

use crate::lower::{self, Lowered, Part};
use crate::tvm::compile::CompileTarget;
use crate::tvm::schedule::{Block, Loop, Memory, Schedule as Moves};
use crate::tvm::{TvmError, meta_schedule, trace};
use job::space::axes::{ChoiceAxis, GRAIN, NumberAxis, POOL};
use job::space::choices::YesNo;
use job::space::gpu::assume_sizes;
use job::space::{Knobs, Layout, Schedule, Template, task_template};
use models::{Choice, Op};

#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum ApplyError {
    #[error("knob `{0}` is missing or has an unknown setting")]
    MissingKnob(&'static str),
    #[error("a post-processor of TVM's schedule space rejects the sampled schedule")]
    Rejected,
    #[error(transparent)]
    Tvm(#[from] TvmError),
}

type Result<T> = std::result::Result<T, ApplyError>;

/// TVM's own schedule spaces of the current task, cached because generating them takes as long as many samples.
#[derive(Default)]
pub struct SpaceCache(Option<meta_schedule::Spaces>);

impl SpaceCache {
    /// Drops the cached spaces; required when the task or the target changes.
    pub fn clear(&mut self) {
        self.0 = None;
    }

    fn load_spaces(&mut self, lowered: &Lowered, target: &CompileTarget) -> Result<&meta_schedule::Spaces> {
        if self.0.is_none() {
            let product = gpu::tensor_product(&lowered.task, target);
            self.0 = Some(meta_schedule::generate_spaces(&lowered.module, target, product)?);
        }
        Ok(self.0.as_ref().expect("the spaces were just generated"))
    }
}

pub fn apply_schedule(
    lowered: &Lowered,
    schedule: &Schedule,
    target: &CompileTarget,
    spaces: &mut SpaceCache,
) -> Result<Moves> {
    const NO_SAMPLING: i64 = 1;
    let task = &lowered.task;
    match schedule {
        Schedule::Template { knobs } => {
            let moves = Moves::new(&lowered.module, NO_SAMPLING)?;
            if target.is_device() {
                gpu::schedule_task(&assume_sizes(task), lowered, knobs, &moves)?;
                return Ok(moves);
            }
            if POOL.is_set_to(knobs, YesNo::No) {
                moves.leave_pool();
            }
            // A scalar has no loops.
            if task.steps[0].output.rank() == 0 {
                return Ok(moves);
            }
            match (task_template(task), schedule.data_layout()) {
                (Template::Contraction, Layout::Winograd { tile, .. }) => {
                    winograd::schedule_winograd(tile, lowered, knobs, &moves)?
                }
                (Template::Contraction, Layout::Dots { .. }) => dots::schedule_dots(task, lowered, knobs, &moves)?,
                (Template::Contraction, _) => {
                    contraction::schedule_contraction(contraction_form(&task.steps[0].op), lowered, knobs, &moves)?
                }
                (Template::Spatial, _) if schedule.columns_first() => {
                    pool::schedule_pool(task.steps[0].output.rank(), lowered, knobs, &moves)?
                }
                (Template::Spatial, _) => {
                    spatial::schedule_spatial(task.steps[0].output.rank(), lowered, knobs, &moves)?
                }
                (Template::Rows, Layout::Blocked { .. }) => attention::schedule_attention(lowered, knobs, &moves)?,
                (Template::Rows, _) => rows::schedule_rows(task, lowered, knobs, &moves)?,
            }
            Ok(moves)
        }
        Schedule::MetaSchedule { space, seed, trace: None } => {
            spaces.load_spaces(lowered, target)?.sample_schedule(*space, *seed)?.ok_or(ApplyError::Rejected)
        }
        Schedule::Trace { trace } | Schedule::MetaSchedule { trace: Some(trace), .. } => {
            let moves = Moves::new(&lowered.module, NO_SAMPLING)?;
            if let Some(product) = gpu::tensor_product(task, target) {
                product.register_steps()?;
            }
            trace::replay_moves(trace, &moves)?;
            Ok(moves)
        }
    }
}

fn contraction_form(op: &Op) -> contraction::Form {
    match op {
        Op::Conv(_) | Op::ConvTranspose(_) | Op::QConv(_) => contraction::Form::Conv,
        _ => contraction::Form::Product,
    }
}

fn required_number(knobs: &Knobs, axis: &'static NumberAxis) -> Result<i64> {
    axis.setting_in(knobs).ok_or(ApplyError::MissingKnob(axis.0.name))
}

fn required_choice<T: Choice + PartialEq>(knobs: &Knobs, axis: &'static ChoiceAxis<T>) -> Result<T> {
    axis.setting_in(knobs).ok_or(ApplyError::MissingKnob(axis.0.name))
}

/// Inlines all epilogue blocks but the last and returns that block, or else a new block that copies the result.
fn single_epilogue(lowered: &Lowered, moves: &Moves, anchor: &Block) -> Result<Block> {
    match last_epilogue(&lowered.blocks, moves)? {
        Some(last) => Ok(last),
        None => Ok(moves.cache_write(anchor, Memory::Global)?),
    }
}

fn last_epilogue(blocks: &[lower::Block], moves: &Moves) -> Result<Option<Block>> {
    let epilogue: Vec<&str> =
        blocks.iter().filter(|block| block.part == Part::Epilogue).map(|block| block.name.as_str()).collect();
    let Some((last, others)) = epilogue.split_last() else { return Ok(None) };
    for name in others {
        moves.compute_inline(&moves.block(name)?)?;
    }
    Ok(Some(moves.block(last)?))
}

fn block_of_part(lowered: &Lowered, moves: &Moves, part: Part) -> Result<Option<Block>> {
    let found = lowered.blocks.iter().find(|block| block.part == part);
    Ok(found.map(|block| moves.block(&block.name)).transpose()?)
}

fn fuse_parallel(moves: &Moves, loops: &[Loop], count: usize) -> Result<Loop> {
    let count = count.clamp(1, loops.len());
    let fused = if count == 1 { loops[0].clone() } else { moves.fuse_loops(&loops[..count])? };
    moves.run_parallel(&fused)?;
    Ok(fused)
}

/// Fuses the first `count` loops and runs them on the pool, `GRAIN` iterations per step; returns the innermost loop.
fn fuse_grains(moves: &Moves, loops: &[Loop], count: usize, knobs: &Knobs) -> Result<Loop> {
    let grain = GRAIN.or_one(knobs);
    if grain == 1 {
        return fuse_parallel(moves, loops, count);
    }
    let count = count.clamp(1, loops.len());
    let fused = if count == 1 { loops[0].clone() } else { moves.fuse_loops(&loops[..count])? };
    let parts = moves.split_loop(&fused, &[None, Some(grain)])?;
    moves.run_parallel(&parts[0])?;
    Ok(parts[1].clone())
}

fn plain_copy(moves: &Moves, block: &Block) -> Result<()> {
    const VECTOR: i64 = 16;
    let loops = moves.loops(block)?;
    let (last, outer) = loops.split_last().expect("a block has at least one loop");
    let parts = moves.split_loop(last, &[None, Some(VECTOR)])?;
    moves.vectorize_loop(&parts[1])?;
    if !outer.is_empty() {
        fuse_parallel(moves, outer, outer.len().min(2))?;
    }
    Ok(())
}
