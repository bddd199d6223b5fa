//! Schedules attention on CPUs with register tiles: a few queries of a head at a time. Keys are transposed first, so
//! that vectors hold the scores of adjacent key positions. Maxima and sums are vectors that are reduced at the end.

use super::rows::{along_rows, split_partial};
use super::{
    Knobs, Result, block_of_part, fuse_parallel, plain_copy, required_choice, required_number, single_epilogue,
};
use crate::lower::{Lowered, MASK_BLOCK, Part, QUERIES_BLOCK};
use crate::tvm::expression::{Expression, index_constant};
use crate::tvm::schedule::{Block, Loop, Schedule as Moves};
use job::space::axes::{BLOCK, HELPERS_AT, TILE_Y, VECTOR};
use job::space::choices::{HelpersAt, Unseen};
use job::space::{Sight, UNSEEN};
use models::Dim;

const LEADING: usize = 2;

pub(super) fn schedule_attention(lowered: &Lowered, knobs: &Knobs, moves: &Moves) -> Result<()> {
    let vector = vector_width(knobs)?;
    let anchor = block_of_part(lowered, moves, Part::Anchor)?.expect("attention has an anchor");
    let result = single_epilogue(lowered, moves, &anchor)?;
    let loops = moves.loops(&result)?;
    let rows = moves.split_loop(&loops[LEADING], &[None, Some(required_number(knobs, &TILE_Y)?)])?;
    let columns = moves.split_loop(&loops[LEADING + 1], &[None, Some(vector)])?;
    moves.vectorize_loop(&columns[1])?;
    let keys_at = required_choice(knobs, &HELPERS_AT)?;
    let head = fuse_parallel(
        moves,
        &[&loops[..LEADING], &rows[..1]].concat(),
        LEADING + usize::from(keys_at != HelpersAt::Head),
    )?;
    let tile = if keys_at == HelpersAt::Head { &rows[0] } else { &head };

    moves.compute_at(&anchor, tile)?;
    let values = own_loops(moves, &anchor)?;
    let block = (required_number(knobs, &BLOCK)? / vector).max(1);
    let at_once = vectors_at_once(lowered, knobs)?;
    let columns = moves.split_loop(&values[1], &[None, Some(at_once), Some(vector)])?;
    moves.reorder_loops(&[columns[0].clone(), values[0].clone()])?;
    let sight = Sight::from_task(&lowered.task).filter(|_| UNSEEN.is_set_to(knobs, Unseen::Skipped));
    let stretch = sight.as_ref().and_then(Sight::visibility_block);
    let places = match stretch {
        Some(stretch) => moves.split_loop(&values[2], &[None, Some(stretch)])?,
        None => vec![values[2].clone()],
    };
    let summed = vectorize_tile(moves, &places, &[values[0].clone(), columns[1].clone()], &columns[2])?;

    let sum = moves.block("attention_sum")?;
    let sums = split_partial(moves, &sum, vector)?;
    moves.compute_at(&sum, tile)?;
    along_rows(moves, &sums, tile)?;
    let weights = moves.block("attention_weights")?;
    moves.compute_at(&weights, tile)?;
    let last = moves.split_loop(&own_loops(moves, &weights)?[1], &[None, Some(vector)])?;
    moves.vectorize_loop(&last[1])?;
    let largest = moves.block("attention_largest")?;
    let maxima = split_partial(moves, &largest, vector)?;
    moves.compute_at(&largest, tile)?;
    along_rows(moves, &maxima, tile)?;
    moves.compute_inline(&moves.block("attention_scores")?)?;

    if lowered.blocks.iter().any(|block| block.name == MASK_BLOCK) {
        moves.compute_at(&moves.block(MASK_BLOCK)?, tile)?;
    }

    if lowered.blocks.iter().any(|block| block.name == QUERIES_BLOCK) {
        plain_copy(moves, &moves.block(QUERIES_BLOCK)?)?;
    }
    let products = moves.block("attention_products")?;
    moves.compute_at(&products, tile)?;
    let scores = own_loops(moves, &products)?;
    let tiles = moves.split_loop(&scores[1], &[None, Some(block), Some(vector)])?;
    moves.reorder_loops(&[tiles[0].clone(), scores[0].clone()])?;
    let depth = vectorize_tile(moves, &scores[2..], &[scores[0].clone(), tiles[1].clone()], &tiles[2])?;

    let keys = moves.block("attention_keys")?;
    match keys_at {
        HelpersAt::Root => plain_copy(moves, &keys)?,
        HelpersAt::Row | HelpersAt::Head => moves.compute_at(&keys, &head)?,
    }
    // Last, because loops around a decomposed reduction can no longer be marked.
    for (block, from) in [(&anchor, &summed), (&products, &depth)] {
        let start = moves.decompose_reduction(block, from)?;
        let loops = moves.loops(&start)?;
        moves.vectorize_loop(loops.last().expect("a tile has loops"))?;
    }
    if let Some(sight) = sight {
        let skipping = Skipping { sight, queries: required_number(knobs, &TILE_Y)? };
        let place = LEADING + 1;
        moves.only_if(&depth, skipping.attends_to(&moves.start_indices(&depth)?, place, block * vector)?)?;
        if let (Some(stretch), Some(inner)) = (stretch, places.get(1)) {
            moves.only_if(inner, skipping.attends_to(&moves.start_indices(inner)?, place + 1, stretch)?)?;
        }
    }
    Ok(())
}

