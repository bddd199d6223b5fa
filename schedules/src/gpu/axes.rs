//! Schedule axes that exist only on GPUs.

use crate::axes::{ChoiceAxis, Declaration, NumberAxis, Ways};
use crate::choices::{Kernels, Spread, StagedIn, Unit};
use crate::knobs::Knobs;

pub static BLOCK_THREADS: NumberAxis = NumberAxis::new("threads");
pub static THREADS_C: NumberAxis = NumberAxis::new("threads_c");
pub static THREADS_Y: NumberAxis = NumberAxis::new("threads_y");
pub static THREADS_X: NumberAxis = NumberAxis::new("threads_x");
pub static SPREAD: ChoiceAxis<Spread> = ChoiceAxis::new("spread");
pub static STAGE: ChoiceAxis<StagedIn> = ChoiceAxis::new("stage");
/// Number of parts of a sum that are computed in separate blocks.
pub static SPLIT_K: NumberAxis = NumberAxis::new("split_k").with_ways(Ways::DIRECT.or(Ways::TENSOR));
pub static FETCH: NumberAxis = NumberAxis::new("fetch").only_when(is_staged);
pub static PAD_ROWS: NumberAxis =
    NumberAxis::new("pad_rows").with_ways(Ways::DIRECT.or(Ways::TENSOR)).only_when(is_staged);
pub static UNIT: ChoiceAxis<Unit> =
    ChoiceAxis::new("unit").with_ways(Ways::DIRECT.or(Ways::TENSOR).or(Ways::BLOCK_SUM));
pub static KERNELS: ChoiceAxis<Kernels> = ChoiceAxis::new("kernels");

pub(crate) static AXES: &[&Declaration] = &[
    &BLOCK_THREADS.0,
    &THREADS_C.0,
    &THREADS_Y.0,
    &THREADS_X.0,
    &SPREAD.0,
    &STAGE.0,
    &SPLIT_K.0,
    &FETCH.0,
    &PAD_ROWS.0,
    &UNIT.0,
    &KERNELS.0,
];

fn is_staged(knobs: &Knobs) -> bool {
    !STAGE.is_set_to(knobs, StagedIn::Global)
}
