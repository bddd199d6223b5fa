//! Contractions with few elements: a group of threads sums each element of the result together.

use super::{Knobs, Result, all_loops, block_of_part, number, reduce_across_threads, single_epilogue};
use crate::lower::{Lowered, Part};
use crate::tvm::schedule::{Schedule as Moves, ThreadAxis};

pub(super) fn apply(lowered: &Lowered, knobs: &Knobs, moves: &Moves) -> Result<()> {
    let anchor = block_of_part(lowered, moves, Part::Anchor)?.expect("a contraction has an anchor");
    if let Some(pad) = block_of_part(lowered, moves, Part::Pad)? {
        moves.compute_inline(&pad)?;
    }
    let result = single_epilogue(lowered, moves, &anchor)?;
    let parts = moves.split(&all_loops(moves, &result)?, &[None, Some(number(knobs, "sum_elements")?)])?;
    moves.bind(&parts[0], ThreadAxis::BlockX)?;
    moves.bind(&parts[1], ThreadAxis::ThreadY)?;
    reduce_across_threads(moves, &anchor, &parts[1], number(knobs, "sum_threads")?)
}
