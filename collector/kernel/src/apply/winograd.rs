//! Schedules Winograd convolutions: input and output transforms by rows of tiles, matrix products in register tiles.

use super::{Knobs, Result, block_of_part, fuse_parallel, required_number};
use crate::lower::{Lowered, Part};
use crate::tvm::schedule::{Block, Loop, Schedule as Moves};
use job::space::axes::BLOCK;
use job::space::winograd::{STRIP, TILE_P};
use schedules::transforms::LANES;

pub(super) fn schedule_winograd(tile: i64, lowered: &Lowered, knobs: &Knobs, moves: &Moves) -> Result<()> {
    let pad = block_of_part(lowered, moves, Part::Pad)?.expect("Winograd's input is padded");
    let anchor = block_of_part(lowered, moves, Part::Anchor)?.expect("a convolution has an anchor");
    let result = super::single_epilogue(lowered, moves, &anchor)?;
    let strip = STRIP.setting_in(knobs).unwrap_or(0);
    // All intermediate results of a strip are computed inside the loop over strips.
    let strip = schedule_results(moves, &result, (tile, strip), required_number(knobs, &BLOCK)?)?;
    let reduction = schedule_products(moves, &anchor, required_number(knobs, &TILE_P)?, strip.as_ref())?;
    schedule_windows(moves, strip.as_ref())?;
    schedule_padding(moves, &pad, strip.as_ref())?;
    // Last, because loops around a decomposed reduction can no longer be annotated.
    let start = moves.decompose_reduction(&anchor, &reduction)?;
    moves.vectorize_loop(moves.loops(&start)?.last().expect("a block has loops"))?;
    Ok(())
}

/// Schedules the padding block, which also makes channels the innermost dimension, along which vectors lie.
fn schedule_padding(moves: &Moves, pad: &Block, strip: Option<&Loop>) -> Result<()> {
    let [image, y, x, channel] = enter_strip(moves, pad, strip)?;
    let channels = moves.split_loop(&channel, &[None, Some(LANES)])?;
    moves.reorder_loops(&[image.clone(), y.clone(), channels[0].clone(), x, channels[1].clone()])?;
    moves.vectorize_loop(&channels[1])?;
    run_on_pool(moves, &[image, y], strip)?;
    Ok(())
}

fn schedule_windows(moves: &Moves, strip: Option<&Loop>) -> Result<()> {
    let block = moves.block("winograd_windows")?;
    let [e, f, image, y, x, channel] = enter_strip(moves, &block, strip)?;
    let channels = moves.split_loop(&channel, &[None, Some(LANES)])?;
    let inner = [x, e.clone(), f.clone(), channels[1].clone()];
    moves.reorder_loops(&[&[image.clone(), y.clone(), channels[0].clone()], &inner[..]].concat())?;
    let around = run_on_pool(moves, &[image, y, channels[0].clone()], strip)?;
    moves.unroll_loop(&e)?;
    moves.unroll_loop(&f)?;
    moves.vectorize_loop(&channels[1])?;
    let rows = moves.block("winograd_rows")?;
    moves.compute_at(&rows, &around)?;
    let own: [Loop; 5] = innermost_loops(moves, &rows)?;
    moves.reorder_loops(&[own[1].clone(), own[2].clone(), own[3].clone(), own[0].clone(), own[4].clone()])?;
    moves.unroll_loop(&own[0])?;
    moves.vectorize_loop(&own[4])?;
    Ok(())
}

fn schedule_products(moves: &Moves, anchor: &Block, places: i64, strip: Option<&Loop>) -> Result<Loop> {
    let loops: [Loop; 8] = enter_strip(moves, anchor, strip)?;
    let place = moves.fuse_loops(&loops[3..6])?;
    let tiles = moves.split_loop(&place, &[None, Some(places)])?;
    let (lane, depth) = (loops[6].clone(), loops[7].clone());
    moves.reorder_loops(&[tiles[0].clone(), depth.clone(), tiles[1].clone(), lane.clone()])?;
    run_on_pool(moves, &loops[..3], strip)?;
    moves.unroll_loop(&tiles[1])?;
    moves.vectorize_loop(&lane)?;
    Ok(depth)
}

/// Schedules the output transform per row of tiles and channel block; returns the loop over strips, if any.
fn schedule_results(moves: &Moves, result: &Block, (tile, strip): (i64, i64), block: i64) -> Result<Option<Loop>> {
    let [image, channel, y, x] = innermost_loops(moves, result)?;
    let channels = moves.split_loop(&channel, &[None, Some(block)])?;
    let inner = |row: &Loop| [channels[1].clone(), row.clone(), x.clone()];
    let (strips, around) = if strip > 0 {
        let rows = moves.split_loop(&y, &[None, Some(strip), Some(tile)])?;
        let outer = [image, rows[0].clone()];
        let around = rows[1].clone();
        moves.reorder_loops(&[&outer[..], &[channels[0].clone(), around.clone()], &inner(&rows[2])].concat())?;
        (Some(fuse_parallel(moves, &outer, 2)?), around)
    } else {
        let rows = moves.split_loop(&y, &[None, Some(tile)])?;
        let outer = [image, channels[0].clone(), rows[0].clone()];
        moves.reorder_loops(&[&outer[..], &inner(&rows[1])].concat())?;
        (None, fuse_parallel(moves, &outer, 3)?)
    };
    let columns = moves.split_loop(&x, &[None, Some(LANES)])?;
    moves.vectorize_loop(&columns[1])?;
    let tiles = moves.block("winograd_tiles")?;
    moves.compute_at(&tiles, &around)?;
    let own: [Loop; 7] = innermost_loops(moves, &tiles)?;
    // Loops from outside to inside: column of tiles, row and column within a tile, channels of a block.
    moves.reorder_loops(&[own[4].clone(), own[3].clone(), own[5].clone(), own[6].clone()])?;
    for at in [3, 5] {
        moves.unroll_loop(&own[at])?;
    }
    moves.vectorize_loop(&own[6])?;
    let back = moves.block("winograd_back")?;
    moves.compute_at(&back, &own[4])?;
    let own: [Loop; 7] = innermost_loops(moves, &back)?;
    moves.reorder_loops(&[own[1].clone(), own[0].clone(), own[6].clone()])?;
    for at in [0, 1] {
        moves.unroll_loop(&own[at])?;
    }
    moves.vectorize_loop(&own[6])?;
    Ok(strips)
}

fn innermost_loops<const COUNT: usize>(moves: &Moves, block: &Block) -> Result<[Loop; COUNT]> {
    let loops = moves.loops(block)?;
    let before = loops.len() - COUNT;
    Ok(std::array::from_fn(|place| loops[before + place].clone()))
}

/// Moves a block into the loop over strips, if any, and returns the innermost loops of the block.
fn enter_strip<const COUNT: usize>(moves: &Moves, block: &Block, strip: Option<&Loop>) -> Result<[Loop; COUNT]> {
    if let Some(strip) = strip {
        moves.compute_at(block, strip)?;
    }
    innermost_loops(moves, block)
}

/// Runs loops on the thread pool, unless the loop over strips already runs there. Returns the innermost loop.
fn run_on_pool(moves: &Moves, loops: &[Loop], strip: Option<&Loop>) -> Result<Loop> {
    match strip {
        Some(_) => Ok(loops.last().expect("there are loops").clone()),
        None => fuse_parallel(moves, loops, loops.len()),
    }
}
