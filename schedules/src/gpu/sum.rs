//! Long sums with few results: split over several blocks, or computed by all threads of a block.

use super::super::axes::{Declaration, NumberAxis, SUM, Ways, candidate_divisors};
use super::super::choices::SummedBy;
use super::super::{Axis, Knobs};
use super::{BLOCK_SUM, UNIT};
use crate::product::WARP_THREADS;
use models::operators::MatMul;
use models::{Op, Task};

/// Number of threads that a large device runs at once. A result with more elements keeps it busy without split sums.
const DEVICE_THREADS: i64 = 132 * 2048;

const PART_DEPTH: i64 = 16;

pub(super) fn part_counts(elements: i64, depth: i64) -> Vec<i64> {
    let may_split = |&parts: &i64| parts == 1 || (depth % parts == 0 && depth / parts >= PART_DEPTH);
    if elements > DEVICE_THREADS { vec![1] } else { [1, 2, 4, 8, 16].into_iter().filter(may_split).collect() }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SumChoices {
    elements: i64,
    depth: i64,
    /// Maximum number of elements per load along the depth, which must be adjacent in memory in both operands.
    most_fetched: i64,
}

/// Returns the choices for sums by whole blocks; None unless sums are long, and few or the result is a single row.
pub(super) fn block_sums(task: &Task, elements: i64, depth: i64, is_row: bool) -> Option<SumChoices> {
    const FETCHED_BYTES: i64 = 16;
    let is_offered = depth >= BLOCK_SUM && (is_row || elements * i64::from(WARP_THREADS) <= DEVICE_THREADS);
    let lies_along_depth = matches!(
        task.steps[0].op,
        Op::Dense(_) | Op::QDense(_) | Op::MatMul(MatMul { transpose_a: false, transpose_b: true })
    );
    let bytes = task.parameters.iter().map(|parameter| parameter.ty.dtype.size_bytes()).max()?;
    let most_fetched = if lies_along_depth { FETCHED_BYTES / i64::try_from(bytes).ok()? } else { 1 };
    is_offered.then_some(SumChoices { elements, depth, most_fetched })
}

pub(crate) static AXES: &[&Declaration] = &[&SUM_THREADS.0, &SUM_ELEMENTS.0, &SUM_FETCH.0];

pub static SUM_THREADS: NumberAxis = NumberAxis::new("sum_threads").with_ways(Ways::BLOCK_SUM);
pub static SUM_ELEMENTS: NumberAxis = NumberAxis::new("sum_elements").with_ways(Ways::BLOCK_SUM);
pub static SUM_FETCH: NumberAxis = NumberAxis::new("sum_fetch").with_ways(Ways::BLOCK_SUM);

impl SumChoices {
    pub(super) fn sum_axes(self, block_threads: i64) -> [Axis; 3] {
        let few = [32, 64, 128, 256].into_iter().filter(|&threads| threads <= block_threads);
        [
            SUM_THREADS.to_axis("threads that sum one element of the result", few),
            SUM_ELEMENTS.to_axis("elements of the result per block", self.element_counts()),
            SUM_FETCH.to_axis("adjacent elements that a thread fetches at a time", self.fetch_counts()),
        ]
    }

    /// Returns the candidates for elements per block: divisors, because all threads must reach the same barrier.
    fn element_counts(self) -> impl Iterator<Item = i64> {
        candidate_divisors(self.elements, &[1, 2, 4, 8])
    }

    fn fetch_counts(self) -> impl Iterator<Item = i64> {
        candidate_divisors(self.depth, &[1, 2, 4, 8, 16]).filter(move |&count| count <= self.most_fetched)
    }

    pub(super) fn allows_point(self, knobs: &Knobs, block_threads: i64) -> bool {
        let (threads, fetched) = (SUM_THREADS.or_one(knobs), SUM_FETCH.or_one(knobs));
        threads * SUM_ELEMENTS.or_one(knobs) <= block_threads && (fetched == 1 || self.depth % (threads * fetched) == 0)
    }

    /// Returns the default knobs for sums by blocks: one warp per element.
    pub(super) fn default_knobs(self, others: &Knobs) -> Knobs {
        let warp = i64::from(WARP_THREADS);
        let together = self.element_counts().filter(|&count| count <= 4).max().unwrap_or(1);
        let fetched = self.fetch_counts().filter(|count| self.depth % (warp * count) == 0).max().unwrap_or(1);
        let mut knobs = Knobs::default();
        SUM.set(&mut knobs, SummedBy::Block);
        SUM_THREADS.set(&mut knobs, warp);
        SUM_ELEMENTS.set(&mut knobs, together);
        SUM_FETCH.set(&mut knobs, fetched);
        knobs.0.extend(others.0.get_key_value(UNIT.0.name).map(|(name, unit)| (name.clone(), unit.clone())));
        knobs
    }
}
