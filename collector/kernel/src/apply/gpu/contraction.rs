//! Schedules convolutions and matrix products on GPUs: a block computes a tile of the result, each thread a smaller
//! tile in registers. Both operands are staged in shared memory, one part of the reduction at a time.

use super::super::contraction::Form;
use super::{Block, Knobs, Loop, Lowered, Memory, Moves, Part, Result, Summed, ThreadAxis};
use super::{block_of_part, required_choice, required_number, single_epilogue, split_sum};
use job::space::axes::{SPLIT_R, TILE_C, TILE_X, TILE_Y, UNROLL};
use job::space::choices::{Spread, StagedIn};
use job::space::gpu::{FETCH, PAD_ROWS, SPREAD, STAGE, THREADS_C, THREADS_X, THREADS_Y};
use schedules::tiles::filled_extent;

pub(super) fn schedule_contraction(form: Form, lowered: &Lowered, knobs: &Knobs, moves: &Moves) -> Result<()> {
    let anchor = block_of_part(lowered, moves, Part::Anchor)?.expect("a contraction has an anchor");
    let is_staged = required_choice(knobs, &STAGE)? == StagedIn::Shared;
    // If the input is staged in shared memory, the padding block is the staging copy.
    let pad = block_of_part(lowered, moves, Part::Pad)?;
    if let Some(pad) = pad.as_ref().filter(|_| !is_staged) {
        moves.compute_inline(pad)?;
    }
    let result = single_epilogue(lowered, moves, &anchor)?;
    let summed = split_sum(moves, anchor, result, knobs)?;
    let anchor = &summed.anchor;
    moves.set_memory(anchor, Memory::Local)?;
    let tiled = tile_result(form, moves, &summed, knobs)?;
    moves.compute_at(anchor, &tiled.thread)?;
    let reduction = order_anchor(moves, anchor, knobs)?;
    if is_staged {
        let mut staged = vec![match pad {
            Some(pad) => {
                moves.set_memory(&pad, Memory::Shared)?;
                pad
            }
            None => moves.cache_read(anchor, 0, Memory::Shared)?,
        }];
        staged.push(moves.cache_read(anchor, 1, Memory::Shared)?);
        for copy in &staged {
            moves.compute_at(copy, &reduction)?;
            fetch_together(moves, copy, knobs, tiled.threads)?;
            if PAD_ROWS.setting_in(knobs) == Some(1) {
                pad_rows(moves, copy, knobs)?;
            }
        }
    }
    moves.decompose_reduction(anchor, &reduction)?;
    Ok(())
}

struct Tiled {
    thread: Loop,
    threads: i64,
}

/// Splits and orders the loops of the result: blocks, interleaved tiles of a thread, threads, elements of a tile.
fn tile_result(form: Form, moves: &Moves, summed: &Summed, knobs: &Knobs) -> Result<Tiled> {
    let mut loops = moves.loops(&summed.result)?;
    let sums: Vec<Loop> = loops.drain(..usize::from(summed.is_partial)).collect();
    let rank = loops.len();
    let mut parts: [Vec<Loop>; 4] = Default::default();
    let mut thread_count = 1;
    for (place, target) in loops.iter().enumerate() {
        let (threads, tile) = thread_extents(form, knobs, place, rank)?;
        thread_count *= threads;
        let apart = if required_choice(knobs, &SPREAD)? == Spread::Apart && tile % 2 == 0 { 2 } else { 1 };
        let split = moves.split_loop(target, &[None, Some(apart), Some(threads), Some(tile / apart)])?;
        for (part, piece) in parts.iter_mut().zip(split) {
            part.push(piece);
        }
    }
    moves.reorder_loops(&parts.concat())?;
    let [blocks, apart, threads, _] = parts;
    moves.bind_axis(&moves.fuse_loops(&[sums, blocks].concat())?, ThreadAxis::BlockX)?;
    moves.bind_axis(&moves.fuse_loops(&apart)?, ThreadAxis::Virtual)?;
    let thread = moves.fuse_loops(&threads)?;
    moves.bind_axis(&thread, ThreadAxis::ThreadX)?;
    Ok(Tiled { thread, threads: thread_count })
}

