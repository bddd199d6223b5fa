//! Attention by register tiles: a few queries of a head at a time, whose scores stay in the nearest cache.
//!
//! Keys are turned first, so that the scores of neighbouring places are vectors, as the values are by themselves; maxima
//! and sums go by vectors, too, and are brought together last.

use super::rows::{along_rows, partial};
use super::{Knobs, Result, block_of_part, choice, fuse_parallel, number, plain_copy, single_epilogue};
use crate::lower::{Lowered, Part};
use crate::tvm::schedule::{Block, Loop, Schedule as Moves};

/// Batch and head.
const LEADING: usize = 2;

pub(super) fn apply(lowered: &Lowered, knobs: &Knobs, moves: &Moves) -> Result<()> {
    let vector = number(knobs, "vector")?;
    let anchor = block_of_part(lowered, moves, Part::Anchor)?.expect("attention has an anchor");
    let result = single_epilogue(lowered, moves, &anchor)?;
    let loops = moves.loops(&result)?;
    let rows = moves.split(&loops[LEADING], &[None, Some(number(knobs, "tile_y")?)])?;
    let columns = moves.split(&loops[LEADING + 1], &[None, Some(vector)])?;
    moves.vectorize(&columns[1])?;
    let keys_at = choice(knobs, "helpers_at")?;
    let head =
        fuse_parallel(moves, &[&loops[..LEADING], &rows[..1]].concat(), LEADING + usize::from(keys_at != "head"))?;
    let tile = if keys_at == "head" { &rows[0] } else { &head };

    moves.compute_at(&anchor, tile)?;
    let values = own_loops(moves, &anchor)?;
    let columns = moves.split(&values[1], &[None, Some(vector)])?;
    let summed = tiled(moves, &values[2], &[values[0].clone(), columns[0].clone()], &columns[1])?;

    let sum = moves.block("attention_sum")?;
    let sums = partial(moves, &sum, vector)?;
    moves.compute_at(&sum, tile)?;
    along_rows(moves, &sums, tile)?;
    let weights = moves.block("attention_weights")?;
    moves.compute_at(&weights, tile)?;
    let last = moves.split(&own_loops(moves, &weights)?[1], &[None, Some(vector)])?;
    moves.vectorize(&last[1])?;
    let largest = moves.block("attention_largest")?;
    let maxima = partial(moves, &largest, vector)?;
    moves.compute_at(&largest, tile)?;
    along_rows(moves, &maxima, tile)?;
    moves.compute_inline(&moves.block("attention_scores")?)?;

    let products = moves.block("attention_products")?;
    moves.compute_at(&products, tile)?;
    let scores = own_loops(moves, &products)?;
    let places = moves.split(&scores[1], &[None, Some((number(knobs, "block")? / vector).max(1)), Some(vector)])?;
    moves.reorder(&[places[0].clone(), scores[0].clone()])?;
    let depth = tiled(moves, &scores[2], &[scores[0].clone(), places[1].clone()], &places[2])?;

    let keys = moves.block("attention_keys")?;
    match keys_at {
        "root" => plain_copy(moves, &keys)?,
        _ => moves.compute_at(&keys, &head)?,
    }
    // Last, because loops around a decomposed reduction can no longer be marked.
    for (block, from) in [(&anchor, &summed), (&products, &depth)] {
        let start = moves.decompose_reduction(block, from)?;
        let loops = moves.loops(&start)?;
        moves.vectorize(loops.last().expect("a tile has loops"))?;
    }
    Ok(())
}

/// The loops of a block that was put below others, from its rows on.
fn own_loops(moves: &Moves, block: &Block) -> Result<Vec<Loop>> {
    let count = moves.reduces(block)?.len() - LEADING;
    let loops = moves.loops(block)?;
    Ok(loops[loops.len() - count..].to_vec())
}

/// A reduction around a tile that is written out, whose last loop is a vector. Returns the loop of the reduction.
fn tiled(moves: &Moves, reduction: &Loop, tile: &[Loop], vector: &Loop) -> Result<Loop> {
    moves.reorder(&[std::slice::from_ref(reduction), tile, std::slice::from_ref(vector)].concat())?;
    moves.vectorize(vector)?;
    for target in tile {
        moves.unroll(target)?;
    }
    Ok(reduction.clone())
}