/// Returns the elements per vector, at most a block: positions are padded to blocks, past which no vector may read.
fn vector_width(knobs: &Knobs) -> Result<i64> {
    Ok(required_number(knobs, &VECTOR)?.min(required_number(knobs, &BLOCK)?))
}

fn vectors_at_once(lowered: &Lowered, knobs: &Knobs) -> Result<i64> {
    const FEWEST_REGISTERS: i64 = 16;
    let (vector, rows) = (vector_width(knobs)?, required_number(knobs, &TILE_Y)?);
    // Accumulators, one weight, and the vectors of values if several rows use them.
    let anywhere = if rows > 1 { (FEWEST_REGISTERS - 1) / (rows + 1) } else { FEWEST_REGISTERS - 2 };
    let most = (required_number(knobs, &BLOCK)? / vector).max(anywhere).max(1);
    let Some(Dim::Known(columns)) = lowered.task.steps[0].output.shape.last() else { return Ok(most) };
    let vectors = (columns + vector - 1) / vector;
    Ok((1..=most).rev().find(|at_once| vectors % at_once == 0).unwrap_or(1))
}

struct Skipping {
    sight: Sight,
    queries: i64,
}

impl Skipping {
    /// Builds the condition that a query of the tile attends to at least one of `places` consecutive key positions.
    fn attends_to(&self, variables: &[Expression], place: usize, places: i64) -> Result<Expression> {
        let Sight { earlier, window, .. } = self.sight;
        let (query, first) = (&variables[LEADING], &variables[place]);
        let is_seen = first.at_most(&query.add(&index_constant(earlier + self.queries - 1)?)?)?;
        let Some(window) = window else { return Ok(is_seen) };
        let forgotten = query.add(&index_constant(earlier - window)?)?;
        Ok(is_seen.and(&first.add(&index_constant(places - 1)?)?.greater(&forgotten)?)?)
    }
}

fn own_loops(moves: &Moves, block: &Block) -> Result<Vec<Loop>> {
    let count = moves.reduction_flags(block)?.len() - LEADING;
    let loops = moves.loops(block)?;
    Ok(loops[loops.len() - count..].to_vec())
}

/// Moves reduction loops outside of a tile's loops, unrolls the latter and vectorises `vector`; returns the outermost
/// reduction loop.
fn vectorize_tile(moves: &Moves, reduction: &[Loop], tile: &[Loop], vector: &Loop) -> Result<Loop> {
    moves.reorder_loops(&[reduction, tile, std::slice::from_ref(vector)].concat())?;
    moves.vectorize_loop(vector)?;
    for target in tile {
        moves.unroll_loop(target)?;
    }
    Ok(reduction[0].clone())
}