/// Returns the number of threads along a dimension, and the number of elements that each thread computes.
fn thread_extents(form: Form, knobs: &Knobs, place: usize, rank: usize) -> Result<(i64, i64)> {
    Ok(match form {
        Form::Conv if place == 1 => (required_number(knobs, &THREADS_C)?, required_number(knobs, &TILE_C)?),
        Form::Conv if place > 1 && place == rank - 1 => {
            (required_number(knobs, &THREADS_X)?, required_number(knobs, &TILE_X)?)
        }
        Form::Conv if place > 1 && place == rank - 2 => {
            (required_number(knobs, &THREADS_Y)?, required_number(knobs, &TILE_Y)?)
        }
        Form::Product if place == rank - 1 => (required_number(knobs, &THREADS_C)?, required_number(knobs, &TILE_C)?),
        Form::Product if place + 2 == rank => (required_number(knobs, &THREADS_X)?, required_number(knobs, &TILE_X)?),
        Form::Conv | Form::Product => (1, 1),
    })
}

/// Orders the reduction loops outside a thread's tile; returns the outermost loop, inside which operands are staged.
fn order_anchor(moves: &Moves, anchor: &Block, knobs: &Knobs) -> Result<Loop> {
    let reduces = moves.reduction_flags(anchor)?;
    let loops = moves.loops(anchor)?;
    let own = &loops[loops.len() - reduces.len()..];
    let (mut tile, mut reduction) = (Vec::new(), Vec::new());
    for (target, &reduces) in own.iter().zip(&reduces) {
        if reduces { reduction.push(target.clone()) } else { tile.push(target.clone()) }
    }
    let depth = reduction.remove(0);
    let parts = moves.split_loop(&depth, &[None, Some(required_number(knobs, &SPLIT_R)?)])?;
    let mut order = vec![parts[0].clone()];
    order.extend(reduction);
    order.push(parts[1].clone());
    order.extend(tile.iter().cloned());
    moves.reorder_loops(&order)?;
    if required_number(knobs, &UNROLL)? > 0 {
        moves.unroll_loop(&parts[1])?;
    }
    for target in &tile {
        moves.unroll_loop(target)?;
    }
    Ok(parts[0].clone())
}

/// Pads rows in shared memory to begin in different banks and stay aligned to the vectors that threads store.
fn pad_rows(moves: &Moves, copy: &Block, knobs: &Knobs) -> Result<()> {
    let vector = required_number(knobs, &FETCH)?.max(1);
    let factor = filled_extent(required_number(knobs, &SPLIT_R)?.max(2 * vector), vector);
    moves.align_storage(copy, innermost_but_one(moves, copy)?, factor, vector)?;
    Ok(())
}

/// Returns the index of the last but one dimension, whose stride changes when rows are padded.
fn innermost_but_one(moves: &Moves, copy: &Block) -> Result<i64> {
    Ok(i64::try_from(moves.reduction_flags(copy)?.len()).unwrap_or(i64::MAX) - 2)
}

fn fetch_together(moves: &Moves, copy: &Block, knobs: &Knobs, threads: i64) -> Result<()> {
    let count = moves.reduction_flags(copy)?.len();
    let loops = moves.loops(copy)?;
    let own = &loops[loops.len() - count..];
    let all = if let [only] = own { only.clone() } else { moves.fuse_loops(own)? };
    let vector = required_number(knobs, &FETCH)?;
    let parts = if vector > 1 {
        moves.split_loop(&all, &[None, Some(threads), Some(vector)])?
    } else {
        moves.split_loop(&all, &[None, Some(threads)])?
    };
    moves.bind_axis(&parts[1], ThreadAxis::ThreadX)?;
    if let Some(vector) = parts.get(2) {
        moves.vectorize_loop(vector)?;
    }
    Ok(())
}
