//! Normalisations, attention and other work in steps: a kernel for each step.

use super::{Knobs, Result, bind_alone, block_of_part, number};
use crate::lower::{Lowered, Part};
use crate::tvm::schedule::Schedule as Moves;
use models::Task;

pub(super) fn apply(_task: &Task, lowered: &Lowered, knobs: &Knobs, moves: &Moves) -> Result<()> {
    let threads = number(knobs, "threads")?;
    if let Some(pad) = block_of_part(lowered, moves, Part::Pad)? {
        moves.compute_inline(&pad)?;
    }
    for block in lowered.blocks.iter().filter(|block| block.part != Part::Pad) {
        bind_alone(moves, &moves.block(&block.name)?, threads)?;
    }
    Ok(())
}
