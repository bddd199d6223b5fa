//! Schedules pooling that reduces the columns of windows first: for each row of results, every input column is reduced
//! over the height of the windows, with vectors of adjacent columns; then the row's windows from these values.

use super::{Knobs, Result, block_of_part, fuse_grains, last_epilogue, required_number};
use crate::lower::{Lowered, Part};
use crate::tvm::schedule::{Block, Loop, Schedule as Moves};
use job::space::axes::{PARALLEL, VECTOR};
use job::space::declare::ROW;
use schedules::pools::has_ends;

pub(super) fn schedule_pool(rank: usize, lowered: &Lowered, knobs: &Knobs, moves: &Moves) -> Result<()> {
    let anchor = block_of_part(lowered, moves, Part::Anchor)?.expect("every task has an anchor");
    let columns = block_of_part(lowered, moves, Part::Columns)?.expect("the columns of windows come first");
    let epilogue = last_epilogue(&lowered.blocks, moves)?;
    let loops = moves.loops(epilogue.as_ref().unwrap_or(&anchor))?;
    let (row, outer) = loops[..rank].split_last().expect("a pool has rows");
    let width = required_number(knobs, &VECTOR)?;
    let parts = moves.split_loop(row, &[None, Some(width)])?;
    let (inside, vector) = (&parts[0], &parts[1]);
    let window = match &epilogue {
        Some(_) => {
            moves.compute_at(&anchor, inside)?;
            let own = moves.loops(&anchor)?;
            let [.., places, window] = &own[..] else { unreachable!("a window has a row") };
            moves.reorder_loops(&[window.clone(), places.clone()])?;
            moves.vectorize_loop(places)?;
            window.clone()
        }
        None => {
            moves.reorder_loops(&[loops[rank].clone(), vector.clone()])?;
            loops[rank].clone()
        }
    };
    moves.vectorize_loop(vector)?;
    // TVM partitions a loop either at row ends or at partial tiles. With both, its choice is not reproducible, so the
    // hint is given only if tiles are whole.
    let columns_of_result = lowered.task.steps[0].output.extents().and_then(|extents| extents.last().copied());
    let is_whole = columns_of_result.is_some_and(|columns| columns % width == 0);
    if has_ends(&lowered.task) && is_whole {
        moves.annotate_loop(inside, "pragma_loop_partition_hint", 1)?;
    }
    let parallel = usize::try_from(required_number(knobs, &PARALLEL)?).unwrap_or(1);
    let fused = fuse_grains(moves, outer, parallel, knobs)?;
    let of_one_row = outer.last().filter(|_| parallel < outer.len()).unwrap_or(&fused);
    reduce_columns(moves, &columns, of_one_row, (rank, required_number(knobs, &ROW)?))?;
    // Last, because loops around a decomposed reduction can no longer be annotated.
    moves.unroll_loop(&window)?;
    moves.decompose_reduction(&anchor, &window)?;
    Ok(())
}

fn reduce_columns(moves: &Moves, columns: &Block, around: &Loop, (rank, width): (usize, i64)) -> Result<()> {
    let taps = moves.reduction_flags(columns)?.len() - rank;
    moves.compute_at(columns, around)?;
    let loops = moves.loops(columns)?;
    let (others, window) = loops.split_at(loops.len() - taps);
    let parts = moves.split_loop(others.last().expect("the input has rows"), &[None, Some(width)])?;
    moves.reorder_loops(&window.iter().chain(&parts[1..]).cloned().collect::<Vec<_>>())?;
    moves.vectorize_loop(&parts[1])?;
    window.iter().try_for_each(|tap| moves.unroll_loop(tap))?;
    moves.decompose_reduction(columns, &window[0])?;
    Ok(())
}
