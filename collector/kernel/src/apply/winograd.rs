//! Winograd's products: windows row by row of tiles, products of matrices in register tiles, results row by row of tiles.

use super::{Knobs, Result, block_of_part, fuse_parallel, number};
use crate::lower::{Lowered, Part};
use crate::tvm::schedule::{Block, Loop, Schedule as Moves};
use job::winograd::LANES;

pub(super) fn apply(tile: i64, lowered: &Lowered, knobs: &Knobs, moves: &Moves) -> Result<()> {
    let pad = block_of_part(lowered, moves, Part::Pad)?.expect("Winograd's input is padded");
    let anchor = block_of_part(lowered, moves, Part::Anchor)?.expect("a convolution has an anchor");
    let result = super::single_epilogue(lowered, moves, &anchor)?;
    copies(moves, &pad)?;
    windows(moves)?;
    let reduction = products(moves, &anchor, number(knobs, "tile_p")?)?;
    results(moves, &result, tile, number(knobs, "block")?)?;
    // Last, because loops around a decomposed reduction can no longer be marked.
    let start = moves.decompose_reduction(&anchor, &reduction)?;
    moves.vectorize(moves.loops(&start)?.last().expect("a block has loops"))?;
    Ok(())
}

/// Channels become neighbours: a vector of places is read and written apart.
fn copies(moves: &Moves, pad: &Block) -> Result<()> {
    let [image, y, x, channel] = four(&moves.loops(pad)?);
    let channels = moves.split(&channel, &[None, Some(LANES)])?;
    moves.reorder(&[image.clone(), y.clone(), channels[0].clone(), x, channels[1].clone()])?;
    moves.vectorize(&channels[1])?;
    fuse_parallel(moves, &[image, y], 2)?;
    Ok(())
}

/// All windows of a row of tiles and a vector of channels at once.
fn windows(moves: &Moves) -> Result<()> {
    let block = moves.block("winograd_windows")?;
    let [e, f, image, y, x, channel] = six(&moves.loops(&block)?);
    let channels = moves.split(&channel, &[None, Some(LANES)])?;
    let inner = [x, e.clone(), f.clone(), channels[1].clone()];
    moves.reorder(&[&[image.clone(), y.clone(), channels[0].clone()], &inner[..]].concat())?;
    let around = fuse_parallel(moves, &[image, y, channels[0].clone()], 3)?;
    moves.unroll(&e)?;
    moves.unroll(&f)?;
    moves.vectorize(&channels[1])?;
    let rows = moves.block("winograd_rows")?;
    moves.compute_at(&rows, &around)?;
    let loops = moves.loops(&rows)?;
    let own = &loops[loops.len() - 5..];
    moves.reorder(&[own[1].clone(), own[2].clone(), own[3].clone(), own[0].clone(), own[4].clone()])?;
    moves.unroll(&own[0])?;
    moves.vectorize(&own[4])?;
    Ok(())
}

/// Register tiles of places and channels. Returns the loop of the sum.
fn products(moves: &Moves, anchor: &Block, places: i64) -> Result<Loop> {
    let loops = moves.loops(anchor)?;
    let place = moves.fuse(&loops[3..6])?;
    let tiles = moves.split(&place, &[None, Some(places)])?;
    let (lane, depth) = (loops[6].clone(), loops[7].clone());
    moves.reorder(&[tiles[0].clone(), depth.clone(), tiles[1].clone(), lane.clone()])?;
    fuse_parallel(moves, &loops[..3], 3)?;
    moves.unroll(&tiles[1])?;
    moves.vectorize(&lane)?;
    Ok(depth)
}

/// All places of a row of tiles and a block of channels at once.
fn results(moves: &Moves, result: &Block, tile: i64, block: i64) -> Result<()> {
    let [image, channel, y, x] = four(&moves.loops(result)?);
    let channels = moves.split(&channel, &[None, Some(block)])?;
    let rows = moves.split(&y, &[None, Some(tile)])?;
    let outer = [image, channels[0].clone(), rows[0].clone()];
    moves.reorder(&[&outer[..], &[channels[1].clone(), rows[1].clone(), x.clone()]].concat())?;
    let around = fuse_parallel(moves, &outer, 3)?;
    let columns = moves.split(&x, &[None, Some(LANES)])?;
    moves.vectorize(&columns[1])?;
    let tiles = moves.block("winograd_tiles")?;
    moves.compute_at(&tiles, &around)?;
    let own = last_of(moves, &tiles, 7)?;
    // A place of the result after the other, of all channels.
    moves.reorder(&[own[4].clone(), own[3].clone(), own[5].clone(), own[6].clone()])?;
    for at in [3, 5] {
        moves.unroll(&own[at])?;
    }
    moves.vectorize(&own[6])?;
    let back = moves.block("winograd_back")?;
    moves.compute_at(&back, &own[4])?;
    let own = last_of(moves, &back, 7)?;
    moves.reorder(&[own[1].clone(), own[0].clone(), own[6].clone()])?;
    for at in [0, 1] {
        moves.unroll(&own[at])?;
    }
    moves.vectorize(&own[6])?;
    Ok(())
}

fn last_of(moves: &Moves, block: &Block, count: usize) -> Result<Vec<Loop>> {
    let loops = moves.loops(block)?;
    Ok(loops[loops.len() - count..].to_vec())
}

fn four(loops: &[Loop]) -> [Loop; 4] {
    std::array::from_fn(|place| loops[place].clone())
}

fn six(loops: &[Loop]) -> [Loop; 6] {
    std::array::from_fn(|place| loops[place].clone())
}
