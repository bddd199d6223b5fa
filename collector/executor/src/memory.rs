//! Plans memory: each tensor is placed into the lowest gap between tensors live at the same time; tries several orders.

pub const ALIGNMENT_BYTES: u64 = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    pub bytes: u64,
    pub first: usize,
    /// Index of the last call that reads the tensor.
    pub last: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryLayout {
    pub offsets: Vec<u64>,
    pub bytes: u64,
    /// Maximum total size of simultaneously live tensors, a lower bound of `bytes`.
    pub least_bytes: u64,
}

impl Lifetime {
    pub fn stored_bytes(&self) -> u64 {
        self.bytes.next_multiple_of(ALIGNMENT_BYTES)
    }

    fn overlaps_with(&self, other: &Lifetime) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

pub fn place_tensors(lifetimes: &[Lifetime]) -> MemoryLayout {
    let least_bytes = peak_live_bytes(lifetimes);
    let by = |key: fn(&Lifetime) -> (u64, u64)| {
        let mut order: Vec<usize> = (0..lifetimes.len()).collect();
        order.sort_by_key(|&place| std::cmp::Reverse(key(&lifetimes[place])));
        place_in_order(lifetimes, &order)
    };
    let tried = [
        by(|one| (one.stored_bytes(), (one.last - one.first) as u64)),
        by(|one| ((one.last - one.first) as u64, one.stored_bytes())),
        by(|one| (one.stored_bytes().saturating_mul((one.last - one.first) as u64 + 1), one.stored_bytes())),
        by(|one| (u64::MAX - one.first as u64, one.stored_bytes())),
        by(|one| (one.last as u64, one.stored_bytes())),
    ];
    let (bytes, offsets) = tried.into_iter().min_by_key(|(bytes, _)| *bytes).expect("several orders were tried");
    MemoryLayout { offsets, bytes, least_bytes }
}

fn peak_live_bytes(lifetimes: &[Lifetime]) -> u64 {
    let mut changes: Vec<(usize, i128)> = Vec::with_capacity(2 * lifetimes.len());
    for one in lifetimes {
        let bytes = i128::from(one.stored_bytes());
        changes.push((one.first, bytes));
        changes.push((one.last + 1, -bytes));
    }
    // Sorted such that the memory of tensors that end before a call is available to it.
    changes.sort_unstable();
    let (mut now, mut most) = (0i128, 0i128);
    for (_, change) in changes {
        now += change;
        most = most.max(now);
    }
    u64::try_from(most).expect("sizes are positive")
}

/// Places tensors in this order; returns the total memory in bytes and the offset of each tensor.
fn place_in_order(lifetimes: &[Lifetime], order: &[usize]) -> (u64, Vec<u64>) {
    let mut offsets = vec![0; lifetimes.len()];
    let mut done: Vec<usize> = Vec::with_capacity(lifetimes.len());
    let mut most = 0;
    for &place in order {
        let own = &lifetimes[place];
        let mut overlapping: Vec<(u64, u64)> = done
            .iter()
            .filter(|&&other| lifetimes[other].overlaps_with(own))
            .map(|&other| (offsets[other], offsets[other] + lifetimes[other].stored_bytes()))
            .collect();
        overlapping.sort_unstable();
        let mut offset = 0;
        for (begins, ends) in overlapping {
            if offset + own.stored_bytes() <= begins {
                break;
            }
            offset = offset.max(ends);
        }
        offsets[place] = offset;
        most = most.max(offset + own.stored_bytes());
        done.push(place);
    }
    (most, offsets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_chain_needs_two_places() {
        let chain: Vec<Lifetime> = (0..9).map(|call| Lifetime { bytes: 640, first: call, last: call + 1 }).collect();
        let layout = place_tensors(&chain);
        assert_eq!((layout.bytes, layout.least_bytes), (1280, 1280));
    }

    #[test]
    fn long_lifetimes_do_not_waste_memory() {
        let lifetimes = [(64, 0, 5), (256, 0, 1), (256, 1, 2), (512, 2, 3), (64, 3, 5)];
        let lifetimes = lifetimes.map(|(bytes, first, last)| Lifetime { bytes, first, last });
        let layout = place_tensors(&lifetimes);
        assert_eq!(layout.least_bytes, 64 + 256 + 512);
        assert_eq!(layout.bytes, layout.least_bytes, "{layout:?}");
    }

    #[test]
    fn no_tensors_need_no_memory() {
        assert_eq!(place_tensors(&[]), MemoryLayout { offsets: vec![], bytes: 0, least_bytes: 0 });
    }

    proptest! {
        #[test]
        fn overlapping_lifetimes_never_share_memory(
            raw in prop::collection::vec((0u64..5000, 0usize..40, 0usize..8), 0..60)
        ) {
            let lifetimes: Vec<Lifetime> =
                raw.into_iter().map(|(bytes, first, length)| Lifetime { bytes, first, last: first + length }).collect();
            let found = place_tensors(&lifetimes);
            prop_assert!(found.bytes >= found.least_bytes);
            for (place, one) in lifetimes.iter().enumerate() {
                let begins = found.offsets[place];
                prop_assert!(begins.is_multiple_of(ALIGNMENT_BYTES) && begins + one.bytes <= found.bytes);
                for (other, two) in lifetimes.iter().enumerate().skip(place + 1) {
                    let apart = begins + one.bytes <= found.offsets[other]
                        || found.offsets[other] + two.bytes <= begins;
                    prop_assert!(apart || !one.overlaps_with(two) || one.bytes == 0 || two.bytes == 0);
                }
            }
        }
    }
}
