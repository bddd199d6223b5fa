//! Long sums of few elements: parts of a sum in blocks of their own, and sums across the threads of a block.

use super::super::declare::{choice, numbers, upto};
use super::super::{Axis, Knobs, Setting};
use super::BLOCK_SUM;
use crate::cuda::WARP_THREADS;
use std::collections::BTreeMap;

/// Threads that a large device runs at once: a result of more elements keeps it busy by itself.
const DEVICE_THREADS: i64 = 132 * 2048;

/// The least depth of a part.
const PART_DEPTH: i64 = 16;

/// The numbers of parts that a sum of this depth may have.
pub(super) fn parts(elements: i64, depth: i64) -> Vec<i64> {
    let may_split = |&parts: &i64| parts == 1 || (depth % parts == 0 && depth / parts >= PART_DEPTH);
    if elements > DEVICE_THREADS { vec![1] } else { [1, 2, 4, 8, 16].into_iter().filter(may_split).collect() }
}

/// Whether the threads of a block may sum an element together.
pub(super) fn is_for_blocks(elements: i64, depth: i64) -> bool {
    depth >= BLOCK_SUM && elements * i64::from(WARP_THREADS) <= DEVICE_THREADS
}

/// Axes of the points that do.
pub(super) fn axes(elements: i64, block_threads: i64) -> [Axis; 2] {
    let few = [32, 64, 128, 256].into_iter().filter(|&threads| threads <= block_threads);
    [
        numbers("sum_threads", "threads that sum an element", few),
        numbers("sum_elements", "elements of such a block", together(elements)),
    ]
}

/// Elements that a block may sum at once: all blocks have the same number, so that all their threads meet.
fn together(elements: i64) -> impl Iterator<Item = i64> {
    upto(elements, &[1, 2, 4, 8])
}

/// The names of these axes.
pub(in crate::space) const AXES: [&str; 2] = ["sum_threads", "sum_elements"];

/// Whether a block of threads fits.
pub(super) fn allow(knobs: &Knobs, block_threads: i64) -> bool {
    let number = |name: &str| knobs.number(name).unwrap_or(1);
    number("sum_threads") * number("sum_elements") <= block_threads
}

/// A warp for each element.
pub(super) fn default(elements: i64, others: &Knobs) -> Knobs {
    let together = together(elements).filter(|&count| count <= 4).max().unwrap_or(1);
    let settings = [
        ("sum", choice("block")),
        ("sum_threads", Setting::Number(i64::from(WARP_THREADS))),
        ("sum_elements", Setting::Number(together)),
    ];
    let kept = others.0.get_key_value("unit").map(|(name, unit)| (name.clone(), unit.clone()));
    let settings = settings.into_iter().map(|(name, setting)| (name.to_owned(), setting)).chain(kept);
    Knobs(settings.collect::<BTreeMap<String, Setting>>())
}
