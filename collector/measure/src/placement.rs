//! The placement of a visit (one of the separate measurements of an experiment): the stack address decides which spill
//! slots cross a cache line, tensor addresses which loads and stores alias, modulo the page size. One fixed placement
//! is a bias that no number of samples removes, so visits spread their offsets evenly over a page, from a seeded start.

use serde::{Deserialize, Serialize};

pub const PAGE_BYTES: u32 = 4096;
const STACK_STEP_BYTES: u32 = 16;
/// Alignment of tensors: the length of the longest vector register.
const BUFFER_STEP_BYTES: u32 = 64;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// Offset of the measuring thread's stack within a page.
    pub stack_bytes: u32,
    /// Whether the stack offset is fixed; otherwise it changes with each batch.
    pub is_stack_fixed: bool,
    /// Unit of tensor offsets: tensor `n`, counted from 1, is offset by `n` times this value, modulo the page size.
    pub buffer_bytes: u32,
    /// Number that selects the runner process; consecutive numbers select different processes.
    pub process: u32,
}

impl Placement {
    /// Returns the placement of a visit, counted from 0. Tensors of the first visit end at an inaccessible page.
    pub fn of_visit(seed: u64, visit: u32, process: u32) -> Placement {
        let offset = |seed: u64, step: u32| {
            let steps = f64::from(PAGE_BYTES / step);
            let first = (seed % u64::from(PAGE_BYTES)) as f64 / f64::from(PAGE_BYTES);
            // Any number of visits is spread evenly.
            let share = (first + f64::from(visit) * models::GOLDEN_SHARE).fract();
            (share * steps) as u32 % (PAGE_BYTES / step) * step
        };
        Placement {
            stack_bytes: offset(seed, STACK_STEP_BYTES),
            is_stack_fixed: false,
            buffer_bytes: if visit == 0 { 0 } else { offset(seed >> 32, BUFFER_STEP_BYTES) },
            process,
        }
    }

    /// Returns the stack offset within a page, in bytes, of a batch, counted from 0.
    pub fn stack_bytes_of(&self, batch: u32) -> usize {
        /// An odd multiple of the alignment near the golden section of a page, so that every offset occurs.
        const STEP_BYTES: u32 = 2544;
        let moved = if self.is_stack_fixed { 0 } else { batch % PAGE_BYTES * STEP_BYTES };
        ((self.stack_bytes + moved) % PAGE_BYTES) as usize
    }

    /// Returns the offset within a page, in bytes, of a tensor, counted from 0.
    pub fn tensor_bytes(&self, number: usize) -> usize {
        (self.buffer_bytes as usize).wrapping_mul(number + 1) % PAGE_BYTES as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn batches_come_to_all_places_unless_one_is_asked_for() {
        let mut placement = Placement { stack_bytes: 96, ..Placement::default() };
        let mut places: Vec<usize> = (0..256).map(|batch| placement.stack_bytes_of(batch)).collect();
        places.sort_unstable();
        assert!(places.iter().enumerate().all(|(number, place)| *place == 16 * number), "{places:?}");
        placement.is_stack_fixed = true;
        assert!([0, 1, 77, u32::MAX].iter().all(|batch| placement.stack_bytes_of(*batch) == 96));
    }

    proptest! {
        #[test]
        fn offsets_keep_alignment_and_lie_in_a_page(seed: u64, visit in 0u32..100) {
            let placement = Placement::of_visit(seed, visit, 0);
            prop_assert!(placement.stack_bytes < PAGE_BYTES && placement.stack_bytes.is_multiple_of(STACK_STEP_BYTES));
            prop_assert!(placement.buffer_bytes < PAGE_BYTES);
            prop_assert!(placement.buffer_bytes.is_multiple_of(BUFFER_STEP_BYTES));
            for number in 0..5 {
                prop_assert!(placement.tensor_bytes(number).is_multiple_of(BUFFER_STEP_BYTES as usize));
            }
        }

        #[test]
        fn three_visits_lie_apart(seed: u64) {
            let mut offsets: Vec<u32> = (0..3).map(|visit| Placement::of_visit(seed, visit, 0).stack_bytes).collect();
            offsets.sort_unstable();
            let gaps = [offsets[1] - offsets[0], offsets[2] - offsets[1], PAGE_BYTES - offsets[2] + offsets[0]];
            prop_assert!(gaps.iter().all(|gap| *gap >= PAGE_BYTES / 5), "{offsets:?}");
        }
    }
}
